"""PROTOCOL 5, `wait_any` by handles: what is ready and how often, what fits, what is refused."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate

from engine.protocol.results import decode_result

END = {"id", "ready", "status", "taskId", "exitCode", "output", "endedAt", "logs", "outputPath"}


def wait_any(caller: Caller, *ids: str, **named: Any) -> dict[str, Any]:
    return caller.call("wait_any", ids=list(ids), **named)


def ids(reply: dict[str, Any]) -> list[str]:
    return [update["id"] for update in reply["updates"]]


def ended(caller: Caller, gate: Gate, command: str, **named: Any) -> str:
    """A task of the caller that has ended, of which no reply has told it."""
    task: str = caller.start(f"{gate.wait}; {command}", **named)["taskId"]
    gate.open()
    caller.client.caller().wait(task, max_output_bytes=0)
    return task


def kickoff(task_id: str) -> str:
    return "k" + task_id[1:]


def test_it_returns_as_soon_as_one_has_ended_and_tells_which(
    caller: Caller, gate: Gate, bell: Gate
) -> None:
    slow = caller.start(bell.wait)["taskId"]
    quick = caller.start(f"{gate.wait}; echo done; exit 3")["taskId"]
    waiting = caller.send("wait_any", ids=[slow, quick])
    assert not waiting.is_answered(within=0.2)

    begun = time.monotonic()
    gate.open()
    reply = waiting.result()

    assert time.monotonic() - begun < 1
    assert (reply["reason"], reply["pending_ids"], reply["all_finished"]) == (
        *("ready", [slow], False),
    )
    (update,) = reply["updates"]
    assert update.keys() >= END
    assert (update["id"], update["ready"]) == (quick, "ended")
    assert (update["status"], update["exitCode"], update["reason"]) == ("failed", 3, "exit")
    assert update["output"] == "done\n"
    assert not update.keys() & {"redelivered", "output_returned", "notices"}
    assert reply["rounds"] == []
    bell.open()


def test_all_that_are_ready_come_at_once_in_the_order_of_the_ids(
    caller: Caller, gate: Gate
) -> None:
    tasks = [ended(caller, gate, f"exit {code}") for code in (1, 2, 3)]

    reply = wait_any(caller, tasks[2], tasks[0], tasks[1])

    assert ids(reply) == [tasks[2], tasks[0], tasks[1]]
    assert [update["exitCode"] for update in reply["updates"]] == [3, 1, 2]
    assert (reply["pending_ids"], reply["all_finished"]) == ([], True)


def test_kickoffs_and_tasks_stand_in_one_list_under_the_ids_that_were_given(
    caller: Caller, gate: Gate
) -> None:
    tasks = [ended(caller, gate, "true") for _ in range(2)]
    reply = wait_any(caller, kickoff(tasks[0]), tasks[1])
    assert ids(reply) == [kickoff(tasks[0]), tasks[1]]
    assert [update["taskId"] for update in reply["updates"]] == tasks


def test_an_end_that_was_received_before_is_ready_at_once_without_its_output(
    caller: Caller, gate: Gate
) -> None:
    running = caller.start(gate.wait)["taskId"]
    task = caller.bash("echo said; exit 4")["taskId"]

    reply = wait_any(caller, task, running)

    (update,) = reply["updates"]
    assert (update["id"], update["ready"], update["output_returned"]) == (task, "ended", True)
    assert (update["status"], update["exitCode"], update["outputBytes"]) == ("failed", 4, 5)
    assert not update.keys() & {"output", "stdout", "stderr", "logs", "redelivered"}
    assert (reply["pending_ids"], reply["delivery"]) == ([running], None)
    assert caller.wait(task)["output"] == "said\n"  # it can always be looked at
    assert caller.call("read_output", taskId=task)["text"] == "said\n"
    gate.open()


@pytest.mark.parametrize("method", ["bash", "execute", "wait"])
def test_every_reply_that_carries_the_end_counts_as_its_receipt(
    method: str, caller: Caller
) -> None:
    if method == "bash":
        task = caller.bash("true")["taskId"]
    elif method == "execute":
        task = caller.execute("true")["taskId"]
    else:
        task = caller.start("true")["taskId"]
        caller.wait(task)
    assert wait_any(caller, task)["updates"][0]["output_returned"] is True


def test_receipt_is_each_callers_own(client: Client) -> None:
    one, two = client.caller(), client.caller()
    task = one.bash("echo said")["taskId"]
    (first,) = wait_any(two, task)["updates"]
    (again,) = wait_any(two, task)["updates"]
    assert (first["output"], first.get("output_returned")) == ("said\n", None)
    assert (again.get("output"), again["output_returned"]) == (None, True)


def test_looking_at_a_task_receives_nothing(caller: Caller, gate: Gate) -> None:
    task = ended(caller, gate, "echo said")
    caller.call("read_task", taskId=task)
    caller.call("read_output", taskId=task)
    caller.call("list_tasks")
    (update,) = wait_any(caller, task)["updates"]
    assert (update["output"], update.get("redelivered")) == ("said\n", None)


def test_the_time_spent_lists_each_that_goes_on_with_how_it_stands(
    caller: Caller, gate: Gate, bell: Gate
) -> None:
    task = caller.start(f"echo said; {bell.tell}; {gate.wait}")["taskId"]
    bell.hear()
    caller.call("read_output", taskId=task, timeout_secs=5)

    begun = time.monotonic()
    reply = wait_any(caller, task, wait_seconds=0.3)

    assert 0.3 <= time.monotonic() - begun < 5
    assert (reply["reason"], reply["pending_ids"], reply["all_finished"]) == (
        *("wait_elapsed", [task], False),
    )
    (update,) = reply["updates"]
    assert (update["id"], update["ready"], update["status"]) == (task, None, "running")
    assert update["elapsedMs"] >= 300
    assert update["lastOutputAt"] is not None
    assert "output" not in update
    assert reply["delivery"] is None
    gate.open()


def test_no_time_at_all_adds_the_last_1000_characters_and_moves_nothing(
    caller: Caller, gate: Gate, bell: Gate
) -> None:
    task = caller.start(f"seq 1000; {bell.tell}; {gate.wait}")["taskId"]
    bell.hear()
    while caller.call("read_output", taskId=task, offset=-1, timeout_secs=1)["size"] < 3893:
        continue
    caller.wait(task, timeout_secs=0)

    begun = time.monotonic()
    first = wait_any(caller, task, wait_seconds=0)["updates"][0]["output"]
    again = wait_any(caller, task, wait_seconds=0)["updates"][0]["output"]
    without = wait_any(caller, task, wait_seconds=0, include_output=False)["updates"][0]

    assert time.monotonic() - begun < 5
    assert first == again
    assert 900 < len(first) <= 1000
    assert first.endswith("\n999\n1000\n")
    assert "output" not in without
    gate.open()


def test_a_kickoff_that_waits_for_its_turn_is_listed_by_its_place(tmp_path: Any) -> None:
    with (
        Engine(tmp_path / "home", "--slots", "1", "--set", "min_free_bytes=0") as engine,
        engine.connect() as client,
        Gate(tmp_path / "gate") as gate,
    ):
        caller = client.caller()
        first = caller.start(gate.wait)["taskId"]
        second = caller.start("echo second")["kickoffId"]
        reply = wait_any(caller, first, second, wait_seconds=0)
        (running, waiting) = reply["updates"]
        assert (running["id"], running["output"]) == (first, "")
        assert (waiting["id"], waiting["status"], waiting["queuePosition"]) == (
            *(second, "running", 1),
        )
        assert "taskId" not in waiting
        gate.open()
        assert ids(wait_any(caller, first)) == [first]
        (update,) = wait_any(caller, second)["updates"]
        assert (update["id"], update["output"]) == (second, "second\n")


def test_include_output_false_leaves_out_every_output_and_receives_the_end(
    caller: Caller, gate: Gate
) -> None:
    task = ended(caller, gate, "echo said; echo 'ERROR: no'; exit 1")
    (update,) = wait_any(caller, task, include_output=False)["updates"]
    assert (update["exitCode"], update["outputBytes"]) == (1, 15)
    assert not update.keys() & {"output", "stdout", "stderr", "value", "logs"}
    assert wait_any(caller, task)["updates"][0]["output_returned"] is True


def test_the_lines_of_a_task_that_has_ended_stand_beside_it(client: Client, gate: Gate) -> None:
    caller = client.caller()
    task = ended(caller, gate, "echo fine; echo 'ERROR: no'; exit 1")
    (update,) = wait_any(caller, task)["updates"]
    assert [line["text"] for line in update["logs"]][:1] == ["ERROR: no"]
    assert {line["taskId"] for line in update["logs"]} == {task}


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "code", "kind"),
    [
        ("t0000zz", -32003, "unknown_handle"),
        ("r8f3kr9", -32003, "unknown_handle"),
        ("q" * 24, -32003, "unknown_handle"),
        ("t 1", -32602, "invalid_params"),
        ("t" * 85, -32602, "invalid_params"),
    ],
)
def test_one_bad_id_rejects_the_whole_call_and_nothing_is_received(
    bad: str, code: int, kind: str, caller: Caller, gate: Gate
) -> None:
    task = ended(caller, gate, "echo said")
    begun = time.monotonic()
    error = caller.refuse("wait_any", ids=[task, bad])
    assert (error["code"], error["data"]["kind"]) == (code, kind)
    assert time.monotonic() - begun < 5
    (update,) = wait_any(caller, task)["updates"]
    assert (update["output"], update.get("redelivered")) == ("said\n", None)


def test_an_id_that_has_expired_says_when_and_how_it_ended(caller: Caller) -> None:
    task = caller.bash("exit 3")["taskId"]
    ended_at = caller.wait(task)["endedAt"]
    caller.call("forget", taskId=task)
    error = caller.refuse("wait_any", ids=[task])
    assert (error["code"], error["data"]["kind"]) == (-32004, "expired_handle")
    assert (error["data"]["endedAt"], error["data"]["status"]) == (ended_at, "failed")


def test_the_same_task_by_both_its_ids_or_one_twice_is_refused(caller: Caller) -> None:
    task = caller.start("true")["taskId"]
    for repeated in ([task, task], [task, kickoff(task)], [kickoff(task)] * 2):
        error = caller.refuse("wait_any", ids=repeated)
        assert (error["code"], error["data"]["kind"]) == (-32012, "duplicate_handle")
        assert error["data"]["handle"] == repeated[1]


@pytest.mark.parametrize("wrong", [[], ["t8f3kr9"] * 10_001, "t8f3kr9", [1]])
def test_no_list_of_1_to_10000_handles_is_refused(wrong: Any, caller: Caller) -> None:
    error = caller.refuse("wait_any", ids=wrong)
    assert (error["code"], error["data"]["kind"]) == (-32602, "invalid_params")


def test_both_names_of_the_time_are_refused_and_each_alone_will_do(
    caller: Caller, gate: Gate
) -> None:
    task = caller.start(gate.wait)["taskId"]
    error = caller.refuse("wait_any", ids=[task], wait_seconds=1, timeout_secs=1)
    assert error["code"] == -32602
    for name in ("wait_seconds", "timeout_secs"):
        begun = time.monotonic()
        assert wait_any(caller, task, **{name: 0.2})["reason"] == "wait_elapsed"
        assert 0.2 <= time.monotonic() - begun < 5
    for bad in (-1, True, "1"):
        assert caller.refuse("wait_any", ids=[task], wait_seconds=bad)["code"] == -32602
    waiting = caller.send("wait_any", ids=[task], wait_seconds=10_000)  # taken as 240
    assert not waiting.is_answered(within=0.1)
    gate.open()
    assert waiting.result()["reason"] == "ready"


# -- what fits ------------------------------------------------------------------------------------


def test_what_does_not_fit_stays_pending_in_order_and_comes_next(
    caller: Caller, gate: Gate
) -> None:
    """Control characters are six bytes each in JSON."""
    text = r"head -c 30000 /dev/zero | tr '\0' '\1'"
    tasks = [ended(caller, gate, text) for _ in range(12)]

    seen: list[str] = []
    pending = tasks
    while pending:
        message = caller.send("wait_any", ids=pending).message()
        assert len(json.dumps(message)) < 600_000
        reply = message["result"]
        assert reply["reason"] == "ready"
        assert ids(reply)
        assert all("redelivered" not in update for update in reply["updates"])
        assert ids(reply) + reply["pending_ids"] == pending
        assert reply["all_finished"] is not bool(reply["pending_ids"])
        seen += ids(reply)
        pending = reply["pending_ids"]
    assert seen == tasks


def test_in_a_batch_what_does_not_fit_is_not_received(caller: Caller, gate: Gate) -> None:
    task = ended(caller, gate, "seq 20000")
    calls = [
        {"jsonrpc": "2.0", "id": f"b{n}", "method": "wait_any", "params": params}
        for n, params in enumerate([{"as": caller.name, "ids": [task]}] * 2)
    ]
    caller.client.send_json(calls)
    first, second = caller.client.receive()
    outputs = [reply["result"]["updates"][0] for reply in (first, second)]
    assert sorted("redelivered" in update for update in outputs) == [False, True]


# -- calls that come to nothing -------------------------------------------------------------------


def test_a_cancelled_call_receives_nothing(caller: Caller, gate: Gate) -> None:
    task = caller.start(f"{gate.wait}; echo said")["taskId"]
    waiting = caller.send("wait_any", ids=[task])
    assert not waiting.is_answered(within=0.1)
    caller.client.cancel_request(waiting)
    assert waiting.error()["code"] == -32008
    gate.open()
    caller.client.caller().wait(task)
    (update,) = wait_any(caller, task)["updates"]
    assert (update["output"], update.get("redelivered")) == ("said\n", None)


def test_a_client_that_goes_away_ends_its_wait_and_receives_nothing(
    engine: Engine, gate: Gate
) -> None:
    with engine.connect() as one, engine.connect() as two:
        caller = one.caller()
        task = caller.start(f"{gate.wait}; echo said")["taskId"]
        caller.send("wait_any", ids=[task])
        caller.call("engine_info")
        one.drop()
        other = caller.on(two)
        gate.open()
        two.caller().wait(task)
        (update,) = wait_any(other, task)["updates"]
        assert update["output"] == "said\n"


def test_a_notification_receives_nothing(caller: Caller, gate: Gate) -> None:
    task = ended(caller, gate, "echo said")
    caller.client.notify("wait_any", as_=caller.name, ids=[task])
    caller.client.caller().call("engine_info")
    (update,) = wait_any(caller, task)["updates"]
    assert (update["output"], update.get("redelivered")) == ("said\n", None)


# -- observers ------------------------------------------------------------------------------------


def test_an_observer_is_shown_all_and_nothing_is_recorded(engine: Engine, gate: Gate) -> None:
    with engine.connect() as client, engine.connect("observer") as watching:
        caller = client.caller()
        onlooker = caller.on(watching)
        task = ended(caller, gate, "echo said")
        for _ in range(2):
            reply = onlooker.call("wait_any", ids=[task], ack="x")
            (update,) = reply["updates"]
            assert (update["output"], reply["delivery"]) == ("said\n", None)
            assert ids(onlooker.call("wait_any")) == [task]
        (update,) = wait_any(caller, task)["updates"]
        assert (update["output"], update.get("redelivered")) == ("said\n", None)


def test_an_observer_is_told_once_what_a_job_is_blocked_on_and_nobody_else_for_that(
    engine: Engine,
) -> None:
    with engine.connect() as client, engine.connect("observer") as watching:
        caller, onlooker = client.caller(), watching.caller()
        task = caller.start("read -p 'name? ' x", pty=True)["taskId"]
        (update,) = wait_any(onlooker, task, wait_seconds=10)["updates"]
        assert (update["ready"], update["category"]) == ("execution_blocked", "input")
        assert wait_any(onlooker, task, wait_seconds=0.2)["reason"] == "wait_elapsed"
        with engine.connect("observer") as another:
            (update,) = wait_any(onlooker.on(another), task, wait_seconds=10)["updates"]
            assert (update["category"], "redelivered" in update) == ("input", False)
        # As the caller itself it looks too, and takes nothing from it.
        for _ in range(2):
            watched = wait_any(caller.on(watching), task, wait_seconds=0.2)
            assert watched["delivery"] is None
        assert watched["reason"] == "wait_elapsed"
        (update,) = wait_any(caller, task, wait_seconds=10)["updates"]
        assert (update["category"], "redelivered" in update) == ("input", False)
        caller.cancel(task)


def test_the_types_of_the_reply_are_those_of_the_document(caller: Caller, gate: Gate) -> None:
    done = ended(caller, gate, "echo x; exit 1", streams="split")
    running = caller.start(gate.wait)["taskId"]
    for reply in (
        wait_any(caller, running, wait_seconds=0),
        wait_any(caller, done, running),
        caller.call("wait_any", wait_seconds=0),
    ):
        decode_result("wait_any", json.dumps(reply).encode())
    gate.open()
