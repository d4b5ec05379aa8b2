"""Mirrors `engine/tasks/inbox.py`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from engine.model import Kind, Status, TaskRecord
from engine.store.index import EndedHandle
from engine.store.ledger import Ledger
from engine.tasks.alerts import Alert, Once
from engine.tasks.inbox import Inbox
from engine.tasks.mailbox import Delivery
from engine.tasks.waits import Waits

ONE, TWO = "connection one", "connection two"


def record(id_: str, caller: str = "ci", order: int = 100) -> TaskRecord:
    return TaskRecord(
        id=id_,
        caller=caller,
        kind=Kind.BASH,
        title="true",
        order=order,
        created_at=1,
        status=Status.SUCCEEDED,
    )


@contextmanager
def opened(
    path: Path, *ended: str, latest: int = 0, caller: str = "ci", running: str = ""
) -> Iterator[Inbox]:
    """The inbox of an engine that finds these tasks of `caller` ended; left as by a kill."""
    with closing(Ledger(path)) as ledger:
        inbox = Inbox(ledger, Waits())
        tasks = [EndedHandle("t" + id_, caller, order) for order, id_ in enumerate(ended, 1)]
        inbox.begin(tasks, {*ended, *running}, latest)
        yield inbox


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


@pytest.fixture
def inbox(path: Path) -> Iterator[Inbox]:
    """With the ends of a, b and c of the caller `ci`."""
    with opened(path) as inbox:
        for id_ in "abc":
            inbox.ended(record(id_))
        yield inbox


def ready(inbox: Inbox, caller: str = "ci") -> list[str]:
    return list(inbox.ready(caller))


def tell(
    inbox: Inbox, *handles: str, number: int = 1, caller: str = "ci", connection: str = ONE
) -> tuple[str, set[str]]:
    """A reply with these ends is written: the id of its delivery, and what it marked."""
    delivery = inbox.claim(caller, handles, connection)
    inbox.keep(delivery, handles)
    inbox.written(delivery, number)
    return delivery.id, delivery.marked


def test_an_end_is_ready_for_its_caller_alone(inbox: Inbox) -> None:
    assert ready(inbox) == ["ta", "tb", "tc"]
    assert ready(inbox, "other") == []


def test_an_acknowledged_end_is_received(inbox: Inbox) -> None:
    id_, marked = tell(inbox, "tb")
    assert marked == set()
    assert not inbox.is_received("ci", "tb")
    inbox.acknowledge("ci", id_)
    assert inbox.is_received("ci", "tb")
    assert inbox.received_of("ci", ["ta", "tb", "tc"]) == {"tb"}
    assert ready(inbox) == ["ta", "tc"]
    inbox.connection_closed(ONE, "anon-1")
    assert ready(inbox) == ["ta", "tc"]
    inbox.acknowledge("ci", id_)  # once more says nothing


def test_somebody_elses_word_acknowledges_nothing(inbox: Inbox) -> None:
    id_, _ = tell(inbox, "ta")
    inbox.acknowledge("other", id_)
    inbox.acknowledge("ci", "nonsense")
    inbox.next_request(ONE, "other", 9)
    inbox.next_request(TWO, "ci", 9)
    assert not inbox.is_received("ci", "ta")


def test_the_next_request_acknowledges_what_had_been_written_when_it_came(inbox: Inbox) -> None:
    tell(inbox, "ta", number=1)
    tell(inbox, "tb", number=2)
    inbox.next_request(ONE, "ci", 0)
    assert inbox.received_of("ci", ["ta", "tb"]) == set()
    inbox.next_request(ONE, "ci", 1)
    assert inbox.received_of("ci", ["ta", "tb"]) == {"ta"}
    inbox.next_request(ONE, "ci", 2)
    assert inbox.received_of("ci", ["ta", "tb"]) == {"ta", "tb"}


def test_an_end_on_its_way_on_a_connection_that_lives_is_not_in_the_inbox(inbox: Inbox) -> None:
    tell(inbox, "ta")
    assert ready(inbox) == ["tb", "tc"]
    inbox.connection_closed(TWO, "anon-2")
    assert ready(inbox) == ["tb", "tc"]


def test_a_connection_that_ends_gives_back_its_ends_with_the_mark(inbox: Inbox) -> None:
    tell(inbox, "tb")
    inbox.connection_closed(ONE, "anon-1")
    assert ready(inbox) == ["ta", "tb", "tc"]
    assert tell(inbox, "ta", "tb", connection=TWO)[1] == {"tb"}


def test_what_does_not_fit_into_a_reply_goes_back_without_a_mark(inbox: Inbox) -> None:
    delivery = inbox.claim("ci", ["ta", "tb", "tc"], ONE)
    assert ready(inbox) == []
    inbox.keep(delivery, ["ta"])
    assert ready(inbox) == ["tb", "tc"]
    assert tell(inbox, "tb", "tc")[1] == set()


def test_a_reply_that_is_never_written_tells_nothing(inbox: Inbox) -> None:
    early = inbox.claim("ci", ["ta"], ONE)
    inbox.abandoned(early, may_be_told=False)
    late = inbox.claim("ci", ["ta"], ONE)
    inbox.keep(late, ["ta"])
    inbox.abandoned(late, may_be_told=False)
    inbox.acknowledge("ci", late.id)
    assert ready(inbox) == ["ta", "tb", "tc"]
    assert tell(inbox, "ta")[1] == set()


def test_a_reply_that_may_have_been_written_leaves_the_mark(inbox: Inbox) -> None:
    delivery = inbox.claim("ci", ["ta"], ONE)
    inbox.keep(delivery, ["ta"])
    inbox.abandoned(delivery, may_be_told=True)
    assert tell(inbox, "ta")[1] == {"ta"}


def test_asked_for_by_its_handle_an_end_on_its_way_is_told_again_with_the_mark(
    inbox: Inbox,
) -> None:
    tell(inbox, "ta")
    assert tell(inbox, "ta", connection=TWO)[1] == {"ta"}
    inbox.connection_closed(TWO, "anon-2")
    assert ready(inbox) == ["tb", "tc"]  # the first reply is still good
    inbox.next_request(ONE, "ci", 1)
    assert inbox.is_received("ci", "ta")


def test_an_expected_end_is_left_to_the_reply_that_will_carry_it(inbox: Inbox) -> None:
    with inbox.expecting("ci", "td"):
        assert inbox.is_expecting("ci")
        inbox.ended(record("d"))
        assert ready(inbox) == ["ta", "tb", "tc"]
        assert inbox.notices("ci") == ["ta", "tb", "tc"]
    assert not inbox.is_expecting("ci")
    assert ready(inbox) == ["ta", "tb", "tc", "td"]
    assert inbox.notices("ci") == ["td"]


def test_an_end_of_another_callers_task_is_received_by_each_for_itself(inbox: Inbox) -> None:
    id_, _ = tell(inbox, "ta", caller="other")
    inbox.acknowledge("other", id_)
    assert inbox.is_received("other", "ta")
    assert not inbox.is_received("ci", "ta")
    assert ready(inbox, "other") == []
    tell(inbox, "tb", caller="other")
    inbox.connection_closed(ONE, "anon-1")
    assert ready(inbox, "other") == []  # it is none of its own
    assert tell(inbox, "tb", caller="other")[1] == {"tb"}


def test_notices_come_once_and_receive_nothing(inbox: Inbox) -> None:
    tell(inbox, "tb")
    assert inbox.notices("ci") == ["ta", "tc"]
    assert inbox.notices("ci") == []
    assert inbox.notices("other") == []
    assert ready(inbox) == ["ta", "tc"]
    assert tell(inbox, "ta")[1] == set()  # a notice is no delivery


def test_twenty_notices_at_a_time_in_the_order_of_the_ends(inbox: Inbox) -> None:
    for number in range(30):
        inbox.ended(record(f"x{number:02}"))
    assert inbox.notices("ci") == ["ta", "tb", "tc", *(f"tx{n:02}" for n in range(17))]
    assert inbox.notices("ci") == [f"tx{n:02}" for n in range(17, 30)]


def test_notices_that_were_never_written_come_again(inbox: Inbox) -> None:
    first = inbox.notices("ci")
    inbox.unnoticed("ci", first)
    assert inbox.notices("ci") == ["ta", "tb", "tc"]


def test_what_was_noticed_before_it_was_delivered_in_vain_is_not_noticed_again(
    inbox: Inbox,
) -> None:
    inbox.notices("ci")
    delivery = inbox.claim("ci", ["ta"], ONE)
    inbox.keep(delivery, ["ta"])
    inbox.abandoned(delivery, may_be_told=False)
    assert inbox.notices("ci") == []
    assert tell(inbox, "ta")[1] == set()


def test_after_a_kill_all_is_as_it_was_and_what_was_on_its_way_has_the_mark(path: Path) -> None:
    with opened(path) as inbox:
        for id_ in "abcde":
            inbox.ended(record(id_))
        id_, _ = tell(inbox, "ta")
        inbox.acknowledge("ci", id_)
        on_its_way, _ = tell(inbox, "tb", "tc")
        assert inbox.notices("ci") == ["td", "te"]
        kept = inbox.claim("ci", ["td"], ONE)
        inbox.keep(kept, ["td"])
    with opened(path, *"abcde", latest=5) as inbox:
        assert ready(inbox) == ["tb", "tc", "td", "te"]
        assert inbox.notices("ci") == []
        inbox.acknowledge("ci", on_its_way)  # by one whom that reply has reached
        assert ready(inbox) == ["td", "te"]
        assert inbox.received_of("ci", ["ta", "tb", "tc", "td"]) == {"ta", "tb", "tc"}
        assert tell(inbox, "td", "te")[1] == {"td"}


def test_a_reply_that_was_taken_back_before_a_kill_leaves_no_mark(path: Path) -> None:
    with opened(path) as inbox:
        inbox.ended(record("a"))
        delivery = inbox.claim("ci", ["ta"], ONE)
        inbox.keep(delivery, ["ta"])
        inbox.abandoned(delivery, may_be_told=False)
    with opened(path, "a", latest=1) as inbox:
        assert inbox.notices("ci") == ["ta"]
        assert tell(inbox, "ta")[1] == set()


def test_an_end_that_only_the_next_engine_finds_is_not_told_twice(path: Path) -> None:
    with opened(path) as inbox:
        for number, id_ in enumerate("abc", 1):
            inbox.ended(record(id_, order=number))
        received, _ = tell(inbox, "ta")
        inbox.acknowledge("ci", received)
        tell(inbox, "tb")
    with opened(path, latest=3, running="abc") as inbox:  # as its index has it
        for number, id_ in enumerate("abc", 1):
            inbox.ended(record(id_, order=number))
        assert ready(inbox) == ["tb", "tc"]
        assert tell(inbox, "tb", "tc")[1] == {"tb"}


def test_an_end_that_is_found_before_the_inbox_has_begun_is_not_told_twice(path: Path) -> None:
    with opened(path) as inbox:
        inbox.ended(record("a"))
        inbox.acknowledge("ci", tell(inbox, "ta")[0])
        inbox.ended(record("b"))
        tell(inbox, "tb")
    with closing(Ledger(path)) as ledger:
        inbox = Inbox(ledger, Waits())
        for id_ in "abc":
            inbox.ended(record(id_))
        inbox.begin([], {"a", "b", "c"}, 100)
        assert ready(inbox) == ["tb", "tc"]
        assert tell(inbox, "tb", "tc")[1] == {"tb"}


def test_ends_that_the_index_had_not_come_behind_those_that_it_had(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        inbox = Inbox(ledger, Waits())
        for id_ in "cd":
            inbox.ended(record(id_))
        known = [EndedHandle("t" + id_, "ci", order) for order, id_ in enumerate("ab", 1)]
        inbox.begin(known, {"a", "b", "c", "d"}, 100)
        assert ready(inbox) == ["ta", "tb", "tc", "td"]


def test_receipts_of_tasks_that_are_gone_are_dropped_at_the_start(path: Path) -> None:
    with opened(path) as inbox:
        inbox.ended(record("a"))
        tell(inbox, "ta")
    with opened(path, latest=1) as inbox:
        assert ready(inbox) == []
        assert tell(inbox, "ta")[1] == set()


def test_where_the_record_of_receipts_was_lost_every_end_has_the_mark_and_none_a_notice(
    path: Path,
) -> None:
    with opened(path, "a", "b", latest=2) as inbox:
        inbox.ended(record("c", order=3))
        assert inbox.notices("ci") == ["tc"]
        assert ready(inbox) == ["ta", "tb", "tc"]
        assert tell(inbox, "ta", "tc")[1] == {"ta"}


def test_a_caller_that_is_a_connection_is_forgotten_with_it(path: Path) -> None:
    with opened(path) as inbox:
        inbox.connection_opened("anon-1")
        inbox.ended(record("a", "anon-1"))
        inbox.ended(record("b", "anon-1"))
        id_, _ = tell(inbox, "ta", caller="anon-1")
        inbox.acknowledge("anon-1", id_)
        assert inbox.is_received("anon-1", "ta")
        assert inbox.received_of("anon-1", ["ta", "tb"]) == {"ta"}
        assert ready(inbox, "anon-1") == ["tb"]
        inbox.connection_closed(ONE, "anon-1")
        inbox.ended(record("c", "anon-1"))
        assert ready(inbox, "anon-1") == []
        assert not inbox.is_received("anon-1", "ta")
    assert b"anon" not in path.with_suffix(".told").read_bytes()


def test_a_forgotten_handle_is_nobodys_any_more(inbox: Inbox) -> None:
    tell(inbox, "ta", caller="other")
    tell(inbox, "tb")
    inbox.forget("ta")
    inbox.forget("tb")
    assert ready(inbox) == ["tc"]
    inbox.next_request(ONE, "ci", 1)
    inbox.connection_closed(ONE, "anon-1")
    assert ready(inbox) == ["tc"]
    assert not inbox.is_received("ci", "tb")


# -- alerts ----------------------------------------------------------------------------------------


def alert(inbox: Inbox, caller: str = "ci") -> tuple[Delivery, Once]:
    """A reply is about to tell the caller that a job asks for input."""
    once = Once()
    delivery = inbox.claim(caller, [], ONE)
    delivery.alerts = [Alert(once, ["input"], delivery.id, lambda: None, lambda: None)]
    inbox.keep(delivery, [])
    return delivery, once


def test_an_alert_is_received_by_the_next_request_as_an_end_is(inbox: Inbox) -> None:
    delivery, once = alert(inbox)
    inbox.written(delivery, 1)
    inbox.next_request(ONE, "ci", 0)
    assert once.received == set()
    inbox.next_request(ONE, "ci", 1)
    assert once.received == {"input"}


def test_an_alert_is_received_by_the_id_of_its_delivery(inbox: Inbox) -> None:
    delivery, once = alert(inbox)
    inbox.acknowledge("other", delivery.id)
    assert once.received == set()
    inbox.acknowledge("ci", delivery.id)
    assert once.received == {"input"}


def test_an_alert_of_a_connection_that_ends_is_in_doubt(inbox: Inbox) -> None:
    delivery, once = alert(inbox)
    inbox.written(delivery, 1)
    inbox.connection_closed(ONE, "anon-1")
    assert (set(once.shown), once.doubtful) == (set(), {"input": delivery.id})


@pytest.mark.parametrize("may_be_told", [True, False])
def test_an_alert_of_a_reply_that_was_not_written_is_in_doubt_if_it_was_begun(
    inbox: Inbox, may_be_told: bool
) -> None:
    delivery, once = alert(inbox)
    inbox.abandoned(delivery, may_be_told=may_be_told)
    assert once.shown == set()
    assert bool(once.doubtful) is may_be_told


def test_nothing_is_left_of_what_was_received(inbox: Inbox) -> None:
    for number in range(100):
        inbox.ended(record(f"x{number}"))
        tell(inbox, f"tx{number}", number=number)
        inbox.connection_closed(ONE, "anon-1")
        tell(inbox, f"tx{number}", number=number)
        inbox.next_request(ONE, "ci", number)
    for number, handle in enumerate(("ta", "tb", "tc")):
        tell(inbox, handle, number=number)
    inbox.next_request(ONE, "ci", 100)
    alerted = alert(inbox)[0]
    inbox.written(alerted, 101)
    inbox.connection_closed(ONE, "anon-1")
    left = inbox._deliveries
    assert (inbox._boxes, left._by_id, left._written) == ({}, {}, {})


def test_a_hundred_thousand_tasks_are_taken_over_in_a_moment(path: Path) -> None:
    """A bound that a walk through all of them for each would pass by far."""
    ids = [f"{number:06}" for number in range(100_000)]
    with opened(path) as inbox:
        for id_ in ids[:2_000]:
            inbox.ended(record(id_))
            tell(inbox, "t" + id_)
            inbox.next_request(ONE, "ci", 1)
    begun = time.process_time()
    with opened(path, *ids, latest=100_000) as inbox:
        took = time.process_time() - begun
        assert len(ready(inbox)) == 98_000
    assert took < 5
