"""The two streams that people and scripts read: what is written to them, and how it looks.

stdout carries what was asked for; what the engine itself says goes to stderr, one line each, after
`engine: `. Both are written as bytes, unbuffered, so that their order is the order of the writes.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from engine.cli.view import View, cells, safe, terminal_width, wants_colour
from engine.client.errors import CannotWrite

PIPE_STEP: Final = 4096  # bytes; what a pipe that polls writable takes without blocking (PIPE_BUF)
ERASE_LINE: Final = b"\r\x1b[2K"


class Erasable(Protocol):
    """Something on the screen below which the cursor stands."""

    def erase(self) -> None: ...


class Console:
    """Where the words go. `clock` (monotonic) and `now` can be fixed by a test."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        color: str | None = None,
        plain: bool = False,
        quiet: bool = False,
        out_fd: int = 1,
        err_fd: int = 2,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.environ = environ
        self.out_fd, self.err_fd = out_fd, err_fd
        self.clock, self.now = clock, now
        self.quiet = quiet
        self.plain = plain
        self.out_is_terminal = is_terminal(out_fd)
        self.err_is_terminal = is_terminal(err_fd)
        self._out_colour = wants_colour(color, environ, self.out_is_terminal)
        self._err_colour = wants_colour(color, environ, self.err_is_terminal)
        self._unicode = is_utf8(environ)
        self._status = ""
        self._midline = False  # the job's output on the terminal ends inside a line
        self.block: Erasable | None = None  # what is drawn on the screen, and makes way for words

    @property
    def is_live(self) -> bool:
        """Whether lines may be drawn again in place."""
        dumb = self.environ.get("TERM", "") == "dumb" or bool(self.environ.get("CI"))
        return self.out_is_terminal and not self.plain and not dumb

    @property
    def shows_status(self) -> bool:
        """Whether a status line may come and go on stderr."""
        dumb = self.environ.get("TERM", "") == "dumb" or bool(self.environ.get("CI"))
        return self.err_is_terminal and not (self.plain or self.quiet or dumb)

    def view(self) -> View:
        """How stdout looks now; the width is asked for anew, as a window may have changed."""
        on_screen = self.out_is_terminal and not self.plain
        width = terminal_width(self.environ, columns(self.out_fd)) if on_screen else None
        return View(
            now=self.now(), width=width, colour=self._out_colour, unicode=self._unicode, zone=None
        )

    def error_view(self) -> View:
        """How stderr looks now."""
        on_screen = self.err_is_terminal and not self.plain
        width = terminal_width(self.environ, columns(self.err_fd)) if on_screen else None
        return View(
            now=self.now(), width=width, colour=self._err_colour, unicode=self._unicode, zone=None
        )

    def line(self, text: str) -> None:
        """Write a line to stdout. Raises BrokenPipeError where nobody reads."""
        self._make_way()
        self.write(self.out_fd, self.encode(text + "\n"))

    def say(self, text: str, *, always: bool = False) -> None:
        """Write one line of ours to stderr; not with `-q`, unless it is an error."""
        if self.quiet and not always:
            return
        self.raw_error("engine: " + safe(text))

    def raw_error(self, text: str) -> None:
        """Write `text` and a newline to stderr."""
        self._make_way()
        self._break_line()
        self._to_stderr(self.encode(text + "\n"))

    def write(self, fd: int, data: bytes, attend: Callable[[int], None] | None = None) -> None:
        """Write all of `data`; between pieces, `attend(fd)` waits until `fd` takes more.

        `attend` returns when the next piece would not block, and may act on signals meanwhile.
        Raises BrokenPipeError where nobody reads, `CannotWrite` for any other reason.
        """
        try:
            self._write(fd, data, attend)
        except BrokenPipeError:
            raise
        except OSError as exc:
            raise CannotWrite(f"the output cannot be written: {exc.strerror}") from exc

    def _write(self, fd: int, data: bytes, attend: Callable[[int], None] | None) -> None:
        view = memoryview(data)
        step = PIPE_STEP if attend and not stat.S_ISREG(os.fstat(fd).st_mode) else len(view)
        while view:
            if attend:
                attend(fd)
            try:
                done = os.write(fd, view[:step])
            except BlockingIOError:  # somebody else made it non-blocking
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()
                continue
            view = view[done:]

    def job_output(self, fd: int, data: bytes, attend: Callable[[int], None]) -> None:
        """Write what a job printed, after erasing the status line."""
        self.erase_status()
        self.write(fd, data, attend)
        if data and (self.out_is_terminal if fd == self.out_fd else self.err_is_terminal):
            self._midline = not data.endswith(b"\n")

    def show_status(self, text: str) -> None:
        """Draw `text` as the status line, in place of the one before."""
        if text == self._status or not self.shows_status:
            return
        self._break_line()
        self._to_stderr(ERASE_LINE + self.encode(text))
        self._status = text

    def erase_status(self) -> None:
        if self._status:
            self._to_stderr(ERASE_LINE)
            self._status = ""

    def _make_way(self) -> None:
        self.erase_status()
        if self.block is not None:
            self.block.erase()

    def end_interrupted(self) -> None:
        """Leave the line on which a terminal has shown `^C`."""
        self.erase_status()
        if self.err_is_terminal:
            self._to_stderr(b"\n")

    def _break_line(self) -> None:
        if self._midline and self.err_is_terminal:
            self._to_stderr(b"\n")
            self._midline = False

    def _to_stderr(self, data: bytes) -> None:
        # Where stderr is closed or nobody reads it, there is nowhere left to say so.
        with contextlib.suppress(OSError):
            self._write(self.err_fd, data, None)

    def encode(self, text: str) -> bytes:
        return text.encode("utf-8" if self._unicode else "ascii", "backslashreplace")


def is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def columns(fd: int) -> int | None:
    """Columns of the terminal at `fd`, as it says; None where it is none."""
    try:
        return os.get_terminal_size(fd).columns
    except OSError:
        return None


def rows(fd: int) -> int:
    """Rows of the terminal at `fd`; 24 where it does not say."""
    try:
        return os.get_terminal_size(fd).lines or 24
    except OSError:
        return 24


def is_utf8(environ: Mapping[str, str]) -> bool:
    """Whether the locale's characters are UTF-8."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if environ.get(name):
            return environ[name].lower().replace("-", "").endswith(("utf8", "utf8@euro"))
    return False


def lead_apart(first: int, second: int) -> bool:
    """Whether two descriptors lead to different places; one that is closed leads nowhere."""
    try:
        a, b = os.fstat(first), os.fstat(second)
    except OSError:
        return True
    return (a.st_dev, a.st_ino, a.st_rdev) != (b.st_dev, b.st_ino, b.st_rdev)


def fit(view: View, text: str) -> str:
    """`text` (without colours) cut to the width, where there is one."""
    return text if view.width is None or cells(text) <= view.width else view.cut(text, view.width)
