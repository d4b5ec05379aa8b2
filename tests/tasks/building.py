"""A supervisor on a real home, index and ledger, over an executor that runs nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import trio

from engine.config import Home, Settings
from engine.jobs.directory import Asked, Base, TaskDirectory
from engine.jobs.executor import JobListener, LaunchRefused, Order, Outcome, Written
from engine.jobs.local import LocalExecutor
from engine.model import TaskRecord
from engine.store.index import Committed, Index
from engine.store.ledger import Ledger
from engine.tasks.accepting import Acceptor
from engine.tasks.ahead import DirectoriesAhead
from engine.tasks.cancelling import Canceller
from engine.tasks.catalog import Catalog
from engine.tasks.inbox import Inbox
from engine.tasks.lanes import Lanes
from engine.tasks.mode import Mode
from engine.tasks.pythons import PythonSessions
from engine.tasks.retention import Retention
from engine.tasks.rounds import Rounds
from engine.tasks.schedule import Schedule
from engine.tasks.sessions import ShellSessions
from engine.tasks.starting import Starter
from engine.tasks.supervisor import Supervisor
from engine.tasks.waits import Waits
from engine.tasks.warming import WarmShells

LIMIT = 10.0  # seconds for any wait in a test
BASE = Base(cwd="/", env={"PATH": "/bin:/usr/bin"})


class FakeJob:
    """Starts, and ends when it is cancelled."""

    def __init__(self) -> None:
        self._cancelled = trio.Event()

    async def watch(self, listener: JobListener) -> Outcome:
        listener.on_started({"pid": 1, "startedAt": 5, "cwd": "/"})
        await self._cancelled.wait()
        record = {"pid": 1, "cause": "cancelled", "exitCode": None, "signal": 15, "error": None}
        record |= {"startedAt": 5, "endedAt": 6, "durationMs": 1, "cpuMs": 0, "cwd": "/"}
        record |= {"survivors": [], "sizes": [0], "dropped": [[]]}
        listener.on_ended(record, b"")
        return Outcome.GONE

    async def cancel(self, grace_secs: float) -> list[int] | None:
        self._cancelled.set()
        return [1]

    async def survivors(self) -> list[dict[str, Any]]:
        return []

    async def listener(self) -> str:
        return "unknown"

    async def write(self, data: bytes, *, eof: bool) -> Written | None:
        return None


class DyingJob(FakeJob):
    """A keeper that is killed before it claims the job."""

    async def watch(self, listener: JobListener) -> Outcome:
        await trio.lowlevel.checkpoint()
        return Outcome.BROKEN


@dataclass
class FakeExecutor:
    """`launched` are the ids of its jobs, in order; `make` makes one or raises."""

    make: Callable[[], FakeJob] = FakeJob
    attach_faults: list[Exception] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)

    async def launch(self, directory: TaskDirectory, order: Order) -> FakeJob:
        self.launched.append(directory.id)
        return self.make()

    async def prepare(self, directory: TaskDirectory, order: Order) -> None:
        self.prepared.append(directory.id)

    def discard(self, id_: str) -> None:
        if id_ in self.prepared:
            self.prepared.remove(id_)

    async def attach(self, directory: TaskDirectory, claim: str) -> FakeJob | None:
        if self.attach_faults:
            raise self.attach_faults.pop(0)
        return None


class NoLog:
    """Writes nothing down."""

    def grew(self, record: TaskRecord, directory: TaskDirectory) -> None:
        return

    def ended(self, record: TaskRecord, directory: TaskDirectory) -> None:
        return

    def gone(self, record: TaskRecord) -> None:
        return

    def remark(self, record: TaskRecord, text: str) -> None:
        return


def refuse() -> FakeJob:
    raise LaunchRefused("no process for a keeper")


@dataclass(kw_only=True)
class Built:
    home: Home
    supervisor: Supervisor
    canceller: Canceller
    catalog: Catalog
    index: Index
    ledger: Ledger
    retention: Retention  # which does not serve
    nursery: trio.Nursery


@asynccontextmanager
async def built(path: Path, executor: FakeExecutor, **settings: Any) -> AsyncIterator[Built]:
    home = Home(path)
    for folder in (home.tasks, home.sessions):
        folder.mkdir(parents=True, exist_ok=True)
    waits = Waits()

    def committed(_done: Committed) -> None:
        waits.wake("tasks")
        retention.check()

    with (
        closing(Index(home.index, committed)) as index,
        closing(Ledger(home.record)) as ledger,
        trio.fail_after(LIMIT),
    ):
        async with trio.open_nursery() as nursery:
            await nursery.start(index.serve)
            await nursery.start(ledger.serve)
            if not os.listdir(home.tasks):
                await ledger.set_complete()  # as `recover` has it in a home that is new
            catalog = Catalog(home, index, ledger)
            wanted = Settings(min_free_bytes=0, **settings)
            retention = Retention(wanted, index, ledger, catalog, NoLog())
            starter = Starter(str(home.path), 1 << 30)
            sessions = ShellSessions(home.sessions)
            directories = DirectoriesAhead(home, catalog.which_had)
            warm = WarmShells(executor, starter, sessions, directories, 2)
            lanes = Lanes(wanted.lanes, ledger)
            inbox = Inbox(ledger, waits)
            rounds = Rounds(catalog, ledger, inbox, waits)
            schedule = Schedule(
                slots=wanted.slot_count, lanes=lanes, mode=Mode(ledger), standing=rounds.end_of
            )
            supervisor = Supervisor(
                acceptor=Acceptor(
                    home=home,
                    settings=wanted,
                    catalog=catalog,
                    ledger=ledger,
                    directories=directories,
                    warm=warm,
                    lanes=lanes,
                    rounds=rounds,
                    latest_order=index.latest_order,
                ),
                schedule=schedule,
                executor=executor,
                starter=starter,
                sessions=sessions,
                warm=warm,
                directories=directories,
                # Nothing here runs code.
                pythons=PythonSessions(
                    home, cast(LocalExecutor, executor), starter, sessions, nursery, most=64
                ),
                index=index,
                ledger=ledger,
                catalog=catalog,
                waits=waits,
                inbox=inbox,
                rounds=rounds,
                task_log=retention,
                job_nursery=nursery,
            )
            nursery.start_soon(supervisor.serve_mode)
            yield Built(
                home=home,
                supervisor=supervisor,
                canceller=Canceller(supervisor, nursery),
                catalog=catalog,
                index=index,
                ledger=ledger,
                retention=retention,
                nursery=nursery,
            )
            nursery.cancel_scope.cancel()


def ask(caller: str = "ci", **more: Any) -> Asked:
    return Asked(caller=caller, base=BASE, argv=["true"], **more)
