"""The table `round` of record.db: which tasks are the seats of which round.

A row is on disk before the round's id is told. How a round stands, its tasks say.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from engine.store.writer import BatchWriter

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS round (
    id TEXT PRIMARY KEY,
    ord INTEGER NOT NULL,
    caller TEXT NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS round_ord ON round (ord);
CREATE INDEX IF NOT EXISTS round_caller ON round (caller, ord);
"""


class StoredRound(msgspec.Struct, frozen=True, kw_only=True):
    """One round. `seats`: by name the ids of the tasks that had the seat, the newest last."""

    id: str  # with its letter, as it is told
    caller: str
    order: int  # of acceptance of its first seat
    created_at: int  # ms
    seats: dict[str, tuple[str, ...]]
    generation: int = 1  # one more with each retry

    @property
    def handle(self) -> str:
        """Under which its end is received: that of a retried round is another one."""
        return f"{self.id}#{self.generation}"

    @property
    def tasks(self) -> dict[str, str]:
        """By name the id of the task that has the seat now."""
        return {name: ids[-1] for name, ids in self.seats.items()}


class NoRound(msgspec.Struct, frozen=True, kw_only=True):
    """In place of a row: there is to be none."""

    id: str


class RoundTable:
    """The rows. Whoever needs one on disk adds it to the ledger."""

    def __init__(self, reads: sqlite3.Connection, writer: BatchWriter[Any]) -> None:
        self._reads, self._writer = reads, writer

    def put(self, row: StoredRound | NoRound) -> None:
        """Have `row` written, in time."""
        self._writer.put(name(row), row)

    def find(self, id_: str) -> StoredRound | None:
        """The newest row of this id, on disk or about to be."""
        item = self._writer.find(("round", id_))
        if item is not None:
            return item if isinstance(item, StoredRound) else None
        row = self._reads.execute("SELECT body FROM round WHERE id = ?", (id_,)).fetchone()
        return _decode(row[0]) if row else None

    def all(self) -> list[StoredRound]:
        """All there are; 0.4 s for 100,000."""
        return [_decode(body) for (body,) in self._reads.execute("SELECT body FROM round")]

    def newest_first(self, caller: str | None, before: int | None) -> Iterator[StoredRound]:
        """Rows from below order `before`, newest first. Take what you need."""
        where, args = ["1"], list[Any]()
        if caller is not None:
            where.append("caller = ?")
            args.append(caller)
        if before is not None:
            where.append("ord < ?")
            args.append(before)
        query = f"SELECT body FROM round WHERE {' AND '.join(where)} ORDER BY ord DESC"
        cursor = self._reads.execute(query, args)
        try:
            for (body,) in cursor:
                row = _decode(body)
                if not isinstance(self._writer.find(name(row)), NoRound):
                    yield row
        finally:
            cursor.close()


def _decode(body: bytes) -> StoredRound:
    return msgspec.json.decode(body, type=StoredRound)


def name(fact: StoredRound | NoRound) -> Any:
    """Under which it waits to be written."""
    return "round", fact.id


def apply(connection: sqlite3.Connection, fact: StoredRound | NoRound) -> None:
    """Write one fact, within a transaction."""
    if isinstance(fact, NoRound):
        connection.execute("DELETE FROM round WHERE id = ?", (fact.id,))
        return
    connection.execute(
        "INSERT OR REPLACE INTO round VALUES (?, ?, ?, ?)",
        (fact.id, fact.order, fact.caller, msgspec.json.encode(fact)),
    )
