"""PROTOCOL 3, `wait`: by either handle, once or again, alone or two thousand at a time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate


def test_both_handles_give_the_same_record(caller: Caller, gate: Gate) -> None:
    reply = caller.start(f"{gate.wait}; echo end; exit 7")
    by_task = caller.send("wait", taskId=reply["taskId"])
    by_kickoff = caller.send("wait", kickoffId=reply["kickoffId"])
    gate.open()

    first, second = by_task.result(), by_kickoff.result()

    assert first == second
    assert (first["status"], first["exitCode"], first["output"]) == ("failed", 7, "end\n")
    assert caller.wait(reply["kickoffId"]) == first
    assert caller.wait(reply["taskId"], timeout_secs=0) == first


def test_the_record_is_that_of_the_call_itself(caller: Caller) -> None:
    reply = caller.bash("echo hi >&2; exit 2", streams="split")

    assert caller.wait(reply["taskId"]) == reply
    assert caller.wait(reply["kickoffId"]) == reply


def test_a_spent_budget_says_how_things_stand(caller: Caller, gate: Gate) -> None:
    task = caller.start(gate.wait)["taskId"]

    begun = time.monotonic()
    reply = caller.wait(task, timeout_secs=0.3)
    took = time.monotonic() - begun

    assert 0.3 <= took < 2
    assert reply.keys() == {
        *("status", "taskId", "kickoffId", "as", "elapsedMs", "outputBytes", "lastOutputAt"),
        *("changed", "hint", "logs", "logsDropped", "notices"),
    }
    assert (reply["status"], reply["changed"]) == ("running", False)
    gate.open()
    caller.wait(task)


def test_news_is_told_once_to_each_caller(client: Client, gate: Gate, bell: Gate) -> None:
    caller, other = client.caller(), client.caller()
    command = f"echo one; {bell.tell}; {gate.wait}; echo two; {bell.tell}; {gate.wait}"
    task = caller.start(command)["taskId"]
    bell.hear()
    caller.call("read_output", taskId=task, timeout_secs=5)  # looks, is told nothing

    # What the first reply told depends on how far the job was; from here on it is determined.
    caller.wait(task, timeout_secs=0)
    again = caller.wait(task, timeout_secs=0)
    fresh = other.wait(task, timeout_secs=0)
    gate.open()
    bell.hear()
    caller.call("read_output", taskId=task, offset=4, timeout_secs=5)
    more = caller.wait(task, timeout_secs=0)
    rest = other.wait(task, timeout_secs=0)
    gate.open()
    end = caller.wait(task)

    assert again["changed"] is False
    assert "output" not in again
    assert (fresh["output"], fresh["changed"]) == ("one\n", True)
    assert (more["output"], more["changed"], more["outputBytes"]) == ("two\n", True, 8)
    assert fresh["lastOutputAt"] is not None
    assert more["lastOutputAt"] >= fresh["lastOutputAt"]
    assert rest["output"] == "two\n"
    assert end["output"] == "one\ntwo\n"


def test_news_is_at_most_the_last_1000_characters(caller: Caller, gate: Gate, bell: Gate) -> None:
    task = caller.start(f"{gate.wait}; seq 1000; {bell.tell}; {gate.wait}")["taskId"]
    gate.open()
    bell.hear()
    while caller.call("read_output", taskId=task, offset=-1, timeout_secs=1)["size"] < 3893:
        continue

    reply = caller.wait(task, timeout_secs=0)
    gate.open()
    caller.wait(task)

    assert reply["outputBytes"] == 3893
    assert 900 < len(reply["output"]) <= 1000
    assert reply["output"].endswith("\n999\n1000\n")


@pytest.mark.parametrize(
    "params",
    [{}, {"taskId": "t0000", "kickoffId": "k0000"}, {"taskId": "t 1"}, {"taskId": "t" * 85}],
)
def test_neither_or_both_handles_or_what_is_no_handle_is_refused_at_once(
    params: dict[str, Any], caller: Caller
) -> None:
    assert caller.refuse("wait", timeout_secs=20, **params)["code"] == -32602


@pytest.mark.parametrize(
    "params", [{"taskId": "t0000zz"}, {"kickoffId": "k0000zz"}, {"taskId": "x" * 84}]
)
def test_an_unknown_handle_is_an_error_at_once(params: dict[str, Any], caller: Caller) -> None:
    begun = time.monotonic()
    error = caller.refuse("wait", timeout_secs=20, **params)

    assert (error["code"], error["data"]["kind"]) == (-32003, "unknown_handle")
    assert time.monotonic() - begun < 5


def test_a_handle_is_known_by_its_letter_too(caller: Caller) -> None:
    task = caller.bash("true")["taskId"]

    assert caller.refuse("wait", taskId="r" + task[1:])["code"] == -32003


def test_the_end_wakes_a_wait_at_once(caller: Caller, gate: Gate) -> None:
    task = caller.start(gate.wait)["taskId"]
    waiting = caller.send("wait", taskId=task)
    assert not waiting.is_answered(within=0.2)

    begun = time.monotonic()
    gate.open()
    reply = waiting.result()

    assert reply["status"] == "succeeded"
    assert time.monotonic() - begun < 1


def test_replies_come_in_the_order_in_which_they_are_ready(caller: Caller, gate: Gate) -> None:
    slow = caller.send("bash", command=f"{gate.wait}; echo slow")
    fast = caller.send("bash", command="echo fast")

    first = caller.client.receive()
    gate.open()
    second = caller.client.receive()

    assert (first["id"], first["result"]["output"]) == (fast.id, "fast\n")
    assert (second["id"], second["result"]["output"]) == (slow.id, "slow\n")


@pytest.mark.case("C127")
def test_a_cancelled_wait_leaves_the_connection_and_the_job_alone(
    caller: Caller, gate: Gate
) -> None:
    task = caller.start(f"{gate.wait}; echo done")["taskId"]
    waiting = caller.send("wait", taskId=task)
    other = caller.send("wait", taskId=task)

    caller.client.cancel_request(waiting)

    assert waiting.error()["code"] == -32008
    assert caller.bash("echo next")["output"] == "next\n"
    gate.open()
    assert other.result()["output"] == "done\n"


@pytest.mark.case("C143")
def test_an_id_is_that_of_its_connection_alone(engine: Engine, gate: Gate) -> None:
    with engine.connect() as one, engine.connect() as two:
        task = one.caller().start(gate.wait)["taskId"]
        wait = {"jsonrpc": "2.0", "id": 77, "method": "wait", "params": {"taskId": task}}
        one.send_json(wait)
        two.send_json(wait)
        one.notify("$/cancelRequest", id=77)

        assert one.wait_reply(77)["error"]["code"] == -32008
        two.send_json({**wait, "params": {"taskId": task, "timeout_secs": 0}})
        early = two.wait_reply(77)  # the same id twice in flight: both are answered
        gate.open()
        late = two.wait_reply(77)

    assert early["result"]["status"] == "running"
    assert late["result"]["status"] == "succeeded"


@pytest.mark.case("C109")
def test_two_thousand_waits_on_one_task_all_end_with_it(caller: Caller) -> None:
    task = caller.start("sleep 1")["taskId"]
    waits = [caller.send("wait", taskId=task) for _ in range(2000)]

    first = waits[0].result()
    begun = time.monotonic()
    replies = [first, *(wait.result() for wait in waits[1:])]

    assert time.monotonic() - begun < 1
    assert all(reply == first for reply in replies)
    assert (first["status"], first["exitCode"]) == ("succeeded", 0)
