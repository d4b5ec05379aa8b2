"""PROTOCOL 3: `after` and `after_when`: calls that start when others have ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import NO_FLOOR, Caller, Client, Engine, Gate

UNKNOWN = "t000000"


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Engine]:
    """One slot, and room for three that wait."""
    options = ("--slots", "1", "--set", "queue_limit=3")
    with Engine(tmp_path / "home", *NO_FLOOR, *options) as engine:
        yield engine


@pytest.fixture
def anew(tmp_path: Path) -> Iterator[Engine]:
    """An engine that a test may kill."""
    with Engine(tmp_path / "home", *NO_FLOOR) as engine:
        yield engine


@pytest.fixture
def latch(tmp_path: Path) -> Iterator[Gate]:
    with Gate(tmp_path / "latch") as latch:
        yield latch


def test_it_waits_for_the_other_as_a_kickoff_and_starts_when_that_has_succeeded(
    caller: Caller, gate: Gate, tmp_path: Path
) -> None:
    first = caller.start(f"{gate.wait}; touch {tmp_path}/made")["taskId"]
    reply = caller.start(f"ls {tmp_path}/made", after=[first])
    row = caller.call("read_task", kickoffId=reply["kickoffId"])
    info = caller.call("engine_info")

    assert "taskId" not in reply
    assert (reply["status"], reply["queueReason"]) == ("running", f"after {first}")
    assert reply["blockedOn"] == {"category": "after", "ids": [first]}
    assert reply["queuePosition"] == 1
    assert (row["status"], row["queueReason"]) == ("queued", f"after {first}")
    assert (row["after"], row["blockedOn"]) == ([first], reply["blockedOn"])
    assert info["queued"] >= 1
    gate.open()
    done = caller.wait(reply["kickoffId"])
    assert (done["status"], done["output"]) == ("succeeded", f"{tmp_path}/made\n")
    assert caller.call("read_task", taskId=done["taskId"])["after"] == [first]


def test_one_that_can_no_longer_start_is_skipped_and_says_because_of_whom(
    caller: Caller, gate: Gate, tmp_path: Path
) -> None:
    first = caller.start(f"{gate.wait}; exit 3")["taskId"]
    kickoff = caller.start(f"touch {tmp_path}/ran", after=[first])["kickoffId"]
    call = caller.send("wait", kickoffId=kickoff)
    gate.open()
    done = call.result()
    row = caller.call("read_task", kickoffId=kickoff)

    assert (done["status"], done["reason"], done["exitCode"]) == ("skipped", "skipped", None)
    assert (done["startedAt"], done["signal"], done["output"]) == (None, None, "")
    assert (row["status"], row["reason"]) == ("skipped", "skipped")
    assert row["queueReason"] == f"after {first}, which failed"
    (line,) = [line for line in done["logs"] if line["taskId"] == done["taskId"]]
    assert (line["level"], line["source"]) == ("error", "engine")
    assert line["text"] == f"task {done['taskId']} skipped: after {first}, which failed"
    assert not (tmp_path / "ran").exists()


ENDS = {
    "succeeded": "true",
    "failed": "exit 3",
    "killed": "kill -9 $$",
    "timed out": "sleep 60",
    "cancelled": "sleep 60",
}


@pytest.mark.parametrize(
    ("how", "when", "words"),
    [
        ("succeeded", "succeeded", None),
        ("succeeded", "ended", None),
        ("succeeded", "failed", "succeeded"),
        ("failed", "succeeded", "failed"),
        ("failed", "failed", None),
        ("failed", "ended", None),
        ("killed", "failed", None),
        ("timed out", "failed", None),
        ("timed out", "succeeded", "timed out"),
        ("cancelled", "ended", None),
        ("cancelled", "failed", "was cancelled"),
        ("cancelled", "succeeded", "was cancelled"),
    ],
)
def test_it_starts_when_the_other_has_ended_as_it_wants_and_never_else(
    caller: Caller, how: str, when: str, words: str | None
) -> None:
    deadline = {"deadline_secs": 0.1} if how == "timed out" else {}
    first = caller.bash(ENDS[how], timeout_secs=0, **deadline)
    kickoff = caller.start("echo ran", after=[first["taskId"]], after_when=when)["kickoffId"]
    if how == "cancelled":
        caller.cancel(first["taskId"])

    done = caller.wait(kickoff)
    if words is None:
        assert (done["status"], done["output"]) == ("succeeded", "ran\n")
    else:
        assert done["status"] == "skipped"
        row = caller.call("read_task", kickoffId=kickoff)
        assert row["queueReason"].startswith(f"after {first['taskId']}, which {words}")


def test_one_that_has_ended_already_decides_at_once(caller: Caller) -> None:
    good, bad = caller.bash("true")["kickoffId"], caller.bash("false")["taskId"]
    assert caller.bash("echo ran", after=[good])["output"] == "ran\n"
    skipped = caller.bash("echo ran", after=[bad])
    assert (skipped["status"], skipped["output"]) == ("skipped", "")


def test_it_starts_when_the_last_of_several_has_ended(
    caller: Caller, gate: Gate, bell: Gate
) -> None:
    first = caller.start(gate.wait)["taskId"]
    second = caller.start(bell.wait)["taskId"]
    third = caller.bash("true")["taskId"]
    reply = caller.start("echo ran", after=[third, second, first])
    assert reply["queueReason"] == f"after {second} and 1 more"
    assert reply["blockedOn"]["ids"] == [second, first]

    bell.open()
    caller.wait(second)
    still = caller.wait(reply["kickoffId"], timeout_secs=0)
    assert (still["queueReason"], still["blockedOn"]["ids"]) == (f"after {first}", [first])
    gate.open()
    assert caller.wait(reply["kickoffId"])["output"] == "ran\n"


def test_the_first_that_ends_wrong_skips_it_though_others_run(caller: Caller, gate: Gate) -> None:
    first, second = caller.start(gate.wait)["taskId"], caller.bash("false")["taskId"]
    assert caller.bash("true", after=[first, second])["status"] == "skipped"
    gate.open()


def test_a_call_with_bad_handles_is_refused_and_nothing_is_made(caller: Caller) -> None:
    good = caller.bash("true")
    gone = caller.bash("true")["taskId"]
    caller.call("forget", taskId=gone)
    refused = {
        (UNKNOWN,): -32003,
        ("r" + UNKNOWN[1:],): -32003,
        (gone,): -32004,
        (good["taskId"], good["taskId"]): -32012,
        (good["taskId"], good["kickoffId"]): -32012,
        ("",): -32602,
        tuple(f"t{n:06}" for n in range(1001)): -32602,
    }
    for handles, code in refused.items():
        assert caller.refuse("bash", command="true", after=list(handles))["code"] == code
    error = caller.refuse("bash", command="true", after_when="ended")
    assert error["message"] == "$.after_when: expected nothing without after"
    assert len(caller.call("list_tasks")["tasks"]) == 1
    assert caller.bash("echo at once", after=[])["output"] == "at once\n"


def test_a_chain_is_skipped_from_its_first_to_its_last(caller: Caller, gate: Gate) -> None:
    handle = caller.start(f"{gate.wait}; false")["taskId"]
    chain = []
    for _ in range(50):
        handle = caller.start("true", after=[handle])["kickoffId"]
        chain.append(handle)
    gate.open()
    assert caller.wait(chain[-1])["status"] == "skipped"
    row = caller.call("read_task", kickoffId=chain[-1])
    assert row["queueReason"] == f"after {chain[-2]}, which was skipped"


def test_one_that_waits_can_be_cancelled_and_who_waits_for_it_hears_of_it(
    caller: Caller, gate: Gate
) -> None:
    first = caller.start(gate.wait)["taskId"]
    second = caller.start("echo second", after=[first])["kickoffId"]
    third = caller.start("true", after=[second])["kickoffId"]
    fourth = caller.start("echo fourth", after=[second], after_when="ended")["kickoffId"]

    assert caller.cancel(second)["outcome"] == "cancelled"
    assert caller.wait(third)["status"] == "skipped"
    assert caller.wait(fourth)["output"] == "fourth\n"
    gate.open()
    assert caller.wait(first)["status"] == "succeeded"
    assert caller.wait(second)["startedAt"] is None


def test_to_cancel_all_of_a_caller_starts_nothing_that_waited_for_an_end(
    caller: Caller, gate: Gate, tmp_path: Path
) -> None:
    first = caller.start(gate.wait)["taskId"]
    caller.start(f"touch {tmp_path}/ran", after=[first], after_when="ended")
    done = caller.call("cancel", caller=caller.name)["tasks"]
    assert [task["status"] for task in done] == ["cancelled", "cancelled"]
    assert not (tmp_path / "ran").exists()


def test_one_that_waits_takes_no_slot_and_counts_for_the_limit_of_the_queue(
    narrow: Engine, gate: Gate
) -> None:
    with narrow.connect() as client:
        caller = Caller(client, "ci")
        first = caller.start(gate.wait)["taskId"]
        chain = [caller.start("true", after=[first])["kickoffId"] for _ in range(2)]
        plain = caller.start("echo plain")
        places = [caller.wait(k, timeout_secs=0)["queuePosition"] for k in chain]

        assert (plain["queuePosition"], places) == (1, [2, 3])
        assert caller.refuse("bash", command="true", after=[first])["code"] == -32007
        gate.open()
        assert caller.wait(plain["kickoffId"])["output"] == "plain\n"
        assert {caller.wait(kickoff)["status"] for kickoff in chain} == {"succeeded"}


def test_within_its_budget_the_call_answers_with_the_result_and_is_in_the_session(
    caller: Caller, gate: Gate
) -> None:
    """From the state that the session has when it starts, not when it was asked for."""
    first = caller.start(gate.wait)["taskId"]
    call = caller.send("bash", command="Y=[$X]; echo $Y", after=[first])
    assert not call.is_answered(within=0.1)
    caller.bash("X=late")
    gate.open()

    assert call.result()["output"] == "[late]\n"
    assert caller.bash("echo $Y")["output"] == "[late]\n"


def test_code_that_waits_for_others_does_not_hold_the_session(caller: Caller, gate: Gate) -> None:
    first = caller.start(gate.wait)["taskId"]
    kickoff = caller.call("execute", code="x", after=[first], timeout_secs=0)["kickoffId"]
    assert caller.call("execute", code="x = 5")["status"] == "succeeded"
    gate.open()
    assert caller.wait(kickoff)["value"] == "5"


def test_it_may_be_anybodys_task_and_be_in_a_lane_and_have_a_key(
    client: Client, gate: Gate
) -> None:
    one, other = client.caller(), client.caller()
    first = one.start(gate.wait)["taskId"]
    reply = other.start("echo ran", after=[first], key="K")
    assert other.start("echo ran", after=[first], key="K")["kickoffId"] == reply["kickoffId"]
    assert other.refuse("bash", command="echo ran", key="K")["code"] == -32013
    gate.open()
    assert other.wait(reply["kickoffId"])["output"] == "ran\n"
    one.call("forget", taskId=first)
    again = other.bash("echo ran", after=[first], key="K")
    assert again["kickoffId"] == reply["kickoffId"]


@pytest.mark.parametrize("is_forgotten", [False, True])
@pytest.mark.parametrize(("code", "status"), [(0, "succeeded"), (1, "skipped")])
def test_it_waits_on_in_the_next_engine_whatever_became_of_the_other_meanwhile(
    anew: Engine,
    gate: Gate,
    bell: Gate,
    latch: Gate,
    code: int,
    status: str,
    is_forgotten: bool,
) -> None:
    with anew.connect() as client:
        caller = Caller(client, "ci")
        first = caller.start(f"{gate.wait}; {bell.tell}; exit {code}")["taskId"]
        holder = caller.start(latch.wait)["taskId"]
        kickoff = caller.start("echo ran", after=[first, holder])["kickoffId"]
        assert len(client.call("list_tasks", caller="ci")["tasks"]) == 3  # written down
    anew.kill()
    if not is_forgotten:
        gate.open()
        assert bell.hear() == "told"  # ends while nobody is there to see
    anew.start()
    with anew.connect() as client:
        caller = Caller(client, "ci")
        if is_forgotten:
            waiting = caller.wait(kickoff, timeout_secs=0)
            assert waiting["blockedOn"]["ids"] == [first, holder]
            gate.open()
            assert bell.hear() == "told"
            caller.wait(first)
            caller.call("forget", taskId=first)
    anew.kill()
    anew.start()
    with anew.connect() as client:
        caller = Caller(client, "ci")
        if status == "succeeded":
            reply = caller.wait(kickoff, timeout_secs=0)
            assert reply["queueReason"] == f"after {holder}"
        latch.open()
        assert caller.wait(kickoff)["status"] == status
        assert caller.wait(holder)["status"] == "succeeded"
