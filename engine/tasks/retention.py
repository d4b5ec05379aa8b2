"""Retention: ended tasks are dropped when they are too many, too large together, or too old.

The one that ended first goes first. Woken by what has changed: a commit, growth of an output, the
time at which a task comes of age. It works in batches: the tombs of one in one transaction, the
rows in the index's next one, the files in a thread. Killed in between, the next start finishes it:
see `recovery`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog
import trio

from engine.config import Settings
from engine.jobs import orphans
from engine.jobs.directory import TaskDirectory
from engine.model import Status, TaskRecord, now_ms
from engine.store import ended
from engine.store.ended import Ended, Excess
from engine.store.index import Index
from engine.store.ledger import Ledger, Tomb
from engine.store.reading import StoreUnreadable
from engine.store.writer import StoreUnavailable
from engine.tasks import infolder
from engine.tasks.catalog import Catalog
from engine.tasks.supervisor import TaskLog
from engine.threads import in_thread

BATCH: Final = 500  # tasks dropped with one transaction
FILES_BATCH: Final = 25  # directories removed in one go of the thread; the engine's end waits
SLACK: Final = 100  # of a limit, one part in so many is freed at a time
RETRY_SECS: Final = 5.0  # where the store takes no tombs
AGE_STEP_SECS: Final = 60.0  # at most: those that come of age one by one are gathered for so long
HAUNTED_SECS: Final = 60.0  # until a lost task is looked at again that has processes left
LOOK_SECS: Final = 3600.0  # at most, to the next look at the clock: it may have been set anew
_DAY_MS: Final = 86_400_000

log = structlog.get_logger()


class Clock:
    """The time of day, but never ahead of what has passed since the engine began.

    A clock that is set forward, by mistake or not, makes no task older.
    """

    def __init__(self) -> None:
        self._began, self._boot_ms = now_ms(), _boot_ms()

    def __call__(self) -> int:
        return min(now_ms(), self._began + _boot_ms() - self._boot_ms)


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Retention:
    """Drops tasks. It is the outer `TaskLog`: what it is told of sizes, it passes on to `inner`."""

    def __init__(
        self,
        settings: Settings,
        index: Index,
        ledger: Ledger,
        catalog: Catalog,
        inner: TaskLog,
        dropped: Callable[[list[Ended]], None] = lambda _tasks: None,
    ) -> None:
        """`dropped`: told of those whose handles have just expired."""
        self._most_tasks, self._most_bytes = settings.ended_tasks, settings.total_output_cap_bytes
        self._most_ms = int(settings.retention_days * _DAY_MS)
        self._index, self._ledger, self._catalog, self._inner = index, ledger, catalog, inner
        self._dropped = dropped
        self._clock = Clock()
        self._running: dict[str, int] = {}  # bytes on disk of tasks that have not ended
        self._running_bytes = 0
        self._haunted: dict[str, float] = {}  # lost tasks with processes; when to look again
        self._wake = trio.Event()
        self._is_stuck = False  # nothing more may go, until something changes
        self._limiter = trio.CapacityLimiter(1)
        catalog.on_free = self.check

    # -- news ------------------------------------------------------------------------------------

    @property
    def output_bytes(self) -> int:
        """Bytes on disk of all tasks: of output, and of large calls that have ended."""
        return self._index.totals.output_bytes + self._running_bytes

    def grew(self, record: TaskRecord, directory: TaskDirectory) -> None:
        if not record.status.is_final:
            self._count(record.id, record.kept_bytes)
            if not self._is_stuck and self.output_bytes > self._most_bytes:
                self._wake.set()
        self._inner.grew(record, directory)

    def ended(self, record: TaskRecord, directory: TaskDirectory) -> None:
        self._count(record.id, 0)
        self._inner.ended(record, directory)

    def gone(self, record: TaskRecord) -> None:
        self._inner.gone(record)
        self.check()

    def remark(self, record: TaskRecord, text: str) -> None:
        self._inner.remark(record, text)

    def _count(self, id_: str, size: int) -> None:
        self._running_bytes += size - self._running.pop(id_, 0)
        if size:
            self._running[id_] = size

    def check(self) -> None:
        """Something has changed: tasks have ended, or one may go that was in use."""
        self._is_stuck = False
        if self._is_over():
            self._wake.set()

    def _is_over(self) -> bool:
        too_many = self._index.totals.ended > self._most_tasks
        return too_many or self.output_bytes > self._most_bytes

    # -- dropping ----------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Drop what is over the limits, now and whenever there is something."""
        await self._ledger.wait_complete()  # a key is not read any more once its folder is gone
        dropped = 0
        while True:
            self._wake = trio.Event()
            now = self._clock()
            try:
                found = await self._find(now)
                secs = self._secs_to_look(now)
            except StoreUnreadable:  # the engine says so in `degraded`
                await trio.sleep(RETRY_SECS)
                continue
            self._is_stuck = not found
            if found:
                dropped += await self._drop(found)
                continue
            if dropped:
                log.info("tasks_expired", count=dropped)
                dropped = 0
            with trio.move_on_after(secs):
                await self._wake.wait()

    async def _find(self, now: int) -> list[Ended]:
        """The next that are to go."""
        still = {id_: at for id_, at in self._haunted.items() if at > time.monotonic()}
        self._haunted = still
        excess = self._excess(now)
        first = ended.first_end(self._index.reader)
        is_due = first is not None and first < excess.before
        if not (excess.tasks or excess.output_bytes or is_due):
            return []
        found = await self._index.search(ended.oldest, excess, self._may_go, BATCH)
        found = await self._without_haunted(found)
        return [task for task in found if self._may_go(task.id)]

    def _excess(self, now: int) -> Excess:
        """What is to go; of what is limited by number somewhat more, so that not each new one
        costs a transaction.
        """
        tasks = self._index.totals.ended - self._most_tasks
        size = self.output_bytes - self._most_bytes
        return Excess(
            tasks=tasks + self._most_tasks // SLACK if tasks > 0 else 0,
            output_bytes=size + self._most_bytes // SLACK if size > 0 else 0,
            before=now - self._most_ms,
        )

    async def _without_haunted(self, found: list[Ended]) -> list[Ended]:
        """Those of which no process is left that only the task's handle can end: of lost ones the
        keeper is gone, and nobody tells.
        """
        lost = {"t" + task.id for task in found if task.status == Status.LOST}
        if not lost:
            return found
        alive = lost & await in_thread(orphans.owners, limiter=self._limiter)
        look_at = time.monotonic() + HAUNTED_SECS
        self._haunted |= {handle[1:]: look_at for handle in alive}
        return [task for task in found if task.id not in self._haunted]

    def _may_go(self, id_: str) -> bool:
        """Whether nobody works with it: no process of it is left, no call is about it."""
        catalog = self._catalog
        if id_ in self._haunted:
            return False
        is_free = id_ not in catalog.live and id_ not in catalog.in_use
        return is_free and not self._index.is_forgotten(id_)

    async def _drop(self, found: list[Ended]) -> int:
        """Drop these; how many. From here on their handles have expired."""
        tombs = [Tomb(id=task.id, ended_at=task.ended_at, status=task.status) for task in found]
        leaving = self._catalog.leaving
        leaving.update({tomb.id: tomb for tomb in tombs})
        try:
            await self._ledger.add(*tombs)
        except StoreUnavailable as exc:
            log.error("tasks_not_expired", reason=str(exc))
            leaving.clear()
            await trio.sleep(RETRY_SECS)  # nobody tells when a store takes writes again
            return 0
        for task in found:
            self._index.forget(task)
        leaving.clear()
        self._dropped(found)
        folder = self._catalog.home.tasks
        for start in range(0, len(found), FILES_BATCH):
            names = [task.id for task in found[start : start + FILES_BATCH]]
            directories = [TaskDirectory(folder, name) for name in names]
            await in_thread(_remove, directories, limiter=self._limiter)
        await self._settle(found[-1].id)
        return len(found)

    async def _settle(self, id_: str) -> None:
        """Wait until the totals are without the dropped: else the next would go in their place."""
        await self._index.flush()
        while self._index.is_forgotten(id_):
            await trio.sleep(RETRY_SECS)
            await self._index.flush()

    def _secs_to_look(self, now: int) -> float:
        """Until the one that ended first comes of age, and some more may have with it."""
        first = ended.first_end(self._index.reader)
        due = ((now if first is None else first) + self._most_ms - now) / 1000
        step = min(AGE_STEP_SECS, self._most_ms / 1000 / SLACK)
        again = [at - time.monotonic() for at in self._haunted.values()]
        return min(max(due, 0.0) + step, LOOK_SECS, *(max(at, step) for at in again))


def _remove(directories: list[TaskDirectory]) -> None:
    for directory in directories:
        infolder.remove(directory)
