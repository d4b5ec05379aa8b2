"""What stands inside of results: lines, survivors, failures, samples, and the entries of lists.

A member with a default may be absent; one that may be null says so and has none.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from engine.protocol.fields import LogLevel, Status

Kind = Literal["bash", "argv", "code"]
Ended = Literal["succeeded", "failed", "cancelled", "timed_out", "lost", "skipped", "denied"]
RoundStatus = Literal["running", "succeeded", "failed", "cancelled", "skipped"]


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What stands inside of results."""


class Survivor(Part, frozen=True, kw_only=True):
    """A process that a job left behind."""

    pid: int
    command: str


class Failure(Part, frozen=True, kw_only=True):
    """Why nothing could be started (`errno`), or what ended a call's code (`type`)."""

    message: str
    errno: int | None = None
    type: str | None = None


class LogLine(Part, frozen=True, kw_only=True):
    """One line of the journal."""

    seq: int
    time: str
    level: LogLevel
    caller: str | None  # null: the engine itself
    task_id: str | None
    source: Literal["engine", "output", "stdout", "stderr"]
    text: str
    cut: bool = False  # the line was longer


class LogMarker(Part, frozen=True, kw_only=True):
    """Closes the lines of a reply: how many of other callers the scope hid."""

    marker: Literal[True]
    left_out: int
    text: str


class LogEntry(Part, frozen=True, kw_only=True):
    """A line in a reply, or the one marker that closes them: then `marker` is true."""

    text: str
    marker: bool = False
    left_out: int = 0
    seq: int | None = None
    time: str | None = None
    level: LogLevel | None = None
    caller: str | None = None
    task_id: str | None = None
    source: Literal["engine", "output", "stdout", "stderr"] | None = None
    cut: bool = False


class Notice(Part, frozen=True, kw_only=True):
    """The end of a task or round of which no reply has told yet: a hint, it receives nothing."""

    task_id: str | None = None
    round_id: str | None = None
    status: Ended
    exit_code: int | None
    ended_at: str | None


class Update(Part, frozen=True, kw_only=True):
    """What a wait over many handles has to tell of one: why it is told, and how it stands.

    An end has the members of `Finished`, a task that goes on those of `Running` or `Kickoff`.
    """

    id: str
    ready: Literal["ended", "execution_blocked", "ready_when"] | None
    status: Ended | Literal["running"]
    as_: str = msgspec.field(name="as")
    category: Literal["input", "idle", "lane"] | None = None
    prompt: str | None = None
    line: str | None = None
    warnings: list[str] = []
    redelivered: bool = False
    output_returned: bool = msgspec.field(default=False, name="output_returned")
    task_id: str | None = None
    kickoff_id: str
    exit_code: int | None = None
    signal: str | None = None
    reason: str | None = None
    output: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    output_bytes: int = 0
    omitted_bytes: int = 0
    omitted_lines: int = 0
    dropped_bytes: int = 0
    output_path: str | list[str] = ""
    cwd: str | None = None
    cwd_missing: str | None = None
    created_at: str = ""
    started_at: str | None = None
    ended_at: str = ""
    duration_ms: int | None = None
    cpu_ms: int | None = None
    max_rss_bytes: int | None = None
    survivors: list[Survivor] = []
    value: str | None = None
    error: Failure | None = None
    session_reset: bool = False
    elapsed_ms: int = 0
    last_output_at: str | None = None
    changed: bool = False
    blocked_on: dict[str, Any] | None = None
    queue_position: int = 0
    queue_reason: str = ""
    hint: str = ""
    logs: list[LogEntry] = []
    logs_dropped: int = 0
    logs_behind: bool = False


class SeatHandle(Part, frozen=True, kw_only=True):
    """The task of a seat, or where it was not reached yet the kickoff."""

    task_id: str | None = None
    kickoff_id: str | None = None


class SeatState(SeatHandle, frozen=True, kw_only=True):
    status: Ended | Literal["running"]
    exit_code: int | None = None


class SeatAnswer(SeatState, frozen=True, kw_only=True):
    """A seat in a wait over many handles: with its answer, or how it stands."""

    signal: str | None = None
    reason: str | None = None
    duration_ms: int | None = None
    output: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    output_bytes: int = 0
    omitted_bytes: int = 0
    omitted_lines: int = 0
    value: str | None = None
    error: Failure | None = None
    output_returned: bool = msgspec.field(default=False, name="output_returned")
    redelivered: bool = False
    elapsed_ms: int = 0
    last_output_at: str | None = None
    queue_reason: str = ""
    blocked_on: dict[str, Any] | None = None


class RoundUpdate(Part, frozen=True, kw_only=True):
    """What a wait over many handles has to tell of a round."""

    round_id: str
    ready: Literal["ended", "seat_lost"] | None
    seats: dict[str, SeatAnswer]
    warnings: list[str] = []
    redelivered: bool = False


class RoundRow(Part, frozen=True, kw_only=True):
    """A row of the list of rounds."""

    round_id: str
    as_: str = msgspec.field(name="as")
    status: RoundStatus
    created_at: str
    ended_at: str | None
    seats: dict[str, SeatState]


class CancelledTask(Part, frozen=True, kw_only=True):
    task_id: str
    status: Status
    outcome: Literal["cancelled", "already_finished"]
    signalled: list[int]
    survivors: list[Survivor]


class TaskRow(Part, frozen=True, kw_only=True):
    """A row of the task list. Of one that is `forgotten` only `taskId` and `status` are there."""

    task_id: str
    status: Status | Literal["forgotten"]
    kickoff_id: str = ""
    as_: str = msgspec.field(default="", name="as")
    kind: Kind = "bash"
    title: str = ""
    reason: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    created_at: str = ""
    started_at: str | None = None
    ended_at: str | None = None
    duration_ms: int | None = None
    last_output_at: str | None = None
    output_bytes: int = 0
    error_lines: int = 0
    warning_lines: int = 0
    lane: str | None = None
    queue_position: int | None = None
    queue_reason: str | None = None
    blocked_on: dict[str, Any] | None = None
    round_id: str | None = None
    seat: str | None = None
    changed_seq: int = 0


class ForgottenRow(Part, frozen=True, kw_only=True):
    task_id: str
    status: Literal["forgotten"]


class Lane(Part, frozen=True, kw_only=True):
    limit: int
    running: int
    queued: int


class RosterEntry(Part, frozen=True, kw_only=True):
    """A caller: of tasks in the last hour those that ended, and of them the failed, timed out and
    lost ones."""

    name: str
    connections: int  # open ones on which it has called
    running: int
    queued: int
    ended_last_hour: int
    failed_last_hour: int
    last_seen: str | None  # its last call; null: not since the engine started


class Sample(Part, frozen=True, kw_only=True):
    """Five seconds that end at `time`: what ran and waited then, and what came in them.

    `ended` by status and `lines` by level have no entry for what did not come. `p50Ms` and
    `p95Ms`: of the run times of the tasks that ended; `launchP95Ms`: from a free slot to a
    process; null where there was none.
    """

    time: str
    running: int
    queued: int
    ended: dict[Ended, int]
    lines: dict[LogLevel, int]
    p50_ms: int | None
    p95_ms: int | None
    launch_p95_ms: int | None


class HourStats(Part, frozen=True, kw_only=True):
    """All samples of the last hour in one."""

    ended: dict[Ended, int]
    lines: dict[LogLevel, int]
    p50_ms: int | None
    p95_ms: int | None
    launch_p95_ms: int | None
