"""Screens that are drawn again in place: the block of lines, and the pace of its drawings."""

from __future__ import annotations

import re
import signal
import time
from typing import Final

from engine.cli.console import Console, columns
from engine.cli.signals import Signals
from engine.cli.view import cells

REDRAW: Final = 0.25  # seconds at least from one drawing to the next
TICK: Final = 1.0  # seconds between two drawings where only the clock has moved
SGR: Final = re.compile(r"\x1b\[[0-9;]*m")


class Block:
    """Lines on stdout that are drawn again in place; the cursor stays below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._drawn: list[str] = []
        self._width: int | None = None  # of the terminal at the last drawing
        console.block = self

    def draw(self, lines: list[str]) -> None:
        """Replace the block by `lines`, each of which fits the width; nothing where they are."""
        width = columns(self._console.out_fd)
        if lines == self._drawn and width == self._width:
            return
        self._console.erase_status()
        height = self._height(width)
        up = f"\x1b[{height}A" if height else ""
        body = "".join(f"\x1b[2K{line}\n" for line in lines)
        rest = height - len(lines)
        tail = "\x1b[2K\n" * rest + f"\x1b[{rest}A" if rest > 0 else ""
        self._console.write(self._console.out_fd, self._console.encode(up + body + tail))
        self._drawn, self._width = lines, width

    def erase(self) -> None:
        """Take the block off the screen, so that something else can be written in its place."""
        height = self._height(columns(self._console.out_fd))
        if height:
            up = f"\x1b[{height}A"
            blank = up + "\x1b[2K\n" * height + up
            self._console.write(self._console.out_fd, self._console.encode(blank))
            self._drawn = []

    def release(self) -> None:
        """Leave the block as it stands: it is text like any other from now on."""
        self._drawn = []

    def attend(self, signals: Signals) -> None:
        """Act on what came: after a stop, others have written below the block."""
        if signal.SIGCONT in signals.take():
            self.release()

    def _height(self, width: int | None) -> int:
        """Lines of the screen that the block takes.

        A window that became narrower has wrapped what was drawn: so do all terminals that are
        in wide use but xterm, where a line or two above the block are lost.
        """
        if width is None or width == self._width:
            return len(self._drawn)
        return sum(max(1, -(-cells(SGR.sub("", line)) // width)) for line in self._drawn)


class Pace:
    """When to draw: every `TICK` seconds for the clock's sake, and never within `REDRAW`."""

    def __init__(self) -> None:
        self._drawn = 0.0
        self._is_stale = False  # something came that has not been drawn

    def is_due(self, *, last: bool = False) -> bool:
        """Whether to draw now, as the caller then does; `last`: in any case."""
        now = time.monotonic()
        self._is_stale = not last and now - self._drawn < REDRAW
        if not self._is_stale:
            self._drawn = now
        return not self._is_stale

    @property
    def next_look(self) -> float:
        """When to ask again although nothing came, by the monotonic clock."""
        return self._drawn + (REDRAW if self._is_stale else TICK)
