"""The queue before the slots: round-robin over callers, first come first served within one."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class FairQueue(Generic[Item]):
    """Who is next: of each caller in turn its oldest item.

    A caller that was served goes to the end of the round; one that comes anew joins there too.
    """

    def __init__(self) -> None:
        self._callers: OrderedDict[str, deque[Item]] = OrderedDict()  # the next caller first
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, caller: str, item: Item) -> None:
        self._callers.setdefault(caller, deque()).append(item)
        self._size += 1

    def push_before(self, caller: str, item: Item, is_later: Callable[[Item], bool]) -> None:
        """Put `item` before the first of its caller's items that is later; behind all else."""
        items = self._callers.setdefault(caller, deque())
        place = next((i for i, other in enumerate(items) if is_later(other)), len(items))
        items.insert(place, item)
        self._size += 1

    def pop(self) -> Item:
        """Take the next item out. Raises LookupError if there is none."""
        if not self._callers:
            raise LookupError("the queue is empty")
        caller, items = next(iter(self._callers.items()))
        item = items.popleft()
        self._size -= 1
        if items:
            self._callers.move_to_end(caller)
        else:
            del self._callers[caller]
        return item

    def remove(self, caller: str, item: Item) -> bool:
        """Take `item` out, wherever it stands; False if it is not in."""
        items = self._callers.get(caller)
        if items is None or item not in items:
            return False
        items.remove(item)
        self._size -= 1
        if not items:
            del self._callers[caller]
        return True

    def position(self, caller: str, item: Item) -> int | None:
        """How many would be popped until `item` is, itself included; None if it is not in."""
        items = self._callers.get(caller)
        if items is None or item not in items:
            return None
        place = items.index(item)
        # In its own round and in each before it, every caller with an item left has a turn.
        ahead = 0
        is_behind = False
        for other, others in self._callers.items():
            if other == caller:
                is_behind = True
                ahead += place
            else:
                ahead += min(len(others), place if is_behind else place + 1)
        return ahead + 1

    def __iter__(self) -> Iterator[Item]:
        """All items, in the order in which `pop` would give them now."""
        rounds = OrderedDict((caller, deque(items)) for caller, items in self._callers.items())
        while rounds:
            for caller in list(rounds):
                yield rounds[caller].popleft()
                if not rounds[caller]:
                    del rounds[caller]
