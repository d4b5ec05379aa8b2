"""Mirrors `engine/cli/screens.py`: the screens themselves, at fixed clocks and widths."""

from __future__ import annotations

from typing import Any

import pytest
from cli.looks import WIDTHS, golden, row, view

from engine.cli import screens, words
from engine.cli.view import cells


def entry(text: str, level: str = "error", task: str = "t8f3kr9") -> dict[str, Any]:
    return {"time": "2026-11-30T12:04:31.208Z", "level": level, "taskId": task, "text": text}


ENGINES = entry("task t8f3kr9 failed (exit 1)") | {"source": "engine"}

FAILED = {
    "status": "failed",
    "taskId": "t8f3kr9",
    "endedAt": "2026-11-30T12:04:31.411Z",
    "exitCode": 1,
    "durationMs": 278_120,
    "outputBytes": 3_355_443,
    "logs": [
        entry("unused variable", "warning"),
        entry("FAILED tests/store/test_reopen.py::test_after_kill - AssertionError: not the same"),
        entry("another task's", task="t8f3kq2"),
        entry("1 failed, 211 passed in 276.31s"),
        ENGINES,
    ],
}


def test_the_end_of_one_wait_says_what_a_person_needs_about_a_failure() -> None:
    ran = row("8f3kr9", "running", "pytest -q tests/store")
    assert screens.one_wait(ran, FAILED, view(80)) == [
        "✗ t8f3kr9  failed, exit 1, 4m38s  pytest -q tests/store",
        "  2 error lines:",
        "  12:04:31.208  FAILED tests/store/test_reopen.py::test_after_kill - AssertionE…",
        "  12:04:31.208  1 failed, 211 passed in 276.31s",
        "  engine output t8f3kr9   shows all 3.2 MiB",
    ]


def test_the_end_of_one_wait_is_one_line_when_it_went_well() -> None:
    ran = row("8f3kq2", "running", "npm run build")
    record = {"status": "succeeded", "taskId": "t8f3kq2", "exitCode": 0, "durationMs": 131_004}
    assert screens.one_wait(ran, record | {"outputBytes": 5}, view(80)) == [
        "✓ t8f3kq2  succeeded, 2m11s  npm run build"
    ]


LIVE = [
    row("8f3kq2", "succeeded", "npm run build", durationMs=131_004, exitCode=0),
    row(
        "8f3kr9",
        "running",
        "pytest -q tests/store",
        startedAt="2026-11-30T12:00:19.000Z",
        lastOutputAt="2026-11-30T12:04:28.000Z",
    ),
    row("8f3ks4", "queued", "x", queuePosition=1, queueReason="lane gpu is full (1 of 1)"),
]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_screens_of_waiting_and_of_one_task_at_each_width(width: int | None) -> None:
    ran = row("8f3kr9", "running", "pytest -q tests/store", **{"as": "ci"})
    done = [*LIVE[:1], {**ran, **FAILED}]
    if width is None:
        one = [f"{words.plain_ended({**ran, **FAILED})} {ran['title']}"]
        several = [f"{words.plain_ended(r)} {r['title']}" for r in done]
    else:
        one = screens.one_wait(ran, FAILED, view(width))
        several = screens.live_block(LIVE, view(width), 22)
    assert one == golden("wait-one", width)
    assert several == golden("wait-several", width)
    errors = [entry('engine/jobs/kill.py:88: error: Name "taks" is not defined'), ENGINES]
    assert screens.one_task(SHOWN, view(width), errors) == golden("show", width)


def test_the_block_of_several_waits() -> None:
    assert screens.live_block(LIVE, view(80), 22) == [
        "✓ t8f3kq2  succeeded     2m11s  npm run build",
        "▶ t8f3kr9  running       4m12s  pytest -q tests/store        output 3s ago",
        "… k8f3ks4  queued #1            lane gpu is full (1 of 1)",
        "1 of 3 ended · Ctrl-C stops waiting, the tasks go on",
    ]


def test_what_a_task_is_blocked_on_stands_at_the_end_of_its_row() -> None:
    blocked = {"category": "input", "prompt": "Name? "}
    asking = {**LIVE[1], "blockedOn": blocked}
    assert screens.live_row(asking, view(80)) == (
        "▶ t8f3kr9  running       4m12s  waits for input: Name?"
    )


def test_the_block_keeps_to_its_height_and_shows_failures_first() -> None:
    rows = [row(f"8f3k{i:02d}", "succeeded", "x", durationMs=1) for i in range(30)]
    rows[29] = row("8f3k29", "failed", "y", durationMs=1, exitCode=2)
    block = screens.live_block(rows, view(80), 8)
    assert len(block) == 8
    assert block[5].startswith("✗ t8f3k29  failed 2")
    assert block[6:] == ["  +24 more", "30 of 30 ended"]


@pytest.mark.parametrize("width", [20, 50, 80, 200])
def test_a_row_of_the_block_fits_the_width(width: int) -> None:
    lines = screens.live_block([*LIVE, row("8f3k00", "running", "日本語 " * 99)], view(width), 22)
    assert all(cells(line) <= max(width, 34) for line in lines)


