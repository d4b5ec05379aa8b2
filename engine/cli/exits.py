"""Exit codes of the command line, and what of a task's record they are made from. Pure."""

from __future__ import annotations

import signal
from typing import Any, Final

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
NOT_REACHABLE: Final = 69
STILL_RUNNING: Final = 75
NOT_ALLOWED: Final = 77
TIMED_OUT: Final = 124
OURS: Final = 125  # of the verbs that exit as a job does: the fault is not the job's
INTERRUPTED: Final = 130
CANCELLED: Final = 143
BROKEN_PIPE: Final = 141

ENDED: Final = frozenset(
    ("succeeded", "failed", "cancelled", "timed_out", "lost", "skipped", "denied")
)


def signal_number(name: str) -> int:
    """The number of `SIGKILL`, `SIGRTMIN+1`, …; 0 for a name that is not known here."""
    base, _, offset = name.partition("+")
    try:
        return signal.Signals[base].value + int(offset or 0)
    except (KeyError, ValueError):
        return 0


def of_task(record: dict[str, Any]) -> int:
    """The exit code for a task that has ended: the job's own where it has one."""
    status = record["status"]
    if status == "timed_out":
        return TIMED_OUT
    if status == "denied":
        return NOT_ALLOWED
    if status in ("lost", "skipped"):
        return OURS
    if isinstance(record.get("exitCode"), int):
        return int(record["exitCode"])
    if status == "cancelled":
        return CANCELLED
    number = signal_number(record.get("signal") or "")
    return 128 + number if number else OURS
