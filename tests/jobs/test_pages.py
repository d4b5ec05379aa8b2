"""Mirrors `engine/jobs/pages.py`: offsets, and where a page may end."""

from __future__ import annotations

import base64
import os
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.jobs import pages
from engine.jobs.excerpt import Source
from engine.jobs.pages import OffsetPastEnd, OutputFile, OutputGone, Page, read_page

LARGEST_PAGE = 524288  # bytes
ONE_TO_TEN = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"


def source(data: bytes, *, ended: bool = True, dropped: tuple[int, int] | None = None) -> Source:
    return Source(
        read_at=lambda offset, length: data[offset : offset + length],
        size=len(data),
        dropped=dropped,
        ended=ended,
    )


def all_pages(output: Source, limit: int, *, raw: bool = False) -> list[Page]:
    pages = [read_page(output, 0, limit, raw=raw)]
    while not pages[-1].eof and not pages[-1].is_waiting:
        pages.append(read_page(output, pages[-1].next_offset, limit, raw=raw))
    return pages


def open_descriptors() -> set[int]:
    listed = os.listdir("/proc/self/fd")  # with the one that the listing itself used
    return {int(fd) for fd in listed if os.path.lexists(f"/proc/self/fd/{fd}")}


# Offsets


def test_a_page_says_where_it_stands_and_where_the_next_one_starts() -> None:
    assert read_page(source(b"abcdef"), 1, 3) == Page(
        text="bcd", data=None, offset=1, next_offset=4, size=6, eof=False, dropped_bytes=0
    )
    assert read_page(source(b"abcdef"), 4, 3, raw=True) == Page(
        text=None, data=b"ef", offset=4, next_offset=6, size=6, eof=True, dropped_bytes=0
    )


@pytest.mark.case("C132")
def test_the_end_is_an_empty_page_and_past_it_an_error() -> None:
    output = source(ONE_TO_TEN)
    whole = read_page(output, 0, 65536)
    assert (whole.text, whole.next_offset, whole.eof) == (ONE_TO_TEN.decode(), 21, True)
    at_end = read_page(output, 21, 65536)
    assert (at_end.text, at_end.next_offset, at_end.eof) == ("", 21, True)
    with pytest.raises(OffsetPastEnd, match=r"offset 22 is past the end .* 21 bytes"):
        read_page(output, 22, 65536)
    last_three = read_page(output, -7, 65536)
    assert (last_three.text, last_three.offset, last_three.next_offset) == ("8\n9\n10\n", 14, 21)
    nothing = read_page(output, 0, 0)
    assert (nothing.text, nothing.next_offset, nothing.eof) == ("", 0, False)


@pytest.mark.parametrize("offset", [10**9, 2**53, 2**63])
def test_an_offset_far_past_the_end_is_answered_with_the_size(offset: int) -> None:
    with pytest.raises(OffsetPastEnd) as caught:
        read_page(source(ONE_TO_TEN), offset, 65536)
    assert (caught.value.offset, caught.value.size) == (offset, 21)


def test_an_offset_before_the_beginning_is_the_beginning() -> None:
    page = read_page(source(b"abc"), -1000, 65536)
    assert (page.text, page.offset) == ("abc", 0)


@pytest.mark.case("C131")
def test_a_reader_by_bytes_gets_half_a_line_and_then_the_rest() -> None:
    first = read_page(source(b"ab", ended=False), 0, 65536)
    assert (first.text, first.next_offset, first.eof) == ("ab", 2, False)
    waiting = read_page(source(b"ab", ended=False), 2, 65536)
    assert (waiting.text, waiting.is_waiting) == ("", True)
    second = read_page(source(b"abcd\n", ended=False), 2, 65536)
    assert (second.text, second.next_offset, second.is_waiting) == ("cd\n", 5, False)


# Characters


