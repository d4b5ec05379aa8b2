from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from engine.store.opening import Plan, open_database
from engine.store.writer import BatchWriter, StoreUnavailable

SCHEMA = "CREATE TABLE IF NOT EXISTS item (name TEXT PRIMARY KEY, value INTEGER);"
PLAN = Plan(SCHEMA, 1, "FULL")
LIMIT = 10.0  # seconds for any wait here

Item = tuple[str, int]


def apply(connection: sqlite3.Connection, items: list[Item]) -> int:
    connection.executemany("INSERT OR REPLACE INTO item VALUES (?, ?)", items)
    return len(items)


def rows(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT name, value FROM item"))


async def test_what_was_put_is_committed_when_flush_returns(tmp_path: Path) -> None:
    path, told = tmp_path / "db", list[int]()
    with closing(open_database(path, PLAN).connection) as connection:
        writer = BatchWriter[Item](connection, apply, told.append)
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                await nursery.start(writer.serve)
                writer.put("a", ("a", 1))
                assert writer.find("a") == ("a", 1)
                await writer.flush()
                assert rows(path) == {"a": 1}
                assert told == [1]
                assert writer.find("a") is None
                nursery.cancel_scope.cancel()


async def test_of_items_under_one_key_the_newest_is_written(tmp_path: Path) -> None:
    path, told = tmp_path / "db", list[int]()
    with closing(open_database(path, PLAN).connection) as connection:
        writer = BatchWriter[Item](connection, apply, told.append)
        for value in range(1000):
            writer.put("a", ("a", value))
            writer.put("b", ("b", -value))
        writer.put("c", ("c", 1))
        writer.withdraw("c")
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                await nursery.start(writer.serve)
                await writer.flush()
                nursery.cancel_scope.cancel()
    assert rows(path) == {"a": 999, "b": -999}
    assert told == [2]


async def test_what_is_left_at_the_end_is_written_still(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with closing(open_database(path, PLAN).connection) as connection:
        writer = BatchWriter[Item](connection, apply, lambda _count: None)
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                await nursery.start(writer.serve)
                writer.put("a", ("a", 1))
                nursery.cancel_scope.cancel()
    assert rows(path) == {"a": 1}


async def test_a_database_that_refuses_is_told_and_written_as_soon_as_it_takes_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "db"
    with (
        closing(open_database(path, PLAN).connection) as connection,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        connection.execute("PRAGMA busy_timeout=10")
        writer = BatchWriter[Item](connection, apply, lambda _count: None)
        other.execute("BEGIN IMMEDIATE")
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                await nursery.start(writer.serve)
                writer.put("a", ("a", 1))
                with pytest.raises(StoreUnavailable, match="locked"):
                    await writer.flush()
                assert writer.trouble == "database is locked"
                assert writer.find("a") == ("a", 1)
                other.execute("ROLLBACK")
                while writer.trouble is not None:
                    try:
                        await writer.flush()
                    except StoreUnavailable:
                        continue
                assert rows(path) == {"a": 1}
                nursery.cancel_scope.cancel()
