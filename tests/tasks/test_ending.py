from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.model import Failure, Kind, Status, Survivor, TaskRecord
from engine.tasks import ending

RECORD = TaskRecord(
    id="8f3kr9", caller="ci", kind=Kind.BASH, title="x", order=1, created_at=1_000, cwd="/asked"
)


def end(cause: str, code: int | None, signal: int | None = None, **more: Any) -> dict[str, Any]:
    return {
        "pid": 5,
        "cause": cause,
        "exitCode": code,
        "signal": signal,
        "error": None,
        "startedAt": 2_000,
        "endedAt": 5_500,
        "durationMs": 3_500,
        "cpuMs": 12,
        "cwd": "/there",
        "survivors": [],
        "sizes": [4],
        "dropped": [[]],
        **more,
    }


@pytest.mark.parametrize(
    ("written", "status", "reason", "code", "signal"),
    [
        (end("exit", 0), "succeeded", "exit", 0, None),
        (end("exit", 7), "failed", "exit", 7, None),
        (end("exit", 143), "failed", "exit", 143, None),
        (end("signal", None, 9), "failed", "signal", None, "SIGKILL"),
        (end("signal", None, 35), "failed", "signal", None, "SIGRTMIN+1"),
        (end("cancelled", 0), "cancelled", "cancelled", 0, None),
        (end("cancelled", None, 15), "cancelled", "cancelled", None, "SIGTERM"),
        (end("deadline", 3), "timed_out", "deadline", 3, None),
        (end("lost", None), "lost", "lost", None, None),
        (end("out_of_memory", None, 9), "failed", "out_of_memory", None, "SIGKILL"),
        (end("out_of_memory", 137), "failed", "out_of_memory", 137, None),
    ],
)
def test_status_and_reason_follow_from_cause_and_code(
    written: dict[str, Any], status: str, reason: str, code: int | None, signal: str | None
) -> None:
    record = ending.ended(RECORD, written)
    assert (record.status, record.reason) == (status, reason)
    assert (record.exit_code, record.signal) == (code, signal)
    assert (record.started_at, record.ended_at, record.duration_ms) == (2_000, 5_500, 3_500)
    assert (record.cpu_ms, record.cwd, record.output_bytes) == (12, "/there", 4)


def test_the_peak_of_memory_is_known_where_a_cgroup_measured_it() -> None:
    assert ending.ended(RECORD, end("exit", 0)).max_rss_bytes is None
    measured = end("exit", 0, oomKills=0, maxRssBytes=4096)
    assert ending.ended(RECORD, measured).max_rss_bytes == 4096


def test_what_could_not_be_started_says_why_and_keeps_its_directory() -> None:
    error = {"errno": 2, "message": "no\udcff"}
    record = ending.ended(RECORD, end("spawn_error", 127, error=error, cwd=""))
    assert (record.status, record.reason, record.exit_code) == ("failed", "spawn_error", 127)
    assert record.error == Failure(errno=2, message="no\N{REPLACEMENT CHARACTER}")
    assert record.cwd == "/asked"


CALL = TaskRecord(
    id="8f3kr9", caller="ci", kind=Kind.CODE, title="x", order=1, created_at=1_000, session=True
)


def test_code_has_a_value_or_an_error_with_its_type() -> None:
    record = ending.ended(CALL, end("exit", 0, value="[1]", sessionReset=False))
    assert (record.status, record.value, record.session_reset) == ("succeeded", "[1]", False)
    error = {"type": "KeyError", "message": "'k'"}
    record = ending.ended(CALL, end("exit", 1, error=error, value=None, sessionReset=False))
    assert (record.status, record.value) == ("failed", None)
    assert record.error == Failure(type="KeyError", message="'k'")


def test_code_that_ends_its_session_has_failed_whatever_its_exit_code() -> None:
    record = ending.ended(CALL, end("exit", 0, value=None, sessionReset=True))
    assert (record.status, record.exit_code, record.session_reset) == ("failed", 0, True)
    record = ending.ended(CALL, ending.lost(CALL, 9_000, (), (), None))
    assert (record.status, record.session_reset) == ("lost", True)
    alone = msgspec.structs.replace(CALL, session=False)
    record = ending.ended(alone, end("exit", 0, value=None, sessionReset=True))
    assert (record.status, record.session_reset) == ("succeeded", False)


def test_what_a_job_has_forged_is_taken_as_it_stands_and_can_be_told() -> None:
    half = "\ud800"
    error = {"type": half, "message": half, "more": [1], "errno": None}
    record = ending.ended(
        CALL,
        end("exit", 1, error=error, value=half, cwd=half, survivors=[{"pid": 7, "command": half}]),
    )
    assert (record.error, record.value) == (Failure(type="?", message="?"), "?")
    assert (record.cwd, record.survivors[0].command) == ("?", "?")
    msgspec.json.encode(record)


def test_an_end_that_stands_is_not_written_over() -> None:
    first = ending.ended(RECORD, end("cancelled", 0))
    assert ending.ended(first, end("exit", 0)) is first


def test_survivors_and_what_was_dropped_are_taken_over() -> None:
    left = [{"pid": 7, "command": "sleep 1"}]
    record = ending.ended(
        RECORD, end("exit", 0, survivors=left, sizes=[1, 9], dropped=[[], [[2, 4], [6, 7]]])
    )
    assert record.survivors == (Survivor(pid=7, command="sleep 1"),)
    assert (record.output_bytes, record.dropped_bytes) == (10, 3)


def test_a_kickoff_taken_off_the_queue_never_started() -> None:
    record = ending.ended(RECORD, ending.unstarted("cancelled", 9_000))
    assert (record.status, record.ended_at) == (Status.CANCELLED, 9_000)
    assert (record.started_at, record.duration_ms, record.exit_code) == (None, None, None)


def test_a_lost_job_keeps_its_start_and_its_output() -> None:
    for known, claimed, wanted in ((2_500, None, 2_500), (None, 2_400, 2_400), (None, None, None)):
        before = TaskRecord(
            id="x", caller="ci", kind=Kind.BASH, title="x", order=1, created_at=1, started_at=known
        )
        record = ending.ended(before, ending.lost(before, 9_000, (5,), (), claimed))
        assert (record.status, record.started_at) == ("lost", wanted)
        assert (record.ended_at, record.output_bytes) == (9_000, 5)
