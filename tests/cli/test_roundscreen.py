"""Mirrors `engine/cli/roundscreen.py`: the block of a round at fixed clocks and widths."""

from __future__ import annotations

from typing import Any

import pytest
from cli.looks import WIDTHS, golden, row, view

from engine.cli import roundscreen
from engine.cli.view import cells

SEATS = {
    "unit": row("8f3ku1", "succeeded", "pytest -q", durationMs=62_000, exitCode=0)
    | {"endedAt": "2026-11-30T11:56:04.116Z"},
    "lint": row("8f3ku2", "failed", "ruff check .", durationMs=14_020, exitCode=1)
    | {"endedAt": "2026-11-30T11:55:16.134Z", "outputBytes": 18_637},
    "types": row("8f3ku3", "running", "mypy engine", startedAt="2026-11-30T12:02:51.000Z"),
    "gpu": row("8f3ku4", "queued", "pytest -m gpu", queuePosition=1)
    | {"queueReason": "lane gpu is full (1 of 1)", "lane": "gpu"},
}
TAILS = {"unit": "212 passed in 61.88s", "lint": "Found 3 errors.", "types": "checking 214 files"}


def error(text: str, source: str = "output") -> dict[str, Any]:
    return {"time": "2026-11-30T11:55:16.120Z", "level": "error", "text": text, "source": source}


def test_the_seats_of_a_round_side_by_side() -> None:
    assert roundscreen.round_block("r5k2", SEATS, TAILS, view(80), 22) == [
        "round r5k2 · 2 of 4 ended",
        "  SEAT    STATUS         TIME  TASK     LAST LINE",
        "✓ unit    succeeded     1m02s  t8f3ku1  212 passed in 61.88s",
        "✗ lint    failed 1        14s  t8f3ku2  Found 3 errors.",
        "▶ types   running       1m40s  t8f3ku3  checking 214 files",
        "… gpu     queued #1            k8f3ku4  lane gpu is full (1 of 1)",
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_screens_of_a_round_at_each_width(width: int | None) -> None:
    if width is None:
        shown = [
            roundscreen.plain_seat(name, SEATS[name], view(None).now) for name in ("lint", "unit")
        ]
    else:
        shown = roundscreen.round_block("r5k2", SEATS, TAILS, view(width), 22)
    shown += roundscreen.seat_errors(
        "lint",
        SEATS["lint"],
        [error("src/a.py:1:1: F401 unused"), error("task t8f3ku2 failed (exit 1)", "engine")],
        view(width),
    )
    assert shown == golden("round", width)


@pytest.mark.parametrize("width", [20, 40, 49, 50, 80])
def test_no_line_of_the_block_is_wider_than_the_terminal(width: int) -> None:
    seats = {"a-seat-with-a-very-long-name": SEATS["unit"], **SEATS}
    tails = dict.fromkeys(seats, "日本語 " * 99)
    lines = roundscreen.round_block("r5k2", seats, tails, view(width), 22)
    assert all(cells(line) <= max(width, 39) for line in lines)


def test_the_block_keeps_to_its_height_and_shows_failed_seats_first() -> None:
    seats = {f"s{i:02d}": row(f"8f3k{i:02d}", "succeeded", "x", durationMs=1) for i in range(30)}
    seats["s29"] = row("8f3k29", "failed", "x", durationMs=1, exitCode=2)
    block = roundscreen.round_block("r5k2", seats, {}, view(80), 8)
    assert len(block) == 8
    assert block[6].startswith("✗ s29     failed 2")
    assert block[7] == "  +25 more"


def test_what_blocks_a_seat_stands_in_place_of_its_last_line() -> None:
    blocked = {"blockedOn": {"category": "input", "prompt": "Name? "}}
    seat = {**SEATS["types"], **blocked}
    assert roundscreen.last_words(seat, "checking") == "waits for input: Name?"
    assert roundscreen.last_words({**seat, "blockedOn": {"category": "idle"}}, "checking") == (
        "is idle: no output and no processor time"
    )


def test_a_control_character_of_a_job_moves_no_cursor() -> None:
    assert roundscreen.last_words(SEATS["types"], "a\x1bb\u202e") == "a\\x1bb\\u202e"


def test_the_verdict_names_the_seats_and_the_next_thing_to_type() -> None:
    assert roundscreen.failed(SEATS) == ["lint"]
    assert roundscreen.verdict("r5k2", SEATS) == (
        "1 of 4 seats did not succeed: lint; engine round retry r5k2"
    )


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (None, "lint 2026-11-30T12:00:00.000Z not started, exit 127: no\\x1b such file"),
        (80, "✗ lint  not started, exit 127: no\\x1b such file"),
    ],
)
def test_a_seat_that_was_not_started_says_why(width: int | None, line: str) -> None:
    facts = {"reason": "spawn_error", "exitCode": 127, "endedAt": "2026-11-30T12:00:00.000Z"}
    seat = row("8f3ku2", "failed", "x", **facts, error={"message": "no\x1b such file"})
    assert roundscreen.seat_errors("lint", seat, [], view(width)) == [line]
    assert roundscreen.last_words(seat, "") == "no\\x1b such file"
