"""record.db: what cannot be rebuilt: keys, tombs, positions, receipts, rounds, settings.

synchronous=FULL: what `add` has returned from survives the machine's crash too. What callers were
told stands in `record.told` at once, so no reply waits for a commit; see `told`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Container
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from engine.store import receipts, rounds
from engine.store.opening import AsideFiles, OwnFiles, Plan, open_database
from engine.store.reading import ReadHealth, open_reader
from engine.store.receipts import Dropped, Receipts
from engine.store.rounds import NoRound, RoundTable, StoredRound
from engine.store.told import Entry, Position, Receipt, Told, ToldFile
from engine.store.writer import BatchWriter, StoreUnavailable

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
CREATE INDEX IF NOT EXISTS tomb_ended ON tomb (ended_at);
CREATE INDEX IF NOT EXISTS key_task ON key (task);
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_PLAN: Final = Plan(_SCHEMA + receipts.SCHEMA + rounds.SCHEMA, 1, "FULL")


MOST_TOMBS: Final = 200_000  # then those of the tasks that ended first go, and their keys
MOST_POSITIONS: Final = 10_000  # callers; then those go who were told something longest ago
MOST_TOLD: Final = 1_000  # callers of a running task; who was told longest ago is told again
_STEP: Final = 10  # a tenth of so many goes at a time
LINGER_SECS: Final = 0.1  # what stands in `record.told` becomes one write; `add` waits for none


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A caller's idempotency key: what was asked under it, and the task that answers it."""

    caller: str
    key: str
    digest: str
    task: str


