"""Mirrors `engine/client/schedule.py`."""

from __future__ import annotations

import pytest

from engine.client.schedule import Schedule


def test_attempts_come_after_a_tenth_a_fifth_a_half_one_and_then_every_two_seconds() -> None:
    schedule = Schedule(100.0)
    moments = []
    for _ in range(7):
        moments.append(schedule.due)
        assert schedule.failed(schedule.due)
    gaps = [b - a for a, b in zip([100.0, *moments], moments, strict=False)]
    assert gaps == pytest.approx([0.1, 0.2, 0.5, 1, 2, 2, 2])


def test_it_gives_up_when_the_next_attempt_would_be_too_late() -> None:
    schedule = Schedule(0.0, patience=60.0)
    attempts = 1
    while schedule.failed(schedule.due):
        attempts += 1
    assert 57 < schedule.lost_at + 60 - 2 <= 60
    assert attempts == 33  # 4 within 1.8 s, then one every 2 s


def test_no_patience_is_one_attempt() -> None:
    assert not Schedule(0.0, patience=0.0).failed(0.1)
