"""Mirrors `engine/jobs/excerpt.py`: what of an output a reply carries."""

from __future__ import annotations

import json
import random
import re
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.jobs.excerpt import Excerpt, Source, excerpt, excerpt_pair, recent
from engine.jobs.leftout import Pick
from engine.jobs.pages import OutputFile
from engine.jobs.plaintext import render

DEFAULT_LIMIT = 32768  # bytes
LARGEST_LIMIT = 524288  # bytes
MARKER = re.compile(r"<([0-9]+) bytes, ([0-9]+) lines left out; read_output has them>\n")

output_bytes = st.one_of(
    st.binary(max_size=3000),
    st.lists(
        st.sampled_from([b"\n", b"line\n", b"\xe2\x82\xac", b"\x1b[31m", b"\r", b"x" * 90, b"\xff"])
        | st.sampled_from(
            [b"\x1b]0;t\x07", b"\x00", b"\xf0\x9f\x8f\xb7", b"\b", b"\x1b[K", b"\xe2"]
        )
    ).map(b"".join),
)


def source(data: bytes, *, ended: bool = True, dropped: tuple[int, int] | None = None) -> Source:
    return Source(
        read_at=lambda offset, length: data[offset : offset + length],
        size=len(data),
        dropped=dropped,
        ended=ended,
    )


def written_by(command: str) -> bytes:
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=30, check=False)
    return done.stdout


def assert_split(shown: Excerpt, data: bytes) -> tuple[str, str]:
    """The two halves round the marker, after a check that it tells what really is between them."""
    (marker,) = MARKER.finditer(shown.text)
    head, tail = shown.text[: marker.start()], shown.text[marker.end() :]
    gap = data[len(head.encode()) : len(data) - len(tail.encode())]
    assert (int(marker[1]), int(marker[2])) == (len(gap), gap.count(b"\n"))
    assert (shown.omitted_bytes, shown.omitted_lines) == (len(gap), gap.count(b"\n"))
    return head, tail


def test_an_output_within_the_limit_is_shown_whole() -> None:
    assert excerpt(source(b"one\ntwo\n"), 8) == Excerpt(text="one\ntwo\n", end=8)


def test_the_limit_counts_what_is_shown_and_not_the_colours_removed() -> None:
    data = b"\x1b[31mred\x1b[0m\n" * 100
    assert excerpt(source(data), 400) == Excerpt(text="red\n" * 100, end=len(data))


def test_over_the_limit_the_halves_are_cut_at_line_ends_round_one_marker_line() -> None:
    data = b"".join(b"%d\n" % number for number in range(1, 1001))
    shown = excerpt(source(data), 300)
    head, tail = assert_split(shown, data)
    assert len(shown.text.encode()) <= 300
    assert head == "".join(f"{number}\n" for number in range(1, 44))
    assert tail == "".join(f"{number}\n" for number in range(972, 1001))


@pytest.mark.case("C081")
def test_the_end_of_a_long_output_is_visible() -> None:
    data = written_by("seq 1 2000000; echo FATAL; exit 3")
    assert len(data) == 14888902
    shown = excerpt(source(data), DEFAULT_LIMIT)
    head, tail = assert_split(shown, data)
    assert head.startswith("1\n2\n3\n")
    assert tail.endswith("1999999\n2000000\nFATAL\n")
    assert DEFAULT_LIMIT - 200 < len(shown.text.encode()) <= DEFAULT_LIMIT


def test_a_line_longer_than_a_half_is_cut_inside() -> None:
    data = b"start\n" + b"x" * 10_000 + b"\nend\n"
    shown = excerpt(source(data), 1000)
    (marker,) = MARKER.finditer(shown.text)
    head, tail = shown.text[: marker.start()], shown.text[marker.end() :]
    assert re.fullmatch("start\nx{400,}\n", head)
    assert re.fullmatch("x{400,}\nend\n", tail)
    assert int(marker[1]) == len(data) - (len(head) - 1) - len(tail)
    assert int(marker[2]) == 0
    assert len(shown.text) <= 1000


def test_a_short_first_line_end_is_no_reason_to_show_nothing_of_a_long_one() -> None:
    shown = excerpt(source(b"$\n" + b'{"key": 1}' * 10_000 + b"\n$\n"), 2000)
    assert len(shown.text) > 1800


def test_a_limit_too_small_for_the_marker_bounds_the_output_alone() -> None:
    data = b"".join(b"%d\n" % number for number in range(1, 101))
    shown = excerpt(source(data), 10)
    assert assert_split(shown, data) == ("1\n2\n", "100\n")


