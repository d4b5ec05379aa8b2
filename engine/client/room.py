"""How many calls of one client may be in flight, and how long their texts may be together."""

from __future__ import annotations

from typing import Final

import trio

MAX_CALLS: Final = 1_000  # in flight; the engine takes 10,000 of one connection
MAX_BYTES: Final = 32 << 20  # of their texts; the engine takes 64 MiB


class Room:
    """Whoever comes when there is none waits, in the order of coming."""

    def __init__(self) -> None:
        self._turn = trio.Lock()  # hands itself on in the order of coming
        self._freed = trio.Event()
        self._calls = 0
        self._bytes = 0

    async def enter(self, size: int) -> None:
        """Wait until there is room; one call alone always has it."""
        async with self._turn:
            while self._calls >= MAX_CALLS or (self._calls and self._bytes + size > MAX_BYTES):
                self._freed = trio.Event()
                await self._freed.wait()
            self._calls += 1
            self._bytes += size

    def leave(self, size: int) -> None:
        self._calls -= 1
        self._bytes -= size
        self._freed.set()
