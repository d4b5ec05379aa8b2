"""Mirrors `engine/server/logs.py`."""

from __future__ import annotations

from engine.journal.levels import Level
from engine.server.logs import fitting, left_out


def test_the_newest_lines_that_fit_are_shown() -> None:
    shown = [{"seq": number, "text": "é" * 10} for number in range(10, 15)]
    # {"seq":10,"text":"éééééééééé"} and a comma: 41 bytes.
    assert fitting(shown, 205) == shown
    assert [line["seq"] for line in fitting(shown, 204)] == [11, 12, 13, 14]
    assert fitting(shown, 40) == []


def test_the_marker_says_how_many_and_names_the_floor() -> None:
    assert left_out(3, Level.ERROR) == {
        "marker": True,
        "leftOut": 3,
        "text": "3 error lines from another caller's work left out",
    }
