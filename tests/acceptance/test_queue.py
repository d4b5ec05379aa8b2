"""PROTOCOL 3: calls that wait for a slot: kickoffs, their position and reason, and fairness."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import Caller, Client, Engine, Gate, Pending, RpcError

WAITING = {
    *(
        "status",
        "kickoffId",
        "as",
        "queuePosition",
        "queueReason",
        "hint",
        "logs",
        "logsDropped",
        "notices",
    )
}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine with one slot and room for 8 kickoffs."""
    home = tmp_path_factory.mktemp("narrow") / "home"
    options = ("--slots", "1", "--set", "queue_limit=8", "--set", "min_free_bytes=0")
    with Engine(home, *options) as engine:
        yield engine


@pytest.fixture
def queue(narrow: Engine) -> Iterator[Client]:
    with narrow.connect() as client:
        yield client


@pytest.fixture
def busy(queue: Client, gate: Gate) -> Iterator[Gate]:
    """The one slot is taken until the gate is opened, at the latest when the test ends."""
    holder = queue.caller("holder")
    kickoff = holder.start(gate.wait)["kickoffId"]
    holder.running_row()  # what an earlier test has left in the queue is before it
    yield gate
    gate.open()
    while holder.wait(kickoff)["status"] == "running":
        continue


def test_a_call_without_a_slot_is_a_kickoff(queue: Client, busy: Gate) -> None:
    caller = queue.caller()
    reply = caller.bash("echo ran", timeout_secs=0.2)

    assert reply.keys() == WAITING
    assert (reply["status"], reply["as"], reply["queuePosition"]) == ("running", caller.name, 1)
    assert re.fullmatch(r"k[0-9a-v]+", reply["kickoffId"])
    assert "slot" in reply["queueReason"]
    assert "wait" in reply["hint"]
    assert reply["kickoffId"] in reply["hint"]
    assert caller.start("true").keys() == WAITING
    busy.open()

    done = caller.wait(reply["kickoffId"])
    assert (done["status"], done["output"]) == ("succeeded", "ran\n")
    assert (done["kickoffId"], done["taskId"]) == (
        reply["kickoffId"],
        "t" + reply["kickoffId"][1:],
    )
    again = caller.wait(done["taskId"])  # meanwhile the other may have ended, which is noticed
    assert again | {"notices": []} == done | {"notices": []}


def test_a_wait_on_a_kickoff_is_a_wait_on_its_task(queue: Client, busy: Gate) -> None:
    caller = queue.caller()
    kickoff = caller.start("echo ran; exit 4")["kickoffId"]

    early = caller.wait(kickoff, timeout_secs=0.1)
    waiting = caller.send("wait", kickoffId=kickoff)
    busy.open()
    done = waiting.result()

    assert early.keys() == WAITING
    assert (done["status"], done["exitCode"], done["output"]) == ("failed", 4, "ran\n")
    assert caller.wait(done["taskId"]) == done


def test_a_call_that_gets_its_slot_in_time_ends_inline(queue: Client, busy: Gate) -> None:
    caller = queue.caller()
    call = caller.send("bash", command="X=1; echo ran")
    assert not call.is_answered(within=0.1)
    busy.open()

    assert call.result()["output"] == "ran\n"
    assert caller.bash("echo $X")["output"] == "1\n"


def test_a_kickoff_runs_in_the_session_as_it_is_when_it_starts(queue: Client, busy: Gate) -> None:
    """It was promoted while it waited: it commits nothing."""
    caller = queue.caller()
    kickoff = caller.start("echo [$X]; X=late")["kickoffId"]
    busy.open()

    assert caller.wait(kickoff)["output"] == "[]\n"
    assert caller.bash("echo [$X]")["output"] == "[]\n"


def order_of(path: Path) -> list[str]:
    return path.read_text().split()


def test_callers_take_turns_and_each_has_its_order(
    queue: Client, busy: Gate, tmp_path: Path
) -> None:
    out = tmp_path / "order"
    a, b, c = (queue.caller(name) for name in ("a", "b", "c"))
    kickoffs = []
    for caller, name in ((a, "a1"), (a, "a2"), (a, "a3"), (b, "b1"), (b, "b2"), (c, "c1")):
        kickoffs.append((caller, caller.start(f"echo {name} >> {out}")["kickoffId"]))

    positions = [caller.wait(k, timeout_secs=0)["queuePosition"] for caller, k in kickoffs]
    busy.open()
    for caller, kickoff in kickoffs:
        assert caller.wait(kickoff)["status"] == "succeeded"

    ran = order_of(out)
    assert ran == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert positions == [ran.index(name) + 1 for name in ("a1", "a2", "a3", "b1", "b2", "c1")]


def test_a_kickoff_can_be_cancelled_and_never_runs(
    queue: Client, busy: Gate, tmp_path: Path
) -> None:
    caller = queue.caller()
    first = caller.start(f"touch {tmp_path}/ran")
    second = caller.start("echo second")
    call = caller.send("wait", kickoffId=first["kickoffId"])

    answer = caller.cancel(first["kickoffId"])
    told = call.result()
    moved = caller.wait(second["kickoffId"], timeout_secs=0)
    busy.open()

    assert answer == {
        "status": "cancelled",
        "outcome": "cancelled",
        "signalled": [],
        "survivors": [],
    }
    assert (told["status"], told["reason"], told["exitCode"]) == ("cancelled", "cancelled", None)
    assert (told["startedAt"], told["durationMs"], told["output"]) == (None, None, "")
    assert moved["queuePosition"] == 1
    assert caller.wait(second["kickoffId"])["output"] == "second\n"
    assert not (tmp_path / "ran").exists()
    assert caller.cancel(first["kickoffId"])["outcome"] == "already_finished"


