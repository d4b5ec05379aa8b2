"""One engine for all tests of a worker that leave it as it was, and connections to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import Caller, Client, Engine, Gate


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A running engine with 100 slots; tests keep apart by their callers' names."""
    home = tmp_path_factory.mktemp("engine") / "home"
    with Engine(home, "--slots", "100", "--set", "min_free_bytes=0") as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[Client]:
    with engine.connect() as client:
        yield client


@pytest.fixture
def caller(client: Client) -> Caller:
    """A caller that nobody has been before."""
    return client.caller()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """What a job of the test waits on."""
    with Gate(tmp_path / "gate") as gate:
        yield gate


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[Gate]:
    """By which a job of the test tells how far it is."""
    with Gate(tmp_path / "bell") as bell:
        yield bell
