"""record.db: what cannot be rebuilt: keys, the tombs of tasks that are gone, callers' positions.

synchronous=FULL: what `add` has returned from survives the machine's crash too. What callers were
told stands in `record.told` at once, so no reply waits for a commit; see `told`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from engine.store.told import Entry, Position, Told, ToldFile
from engine.store.writer import BatchWriter, StoreUnavailable, open_database

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS key (
    caller TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    task TEXT NOT NULL,
    PRIMARY KEY (caller, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tomb (
    id TEXT PRIMARY KEY,
    ended_at INTEGER,
    status TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (
    caller TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 1;
"""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A caller's idempotency key: what was asked under it, and the task that answers it."""

    caller: str
    key: str
    digest: str
    task: str


class Tomb(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was there."""

    id: str
    ended_at: int | None
    status: str


Fact = Key | Tomb | Position


class Ledger:
    """The durable facts. Writes wait for their commit, reads are direct."""

    def __init__(self, path: Path) -> None:
        self._writes = open_database(path, _SCHEMA, synchronous="FULL")
        self._reads = sqlite3.connect(path, isolation_level=None)
        self._reads.execute("PRAGMA query_only=1")
        self._writer = BatchWriter[Fact](self._writes, _apply, lambda _result: None)
        self._file = ToldFile(path.with_suffix(".told"))
        self._told: dict[str, dict[str, Told]] = {}  # by task and caller
        self._take_over(self._file.read())

    def _take_over(self, entries: list[Entry]) -> None:
        """Go on from what an engine before us told and may not have brought to the database."""
        for entry in entries:
            if isinstance(entry, Told):
                self._told.setdefault(entry.task, {})[entry.caller] = entry
                continue
            known = self.find_position(entry.caller)
            newest = entry if known is None else entry.joined(known)
            if newest != known:
                self._writer.put(_name(newest), newest)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled, then the rest."""
        await self._writer.serve(task_status=task_status)

    def close(self) -> None:
        self._file.close()
        self._reads.close()
        self._writes.close()

    @property
    def trouble(self) -> str | None:
        """Why the database takes no writes now."""
        return self._writer.trouble

    @property
    def is_complete(self) -> bool:
        """Whether it has the keys of all tasks there are; a new one has not been given them yet."""
        row = self._reads.execute("SELECT 1 FROM fact WHERE name = 'complete'").fetchone()
        return row is not None

    def set_complete(self) -> None:
        """From now on it is. Raises sqlite3.Error; blocks, a millisecond: for the start alone."""
        self._writes.execute("INSERT OR REPLACE INTO fact VALUES ('complete', 1)")

    async def add(self, fact: Key | Tomb) -> None:
        """Write `fact` for good. Raises StoreUnavailable: then it is not written, nor will be."""
        self._writer.put(_name(fact), fact)
        try:
            await self._writer.flush()
        except StoreUnavailable:
            self._writer.withdraw(_name(fact))
            raise

    def note(self, position: Position) -> None:
        """Have `position` known to the next engine; lost with the machine, it is shown again."""
        self._append(position)
        self._writer.put(_name(position), position)

    def tell(self, told: Told) -> None:
        """Have the next engine know what a reply is about to tell of a running task."""
        known = self._told.setdefault(told.task, {})
        if known.get(told.caller) != told:
            known[told.caller] = told
            self._append(told)

    def told(self, task: str, caller: str) -> Told | None:
        """What replies have told of a task that ran when they did."""
        return self._told.get(task, {}).get(caller)

    def drop_told(self, task: str) -> None:
        """The task has ended: replies tell all of it from here on."""
        self._told.pop(task, None)

    def keep_told(self, tasks: Container[str]) -> None:
        """Drop what was told of any other than `tasks`."""
        self._told = {task: told for task, told in self._told.items() if task in tasks}

    def _append(self, entry: Entry) -> None:
        self._file.append(entry)
        if self._file.size > self._file.compact_at:
            waiting = [item for item in self._writer.items() if isinstance(item, Position)]
            running = [told for callers in self._told.values() for told in callers.values()]
            new = [entry] if isinstance(entry, Position) else []  # it is put only now
            self._file.rewrite([*waiting, *new, *running])

    def find_position(self, caller: str) -> Position | None:
        item = self._writer.find(("position", caller))
        if isinstance(item, Position):
            return item
        row = self._reads.execute(
            "SELECT body FROM position WHERE caller = ?", (caller,)
        ).fetchone()
        return msgspec.json.decode(row[0], type=Position) if row else None

    async def settle(self) -> None:
        """Wait until all that was added is on disk. Raises StoreUnavailable."""
        await self._writer.flush()

    def find_key(self, caller: str, key: str) -> Key | None:
        """The key as it was used first, committed or about to be."""
        item = self._writer.find((caller, key))
        if isinstance(item, Key):
            return item
        row = self._reads.execute(
            "SELECT digest, task FROM key WHERE caller = ? AND key = ?", (caller, key)
        ).fetchone()
        return Key(caller=caller, key=key, digest=row[0], task=row[1]) if row else None

    def buried(self) -> set[str]:
        """The ids of all tasks that have a tomb."""
        return {row[0] for row in self._reads.execute("SELECT id FROM tomb")}

    def find_tomb(self, id_: str) -> Tomb | None:
        item = self._writer.find(id_)
        if isinstance(item, Tomb):
            return item
        row = self._reads.execute(
            "SELECT ended_at, status FROM tomb WHERE id = ?", (id_,)
        ).fetchone()
        return Tomb(id=id_, ended_at=row[0], status=row[1]) if row else None


def _name(fact: Fact) -> Any:
    if isinstance(fact, Key):
        return fact.caller, fact.key
    return ("position", fact.caller) if isinstance(fact, Position) else fact.id


def _apply(connection: sqlite3.Connection, facts: list[Fact]) -> None:
    for fact in facts:
        if isinstance(fact, Key):
            # The first use stands, whatever comes later.
            connection.execute(
                "INSERT OR IGNORE INTO key VALUES (?, ?, ?, ?)",
                (fact.caller, fact.key, fact.digest, fact.task),
            )
        elif isinstance(fact, Position):
            connection.execute(
                "INSERT OR REPLACE INTO position VALUES (?, ?)",
                (fact.caller, msgspec.json.encode(fact)),
            )
        else:
            connection.execute(
                "INSERT OR REPLACE INTO tomb VALUES (?, ?, ?)",
                (fact.id, fact.ended_at, fact.status),
            )
