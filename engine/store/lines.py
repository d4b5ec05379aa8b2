"""The journal's tables in index.db: lines, how far each output was read, and what was thinned out
(see `thinning`).

Lines take their `seq` from the same counter as the changes of tasks, and are written by the same
writer, in its transactions. What reads here may do so in a thread, over a connection of its own.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Protocol

import msgspec

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS line (
    seq INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    level INTEGER NOT NULL,
    caller TEXT,
    task TEXT,
    source TEXT NOT NULL,
    text TEXT NOT NULL,
    cut INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS line_caller ON line (caller, level, seq);
CREATE INDEX IF NOT EXISTS line_task ON line (task, level, seq) WHERE task IS NOT NULL;
CREATE INDEX IF NOT EXISTS line_severe ON line (level, seq) WHERE level >= 3;
CREATE TABLE IF NOT EXISTS pump (
    task TEXT PRIMARY KEY,
    state BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tally (
    task TEXT PRIMARY KEY,
    errors INTEGER NOT NULL,
    warnings INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS volume (
    caller TEXT NOT NULL,
    level INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    PRIMARY KEY (caller, level)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS thinned (
    caller TEXT,
    level INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    lines INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS thinned_caller ON thinned (caller, level, last_seq);
CREATE INDEX IF NOT EXISTS thinned_seq ON thinned (last_seq);
"""
MOST_LEVEL: Final = 7
ERROR: Final = 4  # levels, least severe first, from 0; see `engine.journal.levels`
WARNING: Final = 3
NO_CALLER: Final = ""  # stands for the engine where a key must not be null
_COLUMNS: Final = "seq, time, level, caller, task, source, text, cut"
# Lines to a statement: it takes two thirds of the time of a statement a line, and gives other
# threads their turn between statements and not between lines.
AT_ONCE: Final = 100
# Behind ?1, the last number given out: what lines have in common, and for each its own three.
_shared: Final = attrgetter("time", "caller", "task", "source")
_VALUES: Final = "(?1 + {}, ?2, ?{}, ?3, ?4, ?5, ?{}, ?{})"
_ONE: Final = "INSERT INTO line VALUES " + _VALUES.format(1, 6, 7, 8)
_MANY: Final = "INSERT INTO line VALUES " + ", ".join(
    _VALUES.format(i + 1, *range(6 + 3 * i, 9 + 3 * i)) for i in range(AT_ONCE)
)


class NewLine(msgspec.Struct, frozen=True):
    """A line that has no `seq` yet. `time` in ms; `task` is an id without its letter."""

    time: int
    level: int
    caller: str | None
    task: str | None
    source: str
    text: str
    cut: bool = False


class Line(msgspec.Struct, frozen=True):
    """A committed line."""

    seq: int
    time: int
    level: int
    caller: str | None
    task: str | None
    source: str
    text: str
    cut: bool


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one task, and where reading its output has come to: one transaction.

    `state` None: nothing more will be read, and nothing need be remembered.
    """

    task: str
    lines: list[NewLine]
    state: bytes | None
    is_finished: bool
    read_bytes: int


class Work(Protocol):
    """Reads a piece of an output, in the writer's thread."""

    @property
    def id(self) -> str:
        """The task."""

    @property
    def left_bytes(self) -> int:
        """Of the output that there is to read."""

    def begin(self) -> None:
        """A transaction begins that holds it: what is told of it from now on is for the next.

        Called in the engine's own thread.
        """

    def read(self) -> Piece:
        """The next piece; the last one again where that was not committed."""

    def committed(self, piece: Piece) -> None:
        """The piece is in the journal. Called in the engine's own thread."""


def insert(connection: sqlite3.Connection, seq: int, lines: Sequence[NewLine]) -> int:
    """Write `lines` behind `seq`; the last number given out."""
    for shared, run in groupby(lines, _shared):
        alike = list(run)
        whole = len(alike) - len(alike) % AT_ONCE
        for start in range(0, whole, AT_ONCE):
            own = [v for n in alike[start : start + AT_ONCE] for v in (n.level, n.text, n.cut)]
            connection.execute(_MANY, [seq, *shared, *own])
            seq += AT_ONCE
        rest = enumerate(alike[whole:], seq)
        rows = [(number, *shared, n.level, n.text, n.cut) for number, n in rest]
        connection.executemany(_ONE, rows)
        seq += len(rows)
        _add_volume(connection, shared[1] or NO_CALLER, Counter([n.level for n in alike]))
    return seq


