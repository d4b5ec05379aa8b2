"""index.db: the rows of all tasks, and the journal's lines. Can be rebuilt from the directories.

Each change of a row and each line gets the next `seq`, in one order; a reader never sees one
before its commit.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import structlog
import trio

from engine.model import Status, TaskRecord
from engine.store import ended, lines, thinning
from engine.store.opening import LOG_BYTES, AsideFiles, OwnFiles, Plan, open_database
from engine.store.reading import Reader, ReadHealth, open_reader
from engine.store.writer import BatchWriter, StoreUnavailable
from engine.threads import in_thread

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
INSERT OR IGNORE INTO fact VALUES ('seq', 0), ('ord', 0);
"""
# But not a million lines.
_CHECKED: Final = ("task", "ended", "fact", "pump", "tally", "volume", "thinned")
_PLAN: Final = Plan(_SCHEMA + ended.SCHEMA + lines.SCHEMA, 1, "NORMAL", _CHECKED)
MOST_LINES: Final = 1_000_000  # of the journal; see `thinning`
BATCH_BYTES: Final = 4 << 20  # of outputs read for one transaction, or somewhat more
BATCH_LINES: Final = 10_000  # likewise stored
MOST_NOTES: Final = 1_000  # lines of no output that wait for a store in trouble; more are counted
LITTLE_ITEMS: Final = 8  # in a batch that the engine's own thread may write
LITTLE_BYTES: Final = 2 << 10  # of output, likewise: it may be a thousand lines
LITTLE_LINES: Final = 100  # of no output, likewise; and those that there must be room for
READERS: Final = 2  # long searches at a time; each has a connection and a thread
LINGER_SECS: Final = 0.05  # a short call's start and end become one write; see `is_watched`
_ROUND_MEMBER: Final = b'"round_id":'  # stands so in the body of a seat, and in no text of it
FORGOTTEN: Final = "forgotten"  # status of a row whose task was dropped; it has no body

T = TypeVar("T")
log = structlog.get_logger()


class Row(msgspec.Struct, frozen=True):
    """A committed row; `record` is None where the task was forgotten."""

    id: str
    order: int
    changed_seq: int
    record: TaskRecord | None


class EndedHandle(msgspec.Struct, frozen=True):
    """Of a task or round that has ended, what its receipt needs."""

    handle: str
    caller: str
    order: int
    is_seat: bool = False


class _Forgotten(msgspec.Struct, frozen=True):
    """In place of a record: the task is gone."""

    id: str
    caller: str
    order: int


class _Notes(msgspec.Struct, frozen=True):
    """Lines that come from no output."""

    lines: list[lines.NewLine]


class Committed(msgspec.Struct):
    """What one transaction held: the last `seq`, whether rows changed, how many lines, how many of
    each level, and the pieces. `postponed`: what was too much for one.
    """

    seq: int
    levels: Counter[int]
    has_rows: bool = False
    line_count: int = 0
    pieces: list[tuple[lines.Work, lines.Piece]] = []
    postponed: list[lines.Work] = []
    order: int = 0  # the highest of its rows
    total_lines: int = 0
    totals: ended.Totals = msgspec.field(default_factory=ended.Totals)


