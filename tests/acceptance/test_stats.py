"""PROTOCOL 9: `roster` and `read_stats`."""

from __future__ import annotations

import itertools
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from acceptance.running import LIMIT, NO_FLOOR, Caller, Client, Engine, Gate

TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def entry(client: Client, name: str) -> dict[str, Any] | None:
    """The entry of a caller in the roster."""
    callers = client.call("roster")["callers"]
    return next((each for each in callers if each["name"] == name), None)


# -- roster ------------------------------------------------------------------------------------


def test_a_caller_is_in_the_roster_with_what_it_runs_and_ran(
    client: Client, caller: Caller, engine: Engine, gate: Gate
) -> None:
    caller.bash("true")
    caller.bash("false")
    caller.bash("exit 9")
    held = caller.start(gate.wait)
    caller.call("execute", code=f"open({str(gate.path)!r}).readline()", timeout_secs=0)
    caller.call("execute", code="1", timeout_secs=0)
    with engine.connect() as other:
        caller.on(other).call("engine_info")
        found = entry(client, caller.name)
        assert found is not None
        assert TIME.fullmatch(found.pop("lastSeen"))
        assert found == {
            "name": caller.name,
            "connections": 2,
            "running": 2,
            "queued": 1,
            "endedLastHour": 3,
            "failedLastHour": 2,
        }
    caller.cancel(held["taskId"])
    caller.call("cancel", caller=caller.name)
    after = entry(client, caller.name)
    assert after is not None
    # What is cancelled has ended, and has not failed.
    assert (after["running"], after["endedLastHour"], after["failedLastHour"]) == (0, 6, 2)


def test_a_named_caller_stays_and_a_connection_goes(client: Client, engine: Engine) -> None:
    with engine.connect() as other:
        named = other.caller("leaver")
        named.call("engine_info")
        own = other.call("hello")["as"]
        assert entry(client, own) is not None
    deadline = time.monotonic() + LIMIT
    while entry(client, own) is not None:  # nobody tells of an entry that goes
        assert time.monotonic() < deadline
        time.sleep(0.01)
    gone = entry(client, named.name)
    assert gone is not None
    assert gone["connections"] == 0


def names(roster: dict[str, Any]) -> list[str]:
    return [each["name"] for each in roster["callers"]]


def test_the_roster_is_in_order_and_goes_on_after_a_name(client: Client) -> None:
    for name in ("roster-b", "roster-a", "roster-c"):
        client.call("engine_info", as_=name)
    whole = client.call("roster", as_="roster-a")
    assert whole["hasMore"] is False
    assert names(whole) == sorted(names(whole))
    rest = client.call("roster", as_="roster-a", after="roster-a")
    assert names(rest) == [name for name in names(whole) if name > "roster-a"]


def test_a_roster_that_is_too_large_for_one_reply_comes_in_pages(tmp_path: Path) -> None:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine, engine.connect() as client:
        everybody = [f"c{number:04}" for number in range(1_200)]
        for pending in [client.send("engine_info", as_=name) for name in everybody]:
            pending.result()
        seen: list[str] = []
        pages = 0
        after: dict[str, Any] = {}
        while True:
            page = client.call("roster", as_="c0000", **after)
            seen += names(page)
            pages += 1
            if not page["hasMore"]:
                break
            after = {"after": seen[-1]}
    assert seen == everybody
    assert pages == 3


def test_who_only_observes_is_no_caller(client: Client, caller: Caller, engine: Engine) -> None:
    caller.call("engine_info")
    with engine.connect("observer") as watcher:
        watcher.call("list_tasks", as_="an-onlooker")
        assert entry(watcher, caller.name) is not None
    assert entry(client, "an-onlooker") is None


# -- read_stats --------------------------------------------------------------------------------


def test_the_last_hour_counts_ends_lines_and_times(tmp_path: Path, gate: Gate) -> None:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine, engine.connect() as client:
        caller = client.caller()
        assert caller.call("read_stats")["lastHour"]["ended"] == {}
        caller.bash("printf '<3>a\\n<3>b\\n<4>c\\n'")
        caller.bash("exit 1")
        caller.bash("sleep 9", deadline_secs=0.05)
        ended = caller.start(gate.wait)["taskId"]
        caller.cancel(ended)
        caller.wait(ended)  # its line is in the journal, too
        stats = caller.call("read_stats")
    assert stats.keys() == {"samples", "hasMore", "lastHour"}
    hour = stats["lastHour"]
    assert hour["ended"] == {"succeeded": 1, "failed": 1, "timed_out": 1, "cancelled": 1}
    # Two of the output; and one for each task that has not succeeded.
    assert (hour["lines"]["error"], hour["lines"]["warning"]) == (5, 1)
    assert 0 <= hour["p50Ms"] <= hour["p95Ms"] <= 10_000
    assert hour["p95Ms"] >= 50
    assert 0 <= hour["launchP95Ms"] <= 10_000


