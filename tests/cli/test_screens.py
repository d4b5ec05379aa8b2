"""Mirrors `engine/cli/screens.py`: the screens themselves, at fixed clocks and widths."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from engine.cli import screens
from engine.cli.view import View, cells

NOW = datetime(2026, 11, 30, 12, 4, 31, 208_000, tzinfo=UTC)


def view(width: int | None, **more: Any) -> View:
    return View(now=NOW, zone=UTC, width=width, **more)


def row(name: str, status: str, title: str, **more: Any) -> dict[str, Any]:
    reached = status not in ("queued", "held")
    return {
        "taskId": "t" + name if reached else None,
        "kickoffId": "k" + name,
        "as": "ci",
        "kind": "bash",
        "title": title,
        "status": status,
        "reason": None,
        "exitCode": None,
        "signal": None,
        "createdAt": "2026-11-30T11:55:02.114Z",
        "startedAt": "2026-11-30T11:55:02.116Z" if reached else None,
        "endedAt": None,
        "durationMs": None,
        "lastOutputAt": None,
        "outputBytes": 0,
        "errorLines": 0,
        "warningLines": 0,
        "lane": None,
        "queuePosition": None,
        "queueReason": None,
        "roundId": None,
        "seat": None,
        "changedSeq": 1,
        **more,
    }


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

AT_80 = """\
  STATUS         TASK     CALLER        AGE    TIME  COMMAND
! held           k8f3kt0  build-agent   12s          rm -rf build
… queued #1      k8f3ks9  ci            41s          python train.py
▶ running        t8f3kr9  build-agent    5m   4m38s  pytest -q tests/store
✓ succeeded      t8f3kq2  ci             9m   2m11s  npm run build
✗ failed 1       t8f3kp7  ci             9m     14s  ruff check . && mypy engin…
✗ failed KILL    t8f3kp2  ci             9m   1m02s  ./stress --mem 8G
✗ timed_out      t8f3kn8  anna           9m  10m00s  sleep 9999
⊘ cancelled      t8f3kn1  anna           9m      3s  npm ci"""

AT_77 = """\
  STATUS         TASK     CALLER         TIME  COMMAND
! held           k8f3kt0  build-agent          rm -rf build
… queued #1      k8f3ks9  ci                   python train.py
▶ running        t8f3kr9  build-agent   4m38s  pytest -q tests/store
✓ succeeded      t8f3kq2  ci            2m11s  npm run build
✗ failed 1       t8f3kp7  ci              14s  ruff check . && mypy engine &…
✗ failed KILL    t8f3kp2  ci            1m02s  ./stress --mem 8G
✗ timed_out      t8f3kn8  anna         10m00s  sleep 9999
⊘ cancelled      t8f3kn1  anna             3s  npm ci"""

AT_50 = """\
  STATUS         TASK       TIME  COMMAND
! held           k8f3kt0          rm -rf build
… queued #1      k8f3ks9          python train.py
▶ running        t8f3kr9   4m38s  pytest -q tests…
✓ succeeded      t8f3kq2   2m11s  npm run build
✗ failed 1       t8f3kp7     14s  ruff check . &&…
✗ failed KILL    t8f3kp2   1m02s  ./stress --mem …
✗ timed_out      t8f3kn8  10m00s  sleep 9999
⊘ cancelled      t8f3kn1      3s  npm ci"""

AT_40 = """\
  STATUS         TASK     COMMAND
