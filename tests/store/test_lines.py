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
