"""Mirrors `engine/cli/loglines.py`: the screens themselves, at a fixed clock and widths."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from engine.cli import loglines
from engine.cli.view import View
from engine.protocol.fields import LogLevel

NOW = datetime(2026, 11, 30, 12, 4, 45, tzinfo=UTC)


def view(width: int | None, **more: Any) -> View:
    return View(now=NOW, zone=UTC, width=width, **more)


def entry(
    time: str, level: str, caller: str | None, task: str | None, text: str, **more: Any
) -> dict[str, Any]:
    return {
        "seq": 1,
        "time": f"2026-11-30T{time}Z",
        "level": level,
        "caller": caller,
        "taskId": task,
        "source": "output" if caller else "engine",
        "text": text,
        **more,
    }


ENTRIES = [
    entry("12:04:30.871", "warning", "ci", "t8f3kp9", "unused variable 'n'"),
    entry("12:04:31.208", "error", "build-agent", "t8f3kr9", "FAILED tests/store/test_reopen.py"),
    entry(
        "12:04:31.412",
        "error",
        "build-agent",
        "t8f3kr9",
        "task t8f3kr9 failed (exit 1)",
        source="engine",
    ),
    entry("12:04:44.120", "notice", None, None, "0.1.1 started; 2 adopted, 0 lost"),
]

TERMINAL = """\
12:04:30.871 warning  ci           t8f3kp9  unused variable 'n'
12:04:31.208 error    build-agent  t8f3kr9  FAILED tests/store/test_reopen.py
12:04:31.412 error    engine       t8f3kr9  task t8f3kr9 failed (exit 1)
12:04:44.120 notice   engine                0.1.1 started; 2 adopted, 0 lost"""

PIPE = """\
2026-11-30T12:04:30.871Z warning ci t8f3kp9 unused variable 'n'
2026-11-30T12:04:31.208Z error build-agent t8f3kr9 FAILED tests/store/test_reopen.py
2026-11-30T12:04:31.412Z error engine t8f3kr9 task t8f3kr9 failed (exit 1)
2026-11-30T12:04:44.120Z notice engine - 0.1.1 started; 2 adopted, 0 lost"""


@pytest.mark.parametrize(
    ("width", "screen"), [(80, TERMINAL), (50, TERMINAL), (200, TERMINAL), (None, PIPE)]
)
def test_lines_look_the_same_at_each_width(width: int | None, screen: str) -> None:
    assert "\n".join(loglines.LogLines().render(ENTRIES, view(width))) == screen


def test_the_levels_are_those_of_the_wire() -> None:
    assert get_args(get_args(LogLevel)[0]) == loglines.LEVELS
    assert set(loglines.LOOKS) == set(loglines.LEVELS)


@pytest.mark.parametrize("width", [50, 80, None])
def test_a_line_is_never_cut(width: int | None) -> None:
    long = entry("12:04:30.871", "info", "ci", "t8f3kp9", "x" * 4096)
    assert loglines.LogLines().render([long], view(width))[0].endswith(" " + "x" * 4096)


def test_a_line_that_the_engine_has_cut_says_so() -> None:
    cut = entry("12:04:30.871", "info", "ci", "t8f3kp9", "xyz", cut=True)
    assert loglines.LogLines().render([cut], view(80))[0].endswith("  xyz…")
    assert loglines.LogLines().render([cut], view(None, unicode=False))[0].endswith(" xyz~")


def test_without_prefix_there_is_the_text_alone() -> None:
    for width in (80, None):
        lines = loglines.LogLines(has_prefix=False).render(ENTRIES, view(width, colour=True))
        assert lines == [each["text"] for each in ENTRIES]


def test_colours_are_by_level_and_by_caller_and_change_nothing_else() -> None:
    lines = loglines.LogLines().render(ENTRIES, view(80, colour=True))
    # crc32 of "ci" modulo 6 is 1: magenta; of "build-agent" 2: blue.
    assert lines[0] == (
        "\x1b[2m12:04:30.871\x1b[0m \x1b[33mwarning \x1b[0m "
        "\x1b[35mci         \x1b[0m  t8f3kp9  unused variable 'n'"
    )
    assert lines[1].startswith(
        "\x1b[2m12:04:31.208\x1b[0m \x1b[31merror   \x1b[0m \x1b[34mbuild-agent\x1b[0m"
    )
    assert "\x1b[1mnotice  \x1b[0m \x1b[2mengine     \x1b[0m" in lines[3]
    assert re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines)) == TERMINAL
    piped = loglines.LogLines().render(ENTRIES, view(None, colour=True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(piped)) == PIPE


def test_a_long_name_moves_the_column_from_there_on_and_is_cut_at_its_most() -> None:
    lines = loglines.LogLines()
    assert lines.render(ENTRIES[:1], view(80))[0].startswith(
        "12:04:30.871 warning  ci           t8f"
    )
    longer = entry("12:04:31.000", "info", "docs-builder-2", None, "a")
    longest = entry("12:04:31.000", "info", "a" * 64, None, "b")
    assert lines.render([longer], view(80)) == ["12:04:31.000 info     docs-builder-2           a"]
    assert lines.render([*ENTRIES[:1], longest], view(80)) == [
        "12:04:30.871 warning  ci                    t8f3kp9  unused variable 'n'",
        "12:04:31.000 info     aaaaaaaaaaaaaaaaaaa…           b",
    ]
    assert "a" * 64 in lines.render([longest], view(None))[0]


def test_a_line_of_another_day_has_its_date() -> None:
    old = entry("12:04:30.871", "info", None, None, "x") | {"time": "2026-11-29T12:04:30.871Z"}
    assert loglines.LogLines().render([old], view(80)) == [
        "2026-11-29 12:04:30.871 info     engine                x"
    ]


def test_a_text_cannot_move_the_cursor_or_turn_the_text_around() -> None:
    sly = entry("12:04:30.871", "info", "ci", "t8f3kp9", "a\x1b[2J\u202eb")
    for width in (80, None):
        assert loglines.LogLines().render([sly], view(width))[0].endswith("a\\x1b[2J\\u202eb")


def test_what_is_said_about_lines_that_are_not_shown() -> None:
    said = "-- 3 error lines from another caller's work left out; -a shows them"
    assert loglines.left_out(3, "error", view(80)) == said
    said = "-- 1 info line from another caller's work left out; -a shows it"
    assert loglines.left_out(1, "info", view(None)) == said
    assert loglines.left_out(1_204, "info", view(80)).startswith("-- 1,204 info lines ")
    assert loglines.left_out(1_204, "info", view(None)).startswith("-- 1204 info lines ")
    following = [entry("12:04:40.000", "info", "ci", None, "x")]
    said = "-- 1,204 lines are gone (retention); reading on at 12:04:40.000"
    assert loglines.gone(1_204, following, view(80)) == said
    said = "-- 1204 lines are gone (retention); reading on at 2026-11-30T12:04:40.000Z"
    assert loglines.gone(1_204, following, view(None)) == said
    assert loglines.gone(1, [], view(80)) == "-- 1 line is gone (retention)"
    said = "-- 12 older lines; engine logs -p error shows them"
    assert loglines.not_carried(12, "error", view(80)) == said
