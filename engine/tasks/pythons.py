"""Calls in the callers' Python sessions: handed to an interpreter, watched for what it loses.

A session lies in a process of its own, which outlives the engine; the link in the caller's folder
leads to it. Whose turn it is in a session, the supervisor knows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Final

import trio

from engine.jobs.directory import Spec, TaskDirectory
from engine.jobs.executor import LaunchRefused, RunningJob
from engine.jobs.localjob import LocalJob
from engine.jobs.pythonlocal import (
    PythonSession,
    SessionBusy,
    SessionOver,
    forget_lost,
    open_session,
)
from engine.model import as_text
from engine.tasks.codejob import CodeJob, wait_ended
from engine.tasks.pythontable import SessionTable
from engine.tasks.task import Task

MAX_TRIES: Final = 5  # of one call, with sessions that die before they take it


class OpeningCancelled(Exception):
    """The call was cancelled before an interpreter had it."""


class PythonSessions(SessionTable):
    """The sessions and what runs in them."""

    async def launch(self, task: Task, spec: Spec) -> RunningJob:
        """Hand a call to its interpreter. Raises InterpreterFailed, LaunchRefused.

        `task.opening` is there to be cancelled as long as the interpreter is not ready for it,
        which then raises OpeningCancelled.
        """
        if spec.session:
            self.uses[spec.caller] += 1
        try:
            for _ in range(MAX_TRIES):
                with contextlib.suppress(SessionOver):
                    start = self._start if spec.session else self._start_alone
                    return await start(task, spec)
            raise LaunchRefused(f"{MAX_TRIES} python sessions died before they took the call")
        except BaseException:
            self.end_use(spec)
            raise

    async def _start_alone(self, task: Task, spec: Spec) -> LocalJob:
        """Run a call in an interpreter that ends with it."""
        with self._cancellable(task):
            session = await open_session(self.executor, self.order(spec), None)
        _note_missing(task, spec.cwd or spec.base.cwd)
        return await session.run(task.directory, self.starter.code_order(spec))

    async def _start(self, task: Task, spec: Spec) -> CodeJob:
        with self._cancellable(task):
            entry, session = await self.ready(spec)
        _note_missing(task, spec.cwd or (spec.base.cwd if entry.is_new else None))
        entry.is_new = False
        try:
            job = await self._run(task, spec, session)
        except SessionOver:
            if entry.has_names and not entry.is_dropped:
                self.lost.add(spec.caller)
            self.drop(spec.caller, session)
            raise
        entry.has_names = True
        if spec.caller in self.lost:
            self.lost.discard(spec.caller)
            task.change(session_reset=True)
        return CodeJob(job, _Use(self, task, spec, session))

    async def _run(self, task: Task, spec: Spec, session: PythonSession) -> LocalJob:
        while True:
            try:
                return await session.run(task.directory, self.starter.code_order(spec))
            except SessionBusy as exc:  # with a call that we do not know
                with self._cancellable(task):
                    await self._wait_idle(session, exc.task)

    async def _wait_idle(self, session: PythonSession, name: str) -> None:
        """Wait until the call of the task directory `name` has ended in `session`."""
        directory = TaskDirectory(self.home.tasks, name)
        job = await self.executor.attach(directory, session.identity)
        if job is not None:
            await wait_ended(job)

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

    def end_call(self, spec: Spec, session: PythonSession, *, is_over: bool) -> None:
        """A call has ended; `is_over`: its session too, as the call itself tells."""
        if is_over:
            self.drop(spec.caller, session)
            forget_lost(self.link_of(spec.caller))
        self.end_use(spec)


class _Use:
    """One call's use of its caller's session: what the sessions must hear of it."""

    def __init__(
        self, sessions: PythonSessions, task: Task, spec: Spec, session: PythonSession
    ) -> None:
        self._sessions, self._task = sessions, task
        self._spec, self._session = spec, session
        self._is_ended = False

    def on_started(self, news: dict[str, Any]) -> None:
        if news.get("cwdMissing") is not None:
            self._task.change(cwd=as_text(news["cwdMissing"]))

    def on_ended(self, *, is_over: bool) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._sessions.end_call(self._spec, self._session, is_over=is_over)


def _note_missing(task: Task, cwd: str | None) -> None:
    """Have the reply name a directory that is not there: the call will be elsewhere, or fail."""
    if cwd is not None and not os.path.isdir(cwd):
        task.change(cwd=as_text(cwd))
