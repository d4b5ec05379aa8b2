"""The sentences that the command line says about tasks and errors. Pure."""

from __future__ import annotations

from typing import Any

from engine.cli import units
from engine.client import errors

Row = dict[str, Any]


def refusal(exc: errors.Refused, subject: str = "") -> str:
    """One line for an error reply, about `subject`, the handle that was asked for."""
    typed = bool(subject)  # on the command line, and no params of a call
    subject = str(exc.data.get("id") or subject)
    if exc.code == errors.UNKNOWN_HANDLE and subject:
        return f"no such task {subject}"
    if exc.code == errors.EXPIRED_HANDLE and subject:
        ended = str(exc.data.get("endedAt") or "")[:10]
        facts = " ".join(w for w in (ended, str(exc.data.get("status") or "")) if w)
        return f"{subject} is expired (ended {facts}); its output was dropped"
    if exc.code == errors.FORBIDDEN and subject:
        text = str(exc).replace("with force: true", "with --force") if typed else str(exc)
        return text if subject[1:] in text else f"{subject}: {text}"
    return str(exc)


def handle(row: Row) -> str:
    """The id to call a task by: the task's, or the kickoff's where it is not reached yet."""
    return str(row.get("taskId") or row.get("kickoffId") or "?")


def row_handle(row: Row) -> str:
    """The id of a row of the list: a queued call is a kickoff, whatever id its task will have."""
    kickoff = row.get("kickoffId")
    return str(kickoff) if kickoff and row["status"] in ("queued", "held") else handle(row)


def is_waiting(row: Row) -> bool:
    """Whether the engine has accepted the call and not reached it yet."""
    return row["status"] in ("queued", "held") or (
        row["status"] == "running" and not row.get("taskId")
    )


def look(row: Row) -> str:
    """The status for glyph and colour; a reply calls a waiting call running, a row queued."""
    return "queued" if row["status"] == "running" and is_waiting(row) else str(row["status"])


def short_status(row: Row) -> str:
    """`running`, `queued #1`, `failed 1`, `failed KILL`: fits a column."""
    status = look(row)
    if status == "queued" and row.get("queuePosition") is not None:
        return f"queued #{row['queuePosition']}"
    if status == "failed":
        code = row.get("exitCode")
        if code is not None:
            return f"failed {code}"
        return (
            "failed " + str(row.get("signal") or "").removeprefix("SIG")
            if row.get("signal")
            else "failed"
        )
    return status


def outcome(row: Row) -> str:
    """`succeeded`, `failed, exit 1`, `failed, SIGKILL`, `timed out`: how it ended, in words."""
    status = str(row["status"]).replace("_", " ")
    if row["status"] != "failed":
        return status
    if row.get("exitCode") is not None:
        return f"failed, exit {row['exitCode']}"
    return f"failed, {row['signal']}" if row.get("signal") else "failed"


def waiting(row: Row) -> str:
    """`queued #2: lane gpu is full (1 of 1)`."""
    head = "held" if row["status"] == "held" else "queued"
    if head == "queued" and row.get("queuePosition") is not None:
        head += f" #{row['queuePosition']}"
    reason = row.get("queueReason")
    return f"{head}: {reason}" if reason else head


def run_ended(record: Row, cancelled_processes: int | None = None) -> str | None:
    """The one line under a run that ended badly; None for one that ended well."""
    status, name = record["status"], handle(record)
    if status == "succeeded":
        return None
    after = units.duration(record.get("durationMs") or 0)
    if status == "timed_out":
        return f"{name} timed out after {after} (--deadline)"
    if status == "cancelled":
        line = f"{name} cancelled after {after}"
        if cancelled_processes:
            noun = "process" if cancelled_processes == 1 else "processes"
            line += f", {record.get('signal') or 'SIGTERM'}, {cancelled_processes} {noun}"
        return line
    if status == "lost":
        return f"{name} is lost: nobody saw its end; engine output {name} has what it wrote"
    if status == "denied":
        return f"{name} denied: {record.get('decisionText') or 'no reason given'}"
    if status == "skipped":
        return f"{name} skipped: {record.get('reason') or 'what it waited for did not happen'}"
    error = record.get("error")
    if record.get("reason") == "spawn_error" and isinstance(error, dict):
        return f"{name} not started, exit {record.get('exitCode')}: {error.get('message')}"
    return f"{name} {outcome(record)}, after {after}"


def plain_ended(row: Row) -> str:
    """A task's end on one line for pipes: time, id, status, exit, duration, title."""
    code = row.get("exitCode")
    exit_word = f"exit={code}" if code is not None else f"exit={row.get('signal') or '-'}"
    took = units.exact_seconds(row.get("durationMs") or 0)
    return f"{row.get('endedAt') or '-'} {handle(row)} {row['status']} {exit_word} {took}"
