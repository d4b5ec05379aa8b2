"""`bash`, `execute`, `wait`, `cancel`: the methods that run, resume and end."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from engine.errors import NO_ROOM, Forbidden, InvalidParams, Overloaded
from engine.jobs.directory import Asked, Base
from engine.model import ReadyWhen
from engine.protocol.params import (
    BashParams,
    CancelParams,
    ExecuteParams,
    StartParams,
    TextInput,
    WaitParams,
    job_identity,
)
from engine.server import replies
from engine.server.delivering import deliver, expecting
from engine.server.dispatcher import Request
from engine.server.services import Services, caller_of, check_owner
from engine.store.reading import StoreUnreadable
from engine.tasks.cancelling import Cancelled
from engine.tasks.task import Task

NO_MEMORY: Final = (
    "nothing: this engine has no cgroup of its own to divide ({}); one that systemd runs with"
    " Delegate=yes has one: engine install-service"
)


class RunMethods:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def bash(self, request: Request, params: BashParams) -> dict[str, Any]:
        return await self._start(request, params)

    async def execute(self, request: Request, params: ExecuteParams) -> dict[str, Any]:
        return await self._start(request, params)

    async def _start(self, request: Request, params: BashParams | ExecuteParams) -> dict[str, Any]:
        caller, base = caller_of(request, params), self._services.base_of(request.connection)
        if params.memory_bytes is not None and (why := self._services.no_memory) is not None:
            raise InvalidParams("$.memory_bytes", NO_MEMORY.format(why))
        task = await self._services.supervisor.accept(asked_by(params, caller, base))
        may_cancel = params.on_disconnect == "cancel"
        request.finished = lambda written: self._on_finished(
            request, task, caller, written, may_cancel=may_cancel
        )
        budget = min(params.timeout_secs, self._services.settings.inline_budget_secs)
        with (
            self._services.catalog.using(task.record.task_id),
            expecting(self._services, request, caller, task),
        ):
            await self._services.supervisor.wait_inline(task, budget)
            try:
                return await self._reply(request, task, caller, params, is_first=True)
            except OSError as exc:
                if exc.errno not in NO_ROOM:
                    raise
                raise _accepted(task, str(exc.strerror), "system") from exc
            except StoreUnreadable as exc:
                raise _accepted(task, str(exc), "store") from exc

    def _on_finished(
        self, request: Request, task: Task, caller: str, written: bool, *, may_cancel: bool
    ) -> None:
        """A call has its reply, or never will: then it ends, if it was to end with its caller."""
        if written:
            self._services.supervisor.prepare_next(task)
        # A repeat of it, under its key, may be waiting and may have asked to keep it.
        elif may_cancel and not task.is_ended and not task.inline_calls:
            self._services.bind(request.connection, task, caller)

    async def _reply(
        self,
        request: Request,
        task: Task,
        caller: str,
        params: StartParams | WaitParams,
        *,
        is_first: bool,
    ) -> dict[str, Any]:
        json_limit = request.page_bytes * 3 // 2  # with room left for the other members
        # First, as it may wait for the last lines of a task that has just ended.
        logs = await self._services.logs.of(
            task,
            caller,
            params.logs,
            params.log_scope,
            request.page_bytes // 4,
            is_onlooker=request.is_onlooker,
        )
        limit = params.max_output_bytes
        if task.is_ended:
            deliver(self._services, request, caller, task)
            reply = await finished(self._services, task, limit, json_limit, logs)
        else:
            reply = await replies.running(
                self._services.supervisor,
                task,
                caller,
                limit,
                json_limit,
                is_first=is_first,
                is_onlooker=request.is_onlooker,
            )
            if not request.is_onlooker:
                self._services.logs.keep_told(task, caller)
        return reply | logs

    async def wait(self, request: Request, params: WaitParams) -> dict[str, Any]:
        caller = caller_of(request, params)
        task = self._services.find_task(params)
        with expecting(self._services, request, caller, task):
            await self._services.supervisor.wait_ended(task, params.timeout_secs)
            return await self._reply(request, task, caller, params, is_first=False)

    async def cancel(self, request: Request, params: CancelParams) -> dict[str, Any]:
        caller = caller_of(request, params)
        canceller = self._services.canceller
        if params.caller is not None:
            return await self._cancel_all(request, caller, params.caller, params)
        task = self._services.find_task(params)
        check_owner(task, caller, force=params.force, what="cancel")
        return _cancelled(await canceller.cancel(task, params.grace_secs, by=caller))

    async def _cancel_all(
        self, request: Request, caller: str, whose: str, params: CancelParams
    ) -> dict[str, Any]:
        if whose != caller and not params.force:
            raise Forbidden(f"the tasks are {whose}'s; cancel them with force: true")
        done = await self._services.canceller.cancel_all(whose, params.grace_secs, by=caller)
        shown: list[dict[str, Any]] = []
        size = 0
        for one in done:
            shown.append({"taskId": one.task.record.task_id, **_cancelled(one)})
            size += len(msgspec.json.encode(shown[-1])) + 1
            if size > request.page_bytes:
                shown.pop()
                break
        return {"tasks": shown, "count": len(done)}


async def finished(
    services: Services, task: Task, limit_bytes: int, json_limit: int, logs: dict[str, Any]
) -> dict[str, Any]:
    """The reply about a task that has ended, without its `logs`, which were made before."""
    errors = None if "logsBehind" in logs else 0
    if errors is not None and task.record.output_bytes > limit_bytes > 0:
        try:
            errors, _warnings = services.index.tally(task.id)
        except StoreUnreadable:
            errors = None
    return await replies.finished(task, limit_bytes, json_limit, errors=errors)


def asked_by(params: BashParams | ExecuteParams, caller: str, base: Base) -> Asked:
    """What a call of `bash` or `execute` asks to run; a seat of a round has the same params."""
    what: dict[str, Any]
    if isinstance(params, BashParams):
        what = {"command": params.command, "session": params.session}
    else:
        session = params.code is not None and params.session
        what = {"argv": params.argv, "code": params.code, "session": session}
    digest = None
    if params.key is not None:
        digest = hashlib.sha256(job_identity(params)).hexdigest()
    return Asked(
        caller=caller,
        base=base,
        cwd=params.cwd,
        env=params.env or {},
        stdin=params.stdin.text if isinstance(params.stdin, TextInput) else None,
        stdin_open=params.stdin == "open",
        pty=params.pty,
        split=params.streams == "split",
        deadline_secs=params.deadline_secs,
        lane=params.lane,
        after=params.after or [],
        after_when=params.after_when,
        ready_when=_ready_when(params),
        key=params.key,
        digest=digest,
        **what,
    )


def _accepted(task: Task, why: str, limit: str) -> Overloaded:
    """No reply can be made: the handle must come through, as a repeat would run it once more."""
    handles = {"taskId": task.record.task_id, "kickoffId": task.record.kickoff_id}
    return Overloaded(
        f"accepted as {task.record.task_id}, but {why}; wait for it", limit, **handles
    )


def _ready_when(params: StartParams) -> ReadyWhen | None:
    wanted = params.ready_when
    return None if wanted is None else ReadyWhen(contains=wanted.contains, port=wanted.port)


def _cancelled(done: Cancelled) -> dict[str, Any]:
    return {
        "status": done.task.record.status,
        "outcome": done.outcome,
        "signalled": done.signalled,
        "survivors": done.survivors,
    }
