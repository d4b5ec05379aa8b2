from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from tasks.building import Built, FakeExecutor, ask, built

from engine.errors import ExpiredHandle
from engine.model import Status, TaskRecord, now_ms
from engine.tasks import retention
from engine.tasks.recovery import recover
from engine.tasks.task import Task

DAY = 86_400_000


async def end(engine: Built, *, ended_at: int, size: int = 0, dropped: int = 0) -> Task:
    """A task that ended at that time (ms) and left so much output, `dropped` bytes not on disk."""
    task = await engine.supervisor.accept(ask())
    await engine.supervisor.wait_inline(task, 0)
    await engine.canceller.cancel(task, 0, by="ci")
    ranges = (((0, dropped),),) if dropped else ((),)
    task.record = changed(task.record, ended_at=ended_at, sizes=(size,), dropped=ranges)
    engine.index.put(task.record)
    await engine.index.flush()
    return task


def changed(record: TaskRecord, **facts: object) -> TaskRecord:
    return msgspec.structs.replace(record, **facts)


def left(engine: Built) -> set[str]:
    """The ids of the tasks that have a folder."""
    return set(os.listdir(engine.home.tasks)) - {engine.home.ahead.name}


def serve(engine: Built) -> None:
    """Have what is over the limits dropped from now on."""
    engine.nursery.start_soon(engine.retention.serve)


async def until(engine: Built, *tasks: Task) -> None:
    """Wait until these alone are left; a thread removes the others."""
    wanted = {task.id for task in tasks}
    while left(engine) != wanted:
        await trio.testing.wait_all_tasks_blocked(0.01)
    await trio.testing.wait_all_tasks_blocked(0.1)  # what goes beyond that is gone by now
    assert left(engine) == wanted


async def test_over_the_number_the_tasks_that_ended_first_go_and_their_handles_have_expired(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor(), ended_tasks=2, retention_days=40_000) as engine:
        late, first, second, last = [await end(engine, ended_at=at) for at in (70, 10, 20, 80)]
        serve(engine)
        await until(engine, late, last)
        for task, ended_at in ((first, ".010Z"), (second, ".020Z")):
            for handle in (task.record.task_id, task.record.kickoff_id):
                with pytest.raises(ExpiredHandle) as expired:
                    engine.catalog.find(handle)
                assert expired.value.data() == {
                    "kind": "expired_handle",
                    "handle": handle,
                    "endedAt": "1970-01-01T00:00:00" + ended_at,
                    "status": "cancelled",
                }
        assert engine.index.totals.ended == 2
        changes = list(engine.index.changed_after(0, caller=None, states=["forgotten"]))
        assert {row.id for row in changes} == {first.id, second.id}


async def test_each_end_over_the_number_has_the_next_one_go_without_being_asked(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor(), ended_tasks=1, retention_days=40_000) as engine:
        serve(engine)
        for at in (1, 2, 3):
            task = await end(engine, ended_at=at)
            await until(engine, task)


async def test_a_large_number_is_undercut_by_a_hundredth_so_that_not_each_end_costs_a_write(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor(), ended_tasks=200, retention_days=40_000) as engine:
        tasks = [await end(engine, ended_at=at) for at in range(201)]
        serve(engine)
        await until(engine, *tasks[3:])


async def test_over_the_bytes_those_go_that_have_some_on_disk(tmp_path: Path) -> None:
    mib = 1 << 20
    async with built(
        tmp_path, FakeExecutor(), total_output_cap_bytes=10 * mib, retention_days=40_000
    ) as engine:
        silent = await end(engine, ended_at=1)
        holes = await end(engine, ended_at=2, size=90 * mib, dropped=90 * mib)
        first = await end(engine, ended_at=3, size=4 * mib)
        second = await end(engine, ended_at=4, size=6 * mib)
        assert engine.retention.output_bytes == 10 * mib
        serve(engine)
        await until(engine, silent, holes, first, second)

        third = await end(engine, ended_at=5, size=3 * mib)
        await until(engine, silent, holes, second, third)
        assert engine.retention.output_bytes == 9 * mib

        fourth = await end(engine, ended_at=6, size=mib + 1)
        await until(engine, silent, holes, third, fourth)


