"""Who has what to receive: the ends of handles, from the moment they come to their receipt.

An end is delivered by a reply and received when that is acknowledged; a connection that ends
first gives it back, with the mark that it may have been told. What a reply is about to tell is
written down before it goes out, so an engine that follows a killed one knows. Handles are strings
here (`t8f3kr9`), connections only keys; a caller that is a connection has its receipts in memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Final

from engine.model import ANONYMOUS, TaskRecord
from engine.store.index import EndedHandle
from engine.store.ledger import Ledger
from engine.store.told import Receipt, State
from engine.tasks.alerts import Alert
from engine.tasks.deliveries import Deliveries
from engine.tasks.mailbox import Delivery, Item, Mailbox
from engine.tasks.waits import Waits

NOTICES: Final = 20  # in one reply


class Expecting:
    """See `Inbox.expecting`. A class, as ten thousand waits hold one each: 0.4 KiB less each."""

    __slots__ = ("_box", "_caller", "_handle", "_inbox")

    def __init__(self, inbox: Inbox, caller: str, handle: str) -> None:
        self._inbox, self._caller, self._handle = inbox, caller, handle

    def __enter__(self) -> None:
        self._box = self._inbox.expect(self._caller, self._handle)

    def __exit__(self, *_exc: object) -> None:
        self._inbox.expect_no_more(self._caller, self._handle, self._box)


class Inbox:
    """The mailboxes of all callers. Every method is one step: nothing here waits."""

    def __init__(self, ledger: Ledger, waits: Waits) -> None:
        self._receipts, self._ledger, self._waits = ledger.receipts, ledger, waits
        self._latest_order = math.inf  # of the tasks that an engine before us may have told of
        self._boxes: dict[str, Mailbox] = {}
        self._connected: set[str] = set()  # callers that are connections
        self._deliveries = Deliveries()

    # -- callers and connections -----------------------------------------------------------------

    def connection_opened(self, name: str) -> None:
        """A connection that is a caller itself, under this name, has come."""
        self._connected.add(name)

    def connection_closed(self, connection: Hashable, name: str) -> None:
        """What it was told and did not acknowledge goes back, with the mark; its caller is gone."""
        for caller, deliveries in self._deliveries.take_all(connection).items():
            box = self._box(caller)
            for delivery in deliveries:
                box.release(delivery, list(delivery.handles))
                if caller == name:
                    self._deliveries.drop(delivery)
                else:
                    self._take_alerts_back(delivery, may_be_told=True)
            self._tidy(caller, box)
            self._wake(caller)
        self._connected.discard(name)
        box = self._boxes.pop(name, Mailbox())
        for item in box.items.values():
            if item.last is not None:
                self._deliveries.drop(item.last)

    def _take_alerts_back(self, delivery: Delivery, *, may_be_told: bool) -> None:
        """Have its alerts told again; whoever waits for these hears of acknowledgements now."""
        if not delivery.handles:
            self._deliveries.drop(delivery)
        delivery.settle_alerts(lambda alert: alert.take_back(may_be_told=may_be_told))

    def _box(self, caller: str) -> Mailbox:
        """The caller's mailbox; of a connection that is gone one that nobody keeps."""
        box = self._boxes.get(caller)
        if box is None:
            box = Mailbox()
            if not caller.startswith(ANONYMOUS) or caller in self._connected:
                self._boxes[caller] = box
        return box

    def _tidy(self, caller: str, box: Mailbox) -> None:
        if box.is_empty and self._boxes.get(caller) is box:
            del self._boxes[caller]

    def _wake(self, caller: str) -> None:
        self._waits.wake(("inbox", caller))

    def _note(self, caller: str, receipts: Collection[Receipt]) -> None:
        if receipts and not caller.startswith(ANONYMOUS):
            self._receipts.note(receipts)

    # -- ends come in ----------------------------------------------------------------------------

    def begin(
        self,
        ended: Iterable[EndedHandle],
        known: Collection[str],
        latest_order: int,
        rounds: Collection[str] = (),
    ) -> None:
        """Go on where the engine before this one was: with the ends that it had not seen received.

        `ended`: what the index has as ended, in that order; `known`: the ids of all tasks there
        are; `latest_order`: of the last that this home has had; `rounds`: the handles of rounds.
        """
        unrecorded = self._ledger.receipts_from(latest_order)
        self._latest_order = latest_order
        receipts = self._receipts.all()
        newer = [(box, handle) for box in self._boxes.values() for handle in box.items]
        for task in ended:
            handle = task.handle
            receipt = receipts.pop((task.caller, handle), None)
            if handle not in self._box(task.caller).items:
                is_told = task.order <= unrecorded
                self._begin_own(task.caller, handle, receipt, is_told=is_told)
        for (caller, handle), receipt in receipts.items():
            if handle not in rounds and handle[1:] not in known:
                self._receipts.drop(handle)
            elif receipt.state == "delivered" and handle not in self._box(caller).items:
                box = self._box(caller)
                box.add(handle, Item(is_own=False, is_told=True))
                self._link(caller, box, handle, receipt)
        for box, handle in newer:  # taken over from the folders; the index did not have them yet
            box.put_last(handle)

    def _begin_own(
        self, caller: str, handle: str, receipt: Receipt | None, *, is_told: bool
    ) -> None:
        if caller.startswith(ANONYMOUS) or (receipt and receipt.state == "received"):
            return
        box, is_noticed = self._box(caller), False
        if receipt is not None:
            is_noticed = receipt.state == "noticed"
            is_told = not is_noticed
        box.add(handle, Item(is_own=True, is_told=is_told, is_noticed=is_noticed))
        if receipt is not None:
            self._link(caller, box, handle, receipt)

    def _link(self, caller: str, box: Mailbox, handle: str, receipt: Receipt) -> None:
        """Have what an engine before us delivered acknowledged by the id that it gave."""
        if receipt.delivery is None:
            return
        delivery = self._deliveries.of_before(receipt.delivery, caller)
        delivery.handles[handle] = None
        box.items[handle].last = delivery

    def ended(self, record: TaskRecord) -> None:
        """A task has ended: its caller has that to receive; of a seat, its round's end later."""
        if record.round_id is None:
            self.came(record.caller, record.task_id, record.order)
        else:
            self._wake(record.caller)

    def came(self, caller: str, handle: str, order: int) -> None:
        """What `caller` began under this handle has ended. `order`: when that was accepted."""
        box = self._box(caller)
        known = box.items.get(handle)
        if known is None and order <= self._latest_order:  # a reply may have told of it
            self._begin_own(caller, handle, self._receipts.find(caller, handle), is_told=False)
        elif known is None:
            box.add(handle, Item(is_own=True))
        elif not known.is_own:  # that it was delivered was known before that it has ended
            del box.items[handle]
            known.is_own = True
            box.add(handle, known)
        self._wake(caller)

    def stirred(self, record: TaskRecord) -> None:
        """A task has become ready or blocked: whoever waits for all of its caller's looks."""
        self._wake(record.caller)

    def forget(self, *handles: str) -> None:
        """These handles are gone, for all callers."""
        for handle in handles:
            self._receipts.drop(handle)
        for caller, box in list(self._boxes.items()):
            box.received.difference_update(handles)
            if sum(self._take(box, handle) for handle in handles):
                self._tidy(caller, box)
                self._wake(caller)

    # -- looking ---------------------------------------------------------------------------------

    def ready(self, caller: str) -> Iterable[str]:
        """The handles of its own whose ends wait for a reply to carry them, oldest first."""
        box = self._boxes.get(caller)
        return () if box is None else box.ready

    def is_expecting(self, caller: str) -> bool:
        """Whether a reply is under way that will carry an end to this caller."""
        box = self._boxes.get(caller)
        return box is not None and bool(box.expected)

    def on_their_way(self, caller: str) -> list[str]:
        """Those of its own ends that replies carry which it has not acknowledged."""
        box = self._boxes.get(caller)
        if box is None or len(box.items) == len(box.ready):
            return []
        return [handle for handle, item in box.items.items() if item.is_own and item.holders]

    def is_received(self, caller: str, handle: str) -> bool:
        """Whether the caller has received the end of this handle, which has ended."""
        box = self._box(caller)
        if handle in box.items:
            return False
        if caller.startswith(ANONYMOUS):
            return handle in box.received
        receipt = self._receipts.find(caller, handle)
        return receipt is not None and receipt.state == "received"

    def received_of(self, caller: str, handles: list[str]) -> set[str]:
        """Those of `handles`, which have ended, whose end the caller has received."""
        box = self._box(caller)
        asked = [handle for handle in handles if handle not in box.items]
        if caller.startswith(ANONYMOUS):
            return {handle for handle in asked if handle in box.received}
        return self._receipts.received_of(caller, asked)

    # -- delivering ------------------------------------------------------------------------------

    def expecting(self, caller: str, handle: str) -> Expecting:
        """A reply about the handle is under way: meanwhile its end is not the inbox's to tell."""
        return Expecting(self, caller, handle)

    def expect(self, caller: str, handle: str) -> Mailbox:
        """See `expecting`; `expect_no_more` is told the box."""
        box = self._box(caller)
        box.expected[handle] += 1
        box.settle([handle])
        return box

    def expect_no_more(self, caller: str, handle: str, box: Mailbox) -> None:
        box.expected[handle] -= 1
        if not box.expected[handle]:
            del box.expected[handle]
        box.settle([handle])
        self._tidy(caller, box)
        self._wake(caller)

    def claim(self, caller: str, handles: Iterable[str], connection: Hashable) -> Delivery:
        """A delivery that holds `handles`, whose ends the caller has not received."""
        delivery = self._deliveries.new(caller, connection)
        box = self._box(caller)
        for handle in handles:
            box.hold(handle, delivery)
        return delivery

    def keep(self, delivery: Delivery, handles: Collection[str]) -> None:
        """The reply will carry `handles`, of those it holds; the others go back.

        From here on the next engine knows that these may have been told.
        """
        caller, box = delivery.caller, self._box(delivery.caller)
        back = [handle for handle in delivery.handles if handle not in handles]
        for handle in back:
            del delivery.handles[handle]
        box.release(delivery, back)
        receipts = []
        for handle in list(delivery.handles):
            item = box.items.get(handle)
            if item is None:  # forgotten meanwhile, or the caller is
                del delivery.handles[handle]
                continue
            delivery.before[handle] = item.is_told, item.is_noticed
            item.is_told = True
            if item.last not in item.holders:
                self._deliveries.take_out(item.last, handle)
            item.last = delivery
            receipts.append(_receipt(caller, handle, "delivered", delivery.id))
        box.settle(delivery.handles)
        delivery.is_kept = True
        self._deliveries.add(delivery)
        self._note(caller, receipts)
        if back:
            self._wake(caller)

    def _take(self, box: Mailbox, handle: str) -> bool:
        """Take an end out of the box for good; False if it is not in."""
        item = box.items.get(handle)
        if item is None:
            return False
        box.receive(handle)
        self._deliveries.take_out(item.last, handle)
        return True

    def written(self, delivery: Delivery, number: int) -> None:
        """The reply has been written, as this one of those that were on its connection."""
        self._deliveries.written(delivery, number)

    def abandoned(self, delivery: Delivery, *, may_be_told: bool) -> None:
        """The reply was not written whole: all is as if there had been none.

        `may_be_told`: some of it was, so the client may have it: then the mark stays.
        """
        caller, box = delivery.caller, self._box(delivery.caller)
        handles = list(delivery.handles)
        self._take_alerts_back(delivery, may_be_told=may_be_told)
        if delivery.is_kept and not may_be_told:
            self._deliveries.drop(delivery)
            self._note(caller, [*self._taken_back(box, delivery)])
        box.release(delivery, handles)
        self._tidy(caller, box)
        self._wake(caller)

    def _taken_back(self, box: Mailbox, delivery: Delivery) -> Iterator[Receipt]:
        for handle, (was_told, was_noticed) in delivery.before.items():
            item = box.items.get(handle)
            if item is None or was_told or len(item.holders) > 1:
                continue
            item.is_told, item.is_noticed = False, was_noticed
            yield _receipt(delivery.caller, handle, "noticed" if was_noticed else "none")

    # -- acknowledging ---------------------------------------------------------------------------

    def acknowledge(self, caller: str, delivery_id: str) -> None:
        """The caller has what that delivery carried. An id that is not its own says nothing."""
        delivery = self._deliveries.find(caller, delivery_id)
        if delivery is not None:
            self._receive(delivery)

    def next_request(self, connection: Hashable, caller: str, up_to: int) -> None:
        """The caller has asked on after the replies that were written by then had reached it."""
        for delivery in self._deliveries.take_known(connection, caller, up_to):
            self._receive(delivery)

    def _receive(self, delivery: Delivery) -> None:
        caller, box = delivery.caller, self._box(delivery.caller)
        self._deliveries.drop(delivery)
        delivery.settle_alerts(Alert.receive)
        received = [handle for handle in list(delivery.handles) if self._take(box, handle)]
        if caller.startswith(ANONYMOUS):
            box.received.update(received)
        self._note(caller, [_receipt(caller, handle, "received") for handle in received])
        self._tidy(caller, box)
        self._wake(caller)

    # -- notices ---------------------------------------------------------------------------------

    def notices(self, caller: str) -> list[str]:
        """The first ends of which no reply has told the caller yet; this one will."""
        box = self._boxes.get(caller)
        if box is None or not box.fresh:
            return []
        found = list(itertools.islice((h for h in box.fresh if h in box.ready), NOTICES))
        for handle in found:
            box.items[handle].is_noticed = True
        box.settle(found)
        self._note(caller, [_receipt(caller, handle, "noticed") for handle in found])
        return found

    def unnoticed(self, caller: str, handles: Collection[str]) -> None:
        """The reply with these notices was never written."""
        box, back = self._box(caller), []
        for handle in handles:
            item = box.items.get(handle)
            if item is not None:
                item.is_noticed = False
                if not item.is_told:
                    back.append(handle)
        box.settle(back)
        self._note(caller, [_receipt(caller, handle, "none") for handle in back])


def _receipt(caller: str, handle: str, state: State, delivery: str | None = None) -> Receipt:
    return Receipt(caller=caller, handle=handle, state=state, delivery=delivery)
