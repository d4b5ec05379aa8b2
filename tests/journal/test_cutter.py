"""Mirrors `engine/journal/cutter.py`: lines do not depend on how the bytes came in."""

from __future__ import annotations

import itertools
import tracemalloc
import unicodedata
from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.journal.cutter import BEGINNING, LineCutter, Place

# Output dense in what the cutter acts on, with runs that pass the limit of a line.
PIECES = st.one_of(
    st.sampled_from([b"\n", b"\r\n", b"\r", b"\t", b"a", b"bc", b" ", b"\x00", b"\x08"]),
    st.sampled_from([b"\x1b[31m", b"\x1b[", b"\x1b]0;t\x07", b"\x1b]0;", b"\x1b[K", b"\x1b[200C"]),
    st.sampled_from(["é", "€", "😀", "\u2028", "\u202e", "\u200b", "\x85"]).map(str.encode),
    st.sampled_from([b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f"]),
    st.sampled_from([b"x" * 100, b"y" * 4090, b"z" * 9000, b"\r%d" * 2000, b"\x1b[1m" * 5000]),
)
outputs = st.lists(PIECES, max_size=25).map(b"".join)


def cut(pieces: Iterable[bytes], place: Place = BEGINNING) -> tuple[list[tuple[str, bool]], Place]:
    """All lines of an output that came in `pieces` and ended, each with whether it was cut."""
    cutter = LineCutter(place)
    lines: list[tuple[str, bool]] = []
    for piece in pieces:
        found = cutter.feed(piece)
        lines += [(text, index in found.cut) for index, text in enumerate(found.texts)]
    found = cutter.finish()
    lines += [(text, index in found.cut) for index, text in enumerate(found.texts)]
    return lines, cutter.place


def texts(output: bytes) -> list[str]:
    return [text for text, _ in cut([output])[0]]


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"a\tb", ["a b"]),
        (b"a\x0bb\x0cc\x1cd\xc2\x85e", ["abcde"]),
        ("a\u2028b\u2029c".encode(), ["a b c"]),
        ("a\u202eb\u2066c\u200ed\u200fe\u061cf".encode(), ["abcdef"]),
        ("\ufeffa\u200bb\u200cc\u200dd\u2060e".encode(), ["abcde"]),
        ("a\U000e0041\U000e007fb\u034fc\u00add\ufe0fe\U000e0100f".encode(), ["abcdef"]),
        (b"\xff\xfe\x00a", ["\ufffd\ufffda"]),
        (b"\xed\xa0\x80", ["\ufffd\ufffd\ufffd"]),
        (b"cut \xe2\x82\nnext", ["cut \ufffd", "next"]),
        (b"\x1b[1;31mred\x1b[0m\x07\x7f\n", ["red"]),
        (b"\r10%\r50%\r100%\n", ["100%"]),
        (b"long text\rshort\n", ["shorttext"]),
        (b"long text\r\x1b[Kshort\n", ["short"]),
        (b"\x1b]0;never ended\nnext\n", ["0;never ended", "next"]),
    ],
)
def test_lines_are_cut_at_newlines_and_made_safe_to_show(output: bytes, lines: list[str]) -> None:
    assert texts(output) == lines
    assert [text for text, _ in cut(bytes([byte]) for byte in output)[0]] == lines


def test_a_hundred_updates_of_a_progress_bar_are_one_line() -> None:
    output = b"".join(b"\r%d%%" % done for done in range(101)) + b"\n"
    assert len(output) == 396
    assert cut([output])[0] == [("100%", False)]


def test_a_line_is_cut_at_its_4097th_character_and_its_rest_is_passed_over() -> None:
    cutter = LineCutter()
    assert cutter.feed("é".encode() * 4096) == ([], [])
    assert cutter.place == (0, False)
    assert cutter.feed("é".encode()) == (["é" * 4096], [0])
    assert cutter.place == (8194, True)
    assert cutter.feed(b"more of it") == ([], [])
    assert cutter.feed(b"and more\nnext\nopen") == (["next"], [])
    assert cutter.place == (8194 + 10 + 14, False)
    assert cutter.position == 8194 + 10 + 14 + 4


@pytest.mark.parametrize("length", [4096, 4097, 4098, 10_000])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_only_lines_over_4096_characters_are_marked_as_cut(length: int, end: bytes) -> None:
    lines = cut([b"before\n" + b"x" * length + end])[0]
    assert lines == [("before", False), ("x" * min(length, 4096), length > 4096)]


