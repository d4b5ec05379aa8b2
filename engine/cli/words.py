"""The sentences that the command line says about tasks and errors. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from engine.cli import units
from engine.client import errors

Row = dict[str, Any]


def refusal(exc: errors.Refused, subject: str = "") -> str:
    """One line for an error reply, about `subject`, the handle that was asked for."""
    typed = bool(subject)  # on the command line, and no params of a call
    subject = str(exc.data.get("id") or subject)
    if exc.code == errors.UNKNOWN_HANDLE and subject:
        return f"no such {'round' if subject.startswith('r') else 'task'} {subject}"
    if exc.code == errors.EXPIRED_HANDLE and subject:
        ended = str(exc.data.get("endedAt") or "")[:10]
        facts = " ".join(w for w in (ended, str(exc.data.get("status") or "")) if w)
        return f"{subject} is expired (ended {facts}): dropped, with its output"
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
    """`running`, `running input`, `queued #1`, `failed 1`, `failed KILL`: fits a column."""
    status = look(row)
    if status == "running" and row.get("blockedOn"):
        return f"running {row['blockedOn'].get('category') or ''}".rstrip()
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
    """`succeeded`, `failed, exit 1`, `failed, SIGKILL`, `timed out`: how it ended, in words.

    Of one that was skipped also why, where the row says so.
    """
    status = str(row["status"]).replace("_", " ")
    if row["status"] == "skipped" and row.get("queueReason"):
        return f"skipped: {row['queueReason']}"
    if row["status"] != "failed":
        return status
    if row.get("reason") == "out_of_memory":
        return "failed, out of memory"
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


def still(row: Row, now: datetime) -> str:
    """`t8f3kr9 still running after 4m42s (output 3s ago)`, of one that has not ended."""
    if is_waiting(row):
        return f"{row_handle(row)} still {waiting(row)}"
    line = f"{row_handle(row)} still running"
    if row.get("startedAt"):
        line += f" after {units.duration(units.since(row['startedAt'], now))}"
    if row.get("lastOutputAt"):
        line += f" (output {units.age(units.since(row['lastOutputAt'], now))} ago)"
    return line


def blocked(row: Row) -> str:
    """`waits for input: Name?`: what a task is blocked on; empty where it is on nothing."""
    on = row.get("blockedOn") or {}
    category = on.get("category")
    if category == "input":
        prompt = str(on.get("prompt") or "").strip()
        return f"waits for input: {prompt}" if prompt else "waits for input"
    if category == "idle":
        return "is idle: no output and no processor time"
    if category == "lane":
        return f"waits for lane {on.get('lane')}"
    if category == "after":
        return f"waits for {' '.join(map(str, on.get('ids') or ()))}"
    return ""


def cancelled(name: str, count: int) -> str:
    """`t8f3kr9 cancelled, 2 processes`; none of one that had not begun."""
    if not count:
        return f"{name} cancelled"
    return f"{name} cancelled, {count} {'process' if count == 1 else 'processes'}"


def going_on(count: int) -> str:
    """`3 go on`: tasks that have not ended."""
    return "1 goes on" if count == 1 else f"{count} go on"


def goes_on(update: Row) -> str:
    """`t8f3kr9 waits for input: Name?`: what a wait for many has to tell of one that goes on."""
    if update["ready"] == "ready_when":
        return f"{handle(update)} is ready"
    if is_waiting(update):
        return f"{handle(update)} is {waiting(update)}"
    return f"{handle(update)} {blocked(update) or 'is blocked'}"


def round_ended(entry: Row) -> str:
    """`r5k2 ended: 3 of 4 succeeded; not lint (failed 1)`."""
    seats = entry["seats"]
    bad = [f"{n} ({short_status(s)})" for n, s in seats.items() if s["status"] != "succeeded"]
    line = f"{entry['roundId']} ended: {len(seats) - len(bad)} of {len(seats)} succeeded"
    return line + (f"; not {', '.join(bad)}" if bad else "")


def round_goes_on(entry: Row) -> str:
    """`round r5k2 goes on: lint failed 1`: seats that are lost while their peers run."""
    seats = entry["seats"].items()
    lost = [f"{n} {blocked(s) or short_status(s)}" for n, s in seats if _is_lost(s)]
    return f"round {entry['roundId']} goes on: {', '.join(lost)}"


def _is_lost(seat: Row) -> bool:
    is_ended = seat["status"] not in ("running", "queued", "held")
    return bool(seat["status"] != "succeeded" if is_ended else seat.get("blockedOn"))


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
        return f"{name} {outcome(record)}"
    if unstarted(record):
        return f"{name} {unstarted(record)}"
    return f"{name} {outcome(record)}, after {after}"


def unstarted(record: Row) -> str:
    """`not started, exit 127: No such file`; empty where that was not it, or nothing tells why."""
    error = spawn_error(record)
    return f"not started, exit {record.get('exitCode')}: {error}" if error else ""


def spawn_error(record: Row) -> str:
    """Why a job was not started; empty where that was not it, or nothing tells why."""
    error = record.get("error")
    if record.get("reason") != "spawn_error" or not isinstance(error, dict):
        return ""
    return str(error.get("message") or "")


def plain_ended(row: Row) -> str:
    """A task's end on one line for pipes: time, id, status, exit, duration, title."""
    code = row.get("exitCode")
    exit_word = f"exit={code}" if code is not None else f"exit={row.get('signal') or '-'}"
    took = units.exact_seconds(row.get("durationMs") or 0)
    return f"{row.get('endedAt') or '-'} {handle(row)} {row['status']} {exit_word} {took}"
