"""The open standard input of a job: what is written to it, bounded, and never waited for.

The kernel takes what its pipe or terminal has room for; the rest is kept here until the job reads.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
from typing import Any, Final

LIMIT: Final = 1 << 20  # bytes that the job has not read; more are not taken
_PIECE: Final = 64 << 10  # bytes handed to the kernel, or read of a given text, at a time
_CONTINUATION: Final = range(0x80, 0xC0)  # bytes inside a character of UTF-8
_LONGEST_CHARACTER: Final = 4  # bytes
_LFLAG, _CC = 3, 6  # places in what tcgetattr gives
# After these a terminal is at the beginning of a line: they end one or throw it away.
_LINE_ENDS: Final = (termios.VEOF, termios.VINTR, termios.VQUIT, termios.VSUSP, termios.VKILL)


class Feed:
    """The write end `fd` of a pipe; made non-blocking, closed by `close`.

    `is_open`: takes more. `is_over`: nothing is left to write, nor will be.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.is_open = True
        self.is_over = False
        self._waiting = bytearray()

    @property
    def wants_room(self) -> bool:
        """Whether something waits for the kernel to take it."""
        return bool(self._waiting)

    @property
    def is_awaiting_reader(self) -> bool:
        """Whether something was written that nobody has read."""
        return self.fd >= 0 and self._unread() > 0

    def write(self, data: bytes, *, eof: bool) -> tuple[int, bool]:
        """How much of `data` was taken (with `eof`: then ended, if it was all), and whether open.

        Not open is also what turns out to have nobody that reads.
        """
        if not self.is_open:
            return 0, False
        taken = self.take(data)
        is_open = self.is_open
        if eof and is_open and taken == len(data):
            self.end()
        return taken, is_open

    def take(self, data: bytes) -> int:
        """Write `data`, or as much of it as the bound allows; how many bytes that was.

        A part ends where a character does, if `data` is UTF-8.
        """
        if not self.is_open:
            return 0
        count = _whole(data, max(0, LIMIT - self._unread()))
        self._waiting += data[:count]
        self.go_on()
        return count if self.is_open else 0  # nobody is there to read it

    def end(self) -> None:
        """Let the job see the end of its input once it has read what was taken."""
        self.is_open = False
        self.go_on()

    def on_event(self, events: int) -> None:
        """The kernel has room again, or nobody can read any more."""
        if events & (select.EPOLLERR | select.EPOLLHUP):
            self.abandon()
        else:
            self.go_on()

    def go_on(self) -> None:
        """Hand the kernel what it takes."""
        try:
            while self._waiting or self._refill():
                sent = os.write(self.fd, self._waiting[:_PIECE])
                del self._waiting[:sent]
        except BlockingIOError:
            return
        except OSError:  # EPIPE; EIO of a terminal
            self.abandon()
            return
        self.is_over = not self.is_open

    def abandon(self) -> None:
        """Drop what waits: nobody will read it."""
        self._waiting.clear()
        self.is_open, self.is_over = False, True

    def close(self) -> None:
        """Let go of it, if that has not been; what waits is dropped."""
        self.abandon()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _refill(self) -> bool:
        """Have more wait, if there is more; False: there is not."""
        return False

    def _unread(self) -> int:
        in_pipe = bytearray(4)
        fcntl.ioctl(self.fd, termios.FIONREAD, in_pipe)
        return len(self._waiting) + int(struct.unpack("i", in_pipe)[0])


class Keyboard(Feed):
    """Types at a terminal; `fd` is its master end, `text` a file of what is typed and then ended.

    With a text it takes nothing else. The end of input is a character: the terminal hands it to
    whoever reads, and stays open. Closes `text`.
    """

    def __init__(self, fd: int, text: int | None) -> None:
        super().__init__(fd)
        self._text = text
        self._last = b""  # that was typed
        self.is_open = text is None

    def take(self, data: bytes) -> int:
        count = super().take(data)
        self._last = data[count - 1 : count] or self._last
        return count

    def end(self) -> None:
        """Type the end-of-file character; past the bound, where nobody reads, it is left out."""
        if self.is_open and len(self._waiting) < LIMIT + _PIECE:
            self._put(self._end_of_file())
            self.go_on()

    def close(self) -> None:
        super().close()
        self._close_text()

    def _close_text(self) -> None:
        if self._text is not None:
            os.close(self._text)
            self._text = None

    def _put(self, data: bytes) -> None:
        self._waiting += data
        self._last = data[-1:]

    def _refill(self) -> bool:
        if self._text is None:
            return False
        piece = os.read(self._text, _PIECE)
        self._put(piece or self._end_of_file())
        if not piece:
            self._close_text()
        return True

    def _end_of_file(self) -> bytes:
        """The character, twice where the first would only hand over the line that was begun.

        Of a program that reads keys itself (a line editor) the second would be one key too many.
        """
        attributes: list[Any] = termios.tcgetattr(self.fd)
        characters = attributes[_CC]
        ends = {b"", b"\n", b"\r", *(characters[which] for which in _LINE_ENDS)}
        is_once = self._last in ends or not attributes[_LFLAG] & termios.ICANON
        character = bytes(characters[termios.VEOF])
        return character if is_once else 2 * character

    def _unread(self) -> int:
        return len(self._waiting)  # what the terminal holds besides, a few KiB, it does not tell


def keyboard(master: int, text: int | None) -> Keyboard:
    """A keyboard with descriptors of its own for both. Raises OSError."""
    fd = os.dup(master)
    try:
        return Keyboard(fd, None if text is None else os.dup(text))
    except OSError:
        os.close(fd)
        raise


def _whole(data: bytes, limit: int) -> int:
    """How many bytes of `data`, at most `limit`, end at the end of a character."""
    if len(data) <= limit:
        return len(data)
    for count in range(limit, max(-1, limit - _LONGEST_CHARACTER), -1):
        if data[count] not in _CONTINUATION:
            return count
    return limit
