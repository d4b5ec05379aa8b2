"""A small engine to talk to, and one that is the real thing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.fuller_engine import FullerEngine


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FullerEngine]:
    """A fake engine that listens in a home of its own."""
    engine = FullerEngine(tmp_path / "home")
    engine.start()
    yield engine
    engine.close()
