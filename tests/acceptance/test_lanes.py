"""PROTOCOL 3 and 5: lanes, limits of their own within the slots, and `set_lane`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import NO_FLOOR, PROGRAM, Caller, Engine, Gate


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home", *NO_FLOOR, "--lane", "gpu=1", "--lane", "db=2") as engine:
        yield engine


@pytest.fixture
def caller(engine: Engine) -> Iterator[Caller]:
    with engine.connect() as client:
        yield Caller(client, "ci")


def limit(engine: Engine, lane: str, most: int) -> dict[str, Any]:
    with engine.connect("human") as person:
        return person.call("set_lane", lane=lane, limit=most)


def lanes(caller: Caller) -> dict[str, Any]:
    found: dict[str, Any] = caller.call("engine_info")["lanes"]
    return found


def test_a_call_in_a_full_lane_waits_and_says_for_what(caller: Caller, gate: Gate) -> None:
    holder = caller.start(gate.wait, lane="gpu")["taskId"]
    reply = caller.start("echo ran", lane="gpu")
    (row, _holder) = caller.call("list_tasks")["tasks"]

    assert "taskId" not in reply
    assert (reply["status"], reply["queuePosition"]) == ("running", 1)
    assert reply["queueReason"] == "lane gpu is full (1 of 1)"
    assert reply["blockedOn"] == {"category": "lane", "lane": "gpu"}
    assert (row["lane"], row["status"], row["queuePosition"]) == ("gpu", "queued", 1)
    assert (row["queueReason"], row["blockedOn"]) == (reply["queueReason"], reply["blockedOn"])
    assert lanes(caller) == {
        "db": {"limit": 2, "running": 0, "queued": 0},
        "gpu": {"limit": 1, "running": 1, "queued": 1},
    }
    gate.open()
    assert caller.wait(reply["kickoffId"])["output"] == "ran\n"
    ended = caller.call("read_task", taskId=holder)
    assert (ended["lane"], ended["queueReason"], ended["blockedOn"]) == ("gpu", None, None)


def test_a_full_lane_holds_up_nothing_outside_of_it(caller: Caller, gate: Gate) -> None:
    caller.start(gate.wait, lane="gpu")
    waiting = [caller.start("true", lane="gpu")["kickoffId"] for _ in range(3)]

    assert caller.bash("echo plain")["output"] == "plain\n"
    assert caller.bash("echo other", lane="db")["output"] == "other\n"
    gate.open()
    assert {caller.wait(kickoff)["status"] for kickoff in waiting} == {"succeeded"}


def test_a_lane_that_there_is_not_is_refused_with_those_that_there_are(caller: Caller) -> None:
    error = caller.refuse("bash", command="true", lane="cpu")
    assert (error["code"], error["message"]) == (
        -32602,
        "$.lane: expected one of the lanes db, gpu",
    )
    error = caller.refuse("execute", argv=["true"], lane="G P U")
    assert (error["code"], error["data"]["path"]) == (-32602, "$.lane")
    assert caller.call("list_tasks")["tasks"] == []


def test_an_engine_without_lanes_says_so(tmp_path: Path) -> None:
    with Engine(tmp_path / "bare", *NO_FLOOR) as bare, bare.connect() as client:
        error = client.refuse("bash", command="true", lane="gpu")
    assert error["message"] == "$.lane: expected nothing: this engine has no lanes"


def test_of_a_thousand_jobs_in_a_lane_only_one_starts_before_the_single_one_of_another(
    engine: Engine, caller: Caller, gate: Gate, tmp_path: Path
) -> None:
    out = tmp_path / "order"
    caller.start(gate.wait, lane="gpu")
    sent = [
        caller.send("bash", command=f"echo many >> {out}; {gate.wait}", lane="gpu", timeout_secs=0)
        for _ in range(1000)
    ]
    for call in sent:
        call.result()
    single = Caller(caller.client, "single")
    reply = single.start(f"echo single >> {out}", lane="gpu")
    assert reply["queuePosition"] == 2
    gate.open(2)

    assert single.wait(reply["kickoffId"])["status"] == "succeeded"
    assert out.read_text().split()[:2] == ["many", "single"]
    caller.call("cancel", caller="ci")


def test_a_higher_limit_starts_those_that_wait_at_once(
    engine: Engine, caller: Caller, gate: Gate, bell: Gate
) -> None:
    caller.start(gate.wait, lane="gpu")
    kickoffs = [caller.start(f"{bell.tell}; {gate.wait}", lane="gpu") for _ in range(2)]

    assert limit(engine, "gpu", 3) == {"lane": "gpu", "limit": 3, "running": 3, "queued": 0}
    assert [bell.hear(), bell.hear()] == ["told", "told"]
    gate.open(3)
    for kickoff in kickoffs:
        assert caller.wait(kickoff["kickoffId"])["status"] == "succeeded"


def test_a_lower_limit_ends_nothing_that_runs(engine: Engine, caller: Caller, gate: Gate) -> None:
    running = [caller.start(gate.wait, lane="db")["taskId"] for _ in range(2)]
    assert limit(engine, "db", 1) == {"lane": "db", "limit": 1, "running": 2, "queued": 0}
    reply = caller.start("echo late", lane="db")
    assert reply["queueReason"] == "lane db is full (2 of 1)"

    gate.open()
    first = caller.call("list_tasks", state=["succeeded"], changed_after=0, timeout_secs=20)
    assert len(first["tasks"]) == 1
    assert "taskId" not in caller.wait(reply["kickoffId"], timeout_secs=0.1)
    gate.open()
    assert caller.wait(reply["kickoffId"])["output"] == "late\n"
    assert {caller.wait(task)["status"] for task in running} == {"succeeded"}


def test_a_lane_can_be_closed_and_opened_and_a_new_one_made(engine: Engine, caller: Caller) -> None:
    limit(engine, "gpu", 0)
    reply = caller.start("echo ran", lane="gpu")
    assert reply["queueReason"] == "lane gpu is closed"
    limit(engine, "gpu", 1)
    assert caller.wait(reply["kickoffId"])["output"] == "ran\n"

    limit(engine, "big", 1)
    assert caller.bash("echo new", lane="big")["output"] == "new\n"


def test_only_a_person_sets_a_lane(engine: Engine, caller: Caller) -> None:
    assert caller.refuse("set_lane", lane="gpu", limit=5)["code"] == -32009
    with engine.connect("human") as person:
        for bad in ({"lane": "gpu", "limit": -1}, {"lane": "", "limit": 1}, {"lane": "gpu"}):
            assert person.refuse("set_lane", bad)["code"] == -32602


def test_what_was_set_holds_after_a_kill_until_the_settings_change(
    engine: Engine, caller: Caller
) -> None:
    limit(engine, "gpu", 7)
    limit(engine, "big", 2)
    engine.kill()
    engine.start()
    with engine.connect() as client:
        told = lanes(Caller(client, "ci"))
        assert {name: lane["limit"] for name, lane in told.items()} == {"big": 2, "db": 2, "gpu": 7}
    engine.kill()
    engine.start("--lane", "gpu=4")
    with engine.connect() as client:
        assert lanes(Caller(client, "ci"))["gpu"]["limit"] == 4


def test_a_job_that_outlives_the_engine_keeps_its_place_in_the_lane(
    engine: Engine, caller: Caller, gate: Gate
) -> None:
    holder = caller.start(gate.wait, lane="gpu")["taskId"]
    kickoff = caller.start("echo ran", lane="gpu")["kickoffId"]
    engine.kill()
    engine.start()
    with engine.connect() as client:
        again = Caller(client, "ci")
        reply = again.wait(kickoff, timeout_secs=0)
        assert reply["queueReason"] == "lane gpu is full (1 of 1)"
        gate.open()
        assert again.wait(holder)["status"] == "succeeded"
        assert again.wait(kickoff)["output"] == "ran\n"


def test_calls_for_a_lane_that_the_next_engine_does_not_have_wait_until_it_has(
    tmp_path: Path, gate: Gate
) -> None:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine:
        engine.kill()
        engine.start("--lane", "gpu=1")
        with engine.connect() as client:
            caller = Caller(client, "ci")
            caller.start(gate.wait, lane="gpu")
            kickoff = caller.start("echo ran", lane="gpu")["kickoffId"]
        engine.kill()
        engine.start()
        with engine.connect() as client:
            caller = Caller(client, "ci")
            gate.open()
            reply = caller.wait(kickoff, timeout_secs=0.1)
            assert reply["queueReason"] == "there is no lane gpu now"
            assert lanes(caller)["gpu"]["limit"] == 0
            limit(engine, "gpu", 1)
            assert caller.wait(kickoff)["output"] == "ran\n"


def test_the_lane_is_part_of_what_a_key_stands_for(caller: Caller) -> None:
    first = caller.bash("true", lane="gpu", key="K")
    assert caller.bash("true", lane="gpu", key="K")["taskId"] == first["taskId"]
    assert caller.refuse("bash", command="true", key="K", lane="db")["code"] == -32013


def test_code_waits_for_its_lane_and_its_session_for_it(caller: Caller, gate: Gate) -> None:
    caller.start(gate.wait, lane="gpu")
    first = caller.call("execute", code="x = 1", lane="gpu", timeout_secs=0)
    second = caller.call("execute", code="x + 1", timeout_secs=0)
    assert first["queueReason"] == second["queueReason"] == "lane gpu is full (1 of 1)"
    assert (first["queuePosition"], second["queuePosition"]) == (1, 2)
    gate.open()
    assert caller.wait(second["kickoffId"])["value"] == "2"


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("gpu", "--lane 'gpu' is not of the form NAME=N"),
        ("gpu=many", "'many' is not a number of jobs"),
        ("gpu=-1", "'-1' is not a number of jobs"),
        ("G=1", "settings: "),
        ("gpu=1000000", "settings: "),
    ],
)
def test_a_bad_lane_stops_the_start_and_says_why(
    tmp_path: Path, option: str, complaint: str
) -> None:
    done = subprocess.run(
        [PROGRAM, "serve", "--home", tmp_path / "home", "--lane", option],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert complaint in done.stderr
