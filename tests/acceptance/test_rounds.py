"""PROTOCOL 5: rounds: jobs side by side under one handle, retried, awaited, and killed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import NO_FLOOR, Caller, Client, Engine, Gate

from engine.protocol.results import decode_result


@pytest.fixture
def anew(tmp_path: Path) -> Iterator[Engine]:
    """An engine that a test may kill, with a lane for one."""
    with Engine(tmp_path / "home", *NO_FLOOR, "--lane", "gpu=1") as engine:
        yield engine


@pytest.fixture
def latch(tmp_path: Path) -> Iterator[Gate]:
    with Gate(tmp_path / "latch") as latch:
        yield latch


def start(caller: Caller, **seats: str | dict[str, Any]) -> dict[str, Any]:
    """`run_round` with these seats; a text is a command."""
    params = {
        name: {"command": given} if isinstance(given, str) else given
        for name, given in seats.items()
    }
    return caller.call("run_round", seats=params)


def wait_any(caller: Caller, *ids: str, **named: Any) -> dict[str, Any]:
    reply = caller.call("wait_any", ids=list(ids), **named)
    decode_result("wait_any", json.dumps(reply).encode())
    return reply


def end_of(caller: Caller, round_id: str, **named: Any) -> dict[str, Any]:
    """The round's entry when it has ended, whatever comes before."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        reply = wait_any(caller, round_id, **named)
        for entry in reply["rounds"]:
            if entry["ready"] == "ended":
                return dict(entry)
    raise AssertionError(f"{round_id} does not end")


def statuses(entry: dict[str, Any]) -> dict[str, str]:
    return {name: seat["status"] for name, seat in entry["seats"].items()}


# -- starting --------------------------------------------------------------------------------------


def test_all_seats_run_side_by_side_and_the_reply_names_the_task_of_each(
    caller: Caller, gate: Gate
) -> None:
    reply = start(caller, one=gate.wait, two=gate.wait, three=gate.wait)

    assert reply["roundId"].startswith("r")
    assert list(reply["seats"]) == ["one", "two", "three"]
    tasks = [seat["taskId"] for seat in reply["seats"].values()]
    rows = caller.call("list_tasks", state=["running"])["tasks"]
    assert {row["taskId"] for row in rows} == set(tasks)
    assert {(row["roundId"], row["seat"]) for row in rows} == {
        (reply["roundId"], name) for name in ("one", "two", "three")
    }
    gate.open(3)


def test_its_end_comes_when_no_seat_runs_with_the_answers_of_all(
    caller: Caller, gate: Gate
) -> None:
    reply = start(
        caller,
        text={"command": f"{gate.wait}; echo out; echo err >&2", "streams": "split"},
        code={"code": "print('said'); 6 * 7", "session": False},
        list={"argv": ["sh", "-c", "echo listed"]},
    )
    waiting = caller.send("wait_any", ids=[reply["roundId"]])
    assert not waiting.is_answered(within=0.5)
    gate.open()
    found = waiting.result()

    assert (found["reason"], found["updates"], found["pending_ids"]) == ("ready", [], [])
    (entry,) = found["rounds"]
    assert (entry["roundId"], entry["ready"]) == (reply["roundId"], "ended")
    assert statuses(entry) == {"text": "succeeded", "code": "succeeded", "list": "succeeded"}
    seats = entry["seats"]
    assert (seats["text"]["stdout"], seats["text"]["stderr"]) == ("out\n", "err\n")
    assert (seats["code"]["output"], seats["code"]["value"]) == ("said\n", "42")
    assert (seats["list"]["output"], seats["list"]["exitCode"]) == ("listed\n", 0)
    assert not entry.keys() & {"redelivered", "warnings"}


def test_a_seat_begins_with_what_the_session_has_and_leaves_nothing_in_it(
    caller: Caller, tmp_path: Path
) -> None:
    caller.bash(f"cd {tmp_path}; word=before")
    reply = start(caller, one='echo "$PWD $word"; cd /; word=after', two="echo $word")
    entry = end_of(caller, reply["roundId"])
    assert entry["seats"]["one"]["output"] == f"{tmp_path} before\n"
    assert entry["seats"]["two"]["output"] == "before\n"
    assert caller.bash('echo "$PWD $word"')["output"] == f"{tmp_path} before\n"


