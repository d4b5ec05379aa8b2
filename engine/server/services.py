"""What the methods work with, in one place, and who is asking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from engine.config import Settings
from engine.errors import Forbidden, InvalidParams, UnknownHandle
from engine.jobs.directory import Base
from engine.journal.journal import Journal
from engine.protocol.params import HelloParams, Params
from engine.server.connection import Connection
from engine.server.dispatcher import Request
from engine.server.homewatch import HomeWatch
from engine.server.logs import ReplyLogs
from engine.server.roster import Roster
from engine.server.stats import Stats
from engine.store.index import Index
from engine.store.ledger import Ledger
from engine.tasks.cancelling import Canceller
from engine.tasks.catalog import Catalog
from engine.tasks.inbox import Inbox
from engine.tasks.retention import Retention
from engine.tasks.rounds import LETTER, Round, Rounds
from engine.tasks.roundstart import RoundStarter
from engine.tasks.supervisor import Supervisor
from engine.tasks.task import Task
from engine.tasks.waits import Waits

DISCONNECT_GRACE_SECS: Final = 5.0  # for a job that was to end with its connection


@dataclass(kw_only=True)
class Services:
    """The engine as its methods see it. `stop(mode)` begins the end."""

    settings: Settings
    base: Base  # of connections that said no hello
    supervisor: Supervisor
    canceller: Canceller
    catalog: Catalog
    index: Index
    ledger: Ledger
    inbox: Inbox
    rounds: Rounds
    round_starter: RoundStarter
    journal: Journal
    logs: ReplyLogs
    stats: Stats
    retention: Retention
    waits: Waits
    started_at: int  # ms
    fingerprint: str
    stop: Callable[[str], None]
    no_memory: str | None  # why no job may have a limit of memory; None: it may
    watch: HomeWatch
    missed_port: int | None  # that the home keeps, where somebody else has it
    ready: trio.Event  # set once all tasks of an earlier engine have their place
    roster: Roster = field(default_factory=Roster)
    connections: set[Connection] = field(default_factory=set)
    # Tasks that are to end with their connection, each with the caller who asked for that.
    bound: dict[Connection, dict[Task, str]] = field(default_factory=dict)

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self.inbox.connection_opened(connection.name)

    def closed(self, connection: Connection) -> None:
        """The caller that the connection itself was is gone with it."""
        self.connections.discard(connection)
        self.roster.closed(connection)
        self.inbox.connection_closed(connection, connection.name)
        for task, caller in self.bound.pop(connection, {}).items():
            if not task.is_ended:
                self.canceller.cancel_soon(task, DISCONNECT_GRACE_SECS, by=caller)
        self.supervisor.leave(connection.name)
        self.logs.forget(connection.name)

    def bind(self, connection: Connection, task: Task, caller: str) -> None:
        """Have `task` end with `connection`: no reply has told of its handle, and none will."""
        bound = self.bound.get(connection, {})
        live = {task: caller for task, caller in bound.items() if not task.is_ended}
        self.bound[connection] = live | {task: caller}

    def find_task(self, params: Any) -> Task:
        """The task that a call names by its one handle. Raises as `find_handle` does."""
        if params.task_id is not None:
            return self.find_handle(params.task_id, "$.taskId")
        return self.find_handle(params.kickoff_id, "$.kickoffId")

    def find_handle(self, handle: str, path: str) -> Task:
        """The task of a handle. Raises as `catalog.find` does; InvalidParams for a round."""
        if handle.startswith(LETTER):
            self.rounds.find(handle)  # it may be unknown, or have expired
            why = f"a task or kickoff; {handle} is a round: read_round names its tasks"
            raise InvalidParams(path, why)
        return self.catalog.find(handle)

    def find_round(self, id_: str) -> Round:
        """The round that a call names. Raises as `rounds.find` does; InvalidParams for a task."""
        try:
            return self.rounds.find(id_)
        except UnknownHandle:
            task = self.catalog.find(id_).record
        what = "a task" if id_ == task.task_id else "a kickoff"
        seat = "" if task.round_id is None else f" of {task.round_id}"
        raise InvalidParams("$.roundId", f"a round; {id_} is {what}{seat}: read_task shows it")

    def base_of(self, connection: Connection) -> Base:
        """Where calls of this connection start that say nothing else."""
        hello: HelloParams | None = connection.hello
        if hello is None:
            return self.base
        return Base(
            cwd=self.base.cwd if hello.cwd is None else hello.cwd,
            env=self.base.env if hello.env is None else hello.env,
        )


def caller_of(request: Request, params: Params) -> str:
    """Who asks: the name in the call, else the connection's own."""
    return params.as_ if params.as_ is not None else request.connection.name


def check_owner(task: Task, caller: str, *, force: bool, what: str) -> None:
    """Raise Forbidden unless the task is the caller's own, or force was given."""
    if task.record.caller != caller and not force:
        raise Forbidden(
            f"{task.record.task_id} is {task.record.caller}'s; {what} it with force: true"
        )
