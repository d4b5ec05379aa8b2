"""Mirrors `engine/cli/words.py`."""

from __future__ import annotations

from typing import Any

import pytest

from engine.cli import words
from engine.client.errors import Refused


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"status": "succeeded"}, None),
        ({"status": "failed", "exitCode": 2}, "t1 failed, exit 2, after 3.4s"),
        ({"status": "failed", "signal": "SIGKILL"}, "t1 failed, SIGKILL, after 3.4s"),
        ({"status": "timed_out"}, "t1 timed out after 3.4s (--deadline)"),
        ({"status": "cancelled"}, "t1 cancelled after 3.4s"),
        (
            {
                "status": "failed",
                "exitCode": 127,
                "reason": "spawn_error",
                "error": {"errno": 2, "message": "frob: not found"},
            },
            "t1 not started, exit 127: frob: not found",
        ),
        (
            {"status": "lost"},
            "t1 is lost: nobody saw its end; engine output t1 has what it wrote",
        ),
        ({"status": "denied", "decisionText": "use make"}, "t1 denied: use make"),
        ({"status": "skipped"}, "t1 skipped"),
        (
            {"status": "skipped", "queueReason": "after t0, which failed"},
            "t1 skipped: after t0, which failed",
        ),
    ],
)
def test_the_line_under_a_run_says_how_it_ended(record: dict[str, Any], line: str | None) -> None:
    assert words.run_ended({"taskId": "t1", "durationMs": 3_400, **record}) == line


def test_a_cancel_of_ours_counts_the_processes() -> None:
    record = {"taskId": "t1", "status": "cancelled", "durationMs": 4_100, "signal": "SIGKILL"}
    assert words.run_ended(record, 2) == "t1 cancelled after 4.1s, SIGKILL, 2 processes"
    assert words.run_ended(record, 1) == "t1 cancelled after 4.1s, SIGKILL, 1 process"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"status": "running", "taskId": "t1"}, "running"),
        ({"status": "running", "kickoffId": "k1", "queuePosition": 2}, "queued #2"),
        ({"status": "queued", "queuePosition": 1}, "queued #1"),
        ({"status": "failed", "exitCode": 1}, "failed 1"),
        ({"status": "failed", "exitCode": None, "signal": "SIGKILL"}, "failed KILL"),
        ({"status": "failed", "exitCode": None, "signal": None}, "failed"),
        ({"status": "timed_out", "exitCode": None}, "timed_out"),
        (
            {"status": "running", "taskId": "t1", "blockedOn": {"category": "input"}},
            "running input",
        ),
        ({"status": "running", "taskId": "t1", "blockedOn": None}, "running"),
        ({"status": "queued", "queuePosition": 1, "blockedOn": {"category": "lane"}}, "queued #1"),
    ],
)
def test_a_status_fits_a_column(row: dict[str, Any], text: str) -> None:
    assert words.short_status(row) == text


def test_a_queued_row_is_called_by_its_kickoff() -> None:
    row = {"taskId": "t1", "kickoffId": "k1"}
    assert words.row_handle({**row, "status": "queued"}) == "k1"
    assert words.row_handle({**row, "status": "held"}) == "k1"
    assert words.row_handle({**row, "status": "running"}) == "t1"
    assert words.row_handle({"taskId": "t1", "kickoffId": None, "status": "queued"}) == "t1"


def test_what_waits_says_where_and_why() -> None:
    row = {"status": "running", "queuePosition": 2, "queueReason": "lane gpu is full (1 of 1)"}
    assert words.waiting(row) == "queued #2: lane gpu is full (1 of 1)"
    assert words.waiting({"status": "held"}) == "held"


@pytest.mark.parametrize(
    ("blocked_on", "text"),
    [
        (None, ""),
        ({"category": "input", "prompt": "Name? "}, "waits for input: Name?"),
        ({"category": "input", "prompt": ""}, "waits for input"),
        ({"category": "idle"}, "is idle: no output and no processor time"),
        ({"category": "lane", "lane": "gpu"}, "waits for lane gpu"),
        ({"category": "after", "ids": ["t1", "r2"]}, "waits for t1 r2"),
        ({"category": "of a later release"}, ""),
    ],
)
def test_what_a_task_is_blocked_on_in_words(blocked_on: Any, text: str) -> None:
    assert words.blocked({"blockedOn": blocked_on}) == text


@pytest.mark.parametrize(
    ("update", "text"),
    [
        ({"ready": "ready_when", "taskId": "t1", "status": "running"}, "t1 is ready"),
        (
            {
                "ready": "execution_blocked",
                "kickoffId": "k1",
                "status": "running",
                "queuePosition": 2,
                "queueReason": "lane gpu is full (1 of 1)",
            },
            "k1 is queued #2: lane gpu is full (1 of 1)",
        ),
        (
            {
                "ready": "execution_blocked",
                "taskId": "t1",
                "status": "running",
                "blockedOn": {"category": "idle"},
            },
            "t1 is idle: no output and no processor time",
        ),
        ({"ready": "execution_blocked", "taskId": "t1", "status": "running"}, "t1 is blocked"),
    ],
)
def test_what_a_wait_tells_of_one_that_goes_on(update: dict[str, Any], text: str) -> None:
    assert words.goes_on(update) == text


def test_one_that_had_not_begun_is_cancelled_without_processes() -> None:
    assert [words.cancelled("t1", count) for count in (0, 1, 2)] == [
        "t1 cancelled",
        "t1 cancelled, 1 process",
        "t1 cancelled, 2 processes",
    ]


def test_those_that_go_on_are_counted() -> None:
    assert [words.going_on(count) for count in (1, 2)] == ["1 goes on", "2 go on"]


def test_an_error_names_the_handle_that_was_asked_for() -> None:
    assert words.refusal(Refused(-32003, "no such handle"), "t1") == "no such task t1"
    assert words.refusal(Refused(-32003, "no such handle"), "r1") == "no such round r1"
    data = {"kind": "expired_handle", "endedAt": "2026-11-22T10:00:00.000Z", "status": "failed"}
    assert words.refusal(Refused(-32004, "expired", data), "t7") == (
        "t7 is expired (ended 2026-11-22 failed): dropped, with its output"
    )
    assert words.refusal(Refused(-32007, "the queue is full"), "t1") == "the queue is full"