def test_256_seats_are_one_round(caller: Caller) -> None:
    seats = {f"seat-{n}": {"argv": ["echo", str(n)], "session": False} for n in range(256)}
    reply = caller.call("run_round", seats=seats)
    assert len(reply["seats"]) == 256
    entry = end_of(caller, reply["roundId"])
    assert {name: seat["output"] for name, seat in entry["seats"].items()} == {
        f"seat-{n}": f"{n}\n" for n in range(256)
    }


GOOD = {"command": "true"}


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({}, "$"),
        ({"seats": {}}, "$.seats"),
        ({"seats": []}, "$.seats"),
        ({"seats": {f"s{n}": GOOD for n in range(257)}}, "$.seats"),
        ({"seats": {"Lint": GOOD}}, "$.seats.Lint"),
        ({"seats": {"": GOOD}}, '$.seats[""]'),
        ({"seats": {"a": GOOD, "b": 5}}, "$.seats.b"),
        ({"seats": {"lint": {}}}, "$.seats.lint"),
        ({"seats": {"lint": {"command": "true", "argv": ["true"]}}}, "$.seats.lint"),
        ({"seats": {"lint": {**GOOD, "timeout_secs": -1}}}, "$.seats.lint.timeout_secs"),
        ({"seats": {"lint": {**GOOD, "env": {"ENGINE_X": "1"}}}}, "$.seats.lint.env.ENGINE_X"),
        ({"seats": {"a-b": {**GOOD, "bogus": 1}}}, '$.seats["a-b"].bogus'),
        ({"seats": {"lint": {**GOOD, "bogus": None}}}, "$.seats.lint.bogus"),
        ({"seats": {"lint": {**GOOD, "key": "k"}}}, "$.seats.lint.key"),
        ({"seats": {"lint": {**GOOD, "as": "somebody"}}}, "$.seats.lint.as"),
        ({"seats": {"lint": {**GOOD, "lane": "none"}}}, "$.seats.lint.lane"),
        ({"seats": {"lint": {"argv": []}}}, "$.seats.lint.argv"),
        ({"seats": {"lint": GOOD}, "room": "war"}, "$.room"),
        ({"seats": {"lint": GOOD}, "retry_seats": ["lint"]}, "$"),
        ({"seats": {"lint": GOOD}, "roundId": "r000000"}, "$"),
        ({"roundId": "r000000"}, "$"),
        ({"roundId": "r000000", "retry_seats": []}, "$.retry_seats"),
        ({"roundId": "r000000", "retry_seats": ["a", "a"]}, "$.retry_seats"),
    ],
)
def test_what_is_wrong_is_refused_by_its_path_before_anything_is_made(
    caller: Caller, params: dict[str, Any], path: str
) -> None:
    error = caller.refuse("run_round", **params)
    assert (error["code"], error["data"]["path"]) == (-32602, path)
    assert caller.call("list_tasks")["tasks"] == []
    assert caller.call("list_rounds")["rounds"] == []


def test_null_in_a_seat_is_left_out(caller: Caller) -> None:
    seat = {"command": None, "argv": ["true"], "code": None, "cwd": None, "as": caller.name}
    reply = caller.call("run_round", seats={"one": seat}, room=None, roundId=None)
    assert statuses(end_of(caller, reply["roundId"])) == {"one": "succeeded"}


def test_without_room_for_all_of_its_seats_there_is_no_round(tmp_path: Path) -> None:
    options = ("--slots", "1", "--set", "queue_limit=3")
    with Engine(tmp_path / "home", *NO_FLOOR, *options) as engine, engine.connect() as client:
        caller = client.caller()
        error = caller.refuse("run_round", seats={f"s{n}": GOOD for n in range(5)})
        assert (error["code"], error["data"]["limit"]) == (-32007, 3)
        assert caller.call("list_tasks")["tasks"] == []
        reply = caller.call("run_round", seats={f"s{n}": GOOD for n in range(4)})
        assert len(end_of(caller, reply["roundId"])["seats"]) == 4


