"""The task directory: one folder a job, made when its call is accepted. The folder is the truth.

    spec.json   what was asked, written before anything starts
    claim exit  see `engine.keeper.taskfiles`
    output      what the job wrote (or stdout and stderr)

The folder's name is the task's id. Everything in it is opened by directory descriptor and never
through a link, since jobs run as the same user and could put one there.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from engine.errors import NO_ROOM
from engine.keeper import taskfiles
from engine.model import Kind, ReadyWhen, Survivor

SPEC: Final = "spec.json"
OUTPUTS: Final = ("output", "stdout", "stderr")
_KNOWN: Final = frozenset({SPEC, taskfiles.CLAIM, taskfiles.READY, taskfiles.EXIT, *OUTPUTS})
_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuv"  # base32hex: no two letters look alike
_ID_LENGTH: Final = 6
_SPEC_LIMIT: Final = 64 << 20  # bytes; far over the largest call
_LAST_YEAR_ENDS: Final = 253_402_300_800_000  # ms; no clock shows later, and no calendar goes on

Ranges = tuple[tuple[int, int], ...]  # offsets, the end excluded

# Numbers that a job can have written: such as a date can be told of, and the index can hold.
Moment = Annotated[int, Meta(ge=0, lt=_LAST_YEAR_ENDS)]  # ms
Size = Annotated[int, Meta(ge=0, lt=1 << 53)]


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call without a session starts, and a new session: the `hello` of its connection."""

    cwd: str
    env: dict[str, str]


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that starts something, as its method understood it."""

    caller: str
    base: Base
    command: str | None = None
    argv: list[str] | None = None
    code: str | None = None
    session: bool = False
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: str | None = None  # the whole text; None: /dev/null
    stdin_open: bool = False  # fed by `write_stdin`
    pty: bool = False
    split: bool = False
    deadline_secs: float | None = None
    memory_bytes: int | None = None
    lane: str | None = None
    after: list[str] = []  # handles of those that it waits for
    after_when: str = "succeeded"  # how they have to end
    ready_when: ReadyWhen | None = None
    key: str | None = None
    digest: str | None = None  # of what the call asked to run, for `key`
    round_id: str | None = None
    seat: str | None = None  # its name in the round


class Spec(Asked, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked: enough to start the job after the engine that accepted it is gone."""

    v: int = 1
    id: str
    kind: Kind
    title: str
    order: Size
    created_at: Moment

    @property
    def can_start(self) -> bool:
        """Whether a call can have asked this: a job can write the file, too."""
        asked = {Kind.BASH: self.command, Kind.ARGV: self.argv, Kind.CODE: self.code}[self.kind]
        return bool(asked) and "\0" not in (self.command or "")


class _Trouble(msgspec.Struct, frozen=True):
    """Why there was nothing to start (errno), or what the code has not caught (type)."""

    message: str
    errno: Annotated[int, Meta(ge=0, lt=1 << 31)] | None = None
    type: str | None = None

    def __post_init__(self) -> None:
        if (self.errno is None) == (self.type is None):
            raise ValueError("either errno or type")


class _End(msgspec.Struct, frozen=True):
    """What an `exit` must hold to be one: it lies where a job can write."""

    pid: int
    cause: Literal[
        "exit",
        "signal",
        "spawn_error",
        "deadline",
        "cancelled",
        "lost",
        "out_of_memory",
        "skipped",
    ]
    exitCode: Annotated[int, Meta(ge=0, le=255)] | None
    signal: Annotated[int, Meta(ge=0, le=255)] | None
    error: _Trouble | None
    startedAt: Moment | None
    endedAt: Moment
    durationMs: Size | None
    cpuMs: Size | None
    cwd: str
    survivors: list[Survivor]
    sizes: list[Size]
    dropped: list[list[tuple[Size, Size]]]
    value: str | None = None  # of code: the repr of its last expression
    sessionReset: bool = False  # of code: its interpreter is gone
    oomKills: int | None = None  # of a job with a cgroup of its own: see `JobMemory.measure`
    maxRssBytes: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None
    skippedFor: str | None = None  # of one that could not start any more: why


def is_end(record: object) -> bool:
    """Whether this tells how a job ended: all of it, in numbers that there can be."""
    try:
        msgspec.convert(record, _End)
    except (msgspec.ValidationError, UnicodeEncodeError):  # half a pair where a word must be
        return False
    return True


