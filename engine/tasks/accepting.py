"""Accepting a call: from what was asked to a task whose directory and key are on disk.

All that may be refused is refused here, before anything is made.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog
import trio

from engine.config import Home, Settings
from engine.errors import DuplicateHandle, KeyConflict, Overloaded, ShuttingDown, over_limit
from engine.jobs.directory import Asked, Spec
from engine.model import Kind, now_ms, title_of
from engine.store.ledger import Key, Ledger
from engine.tasks import infolder
from engine.tasks.ahead import DirectoriesAhead
from engine.tasks.catalog import Catalog
from engine.tasks.dependencies import key_of
from engine.tasks.infolder import record_of
from engine.tasks.lanes import Lanes
from engine.tasks.room import look
from engine.tasks.rounds import Rounds
from engine.tasks.storing import add_in_time, store_needed
from engine.tasks.task import Task
from engine.tasks.warming import WarmShells, is_plain

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
        lanes: Lanes,
        rounds: Rounds,
        latest_order: int,
    ) -> None:
        self._home, self._settings = home, settings
        self._catalog, self._ledger, self._rounds = catalog, ledger, rounds
        self._directories, self._warm, self._lanes = directories, warm, lanes
        self._next_order = latest_order + 1
        self._coming = 0  # seats whose directories are being made
        self.is_closed = False  # set it: no new task any more

    async def accept(self, asked: Asked, waiting: int) -> tuple[Task, bool]:
        """The task for this call, and whether it is new; else it is that of its key.

        `waiting`: how many wait for their start. Raises ShuttingDown, Overloaded, KeyConflict,
        ExpiredHandle, UnknownHandle, DuplicateHandle, InvalidParams. Once a new task is there,
        cancelling does not undo it.
        """
        if asked.key is not None and (known := self._ledger.find_key(asked.caller, asked.key)):
            return await self._answer_key(asked, known), False
        self.check(asked)
        self._check_room(waiting + 1, asked.caller, 1)
        task = self._make(asked)
        self._catalog.add(task)
        if asked.key is not None:
            await self._write_key(asked, task)
        return task, True

    def check(self, asked: Asked) -> None:
        """Raise unless there is all that a call names: see `accept`."""
        self._lanes.check(asked.lane)
        self._check_after(asked.after)

    async def make_seats(self, seats: Mapping[str, Asked], waiting: int) -> dict[str, Task]:
        """A new task for each seat, all or none; nobody knows them yet.

        `waiting`: how many will wait then. Raises ShuttingDown, Overloaded. Cancelled, there are
        none.
        """
        caller = next(iter(seats.values())).caller
        self._check_room(waiting, caller, len(seats))
        self._coming += len(seats)
        made: dict[str, Task] = {}
        try:
            for name, asked in seats.items():
                made[name] = self._make(asked)
                await trio.lowlevel.checkpoint()
        except BaseException:
            self.unmake(made)
            raise
        finally:
            self._coming -= len(seats)
        return made

    def unmake(self, made: Mapping[str, Task]) -> None:
        """Remove what was made for seats that are not to be."""
        for task in made.values():
            infolder.remove(task.directory)

    async def _answer_key(self, asked: Asked, known: Key) -> Task:
        if known.digest != asked.digest:
            raise KeyConflict(known.key, task_id="t" + known.task)
        with store_needed():
            await self._ledger.settle(known)
        return self._catalog.find("t" + known.task)

    async def _write_key(self, asked: Asked, task: Task) -> None:
        key = Key(caller=asked.caller, key=asked.key or "", digest=asked.digest or "", task=task.id)
        try:
            await add_in_time(self._ledger, key)
        except BaseException:
            self._catalog.retire(task)
            task.directory.remove()
            raise

    def _check_after(self, after: list[str]) -> None:
        seen = set[str]()
        for handle in after:
            if key_of(handle) in seen:
                raise DuplicateHandle(handle)
            seen.add(key_of(handle))
            self._rounds.check(handle)

    def _check_room(self, waiting: int, caller: str, new: int) -> None:
        """Raise unless there is room for so many new tasks of `caller`; then `waiting` wait."""
        if self.is_closed:
            raise ShuttingDown
        settings = self._settings
        if waiting + self._coming > (limit := settings.queue_limit):
            what, do = "as many calls wait for a slot as may", "try again when some have ended"
            raise over_limit(what, "queue_limit", limit, do)
        unfinished = self._catalog.count_unfinished(caller) + new
        if unfinished > (limit := settings.max_tasks_per_caller):
            what = f"{caller} has as many tasks that have not ended as a caller may"
            raise over_limit(what, "max_tasks_per_caller", limit, "wait for some, or cancel them")
        room = look(self._home.tasks)
        if room.lack is not None:
            raise Overloaded(f"{room.lack}; new calls are refused until that has changed", "disk")
        if room.free_bytes < (limit := settings.min_free_bytes):
            what = f"{room.free_bytes} bytes of disk are free, too few for new calls"
            raise over_limit(what, "min_free_bytes", limit, "make room")

    def _make(self, asked: Asked) -> Task:
        """The directory of a new task, with what was asked in it. Raises Overloaded."""
        try:
            is_for_now = is_plain(asked) and not asked.after and asked.round_id is None
            wanted = self._warm.id_for(asked.caller) if is_for_now else None
            made, is_again = None, False
            while made is None:
                try:
                    directory = self._directories.take(wanted, split=asked.split)
                    spec = spec_of(asked, directory.id, self._next_order)
                    made = self._directories.accept(directory, spec)
                except FileNotFoundError:
                    if is_again or not self._home.path.exists():
                        raise
                    is_again = True
                    self._directories.make_again()
        except OSError as exc:
            log.error("call_not_accepted", reason=str(exc))
            raise Overloaded(f"no task directory: {exc.strerror}", "disk") from exc
        self._next_order += 1
        return Task(record_of(spec), made, spec)

    @property
    def latest_order(self) -> int:
        """Of the last task that this home has had."""
        return self._next_order - 1

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
