from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest
import trio

from engine.model import Kind, Status, TaskRecord
from engine.store import thinning
from engine.store.index import MOST_LINES, Index
from engine.store.lines import NewLine

LIMIT = 10.0  # seconds for any wait here


def record(order: int, *, caller: str = "a", status: Status = Status.QUEUED) -> TaskRecord:
    return TaskRecord(
        id=f"{order:06}",
        caller=caller,
        kind=Kind.BASH,
        title="x",
        order=order,
        created_at=order,
        status=status,
        sizes=(10,),
    )


@asynccontextmanager
async def serving(
    path: Path, *, has_past: bool = False, most_lines: int = MOST_LINES
) -> AsyncIterator[Index]:
    with (
        closing(Index(path, lambda _done: None, has_past=has_past, most_lines=most_lines)) as index,
        trio.fail_after(LIMIT),
    ):
        async with trio.open_nursery() as nursery:
            await nursery.start(index.serve)
            yield index
            nursery.cancel_scope.cancel()


def ids(index: Index, **filters: object) -> list[str]:
    wanted = {"caller": None, "states": None, "before": None, **filters}
    return [row.id for row in index.newest_first(**wanted)]  # type: ignore[arg-type]


async def test_each_change_gets_the_next_number_also_after_it_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    async with serving(path) as index:
        assert index.latest_seq == 0
        index.put(record(1))
        await index.flush()
        index.put(record(2))
        index.put(record(1, status=Status.RUNNING))
        await index.flush()
        assert index.latest_seq == 3
        changed = index.changed_after(1, caller=None, states=None)
        assert [(row.id, row.changed_seq) for row in changed] == [("000002", 2), ("000001", 3)]
    async with serving(path) as index:
        assert (index.latest_seq, index.latest_order) == (3, 2)
        index.put(record(1, status=Status.SUCCEEDED))
        await index.flush()
        assert index.changed_seq("000001") == 4
        assert index.find("000001") == record(1, status=Status.SUCCEEDED)


async def test_the_newest_record_is_found_before_it_is_committed(tmp_path: Path) -> None:
    with closing(Index(tmp_path / "index.db", lambda _done: None)) as index:
        index.put(record(1))
        assert index.find("000001") == record(1)
        assert index.changed_seq("000001") == 0
        index.forget(record(1))
        assert index.find("000001") is None


async def test_the_list_is_newest_first_by_caller_state_and_cursor(tmp_path: Path) -> None:
    async with serving(tmp_path / "index.db") as index:
        for order in range(1, 7):
            status = Status.SUCCEEDED if order < 4 else Status.RUNNING
            index.put(record(order, caller="ab"[order % 2], status=status))
        index.forget(record(2))
        await index.flush()
        assert ids(index) == ["000006", "000005", "000004", "000003", "000001"]
        assert ids(index, caller="a") == ["000006", "000004"]
        assert ids(index, states=["running"]) == ["000006", "000005", "000004"]
        assert ids(index, before=4) == ["000003", "000001"]
        assert [one.id for one in index.active()] == ["000004", "000005", "000006"]
        assert index.final_ids() == {"000001", "000002", "000003"}
        forgotten = index.changed_after(0, caller="a", states=["succeeded"])
        assert [(row.id, row.record) for row in forgotten] == [("000002", None)]
        assert index.totals.output_bytes == 20


async def test_rows_that_do_not_read_are_dropped_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    async with serving(path) as index:
        for order in range(1, 5):
            index.put(record(order, status=Status.SUCCEEDED))
        await index.flush()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for id_, body in (("000001", "text"), ("000002", b"{}"), ("000003", b"\xff")):
            connection.execute("UPDATE task SET body = ? WHERE id = ?", (body, id_))
    async with serving(path) as index:
        assert ids(index) == ["000004"]
        assert index.final_ids() == {"000004"}
        assert index.latest_seq == 4


async def test_a_new_index_of_a_home_with_a_past_gives_out_no_number_twice(
    tmp_path: Path,
) -> None:
    before = int(time.time() * 1_000_000)
    async with serving(tmp_path / "index.db", has_past=True) as index:
        assert before <= index.latest_seq < 1 << 53  # a number that JSON's readers all hold
        seq = index.latest_seq
    async with serving(tmp_path / "index.db", has_past=True) as index:
        assert index.latest_seq == seq


def test_a_record_of_an_older_engine_still_reads() -> None:
    old = b'{"id":"8f3kr9","caller":"ci","kind":"bash","title":"x","order":1,"created_at":5}'
    assert msgspec.json.decode(old, type=TaskRecord).status == "queued"


async def test_a_limit_of_lines_that_is_lower_now_is_reached_with_nothing_new_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thinning, "MOST_DROPPED", 300)
    async with serving(tmp_path / "index.db") as index:
        index.note([NewLine(5, 1, f"c{i % 7}", None, "output", "x") for i in range(2_000)])
        await index.flush()
        assert index.line_count == 2_000
    async with serving(tmp_path / "index.db", most_lines=1_000) as index:
        while index.line_count > 1_000:
            await index.flush()
        (rows,) = index.reader.execute("SELECT count(*) FROM line").fetchone()
        assert index.line_count == rows == 980