SHOWN = {
    **row("8f3kp7", "failed", "ruff check . && mypy engine", exitCode=1, durationMs=14_020),
    "endedAt": "2026-11-30T11:55:16.134Z",
    "command": "ruff check . && mypy engine",
    "session": True,
    "roundId": "r5k2",
    "seat": "lint",
    "cwd": "/srv/proj",
    "cpuMs": 21_400,
    "outputBytes": 18_637,
    "errorLines": 2,  # of the job; the engine's word on its end is one more
    "outputPath": "/srv/engine/tasks/8f3kp7/output",
    "survivors": [{"pid": 41, "command": "sleep\t9"}],
    "droppedBytes": 0,
}


def test_all_about_one_task_on_a_terminal() -> None:
    assert screens.one_task(SHOWN, view(80)) == [
        "✗ t8f3kp7  failed, exit 1, 14s",
        "  command    ruff check . && mypy engine",
        "  caller     ci               session yes   lane –   round r5k2 seat lint",  # noqa: RUF001
        "  cwd        /srv/proj",
        "  created    11:55:02.114     started +2ms     ended 11:55:16.134",
        "  cpu        21.4s            output 18.2 KiB  errors 2  warnings 0",
        "  output     /srv/engine/tasks/8f3kp7/output",
        "  survivor   41  sleep\\x099",
    ]


def test_of_one_task_what_it_comes_after_and_is_blocked_on_is_shown() -> None:
    on = {"category": "input", "prompt": "Name?"}
    task = row("8f3kr9", "running", "x", blockedOn=on, after=["t8f3kq2", "r8f3ku0"], lane="gpu")
    lines = screens.one_task(task, view(80))
    assert lines[2:5] == [
        "  caller     ci               session no   lane gpu",
        "  after      t8f3kq2 r8f3ku0",
        "  blocked    waits for input: Name?",
    ]
    waiting = row("8f3kr9", "queued", "x", queuePosition=1, queueReason="after t8f3kq2")
    waiting |= {"blockedOn": {"category": "after", "ids": ["t8f3kq2"]}}
    lines = screens.one_task(waiting, view(80))
    assert lines[0] == "… k8f3kr9  queued #1: after t8f3kq2"
    assert not any("blocked" in line for line in lines)


def test_all_about_one_task_ends_in_its_error_lines() -> None:
    errors = [
        entry('engine/jobs/kill.py:88: error: Name "taks" is not defined' + "!" * 40),
        ENGINES,
    ]
    lines = screens.one_task(SHOWN, view(80), errors)
    assert lines[:8] == screens.one_task({**SHOWN, "errorLines": 3}, view(80))
    assert lines[8:] == [
        "  errors     the newest 2 of 3",
        '  12:04:31.208  engine/jobs/kill.py:88: error: Name "taks" is not defined!!!!!!…',
        "  12:04:31.208  task t8f3kr9 failed (exit 1)",
    ]
    assert screens.one_task({**SHOWN, "errorLines": None}, view(200), errors)[8:] == [
        "  errors",
        '  12:04:31.208  engine/jobs/kill.py:88: error: Name "taks" is not defined' + "!" * 40,
        "  12:04:31.208  task t8f3kr9 failed (exit 1)",
    ]
    narrow = screens.one_task(SHOWN, view(50), errors)
    assert narrow[12] == "  12:04:31.208  engine/jobs/kill.py:88: error: Na…"
    piped = screens.one_task(SHOWN, view(None), errors)
    assert piped[-1] == "error          2026-11-30T12:04:31.208Z task t8f3kr9 failed (exit 1)"


def test_all_about_one_task_to_a_pipe_is_a_field_a_line() -> None:
    lines = screens.one_task(SHOWN, view(None))
    assert "exitCode       1" in lines
    assert "createdAt      2026-11-30T11:55:02.114Z" in lines
    assert len(lines) == len(SHOWN)


def test_the_value_of_code_is_told_with_its_end() -> None:
    row = {"title": "2 * 21"}
    record = {"taskId": "t1", "status": "succeeded", "durationMs": 4, "value": "4\t2"}
    right = ["✓ t1  succeeded, 4ms  2 * 21", "  value: 4\\x092"]
    assert screens.one_wait(row, record, view(80)) == right
    assert screens.value_lines(record, view(None)) == right[1:]
    assert screens.value_lines({**record, "value": None}, view(80)) == []
    [long] = screens.value_lines({**record, "value": "x" * 900}, view(50))
    assert len(long) == 500
    shown = screens.one_task({**SHOWN, "value": "42"}, view(80))
    assert "  value      42" in shown


def test_a_long_command_is_cut_on_a_terminal() -> None:
    lines = screens.one_task({**SHOWN, "command": "\n".join("abcdefghijklmn")}, view(80))
    assert lines[10:12] == ["             j", "             (and 4 lines more)"]
