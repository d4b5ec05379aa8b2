"""Python sessions on this machine, below session keepers: opened, found again, given calls, closed.

A session is found by a symbolic link whose text is the identity of its keeper, which makes it.
A call that runs is a job as any other: `LocalExecutor.attach` finds it by its directory's claim.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from engine.jobs.channel import Channel, ChannelClosed, memory_files
from engine.jobs.directory import TaskDirectory
from engine.jobs.executor import LaunchRefused
from engine.jobs.local import LocalExecutor
from engine.jobs.localjob import LocalJob, wait_dead
from engine.jobs.orphans import MARK
from engine.keeper import processes
from engine.keeper.kept import clipped
from engine.keeper.mother import SESSION
from engine.keeper.python_keeper import START_SECS

ALONE_SECS: Final = 3600.0  # that a session which nobody uses outlives its engine
_ANSWER_SECS: Final = 10.0  # for a keeper's word; it answers in milliseconds
_LEFT_GRACE: Final = 5.0  # seconds for an interpreter that nobody waited for
_EXIT_SECS: Final = 10.0  # for a keeper that takes no link any more; its exit takes microseconds


class PythonOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What an interpreter starts with. `python`: a path, or a name looked for in `search`."""

    env: dict[str, str]
    search: str | None = None  # a PATH; None: that in `env`
    cwd: str  # where it is gone: its nearest parent
    python: str = "python3"
    engine: str | None = None  # its socket: where nobody listens for `ALONE_SECS`, the session ends


class CodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One call. Times in seconds, sizes in bytes; `cwd` and `env` hold for it alone."""

    code: bytes  # UTF-8
    cwd: str | None
    env: dict[str, str]
    stdin: bytes | None  # the whole input; None: /dev/null
    split: bool
    deadline_secs: float | None
    output_cap_bytes: int
    ready_port: int | None = None  # see `Order`


class InterpreterFailed(Exception):
    """There is no such interpreter, or it ends before it is ready; 127 or 126 as from a shell."""

    def __init__(self, errno: int, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.errno, self.exit_code = errno, exit_code


class SessionOver(Exception):
    """The session takes no calls any more, and has not claimed this one: open another."""


class SessionBusy(Exception):
    """A call of the session runs, and this one has not been claimed."""

    def __init__(self, task: str) -> None:
        super().__init__(f"python session busy with t{task}")
        self.task = task  # its directory's name


class PythonSession:
    """One interpreter. `busy` names the directory of the call that ran when it was found."""

    def __init__(self, executor: LocalExecutor, told: dict[str, Any], once: Channel | None) -> None:
        self.identity: str = told["identity"]
        self.pid: int = told["pid"]
        self.version: str = told["version"]
        self.executable: str = told["executable"]
        self.busy: str | None = os.path.basename(told["busy"]) if told["busy"] else None
        self._executor = executor
        self._once = once  # held open: a session for one call ends when nobody can ask for it

    async def run(self, directory: TaskDirectory, order: CodeOrder) -> LocalJob:
        """Hand a call over. Raises SessionOver, SessionBusy, LaunchRefused.

        Where somebody else has the claim, watching the job tells so.
        """
        try:
            channel = self._once or await self._executor.connect(self.identity)
        except ChannelClosed as exc:
            raise SessionOver from exc
        self._once = None
        try:
            with trio.fail_after(_ANSWER_SECS):
                await self._send(channel, directory, order)
                answer, _payload = await channel.receive()
            _raise_for(answer)
            if answer["ev"] == "taken":
                channel.put_back(answer)
        except ChannelClosed as exc:
            channel.close()
            raise SessionOver from exc
        except trio.TooSlowError as exc:
            channel.close()
            raise LaunchRefused("the keeper of the python session does not answer") from exc
        except BaseException:
            channel.close()
            raise
        return LocalJob(channel, directory)

    async def _send(self, channel: Channel, directory: TaskDirectory, order: CodeOrder) -> None:
        name = "t" + directory.id
        texts = [order.code] if order.stdin is None else [order.code, order.stdin]
        message = {
            "op": "run",
            "dir": str(directory.path),
            "name": name,
            "cwd": order.cwd,
            "env": {**order.env, MARK: name},
            "stdin": "null" if order.stdin is None else "fd",
            "streams": "split" if order.split else "merged",
            "deadline": order.deadline_secs,
            "cap": order.output_cap_bytes,
            "port": order.ready_port,
            "fds": len(texts),
        }
        try:
            with memory_files(texts) as fds:
                await channel.send(message, fds)
        except OSError as exc:  # no descriptor or memory to be had
            raise LaunchRefused(f"no call: {exc.strerror}") from exc

    async def close(
        self, grace_secs: float, *, only_idle: bool = False, is_lost: bool = False
    ) -> bool:
        """End the session: a call that runs is cancelled, after the grace the interpreter killed.

        False if it has not ended 10 s after the grace, or, with `only_idle`, if a call runs: then
        it lives on. `is_lost`: leave a mark, so that `is_lost_at` tells that there was one.
        """
        message = {"op": "close", "grace": grace_secs, "onlyIdle": only_idle, "isLost": is_lost}
        try:
            channel = self._once or await self._executor.connect(self.identity)
            self._once = None
            try:
                await channel.send(message)
                with trio.move_on_after(grace_secs + _ANSWER_SECS):
                    while (word := (await channel.receive())[0]["ev"]) not in ("closed", "busy"):
                        pass
                    return bool(word == "closed")
            finally:
                channel.close()
        except ChannelClosed:
            return await wait_dead(self.identity, _EXIT_SECS)
        return False


def _raise_for(answer: dict[str, Any]) -> None:
    """Raise what a keeper that has not taken the call says of it."""
    match answer["ev"]:
        case "closed":
            raise SessionOver
        case "busy":
            raise SessionBusy(os.path.basename(answer["dir"]))
        case "refused":
            raise LaunchRefused(str(answer["message"]))


async def open_session(
    executor: LocalExecutor, order: PythonOrder, link: Path | None
) -> PythonSession:
    """A new session, found at `link` from now on; None: it is for one call and ends with it.

    Raises InterpreterFailed and LaunchRefused; SessionOver where its keeper, or mother, is killed
    before it is ready. Cancelled, the session may be there at `link`.
    """
    env = {name: value for name, value in order.env.items() if name != MARK}
    message = {
        "op": "open",
        "link": None if link is None else str(link),
        "once": link is None,
        "engine": None if link is None else order.engine,
        "alone": ALONE_SECS,
        "python": order.python,
        "search": order.search,
        "path": None,
        "env": env,
        "cwd": order.cwd,
        "cwd_or_parent": True,
    }
    channel = await executor.ask_new_keeper(SESSION, message)
    is_kept = False
    try:
        with trio.fail_after(START_SECS + _ANSWER_SECS):
            told, _payload = await channel.receive()
        if told["ev"] == "failed":
            raise InterpreterFailed(told["errno"], clipped(told["message"]), told["exitCode"])
        _raise_for(told)
        is_kept = link is None
        return PythonSession(executor, told, channel if is_kept else None)
    except ChannelClosed as exc:
        raise SessionOver from exc
    except trio.TooSlowError as exc:
        raise LaunchRefused("the keeper of the python session does not answer") from exc
    finally:
        if not is_kept:
            channel.close()


async def find_session(executor: LocalExecutor, link: Path) -> PythonSession | None:
    """The session that is found at `link`; None where there is none that takes calls.

    One that is not ready yet, since nobody waited for it, is closed: another will take its place.
    """
    try:
        channel = await executor.connect(os.readlink(link))
    except (OSError, ChannelClosed):
        return None
    try:
        with trio.fail_after(_ANSWER_SECS):
            await channel.send({"op": "session"})
            told, _payload = await channel.receive()
            if not told["isOpen"]:
                await channel.send({"op": "close", "grace": _LEFT_GRACE})
    except (ChannelClosed, trio.TooSlowError):
        return None
    finally:
        channel.close()
    return PythonSession(executor, told, None) if told["isOpen"] else None


def is_lost_at(link: Path) -> bool:
    """Whether the session that was found at `link` has died or was closed unasked."""
    try:
        return not processes.is_alive(os.readlink(link))
    except OSError:
        return False


def forget_lost(link: Path) -> None:
    """Remove `link` if it leads to no session: nobody need be told of one."""
    if is_lost_at(link):
        with contextlib.suppress(OSError):
            os.unlink(link)
