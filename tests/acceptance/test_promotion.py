"""PROTOCOL 1 and 3: a call that outlives its budget is promoted, and what its connection does."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import Caller, Client, Engine, Gate

STARTED = {
    *("status", "taskId", "kickoffId", "as", "elapsedMs", "output", "outputBytes"),
    *("lastOutputAt", "changed", "hint", "logs", "logsDropped", "notices"),
}


def test_a_promoted_call_says_how_things_stand(caller: Caller, gate: Gate) -> None:
    begun = time.monotonic()
    reply = caller.bash(f"echo so far; {gate.wait}; echo end", timeout_secs=0.4)
    took = time.monotonic() - begun

    assert 0.4 <= took < 2
    assert reply.keys() == STARTED
    assert (reply["status"], reply["as"]) == ("running", caller.name)
    assert re.fullmatch(r"t[0-9a-v]+", reply["taskId"])
    assert reply["kickoffId"] == "k" + reply["taskId"][1:]
    assert type(reply["elapsedMs"]) is int
    assert 200 <= reply["elapsedMs"] < 2000
    assert (reply["output"], reply["outputBytes"], reply["changed"]) == ("so far\n", 7, True)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", reply["lastOutputAt"])
    assert "wait" in reply["hint"]
    assert reply["taskId"] in reply["hint"]
    # Other callers of this engine may have raised lines: then one marker stands there.
    assert [line for line in reply["logs"] if "marker" not in line] == reply["notices"] == []

    gate.open()
    done = caller.wait(reply["taskId"])
    assert (done["status"], done["output"]) == ("succeeded", "so far\nend\n")


def test_a_silent_promoted_call_has_the_members_of_silence(caller: Caller, gate: Gate) -> None:
    reply = caller.bash(gate.wait, timeout_secs=0.1)

    assert (reply.get("output", ""), reply["outputBytes"]) == ("", 0)
    assert (reply["lastOutputAt"], reply["changed"]) == (None, False)
    gate.open()
    caller.wait(reply["taskId"])


def test_a_promoted_split_call_shows_both_streams(caller: Caller, gate: Gate) -> None:
    reply = caller.bash(f"echo o; echo e >&2; {gate.wait}", timeout_secs=0.3, streams="split")

    assert reply.keys() == (STARTED - {"output"}) | {"stdout", "stderr"}
    assert (reply["stdout"], reply["stderr"], reply["outputBytes"]) == ("o\n", "e\n", 4)
    gate.open()
    caller.wait(reply["taskId"])


def test_a_promoted_call_shows_at_most_4000_characters(caller: Caller, gate: Gate) -> None:
    reply = caller.bash(f"seq 10000; {gate.wait}", timeout_secs=0.4)

    assert reply["outputBytes"] == 48_894
    assert len(reply["output"]) <= 4000
    assert reply["output"].startswith("1\n2\n3\n")
    assert reply["output"].endswith("\n9999\n10000\n")
    assert re.search(r"\n<\d+ bytes, \d+ lines left out; read_output has them>\n", reply["output"])
    gate.open()
    assert caller.wait(reply["taskId"])["outputBytes"] == 48_894


def test_that_limit_counts_characters_and_not_bytes(caller: Caller, gate: Gate) -> None:
    reply = caller.bash(f"printf '€%.0s' {{1..5000}}; {gate.wait}", timeout_secs=0.4)

    assert reply["outputBytes"] == 15_000
    assert 3500 < reply["output"].count("€") <= len(reply["output"]) <= 4000
    gate.open()
    caller.wait(reply["taskId"])


def test_a_budget_of_0_promotes_at_once_and_a_free_slot_gives_the_task(caller: Caller) -> None:
    for _ in range(20):
        begun = time.monotonic()
        reply = caller.start("sleep 20")

        assert time.monotonic() - begun < 5
        assert reply["status"] == "running"
        assert reply.keys() == STARTED
        caller.send("cancel", taskId=reply["taskId"], grace_secs=0)


def test_a_promoted_call_has_left_the_session(caller: Caller, gate: Gate) -> None:
    caller.bash("X=before; cd /usr")

    reply = caller.bash(f"X=after; cd /tmp; {gate.wait}; echo $X", timeout_secs=0.2)
    gate.open()
    done = caller.wait(reply["taskId"])

    assert (done["output"], done["cwd"]) == ("after\n", done["cwd"])
    assert caller.bash("echo $X; pwd")["output"] == "before\n/usr\n"


def test_an_ended_wait_leaves_the_job_and_the_session_alone(
    caller: Caller, gate: Gate, bell: Gate
) -> None:
    call = caller.send("bash", command=f"X=1; {bell.tell}; {gate.wait}; echo ran")
    bell.hear()
    caller.client.cancel_request(call)

    error = call.error()

    assert (error["code"], error["data"]["kind"]) == (-32008, "request_cancelled")
    row = caller.running_row()
    gate.open()
    assert caller.wait(row["taskId"])["output"] == "ran\n"
    assert caller.bash("echo [$X]")["output"] == "[]\n"  # its call was gone: it had left


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that promotes every call after half a second."""
    home = tmp_path_factory.mktemp("hasty") / "home"
    with Engine(home, "--set", "inline_budget_secs=0.5", "--set", "min_free_bytes=0") as engine:
        yield engine


