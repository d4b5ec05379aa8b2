"""Signals as something that a blocking wait can wait for: a pipe that becomes readable."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

REDRAWING: Final = (signal.SIGWINCH, signal.SIGCONT)  # what a screen looks different after


class Terminated(KeyboardInterrupt):
    """SIGTERM came, where Ctrl-C has something to say."""


def left_by(exc: KeyboardInterrupt) -> int:
    """The exit code of a verb that was left: that of Ctrl-C, or of SIGTERM."""
    return 128 + (signal.SIGTERM if isinstance(exc, Terminated) else signal.SIGINT)


@contextmanager
def terminable() -> Iterator[None]:
    """Have SIGTERM raise `Terminated` in the block: `timeout` and CI end a command by it, and are
    to hear the same words as who presses Ctrl-C. Main thread only."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Signals:
    """While open, the given signals are noted instead of acted upon. Main thread only."""

    def __init__(self, *numbers: int) -> None:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        self._noted: list[int] = []
        self._before: dict[int, Any] = {}
        self._wakeup_before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in numbers:
            self._before[number] = signal.signal(number, self._note)

    def __enter__(self) -> Signals:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._noted.append(number)

    def fileno(self) -> int:
        return self._read_fd

    def drain(self) -> None:
        try:
            while len(os.read(self._read_fd, 512)) == 512:
                pass
        except BlockingIOError:
            pass  # empty: another wait drained it

    def take(self) -> list[int]:
        """The signals since the last call, in order; each is handed out once."""
        taken, self._noted = self._noted, []
        return taken
