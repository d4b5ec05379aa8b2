"""Mirrors `engine/server/methods_logs.py`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from engine.protocol.params import ReadLogsParams
from engine.server import methods_logs
from engine.store import lines
from engine.store.lines import NewLine, Wanted

BIG = 1 << 20  # bytes of a page, enough for any here


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(lines.SCHEMA)
        yield connection


def add(database: sqlite3.Connection, seq: int, *texts: str, caller: str = "ci") -> int:
    return lines.insert(database, seq, [NewLine(5, 1, caller, None, "output", t) for t in texts])


def read(
    database: sqlite3.Connection, start: int, head: int, *, limit_bytes: int = BIG, **params: Any
) -> Any:
    wanted = Wanted(floor=1, caller="ci")
    asked = ReadLogsParams(**params)
    return methods_logs._read(database, wanted, asked, start, head, limit_bytes)


def texts(page: Any) -> list[str]:
    return [line.text for line in page.lines]


def test_no_page_skips_or_repeats_a_line_that_comes_while_it_is_read(
    database: sqlite3.Connection,
) -> None:
    found: list[str] = []
    head = cursor = 0
    for number in range(20):
        committed = add(database, head + 1, f"{number}a", f"{number}b", f"{number}c")
        # The last of them is committed, and its commit is not known yet.
        page = read(database, cursor, committed - 1, limit=2 if number % 2 else 9)
        assert page.next_after <= committed - 1
        found, cursor, head = found + texts(page), page.next_after, committed
    while (page := read(database, cursor, head, limit=7)).lines:
        found, cursor = found + texts(page), page.next_after
    assert found == [f"{number}{letter}" for number in range(20) for letter in "abc"]
    assert cursor == head


def test_what_the_scope_hid_is_counted_in_the_window_of_the_page(
    database: sqlite3.Connection,
) -> None:
    head = add(database, 0, "1", "2")
    head = add(database, head, "x", "x", "x", caller="other")
    head = add(database, head, "3", "4")
    first = read(database, 0, head, limit=3)
    assert (texts(first), first.left_out, first.has_more) == (["1", "2", "3"], 3, True)
    rest = read(database, first.next_after, head, limit=3)
    assert (texts(rest), rest.left_out, rest.has_more) == (["4"], 0, False)
    back = read(database, 0, head, limit=2, before_seq=7)
    assert (texts(back), back.left_out, back.has_more) == (["2", "3"], 3, True)
    oldest = read(database, 0, head, limit=2, before_seq=back.lines[0].seq)
    assert (texts(oldest), oldest.has_more) == (["1"], False)


def test_reading_back_from_beyond_the_head_names_no_number_that_is_to_come(
    database: sqlite3.Connection,
) -> None:
    head = add(database, 0, "1", "2", "not told yet") - 1
    page = read(database, 0, head, before_seq=1 << 50)
    assert (texts(page), page.next_after) == (["1", "2"], 2)
    assert read(database, 0, 0, before_seq=1 << 50).next_after == 0


def test_a_page_ends_where_its_bytes_do_and_has_one_line_at_least(
    database: sqlite3.Connection,
) -> None:
    long = "\U0001f600" * 4096  # 16 KiB
    head = add(database, 0, long, long, long)
    page = read(database, 0, head, limit_bytes=40_000)
    assert (len(page.lines), page.has_more, page.next_after) == (2, True, 2)
    assert len(read(database, 0, head, limit_bytes=1).lines) == 1
    back = read(database, 0, head, limit_bytes=40_000, before_seq=4)
    assert ([line.seq for line in back.lines], back.has_more) == ([2, 3], True)