def test_a_seat_with_an_unknown_handle_in_after_refuses_the_round(caller: Caller) -> None:
    error = caller.refuse("run_round", seats={"a": GOOD, "b": {**GOOD, "after": ["t000000"]}})
    assert error["code"] == -32003
    assert caller.call("list_tasks")["tasks"] == []


def test_an_observer_may_look_and_wait_and_receives_nothing(engine: Engine, caller: Caller) -> None:
    reply = start(caller, one="echo said; exit 3")
    round_id = reply["roundId"]
    with engine.connect("observer") as client:
        watcher = Caller(client, caller.name)
        assert watcher.refuse("run_round", seats={"a": GOOD})["code"] == -32009
        entry = end_of(watcher, round_id)
        assert entry["seats"]["one"]["output"] == "said\n"
        assert watcher.call("read_round", roundId=round_id)["status"] == "failed"
        assert [r["roundId"] for r in watcher.call("list_rounds")["rounds"]] == [round_id]
    entry = end_of(caller, round_id)
    assert (entry["seats"]["one"]["output"], "redelivered" in entry) == ("said\n", False)


# -- a lost seat -----------------------------------------------------------------------------------


def test_a_seat_that_fails_while_others_run_is_told_once_with_its_answer_alone(
    caller: Caller, gate: Gate
) -> None:
    reply = start(caller, bad="echo why; exit 3", done="echo secret", slow=gate.wait)
    round_id = reply["roundId"]
    caller.wait(reply["seats"]["done"]["taskId"], max_output_bytes=0)

    found = wait_any(caller, round_id)
    (entry,) = found["rounds"]

    assert (entry["ready"], found["pending_ids"]) == ("seat_lost", [round_id])
    assert found["all_finished"] is False
    seats = entry["seats"]
    assert (seats["bad"]["status"], seats["bad"]["exitCode"]) == ("failed", 3)
    assert seats["bad"]["output"] == "why\n"
    assert seats["done"] == {
        "taskId": reply["seats"]["done"]["taskId"],
        "status": "succeeded",
    }
    assert seats["slow"]["status"] == "running"
    assert not seats["slow"].keys() & {"output", "exitCode"}
    again = wait_any(caller, round_id, wait_seconds=0.2)
    assert (again["reason"], again["rounds"][0]["ready"]) == ("wait_elapsed", None)
    other = wait_any(caller.client.caller(), round_id)
    assert other["rounds"][0]["ready"] == "seat_lost"  # once for each caller

    gate.open()
    (last,) = wait_any(caller, round_id)["rounds"]
    assert last["ready"] == "ended"
    assert last["seats"]["bad"] == {
        "taskId": reply["seats"]["bad"]["taskId"],
        "status": "failed",
        "exitCode": 3,
        "output_returned": True,
    }
    assert last["seats"]["slow"]["output"] == ""


def test_a_seat_that_waits_for_input_is_lost_and_says_what_it_asks(
    caller: Caller, gate: Gate
) -> None:
    asking = {"command": "printf 'name? '; read x; echo $x", "stdin": "open"}
    reply = start(caller, asks=asking, slow=gate.wait)
    (entry,) = wait_any(caller, reply["roundId"])["rounds"]
    assert (entry["ready"], entry["seats"]["asks"]["status"]) == ("seat_lost", "running")
    assert entry["seats"]["asks"]["blockedOn"] == {"category": "input", "prompt": "name? "}
    assert "blockedOn" not in entry["seats"]["slow"]
    caller.call("write_stdin", taskId=reply["seats"]["asks"]["taskId"], text="anna\n")
    gate.open()
    assert end_of(caller, reply["roundId"])["seats"]["asks"]["output"] == "name? anna\n"


