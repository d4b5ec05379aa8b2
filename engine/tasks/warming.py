"""Shells started ahead: one for a caller whose call has just ended, for the call that may follow.

Starting bash, having it restore a session and then run a command takes three times as long as the
command alone. So after a reply the caller's next shell is started, and waits. It is for a call as
most are, in the session and with nothing of its own but the text; any other starts its own shell.
Where calls come one upon the other and change nothing, the next shell is started with each call:
after the reply there would be no time.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
import structlog
import trio

from engine.jobs.directory import Asked, Base, Spec
from engine.jobs.executor import Executor, LaunchRefused
from engine.jobs.shellstate import LARGE_BYTES, ShellState
from engine.model import Kind
from engine.tasks.ahead import DirectoriesAhead
from engine.tasks.sessions import ShellSessions
from engine.tasks.starting import Starter

KEEP_SECS: Final = 300.0  # that a shell waits for a call
# A shell so young is not ended for another's: of more callers at once than may have one, each would
# end the shell that the next one is about to need, and none would find its own.
SPARED_SECS: Final = 1.0
HURRY_SECS: Final = 0.003  # from a reply to the next call of one who is in a hurry
MAX_PACES: Final = 1_000  # callers whose pace is known

log = structlog.get_logger()

T = TypeVar("T")

_Mark = tuple[bytes, bytes] | None  # what tells a state from another; a state may be large


class _Ready(msgspec.Struct, frozen=True):
    """One shell: it has been started from `state`, for a task with this id."""

    id: str
    state: ShellState
    until: float  # trio.current_time


class _Pace(msgspec.Struct, frozen=True):
    """Of a caller's last call in its session."""

    replied_at: float  # trio.current_time
    started_from: _Mark


class WarmShells:
    """At most `limit` shells; the one that was started longest ago goes first, unless young."""

    def __init__(
        self,
        executor: Executor,
        starter: Starter,
        sessions: ShellSessions,
        directories: DirectoriesAhead,
        limit: int,
    ) -> None:
        self._executor, self._starter, self._sessions = executor, starter, sessions
        self._directories = directories
        self._limit = limit
        self._ready: dict[str, _Ready] = {}  # by caller, the oldest first
        self._paces: dict[str, _Pace] = {}
        self._started_from: dict[str, _Mark] = {}  # the calls that run
        self._changed = trio.Event()

    def id_for(self, caller: str) -> str | None:
        """The id that a task of this caller must have to find its shell; None: there is none."""
        ready = self._ready.get(caller)
        return None if ready is None else ready.id

    def take(self, spec: Spec, state: ShellState | None) -> None:
        """Have the launch of `spec` from `state` find its shell, or none that is another's."""
        if spec.session and spec.command is not None:
            _put(self._started_from, spec.caller, _mark_of(state))
        ready = self._ready.get(spec.caller)
        if ready is None or ready.id != spec.id:
            return
        del self._ready[spec.caller]
        if ready.state is not state or not is_plain(spec):
            self._end(ready)

    def is_hurried(self, caller: str) -> bool:
        """Whether the next shell should be started while this call runs."""
        pace = self._paces.get(caller)
        if pace is None or _mark_of(self._sessions.state(caller)) != pace.started_from:
            return False
        return trio.current_time() - pace.replied_at < HURRY_SECS

    def replied(self, caller: str) -> None:
        """A call in the caller's session has ended and is answered: the next may come."""
        before = self._started_from.pop(caller, None)
        _put(self._paces, caller, _Pace(trio.current_time(), before))

    async def renew(self, caller: str) -> None:
        """Have a shell ready from the caller's state as it is now."""
        state = self._sessions.state(caller)
        ready = self._ready.get(caller)
        if not self._limit or state is None or (ready is not None and ready.state is state):
            return
        self.discard(caller)
        if self._sessions.size(caller) > LARGE_BYTES:
            return  # it would be held in memory twice more, here and in the shell
        while len(self._ready) >= self._limit:
            oldest, waiting = next(iter(self._ready.items()))
            if trio.current_time() < waiting.until - KEEP_SECS + SPARED_SECS:
                return
            self.discard(oldest)
        try:
            directory = self._directories.reserve()
        except OSError as exc:
            log.warning("no_shell_ahead", caller=caller, reason=str(exc))
            return
        ready = _Ready(directory.id, state, trio.current_time() + KEEP_SECS)
        self._ready[caller] = ready
        self._changed.set()
        order, _plan = self._starter.order(_spec_ahead(ready.id, caller, state), state)
        try:
            await self._executor.prepare(directory, order)
        except LaunchRefused as exc:
            log.warning("no_shell_ahead", caller=caller, reason=str(exc))
            if self._ready.get(caller) is ready:
                self.discard(caller)
        if self._ready.get(caller) is not ready:  # discarded, or taken, meanwhile
            self._end(ready)

    def discard(self, caller: str) -> None:
        """End the caller's shell, if it has one."""
        ready = self._ready.pop(caller, None)
        if ready is not None:
            self._end(ready)

    def _end(self, ready: _Ready) -> None:
        self._executor.discard(ready.id)
        self._directories.give_back(ready.id)

    async def serve(self) -> None:
        """End each shell that has waited `KEEP_SECS`."""
        while True:
            while not self._ready:  # what came may be taken before we have our turn
                self._changed = trio.Event()
                await self._changed.wait()
            caller, ready = next(iter(self._ready.items()))
            await trio.sleep_until(ready.until)
            if self._ready.get(caller) is ready:
                self.discard(caller)


def _mark_of(state: ShellState | None) -> _Mark:
    return None if state is None else (state.digest, state.directory)


def _put(known: dict[str, T], caller: str, value: T) -> None:
    """Note the newest of a caller; of too many callers the one longest quiet is dropped."""
    known.pop(caller, None)
    if len(known) >= MAX_PACES:
        del known[next(iter(known))]
    known[caller] = value


def is_plain(call: Asked) -> bool:
    """Whether a call has nothing of its own that its shell would have to be started with."""
    return (
        call.command is not None
        and call.session
        and call.cwd is None
        and not call.env
        and call.stdin is None
        and call.memory_bytes is None
        and not (call.stdin_open or call.pty or call.split)
    )


def _spec_ahead(id_: str, caller: str, state: ShellState) -> Spec:
    """The spec of a plain call that may come."""
    return Spec(
        id=id_,
        caller=caller,
        kind=Kind.BASH,
        title="",
        order=0,
        created_at=0,
        base=Base(cwd=state.cwd, env={}),  # of a new session alone
        command="",
        session=True,
    )
