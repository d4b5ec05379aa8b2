"""Which tasks there are: those with a live handle, those in the index, and the tombs."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import Home
from engine.errors import ExpiredHandle, UnknownHandle
from engine.jobs.directory import TaskDirectory
from engine.model import TaskRecord, rfc3339
from engine.store.index import Index
from engine.store.ledger import Ledger
from engine.tasks.task import Task


class Catalog:
    """Finds tasks by handle. `live` holds those that have not ended, or left processes behind."""

    def __init__(self, home: Home, index: Index, ledger: Ledger) -> None:
        self.home, self._index, self._ledger = home, index, ledger
        self.live: dict[str, Task] = {}

    def add(self, task: Task) -> None:
        self.live[task.id] = task

    def retire(self, task: Task) -> None:
        """The task has ended and nobody of it is left: the index knows it from here on."""
        self.live.pop(task.id, None)

    def find(self, handle: str) -> Task:
        """The task of a task or kickoff id. Raises UnknownHandle or ExpiredHandle."""
        letter, id_ = handle[:1], handle[1:]
        if letter not in ("t", "k"):
            raise UnknownHandle(handle)
        task = self.live.get(id_)
        if task is not None:
            return task
        record = self._index.find(id_)
        if record is not None:
            return Task(record, TaskDirectory(self.home.tasks, id_))
        tomb = self._ledger.find_tomb(id_)
        if tomb is None:
            raise UnknownHandle(handle)
        ended_at = None if tomb.ended_at is None else rfc3339(tomb.ended_at)
        raise ExpiredHandle(handle, ended_at=ended_at, status=tomb.status)

    def is_buried(self, id_: str) -> bool:
        """Whether a task that is gone, folder and all, had this id."""
        return self._ledger.find_tomb(id_) is not None

    def now(self, record: TaskRecord) -> TaskRecord:
        """The newest record of the same task: of a running one the sizes change unrecorded."""
        task = self.live.get(record.id)
        return record if task is None else task.record

    def unfinished(self) -> Iterator[Task]:
        return (task for task in list(self.live.values()) if not task.is_ended)
