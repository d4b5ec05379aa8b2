"""Which caller has which Python session: found or opened for a call, closed, at most so many.

What calls do with them is the matter of `pythons`.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
import structlog
import trio

from engine.config import Home
from engine.jobs.directory import Spec
from engine.jobs.executor import LaunchRefused
from engine.jobs.local import LocalExecutor
from engine.jobs.pythonlocal import (
    InterpreterFailed,
    PythonOrder,
    PythonSession,
    SessionOver,
    find_session,
    forget_lost,
    is_lost_at,
    open_session,
)
from engine.jobs.searchpath import search_path
from engine.model import ANONYMOUS
from engine.tasks.sessions import PYTHON, ShellSessions
from engine.tasks.starting import Starter

CLOSE_GRACE_SECS: Final = 5.0  # for the code that runs in a session that is closed
CLOSE_SECS: Final = 20.0  # for whoever waits until a session is closed; it is closed all the same

log = structlog.get_logger()


class Entry:
    """One caller's session, from the moment that it is looked for."""

    def __init__(self) -> None:
        self.done = trio.Event()  # then `session` or `failure` is there
        self.session: PythonSession | None = None
        self.failure: Exception | None = None
        self.is_new = False  # no call has had it yet
        self.has_names = False  # a call has run in it: it is missed when it is gone
        self.is_dropped = False  # about to be closed
        self.idle_since = 0.0  # of trio's clock


