"""Of index.db: the tasks that have ended, for retention; and the rows of those that it dropped.

What is asked for each call (how many, how many bytes) is counted with each transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from engine.model import Status, TaskRecord

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS ended (
    task TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ended_at ON ended (at);
CREATE INDEX IF NOT EXISTS ended_kept ON ended (at) WHERE bytes > 0;
CREATE INDEX IF NOT EXISTS task_gone ON task (changed_seq) WHERE body IS NULL;
"""
# Of a file of an engine that had no such table.
_FILL: Final = """
INSERT INTO ended SELECT id, coalesce(
    json_extract(CAST(body AS TEXT), '$.ended_at'), json_extract(CAST(body AS TEXT), '$.created_at')
), output_bytes FROM task WHERE is_final = 1 AND body IS NOT NULL
"""
_ROWS: Final = (
    "SELECT id, caller, ord, status, at, bytes,"
    " json_extract(CAST(body AS TEXT), '$.round_id') FROM ended {} JOIN task ON id = task"
    " WHERE {} ORDER BY at"
)
MOST_FORGOTTEN: Final = 10_000  # rows of tasks that were dropped: for who reads what has changed


class Ended(msgspec.Struct, frozen=True):
    """A task that has ended. `ended_at` in ms; `output_bytes` are those that are kept."""

    id: str
    caller: str
    order: int
    status: str
    ended_at: int
    output_bytes: int
    round_id: str | None = None  # of a seat


class Totals(msgspec.Struct):
    """Of what is committed: tasks that have ended, bytes of output that are kept of them, and rows
    of tasks that are forgotten.
    """

    ended: int = 0
    output_bytes: int = 0
    forgotten: int = 0


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """What is to go: so many tasks, so many bytes of output, and all that ended before a time."""

    tasks: int
    output_bytes: int
    before: int  # ms


def fill(connection: sqlite3.Connection) -> None:
    """Have the ended tasks in their table, in a file where that is new."""
    if connection.execute("SELECT 1 FROM ended LIMIT 1").fetchone() is None:
        connection.execute(_FILL)


def totals(connection: sqlite3.Connection) -> Totals:
    """Counted anew: 20 ms for 100,000 tasks."""
    ended, kept = connection.execute("SELECT count(*), total(bytes) FROM ended").fetchone()
    (forgotten,) = connection.execute("SELECT count(*) FROM task WHERE body IS NULL").fetchone()
    return Totals(ended, int(kept), forgotten)


def first_end(connection: sqlite3.Connection) -> int | None:
    """When the task ended that ended first (ms)."""
    (first,) = connection.execute("SELECT min(at) FROM ended").fetchone()
    return None if first is None else int(first)


def put(connection: sqlite3.Connection, record: TaskRecord, total: Totals) -> None:
    """Take note of a record that is about to be written."""
    if not Status(record.status).is_final:
        return
    kept = record.kept_bytes
    at = record.created_at if record.ended_at is None else record.ended_at
    _take_out(connection, record.id, total)
    total.ended += 1
    total.output_bytes += kept
    connection.execute("INSERT OR REPLACE INTO ended VALUES (?, ?, ?)", (record.id, at, kept))


def drop(connection: sqlite3.Connection, id_: str, total: Totals) -> None:
    """Take note of a task whose row is about to become one of a forgotten task."""
    _take_out(connection, id_, total)
    connection.execute("DELETE FROM ended WHERE task = ?", (id_,))
    row = connection.execute("SELECT body IS NULL FROM task WHERE id = ?", (id_,)).fetchone()
    total.forgotten += row is None or not row[0]


def _take_out(connection: sqlite3.Connection, id_: str, total: Totals) -> None:
    known = connection.execute("SELECT bytes FROM ended WHERE task = ?", (id_,)).fetchone()
    if known is not None:
        total.ended -= 1
        total.output_bytes -= known[0]


def thin_out_forgotten(connection: sqlite3.Connection, total: Totals) -> None:
    """Drop the oldest rows of forgotten tasks where there are too many, a tenth at a time."""
    if total.forgotten <= MOST_FORGOTTEN:
        return
    dropped = connection.execute(
        "DELETE FROM task WHERE id IN"
        " (SELECT id FROM task WHERE body IS NULL ORDER BY changed_seq LIMIT ?)",
        (total.forgotten - MOST_FORGOTTEN * 9 // 10,),
    )
    total.forgotten -= dropped.rowcount


def oldest(
    connection: sqlite3.Connection,
    excess: Excess,
    may_go: Callable[[str], bool],
    limit: int,
) -> list[Ended]:
    """Those that are to go, the one that ended first before the others, `limit` at most.

    For one that is over the number and may not go, none goes in its place. For bytes only those go
    that have some, and for one that may not, a later one.
    """
    found = list(_by_age(connection, excess, may_go, limit))
    freed = sum(task.output_bytes for task in found)
    if freed >= excess.output_bytes or len(found) >= limit:
        return found
    taken = {task.id for task in found}
    for row in connection.execute(_ROWS.format("INDEXED BY ended_kept", "bytes > 0")):
        task = Ended(*row)
        if task.id in taken or not may_go(task.id):
            continue
        found.append(task)
        freed += task.output_bytes
        if freed >= excess.output_bytes or len(found) >= limit:
            break
    return found


def _by_age(
    connection: sqlite3.Connection, excess: Excess, may_go: Callable[[str], bool], limit: int
) -> Iterator[Ended]:
    rows = connection.execute(_ROWS.format("INDEXED BY ended_at", "1"))
    for place, row in enumerate(rows):
        task = Ended(*row)
        if limit == 0 or (place >= excess.tasks and task.ended_at >= excess.before):
            return
        if may_go(task.id):
            limit -= 1
            yield task
