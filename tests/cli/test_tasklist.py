"""Mirrors `engine/cli/tasklist.py`."""

from __future__ import annotations

import pytest
from cli.looks import WIDTHS, golden, row, view

from engine.cli import tasklist
from engine.cli.view import cells

ROWS = [
    row(
        "8f3kt0",
        "held",
        "rm -rf build",
        **{"as": "build-agent", "createdAt": "2026-11-30T12:04:19.000Z"},
    ),
    row(
        "8f3ks9",
        "queued",
        "python train.py",
        queuePosition=1,
        createdAt="2026-11-30T12:03:50.000Z",
    ),
    row(
        "8f3kr9",
        "running",
        "pytest -q tests/store",
        **{"as": "build-agent"},
        createdAt="2026-11-30T11:59:30.000Z",
        startedAt="2026-11-30T11:59:53.002Z",
    ),
    row("8f3kq2", "succeeded", "npm run build", exitCode=0, durationMs=131_004),
    row(
        "8f3kp7",
        "failed",
        "ruff check . && mypy engine && pytest -q tests",
        exitCode=1,
        durationMs=14_020,
    ),
    row("8f3kp2", "failed", "./stress --mem 8G", signal="SIGKILL", durationMs=62_000),
    row("8f3kn8", "timed_out", "sleep 9999", **{"as": "anna"}, durationMs=600_000),
    row("8f3kn1", "cancelled", "npm ci", **{"as": "anna"}, durationMs=3_000),
]

INFO = {"held": 1, "queued": 1, "running": 1, "slots": 32}


@pytest.mark.parametrize("width", [*WIDTHS, 77, 40])
def test_the_list_at_each_width(width: int | None) -> None:
    lines = tasklist.task_table(ROWS, view(width))
    if width is not None:
        lines.append(tasklist.task_footer(INFO, 20, "1,240", view(width)))
    assert lines == golden("tasks", width)


@pytest.mark.parametrize("width", range(20, 120))
def test_a_row_is_one_line_that_fits(width: int) -> None:
    wide = [*ROWS, row("8f3kzz", "running", "日本語のタイトル " * 20, **{"as": "a" * 64})]
    lines = tasklist.task_table(wide, view(width))
    assert len(lines) == len(wide) + 1
    if width >= 26:  # below, status and task alone are wider
        assert max(map(cells, lines)) <= width


def test_without_utf8_the_glyphs_are_ascii() -> None:
    lines = tasklist.task_table(ROWS, view(80, unicode=False), header=False)
    assert "".join(line[0] for line in lines) == "!.>+xxx-"
    assert all(line.isascii() for line in lines)


def test_colour_changes_nothing_but_colour() -> None:
    import re

    painted = tasklist.task_table(ROWS, view(80, colour=True))
    assert any("\x1b[31m" in line for line in painted)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in painted]
    assert plain == golden("tasks", 80)[:-1]


def test_a_title_cannot_move_the_cursor_or_turn_the_text_around() -> None:
    rows = [row("8f3k00", "running", "a\x1b[2J\u202eb")]
    for width in (80, None):
        assert "a\\x1b[2J\\u202eb" in tasklist.task_table(rows, view(width))[1]


def test_the_foot_of_the_list_counts_and_names_what_shows_more() -> None:
    info = {"held": 1, "queued": 1, "running": 0, "slots": 1_200}
    left = "1 held · 1 queued · 1,200 slots"
    right = "20 of 1,240; -n 100 shows more".rjust(80 - len(left))
    assert tasklist.task_footer(info, 20, "1,240", view(80)) == left + right
    assert tasklist.task_footer(info, 20, "", view(80)) == left
    assert tasklist.task_footer(info, 20, "1,240", view(50)) == left  # no room for both
    assert cells(tasklist.task_footer(info, 20, "1,240", view(30))) == 30


def test_the_live_list_keeps_to_its_height_and_shows_failures_first() -> None:
    many = [*ROWS, *(row(f"8f3k{i:02d}", "succeeded", "x", durationMs=1) for i in range(20))]
    lines = tasklist.watched(many, INFO, view(80), 8)
    assert [line.partition("  ")[0].strip() for line in lines] == [
        "",
        "! held",
        "▶ running",
        "✗ failed 1",
        "✗ failed KILL",
        "✗ timed_out",
        "",
        "1 held · 1 queued · 1 running · 32 slots",
    ]
    assert lines[6] == "  +23 more"
    assert lines[-1].endswith("Ctrl-C stops looking")
    assert cells(lines[-1]) == 80


def test_a_column_for_pipes_is_as_wide_as_the_widest_so_far() -> None:
    table = tasklist.PlainTable([])
    assert table.header() == "STATUS  TASK  CALLER  EXIT  CREATED  TIME  COMMAND"
    first = table.line(ROWS[3], view(None))
    assert first.startswith("succeeded  t8f3kq2  ci      0     2026-11-30T11:55:02.114Z  131.004s")
    assert table.line(ROWS[2], view(None)).startswith("running    t8f3kr9  build-agent  -     ")
