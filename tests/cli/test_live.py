"""Mirrors `engine/cli/live.py`: what a terminal of a few lines shows after each drawing."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import termios
from collections.abc import Iterator

import pytest

from engine.cli.console import Console
from engine.cli.live import Block, Pace
from engine.cli.signals import Signals


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def console(fd: int) -> Console:
    return Console({"LANG": "C.UTF-8"}, out_fd=fd, err_fd=fd)


def test_a_block_that_did_not_change_is_not_drawn_again(pipe: tuple[int, int]) -> None:
    block = Block(console(pipe[1]))
    block.draw(["a", "b"])
    block.draw(["a", "b"])
    block.draw(["c"])
    assert os.read(pipe[0], 999) == (b"\x1b[2Ka\n\x1b[2Kb\n" + b"\x1b[2A\x1b[2Kc\n\x1b[2K\n\x1b[1A")


class Screen:
    """A terminal of `columns`, and the lines that are on it."""

    def __init__(self, columns: int) -> None:
        self.lines = [""]
        self.row = 0
        self.master, self.slave = os.openpty()
        self.resize(columns)

    def resize(self, columns: int) -> None:
        """Make it so wide; lines that are longer go on below, as terminals have it."""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        above = [self.lines[i : i + 1] for i in range(self.row)]
        wrapped = [
            line[i : i + columns] for [line] in above for i in range(0, max(1, len(line)), columns)
        ]
        self.lines = [*wrapped, *self.lines[self.row :]]
        self.row = len(wrapped)

    def look(self) -> list[str]:
        """Take in what was written; the lines that are not empty."""
        os.write(self.slave, b"\x05")  # the terminal hands over when it likes: read to this
        text = ""
        while not text.endswith("\x05"):
            text += os.read(self.master, 65536).decode()
        text = text.removesuffix("\x05")
        for piece in re.findall(r"\x1b\[[\d;]*[AKm]|\r?\n|\r|[^\x1b\r\n]+", text):
            if piece.endswith("\n"):
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif piece.endswith("A") and piece[0] == "\x1b":
                self.row = max(0, self.row - int(piece[2:-1]))
            elif piece == "\x1b[2K":
                self.lines[self.row] = ""
            elif piece != "\r" and not piece.startswith("\x1b"):
                self.lines[self.row] = piece
        return [line for line in self.lines if line]

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen(40)
    yield made
    made.close()


def test_a_drawing_takes_the_place_of_the_one_before(screen: Screen) -> None:
    block = Block(console(screen.slave))
    block.draw(["one", "two", "three"])
    assert screen.look() == ["one", "two", "three"]
    block.draw(["four"])
    assert screen.look() == ["four"]
    block.draw(["five", "six"])
    assert screen.look() == ["five", "six"]


def test_words_come_above_the_block_and_it_is_drawn_again_below(screen: Screen) -> None:
    made = console(screen.slave)
    block = Block(made)
    block.draw(["a", "b"])
    made.say("connection lost")
    block.draw(["a", "b"])
    assert screen.look() == ["engine: connection lost", "a", "b"]


def test_a_window_that_became_narrower_leaves_nothing_of_the_old_lines(screen: Screen) -> None:
    block = Block(console(screen.slave))
    block.draw(["x" * 40, "\x1b[31m" + "y" * 30 + "\x1b[0m"])
    screen.look()
    screen.resize(16)
    assert [len(line) for line in screen.lines if line] == [16, 16, 8, 16, 14]
    block.draw(["x" * 16, "y" * 15])
    assert screen.look() == ["x" * 16, "y" * 15]


def test_a_block_that_was_released_is_text_like_any_other(screen: Screen) -> None:
    block = Block(console(screen.slave))
    block.draw(["a"])
    block.release()
    block.draw(["b"])
    assert screen.look() == ["a", "b"]


def test_after_a_stop_the_block_is_drawn_below_what_others_wrote(screen: Screen) -> None:
    block = Block(console(screen.slave))
    with Signals(signal.SIGCONT) as signals:
        block.draw(["a", "b"])
        os.kill(os.getpid(), signal.SIGCONT)
        os.write(screen.slave, b"[1]+ Stopped\n")
        block.attend(signals)
        block.draw(["a", "c"])
    assert screen.look() == ["a", "b", "[1]+ Stopped", "a", "c"]


def test_a_screen_is_drawn_at_once_then_not_within_a_quarter_of_a_second() -> None:
    pace = Pace()
    assert pace.is_due()
    calm = pace.next_look
    assert not pace.is_due()
    assert calm - pace.next_look == pytest.approx(0.75)  # at the quarter
    assert pace.is_due(last=True)
