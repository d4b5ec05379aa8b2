"""Whether anybody still reads our stdout, as something that a blocking wait can wait for.

A write says so too, but a verb that follows what comes may have nothing to write for hours.
"""

from __future__ import annotations

import contextlib
import select

from engine.cli.signals import Signals


class Audience:
    """A `Wake` of the client: readable once nobody reads `fd`, or when one of `signals` came.

    Where the kernel cannot tell (a file, `/dev/null`) the next write will.
    """

    def __init__(self, fd: int, signals: Signals | None = None) -> None:
        self._fd, self._signals = fd, signals
        self._epoll = select.epoll()
        with contextlib.suppress(OSError):  # EPERM: of what lies there nobody is the reader
            self._epoll.register(fd, 0)  # no event but the end of the other side, told always
        if signals is not None:
            self._epoll.register(signals.fileno(), select.EPOLLIN)

    def __enter__(self) -> Audience:
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()

    def fileno(self) -> int:
        return self._epoll.fileno()

    def drain(self) -> None:
        """Look at what happened. Raises BrokenPipeError where the reader is gone."""
        for fd, _ in self._epoll.poll(0):
            if fd == self._fd:
                raise BrokenPipeError
            assert self._signals is not None
            self._signals.drain()