def test_a_seat_that_waits_for_its_own_peers_lane_is_not_lost_and_for_anothers_is(
    anew: Engine, gate: Gate, latch: Gate
) -> None:
    with anew.connect() as client:
        caller = client.caller()
        reply = start(
            caller,
            first={"command": gate.wait, "lane": "gpu"},
            second={"command": latch.wait, "lane": "gpu"},
        )
        quiet = wait_any(caller, reply["roundId"], wait_seconds=0.3)
        assert (quiet["reason"], quiet["rounds"][0]["ready"]) == ("wait_elapsed", None)
        other = start(caller, third={"command": "true", "lane": "gpu"}, fourth=gate.wait)
        (entry,) = wait_any(caller, other["roundId"])["rounds"]
        assert entry["ready"] == "seat_lost"
        assert entry["seats"]["third"]["blockedOn"] == {"category": "lane", "lane": "gpu"}
        gate.open(2)
        latch.open()
        end_of(caller, other["roundId"])


# -- inbox and receipt -----------------------------------------------------------------------------


def test_in_the_inbox_a_round_stands_for_its_seats_and_is_received_once(
    caller: Caller, gate: Gate
) -> None:
    reply = start(caller, one=gate.wait, two="true")
    round_id = reply["roundId"]
    pending = caller.call("wait_any", wait_seconds=0)
    assert (pending["reason"], pending["pending_ids"]) == ("wait_elapsed", [round_id])
    gate.open()
    found = caller.call("wait_any")
    assert ([e["roundId"] for e in found["rounds"]], found["updates"]) == ([round_id], [])
    assert found["delivery"] is not None
    assert caller.call("wait_any")["reason"] == "nothing_pending"
    (entry,) = wait_any(caller, round_id)["rounds"]
    assert entry["ready"] == "ended"
    assert all(seat["output_returned"] for seat in entry["seats"].values())
    for seat in reply["seats"].values():  # its end received those of its seats
        (update,) = wait_any(caller, seat["taskId"])["updates"]
        assert update["output_returned"] is True


def test_what_was_received_of_one_seat_is_not_told_again_with_the_round(caller: Caller) -> None:
    reply = start(caller, one="echo one", two="echo two")
    assert caller.wait(reply["seats"]["one"]["taskId"])["output"] == "one\n"
    entry = end_of(caller, reply["roundId"])
    assert entry["seats"]["one"]["output_returned"] is True
    assert entry["seats"]["two"]["output"] == "two\n"


def test_on_a_connection_that_breaks_it_is_delivered_again_with_the_mark(
    engine: Engine, client: Client
) -> None:
    caller = client.caller()
    with engine.connect() as other:
        first = caller.on(other)
        reply = start(first, one="echo said", two="true")
        assert "redelivered" not in end_of(first, reply["roundId"])
        other.drop()
    found = caller.call("wait_any")
    (entry,) = found["rounds"]
    assert entry["redelivered"] is True
    assert (entry["seats"]["one"]["output"], entry["seats"]["one"]["redelivered"]) == (
        *("said\n", True),
    )
    assert caller.call("wait_any", ack=found["delivery"])["reason"] == "nothing_pending"


def test_a_notice_tells_of_its_end_once_and_of_none_of_its_seats(
    caller: Caller, client: Client, gate: Gate
) -> None:
    reply = start(caller, one=f"{gate.wait}; exit 3", two="true")
    gate.open()
    end_of(client.caller(), reply["roundId"])
    (notice,) = caller.call("engine_info")["notices"]
    assert notice.keys() == {"roundId", "status", "exitCode", "endedAt"}
    assert (notice["roundId"], notice["status"]) == (reply["roundId"], "failed")
    assert "notices" not in caller.call("engine_info")


def test_with_include_output_false_no_seat_shows_what_it_wrote(caller: Caller) -> None:
    reply = start(caller, one="echo said; exit 3")
    seat = end_of(caller, reply["roundId"], include_output=False)["seats"]["one"]
    assert (seat["exitCode"], seat["outputBytes"], "output" in seat) == (3, 5, False)


