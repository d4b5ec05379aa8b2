"""What the engine did in the last hour, in steps of five seconds: kept as counts, never looked up.

Whoever ends tasks and commits lines tells of it; a tick at the end of each step notes what ran and
waited. After a start the steps before it are made up from the index. Lives in the engine's own
thread; knows no wire but the form of a sample.
"""

from __future__ import annotations

import random
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import trio

from engine.journal.levels import Level
from engine.model import TaskRecord, rfc3339
from engine.store.past import End
from engine.threads import in_thread

STEP_MS: Final = 5_000
STEPS: Final = 720  # an hour
HOUR_MS: Final = STEPS * STEP_MS
MOST_TIMES: Final = 1_000  # kept of one step for its percentiles; of more, a fair choice
SET_BACK_STEPS: Final = 12  # a clock that was set back further begins a new hour
INLINE_TIMES: Final = 10_000  # sorted without a thread; takes 1 ms
TURN_ENDS: Final = 1_000  # taken over at a time; takes 3 ms
FAILED: Final = frozenset({"failed", "timed_out", "lost"})


class Times:
    """Times in ms, of which percentiles are taken."""

    __slots__ = ("_count", "kept")

    def __init__(self) -> None:
        self.kept = array("Q")
        self._count = 0

    def add(self, ms: int) -> None:
        self._count += 1
        if self._count <= MOST_TIMES:
            self.kept.append(ms)
        elif (place := random.randrange(self._count)) < MOST_TIMES:  # each is as likely to stay
            self.kept[place] = ms