async def test_of_the_bytes_a_hundredth_more_is_freed_than_must_be(tmp_path: Path) -> None:
    mib = 1 << 20
    async with built(
        tmp_path, FakeExecutor(), total_output_cap_bytes=100 * mib, retention_days=40_000
    ) as engine:
        tasks = [await end(engine, ended_at=at, size=mib) for at in range(101)]
        serve(engine)
        await until(engine, *tasks[2:])
        await engine.index.flush()
        assert engine.retention.output_bytes == 99 * mib


async def test_what_runs_counts_as_it_grows_and_is_never_dropped(tmp_path: Path) -> None:
    mib = 1 << 20
    async with built(
        tmp_path, FakeExecutor(), total_output_cap_bytes=10 * mib, retention_days=40_000
    ) as engine:
        old = await end(engine, ended_at=1, size=4 * mib)
        running = await engine.supervisor.accept(ask())
        await engine.supervisor.wait_inline(running, 0)
        serve(engine)
        for size in (5, 6):
            engine.supervisor._on_grew(running, {"sizes": [size * mib], "dropped": [[]]})
            await until(engine, old, running)
        engine.supervisor._on_grew(running, {"sizes": [7 * mib], "dropped": [[]]})
        await until(engine, running)
        assert engine.retention.output_bytes == 7 * mib

        engine.supervisor._on_grew(running, {"sizes": [90 * mib], "dropped": [[[0, 70 * mib]]]})
        await until(engine, running)
        assert engine.retention.output_bytes == 20 * mib
        await engine.canceller.cancel(running, 0, by="ci")
        assert engine.retention._running == {}


async def test_a_task_goes_when_it_comes_of_age_and_not_because_the_clock_is_set_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = now_ms()
    async with built(tmp_path, FakeExecutor(), retention_days=1.0) as engine:
        old = await end(engine, ended_at=now - DAY - 1)
        young = await end(engine, ended_at=now - DAY + 60_000)
        monkeypatch.setattr(retention, "now_ms", lambda: now + 100 * DAY)
        serve(engine)
        await until(engine, young)
        assert old.id not in left(engine)

        boot = retention._boot_ms()
        monkeypatch.setattr(retention, "_boot_ms", lambda: boot + 61_000)
        assert 60 <= engine.retention._secs_to_look(now) <= 121
        found = await engine.retention._find(engine.retention._clock())
        assert [task.id for task in found] == [young.id]


async def test_one_that_comes_of_age_while_nothing_happens_goes_by_itself(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor(), retention_days=0.5 / 86_400) as engine:
        serve(engine)
        task = await end(engine, ended_at=now_ms())
        await until(engine)
        with pytest.raises(ExpiredHandle):
            engine.catalog.find(task.record.task_id)


async def test_what_a_call_is_about_or_processes_are_left_of_stays_until_that_is_over(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor(), ended_tasks=1, retention_days=40_000) as engine:
        used, haunted, last = [await end(engine, ended_at=at) for at in (1, 2, 3)]
        engine.catalog.add(haunted)
        with engine.catalog.using(used.record.task_id), engine.catalog.using("t" + used.id):
            serve(engine)
            await until(engine, used, haunted, last)
            assert engine.catalog.find(used.record.task_id).record == used.record
            again = await end(engine, ended_at=4)
            await until(engine, used, haunted, again)
        await until(engine, haunted, again)
        engine.supervisor.let_go(haunted)
        await until(engine, again)


async def test_of_many_that_one_call_is_about_each_stays_until_it_is_over(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor(), ended_tasks=1, retention_days=40_000) as engine:
        tasks = [await end(engine, ended_at=at) for at in (1, 2, 3)]
        handles = [task.record.task_id for task in tasks]
        with engine.catalog.using(*handles, handles[0]):
            serve(engine)
            again = await end(engine, ended_at=4)
            await until(engine, *tasks, again)
        assert not engine.catalog.in_use
        await until(engine, again)


