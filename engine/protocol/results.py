"""The results of every method: what a client decodes, and what the document of the wire is made of.

A member with a default may be absent; one that may be null says so and has none. Members that are
new are no error, so a client goes on with a newer engine. The engine itself writes most results
as plain objects; the tests hold them to these types. Times are RFC 3339 UTC with milliseconds.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from engine.protocol.fields import Status
from engine.protocol.parts import (
    CancelledTask,
    Ended,
    Failure,
    HourStats,
    Lane,
    LogEntry,
    LogLine,
    Notice,
    Part,
    RosterEntry,
    RoundRow,
    RoundStatus,
    RoundUpdate,
    Sample,
    SeatHandle,
    Survivor,
    TaskRow,
    Update,
)


class Result(Part, frozen=True, kw_only=True):
    """What any result may have."""

    schema_changed: bool = False  # the fingerprint that the call brought is not the present one
    notices: list[Notice] = msgspec.field(default_factory=list)


class CallResult(Result, frozen=True, kw_only=True):
    """What all replies of `bash`, `execute` and `wait` have."""

    kickoff_id: str
    as_: str = msgspec.field(name="as")
    logs: list[LogEntry]
    logs_dropped: int
    logs_behind: bool = False  # lines of the task are still to come
    notices: list[Notice]


class Finished(CallResult, frozen=True, kw_only=True):
    """A task that has ended. `output`, or of a split task `stdout` and `stderr`, is there."""

    status: Ended
    task_id: str
    exit_code: int | None
    signal: str | None
    reason: str | None
    output: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    output_bytes: int
    omitted_bytes: int
    omitted_lines: int
    dropped_bytes: int
    output_path: str | list[str]
    cwd: str | None
    cwd_missing: str | None = None
    created_at: str
    started_at: str | None
    ended_at: str
    duration_ms: int | None
    cpu_ms: int | None
    max_rss_bytes: int | None
    survivors: list[Survivor]
    value: str | None = None  # of code: null where its last statement is no expression
    error: Failure | None = None
    session_reset: bool = False  # of code: the interpreter of its session is gone
    queue_reason: str = ""  # of a skipped task


class Running(CallResult, frozen=True, kw_only=True):
    """A task that runs: what there is of its output so far, or what is new."""

    status: Literal["running"]
    task_id: str
    elapsed_ms: int
    output: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    output_bytes: int
    last_output_at: str | None
    changed: bool
    ready: bool = False
    warnings: list[str] = msgspec.field(default_factory=list)
    blocked_on: dict[str, Any] | None = None
    hint: str


class Kickoff(CallResult, frozen=True, kw_only=True):
    """A call that is accepted and not reached yet: it has no task id so far."""

    status: Literal["running"]
    queue_position: int
    queue_reason: str
    blocked_on: dict[str, Any] | None = None
    hint: str


class WaitAny(Result, frozen=True, kw_only=True):
    """`pending_ids`: of what was waited for, all whose end this reply does not carry."""

    reason: Literal["ready", "wait_elapsed", "nothing_pending"]
    updates: list[Update]
    rounds: list[RoundUpdate]
    pending_ids: list[str] = msgspec.field(name="pending_ids")
    all_finished: bool = msgspec.field(name="all_finished")
    delivery: str | None  # null: there is nothing to acknowledge
    notices: list[Notice]


class RoundStarted(Result, frozen=True, kw_only=True):
    """A round, and the seats that were started."""

    round_id: str
    seats: dict[str, SeatHandle]


class RoundPage(Result, frozen=True, kw_only=True):
    rounds: list[RoundRow]
    has_more: bool
    next: str | None  # the cursor for `before`


class RoundDetails(Result, frozen=True, kw_only=True):
    """A round with the rows of its seats' tasks, and the ids of those that had a seat before."""

    round_id: str
    as_: str = msgspec.field(name="as")
    status: RoundStatus
    created_at: str
    ended_at: str | None
    seats: dict[str, TaskRow]
    earlier: dict[str, list[str]]


class Hello(Result, frozen=True, kw_only=True):
    name: str
    version: str
    protocol: int
    as_: str = msgspec.field(name="as")
    role: Literal["agent", "human", "observer"]


class Cancelled(Result, frozen=True, kw_only=True):
    status: Status
    outcome: Literal["cancelled", "already_finished"]
    signalled: list[int]
    survivors: list[Survivor]


class CancelledAll(Result, frozen=True, kw_only=True):
    """What came of cancelling all that a caller had running or queued, in their order."""

    tasks: list[CancelledTask]
    count: int


class Written(Result, frozen=True, kw_only=True):
    written: int  # bytes


class OutputPage(Result, frozen=True, kw_only=True):
    """Bytes of an output: `text`, or where the call said `raw`, `base64`."""

    text: str | None = None
    base64: bytes | None = None
    offset: int
    next_offset: int
    size: int
    eof: bool
    dropped_bytes: int


