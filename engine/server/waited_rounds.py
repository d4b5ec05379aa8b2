"""Rounds as a wait over many handles sees them; see `updates.Waited`.

A round is ready when no seat runs: then it has the answers of all. Before that it is once for each
seat that has failed, or is blocked, with the answer of that seat alone.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, Final

import msgspec

from engine.jobs.plaintext import json_bytes
from engine.server import outputs, replies
from engine.server.methods_run import finished
from engine.server.updates import List, Look, look_at
from engine.server.waited import OUTPUT_BYTES, Waiter
from engine.tasks.alerts import Alert
from engine.tasks.rounds import Round
from engine.tasks.seats import Seat
from engine.tasks.task import Task

ROOM: Final = 5 / 2  # of the room for a task, what the texts of all seats may take
_TOLD_ONCE: Final = ("ready_when",)  # of a task, but not in a round
# Of a reply about a task that has ended, what stands in its seat.
_ENDED: Final = (
    *("taskId", "status", "exitCode", "signal", "reason", "durationMs", "value", "error"),
    *("output", "stdout", "stderr", "outputBytes", "omittedBytes", "omittedLines", "queueReason"),
)
_TEXTS: Final = ("output", "stdout", "stderr", "value", "error")
# Likewise of one that goes on.
_RUNNING: Final = ("status", "elapsedMs", "lastOutputAt", "queueReason", "blockedOn")


class WaitedRound:
    """A round, and its seats as they were at the last look."""

    list: List = "rounds"

    def __init__(self, waiter: Waiter, round_: Round) -> None:
        self._waiter, self._services, self._caller = waiter, waiter.services, waiter.caller
        self._round, self._row = round_, round_.row
        self.id = round_.row.id
        self.wake_key: Hashable = ("round", self.id)
        self._seats: dict[str, Seat] = {}
        self._lost: list[str] = []  # the names of those of which nothing was told before
        self._alert: Alert | None = None
        self._returned: set[str] = set()  # handles of seats whose ends were received before

    @property
    def handle(self) -> str:
        return self._row.handle

    # -- looking -----------------------------------------------------------------------------------

    def look(self) -> Look | None:
        rounds = self._services.rounds
        self._round = rounds.live.get(self.id, self._round)  # it may have begun anew
        self._row = self._round.row
        self._seats, self._lost = rounds.seats(self._row), []
        if all(seat.status.is_final for seat in self._seats.values()):
            return Look("ended")
        once = rounds.shown(self._round, self._waiter.shown_to)
        if once.doubtful and self._waiter.acknowledges(once):
            self._keep()
        shown = once.shown
        lost = {
            name: seat
            for name, seat in self._seats.items()
            if seat.id not in shown and self._is_lost(seat)
        }
        known = self._known(lost)
        self._lost = [name for name, seat in lost.items() if seat.id not in known]
        return Look("seat_lost") if self._lost else None

    def _known(self, lost: dict[str, Seat]) -> set[str]:
        """Those of which the caller has the answer: what failed before others were retried.

        An onlooker has none: it is told of each once, whatever the caller received.
        """
        if self._waiter.is_onlooker:
            return set()
        handles = ["t" + seat.id for seat in lost.values() if seat.status.is_final]
        received = self._services.inbox.received_of(self._caller, handles) if handles else ()
        return {handle[1:] for handle in received}

    def _is_lost(self, seat: Seat) -> bool:
        """Whether a seat has failed, or waits for something that its peers will not bring."""
        if seat.status.is_final or seat.task is None:
            return seat.has_failed
        task = seat.task
        seen = look_at(task.record, _TOLD_ONCE, is_lane_full=lambda: self._is_lane_others(task))
        return seen is not None

    def _is_lane_others(self, task: Task) -> bool:
        """Whether a seat waits for a lane that is not only its peers'."""
        schedule = self._services.supervisor.schedule
        if not schedule.is_lane_full(task):
            return False
        inside = [other for other in schedule.running if other.record.lane == task.record.lane]
        return any(other.record.round_id != self.id for other in inside) or not inside

    def _answers(self, look: Look) -> dict[str, Seat]:
        """The seats whose answers an entry has, by name."""
        if look.ready == "ended":
            return self._seats
        return {name: self._seats[name] for name in self._lost}

    def ends(self, look: Look, told: Collection[str]) -> Sequence[str]:
        if look.is_returned:
            return []
        handles = [
            "t" + seat.id
            for seat in self._answers(look).values()
            if seat.task is not None and seat.status.is_final
        ]
        self._returned = self._services.inbox.received_of(self._caller, handles)
        self._returned.update(handle for handle in handles if handle in told)
        own = [self.handle] if look.ready == "ended" else []
        return own + [handle for handle in handles if handle not in self._returned]

    def _keep(self) -> None:
        self._services.rounds.keep_shown(self._round, self._waiter.shown_to)

    def alert(self, look: Look, delivery: str) -> Alert | None:
        if not self._lost:
            return None
        once = self._services.rounds.shown(self._round, self._waiter.shown_to)
        wake = functools.partial(self._waiter.wake, self.wake_key)
        ids = [self._seats[name].id for name in self._lost]
        self._alert = Alert(once, ids, delivery, self._keep, wake)
        self._keep()
        return self._alert

    # -- showing -----------------------------------------------------------------------------------

    def unshow(self) -> None:
        return  # nothing is noted of what a seat has written

    def unsettled(self, look: Look) -> Iterable[str]:
        if look.is_returned:
            return ()
        seats = self._answers(look).values()
        return [s.id for s in seats if s.status.is_final and "t" + s.id not in self._returned]

    async def show(
        self, look: Look, room: int, marked: Collection[str], behind: Collection[str]
    ) -> dict[str, Any]:
        answers, left = self._answers(look), int(room * ROOM)
        again = () if self._alert is None else self._alert.marked
        seats: dict[str, Any] = {}
        expired = []
        for place, (name, seat) in enumerate(self._seats.items()):
            if name not in answers or not seat.status.is_final:
                seats[name] = self._standing(seat)
                if seat.id in again:
                    seats[name]["redelivered"] = True
            elif seat.task is None:
                seats[name] = {"taskId": "t" + seat.id, "status": seat.status}
                expired.append(f"{name}: t{seat.id} has expired, and its answer with it")
            else:
                share = left // (len(self._seats) - place)
                is_new = not look.is_returned and "t" + seat.id not in self._returned
                logs = {"logsBehind": True} if seat.id in behind else {}
                seats[name], size = await self._answer(seat.task, share, logs, is_new=is_new)
                left -= size
                if "t" + seat.id in marked:
                    seats[name]["redelivered"] = True
        entry: dict[str, Any] = {"roundId": self.id, "ready": look.ready, "seats": seats}
        if expired:
            entry["warnings"] = expired
        if self.handle in marked:
            entry["redelivered"] = True
        return entry

    async def _answer(
        self, task: Task, room: int, logs: dict[str, Any], *, is_new: bool
    ) -> tuple[dict[str, Any], int]:
        """What stands in a seat that has ended, and the bytes of the texts in it."""
        if not is_new:
            record = task.record
            facts = {"taskId": record.task_id, "status": record.status}
            return {**facts, "exitCode": record.exit_code, "output_returned": True}, 0
        if self._waiter.params.include_output:
            whole = await finished(self._services, task, OUTPUT_BYTES, room, logs)
        else:
            whole = replies.ended(task, room)
        answer: dict[str, Any] = {name: whole[name] for name in _ENDED if name in whole}
        return answer, sum(len(msgspec.json.encode(answer.get(name, ""))) for name in _TEXTS)

    def _standing(self, seat: Seat) -> dict[str, Any]:
        """How a seat stands whose answer is not told."""
        task = seat.task
        if task is None or seat.status.is_final:
            return {"taskId": "t" + seat.id, "status": seat.status}
        facts = replies.standing(self._services.supervisor, task)
        handle = {"taskId": "t" + seat.id} if task.is_started else {"kickoffId": "k" + seat.id}
        return handle | {name: facts[name] for name in _RUNNING if name in facts}

    async def standing(self, room: int) -> dict[str, Any]:
        left, seats = int(room * ROOM), dict[str, Any]()
        for place, (name, seat) in enumerate(self._services.rounds.seats(self._row).items()):
            seats[name] = self._standing(seat)
            task = seat.task
            if self._waiter.has_tails and task is not None and "elapsedMs" in seats[name]:
                written = await outputs.tail(task, left // (len(self._row.seats) - place))
                left -= sum(json_bytes(written[file]) for file in task.record.files)
                seats[name] |= written
        return {"roundId": self.id, "ready": None, "seats": seats}
