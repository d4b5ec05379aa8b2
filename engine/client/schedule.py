"""When to try again after a connection was lost. Pure: the clock is the caller's."""

from __future__ import annotations

from typing import Final

STEPS: Final = (0.1, 0.2, 0.5, 1.0, 2.0)  # seconds; the last one repeats
PATIENCE: Final = 60.0  # seconds, unless the caller says otherwise


class Schedule:
    """The moments of the attempts after a loss at `lost_at`, until `patience` seconds are over."""

    def __init__(self, lost_at: float, patience: float = PATIENCE) -> None:
        self.lost_at = lost_at
        self.patience = patience
        self.attempts = 0
        self.due = lost_at + STEPS[0]

    def failed(self, now: float) -> bool:
        """Count an attempt that failed at `now`; False when there is to be no other."""
        self.attempts += 1
        self.due = now + STEPS[min(self.attempts, len(STEPS) - 1)]
        return self.due <= self.lost_at + self.patience
