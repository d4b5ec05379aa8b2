"""The inboxes of the soak's callers: who takes the ends from them, and the ledger of what came.

Each caller has one thread that asks `wait_any` for whatever is its own, acknowledges by `ack` or
by asking on, and whose connection breaks at random. The ledger is the account's: each end reaches
its caller, by a reply about the task or by the inbox, and the inbox tells it twice only with the
mark.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from acceptance.running import Engine, RpcError

from scripts.soak_account import Row, View
from scripts.soak_jobs import Job, Json, end_of
from scripts.soak_lines import NICE, OVER_SECS, Line, LinkLost, NotAnswered

LINES: Final = 4  # each of two callers
IDLE_SECS: Final = 0.1  # until a caller that has nothing to wait for asks again
DRAIN_SECS: Final = 60.0  # for what is in an inbox when nothing runs any more
FINAL: Final = frozenset({"succeeded", "failed", "cancelled", "timed_out", "lost", "skipped"})


class Tell(NamedTuple):
    """An end that a `wait_any` told. `sent_at`: when that was asked, monotonic seconds."""

    sent_at: float
    is_marked: bool
    is_after_receipt: bool  # that the same engine had answered
    end: tuple[Any, ...]


class Ledger:
    """What the inboxes have told, of all callers."""

    def __init__(self) -> None:
        self.tells: defaultdict[str, list[Tell]] = defaultdict(list)  # by task id
        self.rounds: defaultdict[str, list[bool]] = defaultdict(list)  # ends told, with the mark?
        self.once: Counter[tuple[str, ...]] = Counter()  # news that comes once
        self.wrong: list[str] = []
        self.replies = 0
        self._news = threading.Condition()

    def wait(self, task: str, limit_secs: float) -> bool:
        """Wait until an inbox has told of this end; False if none does."""
        with self._news:
            return self._news.wait_for(lambda: bool(self.tells.get(task)), limit_secs)

    def note(
        self, caller: str, reply: Json, sent_at: float, received: Callable[[str], bool]
    ) -> list[str]:
        """Note a reply; the tasks of whose ends it tells. `received`: see `Tell`."""
        told: list[str] = []

        def tell(about: Json) -> None:
            task = about["taskId"]
            is_marked = about.get("redelivered", False)
            self.tells[task].append(Tell(sent_at, is_marked, received(task), end_of(about)))
            told.append(task)

        with self._news:
            self.replies += 1
            for update in reply["updates"]:
                task, why = "t" + update["kickoffId"][1:], update["ready"]
                if update["as"] != caller:
                    self.wrong.append(f"{caller} was told of {task}")
                if why == "ended" and "output_returned" in update:
                    self.wrong.append(f"{task} was received, and told {caller} again")
                elif why == "ended":
                    tell(update)
                elif why is not None:  # it does not only go on
                    self.once[caller, task, why, update.get("category") or ""] += 1
            for entry in reply["rounds"]:
                if entry["ready"] == "ended":
                    self.rounds[entry["roundId"]].append(entry.get("redelivered", False))
                for name, seat in entry["seats"].items():
                    if "reason" in seat:
                        tell(seat)
                    if "reason" in seat and entry["ready"] == "seat_lost":
                        self.once[caller, entry["roundId"], "seat_lost", name, seat["taskId"]] += 1
            self._news.notify_all()
        return told


class Collector(threading.Thread):
    """Takes one caller's ends. `life`: the number of the engine that runs."""

    def __init__(
        self, caller: str, line: Line, ledger: Ledger, life: Callable[[], int], seed: int
    ) -> None:
        super().__init__(daemon=True)
        self._caller, self._line, self._ledger, self._life = caller, line, ledger, life
        self._random = random.Random(f"{seed} {caller}")
        self._over = threading.Event()
        self._delivery: str | None = None
        self._told: list[str] = []  # by the last reply
        self._received: dict[str, int] = {}  # task -> the engine that has answered its receipt
        self.trouble: str | None = None

    def run(self) -> None:
        os.nice(NICE)
        try:
            while not self._over.is_set():
                reply = self._ask(self._random.choice([0, 0.05, 0.5, 2]))
                if reply["reason"] == "nothing_pending":
                    self._over.wait(IDLE_SECS)
            until = time.monotonic() + DRAIN_SECS
            while self._ask(0)["reason"] != "nothing_pending":
                assert time.monotonic() < until, "the inbox does not become empty"
        except (NotAnswered, RpcError, AssertionError, KeyError) as exc:
            self.trouble = f"{self._caller}: {type(exc).__name__}: {exc}"

    def stop(self) -> None:
        """Take what is left; nothing runs any more."""
        self._over.set()
        self.join(DRAIN_SECS + OVER_SECS)

    def _ask(self, wait_seconds: float) -> Json:
        """The next reply, over any number of kills; it is noted."""
        asked: Json = {"as": self._caller, "wait_seconds": wait_seconds}
        asked["include_output"] = self._random.random() < 0.5
        is_acked = self._delivery is not None and self._random.random() < 0.6
        if is_acked:
            asked["ack"] = self._delivery
        while True:
            self._line.wait_up()
            life, sent_at = self._life(), time.monotonic()
            try:
                reply = self._line.call("wait_any", **asked)
                break
            except LinkLost:
                continue
        if is_acked:
            self._received.update(dict.fromkeys(self._told, life))
        self._delivery = reply["delivery"]
        self._told = self._ledger.note(
            self._caller, reply, sent_at, lambda task: self._received.get(task) == life
        )
        return reply


