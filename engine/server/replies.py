"""The replies of `bash`, `execute` and `wait`, and the rows of the task list, in wire form."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from engine.model import Kind, TaskRecord, now_ms, rfc3339
from engine.server import outputs
from engine.server.fitting import PATH_BYTES, clip, fit
from engine.tasks.schedule import Place
from engine.tasks.supervisor import Supervisor
from engine.tasks.task import Task

LOG_MEMBERS: dict[str, Any] = {"notices": []}  # see `delivering`; of `logs`: see `logs`
ERROR_BYTES: Final = 256  # of what an error says, shown where there is no room at all
LONG_MS: Final = 20_000  # so old, a task is waited for by `wait_any`, which waits for longer


def _time(ms: int | None) -> str | None:
    return None if ms is None else rfc3339(ms)


async def finished(
    task: Task, limit_bytes: int, json_limit: int, *, errors: int | None
) -> dict[str, Any]:
    """The reply about a task that has ended; output: `limit_bytes`, as JSON `json_limit`.

    `errors`: see `outputs.whole`.
    """
    record = task.record
    facts = ended(task, json_limit)
    code = _of_code(record, json_limit // 2) if record.kind is Kind.CODE else {}
    said = len(msgspec.json.encode([facts.get("error"), code]))
    written = await outputs.whole(task, limit_bytes, max(0, json_limit - said), errors=errors)
    return code | facts | written | LOG_MEMBERS


def ended(task: Task, json_limit: int) -> dict[str, Any]:
    """Of the reply about a task that has ended, what is neither written by it nor its log.

    What an error says may take a quarter of `json_limit` bytes of JSON.
    """
    record = task.record
    reply: dict[str, Any] = {
        "status": record.status,
        "taskId": record.task_id,
        "kickoffId": record.kickoff_id,
        "as": record.caller,
        "exitCode": record.exit_code,
        "signal": record.signal,
        "reason": record.reason,
        "outputBytes": record.output_bytes,
        "droppedBytes": record.dropped_bytes,
        "outputPath": outputs.paths(task),
        "cwd": path(record.cwd),
        "createdAt": _time(record.created_at),
        "startedAt": _time(record.started_at),
        "endedAt": _time(record.ended_at),
        "durationMs": record.duration_ms,
        "cpuMs": record.cpu_ms,
        "maxRssBytes": record.max_rss_bytes,
        "survivors": [msgspec.to_builtins(survivor) for survivor in record.survivors],
    }
    if record.error is not None:
        error = msgspec.to_builtins(record.error)
        reply["error"] = fit(error, max(json_limit // 4, ERROR_BYTES))
    if record.cwd_missing is not None:
        reply["cwdMissing"] = path(record.cwd_missing)
    if record.skipped_for is not None:
        reply["queueReason"] = record.skipped_for
    return reply


def path(text: str | None) -> str | None:
    """A path, as much as a reply has room for: what a shell goes down to may be of any length."""
    return None if text is None else clip(text, PATH_BYTES, None)


def _of_code(record: TaskRecord, json_limit: int) -> dict[str, Any]:
    """What only calls of code have; the value may be `json_limit` bytes of JSON."""
    value = None if record.value is None else clip(record.value, json_limit)
    return {"value": value, "error": None, "sessionReset": record.session_reset}


async def running(
    supervisor: Supervisor,
    task: Task,
    caller: str,
    limit_bytes: int,
    json_limit: int,
    *,
    is_first: bool,
    is_onlooker: bool,
) -> dict[str, Any]:
    """The reply about a task that goes on: started, or a kickoff that waits.

    `is_first`: of the call that began it, which tells all there is; else what is new. What an
    onlooker is shown counts for nobody as told.
    """
    facts = standing(supervisor, task)
    if not task.is_started:
        return facts | LOG_MEMBERS
    if is_first:
        members = await outputs.so_far(
            task, caller, limit_bytes, json_limit, is_onlooker=is_onlooker
        )
    else:  # few enough characters for any reply
        members = await outputs.news(task, caller, limit_bytes, is_onlooker=is_onlooker)
    if members["outputBytes"] > task.record.output_bytes:  # the keeper has not told of it yet
        facts["lastOutputAt"] = _time(now_ms())
    return facts | members | LOG_MEMBERS


def standing(supervisor: Supervisor, task: Task) -> dict[str, Any]:
    """Of the reply about a task that goes on, what is neither its output nor its log."""
    if not task.is_started:
        return _waiting(supervisor, task)
    record = task.record
    assert record.started_at is not None
    return {
        "status": "running",
        "taskId": record.task_id,
        "kickoffId": record.kickoff_id,
        "as": record.caller,
        "elapsedMs": max(0, now_ms() - record.started_at),
        "lastOutputAt": _time(record.last_output_at),
        **({} if record.ready_when is None else {"ready": record.ready}),
        **({"warnings": list(record.warnings)} if record.warnings else {}),
        **({} if record.blocked is None else {"blockedOn": blockage(record)}),
        "hint": _hint_running(record),
    }


def blockage(record: TaskRecord) -> dict[str, Any] | None:
    """What a task that runs is blocked on, in wire form."""
    if record.blocked == "input":
        return {"category": "input", "prompt": record.prompt or ""}
    return None if record.blocked is None else {"category": record.blocked}


def _waiting(supervisor: Supervisor, task: Task) -> dict[str, Any]:
    record = task.record
    place = supervisor.schedule.place(task) or Place(1, "starting")
    position, reason, blocked_on = place
    blocked = {} if blocked_on is None else {"blockedOn": blocked_on}
    return {
        "status": "running",
        "kickoffId": record.kickoff_id,
        "as": record.caller,
        "queuePosition": position,
        "queueReason": reason,
        **blocked,
        "hint": _hint("kickoffId", record.kickoff_id, record.created_at, "wait for its task"),
    }


def _hint_running(record: TaskRecord) -> str:
    """The next call to make about a task that runs: one that hangs on its input is answered."""
    assert record.started_at is not None
    if record.blocked == "input":
        call = f'{{"taskId": "{record.task_id}", "text": "…\\n"}}'
        return f"Call write_stdin with {call} to answer what it waits for."
    return _hint("taskId", record.task_id, record.started_at, "go on waiting for its end")


def _hint(name: str, handle: str, since: int, purpose: str) -> str:
    """The next call to make, in a sentence."""
    if now_ms() - since > LONG_MS:
        return f'Call wait_any with {{"ids": ["{handle}"]}} to {purpose}.'
    return f'Call wait with {{"{name}": "{handle}"}} to {purpose}.'


def row(
    supervisor: Supervisor,
    record: TaskRecord,
    changed_seq: int,
    tally: tuple[int, int],
) -> dict[str, Any]:
    """A row of `list_tasks`: all fields, always. `tally`: lines that are errors, and warnings."""
    errors, warnings = tally
    live = supervisor.catalog.live.get(record.id)
    place = supervisor.schedule.place(live) if live is not None else None
    return {
        "taskId": record.task_id,
        "kickoffId": record.kickoff_id,
        "as": record.caller,
        "kind": record.kind,
        "title": record.title,
        "status": record.status,
        "reason": record.reason,
        "exitCode": record.exit_code,
        "signal": record.signal,
        "createdAt": _time(record.created_at),
        "startedAt": _time(record.started_at),
        "endedAt": _time(record.ended_at),
        "durationMs": record.duration_ms,
        "lastOutputAt": _time(record.last_output_at),
        "outputBytes": record.output_bytes,
        "errorLines": errors,
        "warningLines": warnings,
        "lane": record.lane,
        "queuePosition": place.position if place else None,
        "queueReason": place.reason if place else record.skipped_for,
        "blockedOn": place.blocked_on if place else blockage(record),
        "roundId": record.round_id,
        "seat": record.seat,
        "changedSeq": changed_seq,
    }