def test_a_limit_of_nothing_gives_the_counts_alone() -> None:
    assert excerpt(source(b"a\nb\n"), 0) == Excerpt(
        text="", end=4, omitted_bytes=4, omitted_lines=2
    )
    assert excerpt(source(b""), 0) == Excerpt(text="", end=0)


def test_a_running_reply_is_cut_in_characters() -> None:
    data = "€€€€€€€€€\n".encode() * 1000
    shown = excerpt(source(data, ended=False), 4000, characters=True)
    assert_split(shown, data)
    assert 3900 < len(shown.text) <= 4000
    small = "€".encode() * 4000
    assert excerpt(source(small, ended=False), 4000, characters=True).text == "€" * 4000


# What a job wrote, as readers get it


@pytest.mark.case("C064")
def test_a_character_written_in_two_pieces_is_one_character() -> None:
    data = b"\xe2\x82\xac\n"
    first = excerpt(source(data[:1], ended=False), DEFAULT_LIMIT)
    assert (first.text, first.end) == ("", 0)
    assert excerpt(source(data), DEFAULT_LIMIT).text == "\u20ac\n"
    assert recent(source(data, ended=False), first.end).text == "\u20ac\n"


@pytest.mark.case("C065")
def test_a_character_that_is_never_finished_is_shown_as_bad() -> None:
    data = written_by(r"printf 'ok\xe2\x82'")
    assert data == bytes.fromhex("6f6be282")
    assert excerpt(source(data), DEFAULT_LIMIT).text == "ok\ufffd"


@pytest.mark.case("C066")
def test_bad_bytes_and_nul_make_valid_json() -> None:
    data = written_by(r"printf '\xff\xfe\x00a'")
    assert data == bytes.fromhex("fffe0061")
    text = excerpt(source(data), DEFAULT_LIMIT).text
    assert text == "\ufffd\ufffd\u0000a"
    assert json.loads(msgspec.json.encode(text)) == text
    assert len(text.split("\n")) == 1


@pytest.mark.case("C067")
@pytest.mark.parametrize("limit", range(40, 52))
def test_no_cut_and_no_bad_byte_makes_a_lone_surrogate(limit: int) -> None:
    data = "\U0001f3f7".encode() * 100 + b"\xed\xa0\xbd\xff" + "\U0001f3f7".encode() * 100
    text = excerpt(source(data), limit).text
    assert not any(0xD800 <= ord(char) <= 0xDFFF for char in text)
    assert text.encode().decode() == text
    assert "\ufffd" not in text
    assert text.count("\U0001f3f7") >= 8


@pytest.mark.case("C072")
def test_only_a_newline_ends_a_line() -> None:
    data = written_by(r"printf 'a\xe2\x80\xa8b\x0bc\x0cd\xc2\x85e\n'")
    shown = excerpt(source(data * 1000), 2000)
    assert shown.text.count("\n") - 1 + shown.omitted_lines == 1000
    assert excerpt(source(data), DEFAULT_LIMIT).text == "a\u2028b\x0bc\x0cd\x85e\n"


@pytest.mark.case("C083")
@pytest.mark.parametrize("alphabet", [bytes(range(256)), b"\x00", b"\n", b"\xff", b'"'])
def test_binary_output_stays_small_in_json(alphabet: bytes) -> None:
    data = bytes(random.Random(1).choices(alphabet, k=1048576))
    shown = excerpt(source(data), LARGEST_LIMIT)
    encoded = msgspec.json.encode(shown.text)
    assert len(shown.text.encode()) <= LARGEST_LIMIT
    assert 200_000 < len(encoded) <= 768 * 1024 + 2
    assert shown.omitted_bytes > 0


def test_a_sequence_cut_by_the_gap_shows_on_neither_side() -> None:
    data = b"\x1b[38;5;196mx\x1b]0;some title\x07" * 1000
    for limit in range(300, 340):
        head, tail = MARKER.split(excerpt(source(data), limit).text)[::3]
        assert set(head) == {"x", "\n"}
        assert set(tail) == {"x"}


def test_an_end_that_is_mostly_colours_starts_at_a_line() -> None:
    data = (b"\x1b[31m" * 300 + b"word\n") * 500
    shown = excerpt(source(data), 2000)
    head, tail = MARKER.split(shown.text)[::3]
    assert set(head.split("\n")) == set(tail.split("\n")) == {"word", ""}
    assert shown.omitted_lines == 500 - head.count("\n") - tail.count("\n")


