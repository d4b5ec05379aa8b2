"""Mirrors `engine/keeper/feed.py`: pipes and terminals of the test's own, no keeper."""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Iterator

import pytest

from engine.keeper.feed import LIMIT, Feed, Keyboard

MIB = 1_048_576


@pytest.fixture
def pipe() -> Iterator[tuple[int, Feed]]:
    read_end, write_end = os.pipe()
    feed = Feed(write_end)
    yield read_end, feed
    feed.close()
    os.close(read_end)


def read_all(fd: int, feed: Feed) -> bytes:
    """What comes until the end, with the feed written on as there is room."""
    found = b""
    while data := os.read(fd, 1 << 20):
        found += data
        feed.go_on()
        if feed.is_over:
            feed.close()
    return found


def test_what_is_taken_is_read_in_order_and_then_ended(pipe: tuple[int, Feed]) -> None:
    read_end, feed = pipe
    data = bytes(range(256)) * 3000

    assert feed.write(b"first", eof=False) == (5, True)
    assert feed.write(data, eof=True) == (768_000, True)
    assert (feed.is_open, feed.wants_room, feed.is_over) == (False, True, False)
    assert feed.write(b"late", eof=False) == (0, False)

    assert read_all(read_end, feed) == b"first" + data
    assert feed.is_over


def test_no_more_is_taken_than_a_mebibyte_that_nobody_has_read(pipe: tuple[int, Feed]) -> None:
    read_end, feed = pipe

    assert LIMIT == MIB
    assert feed.write(b"x" * (MIB + 7), eof=True) == (MIB, True)
    assert feed.is_open, "what was not taken whole is not ended"
    assert feed.write(b"y", eof=False) == (0, True)

    assert len(os.read(read_end, 5000)) == 5000
    assert feed.write(b"y" * 6000, eof=False) == (5000, True)


def test_a_part_that_is_taken_ends_with_a_character(pipe: tuple[int, Feed]) -> None:
    read_end, feed = pipe
    feed.write(b"x" * (MIB - 3), eof=False)

    assert feed.write("é€".encode(), eof=False) == (2, True)
    assert feed.write("€".encode(), eof=False) == (0, True)
    assert feed.write(b"\x80" * 9, eof=False) == (1, True), "no UTF-8 at all"
    assert os.read(read_end, 1) == b"x"


def test_a_pipe_that_nobody_reads_any_more_is_not_open(pipe: tuple[int, Feed]) -> None:
    read_end, feed = pipe
    replacement = os.open("/dev/null", os.O_RDONLY)
    os.dup2(replacement, read_end)
    os.close(replacement)

    assert feed.write(b"x", eof=False) == (0, False)
    assert (feed.is_open, feed.is_over, feed.wants_room) == (False, True, False)


def test_closing_twice_closes_no_strangers_descriptor() -> None:
    read_end, write_end = os.pipe()
    feed = Feed(write_end)
    feed.close()
    stranger = os.dup(read_end)
    feed.close()
    os.fstat(stranger)
    os.close(stranger)
    os.close(read_end)
    assert feed.fd == -1


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The master and the other end, non-blocking, of a terminal that does not echo."""
    master, slave = os.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    os.set_blocking(slave, False)  # a read that finds nothing fails
    yield master, slave
    os.close(slave)
    os.close(master)


def keyboard(master: int, text: int | None = None) -> Keyboard:
    return Keyboard(os.dup(master), text)


def test_the_end_is_typed_once_where_a_line_begins(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    keys = keyboard(master)
    keys.write(b"one\n", eof=True)
    keys.write(b"two\n", eof=False)

    assert [os.read(slave, 99) for _ in range(3)] == [b"one\n", b"", b"two\n"]
    assert keys.is_open
    keys.close()


def test_the_end_is_typed_twice_in_a_line_that_was_begun(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    keys = keyboard(master)
    keys.write(b"half", eof=True)
    keys.write(b"", eof=True)

    assert [os.read(slave, 99) for _ in range(3)] == [b"half", b"", b""]
    keys.close()


def test_an_interrupt_throws_the_line_away(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    keys = keyboard(master)
    keys.write(b"half\x03", eof=True)
    keys.write(b"x\n", eof=False)

    assert [os.read(slave, 99) for _ in range(2)] == [b"", b"x\n"]
    keys.close()


def test_a_program_that_reads_keys_gets_one_character(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    tty.setraw(slave)
    keys = keyboard(master)
    keys.write(b"half", eof=True)

    found = b""
    while len(found) < 5 and select.select([slave], [], [], 10)[0]:
        found += os.read(slave, 99)
    assert found == b"half\x04"
    with pytest.raises(BlockingIOError):
        os.read(slave, 99)
    keys.close()


def test_a_given_text_is_typed_piece_by_piece_and_ended(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    line = b"0123456789abcdef" * 64 + b"\n"
    text = os.memfd_create("text")
    os.write(text, line * 300)
    os.lseek(text, 0, os.SEEK_SET)
    keys = keyboard(master, text)
    keys.go_on()

    assert not keys.is_open
    assert keys.write(b"more", eof=False) == (0, False)
    assert keys.wants_room
    found = b""
    while data := os.read(slave, 4096):
        found += data
        keys.go_on()
    assert found == line * 300
    assert keys.is_over
    keys.close()