@pytest.mark.parametrize(("limit", "text"), [(1, "a"), (2, "a"), (3, "a"), (4, "a€"), (5, "a€b")])
def test_a_page_never_ends_inside_a_character(limit: int, text: str) -> None:
    page = read_page(source("a€b€".encode()), 0, limit)
    assert (page.text, page.next_offset) == (text, len(text.encode()))


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_limit_smaller_than_a_character_gives_that_character(limit: int) -> None:
    pages = all_pages(source("€🏷€".encode()), limit)
    assert [page.text for page in pages] == ["€", "🏷", "€"]
    assert [page.next_offset for page in pages] == [3, 7, 10]


def test_half_a_character_waits_while_the_job_runs_and_comes_out_when_it_has_ended() -> None:
    half = b"ok\xe2\x82"
    page = read_page(source(half, ended=False), 0, 65536)
    assert (page.text, page.next_offset, page.size) == ("ok", 2, 4)
    assert read_page(source(half, ended=False), 2, 65536).is_waiting
    ended = read_page(source(half), 2, 65536)
    assert (ended.text, ended.next_offset, ended.eof) == ("\ufffd", 4, True)


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"\xe2A", ["\ufffd", "A"]),
        (b"\xf0\x9fA", ["\ufffd", "A"]),
        (b"\xe2\xe2\x82\xac", ["\ufffd", "€"]),
        (b"\xff\xfe", ["\ufffd", "\ufffd"]),
        (b"\x82\xacA", ["\ufffd", "\ufffd", "A"]),
        (b"\xed\xa0\xbd", ["\ufffd", "\ufffd", "\ufffd"]),
    ],
)
def test_bytes_that_can_become_no_character_come_out_at_once(data: bytes, texts: list[str]) -> None:
    assert [page.text for page in all_pages(source(data, ended=False), 1)][: len(texts)] == texts


def test_a_page_that_starts_inside_a_character_shows_what_is_left_of_it_as_bad() -> None:
    assert read_page(source("€b".encode()), 1, 65536).text == "\ufffd\ufffdb"


def test_escape_sequences_are_left_as_they_are() -> None:
    assert read_page(source(b"\x1b[31mred\r\n"), 0, 65536).text == "\x1b[31mred\r\n"


@given(st.binary(max_size=60), st.integers(1, 9), st.booleans())
@example(b"\xf0\x9f\x8f", 1, True)
@example("🏷".encode() * 3, 2, False)
def test_text_pages_joined_are_the_text_of_the_output(data: bytes, limit: int, ended: bool) -> None:
    pages = all_pages(source(data, ended=ended), limit)
    read = data if ended else data[: pages[-1].next_offset]
    assert "".join(page.text or "" for page in pages) == read.decode("utf-8", "replace")
    assert len(data) - len(read) <= 3
    assert len(data) == len(read) or not ended
    assert [page.offset for page in pages[1:]] == [page.next_offset for page in pages[:-1]]


@given(st.binary(max_size=60), st.integers(1, 9))
def test_raw_pages_joined_are_the_bytes_of_the_output(data: bytes, limit: int) -> None:
    pages = all_pages(source(data), limit, raw=True)
    assert b"".join(page.data or b"" for page in pages) == data
    assert all(page.next_offset - page.offset == limit for page in pages[:-1])


# The size of a reply


@pytest.mark.parametrize("alphabet", [bytes(range(256)), b"\x00", b"\xff", b"\n", b"a"])
def test_a_page_ends_early_where_its_json_would_be_too_large(alphabet: bytes) -> None:
    data = bytes(random.Random(1).choices(alphabet, k=600_000))
    pages = all_pages(source(data), LARGEST_PAGE)
    assert all(len(msgspec.json.encode(page)) <= 512 * 1024 for page in pages)
    assert all(page.next_offset - page.offset > 80_000 for page in pages[:-1])
    assert "".join(page.text or "" for page in pages) == data.decode("utf-8", "replace")


def test_a_raw_page_ends_early_where_its_base64_would_be_too_large() -> None:
    data = random.Random(1).randbytes(600_000)
    pages = all_pages(source(data), LARGEST_PAGE, raw=True)
    assert [len(page.data or b"") for page in pages] == [392_448, 207_552]
    assert len(base64.b64encode(pages[0].data or b"")) == 512 * 1024 - 1024


