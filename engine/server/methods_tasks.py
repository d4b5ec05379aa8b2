"""`read_output`, `list_tasks`, `read_task`, `forget`, `reset_session`: looking, and dropping."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import structlog
import trio

from engine.errors import InvalidParams
from engine.model import TaskRecord
from engine.protocol.params import (
    ForgetParams,
    ListTasksParams,
    ReadOutputParams,
    ReadTaskParams,
    ResetSessionParams,
)
from engine.server import outputs, replies
from engine.server.dispatcher import Request
from engine.server.fitting import frame
from engine.server.services import Services, caller_of, check_owner
from engine.store.index import FORGOTTEN, Row
from engine.tasks.task import Task

COMMAND_BYTES: Final = 64 * 1024  # of the command that `read_task` shows

log = structlog.get_logger()


class TaskMethods:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def read_output(self, request: Request, params: ReadOutputParams) -> dict[str, Any]:
        task = self._services.find_task(params)
        which = outputs.stream_index(task, params.stream)
        deadline = trio.current_time() + params.timeout_secs
        if params.timeout_secs and params.offset > 0:  # it may lie ahead of a job that runs
            await self._grows(task, which, params.offset - 1, params.timeout_secs)
        while True:
            page = await outputs.page(
                task,
                params.stream,
                params.offset,
                params.limit_bytes,
                request.page_bytes,
                raw=params.raw,
            )
            left = deadline - trio.current_time()
            # Half a character is no page either.
            if (
                not page.is_waiting
                or left <= 0
                or not await self._grows(task, which, page.size, left)
            ):
                break
        body: dict[str, Any]
        if params.raw:
            body = {"base64": base64.b64encode(page.data or b"").decode("ascii")}
        else:
            body = {"text": page.text}
        return {
            **body,
            "offset": page.offset,
            "nextOffset": page.next_offset,
            "size": page.size,
            "eof": page.eof,
            "droppedBytes": task.record.dropped_in(which),
        }

    async def _grows(self, task: Task, which: int, size: int, timeout_secs: float) -> bool:
        """Wait until that output is larger than `size` or the task has ended; False: neither."""

        def has_more() -> bool | None:
            sizes = task.record.sizes
            has_grown = which < len(sizes) and sizes[which] > size
            return True if has_grown or task.is_ended else None

        found = await self._services.waits.until(("output", task.id), has_more, timeout_secs)
        return found is not None

    async def list_tasks(self, request: Request, params: ListTasksParams) -> dict[str, Any]:
        name = params.caller or caller_of(request, params)
        caller = None if name == "*" else name
        if params.changed_after is not None:
            if params.before is not None:
                raise InvalidParams("$.before", "nothing beside changed_after")
            return await self._changed(request, params, caller, params.changed_after)
        before = None if params.before is None else int(params.before)
        index = self._services.index
        await index.flush()
        rows = index.newest_first(caller=caller, states=params.state, before=before)
        page, last = self._page(rows, params.limit, request.page_bytes)
        return {
            "tasks": page,
            "hasMore": last is not None,
            "next": str(last.order) if last is not None else None,
            "latestSeq": index.latest_seq,
            "nextChangedAfter": index.latest_seq,
        }

    async def _changed(
        self, request: Request, params: ListTasksParams, caller: str | None, after: int
    ) -> dict[str, Any]:
        index = self._services.index
        await index.flush()

        def look() -> tuple[list[dict[str, Any]], Row | None] | None:
            rows = index.changed_after(after, caller=caller, states=params.state)
            found = self._page(rows, params.limit, request.page_bytes)
            return found if found[0] else None

        found = await self._services.waits.until("tasks", look, params.timeout_secs)
        page, last = found or ([], None)
        return {
            "tasks": page,
            "hasMore": last is not None,
            "next": None,
            "latestSeq": index.latest_seq,
            # What was left out of a full page is to come; else all there is was looked at.
            "nextChangedAfter": last.changed_seq if last is not None else index.latest_seq,
        }

    def _page(
        self, rows: Iterator[Row], limit: int, limit_bytes: int
    ) -> tuple[list[dict[str, Any]], Row | None]:
        """Rows in wire form, as many as fit; and the last of them if there are more."""
        page: list[dict[str, Any]] = []
        size, last = frame(limit_bytes), None
        for row in rows:
            if row.record is None:
                shown: dict[str, Any] = {"taskId": "t" + row.id, "status": FORGOTTEN}
            else:
                record = self._services.catalog.now(row.record)
                shown = self._row(record, row.changed_seq)
            size += len(msgspec.json.encode(shown)) + 1
            if page and (len(page) == limit or size > limit_bytes):
                return page, last
            page.append(shown)
            last = row
        return page, None

    def _row(self, record: TaskRecord, changed_seq: int) -> dict[str, Any]:
        services = self._services
        tally = services.index.tally(record.id)
        return replies.row(services.supervisor, record, changed_seq, tally)

    async def read_task(self, request: Request, params: ReadTaskParams) -> dict[str, Any]:
        task = self._services.find_task(params)
        record, job = task.record, task.job
        await self._services.index.flush()
        spec = task.directory.read_spec()
        command = None
        if spec is not None:
            text = spec.command or spec.code or shlex.join(spec.argv or [])
            command = text.encode()[:COMMAND_BYTES].decode("utf-8", "ignore")
        survivors = [msgspec.to_builtins(survivor) for survivor in record.survivors]
        if record.status.is_final:
            survivors = await job.survivors() if job is not None else []
        return {
            **self._row(record, self._services.index.changed_seq(record.id)),
            "command": command,
            "cwd": replies.path(record.cwd),
            "session": record.session,
            "after": record.after,
            "deadline_secs": record.deadline_secs,
            "survivors": survivors,
            "cpuMs": record.cpu_ms,
            "droppedBytes": record.dropped_bytes,
            "outputPath": outputs.paths(task),
        }

    async def forget(self, request: Request, params: ForgetParams) -> dict[str, Any]:
        caller = caller_of(request, params)
        task = self._services.find_task(params)
        check_owner(task, caller, force=params.force, what="forget")
        await self._services.supervisor.forget(task)
        log.info("forgotten", taskId=params.task_id, caller=task.record.caller, by=caller)
        return {"taskId": task.record.task_id, "status": FORGOTTEN}

    async def reset_session(self, request: Request, params: ResetSessionParams) -> dict[str, Any]:
        caller = caller_of(request, params)
        if params.kind == "python":
            await self._services.supervisor.pythons.reset(caller)
        else:
            self._services.supervisor.reset_session(caller)
        return {"as": caller, "kind": params.kind}
