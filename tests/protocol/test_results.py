"""Mirrors `engine/protocol/results.py`; real replies are decoded in the acceptance tests."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from engine.protocol import results as r
from engine.protocol.parts import LogEntry, TaskRow

CALL = {"kickoffId": "k8f3kr9", "as": "ci", "logs": [], "logsDropped": 0, "notices": []}
RUNNING = {
    **CALL,
    "status": "running",
    "taskId": "t8f3kr9",
    "elapsedMs": 20_001,
    "lastOutputAt": None,
    "output": "x\n",
    "outputBytes": 2,
    "changed": True,
    "hint": "Call wait.",
}
KICKOFF = {
    **CALL,
    "status": "running",
    "queuePosition": 3,
    "queueReason": "all 2 slots are busy",
    "hint": "Call wait.",
}
FINISHED = {
    **CALL,
    "status": "failed",
    "taskId": "t8f3kr9",
    "exitCode": 2,
    "signal": None,
    "reason": "exit",
    "output": "no\n",
    "outputBytes": 3,
    "omittedBytes": 0,
    "omittedLines": 0,
    "droppedBytes": 0,
    "outputPath": "/h/tasks/8f3kr9/output",
    "cwd": "/h",
    "createdAt": "2026-11-30T12:04:31.208Z",
    "startedAt": "2026-11-30T12:04:31.210Z",
    "endedAt": "2026-11-30T12:04:32.000Z",
    "durationMs": 790,
    "cpuMs": 12,
    "maxRssBytes": None,
    "survivors": [{"pid": 7, "command": "sleep 9"}],
}


def decode(method: str, value: dict[str, Any]) -> Any:
    return r.decode_result(method, json.dumps(value).encode())


@pytest.mark.parametrize("method", ["bash", "execute", "wait"])
def test_a_call_is_finished_running_or_not_reached_yet(method: str) -> None:
    finished, running, kickoff = (decode(method, v) for v in (FINISHED, RUNNING, KICKOFF))
    assert type(finished) is r.Finished
    assert (finished.status, finished.exit_code, finished.as_) == ("failed", 2, "ci")
    assert finished.survivors[0].command == "sleep 9"
    assert (finished.stdout, finished.value, finished.session_reset) == (None, None, False)
    assert type(running) is r.Running
    assert (running.elapsed_ms, running.output, running.ready) == (20_001, "x\n", False)
    assert type(kickoff) is r.Kickoff
    assert (kickoff.queue_position, kickoff.kickoff_id) == (3, "k8f3kr9")


def test_a_cancel_of_one_and_of_all_are_told_apart() -> None:
    facts = {"status": "cancelled", "outcome": "cancelled", "signalled": [7], "survivors": []}
    assert type(decode("cancel", facts)) is r.Cancelled
    every = decode("cancel", {"tasks": [{"taskId": "t1", **facts}], "count": 1})
    assert type(every) is r.CancelledAll
    assert every.tasks[0].signalled == [7]


def test_what_a_newer_engine_adds_is_no_error() -> None:
    assert decode("write_stdin", {"written": 3, "more": {"a": 1}}).written == 3


def test_what_must_be_there_is_missed_by_name() -> None:
    less = {name: value for name, value in RUNNING.items() if name != "hint"}
    with pytest.raises(msgspec.ValidationError, match="queuePosition"):
        decode("wait", less)  # so it is taken for what asks the least
    with pytest.raises(msgspec.ValidationError, match="written"):
        decode("write_stdin", {})


def test_a_stale_fingerprint_is_told_in_any_result() -> None:
    assert decode("write_stdin", {"written": 3, "schemaChanged": True}).schema_changed is True
    assert decode("write_stdin", {"written": 3}).schema_changed is False


def test_a_forgotten_row_has_an_id_and_nothing_else() -> None:
    page = {"hasMore": False, "next": None, "latestSeq": 9, "nextChangedAfter": 9}
    (row,) = decode(
        "list_tasks", {"tasks": [{"taskId": "t1", "status": "forgotten"}], **page}
    ).tasks
    assert row == TaskRow(task_id="t1", status="forgotten")
    assert (row.title, row.created_at, row.exit_code) == ("", "", None)


def test_the_marker_stands_among_the_lines() -> None:
    line = {"seq": 4, "time": "2026-11-30T12:04:31.208Z", "level": "error", "caller": None}
    line |= {"taskId": None, "source": "engine", "text": "no"}
    marker = {"marker": True, "leftOut": 2, "text": "2 error lines left out"}
    logs = decode("wait", {**FINISHED, "logs": [line, marker]}).logs
    assert [(entry.marker, entry.seq, entry.left_out) for entry in logs] == [
        (False, 4, 0),
        (True, None, 2),
    ]
    assert isinstance(logs[0], LogEntry)


def test_pages_are_text_or_bytes() -> None:
    page = {"offset": 0, "nextOffset": 2, "size": 2, "eof": True, "droppedBytes": 0}
    assert decode("read_output", {**page, "text": "hi"}).text == "hi"
    assert decode("read_output", {**page, "base64": "/wA="}).base64 == b"\xff\x00"
