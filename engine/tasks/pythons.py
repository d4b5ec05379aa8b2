"""The callers' Python sessions: opened by a first call, found again after a restart, closed.

A session lies in a process of its own, which outlives the engine; the link in the caller's folder
leads to it. Whose turn it is in a session, the supervisor knows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import structlog
import trio

from engine.config import Home
from engine.jobs.directory import Spec, TaskDirectory
from engine.jobs.executor import LaunchRefused
from engine.jobs.local import LocalExecutor
from engine.jobs.localjob import LocalJob
from engine.jobs.pythonlocal import (
    InterpreterFailed,
    PythonSession,
    SessionBusy,
    SessionOver,
    find_session,
    open_session,
)
from engine.model import as_text
from engine.tasks.starting import Starter
from engine.tasks.task import Task

CLOSE_GRACE_SECS: Final = 5.0  # for the code that runs in a session that is closed
CLOSE_SECS: Final = 20.0  # for whoever waits until a session is closed; it is closed all the same
MAX_TRIES: Final = 5  # of one call, with sessions that die before they take it
_LINK: Final = "python"
_ANONYMOUS: Final = "anon-"

log = structlog.get_logger()


class OpeningCancelled(Exception):
    """The call was cancelled before an interpreter had it."""


class _Entry:
    """One caller's session, from the moment that it is looked for."""

    def __init__(self) -> None:
        self.done = trio.Event()  # then `session` or `failure` is there
        self.session: PythonSession | None = None
        self.failure: Exception | None = None
        self.is_new = False  # it has taken no call yet
        self.is_dropped = False  # about to be closed


