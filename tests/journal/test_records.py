"""Mirrors `engine/journal/records.py`."""

from __future__ import annotations

from engine.journal.records import wire
from engine.store.lines import Line


def test_a_line_states_whose_it_is_and_says_cut_only_where_it_was() -> None:
    line = Line(7, 1_000, 4, "ci", "8f3kr9", "output", "boom", True)
    assert wire(line) == {
        "seq": 7,
        "time": "1970-01-01T00:00:01.000Z",
        "level": "error",
        "caller": "ci",
        "taskId": "t8f3kr9",
        "source": "output",
        "text": "boom",
        "cut": True,
    }
    shown = wire(Line(8, 0, 7, None, None, "engine", "x", False))
    assert (shown["level"], shown["caller"], shown["taskId"]) == ("emergency", None, None)
    assert "cut" not in shown
