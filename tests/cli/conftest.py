"""A small engine to talk to, and one that is the real thing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import Engine, Gate, new_name
from cli.fuller_engine import FullerEngine
from cli.program import FORKS


@pytest.fixture(scope="session", autouse=True)
def forks() -> Iterator[None]:
    """What starts the command line for the tests of this folder."""
    FORKS.open()
    yield
    FORKS.close()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FullerEngine]:
    """A fake engine that listens in a home of its own."""
    engine = FullerEngine(tmp_path / "home")
    engine.start()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A real engine for all tests that leave it as it was; they keep apart by their callers."""
    home = tmp_path_factory.mktemp("engine") / "home"
    with Engine(home, "--set", "min_free_bytes=0", "--lane", "narrow=1") as engine:
        yield engine


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """What a job of the test waits on."""
    with Gate(tmp_path / "gate") as gate:
        yield gate


@pytest.fixture
def me() -> str:
    """A caller that nobody has been before."""
    return new_name("me")
