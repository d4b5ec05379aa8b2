"""After a start: what the directories say of each task that the index has not as ended.

Ended meanwhile: its end is taken over. Claimed: its keeper is attached to, or it is lost. Not
claimed: it is queued again, in the order of acceptance. What was forgotten, and its engine killed
before all of it was gone, goes now.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio

from engine.config import Home
from engine.jobs.directory import Spec, TaskDirectory
from engine.model import Status, TaskRecord
from engine.store.index import Index
from engine.store.ledger import Ledger
from engine.store.writer import StoreUnavailable
from engine.tasks import infolder
from engine.tasks.infolder import record_of
from engine.tasks.keys import give_keys, key_of
from engine.tasks.seats import rounds_of
from engine.tasks.supervisor import Supervisor
from engine.tasks.task import Task
from engine.threads import in_thread

log = structlog.get_logger()


class Recovery(msgspec.Struct, kw_only=True):
    """How many tasks stood how."""

    adopted: int = 0  # claimed: attached to, unless its keeper is dead
    ended: int = 0
    queued: int = 0
    aside: int = 0  # directories that no call was told of
    gone: int = 0  # their directories are not there any more


async def recover(
    home: Home,
    index: Index,
    ledger: Ledger,
    supervisor: Supervisor,
    job_nursery: trio.Nursery,
) -> Recovery:
    """Give every unfinished task of an earlier engine its place. Nothing here waits for a job."""
    counts = Recovery()
    buried = _finish_forgetting(home, index, ledger)
    known = {record.id: record for record in index.active() if record.id not in buried}
    final = index.final_ids()
    waiting: list[Task] = []
    ended: list[tuple[dict[str, Any], Task]] = []
    if not ledger.is_complete:
        await _give_rounds(home, index, ledger)
    job_nursery.start_soon(give_keys, home, ledger, supervisor.waits)
    supervisor.rounds.load(final | buried)
    for entry in os.scandir(home.tasks):
        if entry.name in final or entry.name == home.ahead.name or entry.name in buried:
            continue
        # What a job has put in its folder's place is none, whatever we know of the task.
        is_folder = entry.is_dir(follow_symlinks=False)
        directory = TaskDirectory(home.tasks, entry.name)
        task = await _read(ledger, directory, known) if is_folder else None
        if task is None:
            _set_aside(home, entry)
            counts.aside += 1
            continue
        end = task.directory.read_exit()
        is_waiting = end is None and _is_waiting(task)
        # The engine was killed while it made the round: there is the whole or none of it.
        if is_waiting and not supervisor.rounds.is_told(task.record):
            infolder.remove(task.directory)
            continue
        if known.pop(task.id, None) is None:
            index.put(task.record)  # its handle may have been told: it is listed from here on
        supervisor.catalog.add(task)
        supervisor.acceptor.count_on(task.record.order)
        if end is not None:
            counts.ended += 1
            if not task.was_promoted:
                supervisor.expect_state(task)
            ended.append((end, task))
        elif is_waiting:
            waiting.append(task)
        else:
            counts.adopted += 1
            supervisor.adopt(task)
            _note_start(task)
            _note_output(task)
            job_nursery.start_soon(supervisor.resolve, task)
    for record in known.values():  # somebody has removed the folder
        counts.gone += 1
        task = Task(record, TaskDirectory(home.tasks, record.id))
        supervisor.catalog.add(task)
        job_nursery.start_soon(supervisor.resolve, task)
    supervisor.rounds.settle()
    for end, task in sorted(ended, key=lambda each: each[0]["endedAt"]):  # as they are told
        supervisor.on_ended(task, end, b"")
        job_nursery.start_soon(supervisor.resolve, task)
        await trio.lowlevel.checkpoint()  # ten thousand may have ended meanwhile
    for task in sorted(waiting, key=lambda task: task.record.order):
        counts.queued += 1
        supervisor.take_in(task)
        await trio.lowlevel.checkpoint()  # ten thousand may be skipped, one after the other
    for caller in supervisor.pythons.strangers():
        supervisor.leave(caller)
    return counts


def _finish_forgetting(home: Home, index: Index, ledger: Ledger) -> set[str]:
    """Have what has a tomb gone, row and folder; the ids of which there was something left.

    The tomb comes first and is on disk at once, the index follows in its batches.
    """
    folders = {entry.name for entry in os.scandir(home.tasks)}
    buried = ledger.buried(index.kept_ids() | folders)
    for id_ in buried:
        record = index.find(id_)
        if record is not None:
            index.forget(record)
        infolder.remove(TaskDirectory(home.tasks, id_))
    return buried


def _is_waiting(task: Task) -> bool:
    """Whether nobody has claimed the job of a task that has not ended."""
    if task.directory.read_claim() is not None:
        return False
    if _has_begun(task):
        task.directory.claim()  # its claim was taken away; it begins no second time
        return False
    return True


def _has_begun(task: Task) -> bool:
    sizes = task.directory.output_sizes(task.record.files)
    return task.record.status is Status.RUNNING or any(size > 0 for size in sizes)


async def _read(
    ledger: Ledger, directory: TaskDirectory, known: dict[str, TaskRecord]
) -> Task | None:
    """The task of a directory; None where its spec was never written whole."""
    spec = directory.read_spec()
    if spec is None or spec.id != directory.id:
        # A spec that was spoilt later is no reason to drop a task whose handle is known.
        record = known.get(directory.id)
        return None if record is None else Task(_promoted(record), directory)
    # Accepted, and killed before the key was written, or while it was. In a ledger that is not
    # complete the keys of all are being written.
    if spec.id not in known and ledger.is_complete:
        await _give_key(ledger, spec)
    record = known.get(spec.id, record_of(spec))
    task = Task(_promoted(record), directory)
    task.was_promoted = record.promoted
    return task


def _promoted(record: TaskRecord) -> TaskRecord:
    """Of a task that has not ended: whatever call began it is gone with the engine that had it."""
    if record.status not in (Status.QUEUED, Status.RUNNING):
        record = msgspec.structs.replace(record, status=Status.QUEUED)
    return msgspec.structs.replace(record, promoted=True, unsettled=False)


async def _give_rounds(home: Home, index: Index, ledger: Ledger) -> None:
    """Give a ledger that is new the rounds of all seats; it may stand in for one that was lost."""
    known = index.kept_ids()
    names = [name for name in os.listdir(home.tasks) if name not in known | {home.ahead.name}]
    seats = [*index.seats(), *await in_thread(_seats_in, home.tasks, names)]
    found = rounds_of(seats)
    for row in found:
        ledger.rounds.put(row)
    try:
        await ledger.settle()
    except StoreUnavailable as exc:  # they are written when it takes writes again
        log.error("rounds_not_written", reason=str(exc))
    if found:
        log.warning("record_made_anew", rounds=len(found))


def _seats_in(tasks: Path, names: list[str]) -> list[TaskRecord]:
    """The first records of those among the tasks of these names that are seats of rounds."""
    specs = (TaskDirectory(tasks, name).read_spec() for name in names)
    return [record_of(spec) for spec in specs if spec is not None and spec.round_id is not None]


async def _give_key(ledger: Ledger, spec: Spec) -> None:
    """Have the key of `spec` in the ledger, if that takes writes."""
    key = key_of(spec)
    if key is None or ledger.find_key(key.caller, key.key) is not None:
        return
    try:
        await ledger.add(key)
    except StoreUnavailable as exc:
        log.error("key_not_written", taskId="t" + spec.id, reason=str(exc))


def _note_start(task: Task) -> None:
    """Take the claim's time for the start, until the keeper tells it more exactly."""
    started_at = task.directory.claimed_at()
    if task.record.status is Status.QUEUED and started_at is not None:
        task.change(status=Status.RUNNING, started_at=started_at)


def _note_output(task: Task) -> None:
    """What is known of a running job's output before its keeper says more."""
    sizes, dropped = task.directory.written(task.record.files)
    if not sum(sizes):
        return
    with task.directory.opened() as dir_fd:
        stats = []
        for name in task.record.files:
            with contextlib.suppress(FileNotFoundError):
                stats.append(os.stat(name, dir_fd=dir_fd, follow_symlinks=False))
    last = max((stat.st_mtime for stat in stats), default=0)
    task.change(sizes=sizes, dropped=dropped, last_output_at=int(last * 1000) or None)


def _set_aside(home: Home, entry: os.DirEntry[str]) -> None:
    """Move what is no task of ours out of the way; nobody was told of it."""
    home.aside.mkdir(mode=0o700, exist_ok=True)
    target = home.aside / f"{entry.name}-{time.time_ns()}"  # there may be one of that name
    try:
        os.rename(entry.path, target)
    except OSError as exc:
        log.warning("not_set_aside", path=entry.path, reason=str(exc))
    else:
        log.warning("set_aside", path=str(target))