# Dropped bytes


def test_a_page_stops_before_a_hole_and_in_it_the_next_offset_is_told() -> None:
    output = source(b"first!" + bytes(100) + b"last", dropped=(6, 106))
    before = read_page(output, 0, 65536)
    assert (before.text, before.next_offset, before.eof) == ("first!", 6, False)
    assert before.dropped_bytes == 100
    for offset in (6, 50, 105, -5):
        with pytest.raises(OutputGone) as caught:
            read_page(output, offset, 65536)
        assert caught.value.oldest_offset == 106
    after = read_page(output, 106, 65536)
    assert (after.text, after.eof, after.dropped_bytes) == ("last", True, 100)


def test_a_character_that_a_hole_has_cut_comes_out_as_bad() -> None:
    data = b"ab\xe2" + bytes(10) + b"end"
    assert read_page(source(data, ended=False, dropped=(3, 13)), 0, 65536).text == "ab\ufffd"


def test_newest_bytes_that_were_dropped_lie_at_the_end() -> None:
    data = b"first"
    output = Source(read_at=source(data).read_at, size=50, dropped=(5, 50))
    assert read_page(output, 0, 65536).text == "first"
    with pytest.raises(OutputGone) as caught:
        read_page(output, 5, 65536)
    assert caught.value.oldest_offset == 50
    assert read_page(output, 50, 65536).eof


@pytest.mark.case("C129")
def test_a_cursor_that_leads_nowhere_is_answered_with_what_is_valid() -> None:
    with pytest.raises(OffsetPastEnd) as past:
        read_page(source(ONE_TO_TEN), 10**9, 65536)
    assert past.value.size == 21
    last_byte = read_page(source(ONE_TO_TEN), -1, 65536)
    assert (last_byte.text, last_byte.offset) == ("\n", 20)
    shrunk = Source(read_at=source(b"ab").read_at, size=10)
    assert read_page(shrunk, 0, 65536).next_offset == 2
    with pytest.raises(OutputGone):
        read_page(shrunk, 2, 65536)


# Files


def test_a_file_is_read_below_a_directory_descriptor(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"0123456789")
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with OutputFile("output", dir_fd=directory) as file:
            assert file.size == 10
            assert file.read_at(3, 4) == b"3456"
            assert file.read_at(8, 100) == b"89"
            with (tmp_path / "output").open("ab") as more:
                more.write(b"x")
            assert file.size == 11
    finally:
        os.close(directory)


@pytest.mark.parametrize("block", [1, 4, 1 << 18])
def test_a_byte_is_sought_between_two_offsets_up_to_the_end_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(pages, "_SEEK_BYTES", block)
    (tmp_path / "output").write_bytes(b"01\n345\n789")
    with OutputFile(str(tmp_path / "output")) as file:
        found = [file.seek_byte(b"\n", start, end) for start, end in ASKED]
    assert found == [2, 2, 2, 6, 5, 10, 8, 10, 12]


ASKED = [(0, 10), (2, 10), (0, 2), (3, 10), (3, 5), (7, 10), (7, 8), (7, 99), (12, 99)]


def test_a_file_is_closed_on_exec_and_after_use(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"x")
    before = open_descriptors()
    with OutputFile(str(tmp_path / "output")):
        (new,) = open_descriptors() - before
        assert not os.get_inheritable(new)
    assert open_descriptors() == before


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_nothing_but_a_plain_file_is_opened(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "output"
    if kind == "link":
        (tmp_path / "secret").write_text("secret")
        target.symlink_to(tmp_path / "secret")
    elif kind == "fifo":
        os.mkfifo(target)
    else:
        target.mkdir()
    before = open_descriptors()
    with pytest.raises(OSError, match=r"symbolic links|not a plain file"):
        OutputFile(str(target))
    assert open_descriptors() == before