def test_at_once_it_shows_how_each_seat_stands_and_what_it_wrote_last(
    caller: Caller, gate: Gate
) -> None:
    reply = start(caller, slow=f"echo begun; {gate.wait}", quick="echo secret")
    slow = reply["seats"]["slow"]["taskId"]
    assert caller.call("read_output", taskId=slow, timeout_secs=20)["text"] == "begun\n"
    caller.client.caller().wait(reply["seats"]["quick"]["taskId"])
    found = wait_any(caller, reply["roundId"], wait_seconds=0)
    (entry,) = found["rounds"]
    assert (found["reason"], entry["ready"]) == ("wait_elapsed", None)
    assert entry["seats"]["slow"]["output"] == "begun\n"
    assert entry["seats"]["slow"]["elapsedMs"] >= 0
    assert entry["seats"]["quick"].keys() == {"taskId", "status"}
    gate.open()


def test_a_round_whose_answers_are_long_fits_a_page(caller: Caller) -> None:
    seats = {f"s{n}": {"command": "yes | head -c 100000"} for n in range(40)}
    round_id = caller.call("run_round", seats=seats)["roundId"]
    reply = wait_any(caller, round_id)
    (entry,) = reply["rounds"]
    assert len(json.dumps(reply)) < 512 * 1024
    assert all(seat["output"].startswith("y\ny\n") for seat in entry["seats"].values())
    assert all(seat["omittedBytes"] > 0 for seat in entry["seats"].values())


# -- retrying --------------------------------------------------------------------------------------


def test_failed_seats_run_again_and_the_end_comes_again_with_their_answers_alone(
    caller: Caller, tmp_path: Path
) -> None:
    flaky = f"test -e {tmp_path}/mended && echo green"
    reply = start(caller, flaky=flaky, good="echo good", bad="exit 4")
    round_id = reply["roundId"]
    assert end_of(caller, round_id)["seats"]["flaky"]["status"] == "failed"
    assert caller.call("read_round", roundId=round_id)["status"] == "failed"

    (tmp_path / "mended").touch()
    again = caller.call("run_round", roundId=round_id, retry_seats=["flaky"])
    assert (again["roundId"], list(again["seats"])) == (round_id, ["flaky"])
    assert again["seats"]["flaky"]["taskId"] != reply["seats"]["flaky"]["taskId"]
    found = caller.call("wait_any")  # the inbox has it again
    (entry,) = [e for e in found["rounds"] if e["ready"] == "ended"]
    assert entry["seats"]["flaky"]["output"] == "green\n"
    assert entry["seats"]["good"]["output_returned"] is True
    assert entry["seats"]["bad"]["output_returned"] is True

    details = caller.call("read_round", roundId=round_id)
    assert details["earlier"] == {"flaky": [reply["seats"]["flaky"]["taskId"]]}
    assert details["seats"]["flaky"]["taskId"] == again["seats"]["flaky"]["taskId"]
    assert details["seats"]["flaky"]["seat"] == "flaky"
    last = caller.call("run_round", roundId=round_id, retry_seats=["bad"])
    assert list(last["seats"]) == ["bad"]
    assert statuses(end_of(caller, round_id))["bad"] == "failed"


def test_a_failed_seat_may_run_again_while_its_peers_run(
    caller: Caller, gate: Gate, tmp_path: Path
) -> None:
    reply = start(caller, flaky=f"test -e {tmp_path}/mended", slow=gate.wait)
    round_id = reply["roundId"]
    assert wait_any(caller, round_id)["rounds"][0]["ready"] == "seat_lost"
    again = caller.call("run_round", roundId=round_id, retry_seats=["flaky"])
    lost = wait_any(caller, round_id)["rounds"][0]
    assert (lost["ready"], lost["seats"]["flaky"]["taskId"]) == (  # another attempt, told anew
        *("seat_lost", again["seats"]["flaky"]["taskId"]),
    )
    (tmp_path / "mended").touch()
    caller.call("run_round", roundId=round_id, retry_seats=["flaky"])
    gate.open()
    assert statuses(end_of(caller, round_id)) == {"flaky": "succeeded", "slow": "succeeded"}


