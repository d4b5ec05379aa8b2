"""`bash`, `execute`, `wait`, `cancel`: the methods that run, resume and end."""

from __future__ import annotations

import hashlib
from typing import Any

from engine.errors import Forbidden
from engine.jobs.directory import Asked
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
from engine.server.dispatcher import Request
from engine.server.services import Services, caller_of, check_owner, handle_of
from engine.tasks.cancelling import Cancelled
from engine.tasks.task import Task


class RunMethods:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def bash(self, request: Request, params: BashParams) -> dict[str, Any]:
        return await self._start(request, params, command=params.command, session=params.session)

    async def execute(self, request: Request, params: ExecuteParams) -> dict[str, Any]:
        session = params.code is not None and params.session
        return await self._start(
            request, params, argv=params.argv, code=params.code, session=session
        )

    async def _start(self, request: Request, params: StartParams, **what: Any) -> dict[str, Any]:
        assert isinstance(params, BashParams | ExecuteParams)
        caller = caller_of(request, params)
        digest = None
        if params.key is not None:
            digest = hashlib.sha256(job_identity(params)).hexdigest()
        task = await self._services.supervisor.accept(
            Asked(
                caller=caller,
                base=self._services.base_of(request.connection),
                cwd=params.cwd,
                env=params.env or {},
                stdin=params.stdin.text if isinstance(params.stdin, TextInput) else None,
                stdin_open=params.stdin == "open",
                pty=params.pty,
                split=params.streams == "split",
                deadline_secs=params.deadline_secs,
                key=params.key,
                digest=digest,
                **what,
            )
        )
        may_cancel = params.on_disconnect == "cancel"
        request.finished = lambda written: self._on_finished(
            request, task, caller, written, may_cancel=may_cancel
        )
        budget = min(params.timeout_secs, self._services.settings.inline_budget_secs)
        await self._services.supervisor.wait_inline(task, budget)
        return await self._reply(request, task, caller, params, is_first=True)

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
        is_onlooker = request.role == "observer"
        # First, as it may wait for the last lines of a task that has just ended.
        logs = await self._services.logs.of(
            task,
            caller,
            params.logs,
            params.log_scope,
            request.page_bytes // 4,
            is_onlooker=is_onlooker,
        )
        limit = params.max_output_bytes
        if task.is_ended:
            errors = None if "logsBehind" in logs else 0
            if errors is not None and task.record.output_bytes > limit > 0:
                errors, _warnings = self._services.index.tally(task.id)
            reply = await replies.finished(task, limit, json_limit, errors=errors)
        else:
            reply = await replies.running(
                self._services.supervisor,
                task,
                caller,
                limit,
                json_limit,
                is_first=is_first,
                is_onlooker=is_onlooker,
            )
            if not is_onlooker:
                self._services.logs.keep_told(task, caller)
        return reply | logs

    async def wait(self, request: Request, params: WaitParams) -> dict[str, Any]:
        caller = caller_of(request, params)
        task = self._services.catalog.find(handle_of(params))
        await self._services.supervisor.wait_ended(task, params.timeout_secs)
        return await self._reply(request, task, caller, params, is_first=False)

    async def cancel(self, request: Request, params: CancelParams) -> dict[str, Any]:
        caller = caller_of(request, params)
        canceller = self._services.canceller
        if params.caller is not None:
            return await self._cancel_all(caller, params.caller, params)
        task = self._services.catalog.find(handle_of(params))
        check_owner(task, caller, force=params.force, what="cancel")
        return _cancelled(await canceller.cancel(task, params.grace_secs, by=caller))

    async def _cancel_all(self, caller: str, whose: str, params: CancelParams) -> dict[str, Any]:
        if whose != caller and not params.force:
            raise Forbidden(f"the tasks are {whose}'s; cancel them with force: true")
        done = await self._services.canceller.cancel_all(whose, params.grace_secs, by=caller)
        return {"tasks": [{"taskId": c.task.record.task_id, **_cancelled(c)} for c in done]}


def _cancelled(done: Cancelled) -> dict[str, Any]:
    return {
        "status": done.task.record.status,
        "outcome": done.outcome,
        "signalled": done.signalled,
        "survivors": done.survivors,
    }
