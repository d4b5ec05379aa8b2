"""Starting rounds, and the failed seats of one again: all that was asked for, or nothing.

First the directories of all seats, then the row on disk, and only then does any seat start. An
engine that is killed before the row leaves no round, one that is killed later a whole one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from engine.errors import ExpiredHandle, InvalidState
from engine.jobs.directory import Asked, new_id
from engine.model import now_ms, rfc3339
from engine.store.ledger import Ledger
from engine.store.rounds import NoRound, StoredRound
from engine.tasks.rounds import LETTER, Round
from engine.tasks.seats import Seat
from engine.tasks.storing import add_in_time
from engine.tasks.supervisor import Supervisor
from engine.tasks.task import Task


class RoundStarter:
    """Starts through the supervisor, as any call is started."""

    def __init__(self, supervisor: Supervisor, ledger: Ledger) -> None:
        self._supervisor, self._ledger = supervisor, ledger
        self._rounds, self._acceptor = supervisor.rounds, supervisor.acceptor

    def check(self, asked: Asked) -> None:
        """Raise unless there is all that a seat names: see `Acceptor.accept`."""
        self._acceptor.check(asked)

    async def start(self, caller: str, seats: Mapping[str, Asked]) -> tuple[str, dict[str, Task]]:
        """The id of a new round, and its tasks: queued, or about to start.

        Raises ShuttingDown, Overloaded. Cancelled, there is a whole round or none.
        """
        id_ = LETTER + new_id()
        while not self._rounds.is_free(id_):
            id_ = LETTER + new_id()
        self._rounds.changing[id_] = None
        try:
            made = await self._make(id_, seats)
            row = StoredRound(
                id=id_,
                caller=caller,
                order=min(task.record.order for task in made.values()),
                created_at=now_ms(),
                seats={name: (task.id,) for name, task in made.items()},
            )
            await self._write(row, made)
            self._begin(row, made)
        finally:
            self._rounds.changing.pop(id_, None)
        return id_, made

    async def retry(self, round_: Round, names: Sequence[str]) -> dict[str, Task]:
        """New tasks for seats of a round that have failed, each of what the last one was.

        Raises InvalidState where one has not, ExpiredHandle where what it was is gone, and what
        `start` raises.
        """
        before = round_.row
        if before.id in self._rounds.changing:
            raise InvalidState("seats of this round are being started", state="starting")
        self._rounds.changing[before.id] = before
        try:
            seats = self._rounds.seats(before)
            asked = {name: _asked_again(name, seats[name]) for name in names}
            made = await self._make(before.id, asked)
            again = {name: (*before.seats[name], task.id) for name, task in made.items()}
            row = msgspec.structs.replace(
                before, seats=before.seats | again, generation=before.generation + 1
            )
            await self._write(row, made)
            self._begin(row, made)
        finally:
            self._rounds.changing.pop(before.id, None)
        return made

    async def _make(self, id_: str, seats: Mapping[str, Asked]) -> dict[str, Task]:
        schedule = self._supervisor.schedule
        free = max(0, schedule.slots - len(schedule.running))
        waiting = len(schedule) + max(1, len(seats) - free)
        placed = {
            name: msgspec.structs.replace(asked, round_id=id_, seat=name)
            for name, asked in seats.items()
        }
        return await self._acceptor.make_seats(placed, waiting)

    async def _write(self, row: StoredRound, made: Mapping[str, Task]) -> None:
        """Have the row on disk; else nothing of what was made is left. Raises Overloaded."""
        try:
            await add_in_time(self._ledger, row)
        except BaseException:
            # It may be on its way: then what was before follows it.
            before = self._rounds.changing[row.id]
            self._ledger.rounds.put(before or NoRound(id=row.id))
            self._acceptor.unmake(made)
            raise

    def _begin(self, row: StoredRound, made: Mapping[str, Task]) -> None:
        for task in made.values():
            self._supervisor.catalog.add(task)
        self._rounds.begin(row, [task.id for task in made.values()])
        for task in made.values():
            self._supervisor.take_in(task)


def _asked_again(name: str, seat: Seat) -> Asked:
    """What the seat was asked to run. Raises InvalidState, ExpiredHandle."""
    if not seat.has_failed:
        how = "has succeeded" if seat.status.is_final else "has not ended"
        raise InvalidState(f"seat {name} {how}: only one that failed runs again", state=seat.status)
    spec = None if seat.task is None else seat.task.directory.read_spec()
    if spec is None:
        at = None if seat.ended_at is None else rfc3339(seat.ended_at)
        raise ExpiredHandle("t" + seat.id, ended_at=at, status=seat.status)
    return Asked(**{field: getattr(spec, field) for field in Asked.__struct_fields__})
