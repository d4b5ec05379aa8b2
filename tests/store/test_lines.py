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


def test_the_noisiest_caller_loses_its_least_severe_lines_first(
    database: sqlite3.Connection,
) -> None:
    many = [new(str(i), caller="loud") for i in range(14_000)]
    some = [new("bad", caller="loud", level=ERROR)] * 2_000
    few = [new("quiet", caller="quiet")] * 9_000
    last = lines.insert(database, 0, few + some + many)
    assert last == 25_000
    lines.thin_out(database, 20_000)
    # 5,000 too many, and 2 percent of 20,000 more.
    rest = Wanted(floor=INFO, whose="loud")
    assert lines.count(database, Wanted(floor=INFO), 0, last) == 19_600
    assert lines.count(database, Wanted(floor=ERROR, whose="loud"), 0, last) == 2_000
    assert lines.count(database, Wanted(floor=INFO, whose="quiet"), 0, last) == 9_000
    oldest = lines.after(database, rest, 11_000, last, 1)
    assert texts(oldest) == ["5400"]
    # Told once, where they would have stood; of other levels and callers there is no gap.
    assert lines.gap(database, rest, 0, oldest[0].seq) == 5_400
    assert lines.gap(database, rest, oldest[0].seq, last) == 0
    assert lines.gap(database, rest, 0, 12_000) == 0  # a page that ends before
    assert lines.gap(database, Wanted(floor=ERROR), 0, last) == 0
    assert lines.gap(database, Wanted(floor=INFO, whose="quiet"), 0, last) == 0


def test_each_caller_keeps_ten_thousand_lines(database: sqlite3.Connection) -> None:
    for caller in ("a", "b", None):
        lines.insert(
            database,
            {"a": 0, "b": 11_000, None: 22_000}[caller],
            [new("x", caller=caller)] * 11_000,
        )
    lines.thin_out(database, 10_000)
    kept = database.execute("SELECT caller, count(*) FROM line GROUP BY caller").fetchall()
    assert sorted(kept, key=str) == [("a", 10_000), ("b", 10_000), (None, 10_000)]
    assert database.execute("SELECT total(lines) FROM volume").fetchone() == (30_000.0,)


def test_gaps_beyond_a_number_become_one_and_none_is_forgotten(
    database: sqlite3.Connection,
) -> None:
    last = 0
    for _ in range(100):
        last = lines.insert(database, last, [new("x")] * 600)
        lines.thin_out(database, 10_000)
    (rows,) = database.execute("SELECT count(*) FROM thinned").fetchone()
    assert rows == 64
    wanted = Wanted(floor=INFO)
    kept = lines.count(database, wanted, 0, last)
    assert kept + lines.gap(database, wanted, 0, last) == last == 60_000
