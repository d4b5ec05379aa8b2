"""Which tasks there are: those with a live handle, those in the index, and the tombs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, KeysView

from engine.config import Home
from engine.errors import ExpiredHandle, UnknownHandle
from engine.jobs.directory import TaskDirectory
from engine.model import Status, TaskRecord, rfc3339
from engine.store.index import Index
from engine.store.ledger import Ledger, Tomb
from engine.store.reading import StoreUnreadable
from engine.tasks.infolder import record_in
from engine.tasks.task import Task


class Use:
    """See `Catalog.using`. A class, as ten thousand waits hold one each: 0.4 KiB less each."""

    __slots__ = ("_catalog", "_ids")

    def __init__(self, catalog: Catalog, ids: list[str]) -> None:
        self._catalog, self._ids = catalog, ids

    def __enter__(self) -> None:
        self._catalog.in_use.update(self._ids)

    def __exit__(self, *_exc: object) -> None:
        in_use = self._catalog.in_use
        in_use.subtract(self._ids)
        freed = [id_ for id_ in self._ids if in_use[id_] == 0]
        for id_ in freed:
            in_use.pop(id_, None)
        if freed:
            self._catalog.on_free()


class Catalog:
    """Finds tasks by handle. `live` holds those that have not ended, or left processes behind.

    `in_use`: ids of tasks that calls are about. `leaving`: those that are being dropped. `on_free`
    is called when a task is no longer in use.
    """

    def __init__(self, home: Home, index: Index, ledger: Ledger) -> None:
        self.home, self._index, self._ledger = home, index, ledger
        self.live: dict[str, Task] = {}
        self.in_use: Counter[str] = Counter()
        self.leaving: dict[str, Tomb] = {}
        self.on_free: Callable[[], None] = lambda: None
        self._unfinished: dict[str, dict[str, Task]] = {}  # by caller and id

    def add(self, task: Task) -> None:
        self.live[task.id] = task
        if not task.is_ended:
            self._unfinished.setdefault(task.record.caller, {})[task.id] = task

    def retire(self, task: Task) -> None:
        """The task has ended and nobody of it is left: the index knows it from here on."""
        self.live.pop(task.id, None)
        self.ended(task)

    def ended(self, task: Task) -> None:
        """The task has ended; processes of it may be left."""
        caller = task.record.caller
        tasks = self._unfinished.get(caller, {})
        tasks.pop(task.id, None)
        if not tasks:
            self._unfinished.pop(caller, None)

    def count_unfinished(self, caller: str) -> int:
        """How many tasks the caller has that have not ended."""
        return len(self._unfinished.get(caller, ()))

    @property
    def busy_callers(self) -> KeysView[str]:
        """Those who have tasks that have not ended."""
        return self._unfinished.keys()

    def using(self, *handles: str) -> Use:
        """Keep the tasks of these handles from being dropped meanwhile."""
        return Use(self, [handle[1:] for handle in handles])

    def find(self, handle: str) -> Task:
        """The task of a task or kickoff id.

        Raises UnknownHandle, ExpiredHandle, StoreUnreadable.
        """
        letter, id_ = handle[:1], handle[1:]
        if letter not in ("t", "k"):
            raise UnknownHandle(handle)
        task = self.live.get(id_)
        if task is not None:
            return task
        tomb = self.leaving.get(id_)
        record = self._known(id_) if tomb is None else None
        if record is not None:
            return Task(record, TaskDirectory(self.home.tasks, id_))
        tomb = tomb or self._ledger.find_tomb(id_)
        if tomb is None:
            raise UnknownHandle(handle)
        ended_at = None if tomb.ended_at is None else rfc3339(tomb.ended_at)
        raise ExpiredHandle(handle, ended_at=ended_at, status=tomb.status)

    def _known(self, id_: str) -> TaskRecord | None:
        """The record of a task that has ended; of an index that cannot be read, its folder's."""
        try:
            return self._index.find(id_)
        except StoreUnreadable:
            record = record_in(TaskDirectory(self.home.tasks, id_))
            if record is None:
                raise
            return record

    def end_of(self, handle: str) -> Status | None:
        """How what a handle names has ended; None while it has not. Of what nobody knows any more
        nobody saw the end."""
        try:
            status = self.find(handle).record.status
        except ExpiredHandle as exc:
            return Status(exc.status or Status.LOST)
        except UnknownHandle:
            return Status.LOST
        return status if status.is_final else None

    def which_had(self, ids: Collection[str]) -> set[str]:
        """Which of these few ids tasks have, or had that are gone, folder and all.

        A ledger that cannot be read refuses no call for that: ids are drawn from two milliards.
        """
        there = {id_ for id_ in ids if os.path.lexists(self.home.tasks / id_)}
        try:
            return there | self._ledger.which_buried(ids)
        except StoreUnreadable:
            return there

    def now(self, record: TaskRecord) -> TaskRecord:
        """The newest record of the same task: of a running one the sizes change unrecorded."""
        task = self.live.get(record.id)
        return record if task is None else task.record

    def unfinished_of(self, caller: str) -> Iterator[Task]:
        """The caller's tasks that have not ended, as they came."""
        return iter(list(self._unfinished.get(caller, {}).values()))

    def unfinished(self) -> Iterator[Task]:
        return (task for task in list(self.live.values()) if not task.is_ended)
