"""index.db: the rows of all tasks, to list and to find them. Can be rebuilt from the directories.

Each change of a row gets the next `changed_seq`; a reader never sees one before its commit.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import trio

from engine.model import Status, TaskRecord
from engine.store.writer import BatchWriter, StoreUnavailable, open_database

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS task (
    id TEXT PRIMARY KEY,
    ord INTEGER NOT NULL,
    caller TEXT NOT NULL,
    status TEXT NOT NULL,
    is_final INTEGER NOT NULL,
    changed_seq INTEGER NOT NULL,
    output_bytes INTEGER NOT NULL,
    body BLOB
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS task_ord ON task (ord);
CREATE INDEX IF NOT EXISTS task_caller ON task (caller, ord);
CREATE INDEX IF NOT EXISTS task_seq ON task (changed_seq);
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO fact VALUES ('schema', 1), ('seq', 0), ('ord', 0);
"""
LINGER_SECS: Final = 0.05  # a short call's start and end become one write; see `is_watched`
FORGOTTEN: Final = "forgotten"  # status of a row whose task was dropped; it has no body

log = structlog.get_logger()


class Row(msgspec.Struct, frozen=True):
    """A committed row; `record` is None where the task was forgotten."""

    id: str
    order: int
    changed_seq: int
    record: TaskRecord | None


class _Forgotten(msgspec.Struct, frozen=True):
    """In place of a record: the task is gone."""

    id: str
    caller: str
    order: int


class Index:
    """The table of tasks. Writes go through one thread, reads are short and direct."""

    def __init__(
        self,
        path: Path,
        on_change: Callable[[], None],
        *,
        is_watched: Callable[[], bool] = lambda: False,
        has_past: bool = False,
    ) -> None:
        """`on_change`: called after each commit. `is_watched`: whether somebody waits for one.

        `has_past`: the home had tasks before; an index that is new goes on where none was.
        """
        self._is_watched = is_watched
        self._writes = open_database(path, _SCHEMA, synchronous="NORMAL")
        self._reads = sqlite3.connect(path, isolation_level=None)
        self._reads.execute("PRAGMA query_only=1")
        self._on_change = on_change
        self._drop_damaged()
        if has_past and self._fact("seq") == 0:
            # Numbers that were given out before must stay below. There were fewer than one a ms.
            self._writes.execute(
                "UPDATE fact SET value = ? WHERE name = 'seq'", (int(time.time() * 1000),)
            )
        self.latest_seq = self._fact("seq")
        self.latest_order = self._fact("ord")
        self._writer = BatchWriter[TaskRecord | _Forgotten](
            self._writes, _apply, self._on_committed, linger_secs=LINGER_SECS
        )

    def _drop_damaged(self) -> None:
        """Drop rows that do not read: the directories tell of those tasks."""
        rows = self._reads.execute("SELECT id, body FROM task WHERE body IS NOT NULL")
        damaged = [id_ for id_, body in rows if not _is_sound(body)]
        if damaged:
            log.error("index_rows_damaged", ids=damaged)
            for id_ in damaged:
                self._writes.execute("DELETE FROM task WHERE id = ?", (id_,))

    def _fact(self, name: str) -> int:
        row = self._reads.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return int(row[0])

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled, then the rest."""
        await self._writer.serve(task_status=task_status)

    def close(self) -> None:
        self._reads.close()
        self._writes.close()

    @property
    def trouble(self) -> str | None:
        """Why the database takes no writes now."""
        return self._writer.trouble

    def put(self, record: TaskRecord) -> None:
        if self._is_watched():
            self._writer.hurry()
        self._writer.put(record.id, record)

    def forget(self, record: TaskRecord) -> None:
        self._writer.put(record.id, _Forgotten(record.id, record.caller, record.order))

    async def flush(self) -> None:
        """Wait until what was put is committed; a store in trouble shows what it has."""
        try:
            await self._writer.flush()
        except StoreUnavailable:
            return

    def _on_committed(self, seq: int) -> None:
        self.latest_seq = seq
        self._on_change()

    def find(self, id_: str) -> TaskRecord | None:
        """The newest record of this task, committed or not."""
        item = self._writer.find(id_)
        if item is not None:
            return item if isinstance(item, TaskRecord) else None
        row = self._reads.execute("SELECT body FROM task WHERE id = ?", (id_,)).fetchone()
        return _decode(row[0]) if row else None

    def changed_seq(self, id_: str) -> int:
        """The sequence number of this task's last committed change, 0 before the first."""
        row = self._reads.execute("SELECT changed_seq FROM task WHERE id = ?", (id_,)).fetchone()
        return int(row[0]) if row else 0

    def output_bytes(self) -> int:
        """Bytes of output of all tasks, as of the last change of each."""
        (total,) = self._reads.execute("SELECT total(output_bytes) FROM task").fetchone()
        return int(total)

    def final_ids(self) -> set[str]:
        """The ids of all tasks that have ended or are forgotten."""
        rows = self._reads.execute("SELECT id FROM task WHERE is_final = 1")
        return {row[0] for row in rows}

    def active(self) -> list[TaskRecord]:
        """The records of tasks that had not ended, in the order of their acceptance."""
        rows = self._reads.execute("SELECT body FROM task WHERE is_final = 0 ORDER BY ord")
        return [record for row in rows if (record := _decode(row[0]))]

    def newest_first(
        self, *, caller: str | None, states: Sequence[str] | None, before: int | None
    ) -> Iterator[Row]:
        """Committed rows, newest first, from below order `before`. Take what you need."""
        where, args = _filters(caller, states)
        where.append("body IS NOT NULL")
        if before is not None:
            where.append("ord < ?")
            args.append(before)
        return self._select(f"WHERE {' AND '.join(where)} ORDER BY ord DESC", args)

    def changed_after(
        self, seq: int, *, caller: str | None, states: Sequence[str] | None
    ) -> Iterator[Row]:
        """Rows changed since `seq`, forgotten ones too, in the order of their changes."""
        where, args = _filters(caller, [*states, FORGOTTEN] if states is not None else None)
        where.append("changed_seq > ?")
        return self._select(f"WHERE {' AND '.join(where)} ORDER BY changed_seq", [*args, seq])

    def _select(self, rest: str, args: list[Any]) -> Iterator[Row]:
        cursor = self._reads.execute(f"SELECT id, ord, changed_seq, body FROM task {rest}", args)
        try:
            for id_, order, changed_seq, body in cursor:
                yield Row(id_, order, changed_seq, _decode(body))
        finally:
            cursor.close()


