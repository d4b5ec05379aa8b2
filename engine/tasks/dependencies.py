"""Who waits for whose end: calls with `after`, outside of the queue until it is decided.

Decided is: each of those that a call waits for has ended as it wants, so it may start; or one of
them never will, so it is to be skipped. Who tells of ends, and starts or skips, is the supervisor.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final, Generic, TypeVar

import msgspec

from engine.model import Status

Item = TypeVar("Item", bound=Hashable)

# `after_when` -> the ends that it waits for; `ended`: any.
WANTED: Final[dict[str, frozenset[Status]]] = {
    "succeeded": frozenset({Status.SUCCEEDED}),
    "failed": frozenset({Status.FAILED, Status.TIMED_OUT, Status.LOST}),
    "ended": frozenset(status for status in Status if status.is_final),
}


class Decision(msgspec.Struct, frozen=True):
    """`skipped_for`: why it can never start, in words; None: it may."""

    skipped_for: str | None = None


START: Final = Decision()

_WORDS: Final[dict[Status, str]] = {
    Status.CANCELLED: "was cancelled",
    Status.TIMED_OUT: "timed out",
    Status.LOST: "is lost",
    Status.SKIPPED: "was skipped",
    Status.DENIED: "was denied",
}


class _Need(msgspec.Struct):
    """What an item waits for. `open`: key -> the handle as it was given, in that order."""

    order: int
    when: str
    open: dict[str, str]


def key_of(handle: str) -> str:
    """What a handle stands for: a task and its kickoff are one."""
    return handle[1:] if handle[:1] in ("t", "k") else handle


class Dependencies(Generic[Item]):
    """Items that wait. `standing(handle)`: how what a handle names has ended, or None."""

    def __init__(self, standing: Callable[[str], Status | None]) -> None:
        self._standing = standing
        self._needs: dict[Item, _Need] = {}
        self._orders: list[int] = []  # of all that wait, sorted
        self._dependents: dict[str, dict[Item, None]] = {}  # by key

    def __len__(self) -> int:
        return len(self._needs)

    def __contains__(self, item: Item) -> bool:
        return item in self._needs

    def __iter__(self) -> Iterator[Item]:
        return iter(list(self._needs))

    def heads(self) -> Iterator[Item]:
        """The one that has waited longest, if any waits."""
        return itertools.islice(self._needs, 1)

    def add(self, item: Item, order: int, after: Iterable[str], when: str) -> Decision | None:
        """Decide at once where that can be; None: `item` waits."""
        need = _Need(order, when, {})
        for handle in after:
            status = self._standing(handle)
            if status is None:
                need.open[key_of(handle)] = handle
            elif status not in WANTED[when]:
                return _skipped(handle, status)
        if not need.open:
            return START
        self._needs[item] = need
        insort(self._orders, order)
        for key in need.open:
            self._dependents.setdefault(key, {})[item] = None
        return None

    def has_dependents(self, key: str) -> bool:
        return key in self._dependents

    def dependents(self, key: str) -> list[Item]:
        """Those that wait for the end of this one."""
        return list(self._dependents.get(key, ()))

    def hear(self, item: Item, key: str, status: Status) -> Decision | None:
        """Take note for `item` of an end; None: it waits on, or waits no more."""
        need = self._needs.get(item)
        if need is None or key not in need.open:
            return None
        handle = need.open[key]
        if status not in WANTED[need.when]:
            self.remove(item)
            return _skipped(handle, status)
        self._leave(item, key)
        del need.open[key]
        if need.open:
            return None
        self.remove(item)
        return START

    def remove(self, item: Item) -> bool:
        """Have `item` wait no more; False if it does not."""
        need = self._needs.pop(item, None)
        if need is None:
            return False
        del self._orders[bisect_left(self._orders, need.order)]
        for key in need.open:
            self._leave(item, key)
        return True

    def _leave(self, item: Item, key: str) -> None:
        waiting = self._dependents[key]
        del waiting[item]
        if not waiting:
            del self._dependents[key]

    def open(self, item: Item) -> list[str]:
        """The handles that `item` still waits for, as they were given; none: it does not wait."""
        need = self._needs.get(item)
        return [] if need is None else list(need.open.values())

    def place(self, item: Item) -> int | None:
        """1 for the one that was accepted first of all that wait; None for one that does not."""
        need = self._needs.get(item)
        return None if need is None else bisect_left(self._orders, need.order) + 1


def _skipped(handle: str, status: Status) -> Decision:
    return Decision(f"after {handle}, which {_WORDS.get(status, status.value)}")
