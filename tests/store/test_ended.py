from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from store.test_index import record, serving

from engine.model import Status, TaskRecord
from engine.store import ended
from engine.store.ended import Excess, Totals
from engine.store.index import Index


def finished(order: int, *, at: int | None, size: int = 0, dropped: int = 0) -> TaskRecord:
    ranges = (((5, 5 + dropped),),) if dropped else ()
    return msgspec.structs.replace(
        record(order, status=Status.SUCCEEDED), ended_at=at, sizes=(size,), dropped=ranges
    )


def oldest(index: Index, limit: int = 100, held: str = "", **excess: int) -> list[str]:
    wanted = {"tasks": 0, "output_bytes": 0, "before": 0, **excess}
    found = ended.oldest(index.reader, Excess(**wanted), lambda id_: id_ != held, limit)
    return [task.id for task in found]


async def test_the_totals_follow_every_change_and_are_the_same_counted_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    async with serving(path) as index:
        index.put(record(1))
        index.put(finished(2, at=5, size=100, dropped=30))
        await index.flush()
        assert index.totals == Totals(ended=1, output_bytes=70)

        index.put(finished(1, at=9, size=20))
        index.put(finished(2, at=5, size=110, dropped=30))
        await index.flush()
        assert index.totals == Totals(ended=2, output_bytes=100)

        index.forget(finished(2, at=5))
        await index.flush()
        index.forget(finished(2, at=5))
        await index.flush()
        assert index.totals == Totals(ended=1, output_bytes=20, forgotten=1)
    with closing(Index(path, lambda _done: None)) as index:
        assert index.totals == Totals(ended=1, output_bytes=20, forgotten=1)


async def test_a_file_without_the_table_of_ended_tasks_is_given_it(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    async with serving(path) as index:
        index.put(record(1, status=Status.RUNNING))
        index.put(finished(2, at=7, size=3))
        index.put(finished(3, at=None, size=4))
        index.forget(record(4))
        await index.flush()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE ended")
    with closing(Index(path, lambda _done: None)) as index:
        assert index.totals == Totals(ended=2, output_bytes=7, forgotten=1)
        assert ended.first_end(index.reader) == 3  # when it was accepted
        assert oldest(index, tasks=2) == ["000003", "000002"]


async def test_what_goes_is_the_first_to_have_ended_by_number_age_or_bytes(tmp_path: Path) -> None:
    async with serving(tmp_path / "index.db") as index:
        for order, at, size in ((1, 40, 5), (2, 10, 0), (3, 30, 7), (4, 20, 2), (5, 50, 1)):
            index.put(finished(order, at=at, size=size))
        await index.flush()
        assert oldest(index) == []
        assert oldest(index, tasks=2) == ["000002", "000004"]
        assert oldest(index, before=31) == ["000002", "000004", "000003"]
        assert oldest(index, output_bytes=3) == ["000004", "000003"]
        assert oldest(index, tasks=1, output_bytes=2) == ["000002", "000004"]
        assert oldest(index, output_bytes=99) == ["000004", "000003", "000001", "000005"]
        assert oldest(index, limit=2, before=99) == ["000002", "000004"]
        assert oldest(index, tasks=2, held="000002") == ["000004"]
        assert oldest(index, output_bytes=3, held="000003") == ["000004", "000001"]


async def test_of_forgotten_tasks_the_newest_rows_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended, "MOST_FORGOTTEN", 10)
    async with serving(tmp_path / "index.db") as index:
        for order in range(1, 12):
            index.forget(record(order))
            await index.flush()
        rows = index.changed_after(0, caller=None, states=None)
        assert [row.id for row in rows] == [f"{order:06}" for order in range(3, 12)]
        assert index.totals.forgotten == 9
