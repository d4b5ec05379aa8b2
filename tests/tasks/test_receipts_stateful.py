"""Inbox and ledger against a client that writes down what it was told: nothing lost, nothing
twice without the mark, whatever breaks in between.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.model import Kind, Status, TaskRecord
from engine.store.index import EndedHandle
from engine.store.ledger import Ledger
from engine.tasks.inbox import Inbox
from engine.tasks.mailbox import Delivery
from engine.tasks.waits import Waits

CALLERS = ("ann", "bob")
CONNECTIONS = ("one", "two")


class Client:
    """One caller's account: how often each end reached it, and what it has acknowledged."""

    def __init__(self) -> None:
        self.told: Counter[str] = Counter()
        self.unmarked: Counter[str] = Counter()
        self.received: set[str] = set()


class Receipts(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="engine-receipts-"))
        self.ended: list[EndedHandle] = []  # what the index knows
        self.clients = {caller: Client() for caller in CALLERS}
        self.claimed: list[tuple[Delivery, tuple[str, ...]]] = []
        self.under_way: list[tuple[Delivery, tuple[str, ...]]] = []
        self.written: list[Delivery] = []
        self.numbers: Counter[str] = Counter()
        self._start()

    def teardown(self) -> None:
        self.ledger.close()
        shutil.rmtree(self.folder)

    def _start(self) -> None:
        self.ledger = Ledger(self.folder / "record.db")
        self.inbox = Inbox(self.ledger, Waits())
        self.inbox.begin(self.ended, {end.handle[1:] for end in self.ended}, len(self.ended))

    def _own(self, caller: str) -> list[str]:
        return [end.handle for end in self.ended if end.caller == caller]

    def _on_live(self, caller: str) -> set[str]:
        """Ends that a reply under way, or written on a connection that lives, carries."""
        deliveries = [*(d for d, _ in (*self.claimed, *self.under_way)), *self.written]
        return {handle for d in deliveries if d.caller == caller for handle in d.handles}

    # -- what happens -----------------------------------------------------------------------------

    @rule(caller=st.sampled_from(CALLERS), is_expected=st.booleans())
    def end(self, caller: str, is_expected: bool) -> None:
        end = EndedHandle(f"t{len(self.ended):04}", caller, len(self.ended) + 1)
        record = TaskRecord(
            id=end.handle[1:],
            caller=caller,
            kind=Kind.BASH,
            title="true",
            order=end.order,
            created_at=1,
            status=Status.SUCCEEDED,
        )
        if not is_expected:
            self.inbox.ended(record)
            self.ended.append(end)
            return
        with self.inbox.expecting(caller, end.handle):
            self.inbox.ended(record)
            self.ended.append(end)
            assert end.handle not in self.inbox.ready(caller)

    def _claim(self, caller: str, handles: list[str], connection: str, fitting: int) -> None:
        delivery = self.inbox.claim(caller, handles, connection)
        self.claimed.append((delivery, tuple(handles[:fitting])))

    @precondition(lambda self: self.claimed)
    @rule(data=st.data())
    def keep(self, data: Any) -> None:
        """It is known what fits; meanwhile others may have been claimed."""
        delivery, handles = self.claimed.pop(data.draw(st.integers(0, len(self.claimed) - 1)))
        self.inbox.keep(delivery, handles)
        self.under_way.append((delivery, handles))

    @rule(
        caller=st.sampled_from(CALLERS),
        connection=st.sampled_from(CONNECTIONS),
        fitting=st.integers(1, 5),
    )
    def ask_inbox(self, caller: str, connection: str, fitting: int) -> None:
        if handles := list(self.inbox.ready(caller)):
            self._claim(caller, handles, connection, fitting)

    @rule(data=st.data(), caller=st.sampled_from(CALLERS), connection=st.sampled_from(CONNECTIONS))
    def ask_by_handle(self, data: Any, caller: str, connection: str) -> None:
        if not self.ended:
            return
        handle = data.draw(st.sampled_from(self.ended)).handle
        is_received = self.inbox.is_received(caller, handle)
        assert is_received == (handle in self.clients[caller].received)
        if not is_received:
            self._claim(caller, [handle], connection, 1)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def write(self, data: Any) -> None:
        which = data.draw(st.integers(0, len(self.under_way) - 1))
        delivery, handles = self.under_way.pop(which)
        self._reach(delivery, handles)
        connection = str(delivery.connection)
        self.numbers[connection] += 1
        self.inbox.written(delivery, self.numbers[connection])
        self.written.append(delivery)

    def _reach(self, delivery: Delivery, handles: tuple[str, ...]) -> None:
        client = self.clients[delivery.caller]
        for handle in handles:
            client.told[handle] += 1
            client.unmarked[handle] += handle not in delivery.marked

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), reached=st.booleans())
    def abandon(self, data: Any, reached: bool) -> None:
        """It was not written whole; or it was, and the engine does not know."""
        which = data.draw(st.integers(0, len(self.under_way) - 1))
        delivery, handles = self.under_way.pop(which)
        if reached:
            self._reach(delivery, handles)
        self.inbox.abandoned(delivery, may_be_told=reached)

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def acknowledge(self, data: Any) -> None:
        delivery = data.draw(st.sampled_from(self.written))
        handles = set(delivery.handles)
        self.inbox.acknowledge(delivery.caller, delivery.id)
        for handle in handles:
            if self.inbox.is_received(delivery.caller, handle):
                self.clients[delivery.caller].received.add(handle)
        assert handles <= self.clients[delivery.caller].received

    @rule(
        caller=st.sampled_from(CALLERS), connection=st.sampled_from(CONNECTIONS), back=st.booleans()
    )
    def ask_on(self, caller: str, connection: str, back: bool) -> None:
        up_to = self.numbers[connection] - back
        for delivery in list(self.written):
            if (delivery.caller, delivery.connection) == (caller, connection):
                assert delivery.number is not None
                if delivery.number <= up_to:
                    self.clients[caller].received.update(delivery.handles)
                    self.written.remove(delivery)
        self.inbox.next_request(connection, caller, up_to)

    @rule(connection=st.sampled_from(CONNECTIONS))
    def close(self, connection: str) -> None:
        for begun in (self.claimed, self.under_way):
            for delivery, handles in [d for d in begun if d[0].connection == connection]:
                begun.remove((delivery, handles))
                self.inbox.abandoned(delivery, may_be_told=False)
        self.written = [d for d in self.written if d.connection != connection]
        self.inbox.connection_closed(connection, f"anon-{connection}")

    @rule(caller=st.sampled_from(CALLERS), is_written=st.booleans())
    def notice(self, caller: str, is_written: bool) -> None:
        handles = self.inbox.notices(caller)
        told = {h for h in handles if self.clients[caller].told[h]}
        assert not told  # news of what was told is none
        if not is_written:
            self.inbox.unnoticed(caller, handles)

    @rule(data=st.data())
    def kill(self, data: Any) -> None:
        """Some of the replies under way had been written, and no engine knows of it."""
        for delivery, handles in self.under_way:
            if data.draw(st.booleans()):
                self._reach(delivery, handles)
        self.claimed, self.under_way, self.written = [], [], []
        self.ledger.close()
        self._start()

    @rule()
    def hand_over(self) -> None:
        """The database gets what the file alone had."""
        self.ledger.receipts.hand_over()
        self.ledger._writer._commit(list(self.ledger._writer.pending.values()))
        self.ledger._writer.pending.clear()

    # -- what always holds ------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost(self) -> None:
        for caller, client in self.clients.items():
            found = set(self.inbox.ready(caller)) | self._on_live(caller)
            assert set(self._own(caller)) - client.received <= found

    @invariant()
    def nothing_is_told_twice_without_the_mark(self) -> None:
        for client in self.clients.values():
            assert all(count <= 1 for count in client.unmarked.values())

    @invariant()
    def what_was_received_is_not_ready(self) -> None:
        for caller, client in self.clients.items():
            assert not client.received & set(self.inbox.ready(caller))

    @invariant()
    def what_is_ready_is_in_the_order_of_the_ends(self) -> None:
        for caller in CALLERS:
            ready = list(self.inbox.ready(caller))
            assert ready == sorted(ready)


TestReceipts = Receipts.TestCase
TestReceipts.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
