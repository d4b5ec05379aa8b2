"""What is asked for next: single calls and rounds, some of which wait for others. No I/O.

Some calls start after the end of an earlier one, or are skipped for it; some go through a lane of
two; some are ready before they end, and say so to whoever waits.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scripts.soak_account import Row, Seen, View
from scripts.soak_jobs import FATES, KINDS, QUICK_FATES, QUICK_KINDS, SESSIONS, Job, Json, Maker

LANE: Final = "narrow"
LANE_SLOTS: Final = 2
ROUND_SHARE: Final = 0.06  # of all calls
LANE_SHARE: Final = 0.12  # of those that may have it
AFTER_SHARE: Final = {
    False: 0.25,
    True: 0.06,
}  # by whether it is short: a burst is to begin at once
READY_SHARE: Final = 0.12
LATEST: Final = 30  # calls of which one may be waited for
FREE_KINDS: Final = ("shell", "argv", "split", "pty")  # in no session, and fed by nobody
IN_CALL: Final = ("as", "key", "timeout_secs", "logs")  # that no seat has


@dataclass
class Order:
    """One call. `seats`: of a round. `lock`: of the session that it is in."""

    caller: str
    jobs: list[Job]
    seats: dict[str, Job] | None = None
    lock: threading.Lock | None = None

    @property
    def method(self) -> str:
        return "run_round" if self.seats is not None else self.jobs[0].method

    @property
    def params(self) -> Json:
        if self.seats is None:
            return self.jobs[0].params
        return {"as": self.caller, "seats": {name: job.params for name, job in self.seats.items()}}


class Orders:
    """`outside`: the callers whose calls are in no session."""

    def __init__(
        self, random: random.Random, maker: Maker, callers: Sequence[str], outside: Collection[str]
    ) -> None:
        self._random, self._maker = random, maker
        self._callers, self._outside = callers, outside
        self._numbers = itertools.count(1)
        self._shells = {caller: threading.Lock() for caller in callers}  # one call at a time
        self._latest: deque[Job] = deque(maxlen=LATEST)

    def next(self, *, kind: str = "", fate: str = "", is_short: bool) -> Order:
        """The next call; of the drawn kind and fate unless they are given."""
        caller = self._random.choice(self._callers)
        if not kind and self._random.random() < ROUND_SHARE:
            return self._round(caller)
        kind = kind or self._draw(QUICK_KINDS if is_short else KINDS)
        fate = fate or self._draw(QUICK_FATES if is_short else FATES)
        lock = self._shells[caller] if kind == "session" else None
        if lock is not None and (caller in self._outside or not lock.acquire(blocking=False)):
            kind, lock = "shell", None
        if kind in SESSIONS and fate in ("killed", "deadline"):  # the next call needs the session
            fate = "ends"
        job = self._maker.make(next(self._numbers), caller, kind, fate, is_short=is_short)
        if kind in FREE_KINDS:
            self._add_wants(job, is_short=is_short)
        self._latest.append(job)
        return Order(caller, [job], lock=lock)

    def _round(self, caller: str) -> Order:
        seats = {}
        for name in ("lint", "types", "tests")[: self._random.randint(2, 3)]:
            kind, fate = self._random.choice(FREE_KINDS), self._random.choice(["ends", "killed"])
            job = self._maker.make(next(self._numbers), caller, kind, fate, is_short=True)
            job.params = {key: value for key, value in job.params.items() if key not in IN_CALL}
            job.key, job.is_seat = None, True
            if self._random.random() < LANE_SHARE:
                job.params["lane"] = LANE
            seats[name] = job
        return Order(caller, list(seats.values()), seats)

    def _add_wants(self, job: Job, *, is_short: bool) -> None:
        if self._random.random() < LANE_SHARE:
            job.params["lane"] = LANE
        if self._random.random() < READY_SHARE:
            number = self._random.randint(1, job.lines)
            job.params["ready_when"] = {"contains": f"j{job.number} {number} "}
        known = [other for other in self._latest if other.handles]
        if known and self._random.random() < AFTER_SHARE[is_short]:
            self._add_before(job, self._random.choice(known))

    def _add_before(self, job: Job, before: Job) -> None:
        """Have it wait for the end of an earlier one, and be skipped where that ends otherwise."""
        when = "ended"
        if before.is_whole and before.before is None:  # how that will end is known
            when = self._random.choice(["ended", "succeeded", "failed"])
            if when not in ("ended", before.own_end[0]):
                job.fate = "skipped"
        (handle,) = list(before.handles)[:1]
        job.before = before
        job.params |= {"after": ["k" + handle], "after_when": when}

    def _draw(self, weights: dict[str, int]) -> str:
        return self._random.choices(list(weights), list(weights.values()))[0]


# -- the account ----------------------------------------------------------------------------------


def order_rows(jobs: Iterable[Job], view: View) -> list[Row]:
    """Whether those that were to wait have waited. Times are the engine's own, in milliseconds."""
    known = [(job, view.jobs[job.number]) for job in jobs if view.jobs[job.number].rows]
    dependents = [(job, seen) for job, seen in known if job.before is not None]
    early = [
        f"{job}: started {seen.rows[0]['startedAt']}, before the end of {job.before}"
        for job, seen in dependents
        if job.before is not None and _is_early(seen, view.jobs[job.before.number])
    ]
    skipped = sum(job.fate == "skipped" for job, _seen in dependents)
    inside = [seen.rows[0] for job, seen in known if job.params.get("lane") == LANE]
    most = most_at_once(inside)
    over = [f"{most} at once in a lane of {LANE_SLOTS}"] * (most > LANE_SLOTS)
    return [
        Row("calls after others", f"{len(dependents)}, {skipped} of them skipped", early),
        Row(f"calls in a lane of {LANE_SLOTS}", f"{len(inside)}, at most {most} at once", over),
    ]


def _is_early(seen: Seen, before: Seen) -> bool:
    started = seen.rows[0]["startedAt"]
    return bool(started and (not before.rows or started < before.rows[0]["endedAt"]))


def most_at_once(rows: Iterable[dict[str, Any]]) -> int:
    """Of how many of these tasks the spans from start to end have a moment in common."""
    moments = []
    for row in rows:
        if row["startedAt"]:
            moments += [(row["startedAt"], 1), (row["endedAt"], -1)]
    most = now = 0
    for _at, step in sorted(moments):  # an end goes before a start of the same millisecond
        now += step
        most = max(most, now)
    return most
