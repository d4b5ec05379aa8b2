"""Mirrors `engine/mcp/tools.py`: the reference tells of every tool, and what it has of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine
from engine.mcp.tools import TOOLS

PAGE = (Path(engine.__file__).parent / "docs" / "mcp.md").read_text(encoding="utf-8")
TABLE = [line for line in PAGE.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_stands_in_the_reference_with_its_defaults(name: str) -> None:
    (row,) = [line for line in TABLE if f"`{name}`" in line]
    for param, value in TOOLS[name].defaults.items():
        assert f"`{param}` {value}" in row


def test_what_moves_something_is_not_annotated_as_reading() -> None:
    looks = {name for name, tool in TOOLS.items() if tool.hints.is_read_only}
    assert looks == {"read_output", "list_tasks", "roster"}
    assert TOOLS["wait"].hints.is_idempotent
    assert not any(TOOLS[name].hints.is_destructive for name in looks)