class Index:
    """The tables of tasks and lines. Writes go through one thread, reads are short and direct."""

    def __init__(
        self,
        path: Path,
        on_change: Callable[[Committed], None],
        *,
        most_lines: int = MOST_LINES,
        is_watched: Callable[[], bool] = lambda: False,
        has_past: bool = False,
    ) -> None:
        """`on_change`: called after each commit. `is_watched`: whether somebody waits for one.

        `has_past`: the home had tasks before; an index that is new goes on where none was.
        """
        self._is_watched = is_watched
        self._path = path
        self._writes, has_lost = open_database(path, _PLAN)
        self.set_aside, self.files = AsideFiles(path), OwnFiles(path)
        self._health = ReadHealth(path)
        self._reads = self.open_reader()
        self._on_change = on_change
        self._drop_damaged()
        ended.fill(self._writes)
        if has_past and has_lost:
            log.error("index_made_anew", path=str(path))
            # Numbers that were given out before must stay below: fewer than one a microsecond.
            self._writes.execute(
                "UPDATE fact SET value = max(value, ?) WHERE name = 'seq'",
                (int(time.time() * 1_000_000),),
            )
        self.latest_seq = self._fact("seq")
        self.latest_order = self._fact("ord")
        self.line_count = self._count_lines()
        self.totals = ended.totals(self._reads)
        self._most_lines = most_lines
        self._note_count = self._waiting_notes = self._lost_notes = 0
        self._limiter = trio.CapacityLimiter(READERS)
        self._idle: list[sqlite3.Connection] = []  # readers of threads
        self._writer = BatchWriter[_Item](
            self._writes,
            self._apply,
            self._on_committed,
            linger_secs=LINGER_SECS,
            on_begin=_begin,
            is_little=self._is_little,
        )
        self._thin_on()

    def _is_little(self, items: list[_Item]) -> bool:
        if len(items) > LITTLE_ITEMS or self.line_count + LITTLE_LINES > self._most_lines:
            return False
        notes = sum(len(item.lines) for item in items if isinstance(item, _Notes))
        works = [i for i in items if not isinstance(i, TaskRecord | _Forgotten | _Notes)]
        return notes <= LITTLE_LINES and sum(work.left_bytes for work in works) <= LITTLE_BYTES

    def _thin_on(self) -> None:
        """Have another transaction drop lines, where there are still too many."""
        if self.line_count > self._most_lines:
            self._writer.put("thin", _Notes([]))

    def tidy(self) -> None:
        """Where the log of changes is too large, have it cut by a commit, if nobody holds it."""
        if self.files.log_bytes() > LOG_BYTES:
            self._writer.put("tidy", _Notes([]))

    def open_reader(self) -> Reader:
        """A connection that reads, for one thread at a time; the taker closes it."""
        return open_reader(self._path, self._health, lines.prepare)

    async def search(self, function: Callable[..., T], *args: Any) -> T:
        """`function(connection, *args)` in a thread, of one moment of the database."""

        def work() -> T:
            try:
                reader = self._idle.pop()
            except IndexError:
                reader = self.open_reader()
            try:
                reader.execute("BEGIN")
                try:
                    return function(reader, *args)
                finally:
                    reader.execute("ROLLBACK")
            finally:
                self._idle.append(reader)

        return await in_thread(work, limiter=self._limiter)

    @property
    def reader(self) -> sqlite3.Connection:
        """The connection for short reads in the engine's own thread."""
        return self._reads

    def _count_lines(self) -> int:
        (total,) = self._reads.execute("SELECT total(lines) FROM volume").fetchone()
        return int(total)

    def _drop_damaged(self) -> None:
        """Drop rows that do not read: the directories tell of those tasks."""
        rows = self._reads.execute("SELECT id, body FROM task WHERE body IS NOT NULL")
        damaged = [id_ for id_, body in rows if not _is_sound(body)]
        if damaged:
            log.error("index_rows_damaged", ids=damaged)
            for id_ in damaged:
                self._writes.execute("DELETE FROM task WHERE id = ?", (id_,))
                self._writes.execute("DELETE FROM ended WHERE task = ?", (id_,))

    def _fact(self, name: str) -> int:
        row = self._reads.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return int(row[0])

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled, then the rest."""
        await self._writer.serve(task_status=task_status)

    def close(self) -> None:
        for connection in (*self._idle, self._reads, self._writes):
            connection.close()

    @property
    def trouble(self) -> str | None:
        """Why the database takes no writes now."""
        return self._writer.trouble

    @property
    def read_trouble(self) -> str | None:
        """Why something of it cannot be read now."""
        return self._health.trouble

    def put(self, record: TaskRecord) -> None:
        if self._is_watched():
            self._writer.hurry()
        self._writer.put(record.id, record)

    def note(self, new: list[lines.NewLine]) -> None:
        """Have lines written that come from no output."""
        if self.trouble is not None and self._waiting_notes >= MOST_NOTES:
            self._lost_notes += len(new)
            return
        self._note_count += 1
        self._waiting_notes += 1
        self._writer.put(("note", self._note_count), _Notes(new))

    def work(self, key: str, work: lines.Work, *, is_urgent: bool) -> None:
        """Have a piece of an output read and written; urgent: somebody waits for it."""
        if is_urgent:
            self._writer.hurry()
        self._writer.put(("work", key), work)

    def unread(self) -> dict[str, bytes]:
        """Task -> how far its output was read, of those that may have more to read."""
        return dict(self._reads.execute("SELECT task, state FROM pump"))

    def tally(self, id_: str) -> tuple[int, int]:
        """How many lines of a task's output are errors or worse, and how many are warnings."""
        row = self._reads.execute(
            "SELECT errors, warnings FROM tally WHERE task = ?", (id_,)
        ).fetchone()
        return row or (0, 0)

    def forget(self, record: TaskRecord | ended.Ended) -> None:
        self._writer.put(record.id, _Forgotten(record.id, record.caller, record.order))

    async def flush(self, limit_secs: float = math.inf) -> None:
        """Wait until what was put is committed, `limit_secs` at most.

        A store in trouble shows what it has.
        """
        with trio.move_on_after(limit_secs):
            try:
                await self._writer.flush()
            except StoreUnavailable:
                return

    def _on_committed(self, done: Committed) -> None:
        self.latest_seq, self.line_count = done.seq, done.total_lines
        self.latest_order = max(self.latest_order, done.order)
        self.totals = done.totals
        for work, piece in done.pieces:
            work.committed(piece)
        for work in done.postponed:  # before those that have just had their turn
            self.work(work.id, work, is_urgent=True)
        self._waiting_notes = 0
        self._thin_on()
        if self._lost_notes:
            log.error("engine_lines_lost", lines=self._lost_notes)
            self._lost_notes = 0
        self._on_change(done)

    def _apply(self, connection: sqlite3.Connection, items: list[_Item]) -> Committed:
        """Write the batch, in the writer's thread."""
        # Not from the table: what has been given out may be missing there, but is not given again.
        seq = self.latest_seq
        totals = msgspec.structs.replace(self.totals)
        done = Committed(seq, Counter(), pieces=[], postponed=[], totals=totals)
        self._apply_each(connection, items, done)
        connection.execute("INSERT OR REPLACE INTO fact VALUES ('seq', ?)", (done.seq,))
        done.total_lines = self.line_count + done.line_count
        if done.total_lines > self._most_lines:
            thinning.thin_out(connection, self._most_lines)
            (total,) = connection.execute("SELECT total(lines) FROM volume").fetchone()
            done.total_lines = int(total)
        return done

    def _apply_each(
        self, connection: sqlite3.Connection, items: list[_Item], done: Committed
    ) -> None:
        rows: list[_Row] = []
        read_bytes = stored = 0
        for item in items:
            if isinstance(item, TaskRecord | _Forgotten):
                done.seq += 1
                rows.append(_row(item, done.seq))
                if isinstance(item, TaskRecord):
                    ended.put(connection, item, done.totals)
                else:
                    lines.forget(connection, item.id)
                    ended.drop(connection, item.id, done.totals)
            elif isinstance(item, _Notes):
                done.seq = lines.insert(connection, done.seq, item.lines)
                _count(done, item.lines)
            elif read_bytes >= BATCH_BYTES or stored >= BATCH_LINES:
                done.postponed.append(item)
            else:
                piece = item.read()
                read_bytes, stored = read_bytes + piece.read_bytes, stored + len(piece.lines)
                done.seq = lines.insert_piece(connection, done.seq, piece)
                _count(done, piece.lines)
                done.pieces.append((item, piece))
        if rows:
            done.has_rows = True
            connection.executemany(
                "INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            ended.thin_out_forgotten(connection, done.totals)
            done.order = max(self.latest_order, *(row[1] for row in rows))
            connection.execute("INSERT OR REPLACE INTO fact VALUES ('ord', ?)", (done.order,))

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

    def is_forgotten(self, id_: str) -> bool:
        """Whether the task is forgotten and its row not committed as such yet."""
        return isinstance(self._writer.find(id_), _Forgotten)

    def final_ids(self) -> set[str]:
        """The ids of all tasks that have ended or are forgotten."""
        rows = self._reads.execute("SELECT id FROM task WHERE is_final = 1")
        return {row[0] for row in rows}

    def ended(self) -> list[EndedHandle]:
        """The tasks that have ended, in the order of their last changes; 0.2 s for 100,000."""
        rows = self._reads.execute(
            "SELECT 't' || id, caller, ord, instr(body, ?) > 0 FROM task"
            " WHERE is_final = 1 AND body IS NOT NULL ORDER BY changed_seq",
            (_ROUND_MEMBER,),
        )
        return [
            EndedHandle(handle, caller, order, bool(seat)) for handle, caller, order, seat in rows
        ]

    def kept_ids(self) -> set[str]:
        """The ids of all tasks that are not forgotten."""
        rows = self._reads.execute("SELECT id FROM task WHERE body IS NOT NULL")
        return {row[0] for row in rows}

    def active(self) -> list[TaskRecord]:
        """The records of tasks that had not ended, in the order of their acceptance."""
        rows = self._reads.execute("SELECT body FROM task WHERE is_final = 0 ORDER BY ord")
        return [record for row in rows if (record := _decode(row[0]))]

    def seats(self) -> list[TaskRecord]:
        """The records of tasks that have a seat in a round. Looks through all: for the start."""
        rows = self._reads.execute(
            "SELECT body FROM task WHERE body IS NOT NULL"
            " AND json_extract(CAST(body AS TEXT), '$.round_id') IS NOT NULL"
        )
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
    except (msgspec.MsgspecError, RecursionError, TypeError):
        return False
    return True


def _decode(body: bytes | None) -> TaskRecord | None:
    return None if body is None else msgspec.json.decode(body, type=TaskRecord)


def _row(item: TaskRecord | _Forgotten, seq: int) -> _Row:
    if not isinstance(item, TaskRecord):
        return (item.id, item.order, item.caller, FORGOTTEN, True, seq, 0, None)
    # One whose session is to be settled is looked after by the next engine.
    is_final = Status(item.status).is_final and not item.unsettled
    facts = (item.id, item.order, item.caller, item.status.value, is_final)
    return (*facts, seq, item.kept_bytes, msgspec.json.encode(item))


def _begin(items: list[_Item]) -> None:
    for item in items:
        if not isinstance(item, TaskRecord | _Forgotten | _Notes):
            item.begin()


def _count(done: Committed, new: list[lines.NewLine]) -> None:
    done.line_count += len(new)
    done.levels.update(line.level for line in new)


_Item = TaskRecord | _Forgotten | _Notes | lines.Work
_Row = tuple[str, int, str, str, bool, int, int, bytes | None]
