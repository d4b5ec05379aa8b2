"""PROTOCOL 3, `cancel`: every process, wherever it fled; one's own, another's, all of a caller."""

from __future__ import annotations

import time

import pytest
from acceptance.running import Caller, Client, Engine, Gate, is_running

# Text that goes on once the last process in the background is the program that it is to become:
# bash loses a signal that reaches a child of its between fork and exec.
BECOME_SLEEP = "until [[ $(</proc/$!/comm) == sleep ]]; do :; done;"


def test_a_cancelled_job_says_how_it_ended(caller: Caller, bell: Gate) -> None:
    command = f"echo so far; sleep 30 & {BECOME_SLEEP} echo $BASHPID > {bell.path}; wait"
    call = caller.send("bash", command=command)
    shell = int(bell.hear())
    row = caller.running_row()

    answer = caller.cancel(row["taskId"], grace_secs=1)
    reply = call.result()

    assert answer.keys() == {"status", "outcome", "signalled", "survivors"}
    assert (answer["status"], answer["outcome"]) == ("cancelled", "cancelled")
    assert shell in answer["signalled"]
    assert answer["survivors"] == []
    assert (reply["status"], reply["reason"]) == ("cancelled", "cancelled")
    assert (reply["exitCode"], reply["signal"]) == (None, "SIGTERM")
    assert reply["output"] == "so far\n"
    assert not is_running(shell)


def test_a_cancel_that_comes_while_a_job_is_starting_does_not_take_the_grace(
    caller: Caller,
) -> None:
    for _ in range(10):
        task = caller.start("sleep 30")["taskId"]
        begun = time.monotonic()
        answer = caller.cancel(task, grace_secs=3)

        assert (answer["outcome"], answer["survivors"]) == ("cancelled", [])
        assert time.monotonic() - begun < 1.5


@pytest.mark.case("C015")
def test_no_process_of_a_pipeline_is_left(caller: Caller) -> None:
    reply = caller.start("sleep 60 | cat")

    answer = caller.cancel(reply["taskId"], grace_secs=1)
    done = caller.wait(reply["taskId"])

    assert (answer["outcome"], answer["survivors"]) == ("cancelled", [])
    assert [pid for pid in answer["signalled"] if is_running(pid)] == []
    assert (done["status"], done["signal"]) == ("cancelled", "SIGTERM")
    assert caller.call("read_task", taskId=reply["taskId"])["survivors"] == []


@pytest.mark.case("C016")
@pytest.mark.parametrize(
    "flight",
    [
        "setsid sleep 301 &",
        "nohup sleep 301 >/dev/null 2>&1 &",
        "(setsid sh -c 'sleep 301 & exec sleep 302' &);",
        "set -m; sleep 301 & disown;",
        "env -i setsid sleep 301 &",
        "trap '' TERM; setsid sleep 301 &",
    ],
)
def test_no_descendant_is_left_however_it_fled(flight: str, caller: Caller, bell: Gate) -> None:
    reply = caller.start(f"{flight} {bell.tell}; sleep 300")
    bell.hear()

    answer = caller.cancel(reply["taskId"], grace_secs=0.3)

    assert (answer["status"], answer["outcome"]) == ("cancelled", "cancelled")
    assert answer["survivors"] == []
    assert len(answer["signalled"]) >= 2
    assert [pid for pid in answer["signalled"] if is_running(pid)] == []


@pytest.mark.case("C020")
def test_a_trap_has_the_grace_and_both_facts_stand(caller: Caller, bell: Gate) -> None:
    reply = caller.start(
        f"trap 'echo cleaned; exit 0' TERM; sleep 30 & {BECOME_SLEEP} {bell.tell}; wait"
    )
    bell.hear()

    begun = time.monotonic()
    caller.cancel(reply["taskId"], grace_secs=5)
    took = time.monotonic() - begun
    done = caller.wait(reply["taskId"])

    assert took < 2
    assert "cleaned\n" in done["output"]
    assert (done["status"], done["reason"]) == ("cancelled", "cancelled")
    assert (done["exitCode"], done["signal"]) == (0, None)


def test_what_ignores_the_term_is_killed_after_the_grace(caller: Caller, bell: Gate) -> None:
    reply = caller.start(f"trap '' TERM; {bell.tell}; while :; do sleep 1; done")
    bell.hear()

    begun = time.monotonic()
    answer = caller.cancel(reply["taskId"], grace_secs=0.5)
    took = time.monotonic() - begun

    assert 0.5 <= took < 3
    assert (answer["status"], answer["survivors"]) == ("cancelled", [])
    assert caller.wait(reply["taskId"])["signal"] == "SIGKILL"


def test_no_grace_kills_at_once(caller: Caller, bell: Gate) -> None:
    reply = caller.start(f"trap '' TERM; {bell.tell}; while :; do sleep 1; done")
    bell.hear()

    begun = time.monotonic()
    assert caller.cancel(reply["taskId"], grace_secs=0)["outcome"] == "cancelled"
    assert time.monotonic() - begun < 2


