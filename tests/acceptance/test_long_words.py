"""PROTOCOL 1, 5: no word of a job, however long, keeps a reply or an inbox from its caller."""

from __future__ import annotations

import json
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine

PAGE = 512 * 1024


def size(reply: Any) -> int:
    return len(json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode())


def ends(caller: Caller, round_id: str, **named: Any) -> dict[str, Any]:
    """The last reply about a round: the one with its end."""
    for _ in range(64):
        reply = caller.call("wait_any", ids=[round_id], wait_seconds=30, **named)
        assert size(reply) <= PAGE
        if reply["rounds"] and reply["rounds"][0]["ready"] == "ended":
            return reply
    raise AssertionError(f"{round_id} does not end")


def test_a_directory_longer_than_the_system_takes_is_refused(caller: Caller) -> None:
    path = "/" + "x" * 4_095
    for refusal in (
        caller.refuse("bash", command="true", session=False, cwd=path),
        caller.refuse("run_round", seats={"a": {"command": "true", "cwd": path}}),
    ):
        assert refusal["code"] == -32602
        assert refusal["data"]["expected"] == (
            "fewer than 4096 bytes (the system takes no longer path)"
        )
    reply = caller.bash("true", session=False, cwd=path[:-1])
    assert (reply["reason"], reply["status"]) == ("spawn_error", "failed")


def test_a_script_in_place_of_a_program_is_told_by_its_beginning_and_why(caller: Caller) -> None:
    script = "cd /srv && python3 -c '" + "print(1); " * 6_000 + "'"
    reply = caller.call("execute", argv=[script])
    message = reply["error"]["message"]
    assert (reply["reason"], reply["exitCode"]) == ("spawn_error", 126)
    assert message.startswith("cd /srv && python3 -c")
    assert message.endswith("File name too long")
    assert len(message) < 500


@pytest.mark.parametrize("include_output", [True, False])
def test_a_round_whose_seats_all_say_much_is_told_and_so_is_what_ended_beside_it(
    caller: Caller, include_output: bool
) -> None:
    script = "cd /srv && " + "\x01" * 10_000
    seats = {f"s{number}": {"argv": [script]} for number in range(40)}
    round_id = caller.call("run_round", seats=seats)["roundId"]
    other = caller.bash("sleep .1; echo precious", session=False, timeout_secs=0)

    reply = ends(caller, round_id, include_output=include_output)

    seat = reply["rounds"][0]["seats"]["s0"]
    assert (seat["status"], seat["reason"]) == ("failed", "spawn_error")
    found = caller.call("wait_any", ids=[other["taskId"]], wait_seconds=20)
    assert found["updates"][0]["output"] == "precious\n"


def test_values_and_errors_of_a_round_of_code_share_its_page_with_the_outputs(
    client: Client, caller: Caller
) -> None:
    odd = "'\"\\n\\x01'"
    code = f"import sys; sys.stdout.write({odd} * 3000); " + "raise ValueError(" + odd + " * 9000)"
    value = "chr(92) * 4000"  # of which JSON makes four times as many
    seats = {f"e{number}": {"code": code, "session": False} for number in range(2)}
    seats |= {f"v{number}": {"code": value, "session": False} for number in range(36)}
    names = list(seats)
    round_id = caller.call("run_round", seats=seats)["roundId"]
    ends(client.caller(), round_id)

    reply = ends(caller, round_id)

    shown = reply["rounds"][0]["seats"]
    assert list(shown) == names
    assert size(reply) < 340_000  # the texts have 320 KiB, the words round them the rest
    assert shown["e0"]["error"]["type"] == "ValueError"
    assert shown["v0"]["value"].endswith("characters left out; wait has them>")
    whole = caller.wait(shown["v0"]["taskId"])
    assert len(whole["value"]) == 8_002


# -- told once -------------------------------------------------------------------------------------


