"""Mirrors `engine/cli/view.py`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import wcwidth

from engine.cli.view import LOOKS, View, cells, safe, terminal_width, wants_colour

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("choice", "environ", "is_terminal", "coloured"),
    [
        (None, {}, True, True),
        (None, {}, False, False),
        (None, {"TERM": "dumb"}, True, False),
        (None, {"NO_COLOR": "1"}, True, False),
        (None, {"NO_COLOR": ""}, True, True),
        (None, {"FORCE_COLOR": "1"}, False, True),
        (None, {"FORCE_COLOR": "0"}, False, False),
        (None, {"CLICOLOR_FORCE": "1"}, False, True),
        (None, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
    ],
)
def test_colour_is_decided_by_the_option_then_the_environment_then_the_terminal(
    choice: str | None, environ: dict[str, str], is_terminal: bool, coloured: bool
) -> None:
    assert wants_colour(choice, environ, is_terminal) is coloured


@pytest.mark.parametrize(
    ("environ", "reported", "width"),
    [
        ({}, 120, 120),
        ({"COLUMNS": "50"}, 120, 50),
        ({"COLUMNS": "x"}, 120, 120),
        ({}, None, 80),
        ({}, 0, 80),
        ({"COLUMNS": "19"}, 120, 80),
        ({"COLUMNS": "20"}, 120, 20),
    ],
)
def test_the_width_is_columns_then_the_terminal_then_eighty(
    environ: dict[str, str], reported: int | None, width: int
) -> None:
    assert terminal_width(environ, reported) == width


def test_what_is_taken_as_one_cell_wide_is_so() -> None:
    narrow = [chr(c) for c in (*range(0x20, 0x7F), *range(0xA0, 0x300)) if c != 0xAD]
    narrow += ["\u2013", "·", "…", *(look[0] for look in LOOKS.values())]
    assert [char for char in narrow if wcwidth.wcwidth(char) != 1] == []
    assert cells("".join(narrow)) == len(narrow)


@pytest.mark.parametrize(
    ("text", "width"), [("", 0), ("é · ▶", 5), ("e\u0301", 1), ("✓ 日本", 6), ("👍🏽", 2)]
)
def test_cells_are_what_a_terminal_takes(text: str, width: int) -> None:
    assert cells(text) == width


def test_text_is_cut_in_cells_not_in_characters() -> None:
    view = View(now=NOW)
    assert view.cut("日本語テキスト", 7) == "日本語…"
    assert cells(view.cut("日本語テキスト", 8)) == 7  # half a character is none
    assert view.cut("abc", 3) == "abc"
    assert view.cut("abcd", 3) == "ab…"
    assert View(now=NOW, unicode=False).cut("abcd", 3) == "ab~"


def test_control_bidi_and_invisible_characters_are_shown_and_not_sent() -> None:
    assert safe("a\x1b[2Jb\u202ec\u200bd\x85e\nf") == "a\\x1b[2Jb\\u202ec\\u200bd\\x85e\\x0af"
    assert safe("grün 日本") == "grün 日本"


def test_a_caller_has_a_colour_that_means_nothing_else() -> None:
    view = View(now=NOW, colour=True)
    for caller in map(str, range(100)):
        painted = view.paint_caller("x", caller)
        assert not any(f"{code}m" in painted.split("x")[0] for code in (31, 32, 33))


def test_without_colour_no_escape_is_written() -> None:
    assert "\x1b" not in View(now=NOW).glyph("failed") + View(now=NOW).paint("x", "red")


def test_parts_that_do_not_fit_go_on_below() -> None:
    narrow = View(now=NOW, width=12)
    assert narrow.pack(["one", "two", "three"], " · ") == ["one · two", "three"]
    assert narrow.pack(["a word that is longer"], " · ") == ["a word that…"]
    assert narrow.pack([], " ") == [""]
    assert narrow.pack(["seven ch", "3rd"], " ") == ["seven ch 3rd"]  # 12 cells to the last
    assert View(now=NOW).pack(["one", "two", "three"], " · ") == ["one · two · three"]
    assert narrow.fold("one two  three four") == ["one two", "three four"]
    assert narrow.fold("one  two") == ["one  two"]


def test_a_number_has_commas_on_a_terminal_alone() -> None:
    assert View(now=NOW, width=80).number(1_240) == "1,240"
    assert View(now=NOW).number(1_240) == "1240"
