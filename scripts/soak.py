"""A soak: mixed callers, the engine killed with -9 again and again, and every job accounted for.

    soak.py [--minutes N] [--seed S] [--home DIR]

Clients that are not ours run all kinds of jobs, cancel some, feed some, follow outputs and the
journal, and call again under their keys where a reply is lost. At least ten times a minute the
engine is killed, each time behind a burst of calls, so that a third of the jobs begin within
50 ms of a kill; it comes back at once or after a second or two. When nothing runs any more, what
each job did by its own word is held against tasks, outputs, journal, codes and sessions. Prints
the table; exit code 1 where a line of it is wrong, and then the home is kept.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from acceptance.running import Engine
from rich.console import Console
from rich.table import Table

from scripts.soak_account import NEAR_SECS, NEAR_SHARE, Row, near_kills
from scripts.soak_callers import Stories
from scripts.soak_end import (
    End,
    Life,
    Usage,
    alive,
    client_rows,
    kill_rows,
    read_mark,
    usage_rows,
)
from scripts.soak_inbox import Inboxes
from scripts.soak_jobs import Job, Json, Maker
from scripts.soak_lines import NICE, Line
from scripts.soak_orders import LANE, LANE_SLOTS, Order, Orders, order_rows
from scripts.soak_watch import Bell, Reader, Tail

SLOTS: Final = 10  # few: some calls are to wait
STORIES: Final = 40  # jobs that are seen to at once
JOURNAL_LINES: Final = 20_000_000  # none is dropped: each is to be found
LIFE_SECS: Final = (1.2, 3.5)  # from ready to the kill
SHORT_LIFE_SECS: Final = (0.0, 0.15)  # of some: killed while it still finds its jobs again
SHORT_LIVES: Final = 0.15  # their share
BURST: Final = (4, 14)  # calls just before a kill: as many as can begin by then, and some more
SMALL_BURST: Final = (3, 7)
LEAD_SECS: Final = (0.0, 0.07)  # from the first of them to one of the other kills
HEARD: Final = 0.7  # share of the kills that wait until some of them have begun
HEAR_SECS: Final = 0.5  # but no longer than this
STEADY: Final = (1, 20)  # other calls in a life
SHOWN: Final = 12  # of what is wrong with one line of the table
FLOOD_SECS: Final = 45.0  # from one to the next

# Caller -> its connection. The calls on the last one are in no session: it breaks by itself too.
CALLERS: Final = {
    "ada": 0, "ben": 0, "cleo": 0, "dan": 1, "eve": 1, "fay": 2, "gus": 2, "hal": 3,
}  # fmt: skip
FICKLE: Final = 3


class Soak:
    """Owns the engine, the connections and the jobs."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.marks, self.places = folder / "marks", folder / "places"
        self.marks.mkdir()
        for name in ("d0", "d1", "d2", "d3"):
            (self.places / name).mkdir(parents=True)
        settings = ("--set", "min_free_bytes=0", "--set", f"journal_lines={JOURNAL_LINES}")
        lane = ("--lane", f"{LANE}={LANE_SLOTS}")
        self.engine = Engine(folder / "home", "--slots", str(SLOTS), *lane, *settings)
        self.lines = [Line(f"line {i}", is_tcp=i == 1) for i in range(max(CALLERS.values()) + 1)]
        self.judge, self.watch = Line("judge", is_tcp=False), Line("watch", is_tcp=True)
        self.bell = Bell(folder / "bell")
        run = random.randrange(100_000, 1_000_000)  # another one if the seed comes again
        maker = Maker(self.random, self.marks, self.places, folder / "bell", run)
        outside = [caller for caller, line in CALLERS.items() if line == FICKLE]
        self.orders = Orders(self.random, maker, list(CALLERS), outside)
        self.inboxes = Inboxes(list(CALLERS), lambda: len(self.lives), seed)
        self.stories = Stories(seed, alive, self.inboxes.ledger)
        self.tail, self.reader = Tail(self.watch), Reader(self.watch)
        self.jobs: list[Job] = []
        self.lives: list[Life] = []
        self.setup: set[str] = set()
        self._places = threading.Semaphore(STORIES)
        self._pool = ThreadPoolExecutor(STORIES, initializer=os.nice, initargs=(NICE,))
        self._near = self._begun = 0
        self._next_flood = 0.0

    @property
    def all_lines(self) -> list[Line]:
        return [*self.lines, *self.inboxes.lines, self.judge, self.watch]

    # -- lives ------------------------------------------------------------------------------------

    def start(self) -> tuple[float, Usage]:
        """Start the engine, and let the clients in; when that was, and what it has."""
        self.engine.start()
        usage = Usage.of(self.engine.pid)
        for line in self.all_lines:
            line.open(self.engine)
        return time.time(), usage

    def kill(self, began: tuple[float, Usage]) -> None:
        last = Usage.of(self.engine.pid)
        killed_at = time.time()
        for line in self.all_lines:
            line.hold()
        self.engine.kill()
        for line in self.all_lines:
            line.part()
        self.lives.append(Life(began[0], killed_at, began[1], last))

    def run(self, minutes: float) -> None:
        """Lives and kills until the time is over; then all jobs come to their ends."""
        began = self.start()
        self.set_up()
        for thread in (self.tail, self.reader, *self.inboxes.collectors):
            thread.start()
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            first = len(self.jobs)
            if self.random.random() < SHORT_LIVES:
                time.sleep(self.random.uniform(*SHORT_LIFE_SECS))
            else:
                self.live()
            self.burst()
            self.kill(began)
            if self.random.random() < 0.3:
                time.sleep(self.random.uniform(0.5, 2.0))
            began = self.start()
            self._count_near(self.jobs[first:])
        self._pool.shutdown(wait=True)
        last = Usage.of(self.engine.pid)
        self.lives.append(Life(began[0], time.time(), began[1], last))

    def set_up(self) -> None:
        """Begin the sessions of all callers, with a known state."""
        for caller, line in CALLERS.items():
            text = f"V=0; cd {self.places}/d0"
            for method, what in (("bash", {"command": text}), ("execute", {"code": "V = 0"})):
                reply = self.lines[line].call(method, **{"as": caller}, **what)
                assert reply["status"] == "succeeded", reply
                self.setup.add(reply["taskId"])

    def live(self) -> None:
        """A life's steady calls, at moments of its own; fewer where too few are near to kills."""
        count = max(STEADY[0], min(STEADY[1], STEADY[0] + self._surplus))
        length = self.random.uniform(*LIFE_SECS)
        moments = sorted(self.random.uniform(0, length) for _ in range(count))
        began = time.monotonic()
        self.inboxes.break_one(self.engine)
        for moment in moments:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            self.send_one(is_short=False)
            if self.random.random() < 0.03:
                self.lines[FICKLE].part()
                self.lines[FICKLE].open(self.engine)
        if time.monotonic() > self._next_flood:
            self._next_flood = time.monotonic() + FLOOD_SECS
            self.send_one(kind="flood", fate="ends")
        time.sleep(max(0.0, began + length - time.monotonic()))
        self.inboxes.break_one(self.engine)

    @property
    def _surplus(self) -> int:
        """How many more jobs may begin far from a kill."""
        return int(self._near / NEAR_SHARE * 0.9) - self._begun

    def burst(self) -> None:
        """Calls that begin about when the engine is killed."""
        # What does not begin in time begins after the next start, far from the kill.
        count = self.random.randint(*(BURST if self._surplus > 0 else SMALL_BURST))
        kill_at = time.monotonic() + self.random.uniform(*LEAD_SECS)
        self.bell.forget()
        for _ in range(count):
            self.send_one(is_short=True)
        if self.random.random() < HEARD:
            self.bell.wait(self.random.randint(1, count // 2), HEAR_SECS)
            kill_at = time.monotonic() + self.random.uniform(0, NEAR_SECS / 2)
        time.sleep(max(0.0, kill_at - time.monotonic()))

    def _count_near(self, jobs: list[Job]) -> None:
        """Count those of a life that have begun by now, and those that were near to a kill."""
        times = [begin for job in jobs for begin in read_mark(self.marks, job.number).begins]
        self._begun += len(times)
        self._near += near_kills(times, [self.lives[-1].ended_at])

    # -- jobs -------------------------------------------------------------------------------------

    def send_one(self, *, is_short: bool = False, kind: str = "", fate: str = "") -> None:
        """Send a call; somebody of the pool sees to it from then on. None where all are busy."""
        if not self._places.acquire(blocking=False):
            self.stories.counts["not sent"] += 1
            return
        order = self.orders.next(kind=kind, fate=fate, is_short=is_short)
        line = self.lines[CALLERS[order.caller]]
        for job in order.jobs:
            job.sends = 1
        self.jobs += order.jobs
        first = line.send(order.method, order.params)
        if (lock := order.lock) is not None:  # answered, it has committed or has left the session
            first.add_done_callback(lambda _future: lock.release())
        self._pool.submit(self._follow, order, line, first)

    def _follow(self, order: Order, line: Line, first: Future[Json]) -> None:
        try:
            if order.seats is None:
                self.stories.follow(order.jobs[0], line, first)
            else:
                self.stories.follow_round(order.seats, line, first)
        finally:
            self._places.release()

    # -- the end ----------------------------------------------------------------------------------

    def account(self) -> list[Row]:
        """The table; the engine has ended then."""
        end = End(self.engine, self.judge, self.jobs, self.marks, self.setup)
        table, view = end.job_rows()
        for line in self.lines:
            line.part()  # what was answered last on it, and not acknowledged, goes to the inboxes
        table += order_rows(self.jobs, view)
        table += self.inboxes.rows(self.jobs, view)
        table += client_rows(self.tail, self.reader, self.stories, view)
        table += kill_rows(self.lives, view)
        table += end.left_rows(CALLERS)
        return [*table, end.log_row(), *usage_rows(self.lives)]

    def close(self) -> None:
        """End what is there, whatever has happened."""
        self.engine.kill()
        self.engine.end_leftovers()
        self.bell.close()


def show(table: list[Row]) -> bool:
    """Print the table and what is wrong; whether nothing is."""
    screen = Table("what", "found", "", title="soak")
    for row in table:
        screen.add_row(row.what, row.value, "WRONG" if row.wrong else "")
    Console().print(screen)
    for row in table:
        for words in row.wrong[:SHOWN]:
            print(f"{row.what}: {words}")
        if len(row.wrong) > SHOWN:
            print(f"{row.what}: and {len(row.wrong) - SHOWN} more")
    return not any(row.wrong for row in table)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--home", type=Path, help="an empty folder for the home; it is kept")
    options = parser.parse_args()
    folder = options.home or Path(tempfile.mkdtemp(prefix="engine-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, in {folder}", flush=True)
    began = time.monotonic()
    soak = Soak(folder.resolve(), options.seed)
    is_right = False
    try:
        soak.run(options.minutes)
        print(
            f"{len(soak.jobs)} calls, {time.monotonic() - began:.0f} s; now the account", flush=True
        )
        is_right = show(soak.account())
    finally:
        soak.close()
        if is_right and options.home is None:
            shutil.rmtree(folder)
        else:
            print(f"kept: {folder}")
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
