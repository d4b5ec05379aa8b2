"""Each method of the wire as a function that makes the request, typed by what it answers with.

Pure. Arguments are named as the params are, in snake_case and with `as_` for `as`; one that is
None is left out, so the engine's default counts. `as_` left out is filled in by the client.
Bounds and meanings are the engine's to check: what it does not take it refuses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, Unpack

from engine.client.typed import Request
from engine.client.wire import Params
from engine.protocol.fields import LogFloor, LogLevel, LogScope, Status
from engine.protocol.results import (
    Cancelled,
    CancelledAll,
    Document,
    EngineInfo,
    Finished,
    Forgotten,
    Kickoff,
    LogPage,
    OutputPage,
    Roster,
    Running,
    SessionReset,
    ShuttingDown,
    Stats,
    TaskDetails,
    TaskPage,
    Written,
)

Reply = Finished | Running | Kickoff  # of bash, execute and wait

INLINE: Final = 20.0  # seconds that a call takes at most, and unless it says less
GRACE: Final = 5.0  # seconds from TERM to KILL unless said otherwise, and again until it is over
_ON_THE_WIRE: Final = {
    "as_": "as",
    "log_scope": "logScope",
    "task_id": "taskId",
    "kickoff_id": "kickoffId",
    "round_id": "roundId",
}


def wire_form(named: Mapping[str, Any]) -> Params:
    """These arguments as params: by their names on the wire, those that are None left out."""
    return {_ON_THE_WIRE.get(n, n): value for n, value in named.items() if value is not None}


class Common(TypedDict, total=False):
    """What every method takes: who asks, and which schema the asker knows."""

    as_: str | None
    tool_schema_fingerprint: str | None


class ReplyOptions(Common, total=False):
    """What the reply about a job may carry."""

    max_output_bytes: int | None
    logs: LogFloor | None
    log_scope: LogScope | None


class JobOptions(ReplyOptions, total=False):
    """How a job is to run."""

    deadline_secs: float | None
    session: bool | None
    cwd: str | os.PathLike[str] | None
    env: dict[str, str] | None
    stdin: Literal["null", "open"] | dict[Literal["text"], str] | None
    pty: bool | None
    streams: Literal["merged", "split"] | None
    key: str | None
    lane: str | None
    after: Sequence[str] | None
    after_when: Literal["succeeded", "failed", "ended"] | None
    ready_when: dict[Literal["contains", "port"], Any] | None


class StartOptions(JobOptions, total=False):
    """What `bash` and `execute` take beside what is to run."""

    timeout_secs: float | None
    on_disconnect: Literal["keep", "cancel"] | None


def _seconds(given: float | None, most: float = INLINE) -> float:
    return most if given is None else min(given, most)


def bash(command: str, **options: Unpack[StartOptions]) -> Request[Reply]:
    """Run bash text in the caller's session; `Running` or `Kickoff` where it outlives the call.

    Without a `key` it is not sent again when the connection is lost: `ConnectionLost`.
    """
    return _start("bash", {"command": command}, options)


def execute(
    argv: Sequence[str] | None = None,
    *,
    code: str | None = None,
    **options: Unpack[StartOptions],
) -> Request[Reply]:
    """Run an argument list without a shell, or Python in the caller's interpreter; as `bash`."""
    what = {"argv": None if argv is None else list(argv), "code": code}
    return _start("execute", what, options)


def _start(method: str, what: Params, options: Mapping[str, Any]) -> Request[Reply]:
    cwd = options.get("cwd")
    where = {"cwd": os.fspath(cwd)} if isinstance(cwd, os.PathLike) else {}
    return Request(
        method,
        wire_form({**what, **options, **where}),
        budget=_seconds(options.get("timeout_secs")),
        resend=options.get("key") is not None,
    )


def wait(
    *,
    task_id: str | None = None,
    kickoff_id: str | None = None,
    timeout_secs: float | None = None,
    **options: Unpack[ReplyOptions],
) -> Request[Reply]:
    """Resume a promoted call: its result, or how things stand when the time is spent."""
    which = {"task_id": task_id, "kickoff_id": kickoff_id, "timeout_secs": timeout_secs}
    return Request("wait", wire_form({**which, **options}), budget=_seconds(timeout_secs))


def cancel(
    *,
    task_id: str | None = None,
    kickoff_id: str | None = None,
    grace_secs: float | None = None,
    force: bool | None = None,
    **options: Unpack[Common],
) -> Request[Cancelled]:
    """End a task with all its processes; answered when they are gone."""
    which = {"task_id": task_id, "kickoff_id": kickoff_id}
    how = {"grace_secs": grace_secs, "force": force}
    budget = (GRACE if grace_secs is None else grace_secs) + GRACE
    return Request("cancel", wire_form({**which, **how, **options}), budget=budget)


def cancel_all(
    caller: str,
    *,
    grace_secs: float | None = None,
    force: bool | None = None,
    **options: Unpack[Common],
) -> Request[CancelledAll]:
    """End all that `caller` has running or queued (method `cancel`)."""
    what = {"caller": caller, "grace_secs": grace_secs, "force": force}
    budget = (GRACE if grace_secs is None else grace_secs) + GRACE
    return Request("cancel", wire_form({**what, **options}), budget=budget)