@pytest.mark.parametrize("before", ["lives", "killed", "killed, and its index lost"])
def test_the_end_of_a_seat_that_runs_again_is_not_lost_to_who_was_not_told_of_it(
    tmp_path: Path, gate: Gate, before: str
) -> None:
    """Seats of a round that goes on, and of one that had ended."""
    with Engine(tmp_path / "home", *NO_FLOOR) as engine:
        with engine.connect() as client:
            caller = client.caller()
            live = start(caller, bad="echo first; exit 3", slow=gate.wait)
            over = start(caller, bad="echo second; exit 4", good="echo good")
            olds = [each["seats"]["bad"]["taskId"] for each in (live, over)]
            for task in (*olds, over["seats"]["good"]["taskId"]):
                client.caller().wait(task)
            for each in (live, over):
                caller.call("run_round", roundId=each["roundId"], retry_seats=["bad"])
            if before != "lives":
                engine.kill()
        if "index" in before:
            for path in engine.home.glob("index.db*"):
                path.unlink()
        if before != "lives":
            engine.start()
        gate.open()
        with engine.connect() as client:
            found = drained(caller.on(client))
        told = {update["id"]: update["output"] for update in found if "id" in update}
        assert told == dict(zip(olds, ["first\n", "second\n"], strict=True))
        (last,) = [e for e in found if e.get("roundId") == over["roundId"] and is_end(e)]
        assert last["seats"]["good"]["output"] == "good\n"
        assert last["seats"]["bad"]["output"] == "second\n"
        assert [e for e in found if e.get("roundId") == live["roundId"] and is_end(e)]


def drained(caller: Caller) -> list[dict[str, Any]]:
    """All that the inbox brings until nothing is pending."""
    found: list[dict[str, Any]] = []
    reply = caller.call("wait_any")
    while reply["reason"] == "ready":
        found += [*reply["updates"], *reply["rounds"]]
        reply = caller.call("wait_any")
    assert reply["reason"] == "nothing_pending"
    return found


def is_end(entry: dict[str, Any]) -> bool:
    return bool(entry["ready"] == "ended")


def test_only_seats_that_have_failed_run_again_and_only_for_their_caller(
    caller: Caller, gate: Gate
) -> None:
    reply = start(caller, good="true", slow=gate.wait, bad="false")
    round_id = reply["roundId"]
    wait_any(caller, round_id)

    def refusal(name: str, who: Caller = caller) -> dict[str, Any]:
        return who.refuse("run_round", roundId=round_id, retry_seats=["bad", name])

    good, slow, none = refusal("good"), refusal("slow"), refusal("none")
    assert (good["code"], good["data"]["state"]) == (-32011, "succeeded")
    assert (slow["code"], slow["data"]["state"]) == (-32011, "running")
    assert (none["code"], none["data"]["path"]) == (-32602, "$.retry_seats[1]")
    assert refusal("good", caller.client.caller())["code"] == -32009
    unknown = caller.refuse("run_round", roundId="r000000", retry_seats=["a"])
    assert unknown["code"] == -32003
    assert len(caller.call("list_tasks")["tasks"]) == 3
    gate.open()


def test_a_retried_seat_runs_as_it_was_asked_to(caller: Caller, tmp_path: Path) -> None:
    seat = {"command": 'echo "$PWD $word $(cat)"; exit 3', "cwd": str(tmp_path)}
    seat |= {"env": {"word": "said"}, "stdin": {"text": "given"}}  # type: ignore[dict-item]
    round_id = caller.call("run_round", seats={"one": seat})["roundId"]
    first = end_of(caller, round_id)["seats"]["one"]["output"]
    caller.call("run_round", roundId=round_id, retry_seats=["one"])
    assert end_of(caller, round_id)["seats"]["one"]["output"] == first
    assert first == f"{tmp_path} said given\n"


# -- as a handle -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "when", "status"),
    [
        ("true", "succeeded", "succeeded"),
        ("exit 3", "succeeded", "skipped"),
        ("exit 3", "failed", "succeeded"),
        ("exit 3", "ended", "succeeded"),
    ],
)
def test_a_call_may_wait_for_a_round(
    caller: Caller, gate: Gate, command: str, when: str, status: str
) -> None:
    round_id = start(caller, one="true", two=f"{gate.wait}; {command}")["roundId"]
    kickoff = caller.start("echo ran", after=[round_id], after_when=when)
    assert kickoff["queueReason"] == f"after {round_id}"
    gate.open()
    assert caller.wait(kickoff["kickoffId"])["status"] == status
    decided = caller.bash("true", after=[round_id], after_when=when)
    assert decided["status"] == status