def _add_volume(connection: sqlite3.Connection, caller: str, levels: Counter[int]) -> None:
    connection.executemany(
        "INSERT INTO volume VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
        " SET lines = lines + excluded.lines",
        [(caller, level, count) for level, count in levels.items()],
    )


def insert_piece(connection: sqlite3.Connection, seq: int, piece: Piece) -> int:
    """Write a piece: its lines, what they add to the task's tally, and its state."""
    seq = insert(connection, seq, piece.lines)
    levels = Counter([n.level for n in piece.lines if n.source != "engine"])
    warnings = levels[WARNING]
    errors = sum(levels[level] for level in range(ERROR, MOST_LEVEL + 1))
    if errors or warnings:
        connection.execute(
            "INSERT INTO tally VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET"
            " errors = errors + excluded.errors, warnings = warnings + excluded.warnings",
            (piece.task, errors, warnings),
        )
    if piece.state is None:
        connection.execute("DELETE FROM pump WHERE task = ?", (piece.task,))
    else:
        connection.execute("INSERT OR REPLACE INTO pump VALUES (?, ?)", (piece.task, piece.state))
    return seq


def forget(connection: sqlite3.Connection, task: str) -> None:
    """Drop what is known of a task beside its lines."""
    connection.execute("DELETE FROM pump WHERE task = ?", (task,))
    connection.execute("DELETE FROM tally WHERE task = ?", (task,))


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines: from `floor` up; of `caller` and the engine (None: of everybody); of one task.

    `whose`: of that caller alone. `contains`: in any case. `since`: not before that time (ms).
    """

    floor: int
    caller: str | None = None
    whose: str | None = None
    task: str | None = None
    contains: str | None = None
    since: int | None = None

    def where(self) -> tuple[str, list[Any]]:
        """The condition, and its arguments."""
        terms, args = ["level >= ?"], list[Any]([self.floor])
        if self.caller is not None:
            terms.append("(caller = ? OR caller IS NULL)")
            args.append(self.caller)
        if self.whose is not None:
            terms.append("caller = ?")
            args.append(self.whose)
        if self.task is not None:
            terms.append("task = ?")
            args.append(self.task)
        if self.contains is not None:
            # SQLite's own function knows the small letters of ASCII only, but costs a tenth.
            lower = "lower" if self.contains.isascii() else "lower_all"
            terms.append(f"instr({lower}(text), ?) > 0")
            args.append(self.contains.lower())
        if self.since is not None:
            terms.append("time >= ?")
            args.append(self.since)
        return " AND ".join(terms), args


def prepare(connection: sqlite3.Connection) -> None:
    """Give a connection the functions that the queries here use."""
    connection.create_function("lower_all", 1, str.lower, deterministic=True)


def after(
    connection: sqlite3.Connection, wanted: Wanted, seq: int, last: int, limit: int
) -> list[Line]:
    """The oldest `limit` lines after `seq` up to `last`, oldest first."""
    found: list[Line] = []
    for index, where, args in _along(wanted):
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM line {index} WHERE {where} AND seq > ? AND seq <= ?"
            " ORDER BY seq LIMIT ?",
            [*args, seq, last, limit],
        )
        found += [_line(row) for row in rows]
    return sorted(found, key=_seq_of)[:limit]


def before(connection: sqlite3.Connection, wanted: Wanted, seq: int, limit: int) -> list[Line]:
    """The newest `limit` lines before `seq`, oldest first."""
    found: list[Line] = []
    for index, where, args in _along(wanted):
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM line {index} WHERE {where} AND seq < ?"
            " ORDER BY seq DESC LIMIT ?",
            [*args, seq, limit],
        )
        found += [_line(row) for row in rows]
    return sorted(found, key=_seq_of)[-limit:]


def count(connection: sqlite3.Connection, wanted: Wanted, first: int, last: int) -> int:
    """How many lines there are after `first` up to `last`."""
    total = 0
    for index, where, args in _along(wanted):
        (found,) = connection.execute(
            f"SELECT count(*) FROM line {index} WHERE {where} AND seq > ? AND seq <= ?",
            [*args, first, last],
        ).fetchone()
        total += found
    return total


def _along(wanted: Wanted) -> list[tuple[str, str, list[Any]]]:
    """Conditions, with an index along which each finds lines in their order, without a sort.

    So a page costs what it looks at, however many lines there are.
    """
    where, args = wanted.where()
    if wanted.task is None:
        return [("NOT INDEXED", where, args)]
    levels = range(wanted.floor, MOST_LEVEL + 1)
    return [("INDEXED BY line_task", f"{where} AND level = ?", [*args, lvl]) for lvl in levels]


def _seq_of(line: Line) -> int:
    return line.seq


def of_task(
    connection: sqlite3.Connection,
    task: str,
    levels: Iterable[tuple[int, int]],
    last: int,
    limit: int,
) -> tuple[list[Line], int]:
    """The newest `limit` lines of a task, and how many there are; see `since`."""
    wheres = [
        ("task = ? AND level = ? AND seq > ? AND seq <= ?", [task, level, mark, last])
        for level, mark in levels
    ]
    return _newest(connection, wheres, limit)


def since(
    connection: sqlite3.Connection,
    levels: Iterable[tuple[int, int]],
    last: int,
    *,
    caller: str | None,
    not_task: str | None,
    limit: int,
) -> tuple[list[Line], int]:
    """The newest `limit` lines up to `last` of levels with a mark each, and how many there are.

    levels: (level, mark): lines of that level after the mark. caller: of this one and the engine;
    None: of everybody. The lines of `not_task` are left out.
    """
    wheres = []
    for level, mark in levels:
        for whose in ("caller = ?", "caller IS NULL") if caller is not None else ("1",):
            # The index of severe lines is used only where the condition says the same.
            severe = f"level >= {WARNING} AND " if level >= WARNING and caller is None else ""
            where = f"{whose} AND {severe}level = ? AND seq > ? AND seq <= ?"
            args: list[Any] = [caller] if "?" in whose else []
            args += [level, mark, last]
            if not_task is not None:
                where += " AND task IS NOT ?"
                args.append(not_task)
            wheres.append((where, args))
    return _newest(connection, wheres, limit)


def _newest(
    connection: sqlite3.Connection, wheres: list[tuple[str, list[Any]]], limit: int
) -> tuple[list[Line], int]:
    """The newest `limit` lines for which one of the conditions holds, and how many there are."""
    found: list[Line] = []
    total = 0
    for where, args in wheres:
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM line WHERE {where} ORDER BY seq DESC LIMIT ?", [*args, limit]
        )
        lines = [_line(row) for row in rows]
        found += lines
        number = len(lines)
        if number == limit:
            (number,) = connection.execute(
                f"SELECT count(*) FROM line WHERE {where}", args
            ).fetchone()
        total += number
    found.sort(key=_seq_of)
    return found[-limit:] if limit else [], total


def gap(connection: sqlite3.Connection, wanted: Wanted, first: int, last: int) -> int:
    """How many lines of this kind that came after `first` retention has dropped, at most.

    Told once to who reads on from page to page: where the dropped ones end, up to `last`.
    """
    if wanted.task is not None or wanted.contains is not None or wanted.since is not None:
        return 0  # of dropped lines that is not known
    where, args = wanted.where()
    (found,) = connection.execute(
        f"SELECT total(lines) FROM thinned WHERE {where} AND last_seq > ? AND last_seq <= ?",
        [*args, first, last],
    ).fetchone()
    return int(found)


def _line(row: Sequence[Any]) -> Line:
    seq, time, level, caller, task, source, text, cut = row
    return Line(seq, time, level, caller, task, source, text, bool(cut))
