"""Mirrors `engine/cli/tails.py`; that it follows what runs is tested with `roundwatch`."""

from __future__ import annotations

import pytest

from engine.cli.tails import last_line, plain


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("one\ntwo\n", "two"),
        ("one\n\n  \n", "one"),
        ("half a li", "half a li"),
        ("10 %\r50 %\r100 %", "100 %"),
        ("done\r\n", "done"),
        ("\x1b[31mred\x1b[0m\n", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x1b(Bb", "ab"),
        ("", ""),
        ("\n", ""),
    ],
)
def test_the_last_line_is_as_a_screen_would_have_it(written: str, shown: str) -> None:
    assert last_line(written) == shown


def test_all_lines_are_kept_as_last_rewritten() -> None:
    assert plain("1 %\r2 %\nnext\r\n\x1b[1mbold\x1b[0m\n") == "2 %\nnext\nbold\n"