class Tomb(msgspec.Struct, frozen=True, kw_only=True):
    """A task, or under its whole id a round, that was there."""

    id: str
    ended_at: int | None
    status: str


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What was set while the engine ran, as JSON: the newest of a name counts."""

    name: str
    value: str


class AllKeys(msgspec.Struct, frozen=True):
    """The keys of all tasks that there are have been given."""


Fact = Key | Tomb | Position | Setting | AllKeys | Receipt | Dropped | StoredRound | NoRound


class _Counts(msgspec.Struct):
    """How many rows there are."""

    tombs: int
    positions: int


class Ledger:
    """The durable facts. Writes wait for their commit, reads are direct."""

    def __init__(
        self,
        path: Path,
        make_room: Callable[[], bool] = lambda: False,
        *,
        has_past: bool = False,
    ) -> None:
        """`make_room`: called where a tomb finds no room; whether it has made some.

        `has_past`: the home had an engine before, and so a record.
        """
        self._make_room = make_room
        self._writes, has_lost = open_database(path, _PLAN)
        if has_lost:  # it may have been whole, and the keys that came last are gone
            self._writes.execute("DELETE FROM fact WHERE name = 'complete'")
        self.set_aside, self.files = AsideFiles(path), OwnFiles(path)
        self.was_gone = has_past and has_lost and not self.set_aside()
        self._health = ReadHealth(path)
        self._reads = open_reader(path, self._health)
        self._counts = _Counts(self._count("tomb"), self._count("position"))
        row = self._reads.execute("SELECT 1 FROM fact WHERE name = 'complete'").fetchone()
        self._has_all_keys = trio.Event()
        if row is not None:
            self._has_all_keys.set()
        self._writer = BatchWriter[Fact](
            self._writes, self._apply, self._on_committed, linger_secs=LINGER_SECS
        )
        self._file = ToldFile(path.with_suffix(".told"))
        self._told: dict[str, dict[str, Told]] = {}  # by task and caller
        self.receipts = Receipts(self._reads, self._writer, lambda new: self._append(*new))
        self.rounds = RoundTable(self._reads, self._writer)
        self._take_over(self._file.read())

    def _count(self, table: str) -> int:
        (rows,) = self._reads.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(rows)

    def _on_committed(self, counts: _Counts) -> None:
        self._counts = counts

    def _take_over(self, entries: list[Entry]) -> None:
        """Go on from what an engine before us told and may not have brought to the database."""
        for entry in entries:
            if isinstance(entry, Told):
                self._told.setdefault(entry.task, {})[entry.caller] = entry
                continue
            if isinstance(entry, Receipt):
                self.receipts.take_over(entry)
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
    def read_trouble(self) -> str | None:
        """Why something of it cannot be read now."""
        return self._health.trouble

    @property
    def told_trouble(self) -> str | None:
        """Why `record.told` takes no writes now."""
        return self._file.trouble

    @property
    def is_complete(self) -> bool:
        """Whether it has the keys of all tasks there are; a new one has not been given them yet."""
        return self._has_all_keys.is_set()

    async def wait_complete(self) -> None:
        """Wait until it has them."""
        await self._has_all_keys.wait()

    async def set_complete(self) -> None:
        """From now on it is. Raises StoreUnavailable."""
        await self.add(AllKeys())
        self._has_all_keys.set()

    def receipts_from(self, order: int) -> int:
        """The order of acceptance up to which tasks may have been told of unrecorded.

        `order`: that of the newest task, for a ledger that is new. Blocks, a millisecond: for the
        start alone. Raises sqlite3.Error.
        """
        query = "SELECT value FROM fact WHERE name = 'receipts'"
        if self._reads.execute(query).fetchone() is None:
            self._writes.execute("INSERT OR IGNORE INTO fact VALUES ('receipts', ?)", (order,))
        return int(self._reads.execute(query).fetchone()[0])

    async def add(self, *facts: Key | Tomb | Setting | AllKeys | StoredRound) -> None:
        """Write `facts` for good, as one. Raises StoreUnavailable: then none is, nor will be."""
        if (trouble := self.files.trouble()) is not None:
            raise StoreUnavailable(trouble)  # it would be for the life of this engine only
        for fact in facts:
            self._writer.put(_name(fact), fact)
        try:
            try:
                await self._writer.flush()
            except StoreUnavailable:
                # A tomb is how room is made: what it stands for is removed next.
                if not (any(isinstance(fact, Tomb) for fact in facts) and self._make_room()):
                    raise
                await self._writer.flush()
        except StoreUnavailable:
            for fact in facts:
                self._writer.withdraw(_name(fact))
            raise

    def bury(self, tomb: Tomb) -> None:
        """Have a round gone but for its tomb, in time."""
        self._writer.put(_name(tomb), tomb)
        self.rounds.put(NoRound(id=tomb.id))

    def note(self, position: Position) -> None:
        """Have `position` known to the next engine; lost with the machine, it is shown again."""
        self._append(position)
        self._writer.put(_name(position), position)

    def tell(self, told: Told) -> None:
        """Have the next engine know what a reply is about to tell of a running task."""
        known = self._told.setdefault(told.task, {})
        if known.get(told.caller) != told:
            known.pop(told.caller, None)
            known[told.caller] = told
            self._append(told)
        if len(known) > MOST_TOLD:
            del known[next(iter(known))]

    def told(self, task: str, caller: str) -> Told | None:
        """What replies have told of a task that ran when they did."""
        return self._told.get(task, {}).get(caller)

    def drop_told(self, task: str) -> None:
        """The task has ended: replies tell all of it from here on."""
        self._told.pop(task, None)

    def keep_told(self, tasks: Container[str]) -> None:
        """Drop what was told of any other than `tasks`."""
        self._told = {task: told for task, told in self._told.items() if task in tasks}

    def _append(self, *entries: Entry) -> None:
        had_trouble = self.told_trouble is not None
        self._file.append(*entries)
        is_whole = self.told_trouble is not None or not had_trouble
        if self._file.size > self._file.compact_at or not is_whole:
            waiting = [item for item in self._writer.items() if isinstance(item, Position)]
            running = [told for callers in self._told.values() for told in callers.values()]
            new = [entry for entry in entries if isinstance(entry, Position)]  # put only now
            self._file.rewrite([*waiting, *new, *running, *self.receipts.unwritten()])

    def find_position(self, caller: str) -> Position | None:
        item = self._writer.find(("position", caller))
        if isinstance(item, Position):
            return item
        row = self._reads.execute(
            "SELECT body FROM position WHERE caller = ?", (caller,)
        ).fetchone()
        return msgspec.json.decode(row[0], type=Position) if row else None

    async def settle(self, key: Key | None = None) -> None:
        """Wait until `key`, which was found, is on disk; without one, until all is.

        Raises StoreUnavailable.
        """
        if key is None or self._writer.find(_name(key)) is not None:
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

    def settings(self) -> dict[str, str]:
        """All that is committed of `Setting`, by name."""
        return dict(self._reads.execute("SELECT name, value FROM setting"))

    def which_buried(self, ids: Collection[str]) -> set[str]:
        """Which of these few ids have a tomb, committed or about to be."""
        marks = ", ".join("?" * len(ids))
        rows = self._reads.execute(f"SELECT id FROM tomb WHERE id IN ({marks})", tuple(ids))
        waiting = {id_ for id_ in ids if isinstance(self._writer.find(id_), Tomb)}
        return {id_ for (id_,) in rows} | waiting

    def buried(self, ids: Container[str]) -> set[str]:
        """Which of `ids` have a tomb."""
        return {id_ for (id_,) in self._reads.execute("SELECT id FROM tomb") if id_ in ids}

    def find_tomb(self, id_: str) -> Tomb | None:
        item = self._writer.find(id_)
        if isinstance(item, Tomb):
            return item
        row = self._reads.execute(
            "SELECT ended_at, status FROM tomb WHERE id = ?", (id_,)
        ).fetchone()
        return Tomb(id=id_, ended_at=row[0], status=row[1]) if row else None

    def _apply(self, connection: sqlite3.Connection, facts: list[Fact]) -> _Counts:
        """Write the batch, in the writer's thread."""
        counts = msgspec.structs.replace(self._counts)
        # First: what is left of a task goes only after its own tomb was written.
        counts.tombs -= _drop_tombs(connection, counts.tombs)
        for fact in facts:
            if isinstance(fact, Key):
                # The first use stands, whatever comes later.
                connection.execute(
                    "INSERT OR IGNORE INTO key VALUES (?, ?, ?, ?)",
                    (fact.caller, fact.key, fact.digest, fact.task),
                )
            elif isinstance(fact, AllKeys):
                connection.execute("INSERT OR REPLACE INTO fact VALUES ('complete', 1)")
            elif isinstance(fact, Position):
                counts.positions += self._is_new("position", "caller", fact.caller)
                connection.execute(
                    "INSERT OR REPLACE INTO position VALUES (?, ?)",
                    (fact.caller, msgspec.json.encode(fact)),
                )
            elif isinstance(fact, Receipt | Dropped):
                receipts.apply(connection, fact)
            elif isinstance(fact, StoredRound | NoRound):
                rounds.apply(connection, fact)
            elif isinstance(fact, Setting):
                connection.execute(
                    "INSERT OR REPLACE INTO setting VALUES (?, ?)", (fact.name, fact.value)
                )
            else:
                counts.tombs += self._is_new("tomb", "id", fact.id)
                connection.execute(
                    "INSERT OR REPLACE INTO tomb VALUES (?, ?, ?)",
                    (fact.id, fact.ended_at, fact.status),
                )
        counts.positions -= _drop_positions(connection, counts.positions)
        return counts

    def _is_new(self, table: str, column: str, value: str) -> bool:
        sql = f"SELECT 1 FROM {table} WHERE {column} = ?"
        return self._writes.execute(sql, (value,)).fetchone() is None