! held           k8f3kt0  rm -rf build
… queued #1      k8f3ks9  python train.…
▶ running        t8f3kr9  pytest -q tes…
✓ succeeded      t8f3kq2  npm run build
✗ failed 1       t8f3kp7  ruff check . …
✗ failed KILL    t8f3kp2  ./stress --me…
✗ timed_out      t8f3kn8  sleep 9999
⊘ cancelled      t8f3kn1  npm ci"""

AT_200 = AT_80.replace("mypy engin…", "mypy engine && pytest -q tests")

PIPE = """\
STATUS     TASK     CALLER       EXIT     CREATED                   TIME      COMMAND
held       k8f3kt0  build-agent  -        2026-11-30T12:04:19.000Z  -         rm -rf build
queued     k8f3ks9  ci           -        2026-11-30T12:03:50.000Z  -         python train.py
running    t8f3kr9  build-agent  -        2026-11-30T11:59:30.000Z  -         pytest -q tests/store
succeeded  t8f3kq2  ci           0        2026-11-30T11:55:02.114Z  131.004s  npm run build
failed     t8f3kp7  ci           1        2026-11-30T11:55:02.114Z  14.020s   \
ruff check . && mypy engine && pytest -q tests
failed     t8f3kp2  ci           SIGKILL  2026-11-30T11:55:02.114Z  62.000s   ./stress --mem 8G
timed_out  t8f3kn8  anna         -        2026-11-30T11:55:02.114Z  600.000s  sleep 9999
cancelled  t8f3kn1  anna         -        2026-11-30T11:55:02.114Z  3.000s    npm ci"""


@pytest.mark.parametrize(
    ("width", "screen"),
    [(80, AT_80), (77, AT_77), (50, AT_50), (40, AT_40), (200, AT_200), (None, PIPE)],
)
def test_the_list_at_each_width(width: int | None, screen: str) -> None:
    assert "\n".join(screens.task_table(ROWS, view(width))) == screen


@pytest.mark.parametrize("width", range(20, 120))
def test_a_row_is_one_line_that_fits(width: int) -> None:
    wide = [*ROWS, row("8f3kzz", "running", "日本語のタイトル " * 20, **{"as": "a" * 64})]
    lines = screens.task_table(wide, view(width))
    assert len(lines) == len(wide) + 1
    if width >= 26:  # below, status and task alone are wider
        assert max(map(cells, lines)) <= width


def test_without_utf8_the_glyphs_are_ascii() -> None:
    lines = screens.task_table(ROWS, view(80, unicode=False), header=False)
    assert "".join(line[0] for line in lines) == "!.>+xxx-"
    assert all(line.isascii() for line in lines)


def test_colour_changes_nothing_but_colour() -> None:
    import re

    painted = screens.task_table(ROWS, view(80, colour=True))
    assert any("\x1b[31m" in line for line in painted)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in painted]
    assert "\n".join(plain) == AT_80


def test_a_title_cannot_move_the_cursor_or_turn_the_text_around() -> None:
    rows = [row("8f3k00", "running", "a\x1b[2J\u202eb")]
    for width in (80, None):
        assert "a\\x1b[2J\\u202eb" in screens.task_table(rows, view(width))[1]


def test_the_foot_of_the_list_counts_and_names_what_shows_more() -> None:
    info = {"held": 1, "queued": 1, "running": 0, "slots": 1_200}
    left = "1 held · 1 queued · 1,200 slots"
    right = "newest 20; -n 100 shows more".rjust(80 - len(left))
    assert screens.task_footer(info, 20, True, view(80)) == left + right
    assert screens.task_footer(info, 20, False, view(80)) == left
    assert cells(screens.task_footer(info, 20, True, view(30))) == 30


def entry(text: str, level: str = "error", task: str = "t8f3kr9") -> dict[str, Any]:
    return {"time": "2026-11-30T12:04:31.208Z", "level": level, "taskId": task, "text": text}


ENGINES = entry("task t8f3kr9 failed (exit 1)") | {"source": "engine"}

FAILED = {
    "status": "failed",
    "taskId": "t8f3kr9",
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


def test_the_block_of_several_waits() -> None:
    assert screens.live_block(LIVE, view(80), 22) == [
        "✓ t8f3kq2  succeeded     2m11s  npm run build",
        "▶ t8f3kr9  running       4m12s  pytest -q tests/store        output 3s ago",
        "… k8f3ks4  queued #1            lane gpu is full (1 of 1)",
        "1 of 3 ended · Ctrl-C stops waiting, the tasks go on",
    ]


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
    "errorLines": 3,
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
        "  cpu        21s              output 18.2 KiB  errors 3  warnings 0",
        "  output     /srv/engine/tasks/8f3kp7/output",
        "  survivor   41  sleep\\x099",
    ]


def test_all_about_one_task_ends_in_its_error_lines() -> None:
    errors = [
        entry('engine/jobs/kill.py:88: error: Name "taks" is not defined' + "!" * 40),
        ENGINES,
    ]
    lines = screens.one_task(SHOWN, view(80), errors)
    assert lines[:8] == screens.one_task(SHOWN, view(80))
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
    assert narrow[9] == "  12:04:31.208  engine/jobs/kill.py:88: error: Na…"
    piped = screens.one_task(SHOWN, view(None), errors)
    assert piped[-1] == "error          2026-11-30T12:04:31.208Z task t8f3kr9 failed (exit 1)"


def test_all_about_one_task_to_a_pipe_is_a_field_a_line() -> None:
    lines = screens.one_task(SHOWN, view(None))
    assert "exitCode       1" in lines
    assert "createdAt      2026-11-30T11:55:02.114Z" in lines
    assert len(lines) == len(SHOWN)


def test_a_long_command_is_cut_on_a_terminal() -> None:
    lines = screens.one_task({**SHOWN, "command": "\n".join("abcdefghijklmn")}, view(80))
    assert lines[10:12] == ["             j", "             (and 4 lines more)"]
