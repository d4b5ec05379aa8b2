"""A terminal of a job's own: a pair of ends, of which the keeper holds the master."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from typing import Any, Final

from engine.keeper.waiting import Input, input_of

ROWS: Final = 24
COLUMNS: Final = 80
_IUTF8: Final = 0x4000  # termios(3): the erase key takes a character of UTF-8, not a byte
_IFLAG: Final = 0  # place in what tcgetattr gives


class Terminal:
    """`master` is non-blocking; `path` is the other end's. Raises OSError.

    The other end is held open here until `close`: a job that closes its terminal and opens it
    again must not look like one that has left it. From then on the master sees the end when the
    last process has closed the terminal.
    """

    def __init__(self) -> None:
        self.master, self._slave = os.openpty()
        self.has_master = True  # else somebody else closes it
        try:
            self.path = os.ttyname(self._slave)
            os.set_blocking(self.master, False)
            size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)
            attributes: list[Any] = termios.tcgetattr(self._slave)
            attributes[_IFLAG] |= _IUTF8
            termios.tcsetattr(self._slave, termios.TCSANOW, attributes)
        except BaseException:
            self.close()
            raise

    def actions(self) -> list[tuple[Any, ...]]:
        """What makes it standard input, output and error of a process started with `setsid`.

        The first terminal that a session's leader opens is the one that controls it.
        """
        return [
            (os.POSIX_SPAWN_OPEN, 0, self.path, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]

    def input(self) -> Input:
        """What a job reads at it."""
        return input_of(self._slave)

    def close(self) -> None:
        if self._slave >= 0:
            os.close(self._slave)
            self._slave = -1
        if self.has_master:
            os.close(self.master)
            self.has_master = False
