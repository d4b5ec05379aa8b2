"""Mirrors `engine/store/reading.py`."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from engine.errors import to_error_data
from engine.store.reading import ReadHealth, StoreUnreadable, open_reader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.db"
    run(path, "CREATE TABLE one (a)", "INSERT INTO one VALUES (1), (2)", "CREATE TABLE two (a)")
    return path


def run(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


def test_what_cannot_be_read_is_told_until_it_can_be_again(path: Path) -> None:
    health = ReadHealth(path)
    with contextlib.closing(open_reader(path, health)) as reader:
        assert reader.execute("SELECT a FROM one").fetchall() == [(1,), (2,)]
        assert health.trouble is None
        run(path, "DROP TABLE one")
        with pytest.raises(StoreUnreadable, match="the store cannot be read: no such table: one"):
            reader.execute("SELECT a FROM one")
        assert reader.execute("SELECT a FROM two").fetchone() is None
        assert health.trouble == "no such table: one"  # that another question is answered is none
        run(path, "CREATE TABLE one (a)")
        assert list(reader.execute("SELECT a FROM one")) == []
        assert health.trouble is None


def test_a_client_is_told_that_it_is_the_store(path: Path) -> None:
    health = ReadHealth(path)
    with (
        contextlib.closing(open_reader(path, health)) as reader,
        pytest.raises(sqlite3.Error) as caught,
    ):
        reader.execute("SELECT a FROM nowhere")
    error = to_error_data(caught.value)
    assert (error.code, error.data) == (-32007, {"kind": "overloaded", "limit": "store"})


def test_a_failure_in_the_middle_of_the_rows_is_one_too(path: Path) -> None:
    health = ReadHealth(path)
    query = "SELECT abs(a) FROM (SELECT 1 AS a UNION ALL SELECT -9223372036854775808)"
    with contextlib.closing(open_reader(path, health)) as reader:
        with pytest.raises(StoreUnreadable, match="integer overflow"):
            list(reader.execute(query))
        with pytest.raises(StoreUnreadable, match="integer overflow"):
            reader.execute(query).fetchall()
    assert health.trouble == "integer overflow"


def test_a_reader_takes_no_writes(path: Path) -> None:
    with (
        contextlib.closing(open_reader(path, ReadHealth(path))) as reader,
        pytest.raises(StoreUnreadable, match="readonly"),
    ):
        reader.execute("DELETE FROM one")
