"""`write_stdin`: what a job that runs is given to read."""

from __future__ import annotations

from typing import Any

import structlog

from engine.protocol.params import WriteStdinParams
from engine.server.dispatcher import Request
from engine.server.services import Services, caller_of, check_owner
from engine.tasks.feeding import feed

log = structlog.get_logger()


class InputMethods:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def write_stdin(self, request: Request, params: WriteStdinParams) -> dict[str, Any]:
        caller = caller_of(request, params)
        task = self._services.find_task(params)
        check_owner(task, caller, force=params.force, what="write to")
        if caller != task.record.caller:
            owner = task.record.caller
            log.info("stdin_written", taskId=task.record.task_id, caller=owner, by=caller)
        data = params.data
        await feed(self._services.supervisor, task, data, eof=params.eof)
        return {"written": len(data)}