def test_the_engines_own_budget_is_the_upper_bound(hasty: Engine, gate: Gate) -> None:
    with hasty.connect() as client:
        caller = client.caller()
        begun = time.monotonic()
        reply = caller.bash(f"{gate.wait}; exit 4")
        took = time.monotonic() - begun

        assert reply["status"] == "running"
        assert 0.5 <= took < 3
        assert client.call("engine_info")["limits"]["inline_budget_secs"] == 0.5
        gate.open()
        assert caller.wait(reply["taskId"])["exitCode"] == 4


@pytest.mark.case("C086")
def test_a_promoted_job_that_fails_says_so_everywhere(caller: Caller, gate: Gate) -> None:
    reply = caller.start(f"{gate.wait}; exit 1")
    waiting = caller.send("wait", taskId=reply["taskId"])
    gate.open()

    told = waiting.result()
    (row,) = caller.call("list_tasks")["tasks"]
    looked = caller.call("read_task", taskId=reply["taskId"])

    for one in (told, row, looked):
        assert (one["status"], one["reason"], one["exitCode"]) == ("failed", "exit", 1)


@pytest.mark.case("C087")
def test_a_job_that_fails_at_once_is_never_shown_as_running_for_ever(caller: Caller) -> None:
    replies = [caller.start("exit 1") for _ in range(20)]

    for reply in replies:
        done = caller.wait(reply["taskId"], timeout_secs=10)
        assert (done["status"], done["exitCode"]) == ("failed", 1)
    assert {row["status"] for row in caller.call("list_tasks")["tasks"]} == {"failed"}


# -- connections -------------------------------------------------------------------------------


@pytest.mark.case("C125")
@pytest.mark.parametrize("farewell", ["close", "drop"])
def test_a_client_that_goes_leaves_its_jobs(
    farewell: str, engine: Engine, client: Client, gate: Gate, bell: Gate
) -> None:
    gone = engine.connect()
    caller = gone.caller()
    caller.send("bash", command=f"{bell.tell}; {gate.wait}; echo x")
    bell.hear()
    getattr(gone, farewell)()
    back = caller.on(client)
    row = back.running_row()

    gate.open()
    assert back.wait(row["taskId"])["output"] == "x\n"


def test_a_call_may_ask_to_be_cancelled_with_its_connection(
    engine: Engine, client: Client, bell: Gate
) -> None:
    gone = engine.connect()
    caller = gone.caller()
    caller.send("bash", command=f"{bell.tell}; sleep 30", on_disconnect="cancel")
    bell.hear()
    back = caller.on(client)
    row = back.running_row()
    gone.drop()

    done = back.wait(row["taskId"], timeout_secs=10)

    assert (done["status"], done["reason"]) == ("cancelled", "cancelled")


def test_that_holds_only_until_a_reply_with_the_handle_is_written(
    engine: Engine, client: Client, gate: Gate
) -> None:
    gone = engine.connect()
    caller = gone.caller()
    reply = caller.start(f"{gate.wait}; echo still", on_disconnect="cancel")
    gone.drop()
    back = caller.on(client)
    assert back.wait(reply["taskId"], timeout_secs=0.3)["status"] == "running"
    gate.open()

    assert back.wait(reply["taskId"])["output"] == "still\n"


def test_a_request_that_is_cancelled_leaves_its_job_and_the_disconnect_to_come(
    engine: Engine, client: Client, bell: Gate
) -> None:
    """`$/cancelRequest` never touches the job; no handle was told, so the connection's end does."""
    gone = engine.connect()
    caller = gone.caller()
    call = caller.send("bash", command=f"{bell.tell}; sleep 30", on_disconnect="cancel")
    bell.hear()
    gone.cancel_request(call)

    assert call.error()["code"] == -32008
    back = caller.on(client)
    row = back.running_row()
    assert back.wait(row["taskId"], timeout_secs=0.3)["status"] == "running"
    gone.drop()
    assert back.wait(row["taskId"], timeout_secs=10)["status"] == "cancelled"


def test_a_call_that_asked_for_no_reply_ends_with_its_connection_and_not_before(
    engine: Engine, client: Client, gate: Gate, bell: Gate
) -> None:
    gone = engine.connect()
    caller = gone.caller()
    params = {"as_": caller.name, "timeout_secs": 0, "on_disconnect": "cancel"}
    gone.notify("bash", command=f"{bell.tell}; {gate.wait}; {bell.tell}; sleep 30", **params)
    bell.hear()
    gate.open()
    bell.hear()
    back = caller.on(client)
    row = back.running_row()
    gone.drop()
    assert back.wait(row["taskId"], timeout_secs=10)["status"] == "cancelled"


def test_output_of_a_promoted_call_stands_in_its_file_at_once(caller: Caller, gate: Gate) -> None:
    reply = caller.bash(f"echo now; {gate.wait}", timeout_secs=0.3)
    (task,) = caller.call("list_tasks")["tasks"]
    path = Path(caller.call("read_task", taskId=task["taskId"])["outputPath"])

    assert path.read_text() == reply["output"] == "now\n"
    gate.open()
    caller.wait(reply["taskId"])


def test_a_call_that_is_answered_as_ended_is_in_the_session(caller: Caller) -> None:
    """Also one that ends in the moment in which its budget does."""
    committed, succeeded = list[str](), list[str]()
    for number in range(60):
        text = f"Y={number}; sleep 0.00{number % 5 + 1}"
        reply = caller.bash(text, timeout_secs=0.003 + 0.001 * (number % 4))
        if reply["status"] == "running":
            caller.wait(reply["taskId"])
            continue
        succeeded.append(f"{number}\n")
        committed.append(caller.bash("echo $Y")["output"])
    assert committed == succeeded
