"""`read_logs`: the journal, by floor, scope, caller, task and text; from anywhere, and waiting."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import msgspec
import trio

from engine.errors import ExpiredHandle
from engine.journal.levels import Level
from engine.journal.records import wire
from engine.protocol.fields import to_ms
from engine.protocol.params import ReadLogsParams
from engine.server.dispatcher import Request
from engine.server.services import Services, caller_of
from engine.store import lines
from engine.tasks.rounds import LETTER

_LINE_JSON_BYTES: Final = 64  # at least that much of a line is JSON around its text


class _Page(msgspec.Struct):
    """Lines, up to where was looked, whether there are more, and what scope and retention hid."""

    lines: list[lines.Line]
    next_after: int
    has_more: bool
    left_out: int
    gap: int


class LogMethods:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def read_logs(self, request: Request, params: ReadLogsParams) -> dict[str, Any]:
        caller = caller_of(request, params)
        journal, logs = self._services.journal, self._services.logs
        task = None if params.task_id is None else self._task(params.task_id)
        wanted = lines.Wanted(
            floor=Level[params.logs.upper()],
            caller=caller if params.log_scope == "caller" and params.caller is None else None,
            whose=params.caller,
            task=task,
            contains=params.contains,
            since=None if params.since is None else to_ms("$.since", params.since),
        )
        moves = params.after_seq is None and params.before_seq is None and params.since is None
        start = params.after_seq if params.after_seq is not None else logs.greet(caller).read_to
        if params.since is not None:
            start = 0
        woke = {Level[word.upper()] for word in params.wake_on} if params.wake_on else None
        deadline = trio.current_time() + params.timeout_secs
        left_out = gap = 0  # of what was looked through in vain
        while True:
            head = journal.head
            page = await self._services.index.search(
                _read, wanted, params, start, head, request.page_bytes
            )
            left = deadline - trio.current_time()
            is_woken = any(woke is None or line.level in woke for line in page.lines)
            if is_woken or left <= 0 or params.before_seq is not None or page.has_more:
                break
            if not page.lines:
                left_out, gap = left_out + page.left_out, gap + page.gap
                start, page.left_out, page.gap = page.next_after, 0, 0
            if not await self._wait_beyond(head, left):
                break
        if moves and not params.peek and not request.is_onlooker:
            logs.move_read(caller, page.next_after)
        gap += page.gap
        reply: dict[str, Any] = {
            "lines": [wire(line) for line in page.lines],
            "nextAfterSeq": page.next_after,
            "latestSeq": journal.head,
            "hasMore": page.has_more,
            "leftOut": left_out + page.left_out,
            "endReason": "woke" if is_woken else "timeout",
        }
        return reply | ({"gap": gap} if gap else {})

    def _task(self, handle: str) -> str:
        """The id behind a handle, also of a task that is not there any more: its lines outlive it.

        Raises UnknownHandle; InvalidParams for a round.
        """
        try:
            return self._services.find_handle(handle, "$.taskId").id
        except ExpiredHandle as exc:
            if handle.startswith(LETTER):
                raise
            return exc.handle[1:]

    async def _wait_beyond(self, head: int, timeout_secs: float) -> bool:
        """Wait until lines are committed after `head`."""
        journal = self._services.journal
        found = await self._services.waits.until(
            "lines", lambda: True if journal.head > head else None, timeout_secs
        )
        return found is not None


def _read(
    connection: sqlite3.Connection,
    wanted: lines.Wanted,
    params: ReadLogsParams,
    start: int,
    head: int,
    limit_bytes: int,
) -> _Page:
    if params.before_seq is not None:
        return _read_back(connection, wanted, params, min(params.before_seq, head + 1), limit_bytes)
    # What is committed while we look is for the next page.
    everything = lines.after(connection, wanted, start, head, params.limit + 1)
    found = _oldest_fitting(everything[: params.limit], limit_bytes)
    has_more = len(found) < len(everything)
    last = found[-1].seq if has_more else max(head, start)
    left_out = _left_out(connection, wanted, start, last, len(found))
    return _Page(found, last, has_more, left_out, lines.gap(connection, wanted, start, last))


def _read_back(
    connection: sqlite3.Connection,
    wanted: lines.Wanted,
    params: ReadLogsParams,
    before: int,
    limit_bytes: int,
) -> _Page:
    everything = lines.before(connection, wanted, before, params.limit + 1)
    found = _newest_fitting(everything[-params.limit :], limit_bytes)
    has_more = len(found) < len(everything)
    last = found[-1].seq if found else max(before - 1, 0)
    first = found[0].seq - 1 if has_more else 0
    left_out = _left_out(connection, wanted, first, max(before - 1, 0), len(found))
    return _Page(found, last, has_more, left_out, 0)


def _left_out(
    connection: sqlite3.Connection, wanted: lines.Wanted, first: int, last: int, found: int
) -> int:
    """How many lines after `first` up to `last` the scope hid, where `found` were shown."""
    if wanted.caller is None:
        return 0
    everybody = msgspec.structs.replace(wanted, caller=None)
    return lines.count(connection, everybody, first, last) - found


def _oldest_fitting(found: list[lines.Line], limit_bytes: int) -> list[lines.Line]:
    size = 0
    for index, line in enumerate(found):
        size += len(msgspec.json.encode(line.text)) + 2 * _LINE_JSON_BYTES + 64
        if size > limit_bytes and index:
            return found[:index]
    return found


def _newest_fitting(found: list[lines.Line], limit_bytes: int) -> list[lines.Line]:
    return _oldest_fitting(found[::-1], limit_bytes)[::-1]
