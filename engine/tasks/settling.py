"""Session states that are to come: of calls that are answered while their shells write them.

How such a call has ended is known, and told. Whatever starts next in its caller's session waits
for the state. One that does not come leaves the session as it was before that call.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import structlog

from engine.jobs.directory import Spec
from engine.jobs.shellstate import CallPlan
from engine.tasks.sessions import ShellSessions
from engine.tasks.waits import Waits

LONGEST_SECS: Final = 35.0  # for a state; its keeper ends a shell that takes 30

log = structlog.get_logger()


class _Coming(msgspec.Struct, frozen=True):
    """Whose state it is, and what is needed to read it."""

    spec: Spec
    plan: CallPlan


class Settling:
    """What is awaited, by the id of its task."""

    def __init__(self, sessions: ShellSessions, waits: Waits) -> None:
        self._sessions, self._waits = sessions, waits
        self._coming: dict[str, _Coming] = {}
        self._callers: dict[str, int] = {}  # how many states of each

    def expect(self, spec: Spec, plan: CallPlan) -> None:
        """The state of this call is to come."""
        self._coming[spec.id] = _Coming(spec, plan)
        self._callers[spec.caller] = self._callers.get(spec.caller, 0) + 1

    def take(self, id_: str, news: dict[str, Any], dump: bytes) -> None:
        """Commit the state that has come, see `JobListener.on_settled`."""
        coming = self._pop(id_)
        if coming is None:
            return
        if "stateLeft" in news:
            self._sessions.leave_out(coming.spec, news["stateLeft"])
        elif self._sessions.commit(coming.spec, coming.plan, dump) is None:
            _tell_lost(coming.spec, news.get("mishap", "its shell wrote none"))
        elif "mishap" in news:
            log.warning(
                "call_ended_otherwise",
                taskId="t" + id_,
                caller=coming.spec.caller,
                reason=news["mishap"],
            )
        self._waits.wake(("settled", coming.spec.caller))

    def lose(self, id_: str) -> None:
        """Nobody is left who could tell the state, if it has not come."""
        coming = self._pop(id_)
        if coming is not None:
            _tell_lost(coming.spec, "its keeper has died")
            self._waits.wake(("settled", coming.spec.caller))

    def drop(self, caller: str) -> None:
        """Take no state that is to come: the caller's session was ended."""
        for id_, coming in list(self._coming.items()):
            if coming.spec.caller == caller:
                self._pop(id_)
        self._waits.wake(("settled", caller))

    def _pop(self, id_: str) -> _Coming | None:
        coming = self._coming.pop(id_, None)
        if coming is not None:
            self._callers[coming.spec.caller] -= 1
            if not self._callers[coming.spec.caller]:
                del self._callers[coming.spec.caller]
        return coming

    async def wait(self, caller: str) -> None:
        """Wait until no state of the caller's session is to come, `LONGEST_SECS` at most."""
        await self._waits.until(
            ("settled", caller),
            lambda: None if caller in self._callers else True,
            LONGEST_SECS,
        )


def _tell_lost(spec: Spec, reason: str) -> None:
    log.warning("session_state_lost", taskId="t" + spec.id, caller=spec.caller, reason=reason)
