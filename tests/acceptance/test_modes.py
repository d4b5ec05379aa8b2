"""PROTOCOL 5: `set_mode`: one caller alone starts things, for a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from acceptance.running import Caller, Client, Engine, Gate

REASON = "the engine is exclusive to owner"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    options = ("--set", "min_free_bytes=0", "--lane", "gpu=1")
    with Engine(tmp_path / "home", *options) as engine:
        yield engine


@pytest.fixture
def owner(client: Client) -> Caller:
    return Caller(client, "owner")


@pytest.fixture
def other(client: Client) -> Caller:
    return Caller(client, "other")


def mode_owner(client: Client) -> str | None:
    found: str | None = client.call("engine_info")["modeOwner"]
    return found


def test_only_the_owners_calls_start_and_others_wait_and_hear_for_whom(
    client: Client, owner: Caller, other: Caller
) -> None:
    reply = owner.call("set_mode", mode="exclusive", ttl_secs=60)
    before = client.call("engine_info")
    waiting = other.start("echo ran")
    (row,) = other.call("list_tasks")["tasks"]

    assert (reply["mode"], reply["modeOwner"]) == ("exclusive", "owner")
    left = datetime.fromisoformat(reply["expiresAt"]) - datetime.now().astimezone()
    assert 50 < left.total_seconds() <= 60
    assert before["modeOwner"] == "owner"
    assert "taskId" not in waiting
    assert (waiting["status"], waiting["queueReason"]) == ("running", REASON)
    assert (row["status"], row["queueReason"], row["blockedOn"]) == ("queued", REASON, None)
    assert owner.bash("echo mine")["output"] == "mine\n"
    assert other.wait(waiting["kickoffId"], timeout_secs=0)["queueReason"] == REASON

    shared = owner.call("set_mode", mode="shared")
    assert shared == {"mode": "shared", "modeOwner": None, "expiresAt": None}
    assert other.wait(waiting["kickoffId"])["output"] == "ran\n"
    assert mode_owner(client) is None


def test_another_can_neither_take_it_nor_end_it(client: Client, owner: Caller) -> None:
    owner.call("set_mode", mode="exclusive")
    other = Caller(client, "other")
    for mode in ("exclusive", "shared"):
        error = other.refuse("set_mode", mode=mode)
        assert (error["code"], error["data"]["owner"]) == (-32011, "owner")
        assert error["data"]["kind"] == "invalid_state"
    assert mode_owner(client) == "owner"


def test_a_person_ends_it_and_may_not_take_it_from_another(
    engine: Engine, client: Client, owner: Caller, other: Caller
) -> None:
    owner.call("set_mode", mode="exclusive")
    waiting = other.start("echo ran")["kickoffId"]
    with engine.connect("human") as person:
        assert person.refuse("set_mode", mode="exclusive")["data"]["owner"] == "owner"
        assert person.call("set_mode", mode="shared")["modeOwner"] is None
    assert other.wait(waiting)["output"] == "ran\n"


def test_it_ends_by_its_time_and_those_who_wait_start(
    client: Client, owner: Caller, other: Caller
) -> None:
    owner.call("set_mode", mode="exclusive", ttl_secs=0.3)
    call = other.send("bash", command="echo ran")
    assert not call.is_answered(within=0.1)
    assert call.result()["output"] == "ran\n"
    assert mode_owner(client) is None


def test_its_owner_makes_it_last_longer(client: Client, owner: Caller, other: Caller) -> None:
    owner.call("set_mode", mode="exclusive", ttl_secs=0.3)
    owner.call("set_mode", mode="exclusive", ttl_secs=60)
    waiting = other.start("echo ran")["kickoffId"]
    assert other.wait(waiting, timeout_secs=0.6)["queueReason"] == REASON
    assert mode_owner(client) == "owner"
    owner.call("set_mode", mode="exclusive", ttl_secs=0.1)
    assert other.wait(waiting)["output"] == "ran\n"


def test_what_runs_goes_on(owner: Caller, other: Caller, gate: Gate) -> None:
    running = other.start(f"{gate.wait}; echo done")["taskId"]
    owner.call("set_mode", mode="exclusive")
    gate.open()
    assert other.wait(running)["output"] == "done\n"


def test_the_owners_job_may_wait_for_a_lane_and_others_do_not_take_it(
    owner: Caller, other: Caller, gate: Gate
) -> None:
    running = other.start(gate.wait, lane="gpu")["taskId"]
    first = other.start("echo other", lane="gpu")["kickoffId"]
    owner.call("set_mode", mode="exclusive")
    mine = owner.start("echo mine", lane="gpu")
    assert (mine["queueReason"], mine["queuePosition"]) == ("lane gpu is full (1 of 1)", 1)
    told = other.wait(first, timeout_secs=0)
    assert (told["queueReason"], told["queuePosition"]) == (REASON, 2)
    assert told["blockedOn"] == {"category": "lane", "lane": "gpu"}
    gate.open()

    assert owner.wait(mine["kickoffId"])["output"] == "mine\n"
    assert other.wait(running)["status"] == "succeeded"
    assert other.wait(first, timeout_secs=0.1)["queueReason"] == REASON
    owner.call("set_mode", mode="shared")
    assert other.wait(first)["output"] == "other\n"


def test_it_holds_in_the_next_engine_until_its_time(engine: Engine) -> None:
    with engine.connect() as client:
        Caller(client, "owner").call("set_mode", mode="exclusive", ttl_secs=60)
        waiting = Caller(client, "other").start("echo ran")["kickoffId"]
    engine.kill()
    engine.start()
    with engine.connect() as client:
        owner, other = Caller(client, "owner"), Caller(client, "other")
        assert mode_owner(client) == "owner"
        assert other.wait(waiting, timeout_secs=0.2)["queueReason"] == REASON
        owner.call("set_mode", mode="exclusive", ttl_secs=0.5)
    engine.kill()
    engine.start()
    with engine.connect() as client:
        assert Caller(client, "other").wait(waiting)["output"] == "ran\n"
        assert mode_owner(client) is None


def test_what_was_ended_does_not_come_back_with_the_next_engine(engine: Engine) -> None:
    with engine.connect() as client:
        owner = Caller(client, "owner")
        owner.call("set_mode", mode="exclusive")
        owner.call("set_mode", mode="shared")
    engine.kill()
    engine.start()
    with engine.connect() as client:
        assert mode_owner(client) is None


def test_a_caller_without_a_name_has_it_as_long_as_its_connection(
    engine: Engine, client: Client, other: Caller
) -> None:
    with engine.connect() as gone:
        name = gone.call("set_mode", mode="exclusive")["modeOwner"]
        assert name.startswith("anon-")
        waiting = other.start("echo ran")
        assert waiting["queueReason"] == f"the engine is exclusive to {name}"
    assert other.wait(waiting["kickoffId"])["output"] == "ran\n"
    assert mode_owner(client) is None


def test_who_only_looks_may_not_take_it_and_a_time_that_is_none_is_refused(
    engine: Engine, owner: Caller
) -> None:
    with engine.connect("observer") as observer:
        assert observer.refuse("set_mode", mode="exclusive")["code"] == -32009
    for params in (
        {"mode": "exclusive", "ttl_secs": 0},
        {"mode": "mine"},
        {},
    ):
        assert owner.refuse("set_mode", **params)["code"] == -32602