def test_rounds_are_listed_newest_first_by_pages_and_callers(client: Client) -> None:
    one, two = client.caller(), client.caller()
    rounds = [start(one, a="true")["roundId"] for _ in range(3)]
    other = start(two, a="true", b="exit 3")["roundId"]
    end_of(two, other)
    page = one.call("list_rounds", limit=2)
    assert [row["roundId"] for row in page["rounds"]] == rounds[:0:-1]
    assert page["hasMore"] is True
    rest = one.call("list_rounds", limit=2, before=page["next"])
    assert [row["roundId"] for row in rest["rounds"]] == rounds[:1]
    assert (rest["hasMore"], rest["next"]) == (False, None)
    (row,) = one.call("list_rounds", caller=two.name)["rounds"]
    assert (row["as"], row["status"]) == (two.name, "failed")
    assert {n: (s["status"], s["exitCode"]) for n, s in row["seats"].items()} == {
        "a": ("succeeded", 0),
        "b": ("failed", 3),
    }
    assert row["endedAt"] >= row["createdAt"]
    assert one.call("list_rounds", caller="*", limit=1)["rounds"][0]["roundId"] == other
    assert one.refuse("list_rounds", before="x")["data"]["path"] == "$.before"
    assert one.refuse("read_round", roundId="r000000")["code"] == -32003


def test_what_is_forgotten_of_a_seat_is_said_and_with_the_last_seat_the_round_expires(
    caller: Caller,
) -> None:
    reply = start(caller, one="echo one", two="exit 3")
    round_id = reply["roundId"]
    end_of(caller.client.caller(), round_id)
    caller.call("forget", taskId=reply["seats"]["one"]["taskId"])
    gone = caller.call("read_round", roundId=round_id)["seats"]["one"]
    assert gone == {"taskId": reply["seats"]["one"]["taskId"], "status": "forgotten"}
    (entry,) = caller.call("wait_any")["rounds"]
    assert entry["seats"]["one"] == {
        "taskId": reply["seats"]["one"]["taskId"],
        "status": "succeeded",
    }
    assert len(entry["warnings"]) == 1

    caller.call("forget", taskId=reply["seats"]["two"]["taskId"])
    error = caller.refuse("wait_any", ids=[round_id])
    assert (error["code"], error["data"]["status"]) == (-32004, "failed")
    assert error["data"]["endedAt"] is not None
    assert caller.refuse("read_round", roundId=round_id)["code"] == -32004
    assert caller.call("list_rounds")["rounds"] == []
    assert caller.call("wait_any")["reason"] == "nothing_pending"


def test_once_its_reply_is_written_no_seat_ends_with_the_connection(
    engine: Engine, caller: Caller, gate: Gate
) -> None:
    seats = {"one": {"command": gate.wait, "on_disconnect": "cancel"}, "two": GOOD}
    with engine.connect() as other:
        round_id = caller.on(other).call("run_round", seats=seats)["roundId"]
    gate.open()
    assert statuses(end_of(caller, round_id)) == {"one": "succeeded", "two": "succeeded"}


def test_a_call_that_is_cancelled_leaves_a_whole_round_or_none(
    engine: Engine, caller: Caller, gate: Gate
) -> None:
    seat = {"command": gate.wait, "on_disconnect": "cancel"}
    with engine.connect() as other:
        call = caller.on(other).send("run_round", seats={f"s{n}": seat for n in range(50)})
        other.cancel_request(call)
        assert call.error()["code"] == -32008
        rounds = caller.call("list_rounds")["rounds"]
        assert len(caller.call("list_tasks", limit=100)["tasks"]) == 50 * len(rounds)
    for row in rounds:  # nobody was told of it: its seats end with the connection
        assert set(statuses(end_of(caller, row["roundId"])).values()) == {"cancelled"}


# -- kills -----------------------------------------------------------------------------------------


