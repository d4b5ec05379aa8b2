"""Mirrors `engine/tasks/seats.py`."""

from __future__ import annotations

import pytest

from engine.model import Status
from engine.tasks.seats import Seat, ended_at, status_of


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ("succeeded succeeded", "succeeded"),
        ("succeeded running", "running"),
        ("failed queued", "running"),
        ("succeeded failed", "failed"),
        ("cancelled timed_out", "failed"),
        ("lost succeeded", "failed"),
        ("cancelled succeeded", "cancelled"),
        ("skipped", "skipped"),
        ("skipped succeeded", "skipped"),
        ("skipped cancelled", "cancelled"),
        ("skipped failed", "failed"),
    ],
)
def test_a_round_stands_as_its_seats_do(statuses: str, status: str) -> None:
    seats = [Seat("a", Status(word), None, None) for word in statuses.split()]
    assert status_of(seats) == status


@pytest.mark.parametrize(
    ("seats", "at"),
    [
        ([("succeeded", 3), ("failed", 5)], 5),
        ([("succeeded", 3), ("running", None)], None),
        ([("lost", None), ("cancelled", 4)], 4),
        ([("lost", None)], None),
    ],
)
def test_a_round_has_ended_when_its_last_seat_has(
    seats: list[tuple[str, int | None]], at: int | None
) -> None:
    assert ended_at([Seat("a", Status(word), end, None) for word, end in seats]) == at