def write_stdin(
    task_id: str,
    *,
    text: str | None = None,
    base64: str | None = None,
    eof: bool | None = None,
    force: bool | None = None,
    **options: Unpack[Common],
) -> Request[Written]:
    """Feed a job whose input is open. Never sent twice."""
    what = {"task_id": task_id, "text": text, "base64": base64, "eof": eof, "force": force}
    return Request("write_stdin", wire_form({**what, **options}), resend=False)


def read_output(
    task_id: str,
    *,
    stream: Literal["output", "stdout", "stderr"] | None = None,
    offset: int | None = None,
    limit_bytes: int | None = None,
    timeout_secs: float | None = None,
    raw: bool | None = None,
    **options: Unpack[Common],
) -> Request[OutputPage]:
    """A page of the output from `offset`; with `raw` as bytes in `base64`, decoded."""
    what = {"task_id": task_id, "stream": stream, "offset": offset, "raw": raw}
    how = {"limit_bytes": limit_bytes, "timeout_secs": timeout_secs}
    return Request(
        "read_output", wire_form({**what, **how, **options}), budget=_seconds(timeout_secs or 0.0)
    )


def list_tasks(
    *,
    caller: str | None = None,
    state: list[Status] | None = None,
    limit: int | None = None,
    before: str | None = None,
    changed_after: int | None = None,
    timeout_secs: float | None = None,
    **options: Unpack[Common],
) -> Request[TaskPage]:
    """Rows, newest first; with `changed_after` those changed since, waiting for the first."""
    what = {"caller": caller, "state": state, "limit": limit, "before": before}
    how = {"changed_after": changed_after, "timeout_secs": timeout_secs}
    return Request("list_tasks", wire_form({**what, **how, **options}), budget=timeout_secs or 0.0)


def read_task(
    *, task_id: str | None = None, kickoff_id: str | None = None, **options: Unpack[Common]
) -> Request[TaskDetails]:
    """All about one task, without touching anything."""
    which = {"task_id": task_id, "kickoff_id": kickoff_id}
    return Request("read_task", wire_form({**which, **options}))


def read_logs(
    *,
    logs: LogLevel | None = None,
    log_scope: LogScope | None = None,
    caller: str | None = None,
    task_id: str | None = None,
    contains: str | None = None,
    after_seq: int | None = None,
    before_seq: int | None = None,
    since: str | None = None,
    peek: bool | None = None,
    limit: int | None = None,
    timeout_secs: float | None = None,
    wake_on: list[LogLevel] | None = None,
    **options: Unpack[Common],
) -> Request[LogPage]:
    """Lines of the journal.

    Where it moves the caller's read position it is not sent twice: what a lost reply had would be
    skipped. `after_seq` or `peek` make it safe.
    """
    which = {"logs": logs, "log_scope": log_scope, "caller": caller, "task_id": task_id}
    where = {"contains": contains, "after_seq": after_seq, "before_seq": before_seq, "since": since}
    how = {"peek": peek, "limit": limit, "timeout_secs": timeout_secs, "wake_on": wake_on}
    moves = not peek and after_seq is None and before_seq is None and since is None
    return Request(
        "read_logs",
        wire_form({**which, **where, **how, **options}),
        budget=timeout_secs or 0.0,
        resend=not moves,
    )


def forget(
    task_id: str, *, force: bool | None = None, **options: Unpack[Common]
) -> Request[Forgotten]:
    """Drop an ended task and its files. Never sent twice."""
    return Request(
        "forget", wire_form({"task_id": task_id, "force": force, **options}), resend=False
    )


def reset_session(
    kind: Literal["bash", "python"] | None = None, **options: Unpack[Common]
) -> Request[SessionReset]:
    """The caller's next call has a new session."""
    return Request("reset_session", wire_form({"kind": kind, **options}))


def engine_info(**options: Unpack[Common]) -> Request[EngineInfo]:
    """The engine's numbers."""
    return Request("engine_info", wire_form(options))


def roster(*, after: str | None = None, **options: Unpack[Common]) -> Request[Roster]:
    """The callers that there are."""
    return Request("roster", wire_form({"after": after, **options}))


def read_stats(*, since: str | None = None, **options: Unpack[Common]) -> Request[Stats]:
    """A sample for each five seconds of the last hour."""
    return Request("read_stats", wire_form({"since": since, **options}))


def discover(**options: Unpack[Common]) -> Request[Document]:
    """The OpenRPC document of the wire (method `rpc.discover`)."""
    return Request("rpc.discover", wire_form(options))


def shutdown(
    mode: Literal["leave", "cancel"] | None = None, **options: Unpack[Common]
) -> Request[ShuttingDown]:
    """End the engine (role `human`). Never sent twice."""
    return Request("shutdown", wire_form({"mode": mode, **options}), resend=False)
