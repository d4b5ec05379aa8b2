"""Gives memory back to the system that large messages took.

The C library keeps what was freed between what was not: twenty clients that sent 15 MiB each and
went leave 300 MiB. Trimming takes milliseconds, so it is done when much has passed, and once.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Final

import trio

from engine.threads import in_thread

TRIM_AFTER_BYTES: Final = 8 << 20  # that have passed
SETTLE_SECS: Final = 2.0  # for those through whom they passed to be done with them


def find_trim() -> Callable[[int], int] | None:
    """The C library's malloc_trim(3), for which the interpreter is let go; None: it has none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


class Trimmer:
    """`moved` counts; `serve` trims."""

    def __init__(self, trim: Callable[[int], int] | None) -> None:
        self._trim = trim
        self._bytes = 0
        self._is_due = trio.Event()

    def moved(self, size: int) -> None:
        """So many bytes have come from a client, or gone to one."""
        self._bytes += size
        if self._bytes >= TRIM_AFTER_BYTES:
            self._is_due.set()

    async def serve(self) -> None:
        while self._trim is not None:
            await self._is_due.wait()
            await trio.sleep(SETTLE_SECS)
            self._bytes, self._is_due = 0, trio.Event()
            gc.collect(1)  # a connection that ended is in cycles, and what it held with it
            await in_thread(self._trim, 0)