def test_samples_are_one_for_each_five_seconds_of_the_last_hour(client: Client) -> None:
    stats = client.call("read_stats")
    times = [datetime.fromisoformat(sample["time"]).timestamp() for sample in stats["samples"]]
    assert len(times) == 720
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {5.0}
    assert times[-1] % 5 == 0
    assert -0.5 < time.time() - times[-1] < 10
    assert stats["hasMore"] is False


def test_since_a_time_only_later_samples_come(client: Client) -> None:
    samples = client.call("read_stats")["samples"]
    later = client.call("read_stats", since=samples[-4]["time"])["samples"]
    assert later[:3] == samples[-3:]
    refused = client.refuse("read_stats", since="2024-02-30T00:00:00Z")
    assert (refused["code"], refused["data"]["path"]) == (-32602, "$.since")


def test_in_a_batch_the_page_is_smaller(client: Client) -> None:
    calls = [{"jsonrpc": "2.0", "id": f"s{n}", "method": "read_stats"} for n in range(32)]
    client.send_json(calls)
    replies = [reply["result"] for reply in client.receive()]
    assert all(0 < len(reply["samples"]) < 720 and reply["hasMore"] for reply in replies)


def test_a_step_that_is_over_has_what_ended_and_ran(client: Client, gate: Gate) -> None:
    caller = client.caller()
    before = caller.call("read_stats")["samples"][-1]["time"]
    held = caller.start(gate.wait)
    caller.bash("exit 1")
    deadline = time.monotonic() + LIMIT
    while True:  # nobody tells of a sample
        samples = caller.call("read_stats", since=before)["samples"]
        mine = [sample for sample in samples if sample["ended"].get("failed")]
        if mine:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert mine[0]["running"] >= 1
    gate.open()
    caller.wait(held["taskId"])


def test_a_new_engine_goes_on_with_the_hour_of_the_one_before(tmp_path: Path, gate: Gate) -> None:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine:
        with engine.connect() as client:
            caller = client.caller()
            caller.bash("echo '<3>x'; exit 1")
            caller.bash("true")
            done = caller.start(gate.wait)
            left = caller.start("sleep 600")
            hour = caller.call("read_stats")["lastHour"]
        engine.kill()
        gate.open()
        engine.start()
        with engine.connect() as client:
            caller.on(client).wait(done["taskId"])
            deadline = time.monotonic() + LIMIT
            while True:  # it looks back in its own time
                now = client.call("read_stats", as_="looker")["lastHour"]
                if now["ended"] == {"failed": 1, "succeeded": 2}:
                    break
                assert time.monotonic() < deadline, now
                time.sleep(0.01)
            assert now["lines"]["error"] >= hour["lines"]["error"] == 2
            found = entry(client, caller.name)
            assert found is not None
            assert (found["endedLastHour"], found["failedLastHour"]) == (3, 1)
            assert (found["running"], found["queued"]) == (1, 0)
            assert TIME.fullmatch(found["lastSeen"])
            caller.on(client).cancel(left["taskId"])


def test_what_they_cost_does_not_grow_with_the_tasks(tmp_path: Path) -> None:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine, engine.connect() as client:
        caller = client.caller()
        caller.bash("true")
        few = [took(caller, method) for method in ("roster", "read_stats")]
        for pending in [caller.send("bash", command="true") for _ in range(300)]:
            pending.result()
        many = [took(caller, method) for method in ("roster", "read_stats")]
    # With room for a machine that has other things to do.
    assert all(after < before * 5 + 0.02 for before, after in zip(few, many, strict=True))


def took(caller: Caller, method: str) -> float:
    """The least time of ten calls, in seconds."""
    best = LIMIT
    for _ in range(10):
        begun = time.perf_counter()
        caller.call(method)
        best = min(best, time.perf_counter() - begun)
    return best
