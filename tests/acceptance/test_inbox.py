"""PROTOCOL 5, the inbox: receipt and acknowledgement, redelivery, kills, connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate, new_name


def ended(caller: Caller, gate: Gate, command: str = "true", **named: Any) -> str:
    """A task of the caller that has ended, of which no reply has told it."""
    task: str = caller.start(f"{gate.wait}; {command}", **named)["taskId"]
    gate.open()
    caller.client.caller().wait(task)
    return task


def inbox(caller: Caller, **named: Any) -> dict[str, Any]:
    return caller.call("wait_any", **named)


def ids(reply: dict[str, Any]) -> list[str]:
    return [update["id"] for update in reply["updates"]]


def marks(reply: dict[str, Any]) -> dict[str, bool]:
    """By id whether it came with the mark."""
    return {update["id"]: update.get("redelivered", False) for update in reply["updates"]}


def test_a_caller_without_any_task_has_nothing_pending(caller: Caller) -> None:
    assert inbox(caller) == {
        "reason": "nothing_pending",
        "updates": [],
        "rounds": [],
        "pending_ids": [],
        "all_finished": True,
        "delivery": None,
        "notices": [],
    }


@pytest.mark.case("C122")
def test_an_end_that_came_while_nobody_was_there_is_delivered_until_it_is_acknowledged(
    engine: Engine, gate: Gate
) -> None:
    name = new_name()
    with engine.connect() as client:
        task = Caller(client, name).start(f"{gate.wait}; echo said")["taskId"]
    gate.open()
    with engine.connect() as client:
        client.caller().wait(task)  # another's reading does not consume it
    with engine.connect() as client:
        first = inbox(Caller(client, name))
        client.drop()  # without a word
    with engine.connect() as client:
        second = inbox(Caller(client, name))
        third = inbox(Caller(client, name), ack=second["delivery"])
    with engine.connect() as client:
        last = inbox(Caller(client, name))

    assert (marks(first), marks(second)) == ({task: False}, {task: True})
    assert first["updates"][0]["output"] == second["updates"][0]["output"] == "said\n"
    assert third["reason"] == last["reason"] == "nothing_pending"


def test_ends_come_in_their_order_each_once(caller: Caller, gate: Gate) -> None:
    tasks = [ended(caller, gate, f"exit {code}") for code in (3, 1, 2)]
    reply = inbox(caller)
    assert ids(reply) == tasks
    assert [update["exitCode"] for update in reply["updates"]] == [3, 1, 2]
    assert isinstance(reply["delivery"], str)
    assert inbox(caller)["reason"] == "nothing_pending"


def test_a_wait_on_the_inbox_ends_with_the_next_end_also_of_a_task_that_began_later(
    client: Client, gate: Gate
) -> None:
    caller = client.caller()
    first = caller.start(f"{gate.wait}; sleep 60")["taskId"]
    waiting = caller.send("wait_any")
    assert not waiting.is_answered(within=0.1)
    later = caller.start(gate.wait)["taskId"]
    gate.open()
    gate.open()  # whichever reads first
    caller.cancel(first)
    reply = waiting.result()
    assert reply["reason"] == "ready"
    assert set(ids(reply)) | set(reply["pending_ids"]) == {first, later}


def test_the_running_ones_are_pending(caller: Caller, gate: Gate, bell: Gate) -> None:
    running = caller.start(bell.wait)["taskId"]
    task = ended(caller, gate)
    reply = inbox(caller)
    assert (ids(reply), reply["pending_ids"], reply["all_finished"]) == ([task], [running], False)
    assert inbox(caller, wait_seconds=0)["pending_ids"] == [running]
    bell.open()


def test_an_end_that_an_inline_reply_will_carry_is_not_the_inboxs(
    caller: Caller, gate: Gate
) -> None:
    inline = caller.send("bash", command=f"{gate.wait}; echo said")
    waiting = caller.send("wait_any")
    assert not waiting.is_answered(within=0.2)
    gate.open()
    assert inline.result()["output"] == "said\n"
    assert not waiting.is_answered(within=0.2)  # that reply is not acknowledged yet
    caller.call("engine_info")
    assert waiting.result()["reason"] == "nothing_pending"


def test_an_end_whose_call_was_given_up_is_the_inboxs(caller: Caller, gate: Gate) -> None:
    inline = caller.send("bash", command=f"{gate.wait}; echo said")
    waiting = caller.send("wait_any")
    assert not waiting.is_answered(within=0.2)
    caller.client.cancel_request(inline)
    assert inline.error()["code"] == -32008
    gate.open()
    assert waiting.result()["updates"][0]["output"] == "said\n"


def test_anothers_end_is_not_in_the_inbox(client: Client, gate: Gate) -> None:
    ended(client.caller(), gate)
    assert inbox(client.caller())["reason"] == "nothing_pending"


def test_manager_session_id_names_the_inbox_and_is_ignored_beside_ids(
    client: Client, gate: Gate
) -> None:
    caller = client.caller()
    task = ended(caller, gate)
    wrong = client.refuse("wait_any", manager_session_id="No Name")
    assert wrong["code"] == -32602
    assert caller.refuse("wait_any", manager_session_id="other")["code"] == -32602
    assert ids(client.call("wait_any", manager_session_id=caller.name)) == [task]
    reply = client.call("wait_any", manager_session_id="No Name", ids=[task])
    assert ids(reply) == [task]


# -- acknowledgement -------------------------------------------------------------------------------


def test_the_callers_next_request_on_the_connection_acknowledges(
    engine: Engine, gate: Gate
) -> None:
    with engine.connect() as one:
        caller = one.caller()
        task = ended(caller, gate)
        assert ids(inbox(caller)) == [task]
        caller.call("engine_info")
        one.drop()
    with engine.connect() as two:
        assert inbox(caller.on(two))["reason"] == "nothing_pending"


def test_a_request_of_another_caller_or_on_another_connection_acknowledges_nothing(
    engine: Engine, gate: Gate
) -> None:
    with engine.connect() as one, engine.connect() as two:
        caller = one.caller()
        task = ended(caller, gate)
        assert ids(inbox(caller)) == [task]
        one.caller().call("engine_info")
        caller.on(two).call("engine_info")
        one.drop()
        assert marks(inbox(caller.on(two))) == {task: True}


def test_a_request_that_came_before_the_reply_was_written_acknowledges_nothing(
    engine: Engine, gate: Gate
) -> None:
    with engine.connect() as one, engine.connect() as two:
        caller = one.caller()
        task = caller.start(f"{gate.wait}; true")["taskId"]
        waiting = caller.send("wait_any")
        early = caller.send("list_tasks", changed_after=1 << 50, timeout_secs=1)
        caller.client.caller().call("engine_info")  # both are under way now
        gate.open()
        assert ids(waiting.result()) == [task]
        early.result()
        one.drop()
        assert marks(inbox(caller.on(two))) == {task: True}


def test_an_end_on_its_way_on_a_live_connection_is_pending_elsewhere_until_that_breaks(
    engine: Engine, gate: Gate
) -> None:
    with engine.connect() as one, engine.connect() as two:
        caller = one.caller()
        task = ended(caller, gate)
        assert marks(inbox(caller)) == {task: False}
        reply = inbox(caller.on(two), wait_seconds=0)
        assert (reply["reason"], reply["updates"], reply["pending_ids"]) == (
            *("wait_elapsed", [], [task]),
        )
        waiting = caller.on(two).send("wait_any")
        assert not waiting.is_answered(within=0.2)
        one.drop()
        assert marks(waiting.result()) == {task: True}


def test_an_end_on_its_way_is_told_again_to_who_asks_by_its_id(engine: Engine, gate: Gate) -> None:
    with engine.connect() as one, engine.connect() as two:
        caller = one.caller()
        task = ended(caller, gate)
        assert marks(inbox(caller)) == {task: False}
        again = caller.on(two).call("wait_any", ids=[task])
        assert marks(again) == {task: True}


def test_a_delivery_may_be_acknowledged_on_another_connection_and_again(
    engine: Engine, gate: Gate
) -> None:
    with engine.connect() as one, engine.connect() as two:
        caller = one.caller()
        ended(caller, gate)
        delivery = inbox(caller)["delivery"]
        other = caller.on(two)
        assert inbox(other, ack=delivery)["reason"] == "nothing_pending"
        one.drop()
        assert inbox(other, ack=delivery)["reason"] == "nothing_pending"
        assert inbox(other, ack="nonsense")["reason"] == "nothing_pending"


def test_nobody_else_can_acknowledge_a_delivery(engine: Engine, gate: Gate) -> None:
    with engine.connect() as one, engine.connect() as two:
        caller = one.caller()
        task = ended(caller, gate)
        delivery = inbox(caller)["delivery"]
        two.caller().call("wait_any", ack=delivery)
        one.drop()
        assert marks(inbox(caller.on(two))) == {task: True}


@pytest.mark.parametrize("method", ["bash", "wait"])
def test_an_end_that_another_reply_carried_comes_again_when_that_connection_breaks(
    method: str, engine: Engine, gate: Gate
) -> None:
    with engine.connect() as one, engine.connect() as two:
        caller = one.caller()
        if method == "bash":
            task = caller.bash("echo said")["taskId"]
        else:
            task = ended(caller, gate)
            caller.wait(task)
        one.drop()
        assert marks(inbox(caller.on(two))) == {task: True}


def test_a_caller_that_is_a_connection_has_an_inbox_as_long_as_that(
    engine: Engine, gate: Gate
) -> None:
    with engine.connect() as client:
        task = client.call("bash", command=gate.wait, timeout_secs=0)["taskId"]
        gate.open()
        client.caller().wait(task)
        assert marks(client.call("wait_any")) == {task: False}
        assert client.call("wait_any")["reason"] == "nothing_pending"
        assert client.call("wait_any", ids=[task])["updates"][0]["output_returned"] is True


# -- kills -----------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as engine:
        yield engine


def test_an_engine_killed_before_any_reply_loses_no_end_and_marks_none(
    own: Engine, gate: Gate
) -> None:
    with own.connect() as client:
        caller = client.caller("ci")
        early = ended(caller, gate)
        late = caller.start(f"{gate.wait}; echo late")["taskId"]
        own.kill()
    gate.open()  # it ends while there is no engine
    own.start()
    with own.connect() as client:
        client.caller().wait(late)
        assert marks(inbox(caller.on(client))) == {early: False, late: False}


def test_an_engine_killed_after_the_reply_delivers_again_with_the_mark(
    own: Engine, gate: Gate
) -> None:
    with own.connect() as client:
        caller = client.caller("ci")
        task = ended(caller, gate)
        inline = caller.bash("true")
        assert inline["status"] == "succeeded"
        assert marks(inbox(caller)) == {task: False}
        own.kill()
    own.start()
    with own.connect() as client:
        reply = inbox(caller.on(client))
        assert marks(reply) == {task: True}  # the inline one was acknowledged by the next request
        assert inline["taskId"] not in ids(reply)


def test_an_engine_killed_after_the_acknowledgement_delivers_nothing_again(
    own: Engine, gate: Gate
) -> None:
    with own.connect() as client:
        caller = client.caller("ci")
        ended(caller, gate)
        inbox(caller, ack=inbox(caller)["delivery"])
        own.kill()
    own.start()
    with own.connect() as client:
        assert inbox(caller.on(client))["reason"] == "nothing_pending"


def test_what_an_engine_delivered_before_it_was_killed_the_next_one_hears_acknowledged(
    own: Engine, gate: Gate
) -> None:
    with own.connect() as client:
        caller = client.caller("ci")
        task = ended(caller, gate)
        delivery = inbox(caller)["delivery"]
        own.kill()
    own.start()
    with own.connect() as client:
        other = caller.on(client)
        assert inbox(other, ack=delivery)["reason"] == "nothing_pending"
        (update,) = other.call("wait_any", ids=[task])["updates"]
        assert update["output_returned"] is True


def test_after_an_orderly_stop_all_is_as_it_was(own: Engine, gate: Gate) -> None:
    with own.connect() as client:
        caller = client.caller("ci")
        first, second = ended(caller, gate), ended(caller, gate)
        caller.call("wait_any", ids=[first])
        caller.call("engine_info")
        own.stop()
    own.start()
    with own.connect() as client:
        reply = inbox(caller.on(client))
        assert marks(reply) == {second: False}
        (update,) = caller.on(client).call("wait_any", ids=[first])["updates"]
        assert update["output_returned"] is True


# -- what is told once -----------------------------------------------------------------------------


def test_an_alert_of_a_reply_that_nobody_acknowledged_is_told_again(engine: Engine) -> None:
    def look(caller: Caller, task: str) -> Any:
        return caller.call("wait_any", ids=[task], wait_seconds=10)

    with engine.connect() as one, engine.connect() as two, engine.connect() as three:
        caller = one.caller()
        task = caller.start("echo up; sleep 60", ready_when={"contains": "up"})["taskId"]
        (first,) = look(caller, task)["updates"]
        assert (first["ready"], "redelivered" in first) == ("ready_when", False)
        one.drop()
        again = look(caller.on(two), task)
        (update,) = again["updates"]
        assert (update["ready"], update["redelivered"]) == ("ready_when", True)
        caller.on(three).call("wait_any", ids=[task], ack=again["delivery"], wait_seconds=0)
        two.drop()
        behind = caller.on(three).call("wait_any", ids=[task], wait_seconds=1)
        assert behind["reason"] == "wait_elapsed"
        caller.on(three).cancel(task)


def blocked(caller: Caller, *, is_seat: bool) -> str:
    """A task or round that asks for input, and is known to, of which nobody was told."""
    asking = {"command": "read -p 'name? ' x", "pty": True}
    if is_seat:
        begun = caller.call("run_round", seats={"asks": asking, "slow": {"command": "sleep 60"}})
        task, id_ = begun["seats"]["asks"]["taskId"], begun["roundId"]
    else:
        task = caller.call("bash", **asking, timeout_secs=0)["taskId"]
        id_ = task
    caller.client.caller().call("wait_any", ids=[task], wait_seconds=30)
    return str(id_)


def alert(caller: Caller, id_: str, **named: Any) -> tuple[str | None, bool, dict[str, Any]]:
    """Why it is ready, whether with the mark, and the whole reply."""
    reply = caller.call("wait_any", ids=[id_], **{"wait_seconds": 10, **named})
    (entry,) = reply["updates"] or reply["rounds"]
    marked = entry["seats"]["asks"] if "seats" in entry else entry
    return entry["ready"], marked.get("redelivered", False), reply


@pytest.mark.parametrize("is_seat", [False, True])
def test_an_alert_that_was_not_acknowledged_is_told_again_by_the_engine_after_a_kill(
    own: Engine, is_seat: bool
) -> None:
    word = "seat_lost" if is_seat else "execution_blocked"
    with own.connect() as client:
        caller = client.caller("ci")
        id_ = blocked(caller, is_seat=is_seat)
        assert alert(caller, id_)[:2] == (word, False)
        own.kill()
    for _ in range(2):  # nor does it then
        own.start()
        with own.connect() as client:
            assert alert(caller.on(client), id_)[:2] == (word, True)
            own.kill()
    own.start()
    with own.connect() as client:
        again = caller.on(client)
        assert alert(again, id_)[:2] == (word, True)
        again.call("engine_info")  # which acknowledges
        own.kill()
    own.start()
    with own.connect() as client:
        assert alert(caller.on(client), id_, wait_seconds=0)[:2] == (None, False)


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_alert_is_acknowledged_by_its_delivery_also_after_its_connection(
    own: Engine, is_killed: bool
) -> None:
    with own.connect() as client:
        caller = client.caller("ci")
        id_ = blocked(caller, is_seat=False)
        delivery = alert(caller, id_)[2]["delivery"]
        if is_killed:
            own.kill()
        else:
            client.drop()
    if is_killed:
        own.start()
    with own.connect() as client:
        again = caller.on(client)
        assert alert(again, id_, ack=delivery, wait_seconds=0)[:2] == (None, False)
        assert alert(again, id_, wait_seconds=0)[0] is None


# -- the mark --------------------------------------------------------------------------------------


def test_a_promoted_reply_that_carries_no_end_leaves_no_mark_on_it(engine: Engine) -> None:
    for n in range(30):
        with engine.connect() as client:
            caller = client.caller()
            reply = caller.start(("true", "sleep 0.002", "sleep 0.004")[n % 3])
            client.drop()
        with engine.connect() as client:
            found = inbox(caller.on(client))
            assert marks(found) == {reply["taskId"]: reply["status"] != "running"}


# -- names -----------------------------------------------------------------------------------------


def test_no_caller_may_name_itself_as_connections_are_named(client: Client) -> None:
    error = client.refuse("bash", as_="anon-ci", command="true")
    assert (error["code"], error["data"]["path"]) == (-32602, "$.as")
    own = client.call("bash", command="true")["as"]
    assert client.call("bash", as_=own, command="true")["as"] == own