class Inboxes:
    """All of them, on a few connections. `life`: see `Collector`."""

    def __init__(self, callers: list[str], life: Callable[[], int], seed: int) -> None:
        self.lines = [Line(f"inbox {i}", is_tcp=i % 2 == 1) for i in range(LINES)]
        self.ledger, self._random, self._breaks = Ledger(), random.Random(seed), 0
        self.collectors = [
            Collector(caller, self.lines[i % LINES], self.ledger, life, seed)
            for i, caller in enumerate(callers)
        ]

    def break_one(self, engine: Engine) -> None:
        """Have the connection that lost its replies since the last time end, and open another;
        where none has, one loses them from now on.
        """
        for line in self.lines:
            if line.is_deaf:
                line.drop()
                line.open(engine)
                self._breaks += 1
                return
        self._random.choice(self.lines).is_deaf = True

    def rows(self, jobs: Iterable[Job], view: View) -> list[Row]:
        """Take what is left, and make the table's lines; nothing runs any more."""
        for collector in self.collectors:
            collector.stop()
        table = inbox_rows(jobs, view, self.ledger, [c.trouble for c in self.collectors])
        return [*table, Row("connections of inboxes broken", str(self._breaks))]


# -- the account ----------------------------------------------------------------------------------


def inbox_complaints(job: Job, row: Json, tells: list[Tell]) -> Iterator[tuple[str, str]]:
    """What is wrong with what the caller of a job was told: which line of the table, and words."""
    unmarked = [tell for tell in tells if not tell.is_marked]
    if not tells and not job.replied:
        yield "lost", "nobody has told its caller of its end"
    if len(unmarked) > 1:
        yield "twice", f"told {len(unmarked)} times without the mark"
    # The reply to the call that began it keeps the inbox from telling.
    elif unmarked and job.sends == 1 and job.first in ("inline", "late"):
        yield "twice", "told by its own reply, and by the inbox without the mark"
    elif unmarked and job.replied and min(job.replied) < unmarked[0].sent_at:
        yield "twice", "told by a reply, and later by the inbox without the mark"
    if any(tell.is_after_receipt for tell in tells):
        yield "twice", "told again by the engine that had its receipt"
    if any(tell.end != end_of(row) for tell in tells):
        yield "lost", f"told {tells}, and its row says {end_of(row)}"


def inbox_rows(
    jobs: Iterable[Job], view: View, ledger: Ledger, troubles: Iterable[str | None]
) -> list[Row]:
    """The table's lines about inboxes. `troubles`: of those who asked for them."""
    wrong: defaultdict[str, list[str]] = defaultdict(list)
    wrong["lost"] += [trouble for trouble in troubles if trouble]
    accepted = [(job, view.jobs[job.number].rows[0]) for job in jobs if view.jobs[job.number].rows]
    for job, row in accepted:
        for where, words in inbox_complaints(job, row, ledger.tells[row["taskId"]]):
            wrong[where].append(f"{job}, {row['taskId']}: {words}")
    rounds = {row["roundId"] for _job, row in accepted if row["roundId"] is not None}
    for id_ in sorted(rounds):
        marks = ledger.rounds.get(id_, [])
        if not marks:
            wrong["lost"].append(f"nobody was told of the end of {id_}")
        if marks.count(False) > 1:
            wrong["twice"].append(f"{id_} was told {marks.count(False)} times without the mark")
    again = [f"{' '.join(news)}: {count} times" for news, count in ledger.once.items() if count > 1]
    told = sum(bool(job.replied or ledger.tells[row["taskId"]]) for job, row in accepted)
    alone = sum(not job.replied for job, _row in accepted)
    marked = sum(tell.is_marked for tells in ledger.tells.values() for tell in tells)
    return [
        Row(
            "ends delivered to their callers", f"{told} of {len(accepted)}, {alone} by inbox alone"
        ),
        Row("replies of inboxes", str(ledger.replies), ledger.wrong),
        Row("rounds, and how often their ends were told", _count_rounds(rounds, ledger)),
        Row("ends repeated with the mark", str(marked)),
        Row("ends repeated without it", str(len(wrong["twice"])), wrong["twice"]),
        Row("ends lost to their callers", str(len(wrong["lost"])), wrong["lost"]),
        Row("news that comes once, told twice", f"{len(again)} of {len(ledger.once)}", again),
    ]


def _count_rounds(rounds: Iterable[str], ledger: Ledger) -> str:
    known = list(rounds)
    return f"{len(known)}, {sum(len(ledger.rounds.get(id_, [])) for id_ in known)}"
