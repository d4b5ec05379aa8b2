"""PROTOCOL 3, `key`: the same caller and key answer with the same task, never a second run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate


def test_the_same_key_answers_with_the_same_task(caller: Caller, tmp_path: Path) -> None:
    command = f"echo x >> {tmp_path}/n; echo ran"

    first = caller.bash(command, key="K")
    second = caller.bash(command, key="K")

    assert second == first
    assert (tmp_path / "n").read_text() == "x\n"


@pytest.mark.case("C136")
def test_a_call_that_is_sent_again_runs_once_also_after_a_restart(tmp_path: Path) -> None:
    command = f"echo x >> {tmp_path}/n; echo ran"
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as engine:
        with engine.connect() as client:
            caller = client.caller()
            caller.send("bash", command=command, key="K")
            client.drop()  # the reply is lost
        with engine.connect() as client:
            caller = caller.on(client)
            again = caller.bash(command, key="K")
            many = [caller.send("bash", command=command, key="many") for _ in range(20)]
            results = [call.result() for call in many]
            error = caller.refuse("bash", command=command + " ", key="K")
        engine.kill()
        engine.start()
        with engine.connect() as client:
            later = caller.on(client).bash(command, key="K")
            conflict = caller.on(client).refuse("bash", command="true", key="K")

    assert (again["status"], again["output"]) == ("succeeded", "ran\n")
    assert later == again
    assert all(result == results[0] for result in results)
    assert results[0]["taskId"] != again["taskId"]
    assert (tmp_path / "n").read_text() == "x\nx\n"
    for one in (error, conflict):
        assert (one["code"], one["data"]["kind"]) == (-32013, "key_conflict")


def test_a_key_is_its_callers_alone(client: Client) -> None:
    one, two = client.caller(), client.caller()

    assert one.bash("echo 1", key="K")["taskId"] != two.bash("echo 2", key="K")["taskId"]


def test_params_about_the_call_may_differ(caller: Caller, gate: Gate) -> None:
    first = caller.bash(f"{gate.wait}; echo hi", key="K", timeout_secs=0)

    waiting = caller.send(
        "bash",
        command=f"{gate.wait}; echo hi",
        key="K",
        timeout_secs=20,
        max_output_bytes=1,
        logs="none",
        logScope="all",
        on_disconnect="cancel",
        tool_schema_fingerprint="x",
    )
    gate.open()
    done = waiting.result()

    assert (done["taskId"], done["status"]) == (first["taskId"], "succeeded")
    assert done["omittedBytes"] > 0


@pytest.mark.parametrize(
    "other",
    [
        {"command": "echo 2"},
        {"cwd": "/"},
        {"env": {"A": "b"}},
        {"stdin": {"text": ""}},
        {"streams": "split"},
        {"session": False},
        {"deadline_secs": 9},
    ],
)
def test_the_same_key_with_another_job_is_a_conflict(other: dict[str, Any], caller: Caller) -> None:
    first = caller.bash("echo 1", key="K")

    error = caller.refuse("bash", **{"command": "echo 1", "key": "K", **other})

    assert (error["code"], error["data"]["kind"]) == (-32013, "key_conflict")
    assert caller.bash("echo 1", key="K") == first
    assert len(caller.call("list_tasks")["tasks"]) == 1


def test_a_default_that_is_spelled_out_is_the_same_job(caller: Caller) -> None:
    first = caller.bash("echo 1", key="K")

    again = caller.bash("echo 1", key="K", session=True, streams="merged", stdin="null", env=None)

    assert again == first


def test_bash_and_argv_of_one_text_are_two_jobs(caller: Caller) -> None:
    caller.bash("true", key="K")

    assert caller.refuse("execute", argv=["true"], key="K")["code"] == -32013


def test_the_key_of_a_forgotten_task_does_not_run_it_again(caller: Caller, tmp_path: Path) -> None:
    command = f"echo x >> {tmp_path}/n"
    task = caller.bash(command, key="K")["taskId"]
    caller.call("forget", taskId=task)

    error = caller.refuse("bash", command=command, key="K")

    assert (error["code"], error["data"]["kind"]) == (-32004, "expired_handle")
    assert (tmp_path / "n").read_text() == "x\n"


def test_a_key_is_at_most_200_characters(caller: Caller) -> None:
    assert caller.bash("echo 1", key="é" * 200)["exitCode"] == 0
    for key in ("x" * 201, 5, "a\0b"):
        assert caller.refuse("bash", command="true", key=key)["data"]["path"] == "$.key"


def test_a_call_that_was_refused_uses_no_key(caller: Caller) -> None:
    caller.refuse("bash", command="", key="K")

    assert caller.bash("echo 1", key="K")["output"] == "1\n"


def test_a_repeat_that_ends_with_its_connection_leaves_the_call_that_waits_alone(
    engine: Engine, client: Client, caller: Caller, gate: Gate
) -> None:
    command = f"{gate.wait}; echo shared"
    first = caller.send("bash", command=command, key="K")
    caller.running_row()
    with engine.connect() as other:
        caller.on(other).send("bash", command=command, key="K", on_disconnect="cancel")
        for _ in range(10):  # by the end of these the call before them waits
            other.call("engine_info")
        other.drop()
    for _ in range(10):  # and by the end of these its end is known
        client.call("engine_info")

    gate.open()
    result = first.result()

    assert (result["status"], result["output"]) == ("succeeded", "shared\n")


def test_an_empty_environment_is_none(caller: Caller) -> None:
    first = caller.bash("true", key="K")

    assert caller.bash("true", key="K", env={})["taskId"] == first["taskId"]