class TaskDirectory:
    """The folder of one task below `tasks`."""

    def __init__(self, tasks: Path, id_: str) -> None:
        self.id = id_
        self.path = tasks / id_

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of the folder, closed afterwards.

        Raises FileNotFoundError, also where something else is in its place; OSError where the
        system has no descriptor left.
        """
        try:
            fd = os.open(self.path, os.O_DIRECTORY | taskfiles.SAFE_FLAGS)
        except OSError as exc:
            if exc.errno in NO_ROOM:
                raise
            raise FileNotFoundError(exc.errno, os.strerror(exc.errno or 0), self.path) from exc
        try:
            yield fd
        finally:
            os.close(fd)

    def write_spec(self, spec: Spec) -> None:
        """Write `spec.json`; raises OSError, and then the folder holds none that reads."""
        data = msgspec.json.encode(spec)
        with self.opened() as dir_fd:
            fd = taskfiles.open_fresh(dir_fd, SPEC)
            try:
                written = 0
                while written < len(data):
                    written += os.write(fd, data[written:])
            finally:
                os.close(fd)

    def move(self, folder: Path) -> TaskDirectory:
        """Move it into `folder`, whole in one step; raises OSError, also where it is not free."""
        moved = TaskDirectory(folder, self.id)
        os.rename(self.path, moved.path)
        return moved

    def read_spec(self) -> Spec | None:
        """What was asked; None where it was never written whole: then nobody was told of it.
        Also where what stands there is nothing that could be asked.

        Raises OSError where the system has no descriptor left.
        """
        try:
            with self.opened() as dir_fd:
                fd = os.open(SPEC, taskfiles.READ_FLAGS, dir_fd=dir_fd)
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    os.close(fd)  # open() below would leave a folder's descriptor open
                    return None
                with open(fd, "rb") as file:
                    spec = msgspec.json.decode(file.read(_SPEC_LIMIT), type=Spec)
                return spec if spec.can_start else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        except OSError as exc:
            if exc.errno in NO_ROOM:
                raise
            return None

    def read_exit(self) -> dict[str, Any] | None:
        """The record of the end; None while there is none, or where what is there is none."""
        with self.opened() as dir_fd:
            record = taskfiles.read_exit(dir_fd)
        return record if is_end(record) else None

    def read_claim(self) -> str | None:
        """Who claimed the job: see `taskfiles.read_claim`."""
        with self.opened() as dir_fd:
            return taskfiles.read_claim(dir_fd)

    def claim(self) -> bool:
        """Claim the job for the engine: no keeper will begin it; False if one has claimed it."""
        with self.opened() as dir_fd:
            return taskfiles.take_claim(dir_fd)

    def read_keeper(self) -> str | None:
        """Which keeper has begun the job, or has a shell that waits for it; None: not known."""
        with self.opened() as dir_fd:
            claim = taskfiles.read_claim(dir_fd)
            return taskfiles.read_ready(dir_fd) if claim is None else claim

    def claimed_at(self) -> int | None:
        """When a keeper claimed the job, and so began it (ms); None where none has."""
        if not self.read_claim():
            return None
        with self.opened() as dir_fd:
            # The claim is but a name, which came into the folder then; keepers make no other later.
            return int(os.fstat(dir_fd).st_mtime * 1000)

    def end_unstarted(self, record: dict[str, Any]) -> bool:
        """Claim the job and write `record` as its end; False if a keeper has claimed it before."""
        with self.opened() as dir_fd:
            if not taskfiles.take_claim(dir_fd):
                return False
            self._write_end(dir_fd, record)
            return True

    def end_lost(self, record: dict[str, Any]) -> None:
        """Write `record` as the end of a job whose keeper is dead: nobody else will."""
        with self.opened() as dir_fd:
            fd = taskfiles.open_reserved(dir_fd)
            if fd is None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(taskfiles.EXIT, dir_fd=dir_fd)
                self._write_end(dir_fd, record)
                return
            try:
                taskfiles.write_exit(fd, record)
            finally:
                os.close(fd)

    def _write_end(self, dir_fd: int, record: dict[str, Any]) -> None:
        fd = taskfiles.reserve_exit(dir_fd)
        try:
            taskfiles.write_exit(fd, record)
        finally:
            os.close(fd)

    def written(self, names: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[Ranges, ...]]:
        """For each output file how far it was written, and what is not kept of that: see
        `taskfiles.written`. (0, ()) for one that is not there (yet), or is no file.
        """
        sizes, dropped = [], []
        with self.opened() as dir_fd:
            for name in names:
                size, holes = _written(name, dir_fd)
                sizes.append(size)
                dropped.append(tuple((start, end) for start, end in holes))
        return tuple(sizes), tuple(dropped)

    def output_sizes(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """Bytes in each output file, 0 for one that is not there (yet)."""
        sizes = []
        with self.opened() as dir_fd:
            for name in names:
                try:
                    sizes.append(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_size)
                except FileNotFoundError:
                    sizes.append(0)
        return tuple(sizes)

    def remove(self) -> None:
        """Remove the folder and what belongs into it; a stranger's file stays, and the folder.

        Raises OSError (ENOTEMPTY where a stranger is in it).
        """
        with contextlib.suppress(FileNotFoundError):
            with self.opened() as dir_fd:
                for name in _KNOWN & set(os.listdir(dir_fd)):
                    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                        os.unlink(name, dir_fd=dir_fd)
            self.path.rmdir()


def _written(name: str, dir_fd: int) -> tuple[int, list[list[int]]]:
    try:
        fd = os.open(name, taskfiles.READ_FLAGS, dir_fd=dir_fd)
    except OSError as exc:
        if exc.errno in NO_ROOM:
            raise
        return 0, []  # not there, or not by our hand
    try:
        return taskfiles.written(fd) if stat.S_ISREG(os.fstat(fd).st_mode) else (0, [])
    finally:
        os.close(fd)


def new_id() -> str:
    """What is behind the letter of a handle."""
    number = secrets.randbits(5 * _ID_LENGTH)
    return "".join(_ALPHABET[number >> 5 * i & 31] for i in range(_ID_LENGTH))


def make_directory(folder: Path) -> TaskDirectory:
    """A new, empty task directory in `folder`, under an id that is free there. Raises OSError."""
    while True:
        id_ = new_id()
        try:
            (folder / id_).mkdir(mode=0o700)
        except FileExistsError:
            continue
        return TaskDirectory(folder, id_)


def make_spare(folder: Path) -> TaskDirectory:
    """A task directory with all its files, empty: for one whose output is merged. Raises OSError.

    Making files costs more than anything else that a short call needs.
    """
    directory = make_directory(folder)
    with directory.opened() as dir_fd:
        os.close(taskfiles.reserve_exit(dir_fd))
        for name in (SPEC, OUTPUTS[0]):
            os.close(taskfiles.open_fresh(dir_fd, name))
    return directory
