"""From what a keeper wrote down to what the task became: pure functions of record and end."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from engine.model import Failure, Kind, Status, Survivor, TaskRecord, as_text, signal_name

# Cause in the `exit` file -> status and reason; `exit` alone depends on the code.
_ENDS: Final[dict[str, tuple[Status, str]]] = {
    "signal": (Status.FAILED, "signal"),
    "spawn_error": (Status.FAILED, "spawn_error"),
    "deadline": (Status.TIMED_OUT, "deadline"),
    "cancelled": (Status.CANCELLED, "cancelled"),
    "out_of_memory": (Status.FAILED, "out_of_memory"),
    "lost": (Status.LOST, "lost"),
    "skipped": (Status.SKIPPED, "skipped"),
}


def ended(record: TaskRecord, end: dict[str, Any]) -> TaskRecord:
    """`record` with the end that the `exit` file tells of. A final record stays as it is."""
    if record.status.is_final:
        return record
    code, number = end["exitCode"], end["signal"]
    cause = end["cause"]
    is_reset = record.session and bool(end.get("sessionReset"))
    if cause == "exit":
        is_good = code == 0 and not is_reset  # nothing that ends its own session has ended well
        status, reason = (Status.SUCCEEDED if is_good else Status.FAILED), "exit"
    else:
        status, reason = _ENDS[cause]
    changed = msgspec.structs.replace(
        record,
        status=status,
        reason=reason,
        exit_code=code,
        signal=None if number is None else signal_name(number),
        error=None if end["error"] is None else _failure(end["error"]),
        value=_text(end.get("value")),
        session_reset=is_reset or record.session_reset,  # it may have been so from the start
        started_at=end["startedAt"],
        ended_at=end["endedAt"],
        duration_ms=end["durationMs"],
        cpu_ms=end["cpuMs"],
        max_rss_bytes=end.get("maxRssBytes"),
        cwd=as_text(end["cwd"]) or record.cwd,
        survivors=tuple(_survivor(s) for s in end["survivors"]),
        skipped_for=_text(end.get("skippedFor")),
        blocked=None,
        prompt=None,
    )
    return grown(changed, end)


def _failure(error: dict[str, Any]) -> Failure:
    # By name: what else a job has put there is none of ours.
    return Failure(
        errno=error.get("errno"), type=_text(error.get("type")), message=as_text(error["message"])
    )


def _survivor(found: dict[str, Any]) -> Survivor:
    return Survivor(pid=found["pid"], command=as_text(found["command"]))


def _text(text: str | None) -> str | None:
    return None if text is None else as_text(text)


def grown(record: TaskRecord, news: dict[str, Any]) -> TaskRecord:
    """`record` with the sizes of its output files and what was dropped of them."""
    return msgspec.structs.replace(
        record,
        sizes=tuple(news["sizes"]),
        dropped=tuple(tuple((a, b) for a, b in ranges) for ranges in news["dropped"]),
    )


def unstarted(
    cause: str, now: int, *, error: dict[str, Any] | None = None, exit_code: int = 126
) -> dict[str, Any]:
    """The end of a job that no process came of, in the form of the `exit` file.

    `exit_code`: of what could not be started, as a shell has it.
    """
    return {
        "pid": 0,
        "cause": cause,
        "exitCode": exit_code if cause == "spawn_error" else None,
        "signal": None,
        "error": error,
        "startedAt": None,
        "endedAt": now,
        "durationMs": None,
        "cpuMs": None,
        "cwd": "",
        "survivors": [],
        "sizes": [],
        "dropped": [],
    }


def skipped(now: int, why: str) -> dict[str, Any]:
    """The end of a job that cannot start any more, because of how another has ended."""
    return {**unstarted("skipped", now), "skippedFor": why}


def lost(
    record: TaskRecord,
    now: int,
    sizes: tuple[int, ...],
    dropped: tuple[tuple[tuple[int, int], ...], ...],
    started_at: int | None,
) -> dict[str, Any]:
    """The end of a job whose keeper died before it could write one.

    `dropped`: of its output, should its keeper not have told of that.
    """
    gone = record.dropped if any(record.dropped) else dropped
    return {
        **unstarted("lost", now),
        "startedAt": record.started_at if started_at is None else started_at,
        "sizes": list(sizes),
        "dropped": [[list(pair) for pair in ranges] for ranges in gone],
        "sessionReset": record.kind is Kind.CODE,  # an interpreter goes with its keeper
    }
