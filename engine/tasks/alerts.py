"""What a caller is told once of something that goes on: that a task is ready or blocked, that a
seat of a round is lost.

An alert is carried by a reply and received when that is acknowledged, as an end is. Where the
connection or the engine ends first it is told again, with the mark that it may have been told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping


class Once:
    """What one caller was told of one thing, by category.

    `received` are acknowledged; `carried` are in replies that may still be, `doubtful` in such as
    may never have come: each with the id of its delivery.
    """

    __slots__ = ("carried", "doubtful", "received")

    def __init__(self, received: Iterable[str] = (), sent: Mapping[str, str] | None = None) -> None:
        """`sent`: what an engine before us was about to tell when it ended."""
        self.received = set(received)
        self.carried: dict[str, str] = {}
        self.doubtful = dict(sent or {})

    @property
    def shown(self) -> Collection[str]:
        """What is not to be told now."""
        return self.received | self.carried.keys() if self.carried else self.received

    @property
    def sent(self) -> dict[str, str]:
        """What replies tell, or may have told, that were not acknowledged."""
        return self.doubtful | self.carried

    def acknowledge(self, delivery: str) -> bool:
        """What was in doubt of this delivery has come; False: there is no such thing."""
        found = {category for category, id_ in self.doubtful.items() if id_ == delivery}
        self.receive(found)
        return bool(found)

    def receive(self, categories: Collection[str]) -> None:
        """These have come, and are never told again."""
        self.received.update(categories)
        for category in categories:
            self.carried.pop(category, None)
            self.doubtful.pop(category, None)


class Alert:
    """One thing's alerts in one reply. `marked`: those that an earlier one may have told."""

    __slots__ = ("_categories", "_delivery", "_keep", "_once", "_wake", "marked")

    def __init__(
        self,
        once: Once,
        categories: Collection[str],
        delivery: str,
        keep: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        """`keep`: has the next engine know how these stand, and is for the caller to call now;
        `wake`: has those look who wait for the thing."""
        self._once, self._categories = once, categories
        self._delivery, self._keep, self._wake = delivery, keep, wake
        self.marked = once.doubtful.keys() & set(categories)
        once.carried.update(dict.fromkeys(categories, delivery))

    def receive(self) -> None:
        """The reply was acknowledged."""
        self._once.receive(self._held())
        self._keep()

    def take_back(self, *, may_be_told: bool) -> None:
        """The reply was not written, or its connection has ended: these are to be told again."""
        for category in self._held():
            del self._once.carried[category]
            if may_be_told:
                self._once.doubtful[category] = self._delivery
        self._keep()
        self._wake()

    def _held(self) -> list[str]:
        """Those that this reply carries still: another may have been acknowledged meanwhile."""
        carried = self._once.carried
        return [each for each in self._categories if carried.get(each) == self._delivery]
