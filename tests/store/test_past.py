"""Mirrors `engine/store/past.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from engine.model import Kind, Status, TaskRecord
from engine.store import past
from engine.store.index import Index
from engine.store.lines import NewLine
from engine.store.past import End

T = 1_700_000_000_000  # a moment, in ms


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Index]:
    index = Index(path, lambda _done: None)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(index.serve)
            yield index
            nursery.cancel_scope.cancel()
    finally:
        index.close()


def record(number: int, *, ended_at: int | None, status: Status = Status.FAILED) -> TaskRecord:
    return TaskRecord(
        id=f"x{number}",
        caller="ci",
        kind=Kind.BASH,
        title="x",
        order=number,
        created_at=T,
        started_at=T + 1,
        status=status if ended_at is not None else Status.RUNNING,
        ended_at=ended_at,
        duration_ms=None if ended_at is None else ended_at - T - 1,
    )


async def test_those_that_ended_from_a_time_on_are_found_with_what_is_counted(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with opened(tmp_path / "index.db") as index:
            forgotten = record(5, ended_at=T + 900)
            for each in (
                record(1, ended_at=T + 99),
                record(2, ended_at=T + 100),
                record(3, ended_at=T + 200, status=Status.SUCCEEDED),
                record(4, ended_at=None),
                forgotten,
            ):
                index.put(each)
            index.forget(forgotten)
            await index.flush()
            seq = index.latest_seq
            index.put(record(6, ended_at=T + 900))  # of the engine that asks
            await index.flush()

            found = await index.search(past.ends, T + 100, seq)

    assert sorted(found, key=lambda end: end.ended_at or 0) == [
        End(
            caller="ci",
            status=status,
            created_at=T,
            started_at=T + 1,
            ended_at=ended_at,
            duration_ms=ms,
        )
        for status, ended_at, ms in (
            (Status.FAILED, T + 100, 99),
            (Status.SUCCEEDED, T + 200, 199),
        )
    ]


async def test_lines_are_counted_by_step_and_level_from_a_time_on(tmp_path: Path) -> None:
    def line(time: int, level: int) -> NewLine:
        return NewLine(time, level, "ci", None, "output", "x")

    with trio.fail_after(10):
        async with opened(tmp_path / "index.db") as index:
            index.note([line(T - 1 - number, 1) for number in range(200_000, 0, -1000)])
            # Some that were read late stand among newer ones.
            for _ in range(100):
                index.note([line(T, 1), line(T - 30_000, 4)])
            index.note([line(T + 4_999, 1), line(T + 1, 4), line(T - 1, 4)])
            index.note([line(T + 5_000, 1)])
            await index.flush()
            seq = index.latest_seq
            index.note([line(T, 1)])
            await index.flush()

            found = await index.search(past.line_counts, T, seq, 5_000)
            none = await index.search(past.line_counts, T + 60_000, seq, 5_000)

    step = T // 5_000
    assert sorted(found) == [(step, 1, 101), (step, 4, 1), (step + 1, 1, 1)]
    assert none == []


async def test_of_an_empty_index_nothing_is_known(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with opened(tmp_path / "index.db") as index:
            assert await index.search(past.ends, 0, 0) == []
            assert await index.search(past.line_counts, 0, 0, 5_000) == []
