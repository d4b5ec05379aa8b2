"""Signals as something that a blocking wait can wait for: a pipe that becomes readable."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any, Final

REDRAWING: Final = (signal.SIGWINCH, signal.SIGCONT)  # what a screen looks different after


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