def test_a_sequence_that_is_still_being_written_waits_for_its_end() -> None:
    shown = excerpt(source(b"abc\x1b[3", ended=False), DEFAULT_LIMIT)
    assert (shown.text, shown.end) == ("abc", 3)
    assert recent(source(b"abc\x1b[31mdef", ended=False), shown.end).text == "def"


# Dropped bytes


def test_a_hole_is_left_out_and_counted() -> None:
    data = b"first\n" * 100 + bytes(10_000) + b"last\n" * 100
    shown = excerpt(source(data, dropped=(600, 10_600)), DEFAULT_LIMIT)
    assert shown.text == (
        "first\n" * 100 + "<10000 bytes, 0 lines left out; read_output has them>\n" + "last\n" * 100
    )
    assert (shown.omitted_bytes, shown.omitted_lines) == (10_000, 0)


def test_lines_left_out_on_both_sides_of_a_hole_are_counted() -> None:
    data = b"first\n" * 1000 + bytes(10_000) + b"last\n" * 1000
    shown = excerpt(source(data, dropped=(6000, 16_000)), 1000)
    head, tail = MARKER.split(shown.text)[::3]
    kept = head.count("\n") + tail.count("\n")
    assert set(head.split("\n")) == {"first", ""}
    assert set(tail.split("\n")) == {"last", ""}
    assert shown.omitted_lines == 2000 - kept
    assert shown.omitted_bytes == len(data) - len(head) - len(tail)


def test_a_line_that_a_hole_has_cut_is_shown_only_where_all_after_the_hole_is() -> None:
    data = b"first\n" * 100 + bytes(400_000) + b"rt\n" + b"last\n" * 100
    dropped = (600, 400_600)
    assert "\nrt\nlast\n" in excerpt(source(data, dropped=dropped), DEFAULT_LIMIT).text
    assert "rt\n" not in excerpt(source(data, dropped=dropped), 300).text


@pytest.mark.parametrize("limit", [300, DEFAULT_LIMIT])
def test_where_the_newest_bytes_are_dropped_the_beginning_stands_alone(limit: int) -> None:
    data = b"first\n" * 100
    whole = Source(read_at=source(data).read_at, size=5000, dropped=(600, 5000))
    shown = excerpt(whole, limit)
    assert re.fullmatch(r"(first\n)+<[0-9]+ bytes, [0-9]+ lines left out; .*>\n", shown.text)
    assert shown.omitted_bytes == 5000 - 6 * shown.text.count("first\n")


# Lines lifted out of the gap


def picking(is_error: Callable[[str], bool]) -> Callable[[], Pick]:
    def pick(block: bytes) -> list[tuple[int, str]]:
        lines = render(block.decode()).split("\n")
        return [(place, line) for place, line in enumerate(lines) if is_error(line)]

    return lambda: pick


def test_where_no_text_is_wanted_nothing_is_searched() -> None:
    def refuse() -> Pick:
        raise AssertionError("searched")

    shown = excerpt(source(b"error\n" * 1000), 0, new_pick=refuse)
    assert (shown.text, shown.omitted_bytes, shown.omitted_lines) == ("", 6000, 1000)


def test_errors_in_the_gap_are_lifted_out_with_their_line_numbers() -> None:
    lines = [f"line {number}" for number in range(1, 2001)]
    lines[0], lines[999], lines[1499] = "error: seen", "error: one", "\x1b[31merror: two\x1b[0m"
    data = "".join(line + "\n" for line in lines).encode()
    shown = excerpt(
        source(data),
        2000,
        new_pick=picking(lambda line: line.startswith("error")),
    )
    head, _, _, rest = MARKER.split(shown.text)
    assert head.startswith("error: seen\nline 2\n")
    assert rest.startswith("1000: error: one\n1500: error: two\nline ")
    assert rest.endswith("line 1999\nline 2000\n")
    assert len(shown.text.encode()) <= 2000


def test_where_nothing_is_lifted_the_output_has_the_whole_limit() -> None:
    data = b"".join(b"line %d\n" % number for number in range(2000))
    assert excerpt(source(data), 2000, new_pick=lambda: lambda _block: []) == excerpt(
        source(data), 2000
    )