@pytest.mark.case("C021")
def test_a_stopped_job_sees_the_term(caller: Caller, bell: Gate) -> None:
    reply = caller.start(f"{bell.tell}; kill -STOP $$; :")
    bell.hear()

    begun = time.monotonic()
    caller.cancel(reply["taskId"], grace_secs=10)

    assert time.monotonic() - begun < 3
    assert caller.wait(reply["taskId"])["signal"] == "SIGTERM"


@pytest.mark.case("C022")
def test_children_in_the_background_that_ignore_sigint_are_ended(
    caller: Caller, bell: Gate
) -> None:
    reply = caller.start(f"sleep 300 & {BECOME_SLEEP} {bell.tell}; wait")
    bell.hear()

    answer = caller.cancel(reply["taskId"])

    assert (answer["outcome"], answer["survivors"]) == ("cancelled", [])
    assert len(answer["signalled"]) == 2
    assert [pid for pid in answer["signalled"] if is_running(pid)] == []


@pytest.mark.case("C023")
def test_a_zombie_counts_as_ended(caller: Caller, bell: Gate) -> None:
    text = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0: os._exit(0)\n"
        "os.setsid() if os.getpid() != os.getsid(0) else None\n"
        f"open('{bell.path}', 'w').write('told\\n')\n"
        "time.sleep(300)"
    )
    reply = caller.start(f'exec python3 -c "{text}"')
    bell.hear()

    begun = time.monotonic()
    answer = caller.cancel(reply["taskId"], grace_secs=0.3)

    assert time.monotonic() - begun < 3
    assert (answer["outcome"], answer["survivors"]) == ("cancelled", [])


def test_a_task_that_has_ended_is_left_as_it_is(caller: Caller) -> None:
    reply = caller.bash("exit 3")

    answer = caller.cancel(reply["taskId"])

    assert answer == {
        "status": "failed",
        "outcome": "already_finished",
        "signalled": [],
        "survivors": [],
    }
    assert caller.wait(reply["taskId"]) == reply


def test_a_job_can_be_cancelled_by_its_kickoff_and_twice(caller: Caller) -> None:
    reply = caller.start("sleep 30")

    first = caller.send("cancel", kickoffId=reply["kickoffId"], grace_secs=0.5)
    second = caller.send("cancel", taskId=reply["taskId"], grace_secs=0.5)

    assert first.result()["status"] == second.result()["status"] == "cancelled"
    assert caller.cancel(reply["kickoffId"])["outcome"] == "already_finished"


def test_cancel_is_not_queued_behind_the_call_that_it_cancels(caller: Caller, bell: Gate) -> None:
    call = caller.send("bash", command=f"{bell.tell}; sleep 30")
    bell.hear()
    row = caller.running_row()

    begun = time.monotonic()
    caller.cancel(row["taskId"], grace_secs=1)

    assert call.result()["status"] == "cancelled"
    assert time.monotonic() - begun < 5


@pytest.mark.case("C028")
def test_another_callers_task_needs_force_which_is_on_record(
    client: Client, caller: Caller, engine: Engine
) -> None:
    other = client.caller("other")
    task = caller.start("sleep 30")["taskId"]

    error = other.refuse("cancel", taskId=task)
    assert (error["code"], error["data"]["kind"]) == (-32009, "forbidden")
    assert caller.wait(task, timeout_secs=0)["status"] == "running"

    answer = other.cancel(task, force=True, grace_secs=0.5)

    assert answer["outcome"] == "cancelled"
    lines = [line for line in engine.log_text().splitlines() if task in line]
    assert any(other.name in line and caller.name in line for line in lines)


def test_all_that_a_caller_has_is_cancelled_at_once(
    client: Client, caller: Caller, bell: Gate
) -> None:
    tasks = [caller.start("sleep 30")["taskId"] for _ in range(4)]
    stubborn = f"trap '' TERM; {bell.tell}; while :; do sleep 1; done"
    tasks.append(caller.start(stubborn)["taskId"])
    bell.hear()
    other = client.caller()
    theirs = other.start("sleep 30")["taskId"]

    answer = caller.call("cancel", caller=caller.name, grace_secs=0.5)

    assert [(one["taskId"], one["outcome"]) for one in answer["tasks"]] == [
        (task, "cancelled") for task in tasks
    ]
    assert {caller.wait(task)["status"] for task in tasks} == {"cancelled"}
    assert other.wait(theirs, timeout_secs=0)["status"] == "running"
    assert caller.call("cancel", caller=caller.name) == {"tasks": [], "count": 0}

    assert caller.refuse("cancel", caller=other.name)["code"] == -32009
    forced = caller.call("cancel", caller=other.name, force=True, grace_secs=0.5)
    assert [one["taskId"] for one in forced["tasks"]] == [theirs]


@pytest.mark.parametrize(
    "params", [{}, {"taskId": "t000", "caller": "x"}, {"taskId": "t000", "kickoffId": "k000"}]
)
def test_what_to_cancel_is_named_exactly_once(params: dict[str, str], caller: Caller) -> None:
    assert caller.refuse("cancel", **params)["code"] == -32602


def test_an_unknown_task_cannot_be_cancelled(caller: Caller) -> None:
    assert caller.refuse("cancel", taskId="t000zzz", force=True)["code"] == -32003
