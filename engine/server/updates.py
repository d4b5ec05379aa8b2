"""What a wait over many handles has to tell: which are ready and why, and how much of it fits.

Knows no store and no socket. Tasks are one kind of what can be waited for, rounds another; a third
is another `Waited`, found by `find` of `methods_many`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from engine.model import TaskRecord
from engine.server.fitting import fit, frame
from engine.tasks.alerts import Alert

MOST_UPDATES: Final = 1_000  # looked at for one reply; at 600 bytes each, more do not fit

Ready = Literal["ended", "execution_blocked", "ready_when", "seat_lost"]
List = Literal["updates", "rounds"]  # of a reply


class Look(NamedTuple):
    """Why something is ready. `is_returned`: its end was received before, so it is shown without
    what it wrote. `category`: what is told of it only once while it goes on."""

    ready: Ready
    category: str | None = None
    is_returned: bool = False


class Waited(Protocol):
    """One thing that is waited for."""

    id: str  # as the caller spelled it
    wake_key: Hashable  # its own, woken whenever `look` may see something else
    list: List  # where its entries stand

    @property
    def handle(self) -> str:
        """Under which its end is received."""

    def look(self) -> Look | None:
        """Why it is ready, for who waits; None: it is not. What follows is about this look."""

    def ends(self, look: Look, told: Collection[str]) -> Sequence[str]:
        """The handles whose ends an entry carries that were not received before.

        `told`: those that entries before it in the same reply carry.
        """

    def alert(self, look: Look, delivery: str) -> Alert | None:
        """What of `look` is told only once, now carried by a delivery of this id; None: nothing."""

    def unsettled(self, look: Look) -> Iterable[str]:
        """Ids of tasks that have ended whose lines an entry shows."""

    async def show(
        self, look: Look, room: int, marked: Collection[str], behind: Collection[str]
    ) -> dict[str, Any]:
        """The entry; what it has written may take `room` bytes of JSON.

        `marked`: handles of whose ends a reply may have told before; `behind`: ids of tasks of
        which the journal has not all lines yet.
        """

    def unshow(self) -> None:
        """The entry is in no reply after all."""

    async def standing(self, room: int) -> dict[str, Any]:
        """The entry of one that goes on and has nothing to tell."""


def look_at(
    record: TaskRecord, shown: Collection[str], *, is_lane_full: Callable[[], bool]
) -> Look | None:
    """Why a task is ready; None while it goes on and there is nothing new to tell of it."""
    if record.status.is_final:
        return Look("ended")
    if record.ready and "ready_when" not in shown:
        return Look("ready_when", "ready_when")
    if record.blocked is not None and record.blocked not in shown:
        return Look("execution_blocked", record.blocked)
    if record.lane is not None and "lane" not in shown and is_lane_full():
        return Look("execution_blocked", "lane")
    return None


class Page:
    """Entries, as many as fit into so many bytes of JSON; the first one always does, cut to it."""

    def __init__(self, limit_bytes: int, pending: Iterable[str]) -> None:
        """`pending`: the ids that the reply may have to list besides."""
        self.entries: dict[List, list[dict[str, Any]]] = {"updates": [], "rounds": []}
        left = limit_bytes - frame(limit_bytes) - sum(len(id_) + 3 for id_ in pending)
        self._left = max(left, limit_bytes // 4)  # of a share of a batch the ids may take all
        # For what one of them has written, as JSON.
        self.room = min(limit_bytes // 4, self._left * 2 // 5)

    def add(self, entry: dict[str, Any], to: List = "updates") -> bool:
        """Take an entry; False if there is no room for it."""
        if not any(self.entries.values()):
            entry = fit(entry, self._left - 1)
        elif len(msgspec.json.encode(entry)) >= self._left:
            return False
        size = len(msgspec.json.encode(entry)) + 1
        self._left -= size
        self.entries[to].append(entry)
        return True
