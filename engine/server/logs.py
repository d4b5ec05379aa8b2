"""The logs in a reply, and what each caller has been shown.

Two windows: the lines of the task that the reply is about, and what else has come since the
caller's mark. The mark is kept for each level and moves only over levels that a reply examined.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from engine.journal.journal import Journal
from engine.journal.levels import Level
from engine.journal.records import wire
from engine.model import ANONYMOUS
from engine.store import lines
from engine.store.index import Index
from engine.store.ledger import MOST_TOLD, Ledger
from engine.store.reading import StoreUnreadable
from engine.store.told import Position, Told
from engine.tasks.alerts import Once
from engine.tasks.task import Task

TASK_LINES: Final = 50  # of the task that a reply is about, the newest
REPLY_LINES: Final = 100  # in a reply, both windows together
MOST_SEEN: Final = 10_000  # callers that are known without a look into the database
DIRECT_LINES: Final = 2_000  # of the journal, and bytes of output, looked through without
DIRECT_BYTES: Final = 1 << 20  # a thread
_LEVELS: Final = len(Level)
_NOTHING: Final = [0] * _LEVELS
NONE: Final = "none"


class _Window(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply about `task` is to show: levels, each with the `seq` after which, up to `head`.

    `caller`: of others' lines none but the engine's; None: of everybody.
    """

    task: str
    own: list[tuple[int, int]]
    rest: list[tuple[int, int]]
    head: int
    caller: str | None


class _Seen:
    """What one caller has been shown: by level, and up to where it has read."""

    def __init__(self, marks: list[int], read_to: int) -> None:
        self.marks, self.read_to = marks, read_to


