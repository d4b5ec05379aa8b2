"""The seats of a round: who has one and how that stands, and how the round stands by them.

Pure: whoever asks has found the tasks. Which rounds there are, `rounds` knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from engine.model import Status, TaskRecord
from engine.store.rounds import StoredRound
from engine.tasks.task import Task

_FAULTS: Final = frozenset({Status.FAILED, Status.TIMED_OUT, Status.LOST})


class Seat(NamedTuple):
    """Who has a seat now, and how that stands. `task`: None where it has expired."""

    id: str
    status: Status
    ended_at: int | None
    task: Task | None

    @property
    def has_failed(self) -> bool:
        return self.status.is_final and self.status is not Status.SUCCEEDED


def status_of(seats: Iterable[Seat]) -> Status:
    """How a round stands: as its seats, the worst of their ends.

    Cancelled is what somebody has cancelled; where seats were only skipped, it is skipped too.
    """
    found = {seat.status for seat in seats}
    if any(not status.is_final for status in found):
        return Status.RUNNING
    if found == {Status.SUCCEEDED}:
        return Status.SUCCEEDED
    if found <= {Status.SUCCEEDED, Status.SKIPPED}:
        return Status.SKIPPED
    return Status.FAILED if found & _FAULTS else Status.CANCELLED


def ended_at(seats: Collection[Seat]) -> int | None:
    """When the last seat ended; None while one runs."""
    if any(not seat.status.is_final for seat in seats):
        return None
    return max((seat.ended_at for seat in seats if seat.ended_at is not None), default=None)


def rounds_of(records: Iterable[TaskRecord]) -> list[StoredRound]:
    """The rounds of these seats, as far as the seats know: of retries only how many there were."""
    found: dict[str, list[TaskRecord]] = {}
    for record in sorted(records, key=lambda record: record.order):
        found.setdefault(record.round_id or "", []).append(record)
    rounds = []
    for id_, seated in found.items():
        seats: dict[str, tuple[str, ...]] = {}
        for record in seated:
            name = record.seat or ""
            seats[name] = (*seats.get(name, ()), record.id)
        rounds.append(
            StoredRound(
                id=id_,
                caller=seated[0].caller,
                order=seated[0].order,
                created_at=seated[0].created_at,
                seats=seats,
                generation=len(seated) - len(seats) + 1,
            )
        )
    return rounds


def newest(seats: dict[str, Seat], row: StoredRound) -> int:
    """The order of acceptance of the newest seat."""
    orders = [seat.task.record.order for seat in seats.values() if seat.task is not None]
    return max(orders, default=row.order)
