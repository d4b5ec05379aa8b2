"""The deliveries that can be acknowledged: by their ids, and by the connections that they went
out on. What one carries, and what becomes of that, is the inbox's.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Hashable

from engine.tasks.mailbox import Delivery


class Deliveries:
    """Of all callers. Every id is this engine's own, but for those of one before it."""

    def __init__(self) -> None:
        self._prefix, self._numbers = secrets.token_hex(5), itertools.count(1)
        self._by_id: dict[str, Delivery] = {}
        self._written: dict[Hashable, dict[str, list[Delivery]]] = {}  # by connection and caller

    def new(self, caller: str, connection: Hashable) -> Delivery:
        """One that has not come far yet: nothing acknowledges it."""
        return Delivery(f"{self._prefix}-{next(self._numbers)}", caller, connection)

    def of_before(self, id_: str, caller: str) -> Delivery:
        """That to which an engine before us gave this id."""
        delivery = self._by_id.get(id_)
        if delivery is None:
            delivery = self._by_id[id_] = Delivery(id_, caller, None)
            delivery.is_kept = True
        return delivery

    # -- by id -----------------------------------------------------------------------------------

    def add(self, delivery: Delivery) -> None:
        """Have it acknowledged by its id, if there is something in it to be."""
        if delivery.is_owed:
            self._by_id[delivery.id] = delivery

    def find(self, caller: str, id_: str) -> Delivery | None:
        """The caller's own of this id that can be acknowledged."""
        delivery = self._by_id.get(id_)
        return delivery if delivery is not None and delivery.caller == caller else None

    def drop(self, delivery: Delivery) -> None:
        """Have it not acknowledged by its id any more."""
        self._by_id.pop(delivery.id, None)

    def take_out(self, delivery: Delivery | None, handle: str) -> None:
        """Likewise this handle by the id of the delivery, which may be gone."""
        if delivery is not None:
            delivery.handles.pop(handle, None)
            if not delivery.is_owed:
                self.drop(delivery)

    # -- by connection ---------------------------------------------------------------------------

    def written(self, delivery: Delivery, number: int) -> None:
        """Its reply has been written, as this one of those that were on its connection."""
        if delivery.is_owed:
            delivery.number = number
            callers = self._written.setdefault(delivery.connection, {})
            callers.setdefault(delivery.caller, []).append(delivery)

    def take_known(self, connection: Hashable, caller: str, up_to: int) -> list[Delivery]:
        """Those to the caller that were written by then; the connection is done with them."""
        callers = self._written.get(connection)
        if callers is None or caller not in callers:
            return []
        deliveries = callers.pop(caller)
        later = [d for d in deliveries if d.number is None or d.number > up_to]
        if later:
            callers[caller] = later
        elif not callers:
            del self._written[connection]
        return [d for d in deliveries if d.number is not None and d.number <= up_to]

    def take_all(self, connection: Hashable) -> dict[str, list[Delivery]]:
        """Those by caller that were written and not acknowledged: the connection has ended."""
        return self._written.pop(connection, {})