def percentile(ordered: list[int], percent: int) -> int | None:
    """The least of them that so many percent do not exceed; None of nothing."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


class Tally:
    """How many tasks of a caller have ended, and how many of those failed."""

    __slots__ = ("ended", "failed")

    def __init__(self) -> None:
        self.ended = self.failed = 0


class _Step:
    """What came in five seconds, and what ran and waited at their end."""

    __slots__ = ("callers", "ended", "launches", "lines", "queued", "running", "shown", "times")

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        self.callers: dict[str, Tally] = {}
        self.lines: dict[int, int] = {}
        self.times, self.launches = Times(), Times()
        self.running = self.queued = 0
        self.shown: msgspec.Raw | None = None  # as JSON, until more comes


class Stats:
    """The last hour. Times are ms since 1970; steps are numbered by them."""

    def __init__(self, now: int) -> None:
        self._begin = now // STEP_MS
        self.early: list[TaskRecord | End] = []  # ended since, but not begun; until `remember`
        self._is_early = True
        self._start_anew(self._begin)

    def _start_anew(self, current: int) -> None:
        self._current = current  # the step that is not over yet
        self._steps = {number: _Step() for number in range(current - STEPS, current + 1)}
        self.by_caller: dict[str, Tally] = {}
        self._ended, self._lines = Counter[str](), Counter[int]()  # of the hour
        self._merged: tuple[list[int], list[int]] | None = None  # times of the steps that are over

    # -- what is told ------------------------------------------------------------------------------

    def ended(self, end: TaskRecord | End) -> None:
        """A task has ended; one that did so over an hour ago is no news."""
        assert end.ended_at is not None
        if self._is_early and end.created_at < self.begin:
            self.early.append(end)
        step = self._at(end.ended_at)
        if step is None:
            return
        step.ended[end.status.value] = step.ended.get(end.status.value, 0) + 1
        self._ended[end.status.value] += 1
        for tally in (
            step.callers.setdefault(end.caller, Tally()),
            self.by_caller.setdefault(end.caller, Tally()),
        ):
            tally.ended += 1
            tally.failed += end.status.value in FAILED
        if end.duration_ms is not None:
            step.times.add(max(0, end.duration_ms))

    def launched(self, at: int, launch_ms: int) -> None:
        """A process began at that time, so long after it had its slot."""
        step = self._at(at)
        if step is not None:
            step.launches.add(max(0, launch_ms))

    def committed(self, now: int, lines: Mapping[int, int]) -> None:
        """So many lines of each level are in the journal."""
        self._add_lines(now // STEP_MS, lines.items())

    def _add_lines(self, number: int, lines: Iterable[tuple[int, int]]) -> None:
        step = self._at(number * STEP_MS)
        if step is not None:
            for level, count in lines:
                step.lines[level] = step.lines.get(level, 0) + count
                self._lines[level] += count

    def _at(self, ms: int) -> _Step | None:
        number = min(ms // STEP_MS, self._current)
        step = self._steps.get(number)
        if step is not None:
            step.shown = None
        if number < self._current:
            self._merged = None
        return step

    def tick(self, now: int, running: int, queued: int) -> None:
        """The steps before `now` are over; so much runs and waits."""
        number = now // STEP_MS
        if number < self._current - SET_BACK_STEPS:
            self._start_anew(number)
        for each in range(max(self._current, number - STEPS - 1), number):
            step = self._steps.setdefault(each, _Step())
            step.running, step.queued, step.shown = running, queued, None
            self._current, self._merged = each + 1, None
            self._steps[self._current] = _Step()
        for old in [each for each in self._steps if each < self._current - STEPS]:
            self._drop(self._steps.pop(old))

    def _drop(self, step: _Step) -> None:
        self._ended.subtract(step.ended)
        self._lines.subtract(step.lines)
        for caller, tally in step.callers.items():
            total = self.by_caller[caller]
            total.ended -= tally.ended
            total.failed -= tally.failed
            if not total.ended:
                del self.by_caller[caller]

    # -- the hour before the start -----------------------------------------------------------------

    async def remember(
        self,
        ended: list[End],
        lines: list[tuple[int, int, int]],
        gauges: tuple[list[int], list[int]],
    ) -> None:
        """Take over what the index knows: ends, lines as `past.line_counts` has them, `gauges`."""
        self._is_early, self.early = False, []
        for place, end in enumerate(ended):
            self.ended(end)
            if place % TURN_ENDS == TURN_ENDS - 1:
                await trio.lowlevel.checkpoint()  # others have their turn, too
        for number, level, count in lines:
            self._add_lines(number, [(level, count)])
        for number, running, queued in zip(
            range(self._begin - STEPS, self._begin), *gauges, strict=True
        ):
            if (step := self._steps.get(number)) is not None:
                step.running, step.queued, step.shown = running, queued, None

    @property
    def begin(self) -> int:
        """Of the step in which the engine started, the first moment."""
        return self._begin * STEP_MS

    # -- what is shown -----------------------------------------------------------------------------

    def samples(self, since: int, limit_bytes: int) -> tuple[list[msgspec.Raw], bool]:
        """The steps that were over after `since`, oldest first, as JSON; whether there are more."""
        page: list[msgspec.Raw] = []
        size = 0
        for number in range(max(self._current - STEPS, since // STEP_MS), self._current):
            shown = self._shown(number)
            size += len(memoryview(shown)) + 1
            if size > limit_bytes and page:
                return page, True
            page.append(shown)
        return page, False

    def _shown(self, number: int) -> msgspec.Raw:
        step = self._steps[number]
        if step.shown is None:
            times = sorted(step.times.kept)
            sample = {
                "time": rfc3339((number + 1) * STEP_MS),
                "running": step.running,
                "queued": step.queued,
                **_counts(step.ended, step.lines, times, sorted(step.launches.kept)),
            }
            step.shown = msgspec.Raw(msgspec.json.encode(sample))
        return step.shown

    async def hour(self) -> dict[str, Any]:
        """The hour in one: what ended and came, and the percentiles of all times."""
        times, launches = self._merged or await self._merge()
        step = self._steps[self._current]
        return _counts(
            {status: count for status, count in self._ended.items() if count},
            {level: count for level, count in self._lines.items() if count},
            sorted([*times, *step.times.kept]),  # all but the last in order: a matter of copying
            sorted([*launches, *step.launches.kept]),
        )

    async def _merge(self) -> tuple[list[int], list[int]]:
        steps = [step for number, step in self._steps.items() if number < self._current]
        if sum(len(step.times.kept) for step in steps) <= INLINE_TIMES:
            self._merged = _merged([(step.times.kept, step.launches.kept) for step in steps])
            return self._merged
        copied = [(step.times.kept[:], step.launches.kept[:]) for step in steps]
        return await in_thread(_merged, copied)


def _merged(kept: list[tuple[array[int], array[int]]]) -> tuple[list[int], list[int]]:
    times, launches = list[int](), list[int]()
    for more_times, more_launches in kept:
        times.extend(more_times)
        launches.extend(more_launches)
    return sorted(times), sorted(launches)


def _counts(
    ended: Mapping[str, int], lines: Mapping[int, int], times: list[int], launches: list[int]
) -> dict[str, Any]:
    return {
        "ended": ended,
        "lines": {Level(level).word: lines[level] for level in sorted(lines)},
        "p50Ms": percentile(times, 50),
        "p95Ms": percentile(times, 95),
        "launchP95Ms": percentile(launches, 95),
    }


def gauges(tasks: Iterable[TaskRecord | End], begin: int) -> tuple[list[int], list[int]]:
    """How many of them ran, and how many waited, at the end of each step of the hour to `begin`.

    One that has not ended did so then, too.
    """
    first = begin // STEP_MS - STEPS
    running, queued = [0] * (STEPS + 1), [0] * (STEPS + 1)

    def add(changes: list[int], start: int, end: int) -> None:
        # A step ends a moment after its number: what begins or ends then is of the next.
        for moment, change in ((start, 1), (end, -1)):
            place = -(-moment // STEP_MS) - 1 - first
            changes[min(max(place, 0), STEPS)] += change

    for task in tasks:
        end = begin + 1 if task.ended_at is None else task.ended_at
        start = end if task.started_at is None else task.started_at
        add(queued, task.created_at, start)
        add(running, start, end)
    return _summed(running), _summed(queued)


def _summed(changes: list[int]) -> list[int]:
    total, sums = 0, []
    for change in changes[:STEPS]:
        total += change
        sums.append(total)
    return sums


async def serve_ticks(tick: Callable[[int], None]) -> None:
    """Call `tick` with the time at the end of each step, until cancelled."""
    while True:
        now = time.time()
        await trio.sleep(STEP_MS / 1000 - now % (STEP_MS / 1000))
        tick(int(time.time() * 1000))
