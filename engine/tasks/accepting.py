"""Accepting a call: from what was asked to a task whose directory and key are on disk.

All that may be refused is refused here, before anything is made.
"""

from __future__ import annotations

import os
from typing import Final

import structlog
import trio

from engine.config import Home, Settings
from engine.errors import KeyConflict, Overloaded, ShuttingDown
from engine.jobs.directory import Asked, Spec, TaskDirectory
from engine.model import Kind, TaskRecord, now_ms, title_of
from engine.store.ledger import Key, Ledger
from engine.store.writer import StoreUnavailable
from engine.tasks.ahead import DirectoriesAhead
from engine.tasks.catalog import Catalog
from engine.tasks.task import Task
from engine.tasks.warming import WarmShells, is_plain

KEY_SECS: Final = 10.0  # for a key to be on disk

log = structlog.get_logger()


class Acceptor:
    """`latest_order`: of the last task that this home has had."""

    def __init__(
        self,
        *,
        home: Home,
        settings: Settings,
        catalog: Catalog,
        ledger: Ledger,
        directories: DirectoriesAhead,
        warm: WarmShells,
        latest_order: int,
    ) -> None:
        self._home, self._settings = home, settings
        self._catalog, self._ledger = catalog, ledger
        self._directories, self._warm = directories, warm
        self._next_order = latest_order + 1
        self.is_closed = False  # set it: no new task any more

    async def accept(self, asked: Asked, waiting: int) -> tuple[Task, bool]:
        """The task for this call, and whether it is new; else it is that of its key.

        `waiting`: how many wait for their start. Raises ShuttingDown, Overloaded,
        KeyConflict, ExpiredHandle. Once a new task is there, cancelling does not undo it.
        """
        if asked.key is not None and (known := self._ledger.find_key(asked.caller, asked.key)):
            return await self._answer_key(asked, known), False
        self._check_room(waiting)
        task = self._make(asked)
        self._catalog.add(task)
        if asked.key is not None:
            await self._write_key(asked, task)
        return task, True

    async def _answer_key(self, asked: Asked, known: Key) -> Task:
        if known.digest != asked.digest:
            raise KeyConflict(known.key, task_id="t" + known.task)
        try:
            await self._ledger.settle()
        except StoreUnavailable as exc:
            raise Overloaded("the store does not take writes", "store") from exc
        return self._catalog.find("t" + known.task)

    async def _write_key(self, asked: Asked, task: Task) -> None:
        key = Key(caller=asked.caller, key=asked.key or "", digest=asked.digest or "", task=task.id)
        written = False
        try:
            with trio.move_on_after(KEY_SECS, shield=True):
                await self._ledger.add(key)
                written = True
        except StoreUnavailable as exc:
            raise Overloaded("the store does not take writes", "store") from exc
        finally:
            if not written:
                self._catalog.retire(task)
                task.directory.remove()
        if not written:
            raise Overloaded("the store does not take writes", "store")

    def _check_room(self, waiting: int) -> None:
        if self.is_closed:
            raise ShuttingDown
        if waiting >= self._settings.queue_limit:
            raise Overloaded("the queue is full", self._settings.queue_limit)
        disk = os.statvfs(self._home.tasks)
        if disk.f_bavail * disk.f_frsize < self._settings.min_free_bytes:
            raise Overloaded("too little free disk for new calls", self._settings.min_free_bytes)

    def _make(self, asked: Asked) -> Task:
        """The directory of a new task, with what was asked in it. Raises Overloaded."""
        try:
            wanted = self._warm.id_for(asked.caller) if is_plain(asked) else None
            made: TaskDirectory | None = None
            while made is None:
                directory = self._directories.take(wanted, split=asked.split)
                spec = spec_of(asked, directory.id, self._next_order)
                made = self._directories.accept(directory, spec)
        except OSError as exc:
            log.error("call_not_accepted", reason=str(exc))
            raise Overloaded(f"no task directory: {exc.strerror}", "disk") from exc
        self._next_order += 1
        return Task(record_of(spec), made, spec)

    def count_on(self, order: int) -> None:
        """Give the next tasks orders after `order`, which one of an earlier engine has."""
        self._next_order = max(self._next_order, order + 1)


def spec_of(asked: Asked, id_: str, order: int) -> Spec:
    """The spec of a task with this id, which is made now."""
    kind = Kind.ARGV if asked.argv is not None else Kind.BASH
    return Spec(
        id=id_,
        kind=kind if asked.code is None else Kind.CODE,
        title=title_of(asked.command or asked.code or " ".join(asked.argv or ())),
        order=order,
        created_at=now_ms(),
        **{name: getattr(asked, name) for name in asked.__struct_fields__},
    )


def record_of(spec: Spec) -> TaskRecord:
    """The first record of a task, as its spec has it."""
    return TaskRecord(
        id=spec.id,
        caller=spec.caller,
        kind=spec.kind,
        title=spec.title,
        order=spec.order,
        created_at=spec.created_at,
        split=spec.split,
        session=spec.session,
        deadline_secs=spec.deadline_secs,
    )
