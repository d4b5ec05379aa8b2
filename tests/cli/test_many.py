"""Mirrors `engine/cli/many.py`: what is shown, and what that says to the engine."""

from __future__ import annotations

import os
from typing import Any

import pytest

from engine.cli import many
from engine.cli.app import App
from engine.cli.console import Console
from engine.client.errors import Refused


class Calls:
    """A client that answers `wait_any` with what it was given, in order."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.replies = list(replies)
        self.made: list[tuple[str, dict[str, Any]]] = []

    def call(self, method: str, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.made.append((method, params))
        if method == "read_task":
            if params["taskId"] == "tgone":
                raise Refused(-32003, "no such task")
            return {"title": "make\tall"}
        return self.replies.pop(0)


def reply(*updates: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "reason": "ready",
        "updates": list(updates),
        "rounds": [],
        "pending_ids": [],
        "delivery": "d-1",
        **more,
    }


def ended(task: str, at: str, **more: Any) -> dict[str, Any]:
    facts = {"status": "failed", "exitCode": 2, "durationMs": 1_500, "endedAt": at}
    return {"id": task, "taskId": task, "ready": "ended", **facts, **more}


class Shown:
    """A console to pipes, and what it wrote."""

    def __init__(self) -> None:
        self.out, self.err = os.pipe(), os.pipe()
        self.app = App({"as_": "ci"}, {}, Console({}, out_fd=self.out[1], err_fd=self.err[1]))

    def texts(self) -> tuple[str, str]:
        for fd in (self.out[1], self.err[1]):
            os.close(fd)
        found = [os.read(fd, 65536).decode() for fd in (self.out[0], self.err[0])]
        for fd in (self.out[0], self.err[0]):
            os.close(fd)
        return found[0], found[1]


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_ends_are_shown_in_their_order_and_acknowledged_by_the_next_wait(shown: Shown) -> None:
    client = Calls(reply(ended("t2", "B"), ended("t1", "A")), reply(delivery=None))
    wait = many.ManyWait(shown.app, client, ["t1", "t2"], None)
    wait.next()
    wait.next(0.0)
    out, err = shown.texts()
    assert out == "A t1 failed exit=2 1.500s make\\x09all\nB t2 failed exit=2 1.500s make\\x09all\n"
    assert err == ""
    assert [each["taskId"] for each in wait.shown] == ["t1", "t2"]
    waits = [params for method, params in client.made if method == "wait_any"]
    assert [(w["ids"], w["ack"], w["wait_seconds"]) for w in waits] == [
        (["t1", "t2"], None, 240.0),
        (["t1", "t2"], "d-1", 0.0),
    ]


def test_no_look_of_ours_says_that_an_end_was_shown(shown: Shown) -> None:
    client = Calls(reply(ended("t1", "A")))
    many.ManyWait(shown.app, client, None, None).next()
    looks = [params for method, params in client.made if method != "wait_any"]
    assert looks == [{"taskId": "t1"}]  # as nobody
    shown.texts()


def test_one_that_was_dropped_since_has_no_title(shown: Shown) -> None:
    many.ManyWait(shown.app, Calls(reply(ended("tgone", "A"))), None, None).next()
    assert shown.texts()[0] == "A tgone failed exit=2 1.500s\n"


def test_what_goes_on_is_said_on_stderr_and_is_no_end(shown: Shown) -> None:
    running = {"status": "running", "taskId": "t1", "id": "t1"}
    blocked = {"ready": "execution_blocked", "category": "input"}
    on = {"blockedOn": {"category": "input", "prompt": "Name? "}}
    wait = many.ManyWait(
        shown.app,
        Calls(
            reply(
                {**running, **blocked, **on},
                {**running, "ready": "ready_when", "warnings": ["port 80 was open before"]},
            )
        ),
        ["t1"],
        None,
    )
    wait.next()
    assert shown.texts() == (
        "",
        "engine: t1 waits for input: Name?\nengine: t1 is ready\nengine: port 80 was open before\n",
    )
    assert wait.shown == []


def test_an_end_with_the_mark_says_so(shown: Shown) -> None:
    many.ManyWait(shown.app, Calls(reply(ended("t1", "A", redelivered=True))), None, None).next()
    assert shown.texts()[1] == "engine: t1 may have been told before\n"


def test_of_a_round_the_seats_that_did_not_succeed_are_named(shown: Shown) -> None:
    seats = {
        "unit": {"taskId": "t1", "status": "succeeded"},
        "lint": {"taskId": "t2", "status": "failed", "exitCode": 1},
    }
    lost = {"roundId": "r1", "ready": "seat_lost", "seats": seats}
    wait = many.ManyWait(
        shown.app,
        Calls(reply(rounds=[lost]), reply(rounds=[{**lost, "ready": "ended"}])),
        None,
        None,
    )
    wait.next()
    wait.next()
    assert shown.texts() == (
        "r1 ended: 1 of 2 succeeded; not lint (failed 1)\n",
        "engine: round r1 goes on: lint failed 1\n",
    )
    assert [many.exit_code(each) for each in wait.shown] == [1]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (ended("t1", "A"), 2),
        (ended("t1", "A", status="succeeded", exitCode=0), 0),
        ({"roundId": "r1", "seats": {"a": {"status": "succeeded"}}}, 0),
        ({"roundId": "r1", "seats": {"a": {"status": "skipped"}}}, 1),
    ],
)
def test_the_exit_code_is_the_jobs_or_that_of_all_seats(end: dict[str, Any], code: int) -> None:
    assert many.exit_code(end) == code
