"""The queue before the slots: round-robin over callers, first come first served within one.

Each item stands in a lane, or in none (None), which is a lane like any other here. Which lanes
have room, and whether one caller alone may start, is said with each question.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Set
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)
Lane = str | None
IsOpen = Callable[[Lane], bool]  # whether one more of a lane may start now

_order: Final = itemgetter(0)


class _Waiting(Generic[Item]):
    """What one caller has in the queue. `ticket`: the lower, the sooner it is its turn."""

    __slots__ = ("lanes", "ticket")

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self.lanes: dict[Lane, list[tuple[int, Item]]] = {}  # with the order of acceptance, sorted

    def count(self, shut: Set[Lane]) -> tuple[int, int]:
        """How many items stand in open lanes, and how many in those that are `shut`."""
        total = sum(map(len, self.lanes.values()))
        blocked = sum(len(self.lanes[lane]) for lane in self.lanes.keys() & shut) if shut else 0
        return total - blocked, blocked

    def line(self, is_wanted: IsOpen) -> list[tuple[int, Item]]:
        """The items of all lanes that are wanted, by acceptance."""
        lines = [items for lane, items in self.lanes.items() if is_wanted(lane)]
        return lines[0] if len(lines) == 1 else sorted(itertools.chain(*lines), key=_order)


class FairQueue(Generic[Item]):
    """Who is next: of each caller in turn the oldest item whose lane has room.

    A caller that was served goes to the end of the round; one that comes anew joins there too.
    One that has only items of full lanes keeps its place.
    """

    def __init__(self) -> None:
        self._callers: dict[str, _Waiting[Item]] = {}
        self._rounds: dict[Lane, list[tuple[int, str]]] = {}  # who has items in it, by ticket
        self._where: dict[Item, tuple[str, Lane, int]] = {}
        self._tickets = 0
        # Who stands where, found out when a second is asked for: until anything changes.
        self._places: dict[Item, int] | None = None
        self._asked: tuple[Set[Lane], str | None] | None = None  # with which lanes shut, for whom

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, item: Item) -> bool:
        return item in self._where

    def __iter__(self) -> Iterator[Item]:
        """All items, in the order in which they came here."""
        return iter(list(self._where))

    def heads(self) -> Iterator[Item]:
        """Of each caller and lane the item that is next."""
        return (line[0][1] for waiting in self._callers.values() for line in waiting.lanes.values())

    def by_lane(self) -> Counter[str]:
        """How many items stand in each named lane."""
        counts: Counter[str] = Counter()
        for lane, callers in self._rounds.items():
            if lane is not None:
                counts[lane] = sum(len(self._callers[caller].lanes[lane]) for _, caller in callers)
        return counts

    def push(self, caller: str, item: Item, order: int, lane: Lane = None) -> None:
        """Put `item` in; within its caller it goes by `order`, which no other item has."""
        waiting = self._callers.get(caller)
        if waiting is None:
            waiting = self._callers[caller] = _Waiting(self._ticket())
        line = waiting.lanes.get(lane)
        if line is None:
            line = waiting.lanes[lane] = []
            insort(self._rounds.setdefault(lane, []), (waiting.ticket, caller))
        insort(line, (order, item), key=_order)
        self._where[item] = caller, lane, order
        self._asked = self._places = None

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def pop(self, is_open: IsOpen, only: str | None = None) -> Item | None:
        """Take out the next item that may start; None if none may.

        `only`: no other caller may start anything.
        """
        caller = only if only is not None else self._next_caller(is_open)
        waiting = None if caller is None else self._callers.get(caller)
        if caller is None or waiting is None:
            return None
        heads = [line[0] for lane, line in waiting.lanes.items() if is_open(lane)]
        if not heads:
            return None
        _, item = min(heads, key=_order)
        self.remove(item)
        self._serve(caller)
        return item

    def _next_caller(self, is_open: IsOpen) -> str | None:
        heads = [line[0] for lane, line in self._rounds.items() if is_open(lane)]
        return min(heads)[1] if heads else None

    def _serve(self, caller: str) -> None:
        """Put a caller at the end of the round."""
        waiting = self._callers.get(caller)
        if waiting is None:
            return
        before, waiting.ticket = waiting.ticket, self._ticket()
        for lane in waiting.lanes:
            line = self._rounds[lane]
            del line[bisect_left(line, (before, caller))]
            line.append((waiting.ticket, caller))
        self._asked = self._places = None

    def remove(self, item: Item) -> bool:
        """Take `item` out, wherever it stands; False if it is not in."""
        where = self._where.pop(item, None)
        if where is None:
            return False
        self._asked = self._places = None
        caller, lane, order = where
        waiting = self._callers[caller]
        line = waiting.lanes[lane]
        del line[bisect_left(line, order, key=_order)]
        if not line:
            del waiting.lanes[lane]
            callers = self._rounds[lane]
            del callers[bisect_left(callers, (waiting.ticket, caller))]
            if not callers:
                del self._rounds[lane]
        if not waiting.lanes:
            del self._callers[caller]
        return True

    def shut(self, is_open: IsOpen) -> set[Lane]:
        """The lanes in which items wait and that are not open."""
        return {lane for lane in self._rounds if not is_open(lane)}

    def waiting_in(self, lane: Lane) -> list[Item]:
        """The items of one lane, each caller's in its order."""
        callers = self._rounds.get(lane, ())
        return [item for _, caller in callers for _, item in self._callers[caller].lanes[lane]]

    # -- the order in which they would start -------------------------------------------------------
    #
    # As if each that starts was over at once, and those that run now only when nothing else could
    # start any more: first all of open lanes, then all of the full ones; before both, where one
    # caller alone may start, all of that one.

    def position(self, item: Item, is_open: IsOpen, only: str | None = None) -> int | None:
        """Where `item` stands in `in_order`, from 1; None if it is not in.

        Takes a look at each caller; asked again before anything has changed, one at each item, and
        from then on none.
        """
        if item not in self._where:
            return None
        shut = self.shut(is_open)
        if self._asked != (shut, only):
            self._asked, self._places = (shut, only), None
            return self._position(item, shut, only)
        if self._places is None:
            self._places = {each: n for n, each in enumerate(self.in_order(is_open, only), 1)}
        return self._places[item]

    def _position(self, item: Item, shut: Set[Lane], only: str | None) -> int:
        caller, lane, order = self._where[item]
        waiting, is_blocked = self._callers[caller], lane in shut
        place = sum(
            bisect_left(line, order, key=_order)
            for each, line in waiting.lanes.items()
            if (each in shut) == is_blocked
        )
        opened, _ = waiting.count(shut)
        rank = (opened, waiting.ticket) if is_blocked else (0, waiting.ticket)
        ahead = place + (opened if is_blocked else 0)
        for other, others in self._callers.items():
            if other == caller:
                continue
            if only is not None and only in (caller, other):
                ahead += sum(others.count(shut)) if only == other else 0
                continue
            first, second = others.count(shut)
            if is_blocked:
                # Who was served before is behind, and the more often the further.
                is_before = (first, others.ticket) < rank
                ahead += first + min(second, place + is_before)
            else:
                ahead += min(first, place + (others.ticket < waiting.ticket))
        return ahead + 1

    def in_order(self, is_open: IsOpen, only: str | None = None) -> Iterator[Item]:
        """All items, in the order in which they would start."""
        shut = self.shut(is_open)
        groups: list[list[_Waiting[Item]]] = [list(self._callers.values())]
        if only is not None:
            groups = [
                [waiting for name, waiting in self._callers.items() if (name == only) == is_first]
                for is_first in (True, False)
            ]
        for group in groups:
            group.sort(key=lambda waiting: waiting.ticket)
            yield from _in_turn([waiting.line(lambda lane: lane not in shut) for waiting in group])
            if shut:
                group.sort(key=lambda waiting: (waiting.count(shut)[0], waiting.ticket))
                yield from _in_turn([waiting.line(lambda lane: lane in shut) for waiting in group])


def _in_turn(lines: list[list[tuple[int, Any]]]) -> Iterator[Any]:
    """The first of each line, then the second of each that has one, and so on."""
    place = 0
    lines = [line for line in lines if line]
    while lines:
        yield from [line[place][1] for line in lines]
        place += 1
        lines = [line for line in lines if len(line) > place]
