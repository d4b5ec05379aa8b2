"""One engine for all tests of MCP of a worker that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from acceptance.running import Engine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home = tmp_path_factory.mktemp("engine") / "home"
    with Engine(home, "--slots", "100", "--set", "min_free_bytes=0") as engine:
        yield engine
