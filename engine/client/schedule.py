"""When to try again after a connection was lost. Pure: the clock is the caller's."""

from __future__ import annotations

from typing import Final

STEPS: Final = (0.1, 0.2, 0.5, 1.0, 2.0)  # seconds; the last one repeats
LONGEST_STEP: Final = 30.0  # seconds between two attempts at an engine that stays away
SHARE: Final = 30  # past a minute the steps grow: this part of the time that it has been away
START_AFTER: Final = 4  # failed attempts, 1.8 s; whoever else looks after the engine was faster
PATIENCE: Final = 60.0  # seconds, unless the caller says otherwise
ANSWER_SECS: Final = 2.0  # that an engine has for an answer however little a person would wait


class Bound:
    """How long a person waits for all of it, as `option` says; counted from `now`."""

    def __init__(self, now: float, seconds: float, option: str) -> None:
        self.until = now + seconds
        self.seconds, self.option = max(seconds, ANSWER_SECS), option  # what it comes to

    def limit(self, now: float, budget: float = 0.0) -> float:
        """When to give up on what is begun now and may itself take `budget` seconds."""
        return max(self.until, now + budget + ANSWER_SECS)


class Schedule:
    """The moments of the attempts after a loss at `lost_at`, until `patience` seconds are over."""

    def __init__(self, lost_at: float, patience: float = PATIENCE, *, first: float = STEPS[0]):
        """`first`: seconds until the first attempt."""
        self.lost_at = lost_at
        self.patience = patience
        self.attempts = 0
        self.due = lost_at + first

    def failed(self, now: float) -> bool:
        """Count an attempt that failed at `now`; False when there is to be no other."""
        self.attempts += 1
        step = STEPS[min(self.attempts, len(STEPS) - 1)]
        away = (now - self.lost_at) / SHARE
        self.due = now + max(step, min(away, LONGEST_STEP))
        return self.due <= self.lost_at + self.patience
