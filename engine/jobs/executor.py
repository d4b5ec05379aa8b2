"""What it takes to run a job somewhere: the interface, and the words both sides of it use.

`local` runs jobs below keepers on this machine. An executor knows directories and processes; it
knows no caller and no wire.
"""

from __future__ import annotations

import enum
from typing import Any, Protocol

import msgspec

from engine.jobs.directory import TaskDirectory
from engine.keeper.feed import LIMIT as INPUT_LIMIT

__all__ = [
    "INPUT_LIMIT",
    "Executor",
    "JobListener",
    "LaunchRefused",
    "Order",
    "Outcome",
    "RunningJob",
    "Written",
]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """All that a keeper needs to start one job. Times in seconds, sizes in bytes."""

    argv: list[str]
    path: str | None  # the program's file; None: found by the job's PATH
    env: dict[str, str]
    cwd: str
    cwd_or_parent: bool  # a directory that is gone is no error: its nearest parent will do
    split: bool
    deadline_secs: float | None
    output_cap_bytes: int
    prologue: bytes | None  # what the shell reads before its text; None: it is no shell of ours
    call: bytes  # what it reads then, see `shell.AWAIT_CALL`
    stdin: bytes | None  # the whole input; None: /dev/null
    wants_state: bool  # the shell dumps its state at the end
    stdin_open: bool = False  # fed by `RunningJob.write`
    ready_port: int | None = None  # where it will listen: see `RunningJob.listener`
    pty: bool = False  # a terminal; `stdin` is typed at it, without one it is open
    memory_bytes: int | None = None  # of all its processes together
    is_quiet: bool = False  # nobody waits for its start: to be told 5 ms later will do


class LaunchRefused(Exception):
    """The job did not start and its directory cannot tell why: disk full, no process to be had.

    `errno`: errno(3) where the system said no, else 0.
    """

    def __init__(self, text: str, errno: int = 0) -> None:
        super().__init__(text)
        self.errno = errno


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What came of writing to a job's standard input.

    `taken`: bytes; fewer than were given where the job has not read enough of what came before.
    """

    taken: int
    is_open: bool


class Outcome(enum.Enum):
    """How watching a job came to its end."""

    GONE = enum.auto()  # ended, and no process of it is left
    TAKEN = enum.auto()  # somebody else has the claim: look into the directory
    ABSENT = enum.auto()  # the keeper has another job by now, or none: look into the directory
    BROKEN = enum.auto()  # the keeper died: look into the directory


class JobListener(Protocol):
    """Who is told of a job. None of these may block or raise."""

    def on_started(self, news: dict[str, Any]) -> None:
        """`news`: {pid, startedAt, cwd}; before anything else, also of a job attached to."""

    def on_grew(self, news: dict[str, Any]) -> None:
        """`news`: {sizes, dropped}, an entry for each output file."""

    def on_blocked(self, category: str | None) -> None:
        """The job is blocked: `input`, `idle`; None: it goes on. Its sizes were told before."""

    def on_ended(self, record: dict[str, Any], state: bytes) -> None:
        """The record of the end, and the dump of the shell's state (empty: none).

        Of one too large to be carried the record has the size in bytes, as `stateLeft`. Where the
        state is to come, the record has the shell's directory, as `settling`.
        """

    def on_settled(self, news: dict[str, Any], state: bytes) -> None:
        """The state that was to come. `news`: {stateLeft?, mishap?}; the mishap in words."""


class RunningJob(Protocol):
    """A job that was launched or attached to."""

    async def watch(self, listener: JobListener) -> Outcome:
        """Tell `listener` of the job until nothing of it is left. Cancelling leaves the job be."""

    async def cancel(self, grace_secs: float) -> list[int] | None:
        """TERM to every process of the job, after the grace KILL; the pids that got TERM.

        None: whoever has the job does not answer.
        """

    async def write(self, data: bytes, *, eof: bool) -> Written | None:
        """Feed the open standard input; with `eof` it ends, if all was taken. Waits for no reader.

        None: nobody can tell, as the job, or its keeper, is gone. Cancelling comes too late.
        """

    async def listener(self) -> str:
        """Whose socket listens at `Order.ready_port`.

        `job`: the job's; `new`: not known whose, but it came after the job; `before`: it was there
        before the job; `none`; `unknown`.
        """

    async def survivors(self) -> list[dict[str, Any]]:
        """The processes of the job that live now: {pid, command}."""


class Executor(Protocol):
    async def launch(self, directory: TaskDirectory, order: Order) -> RunningJob:
        """Hand the job to a keeper, which starts it. Raises LaunchRefused."""

    async def prepare(self, directory: TaskDirectory, order: Order) -> None:
        """Start the shell of a launch that may come: of a directory with this one's id.

        A launch finds it there, if it still is what that would start. Raises LaunchRefused.
        """

    def discard(self, id_: str) -> None:
        """End the shell that was prepared for this id, if it has not been launched."""

    async def attach(self, directory: TaskDirectory, claim: str) -> RunningJob | None:
        """The job that this claim's holder runs; None once the holder is dead.

        A holder that lives and takes no link is about to end: its end is waited for.
        """
