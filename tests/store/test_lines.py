"""Mirrors `engine/store/lines.py`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from engine.store import lines
from engine.store.lines import NewLine, Wanted

INFO, WARNING, ERROR = 1, 3, 4


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(lines.SCHEMA)
        lines.prepare(connection)
        yield connection


def new(
    text: str,
    *,
    level: int = INFO,
    caller: str | None = "ci",
    task: str | None = None,
    time: int = 5,
) -> NewLine:
    return NewLine(time, level, caller, task, "output", text)


def texts(found: list[lines.Line]) -> list[str]:
    return [line.text for line in found]


def test_lines_are_found_by_floor_scope_caller_task_time_and_text(
    database: sqlite3.Connection,
) -> None:
    last = lines.insert(
        database,
        10,
        [
            new("own"),
            new("Äpfel und OBST", level=ERROR, task="t1"),
            new("theirs", caller="other", level=WARNING, time=9),
            new("engine", caller=None),
        ],
    )
    assert last == 14

    def page(**named: object) -> list[str]:
        wanted = Wanted(**{"floor": INFO, **named})  # type: ignore[arg-type]
        found = lines.after(database, wanted, 10, 14, 100)
        assert texts(lines.before(database, wanted, 15, 100)) == texts(found)
        assert lines.count(database, wanted, 10, 14) == len(found)
        return texts(found)

    assert page() == ["own", "Äpfel und OBST", "theirs", "engine"]
    assert page(floor=WARNING) == ["Äpfel und OBST", "theirs"]
    assert page(caller="ci") == ["own", "Äpfel und OBST", "engine"]
    assert page(whose="other") == ["theirs"]
    assert page(task="t1") == page(contains="äPFEL") == page(contains="obst") == ["Äpfel und OBST"]
    assert page(since=9) == ["theirs"]
    assert page(contains="%") == []


def test_a_page_of_a_task_is_in_the_order_of_its_lines(database: sqlite3.Connection) -> None:
    levels = [ERROR, INFO, WARNING, INFO, ERROR]
    lines.insert(database, 0, [new(str(i), level=lvl, task="t") for i, lvl in enumerate(levels)])
    wanted = Wanted(floor=INFO, task="t")
    assert texts(lines.after(database, wanted, 1, 5, 3)) == ["1", "2", "3"]
    assert texts(lines.before(database, wanted, 5, 3)) == ["1", "2", "3"]
    newest, total = lines.of_task(database, "t", [(INFO, 0), (ERROR, 1)], 5, 2)
    assert (texts(newest), total) == (["3", "4"], 3)


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
def test_lines_are_stored_in_their_order_however_many_come_at_once(
    database: sqlite3.Connection, count: int
) -> None:
    first = [
        NewLine(5, (INFO, WARNING, ERROR)[i % 3], "ci", "a1", "stdout", f"out {i} ä", i % 7 == 0)
        for i in range(count)
    ]
    second = [NewLine(6, INFO, None, None, "engine", f"word {i}") for i in range(count)]
    assert lines.insert(database, 40, first + second) == 40 + 2 * count
    rows = database.execute("SELECT * FROM line ORDER BY seq").fetchall()
    assert rows[:count] == [
        (41 + i, 5, (1, 3, 4)[i % 3], "ci", "a1", "stdout", f"out {i} ä", int(i % 7 == 0))
        for i in range(count)
    ]
    assert rows[count:] == [
        (41 + count + i, 6, 1, None, None, "engine", f"word {i}", 0) for i in range(count)
    ]


def test_what_is_stored_is_counted_by_caller_level_and_task(database: sqlite3.Connection) -> None:
    mixed = [new("x", level=level, task="a1") for level in (1, 3, 4, 7, 1, 0)] * 50
    mixed += [NewLine(6, ERROR, "ci", "a1", "engine", "task ta1 failed"), new("y", caller=None)]
    piece = lines.Piece(task="a1", lines=mixed, state=b"s", is_finished=False, read_bytes=9)
    assert lines.insert_piece(database, 0, piece) == 302
    assert lines.insert_piece(database, 302, piece) == 604
    volume = database.execute("SELECT * FROM volume ORDER BY caller, level").fetchall()
    assert volume == [
        ("", 1, 2),
        ("ci", 0, 100),
        ("ci", 1, 200),
        ("ci", 3, 100),
        ("ci", 4, 102),
        ("ci", 7, 100),
    ]
    # The engine's own word about its end is none of the task's.
    assert database.execute("SELECT * FROM tally").fetchall() == [("a1", 200, 100)]
    assert database.execute("SELECT * FROM pump").fetchall() == [("a1", b"s")]