def test_colour_does_not_count_as_text() -> None:
    output = b"\x1b[31mx\x1b[0m" * 1000 + b"\n"
    assert cut([output])[0] == [("x" * 1000, False)]


def test_a_line_of_escape_sequences_alone_is_cut_and_the_next_one_is_whole() -> None:
    assert cut([b"\x1b[31m" * 10_000, b"\nnext\n"])[0] == [("", True), ("next", False)]


def test_cursor_movements_cannot_make_a_line_longer_than_it_may_be() -> None:
    lines = cut([b"\x1b[200Cx" * 500 + b"\n"])[0]
    assert lines == [((" " * 200 + "x") * 20 + " " * 76, True)]


def test_a_progress_bar_of_any_length_ends_as_it_looks() -> None:
    bar = b"".join(b"\r%07d of 1000000" % done for done in range(100_000))
    assert cut([bar, b"\n"])[0] == [("0099999 of 1000000", False)]


@pytest.mark.parametrize("piece", [b"x" * 65536, b"\r12345678" * 8192, b"\x1b[0m" * 16384])
def test_memory_stays_bounded_in_a_line_that_never_ends(piece: bytes) -> None:
    cutter = LineCutter()
    cutter.feed(piece)
    tracemalloc.start()
    try:
        for _ in range(40):
            cutter.feed(piece)
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()
    assert cutter.finish().cut == []


def test_an_output_that_goes_on_after_its_end_loses_nothing() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"one\ntw").texts == ["one"]
    assert cutter.finish().texts == ["tw"]
    assert cutter.place == (6, False)
    assert cutter.finish().texts == []
    assert cutter.feed(b"late\n").texts == ["late"]


@settings(deadline=None)
@given(outputs, st.lists(st.integers(0, 60_000), max_size=12))
@example(b"y" * 16384 + b"\r\n", [4096, 8000])
@example(b"\x1b]0;" + b"y" * 4090 + b"\rz" * 3000 + b"\n", [4093])
def test_lines_do_not_depend_on_the_pieces(output: bytes, marks: list[int]) -> None:
    places = [0, *sorted(mark % (len(output) + 1) for mark in marks), len(output)]
    pieces = [output[a:b] for a, b in itertools.pairwise(places)]
    assert cut(pieces) == cut([output])


@settings(deadline=None)
@given(outputs, st.lists(st.integers(0, 60_000), min_size=1, max_size=8))
def test_a_cutter_killed_anywhere_is_followed_by_one_that_repeats_and_loses_nothing(
    output: bytes, marks: list[int]
) -> None:
    place = BEGINNING
    lines: list[tuple[str, bool]] = []
    for mark in [*(mark % (len(output) + 1) for mark in marks), len(output)]:
        cutter = LineCutter(place)
        found = cutter.feed(output[place.offset : max(mark, place.offset)])
        lines += [(text, index in found.cut) for index, text in enumerate(found.texts)]
        place = cutter.place
    last = cut([output[place.offset :]], place)[0]
    assert lines + last == cut([output])[0]


@settings(deadline=None)
@given(outputs, outputs)
def test_what_is_passed_over_leaves_the_cutter_as_if_it_had_been_fed(
    before: bytes, data: bytes
) -> None:
    fed, passed = LineCutter(), LineCutter()
    fed.feed(before)
    passed.feed(before)
    block = passed.whole_lines(data)
    lines = fed.feed(data).texts
    if block is None:
        passed.feed(data)
    else:
        assert block.count(b"\n") == len(lines)
        passed.pass_over(data)
    assert (passed.place, passed.position) == (fed.place, fed.position)
    assert passed.feed(b"more\n").texts == fed.feed(b"more\n").texts


@given(st.lists(st.text(st.characters(codec="ascii", min_codepoint=32, exclude_characters="\x7f"))))
def test_plain_text_comes_back_as_it_is(written: list[str]) -> None:
    assert texts("".join(line + "\n" for line in written).encode()) == written


@settings(deadline=None)
@given(outputs | st.binary())
def test_no_text_holds_what_could_deceive_or_cut_a_line(output: bytes) -> None:
    for text, _ in cut([output])[0]:
        assert len(text) <= 4096
        assert len(text.splitlines()) <= 1
        assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in text)
        assert not set(text) & set(
            "\u200b\u200d\u200e\u202a\u202e\u2060\u2066\u2069\ufeff\u00ad\u034f\U000e0041"
        )
