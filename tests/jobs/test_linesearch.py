"""Mirrors `engine/jobs/linesearch.py`."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.jobs.linesearch import MAX_HELD, LineSearch
from engine.jobs.plaintext import render

READY = "Listening on 8080"


def found(text: str, *pieces: bytes) -> bool:
    search = LineSearch(text)
    return any(search.feed(piece) for piece in pieces)


SHOWN = {
    "a line": b"starting\nListening on 8080\nmore\n",
    "inside of a line": b"12:00 [info] Listening on 8080, pid 7\n",
    "the unfinished last line": b"starting\nListening on 8080",
    "colours": b"\x1b[32mListening\x1b[0m on \x1b[1;4m8080\x1b[0m\n",
    "a colour in a word": b"List\x1b[32men\x1b[0ming on 80\x1b[m80\n",
    "what comes after a carriage return": b"starting ...........\rListening on 8080\n",
    "a line end of DOS": b"Listening on 8080\r\n",
    "what two writes have made": b"Listening on 9999\rListening on 80\n Listening on 8\b8080\n",
    "a spinner's line": b"\x1b[2K\x1b[1Gwaiting\x1b[2K\x1b[1GListening on 8080\n",
    "an erased rest": b"Listening on \x1b[K8080\n",
    "a cursor moved right": b"Listening\x1b[1Con\x1b[1C8080\n",
    "after a title": b"\x1b]0;make\x07Listening on 8080\n",
    "controls of 8 bits": b"Listening \xc2\x9b1mon 8080\n",
}
LINES = {
    "whole": (b"a\n12:00 Listening on 8080, pid 7\nb\n", "12:00 Listening on 8080, pid 7"),
    "without its colours": (b"a\n\x1b[32mListening\x1b[0m on 8080\r\nb\n", "Listening on 8080"),
    "from the text on, of one too long": (
        b"-" * 2000 + b"Listening on 8080" + b"+" * 2000,
        "Listening on 8080" + "+" * 983,
    ),
}
HIDDEN = {
    "nothing": b"",
    "two lines": b"Listening on\n 8080\n",
    "another number": b"Listening on 8081\n",
    "what was written over": b"Listening on 8080\rWaiting for no one\n",
    "what was taken back": b"Listening on 8080\b\b\b\bxxxx\n",
    "what was erased": b"Listening on 8080\x1b[1G\x1b[K\n",
    "a title": b"\x1b]0;Listening on 8080\x07$ ",
    "the parts in another order": b"8080 Listening on\n",
}


@pytest.mark.parametrize(("data", "line"), LINES.values(), ids=LINES)
def test_the_line_that_is_found_is_known_as_a_reader_sees_it(data: bytes, line: str) -> None:
    search = LineSearch(READY)
    assert search.feed(data)
    assert search.line == line


@pytest.mark.parametrize("data", SHOWN.values(), ids=SHOWN)
def test_a_text_that_stands_in_a_line_is_found(data: bytes) -> None:
    assert found(READY, data)


@pytest.mark.parametrize("data", HIDDEN.values(), ids=HIDDEN)
def test_a_text_that_no_reader_sees_is_not(data: bytes) -> None:
    assert not found(READY, data)


@pytest.mark.parametrize("data", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_text_is_found_across_the_pieces_in_which_it_comes(data: bytes, size: int) -> None:
    assert found(READY, *(data[i : i + size] for i in range(0, len(data), size)))


def test_a_text_of_other_letters_is_found_across_the_bytes_of_one() -> None:
    data = "→ bereit für Gäste 🙂\n".encode()
    assert found("für Gäste 🙂", *(data[i : i + 1] for i in range(len(data))))


def test_bytes_that_are_no_text_are_found_as_they_are_shown() -> None:
    assert found("a\N{REPLACEMENT CHARACTER}b", b"a\xffb\n")
    assert not found("ab", b"a\xffb\n")


def test_a_long_line_is_searched_to_its_end_in_bounded_memory() -> None:
    search = LineSearch(READY)
    for _ in range(20):
        assert not search.feed(b"." * MAX_HELD)
        assert len(search._held) <= MAX_HELD
    assert not search.feed(READY[:9].encode())
    assert search.feed(READY[9:].encode())


def test_a_progress_bar_that_never_ends_its_line_is_held_as_it_shows() -> None:
    search = LineSearch("done: 100 %")
    for number in range(3000):
        assert not search.feed(b"\rdone: %2d %%" % (number % 99))
    assert len(search._held) <= MAX_HELD + 16
    assert search.feed(b"\rdone: 100 %")


def test_what_is_not_to_be_had_joins_no_two_pieces() -> None:
    search = LineSearch(READY)
    assert not search.feed(b"Listening")
    search.skip(1000)
    assert search.position == 1000
    assert not search.feed(b" on 8080")
    assert search.position == 1008


PIECES = st.lists(
    st.sampled_from(
        [
            *("a", "b", "ab", " ", "\n", "\r", "\r\n", "\b", "é", "°", "\x85", "\x9b1m", "\x00"),
            *("\x1b[1m", "\x1b[K", "\x1b[2K", "\x1b[1G", "\x1b[2D", "\x1b[1C", "\x1b]0;ab\x07"),
            *("\x1b", "\x1b[", "\x1b]ab", "\x1bPab\x1b\\", "\x1b(B", "\x9dab\x9c", "\t"),
        ]
    ),
    max_size=14,
)


@settings(max_examples=400, deadline=None)
@given(PIECES, st.sampled_from(["ab", "a b", "bab", "é", "aé"]))
@example(["\x1b]ab", "a", "\x1b", "b"], "ab")
def test_a_whole_output_is_searched_as_its_lines_are_drawn(pieces: list[str], text: str) -> None:
    written = "".join(pieces)
    assert found(text, written.encode()) == any(
        text in line for line in render(written).split("\n")
    )
