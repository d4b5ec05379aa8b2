"""What one caller has to receive: the ends that it has not, in their order. No I/O, no clock.

Each end is *held* by the deliveries that are on their way with it; one that nobody holds and that
is the caller's own is *ready*, unless a reply that will carry it is *expected*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from engine.tasks.alerts import Alert


class Delivery:
    """Ends that one reply carries to a caller, and alerts; and how far it has come.

    `marked`: those that another reply may have told of, or will. `is_kept`: written down as
    delivered. `number`: of the replies that were written on its connection; None before it was.
    `alerts`: until they are settled.
    """

    __slots__ = (
        *("alerts", "before", "caller", "connection", "handles", "id", "is_kept", "marked"),
        "number",
    )

    def __init__(self, id_: str, caller: str, connection: Hashable) -> None:
        self.id, self.caller, self.connection = id_, caller, connection
        self.handles: dict[str, None] = {}
        self.marked: set[str] = set()
        self.before: dict[str, tuple[bool, bool]] = {}  # whether each was told of, and noticed
        self.is_kept = False
        self.number: int | None = None
        self.alerts: list[Alert] = []

    @property
    def is_owed(self) -> bool:
        """Whether there is something in it to be acknowledged."""
        return bool(self.handles or self.alerts)

    def settle_alerts(self, settle: Callable[[Alert], None]) -> None:
        """Have what becomes of its alerts be this."""
        alerts, self.alerts = self.alerts, []
        for alert in alerts:
            settle(alert)


class Item:
    """The end of one handle, not received yet.

    `is_told`: a reply may have carried it; `is_noticed`: one had it among its notices. `last`: the
    newest delivery that was kept, by which it can be acknowledged.
    """

    __slots__ = ("holders", "is_noticed", "is_own", "is_told", "last")

    def __init__(self, *, is_own: bool, is_told: bool = False, is_noticed: bool = False) -> None:
        self.is_own, self.is_told, self.is_noticed = is_own, is_told, is_noticed
        self.holders: dict[Delivery, None] = {}
        self.last: Delivery | None = None


class Mailbox:
    """One caller's. `ready` and `fresh` are in the order of the ends, as `items` is."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.ready: dict[str, None] = {}
        self.fresh: dict[str, None] = {}  # own ones that no reply has told of in any way
        self.expected: Counter[str] = Counter()
        self.received: set[str] = set()  # of a caller whose receipts nobody stores

    @property
    def is_empty(self) -> bool:
        return not (self.items or self.expected or self.received)

    def add(self, handle: str, item: Item) -> None:
        """Put an end behind the others."""
        self.items[handle] = item
        self.settle([handle])

    def put_last(self, handle: str) -> None:
        """Have an end that is here stand behind the others."""
        self.items[handle] = self.items.pop(handle)
        for ends in (self.ready, self.fresh):
            if handle in ends:
                ends[handle] = ends.pop(handle)

    def hold(self, handle: str, delivery: Delivery) -> None:
        """`delivery` is on its way with this end; it may say so twice."""
        if handle in delivery.handles:
            return
        item = self.items.get(handle)
        if item is None:
            item = self.items[handle] = Item(is_own=False)
        if item.is_told or item.holders:  # of two replies at a time one has the mark
            delivery.marked.add(handle)
        item.holders[delivery] = None
        delivery.handles[handle] = None
        self.ready.pop(handle, None)

    def release(self, delivery: Delivery, handles: Iterable[str]) -> None:
        """`delivery` has no hold on these any more; who was told what has been noted before."""
        freed = []
        for handle in handles:
            item = self.items.get(handle)
            if item is None:
                continue  # received by another delivery
            item.holders.pop(delivery, None)
            if not item.is_own and not item.is_told and not item.holders:
                del self.items[handle]
            else:
                freed.append(handle)
        self.settle(freed)

    def receive(self, handle: str) -> None:
        """Take an end out for good."""
        del self.items[handle]
        self.ready.pop(handle, None)
        self.fresh.pop(handle, None)

    def settle(self, handles: Iterable[str]) -> None:
        """Have `ready` and `fresh` say how these stand now."""
        is_in_order = True
        for handle in handles:
            item = self.items.get(handle)
            if item is None or not item.is_own:
                continue
            if not item.is_told and not item.is_noticed and handle not in self.fresh:
                self.fresh[handle] = None
                is_in_order = is_in_order and handle == next(reversed(self.items))
            elif item.is_told or item.is_noticed:
                self.fresh.pop(handle, None)
            if item.holders or handle in self.expected:
                self.ready.pop(handle, None)
            elif handle not in self.ready:
                self.ready[handle] = None
                is_in_order = is_in_order and handle == next(reversed(self.items))
        if not is_in_order:  # one that came back stands before later ends
            self.ready = {handle: None for handle in self.items if handle in self.ready}
            self.fresh = {handle: None for handle in self.items if handle in self.fresh}