def test_a_kickoff_stands_in_the_list_with_its_place(queue: Client, busy: Gate) -> None:
    caller = queue.caller()
    kickoffs = [caller.start("true")["kickoffId"] for _ in range(2)]

    rows = caller.call("list_tasks", state=["queued"])["tasks"]
    looked = caller.call("read_task", kickoffId=kickoffs[1])
    info = queue.call("engine_info")

    assert [(row["kickoffId"], row["queuePosition"]) for row in rows] == [
        (kickoffs[1], 2),
        (kickoffs[0], 1),
    ]
    assert all("slot" in row["queueReason"] and row["startedAt"] is None for row in rows)
    assert (looked["status"], looked["queuePosition"], looked["command"]) == ("queued", 2, "true")
    assert (info["slots"], info["running"], info["queued"]) == (1, 1, 2)
    assert 0 <= info["oldestQueuedMs"] < 30_000
    assert caller.refuse("forget", taskId="t" + kickoffs[0][1:])["data"]["state"] == "queued"
    assert caller.call("cancel", caller=caller.name)["tasks"][0]["outcome"] == "cancelled"
    assert queue.call("engine_info")["queued"] == 0


def test_output_of_a_kickoff_is_empty_and_followed_from_its_start(
    queue: Client, busy: Gate
) -> None:
    caller = queue.caller()
    task = "t" + caller.start("echo hi")["kickoffId"][1:]

    empty = caller.call("read_output", taskId=task)
    following = caller.send("read_output", taskId=task, timeout_secs=20)
    busy.open()

    assert (empty["text"], empty["size"], empty["eof"]) == ("", 0, False)
    assert following.result()["text"] == "hi\n"
    caller.wait(task)


def test_a_full_queue_is_told_and_nothing_is_made(queue: Client, busy: Gate) -> None:
    caller = queue.caller()
    kickoffs = [caller.start("true")["kickoffId"] for _ in range(8)]

    error = caller.refuse("bash", command="true", timeout_secs=0)

    data = {"kind": "overloaded", "limit": 8, "setting": "queue_limit"}
    assert (error["code"], error["data"]) == (-32007, data)
    assert len(caller.call("list_tasks")["tasks"]) == 8
    busy.open()
    assert {caller.wait(kickoff)["status"] for kickoff in kickoffs} == {"succeeded"}
    assert caller.bash("echo again")["output"] == "again\n"


def test_the_key_of_a_kickoff_answers_with_it(queue: Client, busy: Gate) -> None:
    caller = queue.caller()
    first = caller.start("echo once", key="K")
    second = caller.start("echo once", key="K")
    waiting = caller.send("bash", command="echo once", key="K")
    busy.open()

    assert first["kickoffId"] == second["kickoffId"] == waiting.result()["kickoffId"]
    assert len(caller.call("list_tasks")["tasks"]) == 1


def test_a_client_that_goes_leaves_its_kickoffs_unless_it_asked(
    narrow: Engine, queue: Client, busy: Gate
) -> None:
    with narrow.connect() as gone:
        keeps, ends = gone.caller(), gone.caller()
        sent: list[Pending] = [
            keeps.send("bash", command="echo kept"),
            ends.send("bash", command="echo never", on_disconnect="cancel"),
        ]
        assert not sent[0].is_answered(within=0.2)
        gone.drop()
    rows: dict[str, str] = {}
    for caller in (keeps, ends):
        page = caller.on(queue).call("list_tasks", changed_after=0, timeout_secs=20)
        (row,) = page["tasks"]
        rows[caller.name] = row["kickoffId"]
    ended = ends.on(queue).wait(rows[ends.name], timeout_secs=10)
    busy.open()

    assert (ended["status"], ended["startedAt"]) == ("cancelled", None)
    assert keeps.on(queue).wait(rows[keeps.name])["output"] == "kept\n"


def test_a_deadline_counts_from_the_start_and_not_in_the_queue(queue: Client, busy: Gate) -> None:
    caller = queue.caller()
    kickoff = caller.start("echo in time", deadline_secs=0.5)["kickoffId"]
    assert caller.wait(kickoff, timeout_secs=0.7)["status"] == "running"
    busy.open()

    assert caller.wait(kickoff)["output"] == "in time\n"


def test_little_free_disk_refuses_new_calls_and_nothing_else(tmp_path: Path) -> None:
    with (
        Engine(tmp_path / "home", "--set", f"min_free_bytes={1 << 60}") as engine,
        engine.connect() as client,
    ):
        caller: Caller = client.caller()
        with pytest.raises(RpcError) as caught:
            caller.bash("true")
        assert (caught.value.code, caught.value.data["limit"]) == (-32007, 1 << 60)
        assert caller.call("list_tasks")["tasks"] == []