def _drop_tombs(connection: sqlite3.Connection, count: int) -> int:
    """Drop the oldest of `count` tombs where there are too many; how many."""
    if count <= MOST_TOMBS:
        return 0
    excess = count - MOST_TOMBS + MOST_TOMBS // _STEP
    oldest = "SELECT id FROM tomb ORDER BY ended_at LIMIT ?"
    connection.execute(f"DELETE FROM key WHERE task IN ({oldest})", (excess,))
    return connection.execute(f"DELETE FROM tomb WHERE id IN ({oldest})", (excess,)).rowcount


def _drop_positions(connection: sqlite3.Connection, count: int) -> int:
    """Drop the positions that stand furthest back, of `count`, if those are too many."""
    if count <= MOST_POSITIONS:
        return 0
    rows = connection.execute("SELECT body FROM position")
    known = [msgspec.json.decode(body, type=Position) for (body,) in rows]
    known.sort(key=lambda position: max(*position.marks, position.read_to))
    excess = known[: count - MOST_POSITIONS + MOST_POSITIONS // _STEP]
    connection.executemany(
        "DELETE FROM position WHERE caller = ?", [(position.caller,) for position in excess]
    )
    return len(excess)


def _name(fact: Fact) -> Any:
    if isinstance(fact, Key):
        return fact.caller, fact.key
    if isinstance(fact, Setting):
        return "setting", fact.name, ""
    if isinstance(fact, Receipt | Dropped):
        return receipts.name(fact)
    if isinstance(fact, StoredRound | NoRound):
        return rounds.name(fact)
    if isinstance(fact, AllKeys):
        return "all keys"
    return ("position", fact.caller) if isinstance(fact, Position) else fact.id
