"""Mirrors `engine/client/calls.py`: the clock and the connection are the test's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.client.calls import Calls, Ticket, spent, ungreeted
from engine.client.errors import (
    ConnectionLost,
    NotReachable,
    ProtocolFailure,
    Refused,
    Unsendable,
)


def sent(calls: Calls, now: float = 0.0) -> list[tuple[str, object]]:
    """Method and id (of a cancel: whose call) of all that is to be sent now."""
    found: list[tuple[str, object]] = []
    while (text := calls.next_text(now)) is not None:
        message = json.loads(text)
        found.append((message["method"], message.get("id", message["params"].get("id"))))
    return found


def reply(id_: int, **more: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id_, **(more or {"result": {}})})


def ending(id_: int) -> str:
    return reply(id_, error={"code": -32006, "message": "the engine is shutting down"})


def submitted(calls: Calls, method: str = "wait", **more: object) -> Ticket:
    ticket = calls.make(method, {}, **more)  # type: ignore[arg-type]
    calls.submit(ticket, 0.0)
    return ticket


def greeted(calls: Calls) -> Calls:
    """With a connection on which hello is answered."""
    calls.connected(0.0)
    ((_, id_),) = sent(calls)
    assert calls.take(reply(id_)) is None  # type: ignore[arg-type]
    return calls


def test_calls_wait_until_hello_is_answered() -> None:
    calls = Calls({"client": "test"})
    first = submitted(calls)
    calls.connected(0.0)
    second = submitted(calls)
    ((method, id_),) = sent(calls)
    assert (method, calls.has_greeted) == ("hello", False)
    assert isinstance(id_, int)
    calls.take(reply(id_))
    assert calls.has_greeted
    assert sent(calls) == [("wait", first.id), ("wait", second.id)]


def test_without_a_hello_they_go_at_once() -> None:
    calls = Calls()
    ticket = submitted(calls)
    calls.connected(0.0)
    assert sent(calls) == [("wait", ticket.id)]


def test_an_answer_is_found_by_its_id_and_taken_once() -> None:
    calls = Calls()
    calls.connected(0.0)
    first, second = submitted(calls), submitted(calls)
    got = calls.take(reply(second.id, result=7))
    assert got is not None
    assert (got[0], got[1].result) == (second, 7)
    assert calls.take(reply(second.id, result=7)) is None
    assert calls.take(reply(99)) is None
    assert calls.has_open
    calls.take(reply(first.id))
    assert not calls.has_open


def test_what_was_in_flight_is_sent_again_under_the_same_id() -> None:
    calls = greeted(Calls({}))
    ticket = submitted(calls)
    assert sent(calls, 1.0) == [("wait", ticket.id)]
    assert calls.lost(100.0) == []
    calls.connected(101.0)
    ((_, hello),) = sent(calls)
    calls.take(reply(hello))  # type: ignore[arg-type]
    assert sent(calls) == [("wait", ticket.id)]


def test_a_call_that_must_not_be_done_twice_fails_when_it_was_sent() -> None:
    calls = Calls()
    calls.connected(0.0)
    once = submitted(calls, "forget", resend=False)
    sent(calls)
    unsent = submitted(calls, "write_stdin", resend=False)
    ((ticket, error),) = calls.lost(100.0)
    assert ticket == once
    assert str(error) == "connection lost before forget was answered: it may have been done"
    calls.connected(101.0)
    assert sent(calls) == [("write_stdin", unsent.id)]


def lose_often(calls: Calls, engines: list[object], **loss: Any) -> list[str]:
    """What the calls fail with by the connection to the last engine; to each one it was lost."""
    told: list[str] = []
    for number, engine in enumerate(engines):
        now = 10.0 * number
        told += [str(error) for _, error in calls.connected(now, engine)]
        sent(calls, now)
        late = loss.get("after", 1.9)
        assert calls.lost(now + late, is_goodbye=loss.get("is_goodbye", False)) == []
    return told


def test_a_call_after_which_a_living_engine_broke_off_three_times_in_a_row_fails() -> None:
    calls = Calls()
    submitted(calls, "bash")
    assert lose_often(calls, [1, 1, 1]) == []
    ((_, error),) = calls.connected(30.0, 1)
    assert str(error) == "connection lost 3 times right after bash was sent: gave up"
    assert not calls.has_open


@pytest.mark.parametrize("engines", [list(range(10)), [None] * 10])
def test_a_call_after_which_ten_engines_in_a_row_died_fails(engines: list[object]) -> None:
    calls = Calls()
    submitted(calls, "bash")
    assert lose_often(calls, engines) == []
    ((_, error),) = calls.connected(200.0, 99)
    assert str(error) == "the engine ended 10 times right after bash was sent: gave up"


@pytest.mark.parametrize("loss", [{"after": 2.1}, {"is_goodbye": True}])
def test_a_loss_that_no_call_has_caused_is_not_counted(loss: dict[str, Any]) -> None:
    calls = Calls()
    submitted(calls, "bash")
    assert lose_often(calls, [1] * 20, **loss) == []


def test_a_call_that_was_sent_long_before_is_not_to_blame() -> None:
    calls = Calls()
    old = submitted(calls, "bash")
    for number in range(20):
        now = 10.0 * number
        calls.connected(now, 1)
        sent(calls, now)
        young = submitted(calls)
        sent(calls, now + 5.0)
        assert calls.lost(now + 5.1) == []
        calls.withdraw(young)
    calls.connected(200.0, 1)
    assert sent(calls) == [("bash", old.id)]


def test_whoever_is_answered_clears_all_calls() -> None:
    calls = Calls()
    submitted(calls, "bash")
    for number in range(20):
        now = 10.0 * number
        assert calls.connected(now, 1) == []
        sent(calls, now)
        other = submitted(calls)
        sent(calls, now)
        calls.take(reply(other.id))
        assert calls.lost(now + 0.1) == []


def test_an_engine_on_its_way_out_counts_as_a_connection_that_ended_in_order() -> None:
    calls = Calls()
    calls.connected(0.0)
    ticket = submitted(calls)
    with pytest.raises(ConnectionLost) as caught:
        calls.take(ending(ticket.id))
    assert caught.value.is_goodbye
    assert calls.has_open


def test_who_must_not_ask_twice_is_told_that_the_engine_ends() -> None:
    calls = Calls()
    calls.connected(0.0)
    ticket = submitted(calls, "forget", resend=False)
    got = calls.take(ending(ticket.id))
    assert got is not None
    assert got[1].error is not None
    assert got[1].error.code == -32006


def test_a_withdrawn_call_is_cancelled_in_the_engine_if_that_has_heard_of_it() -> None:
    calls = Calls()
    calls.connected(0.0)
    known, unknown = submitted(calls), submitted(calls)
    assert calls.next_text(0.0) == known.text
    calls.withdraw(known)
    calls.withdraw(unknown)
    assert sent(calls) == [("$/cancelRequest", known.id)]
    assert not calls.has_open
    calls.withdraw(known)  # of one that is answered or withdrawn: nothing
    assert sent(calls) == []


def test_a_notification_goes_out_on_this_connection_or_not_at_all() -> None:
    calls = Calls({"client": "test"})
    calls.notify("read_task", {"as": "ci"})
    calls.connected(0.0)
    calls.notify("read_task", {"as": "ci"})  # hello has to be answered first
    assert [method for method, _ in sent(calls)] == ["hello"]
    calls.take(reply(1))
    calls.notify("read_task", {"as": "ci"})
    assert sent(calls) == [("read_task", None)]
    assert not calls.has_open


def test_a_call_withdrawn_without_a_connection_is_never_sent() -> None:
    calls = greeted(Calls({}))
    ticket = submitted(calls)
    sent(calls)
    calls.lost(100.0)
    calls.withdraw(ticket)
    calls.connected(101.0)
    assert [method for method, _ in sent(calls)] == ["hello"]


def test_a_call_is_overdue_half_a_minute_after_its_own_time() -> None:
    calls = Calls()
    assert calls.due is None
    ticket = submitted(calls, budget=20.0)
    assert calls.due is None  # nobody can answer
    calls.connected(5.0)
    assert calls.due == 55.0
    submitted(calls)
    assert calls.due == 30.0
    calls.withdraw(ticket)
    calls.lost(31.0)
    assert calls.due is None


def test_hello_is_overdue_after_half_a_minute() -> None:
    calls = Calls({})
    submitted(calls, budget=-25.0)
    calls.connected(5.0)
    assert calls.due == 35.0


def test_hello_that_is_refused_is_an_error_of_the_connection() -> None:
    calls = Calls({})
    calls.connected(0.0)
    ((_, id_),) = sent(calls)
    refusal = reply(id_, error={"code": -32602, "message": "$.cwd"})  # type: ignore[arg-type]
    with pytest.raises(Refused, match="cwd"):
        calls.take(refusal)
    with pytest.raises(ConnectionLost):
        calls.take(ending(id_))  # type: ignore[arg-type]


def test_what_is_no_answer_is_refused() -> None:
    calls = Calls()
    calls.connected(0.0)
    with pytest.raises(ProtocolFailure):
        calls.take("{}")
    with pytest.raises(Unsendable):
        calls.make("bash", {"command": "\udcff"})


def test_an_outage_is_missed_once_and_tried_until_patience_is_spent() -> None:
    calls = Calls(patience=1.0)
    assert calls.miss(10.0)
    assert not calls.miss(11.0)
    assert calls.schedule is not None
    assert calls.schedule.due == pytest.approx(10.1)
    assert calls.attempt_failed(10.1)
    assert calls.attempt_failed(10.3)
    assert not calls.attempt_failed(10.8)
    assert calls.schedule is None
    assert calls.miss(20.0, first=0.0)
    assert calls.schedule.due == 20.0
    assert calls.found(20.5) == 0.5
    assert calls.schedule is None
    assert calls.found(21.0) == 0.0


def test_one_that_vanished_is_replaced_once_at_the_fourth_attempt() -> None:
    calls = Calls()
    assert not calls.may_revive(absent=True)  # none is missed
    calls.lost(0.0)
    calls.miss(0.0)
    may = []
    for now in (0.1, 0.3, 0.8, 1.8, 3.8):
        may.append(calls.may_revive(absent=True))
        calls.attempt_failed(now)
    assert may == [False, False, False, True, False]


def test_one_that_is_there_or_said_goodbye_is_not_replaced() -> None:
    for absent, is_goodbye in ((False, False), (True, True)):
        calls = Calls()
        calls.lost(0.0, is_goodbye=is_goodbye)
        calls.miss(0.0)
        for now in (0.1, 0.3, 0.8):
            calls.attempt_failed(now)
        assert not calls.may_revive(absent=absent)


def test_a_goodbye_that_nobody_waited_at_counts_for_who_calls_later() -> None:
    calls = Calls()
    calls.lost(0.0, is_goodbye=True)
    calls.rest()
    calls.miss(0.0, first=0.0)
    for now in (0.0, 0.3, 0.8):
        calls.attempt_failed(now)
    assert not calls.may_revive(absent=True)
    calls.found(0.9)
    calls.connected(0.9)
    calls.lost(1.0)
    calls.miss(1.0)
    for now in (1.1, 1.3, 1.8):
        calls.attempt_failed(now)
    assert calls.may_revive(absent=True)


def test_who_gives_up_has_nothing_in_flight() -> None:
    calls = Calls()
    tickets = [submitted(calls), submitted(calls)]
    assert calls.give_up() == tickets
    assert not calls.has_open
    assert calls.give_up() == []


def test_the_words_of_one_that_gave_up_name_what_sets_its_patience() -> None:
    error = spent(NotReachable("not reachable at x"), 60.0, "--reconnect")
    assert error.lines == ["not reachable at x", "gave up after 60 s (--reconnect)"]


def test_an_attempt_that_ends_before_hello_is_one_that_did_not_reach() -> None:
    assert str(ungreeted(ConnectionLost("x"))) == "not reachable (x)"
    assert ungreeted(ConnectionLost("x")).absent  # killed by now: another may be started
    assert not ungreeted(ProtocolFailure("x")).absent
    assert ungreeted(ConnectionLost("it ends", is_goodbye=True)).absent


def test_a_late_loss_breaks_the_row() -> None:
    calls = Calls()
    submitted(calls, "bash")
    for number, after in enumerate([1.9, 1.9, 2.1, 1.9, 1.9]):
        assert calls.connected(10.0 * number, 1) == []
        sent(calls, 10.0 * number)
        calls.lost(10.0 * number + after)


def test_a_loss_counts_once_however_often_hello_fails_after_it() -> None:
    calls = Calls({})
    submitted(calls, "bash")
    calls.connected(0.0, 1)
    ((_, id_),) = sent(calls)
    calls.take(reply(id_))  # type: ignore[arg-type]
    sent(calls, 0.0)
    calls.lost(0.1)
    for number in range(1, 20):
        assert calls.connected(float(number), 1) == []
        calls.disconnected()