class TaskPage(Result, frozen=True, kw_only=True):
    tasks: list[TaskRow]
    has_more: bool
    next: str | None  # the cursor for `before`
    latest_seq: int
    next_changed_after: int


class TaskDetails(TaskRow, frozen=True, kw_only=True):
    schema_changed: bool = False
    notices: list[Notice] = msgspec.field(default_factory=list)
    command: str | None  # the first 64 KiB
    cwd: str | None
    session: bool
    after: list[str]
    deadline_secs: float | None = msgspec.field(name="deadline_secs")
    survivors: list[Survivor]
    cpu_ms: int | None
    dropped_bytes: int
    output_path: str | list[str]
    decision_text: str | None = None


class LogPage(Result, frozen=True, kw_only=True):
    lines: list[LogLine]
    next_after_seq: int
    latest_seq: int
    has_more: bool
    left_out: int
    gap: int = 0  # lines that retention has dropped
    end_reason: Literal["woke", "timeout"]


class Forgotten(Result, frozen=True, kw_only=True):
    task_id: str
    status: Literal["forgotten"]


class SessionReset(Result, frozen=True, kw_only=True):
    as_: str = msgspec.field(name="as")
    kind: Literal["bash", "python"]


class LaneSet(Result, frozen=True, kw_only=True):
    lane: str
    limit: int
    running: int
    queued: int


class ModeSet(Result, frozen=True, kw_only=True):
    mode: Literal["shared", "exclusive"]
    mode_owner: str | None
    expires_at: str | None


class EngineInfo(Result, frozen=True, kw_only=True):
    name: str
    version: str
    protocol: int
    schema_fingerprint: str
    started_at: str
    slots: int
    running: int
    queued: int
    held: int
    oldest_queued_ms: int | None
    lanes: dict[str, Lane]
    requests_pending: int
    oldest_request_ms: int | None
    callers: int
    mode_owner: str | None
    latest_seq: int
    journal_lines: int
    output_bytes: int
    disk_free_bytes: int
    policy: Literal["none", "enforced", "advisory", "invalid"]
    limits: dict[str, int | float]  # by the names of the settings
    degraded: list[str]


class Roster(Result, frozen=True, kw_only=True):
    """The callers by name; with `hasMore` the rest is had by `after` the last one."""

    callers: list[RosterEntry]
    has_more: bool


class Stats(Result, frozen=True, kw_only=True):
    """The samples after `since`, oldest first; the rest is had by the last one's `time`."""

    samples: list[Sample]
    has_more: bool
    last_hour: HourStats


class Document(Result, frozen=True, kw_only=True):
    """The wire in the words of OpenRPC."""

    openrpc: str
    info: dict[str, Any]
    methods: list[dict[str, Any]]
    components: dict[str, Any]


class ShuttingDown(Result, frozen=True, kw_only=True):
    mode: Literal["leave", "cancel"]
    running: int


# Method -> what it answers with: the first of these of which all members are there that must be.
RESULTS: Final[dict[str, tuple[type[Part], ...]]] = {
    "hello": (Hello,),
    "bash": (Finished, Running, Kickoff),
    "execute": (Finished, Running, Kickoff),
    "wait_any": (WaitAny,),
    "wait": (Finished, Running, Kickoff),
    "run_round": (RoundStarted,),
    "list_rounds": (RoundPage,),
    "read_round": (RoundDetails,),
    "cancel": (Cancelled, CancelledAll),
    "write_stdin": (Written,),
    "read_output": (OutputPage,),
    "list_tasks": (TaskPage,),
    "read_task": (TaskDetails,),
    "read_logs": (LogPage,),
    "forget": (Forgotten,),
    "reset_session": (SessionReset,),
    "set_lane": (LaneSet,),
    "set_mode": (ModeSet,),
    "engine_info": (EngineInfo,),
    "roster": (Roster,),
    "read_stats": (Stats,),
    "rpc.discover": (Document,),
    "shutdown": (ShuttingDown,),
}


def decode_result(method: str, raw: Raw | bytes) -> Part:
    """The result of a call of `method`, a key of RESULTS. Raises msgspec.ValidationError."""
    types = RESULTS[method]
    if len(types) == 1:
        return msgspec.json.decode(raw, type=types[0])
    members = msgspec.json.decode(raw, type=dict[str, Raw]).keys()
    type_ = next((each for each in types if required(each) <= members), types[-1])
    return msgspec.json.decode(raw, type=type_)


def required(type_: type[Part]) -> set[str]:
    """The members that an object of this type has in any case."""
    fields = msgspec.structs.fields(type_)
    return {field.encode_name for field in fields if field.required}
