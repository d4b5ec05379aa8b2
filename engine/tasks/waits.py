"""Waiting for something to become true, woken by key: no polling, no broadcast to all.

A wait is a predicate and a key; whoever changes what the predicate looks at wakes the key. Ten
thousand waits cost memory only, and so does one wait under ten thousand keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Final, TypeVar

import trio

# Woken in one turn, and then as many in each: what they do would else hold up everybody.
AT_ONCE: Final = 5

T = TypeVar("T")


class _Watch:
    """One wait under many keys: which of them were woken since it looked."""

    __slots__ = ("event", "woken")

    def __init__(self) -> None:
        self.woken: dict[Hashable, None] = {}
        self.event = trio.Event()


class Waits:
    """All waits of the engine. `stop` ends them all, at once and for good."""

    def __init__(self) -> None:
        self._lots: dict[Hashable, trio.lowlevel.ParkingLot] = {}
        self._watches: dict[Hashable, dict[_Watch, None]] = {}
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

    async def until_any(
        self,
        keys: Collection[Hashable],
        predicate: Callable[[Collection[Hashable]], T | None],
        timeout_secs: float,
    ) -> T | None:
        """As `until`, under many keys: the predicate is told which of them to look at.

        First all of them, without waiting; then those that were woken since, in that order. It is
        not asked at the end of the time: what it was not told of has not changed.
        """
        found = predicate(keys)
        if found is not None or timeout_secs <= 0 or self._is_stopping:
            return found
        watch = _Watch()
        for key in keys:
            self._watches.setdefault(key, {})[watch] = None
        try:
            with trio.move_on_after(timeout_secs):
                while found is None and not self._is_stopping:
                    await watch.event.wait()
                    found = self._look(watch, predicate)
            if found is None and watch.woken:  # time and event fell into one turn
                found = self._look(watch, predicate)
        finally:
            self._leave(watch, keys)
        return found

    def _look(
        self, watch: _Watch, predicate: Callable[[Collection[Hashable]], T | None]
    ) -> T | None:
        woken, watch.woken, watch.event = watch.woken, {}, trio.Event()
        return predicate(woken)

    def _leave(self, watch: _Watch, keys: Collection[Hashable]) -> None:
        for key in keys:
            watches = self._watches.get(key, {})
            watches.pop(watch, None)
            if not watches:
                self._watches.pop(key, None)

    async def _park(self, key: Hashable) -> None:
        lot = self._lots.get(key)
        if lot is None:
            lot = self._lots[key] = trio.lowlevel.ParkingLot()
        try:
            await lot.park()
        except trio.Cancelled:
            if not lot and self._lots.get(key) is lot:
                del self._lots[key]
            raise
        lot.unpark()  # whoever was woken wakes one more

    def is_anybody(self, key: Hashable) -> bool:
        """Whether somebody waits under `key`."""
        return key in self._lots or key in self._watches

    def wake(self, key: Hashable) -> None:
        """Have everybody who waits under `key` look again, `AT_ONCE` of them in the next turn."""
        lot = self._lots.pop(key, None)
        if lot is not None:
            lot.unpark(count=AT_ONCE)
        for watch in self._watches.get(key, ()):
            watch.woken[key] = None
            watch.event.set()

    def stop(self) -> None:
        """End every wait with what its predicate gives now; later ones do not wait at all."""
        self._is_stopping = True
        for key in list(self._lots):
            self.wake(key)
        for watches in self._watches.values():
            for watch in watches:
                watch.event.set()

    def __len__(self) -> int:
        """Under how many keys somebody waits whom nobody has woken, each as often as it is."""
        watches = sum(len(watches) for watches in self._watches.values())
        return watches + sum(len(lot) for lot in self._lots.values())