class ReplyLogs:
    """Makes the `logs` of replies. Marks of named callers outlive the engine."""

    def __init__(self, journal: Journal, index: Index, ledger: Ledger) -> None:
        self._journal, self._index, self._ledger = journal, index, ledger
        self._seen: dict[str, _Seen] = {}  # the one seen last is the last

    def greet(self, caller: str, *, is_onlooker: bool = False) -> _Seen:
        """What `caller` has seen; one that is new starts at the journal's head of this moment."""
        seen = self._seen.pop(caller, None)
        if seen is None:
            try:
                kept = self._ledger.find_position(caller)
            except StoreUnreadable:
                # Of this call alone: where the caller was is not to be written over.
                return _Seen([self._journal.head] * _LEVELS, self._journal.head)
            if kept is not None:
                seen = _Seen(list(kept.marks), kept.read_to)
            else:
                seen = _Seen([self._journal.head] * _LEVELS, self._journal.head)
                if not is_onlooker:
                    self._keep(caller, seen)
            if len(self._seen) >= MOST_SEEN:
                del self._seen[next(iter(self._seen))]
        self._seen[caller] = seen
        return seen

    def forget(self, caller: str) -> None:
        """The caller was a connection, which is gone."""
        self._seen.pop(caller, None)

    def _keep(self, caller: str, seen: _Seen) -> None:
        if caller.startswith(ANONYMOUS):
            return  # gone with its connection
        position = Position(caller=caller, marks=list(seen.marks), read_to=seen.read_to)
        self._ledger.note(position)

    def move_read(self, caller: str, seq: int) -> None:
        """The caller has read up to `seq`; nothing moves it back."""
        seen = self.greet(caller)
        if seq > seen.read_to:
            seen.read_to = seq
            self._keep(caller, seen)

    def recall(self, task: Task, caller: str) -> None:
        """Know again what an engine before us has told `caller` of a task that runs."""
        told = self._ledger.told(task.id, caller) if caller not in task.lines_told else None
        if told is not None:
            task.told[caller], task.lines_told[caller] = told.output, told.lines
            task.shown.setdefault(caller, Once(told.shown, told.sent))

    def keep_told(self, task: Task, caller: str) -> None:
        """A reply about a task that runs is about to go out: what it tells is not told again."""
        if not caller.startswith(ANONYMOUS) and not task.is_ended:
            once = task.shown.get(caller) or Once()
            self._ledger.tell(
                Told(
                    task=task.id,
                    caller=caller,
                    output=task.told.get(caller, (0,) * len(task.record.files)),
                    lines=task.lines_told.get(caller, _NOTHING),
                    shown=tuple(sorted(once.received)),
                    sent=once.sent,
                )
            )
        for told in (task.told, task.lines_told, task.shown):
            if len(told) > MOST_TOLD:
                del told[next(iter(told))]

    async def of(
        self,
        task: Task,
        caller: str,
        floor: str,
        scope: str,
        json_limit: int,
        *,
        is_onlooker: bool,
        is_alone: bool = False,
        is_behind: bool | None = None,
    ) -> dict[str, Any]:
        """The members `logs`, `logsDropped`, `logsBehind` of a reply about `task`.

        In at most `json_limit` bytes of JSON, for which the oldest lines are dropped. `is_alone`:
        of this task only; the caller's mark stays where it is. `is_behind`: whether the journal has
        not all lines of the task, which has ended; None: that is waited for here.
        """
        seen = self.greet(caller, is_onlooker=is_onlooker)
        self.recall(task, caller)
        if is_behind is None:
            is_behind = task.is_ended and not await self._journal.settle(task.id)
        reply: dict[str, Any] = {"logs": [], "logsDropped": 0}
        if is_behind:
            reply["logsBehind"] = True
        if floor == NONE:
            return reply
        level, head = Level[floor.upper()], self._journal.head
        told = task.lines_told.get(caller, _NOTHING)
        window = _Window(
            task=task.id,
            own=self._newer(_NOTHING if task.is_ended else told, level),
            rest=[] if is_alone else self._newer(seen.marks, level),
            head=head,
            caller=caller if scope == "caller" else None,
        )
        if not is_onlooker:
            # In this turn: of two replies at a time, one has the lines.
            task.lines_told[caller] = [*told[:level], *[head] * (_LEVELS - level)]
            if not is_alone:
                seen.marks[level:] = [head] * (_LEVELS - level)
            if window.rest:
                self._keep(caller, seen)
        try:
            own, rest, total, hidden = await self._look(window, task)
        except StoreUnreadable:
            return {**reply, "logsBehind": True}
        shown = fitting([*map(wire, own), *map(wire, rest)], json_limit)
        marker = [left_out(hidden, level)] if hidden else []
        reply["logs"] = [*shown, *marker]
        reply["logsDropped"] = total - len(shown)
        return reply

    def _newer(self, marks: Sequence[int], level: Level) -> list[tuple[int, int]]:
        """The levels from `level` on of which there may be lines after their marks, with these."""
        return [
            (each, marks[each])
            for each in range(level, _LEVELS)
            if self._journal.is_newer(each, marks[each])
        ]

    async def _look(self, window: _Window, task: Task) -> _View:
        if task.is_ended and not self._journal.has_lines(task.record):
            window = msgspec.structs.replace(window, own=[])  # most calls: there are none
        if not window.own and not window.rest:
            return [], [], 0, 0
        oldest = min((mark for _level, mark in window.rest), default=window.head)
        is_long = window.head - oldest > DIRECT_LINES or task.record.output_bytes > DIRECT_BYTES
        if is_long:
            return await self._index.search(_view, window)
        return _view(self._index.reader, window)


_View = tuple[list[lines.Line], list[lines.Line], int, int]


def _view(connection: sqlite3.Connection, window: _Window) -> _View:
    """The task's lines, the others, how many of both there are, and how many the scope hides."""
    own, own_total = lines.of_task(connection, window.task, window.own, window.head, TASK_LINES)
    rest, total = lines.since(
        connection,
        window.rest,
        window.head,
        caller=window.caller,
        not_task=window.task,
        limit=REPLY_LINES - len(own),
    )
    hidden = 0
    if window.caller is not None:
        _none, everybody = lines.since(
            connection, window.rest, window.head, caller=None, not_task=window.task, limit=0
        )
        hidden = everybody - total
    return own, rest, own_total + total, hidden


def fitting(shown: list[dict[str, Any]], json_limit: int) -> list[dict[str, Any]]:
    """The last of `shown` that fit into so many bytes of JSON."""
    size = 0
    for index in range(len(shown) - 1, -1, -1):
        size += len(msgspec.json.encode(shown[index])) + 1
        if size > json_limit:
            return shown[index + 1 :]
    return shown


def left_out(count: int, level: Level) -> dict[str, Any]:
    """The one marker of what the scope hid."""
    text = f"{count} {level.word} lines from another caller's work left out"
    return {"marker": True, "leftOut": count, "text": text}
