"""PROTOCOL 1: what each role may do; an observer reads and waits."""

from __future__ import annotations

from typing import Any

import pytest
from acceptance.running import Caller, Engine, Gate

ACTING: list[tuple[str, dict[str, Any]]] = [
    ("bash", {"command": "true"}),
    ("execute", {"argv": ["true"]}),
    ("cancel", {"taskId": "t000zzz", "force": True}),
    ("forget", {"taskId": "t000zzz", "force": True}),
    ("reset_session", {}),
    ("shutdown", {}),
]


@pytest.mark.parametrize(("method", "params"), ACTING)
def test_an_observer_starts_and_changes_nothing(
    method: str, params: dict[str, Any], engine: Engine
) -> None:
    with engine.connect("observer") as observer:
        caller = observer.caller()
        error = caller.refuse(method, **params)

        assert (error["code"], error["data"]["kind"]) == (-32009, "forbidden")
        assert caller.call("list_tasks")["tasks"] == []


def test_an_observer_reads_and_waits(engine: Engine, caller: Caller, gate: Gate) -> None:
    task = caller.start(f"echo hi; {gate.wait}; exit 3")["taskId"]
    with engine.connect("observer") as observer:
        assert observer.call("hello")["role"] == "observer"
        assert observer.call("engine_info")["protocol"] == 1
        page = observer.call("read_output", taskId=task, timeout_secs=5)
        rows = observer.call("list_tasks", caller=caller.name)["tasks"]
        looked = observer.call("read_task", taskId=task)
        waiting = observer.send("wait", taskId=task)
        gate.open()

        assert page["text"] == "hi\n"
        assert [row["taskId"] for row in rows] == [task]
        assert looked["status"] == "running"
        assert waiting.result()["exitCode"] == 3


def test_an_observer_moves_no_position_of_the_caller_it_names(
    engine: Engine, caller: Caller, gate: Gate
) -> None:
    task = caller.start(f"{gate.wait}; echo news; {gate.wait}")["taskId"]
    gate.open()
    caller.call("read_output", taskId=task, timeout_secs=5)
    with engine.connect("observer") as observer:
        for _ in range(2):
            seen = observer.call("wait", as_=caller.name, taskId=task, timeout_secs=0)
            assert seen["output"] == "news\n"
        told = caller.wait(task, timeout_secs=0)
    gate.open()
    caller.wait(task)

    assert (told["output"], told["changed"]) == ("news\n", True)


def test_an_agent_does_not_shut_the_engine_down(caller: Caller) -> None:
    error = caller.refuse("shutdown", mode="leave")

    assert (error["code"], error["data"]["kind"]) == (-32009, "forbidden")
    assert caller.bash("echo still here")["output"] == "still here\n"


def test_a_human_does_what_an_agent_does(engine: Engine) -> None:
    with engine.connect("human") as human:
        caller = human.caller()

        assert human.call("hello")["role"] == "human"
        task = caller.bash("echo hi")["taskId"]
        assert caller.wait(task)["output"] == "hi\n"
        assert caller.cancel(task)["outcome"] == "already_finished"
        assert caller.call("forget", taskId=task)["taskId"] == task


def test_a_role_is_checked_before_the_params_are_looked_at(engine: Engine) -> None:
    with engine.connect("observer") as observer:
        assert observer.refuse("bash", {"nonsense": 1})["code"] == -32009
