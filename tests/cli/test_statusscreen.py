"""Mirrors `engine/cli/statusscreen.py`."""

from __future__ import annotations

from typing import Any

import pytest
from cli.fuller_engine import caller
from cli.looks import WIDTHS, golden, view

from engine.cli.statusscreen import problems, status_lines
from engine.cli.view import cells

INFO: dict[str, Any] = {
    "version": "0.1.0",
    "startedAt": "2026-11-27T08:00:31.208Z",
    "slots": 32,
    "running": 5,
    "queued": 2,
    "oldestQueuedMs": 41_000,
    "held": 1,
    "lanes": {"gpu": {"limit": 1, "running": 1, "queued": 2}},
    "callers": 7,
    "requestsPending": 2,
    "oldestRequestMs": 31 * 60_000,
    "outputBytes": int(3.2 * (1 << 30)),
    "diskFreeBytes": 118 << 30,
    "journalLines": 412_207,
    "policy": "none",
    "limits": {"total_output_cap_bytes": 20 << 30},
    "degraded": [],
}


HOUR: dict[str, Any] = {
    "ended": {"succeeded": 204, "failed": 9, "cancelled": 1, "timed_out": 2},
    "p50Ms": 1_200,
    "p95Ms": 250_000,
    "launchP95Ms": 2,
}
ROSTER = [
    caller("build-agent", 3),
    caller("ci", 1, 2),
    caller("docs-agent", 1),
    *(caller(f"idle-{i}") for i in range(4)),
]
URL = "ws://127.0.0.1:8420/rpc"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_engine_at_a_glance_at_each_width(width: int | None) -> None:
    lines = status_lines(INFO, URL, 4120, view(width), roster=ROSTER, hour=HOUR)
    assert lines == golden("status", width)


def test_what_an_older_engine_does_not_tell_is_left_out() -> None:
    assert status_lines(INFO, URL, 4120, view(80)) == [
        "engine 0.1.0   ws://127.0.0.1:8420/rpc   pid 4120   up 3d04h",
        "slots      5 of 32 running · 2 queued, oldest 41s · 1 held",
        "lanes      gpu 1 of 1, 2 queued",
        "callers    7",
        "requests   2 wait for a person, oldest 31m",
        "output     3.2 GiB of 20 GiB           disk 118 GiB free",
        "journal    412,207 lines               store ok   policy none",
    ]


def test_an_hour_in_which_nothing_ended_says_so() -> None:
    lines = status_lines(INFO, URL, None, view(80), hour={"ended": {}, "p50Ms": None})
    assert "last hour  nothing ended" in lines
    assert not any(line.startswith("time") for line in lines)


def test_of_many_callers_five_are_named() -> None:
    roster = [caller(f"agent-{i}", 9 - i) for i in range(9)]
    lines = status_lines(INFO, URL, None, view(200), roster=[*roster, caller("x")])
    named = "agent-0 9 · agent-1 8 · agent-2 7 · agent-3 6 · agent-4 5 · 4 more · 1 idle"
    assert f"callers    {named}" in lines


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (
            {"limits": {"min_free_bytes": 1 << 30}, "diskFreeBytes": 800 << 20},
            "disk 800 MiB free: new jobs are refused",
        ),
        ({"policy": "invalid"}, "the policy file does not parse: every call is held"),
    ],
)
def test_what_refuses_or_holds_work_is_a_problem(wrong: dict[str, Any], line: str) -> None:
    assert problems(INFO) == []
    assert problems(INFO | wrong) == [line]


def test_what_is_wrong_takes_the_first_line_in_red() -> None:
    wrong = INFO | {"degraded": ["store does not take writes since 12:01 (disk full)"]}
    lines = status_lines(wrong, "", None, view(80, colour=True), roster=ROSTER, hour=HOUR)
    assert lines[0] == "\x1b[31mstore does not take writes since 12:01 (disk full)\x1b[0m"


def test_each_line_fits_the_width() -> None:
    for width in (20, 50, 80):
        lines = status_lines(INFO, URL, 4120, view(width), roster=ROSTER, hour=HOUR)
        assert max(map(cells, lines)) <= width
