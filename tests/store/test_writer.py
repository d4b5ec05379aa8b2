from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing

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


class _Threads:
    """Who commits: applies items, and notes whether in the thread of the test."""

    def __init__(self) -> None:
        self.is_own: list[bool] = []

    def apply(self, connection: sqlite3.Connection, items: list[Item]) -> int:
        self.is_own.append(threading.current_thread() is threading.main_thread())
        return apply(connection, items)


async def _write_each(path: Path, count: int, *, hurries: bool, most: int = 2) -> list[bool]:
    """Write `count` items one by one, then three at a time; who did each."""
    threads = _Threads()
    with closing(open_database(path, PLAN).connection) as connection:
        writer = BatchWriter[Item](
            connection, threads.apply, lambda _: None, is_little=lambda items: len(items) <= most
        )
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                await nursery.start(writer.serve)
                for value in range(count):
                    writer.put("a", ("a", value))
                    if hurries:
                        await writer.flush()
                    await trio.testing.wait_all_tasks_blocked()
                    while rows(path) != {"a": value}:
                        await trio.testing.wait_all_tasks_blocked(0.001)
                for name in "bcd":
                    writer.put(name, (name, 1))
                await writer.flush()
                nursery.cancel_scope.cancel()
    assert rows(path) == {"a": count - 1, "b": 1, "c": 1, "d": 1}
    return threads.is_own


async def test_a_little_that_is_waited_for_is_written_without_the_thread_but_not_for_ever(
    tmp_path: Path,
) -> None:
    who = await _write_each(tmp_path / "db", 70, hurries=True)
    assert who == [True] * 64 + [False] + [True] * 5 + [False]


async def test_what_nobody_waits_for_the_thread_writes(tmp_path: Path) -> None:
    assert await _write_each(tmp_path / "db", 3, hurries=False) == [False] * 4


async def test_a_lock_of_somebody_else_is_waited_for_by_the_thread(tmp_path: Path) -> None:
    path, threads = tmp_path / "db", _Threads()
    with (
        closing(open_database(path, PLAN).connection) as connection,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        writer = BatchWriter[Item](
            connection, threads.apply, lambda _: None, is_little=lambda _items: True
        )
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                await nursery.start(writer.serve)
                writer.put("a", ("a", 1))
                await writer.flush()
                other.execute("BEGIN IMMEDIATE")
                writer.put("a", ("a", 2))
                nursery.start_soon(writer.flush)
                began = trio.current_time()
                await trio.sleep(0.2)
                assert trio.current_time() - began < 1  # nobody was held up
                other.execute("ROLLBACK")
                await writer.flush()
                nursery.cancel_scope.cancel()
    assert rows(path) == {"a": 2}
    assert threads.is_own == [True, False]
