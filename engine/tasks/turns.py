"""One at a time for each caller, in the order of coming: who has the turn, and who waits for it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from operator import itemgetter
from typing import Final, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

_ticket: Final = itemgetter(0)


class Turns(Generic[Item]):
    """`take` or wait; `end` gives the turn on."""

    def __init__(self) -> None:
        self._holders: dict[str, list[Item]] = {}  # more than one only after `join`
        self._lines: dict[str, list[tuple[int, Item]]] = {}  # by the tickets of those who wait
        self._tickets: dict[Item, int] = {}
        self._given = 0

    def __len__(self) -> int:
        """How many wait, of all callers."""
        return len(self._tickets)

    def take(self, caller: str, item: Item) -> bool:
        """Give the turn to `item`, or have it wait behind the others; False: it waits."""
        holders = self._holders.setdefault(caller, [])
        if not holders or item in holders:
            self.join(caller, item)
            return True
        self._given += 1
        self._tickets[item] = self._given
        self._lines.setdefault(caller, []).append((self._given, item))
        return False

    def join(self, caller: str, item: Item) -> None:
        """Note that `item` has a turn, whoever else has one: it was begun before we looked."""
        holders = self._holders.setdefault(caller, [])
        if item not in holders:
            holders.append(item)

    def end(self, caller: str, item: Item) -> Item | None:
        """End the turn of `item`, if it has one; the one whose turn it is now."""
        holders = self._holders.get(caller, [])
        if item not in holders:
            return None
        holders.remove(item)
        if holders:
            return None
        del self._holders[caller]
        line = self._lines.get(caller)
        if not line:
            return None
        _, following = line[0]
        self.remove(caller, following)
        self.join(caller, following)
        return following

    def remove(self, caller: str, item: Item) -> bool:
        """Take one that waits out of the line; False if it does not wait."""
        place = self.place(caller, item)
        if place is None:
            return False
        line = self._lines[caller]
        del line[place - 1], self._tickets[item]
        if not line:
            del self._lines[caller]
        return True

    def holder(self, caller: str) -> Item | None:
        """The one that those who wait are waiting for."""
        holders = self._holders.get(caller)
        return holders[-1] if holders else None

    def place(self, caller: str, item: Item) -> int | None:
        """1 for the next in line; None for one that does not wait."""
        ticket = self._tickets.get(item)
        if ticket is None or caller not in self._lines:
            return None
        return bisect_left(self._lines[caller], ticket, key=_ticket) + 1

    def __iter__(self) -> Iterator[Item]:
        """All who wait, each caller's in order."""
        return (item for line in list(self._lines.values()) for _, item in list(line))

    def heads(self) -> Iterator[Item]:
        """Of each caller for whom somebody waits, the one who is next."""
        return (line[0][1] for line in self._lines.values())
