from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from engine.store.opening import AsideFiles, NewerSchema, Plan, open_database

SCHEMA = "CREATE TABLE IF NOT EXISTS item (name TEXT PRIMARY KEY, value INTEGER);"
PLAN = Plan(SCHEMA, 1, "FULL")


def fill(path: Path, count: int) -> None:
    """Make a database with so many rows, and close it."""
    with closing(open_database(path, PLAN).connection) as connection:
        items = [(f"name {i}", i) for i in range(count)]
        connection.executemany("INSERT INTO item VALUES (?, ?)", items)


def count(path: Path) -> tuple[int, bool]:
    """How many rows are found, and whether some may be lost."""
    connection, has_lost = open_database(path, PLAN)
    with closing(connection):
        return connection.execute("SELECT count(*) FROM item").fetchone()[0], has_lost


def test_a_new_one_may_stand_for_one_that_was_lost_and_a_known_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "db"
    assert count(path) == (0, True)
    fill(path, 3)
    assert count(path) == (3, False)
    path.write_bytes(b"")
    assert count(path) == (0, True)


@pytest.mark.parametrize("damage", [b"garbage " * 2000, b"SQLite format 3\0" + b"\xff" * 8000])
def test_a_damaged_file_is_set_aside_whole_and_an_empty_one_takes_its_place(
    tmp_path: Path, damage: bytes
) -> None:
    path = tmp_path / "db"
    path.write_bytes(damage)
    assert count(path) == (0, True)
    (aside,) = tmp_path.glob("db.damaged-*")
    assert aside.read_bytes() == damage


def test_a_page_that_is_damaged_amid_the_file_is_found_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "db"
    fill(path, 5000)
    data = bytearray(path.read_bytes())
    data[8192 : 8192 + 4096] = b"\xaa" * 4096
    path.write_bytes(data)
    assert count(path) == (0, True)
    assert len(list(tmp_path.glob("db.damaged-*"))) == 1


@pytest.mark.parametrize("what", ["folder", "pipe", "link", "other tables"])
def test_what_is_no_database_of_ours_is_set_aside_and_not_written(
    tmp_path: Path, what: str
) -> None:
    path, other = tmp_path / "db", tmp_path / "other"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE item (name TEXT)")
    before = other.read_bytes()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(other)
    else:
        path.write_bytes(before)
    assert count(path) == (0, True)
    assert count(path) == (0, False)
    assert other.read_bytes() == before
    assert len(list(tmp_path.glob("db.damaged-*"))) == 1


def test_a_log_of_changes_that_is_none_is_set_aside_alone(tmp_path: Path) -> None:
    path, log = tmp_path / "db", tmp_path / "db-wal"
    fill(path, 3)
    log.write_bytes(b"garbage " * 100)
    assert count(path) == (3, True)
    (aside,) = tmp_path.glob("db-wal.damaged-*")
    assert aside.read_bytes() == b"garbage " * 100


def test_a_newer_one_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with closing(open_database(path, Plan(SCHEMA, 2, "FULL")).connection):
        pass
    before = path.read_bytes()
    with pytest.raises(NewerSchema, match=r"db is of a newer engine \(version 2, .* knows 1\)"):
        open_database(path, PLAN)
    assert path.read_bytes() == before


def test_one_that_is_as_it_should_be_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "db"
    fill(path, 3)
    before = path.read_bytes()
    with closing(open_database(path, PLAN).connection):
        assert (tmp_path / "db-wal").stat().st_size == 0
    assert path.read_bytes() == before


def test_what_was_set_aside_is_told_until_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.write_bytes(b"garbage " * 2000)
    count(path)
    files = AsideFiles(path)
    (aside,) = tmp_path.glob("db.damaged-*")
    assert files() == [aside]
    aside.unlink()
    assert files() == []
