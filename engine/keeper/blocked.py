"""When to look whether a job is blocked, and what was found: `input` or `idle`.

The kernel tells nobody of either, so it must be looked at. For input: where the job can be given
any, once it has been quiet for a moment, and then ever more seldom. For idleness: at most once in
`idle_secs`. While the job writes or is written to, nothing is looked at; while it is blocked, as
seldom as for idleness, as it may go on without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

INPUT: Final = "input"  # hangs on its open input or terminal
IDLE: Final = "idle"  # neither writes nor computes
QUIET_SECS: Final = 0.2  # without a byte either way, until the input is looked at
AGAIN_SECS: Final = 0.1  # to the second look, which must find it too: it may just have begun
LONGEST_SECS: Final = 10.0  # between two looks at the input
COST_FACTOR: Final = 200  # a look that took long is not repeated before so many times that
SETTLE_SECS: Final = 5.0  # without output, until idleness is measured from there
IDLE_SECS: Final = 60.0


class Blocked:
    """Of one job that runs. `clock` gives seconds; `hangs`: whether it hangs on its input now.

    `measure`: something that changes when a process of the job computes, begins or ends. `category`
    is what is known now.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        hangs: Callable[[], bool] | None,
        measure: Callable[[], Hashable],
        idle_secs: float = IDLE_SECS,
    ) -> None:
        self.category: str | None = None
        self._clock, self._hangs, self._measure = clock, hangs, measure
        self._idle_secs = idle_secs
        self._stirred_at = clock()
        self._input_at, self._pause = 0.0, QUIET_SECS  # the next look, no sooner; how long after
        self._is_suspected = False  # the last look at the input found it
        self._measured: Hashable = None
        self._measured_at: float | None = None
        self._idle_at = 0.0  # the next measure, no sooner

    def stir(self) -> None:
        """The job has written, or was written to."""
        self._stirred_at = self._clock()
        self.category, self._is_suspected = None, False
        self._input_at, self._pause = 0.0, QUIET_SECS

    def next_timer(self) -> float:
        """When to look next (seconds of the clock)."""
        if self.category is not None or self._hangs is None:
            return self._next_measure()
        return min(self._next_look(), self._next_measure())

    def _next_look(self) -> float:
        return max(self._stirred_at + QUIET_SECS, self._input_at)

    def _next_measure(self) -> float:
        settle_secs = min(SETTLE_SECS, self._idle_secs)
        return max(self._stirred_at + settle_secs, self._idle_at)

    def on_timer(self) -> None:
        """Look, if it is due."""
        now = self._clock()
        is_measured = now >= self._next_measure()
        if is_measured:
            self._look_idle(now)
        if self._hangs is None:
            return
        # What is known is looked at again with each measure.
        if is_measured if self.category else now >= self._next_look():
            self._look_input(self._hangs)

    def _look_idle(self, now: float) -> None:
        measured, before = self._measure(), self._measured
        is_since = self._measured_at is not None and self._measured_at >= self._stirred_at
        if is_since and measured == before:
            self.category = self.category or IDLE
        elif self.category == IDLE:
            self.category = None
        self._measured, self._measured_at = measured, now
        self._idle_at = now + self._idle_secs

    def _look_input(self, hangs: Callable[[], bool]) -> None:
        begun = self._clock()
        is_found = hangs()
        ended = self._clock()
        if self.category == INPUT:
            self.category = INPUT if is_found else None
        elif is_found and self._is_suspected:
            self.category = INPUT
        self._is_suspected = is_found
        pause = AGAIN_SECS if is_found and self.category != INPUT else self._pause
        self._input_at = ended + max(pause, COST_FACTOR * (ended - begun))
        self._pause = min(2 * self._pause, LONGEST_SECS)
