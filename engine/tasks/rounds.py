"""Rounds: jobs side by side under one handle, each in a seat; which there are and how they stand.

A round has ended when no seat runs, and its end is what its caller receives. What began it, and
begins it again, is `roundstart`. What is kept of one is the table in record.db, which names the
tasks of its seats; all else these say themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from engine.errors import ExpiredHandle, UnknownHandle
from engine.model import ANONYMOUS, Status, TaskRecord, rfc3339
from engine.store.index import EndedHandle
from engine.store.ledger import MOST_TOLD, Ledger, Tomb
from engine.store.reading import StoreUnreadable
from engine.store.rounds import NoRound, StoredRound
from engine.store.told import Told
from engine.tasks.alerts import Once
from engine.tasks.catalog import Catalog
from engine.tasks.inbox import Inbox
from engine.tasks.seats import Seat, ended_at, newest, status_of
from engine.tasks.waits import Waits

LETTER: Final = "r"  # with which the ids of rounds begin
_NO_LINES: Final = [0] * 8  # of a round itself no lines are told


class Round:
    """`running`: the ids of the tasks that have not ended. `shown`: by caller, which seats it was
    told to be lost; their categories are the ids of their tasks."""

    __slots__ = ("row", "running", "shown")

    def __init__(self, row: StoredRound, running: Iterable[str] = ()) -> None:
        self.row = row
        self.running = set(running)
        self.shown: dict[str, Once] = {}


def id_of(handle: str) -> str:
    """The id of what is received under this handle."""
    return handle.partition("#")[0]


class Rounds:
    """`live` are those of which a seat runs. Nothing here waits."""

    def __init__(self, catalog: Catalog, ledger: Ledger, inbox: Inbox, waits: Waits) -> None:
        self._catalog, self._ledger, self._inbox, self._waits = catalog, ledger, inbox, waits
        self.live: dict[str, Round] = {}
        # Those whose row is being written: what they were before; None: nothing.
        self.changing: dict[str, StoredRound | None] = {}

    # -- finding ---------------------------------------------------------------------------------

    def find(self, id_: str) -> Round:
        """The round of this id. Raises UnknownHandle or ExpiredHandle."""
        live = self.live.get(id_)
        if live is not None:
            return live
        row = self.changing[id_] if id_ in self.changing else self._ledger.rounds.find(id_)
        if row is not None:
            return Round(row)
        tomb = self._ledger.find_tomb(id_) if id_.startswith(LETTER) else None
        if tomb is None:
            raise UnknownHandle(id_)
        at = None if tomb.ended_at is None else rfc3339(tomb.ended_at)
        raise ExpiredHandle(id_, ended_at=at, status=tomb.status)

    def is_free(self, id_: str) -> bool:
        """Whether no round has, had or is about to have this id."""
        is_known = id_ in self.changing or self._ledger.rounds.find(id_) is not None
        return not is_known and self._ledger.find_tomb(id_) is None

    def check(self, handle: str) -> None:
        """Raise UnknownHandle or ExpiredHandle unless a task, kickoff or round has this handle."""
        if handle.startswith(LETTER):
            self.find(handle)
        else:
            self._catalog.find(handle)

    def end_of(self, handle: str) -> Status | None:
        """How what a handle names has ended; None while it has not."""
        if not handle.startswith(LETTER):
            return self._catalog.end_of(handle)
        try:
            status = status_of(self.seats(self.find(handle).row).values())
        except ExpiredHandle as exc:
            return Status(exc.status or Status.LOST)
        except UnknownHandle:
            return Status.LOST
        return status if status.is_final else None

    def seats(self, row: StoredRound) -> dict[str, Seat]:
        """The seats by name, as they were given."""
        return {name: self._seat(id_) for name, id_ in row.tasks.items()}

    def _seat(self, id_: str) -> Seat:
        try:
            task = self._catalog.find("t" + id_)
        except ExpiredHandle:
            tomb = self._ledger.find_tomb(id_)
            status = Status.LOST if tomb is None else Status(tomb.status)
            return Seat(id_, status, None if tomb is None else tomb.ended_at, None)
        # Somebody has removed its folder, and the index is a new one; or nothing can be read.
        except (UnknownHandle, StoreUnreadable):
            return Seat(id_, Status.LOST, None, None)
        return Seat(id_, task.record.status, task.record.ended_at, task)

    def unfinished_of(self, caller: str) -> Iterator[Round]:
        return (each for each in list(self.live.values()) if each.row.caller == caller)

    def is_told(self, record: TaskRecord) -> bool:
        """Whether a task is no seat, or of a round that is on disk."""
        if record.round_id is None:
            return True
        row = self._ledger.rounds.find(record.round_id)
        return row is not None and record.id in row.seats.get(record.seat or "", ())

    def newest_first(self, caller: str | None, before: int | None) -> Iterator[StoredRound]:
        """Rounds, newest first, from below order `before`. Take what you need."""
        for row in self._ledger.rounds.newest_first(caller, before):
            known: StoredRound | None = self.changing.get(row.id, row)
            if known is not None:
                yield known

    # -- life ------------------------------------------------------------------------------------

    def begin(self, row: StoredRound, started: Iterable[str]) -> None:
        """The row is on disk, and these seats of it are about to start, at first or anew."""
        before = self.changing.pop(row.id)
        if before is not None:
            self._inbox.forget(before.handle)
            self._leave_behind(before, row)
        round_ = self.live.setdefault(row.id, Round(row))
        round_.row = row
        round_.running.update(started)

    def _leave_behind(self, before: StoredRound, row: StoredRound) -> None:
        """Have the ends of those who had a seat before, which the round will not tell any more, in
        the inbox each by itself, as far as they were not received."""
        for name, id_ in before.tasks.items():
            task = self._seat(id_).task if row.tasks[name] != id_ else None
            if task is not None:
                self._came_alone(task.record)

    def _came_alone(self, record: TaskRecord) -> None:
        if not self._inbox.is_received(record.caller, record.task_id):
            self._inbox.came(record.caller, record.task_id, record.order)

    def ended(self, record: TaskRecord) -> Status | None:
        """A seat has ended; how the round has, if that was the last that ran."""
        round_ = self.live.get(record.round_id or "")
        if round_ is None or record.id not in round_.running:
            if record.round_id is not None and self._has_lost_seat(record):
                self._came_alone(record)  # only now known: the engine before us was killed
            return None
        round_.running.discard(record.id)
        if round_.running:
            self._waits.wake(("round", round_.row.id))
            return None
        return self._end(round_)

    def _has_lost_seat(self, record: TaskRecord) -> bool:
        """Whether another has the task's seat since it failed."""
        try:
            row = self._ledger.rounds.find(record.round_id or "")
        except StoreUnreadable:
            return False  # the next start tells of it
        return row is not None and record.id in row.seats.get(record.seat or "", ())[:-1]

    def _end(self, round_: Round) -> Status:
        row, seats = round_.row, self.seats(round_.row)
        del self.live[row.id]
        self._ledger.drop_told(row.id)
        self._inbox.came(row.caller, row.handle, newest(seats, row))
        self._waits.wake(("round", row.id))
        return status_of(seats.values())

    def stirred(self, record: TaskRecord) -> None:
        """A task is blocked on something else than before: whoever waits for its round looks."""
        if record.round_id in self.live:
            self._waits.wake(("round", record.round_id))

    def forgotten(self, round_id: str | None) -> None:
        """A task is gone, of this round if any. A round goes with its last seat."""
        if round_id is None or round_id in self.live:
            return
        try:
            row = self._ledger.rounds.find(round_id)
        except StoreUnreadable:
            return  # the next start sees that no seat is left
        if row is not None and row.id not in self.changing:
            self._bury(row)

    def _bury(self, row: StoredRound) -> None:
        seats = self.seats(row)
        if any(seat.task is not None for seat in seats.values()):
            return
        at, status = ended_at(seats.values()), status_of(seats.values())
        self._ledger.bury(Tomb(id=row.id, ended_at=at, status=status))
        self._inbox.forget(row.handle)

    # -- what is told once -------------------------------------------------------------------------

    def shown(self, round_: Round, caller: str) -> Once:
        """Which seats `caller` was told to be lost, by this engine or one before it."""
        once = round_.shown.get(caller)
        if once is None:
            told = self._ledger.told(round_.row.id, caller)
            once = Once() if told is None else Once(told.shown, told.sent)
            round_.shown[caller] = once
            if len(round_.shown) > MOST_TOLD:
                del round_.shown[next(iter(round_.shown))]
        return once

    def keep_shown(self, round_: Round, caller: str) -> None:
        """What `caller` was told of lost seats has changed: the next engine is to know."""
        once = self.shown(round_, caller)
        if not caller.startswith(ANONYMOUS) and round_.row.id in self.live:
            self._ledger.tell(
                Told(
                    task=round_.row.id,
                    caller=caller,
                    output=(),
                    lines=_NO_LINES,
                    shown=tuple(sorted(once.received)),
                    sent=once.sent,
                )
            )

    # -- after a start -----------------------------------------------------------------------------

    def load(self, final: Collection[str]) -> None:
        """Know those of which a seat goes on; `final`: the tasks that have ended or are gone."""
        for row in self._ledger.rounds.all():
            running = [id_ for id_ in row.tasks.values() if id_ not in final]
            if running:
                self.live[row.id] = Round(row, running)

    def settle(self) -> None:
        """All tasks have their place: end the rounds of which nobody goes on.

        One whose seats are all unknown was never told of.
        """
        going_on = {task.id for task in self._catalog.unfinished()}
        for round_ in list(self.live.values()):
            row = round_.row
            round_.running &= going_on
            if round_.running:
                continue
            if any(not self._is_unknown(id_) for id_ in row.tasks.values()):
                self._end(round_)
            else:
                del self.live[row.id]
                self._ledger.rounds.put(NoRound(id=row.id))

    def _is_unknown(self, id_: str) -> bool:
        try:
            self._catalog.find("t" + id_)
        except UnknownHandle:
            return True
        except ExpiredHandle:
            return False
        return False

    def known_ends(self, tasks: list[EndedHandle]) -> tuple[list[EndedHandle], set[str]]:
        """The ends of `tasks`, of seats those of their rounds in place of the last one's, and those
        of who had one before; and under which handles rounds are received.

        A round whose last seat was forgotten when the engine was killed goes now.
        """
        handles, last, rows = set[str](), dict[str, EndedHandle](), dict[str, StoredRound]()
        earlier = set[str]()
        for row in self._ledger.rounds.all():
            handles.add(row.handle)
            earlier.update(id_ for ids in row.seats.values() for id_ in ids[:-1])
            if row.id not in self.live:
                rows |= dict.fromkeys(row.tasks.values(), row)
        for task in tasks:
            seated = rows.get(task.handle[1:]) if task.is_seat else None
            if seated is not None:
                last[seated.handle] = task
        ends = [
            EndedHandle(row.handle, row.caller, task.order) if row is not None else task
            for task in tasks
            for row in [rows.get(task.handle[1:]) if task.is_seat else None]
            if (
                not task.is_seat or task.handle[1:] in earlier
                if row is None
                else last[row.handle] is task
            )
        ]
        for row in {row.id: row for row in rows.values() if row.handle not in last}.values():
            self._bury(row)
        return ends, handles