async def test_a_key_of_a_dropped_task_says_so_and_starts_nothing(tmp_path: Path) -> None:
    executor = FakeExecutor()
    async with built(tmp_path, executor, ended_tasks=1, retention_days=40_000) as engine:
        task = await engine.supervisor.accept(ask(key="K", digest="d"))
        await engine.supervisor.wait_inline(task, 0)
        await engine.canceller.cancel(task, 0, by="ci")
        last = await end(engine, ended_at=now_ms() + DAY)
        launched = len(executor.launched)
        serve(engine)
        await until(engine, last)
        with pytest.raises(ExpiredHandle):
            await engine.supervisor.accept(ask(key="K", digest="d"))
        assert len(executor.launched) == launched


async def test_a_handle_has_expired_from_the_moment_on_at_which_its_task_is_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with built(tmp_path, FakeExecutor(), ended_tasks=1, retention_days=40_000) as engine:
        first, _last = [await end(engine, ended_at=at) for at in (1, 2)]

        is_called = trio.Event()

        async def hang(*_tombs: object) -> None:
            is_called.set()
            await trio.sleep_forever()

        monkeypatch.setattr(engine.ledger, "add", hang)
        serve(engine)
        await is_called.wait()
        with pytest.raises(ExpiredHandle):
            engine.catalog.find(first.record.task_id)


async def test_nothing_goes_while_its_tomb_cannot_be_written_and_all_of_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "RETRY_SECS", 0.05)
    async with built(tmp_path, FakeExecutor(), ended_tasks=1, retention_days=40_000) as engine:
        first, last = [await end(engine, ended_at=at) for at in (1, 2)]
        with closing(sqlite3.connect(engine.home.record, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            engine.nursery.start_soon(engine.retention.serve)
            while engine.ledger.trouble is None:
                await trio.testing.wait_all_tasks_blocked(0.05)
            assert left(engine) == {first.id, last.id}
            other.execute("ROLLBACK")
        await until(engine, last)


@pytest.mark.parametrize("step", ["row", "files"])
async def test_an_engine_killed_in_the_middle_of_it_leaves_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    is_called = trio.Event()

    async def hang(*_args: object, **_named: object) -> None:
        is_called.set()
        await trio.sleep_forever()

    async with built(tmp_path, FakeExecutor(), ended_tasks=1, retention_days=40_000) as engine:
        first, last = [await end(engine, ended_at=at) for at in (1, 2)]
        monkeypatch.setattr(retention, "in_thread", hang)
        if step == "row":
            monkeypatch.setattr(engine.index, "forget", lambda _task: None)
        serve(engine)
        await is_called.wait()
        await engine.index.flush()
        assert left(engine) == {first.id, last.id}
    monkeypatch.undo()
    async with built(tmp_path, FakeExecutor(), ended_tasks=1, retention_days=40_000) as engine:
        assert engine.index.totals.ended == (2 if step == "row" else 1)
        await recover(engine.home, engine.index, engine.ledger, engine.supervisor, engine.nursery)
        await engine.index.flush()
        assert left(engine) == {last.id}
        assert engine.index.totals.ended == 1
        with pytest.raises(ExpiredHandle):
            engine.catalog.find(first.record.task_id)
        assert engine.catalog.find(last.record.task_id).record.status is Status.CANCELLED


async def test_many_over_the_limit_go_in_batches_with_a_turn_for_others_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 10)
    monkeypatch.setattr(retention, "FILES_BATCH", 3)
    async with built(tmp_path, FakeExecutor(), ended_tasks=5, retention_days=40_000) as engine:
        tasks = [await end(engine, ended_at=at) for at in range(30)]
        writes: list[int] = []
        add = engine.ledger.add

        async def counted(*facts: object) -> None:
            writes.append(len(facts))
            await add(*facts)  # type: ignore[arg-type]

        monkeypatch.setattr(engine.ledger, "add", counted)
        serve(engine)
        await until(engine, *tasks[25:])
        assert writes == [10, 10, 5]
