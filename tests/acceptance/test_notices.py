"""PROTOCOL 5, notices: the ends of which no reply has told, in any reply, once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate
from acceptance.test_inbox import ended, ids, inbox


def noticed(reply: dict[str, Any]) -> list[str]:
    return [notice["taskId"] for notice in reply["notices"]]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("bash", {"command": "true"}),
        ("execute", {"argv": ["true"]}),
        ("engine_info", {}),
        ("list_tasks", {}),
        ("read_logs", {}),
        ("roster", {}),
        ("reset_session", {}),
        ("hello", {}),
    ],
)
def test_an_end_is_told_in_the_next_reply_whichever_that_is_and_once(
    method: str, params: dict[str, Any], caller: Caller, gate: Gate
) -> None:
    task = ended(caller, gate, "exit 3")
    (notice,) = caller.call(method, **params)["notices"]
    assert notice.keys() == {"taskId", "status", "exitCode", "endedAt"}
    assert (notice["taskId"], notice["status"], notice["exitCode"]) == (task, "failed", 3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", notice["endedAt"])
    assert caller.bash("true")["notices"] == []


def test_a_notice_receives_nothing(caller: Caller, gate: Gate) -> None:
    task = ended(caller, gate)
    assert noticed(caller.call("engine_info")) == [task]
    reply = inbox(caller)
    assert (ids(reply), reply["notices"]) == ([task], [])
    assert "redelivered" not in reply["updates"][0]


def test_where_there_are_none_only_the_calls_that_run_and_wait_say_so(
    caller: Caller, gate: Gate
) -> None:
    task = caller.start(gate.wait)
    assert task["notices"] == []
    assert caller.wait(task["taskId"], timeout_secs=0)["notices"] == []
    assert inbox(caller, wait_seconds=0)["notices"] == []
    assert caller.execute("true")["notices"] == []
    assert "notices" not in caller.call("engine_info")
    gate.open()


def test_what_a_reply_carries_is_not_among_its_own_notices(caller: Caller, gate: Gate) -> None:
    first, second = ended(caller, gate), ended(caller, gate)
    assert noticed(caller.wait(first)) == [second]
    third = ended(caller, gate)
    reply = caller.call("wait_any", ids=[third])
    assert (ids(reply), reply["notices"]) == ([third], [])


def test_an_end_that_was_received_is_no_news(caller: Caller, gate: Gate) -> None:
    task = ended(caller, gate)
    caller.wait(task)
    assert caller.bash("true")["notices"] == []


def test_anothers_end_is_no_news(client: Client, gate: Gate) -> None:
    ended(client.caller(), gate)
    assert client.caller().bash("true")["notices"] == []


def test_twenty_at_a_time_in_the_order_of_the_ends(caller: Caller, gate: Gate) -> None:
    tasks = [caller.start(gate.wait)["taskId"] for _ in range(23)]
    for _ in tasks:
        gate.open()
    for task in tasks:
        caller.client.caller().wait(task)
    first, second, third = (caller.call("list_tasks", limit=1) for _ in range(3))
    assert len(noticed(first)) == 20
    assert {*noticed(first), *noticed(second)} == set(tasks)
    assert "notices" not in third


def test_an_observer_is_told_none_and_takes_none_away(engine: Engine, gate: Gate) -> None:
    with engine.connect() as client, engine.connect("observer") as watching:
        caller = client.caller()
        task = ended(caller, gate)
        assert "notices" not in caller.on(watching).call("engine_info")
        assert caller.on(watching).wait(task)["notices"] == []
        assert noticed(caller.call("engine_info")) == [task]


def test_a_notice_in_a_call_that_was_cancelled_comes_in_the_next(
    caller: Caller, gate: Gate, bell: Gate
) -> None:
    running = caller.start(bell.wait)["taskId"]
    waiting = caller.send("wait", taskId=running)
    task = ended(caller, gate)
    caller.client.cancel_request(waiting)
    assert waiting.error()["code"] == -32008
    assert noticed(caller.call("engine_info")) == [task]
    bell.open()


def test_what_was_told_is_not_told_again_by_the_engine_after_a_kill(
    tmp_path: Path, gate: Gate
) -> None:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as engine:
        with engine.connect() as client:
            caller = client.caller("ci")
            first = ended(caller, gate)
            assert noticed(caller.call("engine_info")) == [first]
            second = ended(caller, gate)
            engine.kill()
        engine.start()
        with engine.connect() as client:
            other = caller.on(client)
            assert noticed(other.call("engine_info")) == [second]
            assert ids(inbox(other)) == [first, second]