def _filters(caller: str | None, states: Sequence[str] | None) -> tuple[list[str], list[Any]]:
    where, args = ["1"], list[Any]()
    if caller is not None:
        where.append("caller = ?")
        args.append(caller)
    if states is not None:
        where.append(f"status IN ({', '.join('?' * len(states))})")
        args += states
    return where, args


def _is_sound(body: object) -> bool:
    try:
        msgspec.json.decode(body, type=TaskRecord)  # type: ignore[call-overload] # may be anything
    except (msgspec.MsgspecError, TypeError):
        return False
    return True


def _decode(body: bytes | None) -> TaskRecord | None:
    return None if body is None else msgspec.json.decode(body, type=TaskRecord)


def _apply(connection: sqlite3.Connection, items: list[TaskRecord | _Forgotten]) -> int:
    """Write the batch; the last sequence number given out."""
    (seq,) = connection.execute("SELECT value FROM fact WHERE name = 'seq'").fetchone()
    rows: list[tuple[str, int, str, str, bool, int, int, bytes | None]] = []
    for seq, item in enumerate(items, seq + 1):  # noqa: B020 - counts on from the stored one
        if isinstance(item, TaskRecord):
            final = Status(item.status).is_final
            body = msgspec.json.encode(item)
            facts = (item.id, item.order, item.caller, item.status.value, final)
            rows.append((*facts, seq, item.output_bytes, body))
        else:
            rows.append((item.id, item.order, item.caller, FORGOTTEN, True, seq, 0, None))
    connection.executemany("INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    connection.execute("UPDATE fact SET value = ? WHERE name = 'seq'", (seq,))
    connection.execute(
        "UPDATE fact SET value = max(value, ?) WHERE name = 'ord'", (max(row[1] for row in rows),)
    )
    return int(seq)