def test_no_more_is_lifted_than_its_share_of_the_limit() -> None:
    data = b"error\n" * 100_000
    shown = excerpt(
        source(data),
        2000,
        new_pick=picking(lambda line: line == "error"),
    )
    assert len(shown.text.encode()) <= 2000
    assert len(re.findall("^[0-9]+: error$", shown.text, re.MULTILINE)) == 20
    wide = (b"error" + b"x" * 294 + b"\n") * 1000
    shown = excerpt(source(wide), 2000, new_pick=picking(lambda line: line != ""))
    assert len(shown.text.encode()) <= 2000
    assert len(re.findall("^[0-9]+: errorx{294}$", shown.text, re.MULTILINE)) == 1


# Streams and news


def test_two_streams_share_the_limit() -> None:
    long, short = b"o" * 99 + b"\n", b"short\n"
    out, err = excerpt_pair(source(long * 1000), source(short), 10_000)
    assert err.text == "short\n"
    assert 9_500 < len(out.text) <= 10_000 - 6
    out, err = excerpt_pair(source(long * 1000), source(long * 1000), 10_000)
    assert 4_500 < len(out.text) <= 5_000
    assert 4_500 < len(err.text) <= 10_000 - len(out.text)


def test_news_is_what_came_since_and_at_most_its_end() -> None:
    data = b"old\n" + b"new\n"
    assert recent(source(data, ended=False), 4) == Excerpt(text="new\n", end=8)
    assert recent(source(data, ended=False), 8) == Excerpt(text="", end=8)
    assert recent(source(b"x" * 5000 + b"end", ended=False), 0).text == "x" * 997 + "end"


def test_news_of_no_length_is_counted_and_not_shown() -> None:
    found = recent(source(b"one\ntwo\n"), 4, 0)
    assert (found.text, found.end) == ("", 8)


def test_news_skips_what_was_dropped() -> None:
    data = b"first\n" + bytes(1000) + b"last\n"
    assert recent(source(data, dropped=(6, 1006)), 3) == Excerpt(text="last\n", end=1011)


# Cost


@pytest.mark.case("C070")
def test_a_huge_line_is_cut_in_bounded_memory(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"a" * 20_000_000)
    with OutputFile(str(tmp_path / "output")) as file:
        tracemalloc.start()
        shown = excerpt(Source(read_at=file.read_at, size=file.size), DEFAULT_LIMIT)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert file.size == 20_000_000
    assert peak < 4_000_000  # bytes
    assert shown.omitted_lines == 0
    assert 32_000 < len(shown.text) <= DEFAULT_LIMIT


def test_only_the_ends_are_read_to_be_shown() -> None:
    asked: list[tuple[int, int]] = []

    def read_at(offset: int, length: int) -> bytes:
        asked.append((offset, length))
        return b"x" * length

    size = 10**12
    excerpt(Source(read_at=read_at, size=size, dropped=(2**24, size - 2**24)), DEFAULT_LIMIT)
    assert max(length for _, length in asked) <= 2**20  # bytes at once
    assert sum(length for _, length in asked) <= 2**25 + 2**18  # to count lines, and to show some


@given(output_bytes, st.integers(0, 700), st.booleans())
@example(b"\n" * 600, 300, True)
@example(b"\xff" * 600, 300, True)
def test_the_limit_is_never_passed(data: bytes, limit: int, ended: bool) -> None:
    shown = excerpt(source(data, ended=ended), limit)
    text = shown.text if limit >= 256 else MARKER.sub("", shown.text)
    assert len(text.encode()) <= limit + (limit < 256)  # and the line end before the marker
    assert not re.search("[\x1b\r\b\ud800-\udfff]", shown.text)


@given(output_bytes, st.integers(256, 700), st.booleans())
def test_what_is_shown_and_what_is_left_out_make_the_whole(
    data: bytes, limit: int, ended: bool
) -> None:
    shown = excerpt(source(data, ended=ended), limit)
    assert shown.end == len(data) or not ended
    assert len(data) - 4096 <= shown.end <= len(data)
    if shown.omitted_bytes == 0:
        assert not MARKER.search(shown.text)
    else:
        (marker,) = MARKER.findall(shown.text)
        assert marker == (str(shown.omitted_bytes), str(shown.omitted_lines))


@given(st.lists(output_bytes, max_size=5))
def test_news_in_pieces_cut_at_line_ends_is_the_text_of_the_whole(pieces: list[bytes]) -> None:
    pieces = [piece + b"\n" for piece in pieces]
    data = b"".join(pieces)
    seen = ""
    at = written = 0
    for piece in pieces:
        written += len(piece)
        news = recent(source(data[:written], ended=False), at, characters=10**6)
        seen, at = seen + news.text, news.end
    assert seen == excerpt(source(data), LARGEST_LIMIT).text
