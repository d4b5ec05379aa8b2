"""What both sides know of a task: its states, its record, its handles. No I/O.

Times are integers, milliseconds since 1970 UTC; `rfc3339` gives their wire form.
"""

from __future__ import annotations

import enum
import functools
import signal
import time
from typing import Final

import msgspec

ENGINE_CGROUP: Final = "engine.leaf"  # in which the engine is, below the cgroup that it divides


ANONYMOUS: Final = "anon-"  # how the names of callers begin that are connections


class Status(enum.StrEnum):
    """Where a task stands. All but the first three are final."""

    QUEUED = "queued"
    HELD = "held"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    SKIPPED = "skipped"
    DENIED = "denied"

    @property
    def is_final(self) -> bool:
        return not NEXT[self]


_ENDS: Final = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.TIMED_OUT})

# Present status -> those that may follow it. An empty row is a final status.
NEXT: Final[dict[Status, frozenset[Status]]] = {
    Status.QUEUED: _ENDS | {Status.HELD, Status.RUNNING, Status.LOST, Status.SKIPPED},
    Status.HELD: frozenset({Status.QUEUED, Status.DENIED, Status.CANCELLED}),
    # Back to queued: the keeper that was to run it died before it claimed the job.
    Status.RUNNING: _ENDS | {Status.LOST, Status.QUEUED},
    **dict.fromkeys(_ENDS | {Status.LOST, Status.SKIPPED, Status.DENIED}, frozenset()),
}


class Kind(enum.StrEnum):
    BASH = "bash"
    ARGV = "argv"
    CODE = "code"


class Survivor(msgspec.Struct, frozen=True):
    """A process that a job left behind."""

    pid: int
    command: str


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why there was nothing to start (errno(3)), or the exception that ended a call's code (type).

    One of the two is there; the words name what was missing, or are the exception's own.
    """

    errno: int | None = None
    type: str | None = None
    message: str


class ReadyWhen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What makes a job ready. One of the two is there."""

    contains: str | None = None  # a line of its output that holds this
    port: int | None = None  # on the loopback, once it accepts connections


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a task at one moment: the row of the index, the facts of every reply."""

    id: str  # without its letter: `k` before it is the kickoff, `t` the task
    caller: str
    kind: Kind
    title: str  # first line of the command, printable, <= 200 characters
    order: int  # of acceptance: greater than all before it in this home
    created_at: int
    status: Status = Status.QUEUED
    reason: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    error: Failure | None = None
    value: str | None = None  # of code: the repr of its last expression
    session_reset: bool = False  # of code: its session is gone, or an earlier one was, unasked
    started_at: int | None = None
    ended_at: int | None = None
    duration_ms: int | None = None
    cpu_ms: int | None = None
    max_rss_bytes: int | None = None  # of a job with a cgroup of its own
    last_output_at: int | None = None
    sizes: tuple[int, ...] = ()  # bytes seen of each output file, in the order of `files`
    dropped: tuple[tuple[tuple[int, int], ...], ...] = ()  # ranges of them that are not kept
    split: bool = False
    session: bool = False
    asked_bytes: int = 0  # of `spec.json`, where that is a large one: it may hold a long input
    cwd: str | None = None
    cwd_missing: str | None = None  # the directory that was gone
    survivors: tuple[Survivor, ...] = ()
    deadline_secs: float | None = None
    promoted: bool = False  # outlived the call that started it
    unsettled: bool = False  # it has ended, and the state of its session is to come
    lane: str | None = None
    after: tuple[str, ...] = ()  # handles of what it waits for, as they were given
    after_when: str = "succeeded"  # how they have to end
    skipped_for: str | None = None  # why it could not start any more, in words
    round_id: str | None = None
    seat: str | None = None  # its name in the round
    ready_when: ReadyWhen | None = None
    ready: bool = False  # once and for all; of one that has ended before it was: never
    ready_line: str | None = None  # by which it is
    warnings: tuple[str, ...] = ()  # about its being ready
    blocked: str | None = None  # `input` or `idle`, while it runs
    prompt: str | None = None  # with `input`: the unfinished last line of its output

    @property
    def task_id(self) -> str:
        return "t" + self.id

    @property
    def kickoff_id(self) -> str:
        return "k" + self.id

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the output files in the task's directory."""
        return ("stdout", "stderr") if self.split else ("output",)

    @property
    def output_bytes(self) -> int:
        return sum(self.sizes)

    @property
    def dropped_bytes(self) -> int:
        return sum(self.dropped_in(which) for which in range(len(self.dropped)))

    @property
    def kept_bytes(self) -> int:
        """Bytes that are on disk, of output and of a large call."""
        return self.output_bytes - self.dropped_bytes + self.asked_bytes

    def dropped_in(self, which: int) -> int:
        """Bytes that are not kept of one of `files`."""
        ranges = self.dropped[which] if which < len(self.dropped) else ()
        return sum(end - start for start, end in ranges)


def title_of(command: str) -> str:
    """The first line of `command` that says something, without control characters, cut."""
    first = next((line for line in command.split("\n") if line.strip()), "")
    return "".join(c for c in first.strip() if c.isprintable())[:200]


def as_text(name: str) -> str:
    """A file's name as JSON can carry it: what of it is no UTF-8 becomes U+FFFD."""
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # half a pair that stands for no byte: no name of the system's
        return name.encode("utf-8", "replace").decode("utf-8")


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; a real-time signal by its distance from the first, as kill -l has it."""
    if signal.SIGRTMIN < number <= signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def now_ms() -> int:
    """The wall clock, in milliseconds: what every time of a task is counted in."""
    return int(time.time() * 1000)


def rfc3339(ms: int) -> str:
    """`2026-11-30T12:04:31.208Z` for milliseconds since 1970."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@functools.lru_cache(maxsize=64)  # a reply tells of three or four times, mostly of one second
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
