"""Waiting for something to become true, woken by key: no polling, no broadcast to all.

A wait is a predicate and a key; whoever changes what the predicate looks at wakes the key. Ten
thousand waits cost memory only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import trio

T = TypeVar("T")


class Waits:
    """All waits of the engine. `stop` ends them all, at once and for good."""

    def __init__(self) -> None:
        self._lots: dict[Hashable, trio.lowlevel.ParkingLot] = {}
        self._is_stopping = False

    async def until(
        self, key: Hashable, predicate: Callable[[], T | None], timeout_secs: float
    ) -> T | None:
        """What `predicate` gives as soon as that is not None; None when the time is spent.

        The predicate is asked once without waiting, whatever the time. It must not block.
        """
        found = predicate()
        if found is not None or timeout_secs <= 0 or self._is_stopping:
            return found
        with trio.move_on_after(timeout_secs):
            while found is None and not self._is_stopping:
                await self._park(key)
                found = predicate()
        # Time and event may fall into one turn: then the event counts.
        return predicate() if found is None else found

    async def _park(self, key: Hashable) -> None:
        lot = self._lots.get(key)
        if lot is None:
            lot = self._lots[key] = trio.lowlevel.ParkingLot()
        try:
            await lot.park()
        finally:
            if not lot and self._lots.get(key) is lot:
                del self._lots[key]

    def is_anybody(self, key: Hashable) -> bool:
        """Whether somebody waits under `key`."""
        return key in self._lots

    def wake(self, key: Hashable) -> None:
        """Have everybody who waits under `key` look again."""
        lot = self._lots.get(key)
        if lot is not None:
            lot.unpark_all()

    def stop(self) -> None:
        """End every wait with what its predicate gives now; later ones do not wait at all."""
        self._is_stopping = True
        for lot in list(self._lots.values()):
            lot.unpark_all()

    def __len__(self) -> int:
        return sum(len(lot) for lot in self._lots.values())