class PythonSessions:
    """Sessions by caller. Opening and closing go on whoever stops waiting for them."""

    def __init__(
        self, home: Home, executor: LocalExecutor, starter: Starter, nursery: trio.Nursery
    ) -> None:
        self._home, self._executor, self._starter = home, executor, starter
        self._nursery = nursery
        self._entries: dict[str, _Entry] = {}

    async def launch(self, task: Task, spec: Spec) -> LocalJob:
        """Hand a call to its interpreter. Raises InterpreterFailed, LaunchRefused.

        `task.opening` is there to be cancelled as long as the interpreter is not ready for it,
        which then raises OpeningCancelled.
        """
        for _ in range(MAX_TRIES):
            with self._cancellable(task):
                session, is_new = await self._ready(spec)
            _note_missing(task, spec.cwd or (spec.base.cwd if is_new else None))
            try:
                return await self._run(task, spec, session)
            except SessionOver:
                self._drop(spec.caller, session)
        raise LaunchRefused(f"{MAX_TRIES} python sessions died before they took the call")

    async def _run(self, task: Task, spec: Spec, session: PythonSession) -> LocalJob:
        while True:
            try:
                return await session.run(task.directory, self._starter.code_order(spec))
            except SessionBusy as exc:  # with a call that we do not know
                with self._cancellable(task):
                    await self._wait_idle(session, exc.task)

    @contextlib.contextmanager
    def _cancellable(self, task: Task) -> Iterator[None]:
        with trio.CancelScope() as scope:
            task.opening = scope
            try:
                yield
            finally:
                task.opening = None
        if scope.cancelled_caught:
            raise OpeningCancelled

    # -- one caller's session ---------------------------------------------------------------------

    async def _ready(self, spec: Spec) -> tuple[PythonSession, bool]:
        """An interpreter for this call, and whether it is a new one."""
        if not spec.session:
            order = self._starter.python_order(spec)
            return await open_session(self._executor, order, None), True
        while True:
            entry = self._entries.get(spec.caller)
            if entry is None:
                entry = self._entries[spec.caller] = _Entry()
                self._nursery.start_soon(self._open, entry, spec)
            await entry.done.wait()
            if entry.failure is not None:
                raise entry.failure
            if entry.session is not None and not entry.is_dropped:
                is_new, entry.is_new = entry.is_new, False
                return entry.session, is_new

    async def _open(self, entry: _Entry, spec: Spec) -> None:
        """Find the caller's session, or open one as `spec` has it."""
        link = self._link(spec.caller)
        order = self._starter.python_order(spec)
        try:
            link.parent.mkdir(mode=0o700, exist_ok=True)
            entry.session = await find_session(self._executor, link)
            if entry.session is None:
                entry.session = await open_session(self._executor, order, link)
                entry.is_new = True
        except (InterpreterFailed, LaunchRefused) as exc:
            entry.failure = exc
        except OSError as exc:
            entry.failure = LaunchRefused(f"python session: {exc.strerror}", exc.errno or 0)
        finally:
            if entry.session is None and self._entries.get(spec.caller) is entry:
                del self._entries[spec.caller]
            entry.done.set()

    def _drop(self, caller: str, session: PythonSession) -> None:
        """Forget a session that takes no calls any more."""
        entry = self._entries.get(caller)
        if entry is not None and entry.session is session:
            del self._entries[caller]

    async def _wait_idle(self, session: PythonSession, name: str) -> None:
        """Wait until the call of the task directory `name` has ended in `session`."""
        directory = TaskDirectory(self._home.tasks, name)
        job = await self._executor.attach(directory, session.identity)
        if job is None:
            return
        listener = _EndListener()

        async def watch() -> None:
            await job.watch(listener)
            listener.ended.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await listener.ended.wait()
            nursery.cancel_scope.cancel()

    def _link(self, caller: str) -> Path:
        return self._home.sessions / caller / _LINK

    # -- closing ----------------------------------------------------------------------------------

    def has(self, caller: str) -> bool:
        """Whether there may be a session of this caller's."""
        return caller in self._entries or os.path.islink(self._link(caller))

    async def reset(self, caller: str) -> None:
        """Close the caller's session: what runs in it is cancelled, the next call has a new one.

        Returns when it is closed, after `CLOSE_SECS` in any case.
        """
        entry = self._entries.pop(caller, None)
        if entry is not None:
            entry.is_dropped = True
        closed = trio.Event()
        self._nursery.start_soon(self._close, caller, entry, closed)
        with trio.move_on_after(CLOSE_SECS):
            await closed.wait()

    async def _close(self, caller: str, entry: _Entry | None, closed: trio.Event) -> None:
        try:
            if entry is None:
                session = await find_session(self._executor, self._link(caller))
            else:
                await entry.done.wait()
                session = entry.session
            if session is not None and not await session.close(CLOSE_GRACE_SECS):
                log.error("python_session_not_closed", caller=caller, pid=session.pid)
        finally:
            closed.set()

    async def forget(self, caller: str) -> None:
        """Close the session of a caller that is gone, and remove its folder."""
        if self.has(caller):
            await self.reset(caller)
        with contextlib.suppress(OSError):  # never made, or a late shell's state is in it
            os.rmdir(self._home.sessions / caller)

    async def close_all(self) -> None:
        """Close the sessions of all callers."""
        names = {entry.name for entry in os.scandir(self._home.sessions)}
        async with trio.open_nursery() as nursery:
            for caller in names | set(self._entries):
                if self.has(caller):
                    nursery.start_soon(self.reset, caller)

    def strangers(self) -> list[str]:
        """Callers without a name of their own that an engine before us had: they are gone."""
        names = [entry.name for entry in os.scandir(self._home.sessions)]
        return [name for name in names if name.startswith(_ANONYMOUS)]


def _note_missing(task: Task, cwd: str | None) -> None:
    """Have the reply name a directory that is not there: the call will be elsewhere, or fail."""
    if cwd is not None and not os.path.isdir(cwd):
        task.change(cwd=as_text(cwd))


class _EndListener:
    """Notes that a call has ended."""

    def __init__(self) -> None:
        self.ended = trio.Event()

    def on_started(self, news: dict[str, Any]) -> None:
        return

    def on_grew(self, news: dict[str, Any]) -> None:
        return

    def on_ended(self, record: dict[str, Any], state: bytes) -> None:
        self.ended.set()