def test_a_round_goes_on_over_a_kill_and_its_end_is_delivered_once(
    anew: Engine, gate: Gate
) -> None:
    with anew.connect() as client:
        caller = client.caller()
        reply = start(caller, slow=f"{gate.wait}; echo late", quick="echo early", bad="exit 3")
        round_id = reply["roundId"]
        assert wait_any(caller, round_id)["rounds"][0]["ready"] == "seat_lost"
        client.call("engine_info", as_=caller.name)  # has acknowledged that
    anew.kill()
    anew.start()
    with anew.connect() as client:
        caller = Caller(client, caller.name)
        quiet = caller.call("wait_any", wait_seconds=0.3)
        assert (quiet["reason"], quiet["pending_ids"]) == ("wait_elapsed", [round_id])
        gate.open()
        (entry,) = caller.call("wait_any")["rounds"]
        assert (entry["ready"], "redelivered" in entry) == ("ended", False)
        assert entry["seats"]["slow"]["output"] == "late\n"
        assert entry["seats"]["quick"]["output"] == "early\n"
        assert entry["seats"]["bad"]["output_returned"] is True
    anew.kill()  # told, and not acknowledged
    anew.start()
    with anew.connect() as client:
        caller = Caller(client, caller.name)
        found = caller.call("wait_any")
        (entry,) = found["rounds"]
        assert entry["redelivered"] is True
        assert entry["seats"]["slow"]["redelivered"] is True
        caller.call("wait_any", ack=found["delivery"])
    anew.kill()
    anew.start()
    with anew.connect() as client:
        caller = Caller(client, caller.name)
        assert caller.call("wait_any")["reason"] == "nothing_pending"
        again = caller.call("run_round", roundId=round_id, retry_seats=["bad"])
        end_of(client.caller(), round_id)
    anew.kill()
    anew.start()
    with anew.connect() as client:
        caller = Caller(client, caller.name)
        (entry,) = caller.call("wait_any")["rounds"]
        assert entry["seats"]["bad"]["taskId"] == again["seats"]["bad"]["taskId"]
        assert "redelivered" not in entry
        assert "output_returned" not in entry["seats"]["bad"]
        assert entry["seats"]["slow"]["output_returned"] is True


SEATS = 60


def reached(engine: Engine, ran: Path, tasks: int, *, is_begun: bool) -> None:
    """Watch until so many tasks more are there, or the first of them has run."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        made = sum(len(entry.name) == 6 for entry in os.scandir(engine.home / "tasks"))
        if any(ran.iterdir()) if is_begun else made >= tasks:
            return
    raise AssertionError("it does not come so far")


@pytest.mark.parametrize("moment", [1, SEATS // 2, SEATS - 1, SEATS, "begun"])
def test_killed_at_any_moment_of_its_start_it_is_whole_or_not_there(
    anew: Engine, tmp_path: Path, moment: int | str
) -> None:
    ran = tmp_path / "ran"
    ran.mkdir()
    seats = {f"s{n}": {"argv": ["touch", f"{ran}/{n}"]} for n in range(SEATS)}
    with anew.connect() as client:
        client.send("run_round", as_="ci", seats=seats)
        is_begun = moment == "begun"
        reached(anew, ran, 0 if is_begun else int(moment), is_begun=is_begun)
        anew.kill()
    anew.start()
    with anew.connect() as client:
        caller = Caller(client, "ci")
        rounds = caller.call("list_rounds")["rounds"]
        if not rounds:
            assert not is_begun
            assert caller.call("list_tasks")["tasks"] == []
            assert [entry.name for entry in os.scandir(anew.home / "tasks")] == [".ahead"]
            assert list(ran.iterdir()) == []
            return
        (row,) = rounds
        assert len(caller.call("list_tasks", limit=500)["tasks"]) == SEATS
        assert set(statuses(end_of(caller, row["roundId"])).values()) == {"succeeded"}
        assert len(list(ran.iterdir())) == SEATS
        (entry,) = wait_any(caller, row["roundId"])["rounds"]
        assert all(seat["output_returned"] for seat in entry["seats"].values())
