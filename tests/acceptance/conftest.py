"""One engine for all tests of a worker that leave it as it was, and connections to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import FORKED, Caller, Client, Engine, Gate
from cli.program import Forked, ForkServer

LOADED = ForkServer("engine.daemon")


class ForkedEngine(Forked):
    server = LOADED


@pytest.fixture(scope="session", autouse=True)
def loaded_program() -> Iterator[None]:
    """Of a worker's engines, but those with another environment or in a program of their own."""
    LOADED.open()
    FORKED.append(ForkedEngine)
    yield
    FORKED.clear()
    LOADED.close()


@pytest.fixture
def whole_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each engine of the test begins with a Python of its own."""
    monkeypatch.setattr("acceptance.running.FORKED", [])


@pytest.fixture(scope="session")
def engine(loaded_program: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
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
