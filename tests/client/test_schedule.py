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


def test_one_that_stays_away_is_asked_ever_less_often_but_twice_a_minute() -> None:
    schedule = Schedule(0.0, patience=10_000.0)
    schedule.attempts = 9
    gaps = {}
    for moment in (60.0, 120.0, 300.0, 900.0, 5_000.0):
        schedule.failed(moment)
        gaps[moment] = schedule.due - moment
    assert gaps == pytest.approx({60.0: 2, 120.0: 4, 300.0: 10, 900.0: 30, 5_000.0: 30})


def test_the_first_attempt_may_be_due_at_once() -> None:
    assert Schedule(5.0, first=0.0).due == 5.0


def test_no_patience_is_one_attempt() -> None:
    assert not Schedule(0.0, patience=0.0).failed(0.1)
