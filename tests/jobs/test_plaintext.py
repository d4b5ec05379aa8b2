"""Mirrors `engine/jobs/plaintext.py`: what a terminal would show in the end."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.jobs.plaintext import json_bytes, render, unfinished

# Text dense in what the renderer acts on: random text alone would hardly ever hit a sequence.
PIECES = st.one_of(
    st.sampled_from(
        ["\x1b", "[", "]0;", "P", "\\", "\x07", "\x9b", "\x9c", "\x9d", "(B", "31", "m"]
    ),
    st.sampled_from(["\r", "\n", "\b", "K", "2", "G", "D", "C", " ", "0", ";", "a", "bc"]),
    st.sampled_from(["é", "\u2028", "\x00", "\x85"]),
)
nasty_text = st.lists(PIECES, max_size=40).map("".join)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m\n", "red\n"),
        ("\x1b[38;5;196mred\x1b[m", "red"),
        ("\x1b[?25lhidden cursor\x1b[?25h", "hidden cursor"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0;2\x1b\\after", "after"),
        ("\x1b_apc\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\after", "after"),
        ("\x1bPtmux;\x1b\x1b]0;x\x07\x1b\\after", "after"),
        ("\x1b(Bplain\x1b)0", "plain"),
        ("\x1b7saved\x1b8\x1b=\x1b>", "saved"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x9d0;title\x9ctext", "text"),
        ("\x84index\x8d", "index"),
        ("lone\x1b\x1b\x1b", "lone"),
        ("\x1bé", "é"),
    ],
)
def test_escape_sequences_are_removed(raw: str, shown: str) -> None:
    assert render(raw) == shown


@pytest.mark.parametrize("raw", ["end\x1b", "end\x1b[", "end\x1b[3", "end\x1b]0;ti", "end\x1b("])
def test_a_sequence_cut_off_at_the_end_is_removed(raw: str) -> None:
    assert render(raw) == "end"


def test_an_unfinished_control_string_does_not_hide_the_lines_after_it() -> None:
    assert render("\x1b]0;FATAL: disk\nnext\n") == "0;FATAL: disk\nnext\n"


def test_a_sequence_broken_by_a_line_end_leaves_the_line_end() -> None:
    assert render("a\x1b[31\nb") == "a\nb"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("abc\rX\n", "Xbc\n"),
        ("abc\r\n", "abc\n"),
        ("abc\r\r\n", "abc\n"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("\r 9%\r10%", "10%"),
        ("50%\r", "50%"),
        ("a long line\r\x1b[Kdone\n", "done\n"),
        ("a long line\r\x1b[2Kdone\n", "done\n"),
        ("abcdef\x1b[3D\x1b[KX", "abcX"),
        ("abcdef\x1b[1GX", "Xbcdef"),
        ("ab\x1b[2CX", "ab  X"),
        ("N\bNA\bAM\bM", "NAM"),
        ("_\bx\bx", "x"),
        ("\x1b[31m50%\x1b[0m\r\x1b[32m100%\x1b[0m\n", "100%\n"),
    ],
)
def test_a_rewritten_line_is_shown_as_it_ends_up(raw: str, shown: str) -> None:
    assert render(raw) == shown


@pytest.mark.case("C073")
def test_a_progress_bar_shows_its_last_state_on_one_line() -> None:
    raw = "".join(f"\r{percent}%" for percent in range(101)) + "\n"
    assert len(raw) == 396
    assert raw.count("\n") == 1
    assert render(raw) == "100%\n"


def test_other_control_characters_stay_as_they_are() -> None:
    text = "\ta\x00b\x07c\x0bd\x0ce\u0085f\u2028g\x7f"
    assert render(text) == text


def test_a_cursor_sent_far_right_does_not_make_a_huge_line() -> None:
    assert len(render("\x1b[99999GX" * 10)) <= 10 * 201
    assert len(render("\x1b[" + "9" * 5000 + "GX")) == 1


@given(nasty_text)
@example("\x1b\x1b[m[31m")
@example("\x9d\x9d\x9d\n")
def test_no_escape_stays_and_every_line_end_does(text: str) -> None:
    shown = render(text)
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "\r" not in shown
    assert "\b" not in shown
    assert shown.count("\n") == text.count("\n")


@given(nasty_text, nasty_text)
def test_a_text_may_be_rendered_in_pieces_cut_at_line_ends(first: str, second: str) -> None:
    assert render(first + "\n" + second) == render(first + "\n") + render(second)


@given(nasty_text, st.integers(0, 40))
def test_a_sequence_cut_in_two_is_found_at_the_cut(text: str, at: int) -> None:
    """Nothing of a sequence shows on either side when the second half begins with its start."""
    line = "".join(char for char in text if char not in "\r\b\nKGCD")
    lead = unfinished(line[:at])
    shown = render(line[:at]) + render(lead + line[at:])
    assert shown == render(line)


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("\x9d", 100_000),
        ("\r", 200_000),
        ("\x1b]", 100_000),
        ("\x1b[1", 70_000),
        ("a\r\x1b[2K", 40_000),
        ("\x1b[99999GX\x1b[2K", 15_000),
        ("\b", 200_000),
        ("\x1b ", 100_000),
    ],
)
def test_hostile_text_costs_linear_time(unit: str, times: int) -> None:
    text = unit * times + "\n"
    started = time.process_time()
    render(text)
    unfinished(text)
    assert time.process_time() - started < 1  # seconds; quadratic would take minutes


@given(st.text())
@example('"\\\b\t\n\f\r\x00\x1f\x7f\ufffdé')
def test_json_size_is_that_of_the_encoded_string(text: str) -> None:
    assert json_bytes(text) == len(json.dumps(text, ensure_ascii=False).encode()) - 2