def test_an_end_that_a_round_and_its_task_tell_in_one_reply_comes_once_without_a_mark(
    client: Client, caller: Caller
) -> None:
    seats = {"bad": {"command": "echo E1; exit 1"}, "good": {"command": "echo E2"}}
    started = caller.call("run_round", seats=seats)
    task = started["seats"]["bad"]
    handle = task.get("taskId") or task["kickoffId"]
    ends(client.caller(), started["roundId"])

    reply = caller.call("wait_any", ids=[handle, started["roundId"]], wait_seconds=20)

    (update,), (entry,) = reply["updates"], reply["rounds"]
    assert update["output"] == "E1\n"
    assert "redelivered" not in update
    assert entry["seats"]["bad"] == {
        "taskId": "t" + handle[1:],
        "status": "failed",
        "exitCode": 1,
        "output_returned": True,
    }
    assert entry["seats"]["good"]["output"] == "E2\n"
    assert "redelivered" not in entry["seats"]["good"]


# -- handles of the other kind ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cancel", "wait", "read_task", "forget", "read_output"])
def test_a_round_in_place_of_a_task_is_named_as_what_it_is(caller: Caller, method: str) -> None:
    id_ = caller.call("run_round", seats={"a": {"command": "true"}})["roundId"]
    refusal = caller.refuse(method, taskId=id_)
    assert refusal["code"] == -32602
    assert refusal["message"] == (
        f"$.taskId: expected a task or kickoff; {id_} is a round: read_round names its tasks"
    )
    assert caller.refuse(method, taskId="r0000000")["code"] == -32003


def test_a_task_in_place_of_a_round_is_named_as_what_it_is(caller: Caller) -> None:
    task = caller.bash("true")["taskId"]
    refusal = caller.refuse("read_round", roundId=task)
    assert refusal["code"] == -32602
    assert refusal["message"] == (
        f"$.roundId: expected a round; {task} is a task: read_task shows it"
    )
    assert caller.refuse("read_round", roundId="t0000000")["code"] == -32003


# -- skipped ---------------------------------------------------------------------------------------


def test_what_is_skipped_says_why_and_its_round_is_not_called_cancelled(
    client: Client, caller: Caller
) -> None:
    bad = caller.bash("false")["taskId"]
    good = {"command": "true"}
    skipped = {"command": "true", "after": [bad]}
    started = caller.call("run_round", seats={"a": good, "b": skipped})
    ends(client.caller(), started["roundId"])
    reply = ends(caller, started["roundId"])
    seat = reply["rounds"][0]["seats"]["b"]
    assert (seat["status"], seat["queueReason"]) == ("skipped", f"after {bad}, which failed")

    ended = caller.wait(seat["taskId"])

    assert (ended["reason"], ended["queueReason"]) == ("skipped", f"after {bad}, which failed")
    alone = caller.bash("true", after=[bad], session=False)
    assert alone["queueReason"] == f"after {bad}, which failed"
    assert caller.call("read_round", roundId=started["roundId"])["status"] == "skipped"
    assert caller.call("list_rounds")["rounds"][0]["status"] == "skipped"


# -- observers -------------------------------------------------------------------------------------


def test_an_observer_under_a_callers_name_is_told_of_a_lost_seat_that_the_caller_received(
    engine: Engine, caller: Caller
) -> None:
    seats = {"bad": {"command": "exit 1"}, "long": {"command": "sleep 60"}}
    id_ = caller.call("run_round", seats=seats)["roundId"]
    told = caller.call("wait_any", ids=[id_], wait_seconds=20)
    assert told["rounds"][0]["ready"] == "seat_lost"
    caller.call("engine_info")

    with engine.connect("observer") as observer:
        seen = caller.on(observer).call("wait_any", ids=[id_], wait_seconds=2)
        again = caller.on(observer).call("wait_any", ids=[id_], wait_seconds=0)

    assert (seen["reason"], seen["rounds"][0]["ready"]) == ("ready", "seat_lost")
    assert again["reason"] == "wait_elapsed"
    caller.call("cancel", caller=caller.name)
