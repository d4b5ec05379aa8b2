"""The replies of `bash`, `execute` and `wait`, and the rows of the task list, in wire form."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from engine.model import Kind, TaskRecord, rfc3339
from engine.server import outputs
from engine.tasks.supervisor import Supervisor
from engine.tasks.task import Task

LOG_MEMBERS: dict[str, Any] = {"notices": []}  # nothing raises any yet; `logs`: see `logs`


def _time(ms: int | None) -> str | None:
    return None if ms is None else rfc3339(ms)


async def finished(
    task: Task, limit_bytes: int, json_limit: int, *, errors: int | None
) -> dict[str, Any]:
    """The reply about a task that has ended; output: `limit_bytes`, as JSON `json_limit`.

    `errors`: see `outputs.whole`.
    """
    record = task.record
    code = _of_code(record, json_limit // 2) if record.kind is Kind.CODE else {}
    json_limit -= len(msgspec.json.encode(code))
    reply: dict[str, Any] = {
        "status": record.status,
        "taskId": record.task_id,
        "kickoffId": record.kickoff_id,
        "as": record.caller,
        "exitCode": record.exit_code,
        "signal": record.signal,
        "reason": record.reason,
        **await outputs.whole(task, limit_bytes, json_limit, errors=errors),
        "outputPath": outputs.paths(task),
        "cwd": record.cwd,
        "createdAt": _time(record.created_at),
        "startedAt": _time(record.started_at),
        "endedAt": _time(record.ended_at),
        "durationMs": record.duration_ms,
        "cpuMs": record.cpu_ms,
        "maxRssBytes": None,
        "survivors": [msgspec.to_builtins(survivor) for survivor in record.survivors],
        **LOG_MEMBERS,
    }
    if record.error is not None:
        reply["error"] = msgspec.to_builtins(record.error)
    reply |= code
    if record.cwd_missing is not None:
        reply["cwdMissing"] = record.cwd_missing
    return reply


def _of_code(record: TaskRecord, json_limit: int) -> dict[str, Any]:
    """What only calls of code have; the value may be `json_limit` bytes of JSON."""
    value = record.value
    while value is not None and len(msgspec.json.encode(value)) > json_limit:
        value = value[: len(value) * 3 // 4]
    return {
        "value": value,
        "error": None if record.error is None else msgspec.to_builtins(record.error),
        "sessionReset": record.session_reset,
    }


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
    record = task.record
    if record.started_at is None or task.is_launching:
        return _waiting(supervisor, task)
    if is_first:
        members = await outputs.so_far(
            task, caller, limit_bytes, json_limit, is_onlooker=is_onlooker
        )
    else:  # few enough characters for any reply
        members = await outputs.news(task, caller, limit_bytes, is_onlooker=is_onlooker)
    now, last_output_at = int(time.time() * 1000), task.record.last_output_at
    if members["outputBytes"] > task.record.output_bytes:  # the keeper has not told of it yet
        last_output_at = now
    return {
        "status": "running",
        "taskId": record.task_id,
        "kickoffId": record.kickoff_id,
        "as": record.caller,
        "elapsedMs": max(0, now - record.started_at),
        "lastOutputAt": _time(last_output_at),
        **members,
        "hint": f'Call wait with {{"taskId": "{record.task_id}"}} to go on waiting for its end.',
        **LOG_MEMBERS,
    }


def _waiting(supervisor: Supervisor, task: Task) -> dict[str, Any]:
    record = task.record
    position, reason = supervisor.queue_facts(task) or (1, "starting")
    return {
        "status": "running",
        "kickoffId": record.kickoff_id,
        "as": record.caller,
        "queuePosition": position,
        "queueReason": reason,
        "hint": f'Call wait with {{"kickoffId": "{record.kickoff_id}"}} to wait for its task.',
        **LOG_MEMBERS,
    }


def row(
    supervisor: Supervisor, record: TaskRecord, changed_seq: int, tally: tuple[int, int]
) -> dict[str, Any]:
    """A row of `list_tasks`: all fields, always. `tally`: lines that are errors, and warnings."""
    errors, warnings = tally
    live = supervisor.catalog.live.get(record.id)
    facts = supervisor.queue_facts(live) if live is not None else None
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
        "lane": None,
        "queuePosition": facts[0] if facts else None,
        "queueReason": facts[1] if facts else None,
        "blockedOn": None,
        "roundId": None,
        "seat": None,
        "changedSeq": changed_seq,
    }