class SessionTable:
    """Sessions by caller. Opening and closing go on whoever stops waiting for them.

    `most`: of them at once. Over it the one that is idle longest is closed; none in use is.
    """

    def __init__(
        self,
        home: Home,
        executor: LocalExecutor,
        starter: Starter,
        shells: ShellSessions,
        nursery: trio.Nursery,
        *,
        most: int,
    ) -> None:
        self.home, self.executor, self.starter = home, executor, starter
        self._shells, self._nursery, self._most = shells, nursery, most
        self._entries: dict[str, Entry] = {}
        self.uses: Counter[str] = Counter()  # calls by caller, on their way to a session or in it
        self.lost: set[str] = set()  # callers whose session is gone, and who have not been told
        self._found = self._find_links()  # callers whose sessions an engine before us had

    def _find_links(self) -> list[str]:
        """Those of whom there is a session, the one that was opened first first."""
        names = {entry.name: self.link_of(entry.name) for entry in os.scandir(self.home.sessions)}
        alive = [name for name, link in names.items() if link.is_symlink() and not is_lost_at(link)]
        return sorted(alive, key=lambda name: names[name].lstat().st_mtime)

    def link_of(self, caller: str) -> Path:
        return self.home.sessions / caller / PYTHON

    # -- one caller's session ---------------------------------------------------------------------

    def end_use(self, spec: Spec) -> None:
        """A call that was counted in `uses` has ended, or will not begin."""
        caller = spec.caller
        if not spec.session:
            return
        self.uses[caller] -= 1
        if not self.uses[caller]:
            del self.uses[caller]
            if caller in self._entries:
                self._entries[caller].idle_since = trio.current_time()
            self._close_too_many()

    async def ready(self, spec: Spec) -> tuple[Entry, PythonSession]:
        """The caller's session, ready for this call."""
        while True:
            entry = self._entries.get(spec.caller)
            if entry is None:
                entry = self._entries[spec.caller] = Entry()
                self._nursery.start_soon(self._open, entry, spec)
            await entry.done.wait()
            if entry.failure is not None:
                raise entry.failure
            if entry.session is not None and not entry.is_dropped:
                return entry, entry.session

    async def _open(self, entry: Entry, spec: Spec) -> None:
        """Find the caller's session, or open one as `spec` has it."""
        link = self.link_of(spec.caller)
        try:
            self._shells.make_folder(spec.caller)
            entry.session = await find_session(self.executor, link)
            entry.has_names = entry.session is not None
            if entry.session is None:
                if is_lost_at(link):
                    self.lost.add(spec.caller)
                self._close_too_many()
                _remove_unplaced(link)
                entry.session = await open_session(self.executor, self.order(spec), link)
                entry.is_new = True
        except (InterpreterFailed, LaunchRefused, SessionOver) as exc:
            entry.failure = exc
        except OSError as exc:
            entry.failure = LaunchRefused(f"python session: {exc.strerror}", exc.errno or 0)
        finally:
            if spec.caller in self._found:
                self._found.remove(spec.caller)
            if entry.session is None and self._entries.get(spec.caller) is entry:
                del self._entries[spec.caller]
            entry.done.set()

    def order(self, spec: Spec) -> PythonOrder:
        """What a new interpreter starts with: `python3` as the caller's shell would find it.

        Raises LaunchRefused.
        """
        order = self.starter.python_order(spec)
        try:
            path = search_path(self._shells.state(spec.caller))
        except OSError as exc:
            raise LaunchRefused(f"not read: {exc.strerror}", exc.errno or 0) from exc
        env = order.env if path is None else {**order.env, "PATH": path}
        return msgspec.structs.replace(
            order, env=env, search=spec.env.get("PATH"), engine=str(self.home.socket)
        )

    def drop(self, caller: str, session: PythonSession) -> None:
        """Forget a session that takes no calls any more."""
        entry = self._entries.get(caller)
        if entry is not None and entry.session is session:
            del self._entries[caller]

    # -- closing ----------------------------------------------------------------------------------

    def has(self, caller: str) -> bool:
        """Whether there may be a session of this caller's."""
        return caller in self._entries or os.path.islink(self.link_of(caller))

    async def reset(self, caller: str, *, is_lost: bool = False) -> None:
        """Close the caller's session: what runs in it is cancelled, the next call has a new one.

        Returns when it is closed, after `CLOSE_SECS` in any case. `is_lost`: that call is told.
        """
        entry = self._entries.pop(caller, None)
        if entry is not None:
            entry.is_dropped = True
        if caller in self._found:
            self._found.remove(caller)
        closed = trio.Event()
        self._nursery.start_soon(self._close, caller, entry, is_lost, closed)
        with trio.move_on_after(CLOSE_SECS):
            await closed.wait()

    async def _close(
        self, caller: str, entry: Entry | None, is_lost: bool, closed: trio.Event
    ) -> None:
        link = self.link_of(caller)
        try:
            if entry is None:
                session = await find_session(self.executor, link)
            else:
                await entry.done.wait()
                session = entry.session
            if session is not None and not await session.close(CLOSE_GRACE_SECS, is_lost=is_lost):
                log.error("python_session_not_closed", caller=caller, pid=session.pid)
            if not is_lost:
                self.lost.discard(caller)
                forget_lost(link)
        finally:
            closed.set()

    def _close_too_many(self) -> None:
        """Have those closed that are idle longest, until there are no more than `most`."""
        entries = sorted(self._entries.items(), key=lambda item: item[1].idle_since)
        ready = [caller for caller, entry in entries if entry.done.is_set()]
        idle = [caller for caller in (*self._found, *ready) if caller not in self.uses]
        count = len(self._entries.keys() | set(self._found))
        for caller in idle[: max(0, count - self._most)]:
            entry = self._entries.pop(caller, None)
            if entry is None:
                self._found.remove(caller)
            self._nursery.start_soon(self._close_idle, caller, entry)

    async def _close_idle(self, caller: str, entry: Entry | None) -> None:
        """Close a session unless it is in use after all; the caller's next call is told."""
        link = self.link_of(caller)
        session = await find_session(self.executor, link) if entry is None else entry.session
        if session is None:
            return
        if await session.close(CLOSE_GRACE_SECS, only_idle=True, is_lost=True):
            log.info("python_session_closed", caller=caller, pid=session.pid, most=self._most)
        elif caller not in self._entries:
            self._found.append(caller)  # a call of an engine before us runs in it

    async def forget(self, caller: str) -> None:
        """Close the session of a caller that is gone, and remove its folder."""
        if self.has(caller):
            await self.reset(caller)
        with contextlib.suppress(OSError):  # never made, or a late shell's state is in it
            os.rmdir(self.home.sessions / caller)

    async def close_all(self) -> None:
        """Close the sessions of all callers, whose next calls are told."""
        names = {entry.name for entry in os.scandir(self.home.sessions)}
        async with trio.open_nursery() as nursery:
            for caller in names | set(self._entries):
                if self.has(caller):
                    nursery.start_soon(lambda name: self.reset(name, is_lost=True), caller)

    def strangers(self) -> list[str]:
        """Callers without a name of their own that an engine before us had: they are gone."""
        names = [entry.name for entry in os.scandir(self.home.sessions)]
        return [name for name in names if name.startswith(ANONYMOUS)]


def _remove_unplaced(link: Path) -> None:
    """Remove what keepers have left that were killed just before their link was at its place."""
    for entry in os.scandir(link.parent):
        if entry.name.startswith(f"{link.name}."):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.path)
