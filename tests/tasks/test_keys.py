"""Mirrors `engine/tasks/keys.py`."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing
from tasks.building import Built, FakeExecutor, ask, built

from engine.errors import ExpiredHandle, Overloaded, ShuttingDown
from engine.store.ledger import Key
from engine.tasks import keys
from engine.tasks.keys import keys_in
from engine.tasks.recovery import recover

LIMIT = 10.0  # seconds for any wait in a test


class Reader:
    """Reads keys as the real one does, so many times and then only when it may."""

    def __init__(self) -> None:
        self.free = 0
        self.stopped, self.may_go = threading.Event(), threading.Event()

    def __call__(self, tasks: Path, names: list[str]) -> list[Key]:
        if not self.free:
            self.stopped.set()
            assert self.may_go.wait(LIMIT)
        self.free -= self.free > 0
        return keys_in(tasks, names)

    async def wait_stopped(self) -> None:
        assert await trio.to_thread.run_sync(self.stopped.wait, LIMIT)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    reader = Reader()
    monkeypatch.setattr(keys, "keys_in", reader)
    yield reader
    reader.may_go.set()


async def leave_ended(path: Path, *names: str | None) -> dict[str | None, str]:
    """Ended tasks of an earlier engine, asked under these keys, and no record of it; key -> id."""
    ids = {}
    async with built(path, FakeExecutor()) as engine:
        for name in names:
            task = await engine.supervisor.accept(ask(key=name, digest=name and "d"))
            await engine.supervisor.wait_inline(task, 0)
            await engine.canceller.cancel(task, 0, by="ci")
            ids[name] = task.id
        await engine.index.flush()
    lose_ledger(path)
    return ids


def lose_ledger(home: Path) -> None:
    for file in home.glob("record.*"):
        file.unlink()


async def start(engine: Built) -> None:
    await recover(engine.home, engine.index, engine.ledger, engine.supervisor, engine.nursery)


async def test_calls_without_a_key_are_answered_while_one_with_a_key_waits_for_all_keys(
    tmp_path: Path, reader: Reader
) -> None:
    ids = await leave_ended(tmp_path, "K")
    executor = FakeExecutor()
    async with built(tmp_path, executor) as engine:
        await start(engine)
        await reader.wait_stopped()
        plain = await engine.supervisor.accept(ask())
        assert plain.id not in ids.values()

        answers: dict[str, str] = {}

        async def repeat(key: str) -> None:
            answers[key] = (await engine.supervisor.accept(ask(key=key, digest="d"))).id

        async with trio.open_nursery() as nursery:
            for key in ("K", "new"):
                nursery.start_soon(repeat, key)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert answers == {}
            reader.may_go.set()
        assert answers["K"] == ids["K"]
        assert answers["new"] not in {plain.id, ids["K"]}
        assert engine.ledger.is_complete


async def test_a_key_that_has_been_read_is_answered_before_all_are(
    tmp_path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "BATCH", 1)
    reader.free = 2  # the folder of those that are made ahead may come first
    ids = await leave_ended(tmp_path, "a", "b", "c")
    async with built(tmp_path, FakeExecutor()) as engine:
        await start(engine)
        await reader.wait_stopped()
        known = [name for name in ids if engine.ledger.find_key("ci", str(name))]
        assert known
        task = await engine.supervisor.accept(ask(key=known[0], digest="d"))
        assert task.id == ids[known[0]]
        assert not engine.ledger.is_complete
        reader.may_go.set()


async def test_an_engine_killed_in_the_middle_of_it_leaves_the_rest_to_the_next(
    tmp_path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "BATCH", 2)
    reader.free = 2
    ids = await leave_ended(tmp_path, "a", "b", "c", "d", None, "e")
    async with built(tmp_path, FakeExecutor()) as engine:
        await start(engine)
        await reader.wait_stopped()
        engine.nursery.cancel_scope.cancel()
        reader.may_go.set()
    with closing(sqlite3.connect(tmp_path / "record.db")) as found:
        (given,) = found.execute("SELECT count(*) FROM key").fetchone()
        assert 0 < given < 5
        assert found.execute("SELECT * FROM fact").fetchall() == []
    async with built(tmp_path, FakeExecutor()) as engine:
        await start(engine)
        del ids[None]
        for name, id_ in ids.items():
            assert (await engine.supervisor.accept(ask(key=name, digest="d"))).id == id_


async def test_a_store_that_takes_no_keys_refuses_calls_with_one_until_it_has_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "RETRY_SECS", 0.05)
    monkeypatch.setattr(keys, "KEYS_SECS", 0.05)
    ids = await leave_ended(tmp_path, "K")
    async with built(tmp_path, FakeExecutor()) as engine:
        with closing(sqlite3.connect(engine.home.record, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await start(engine)
            with pytest.raises(Overloaded) as refused:
                await engine.supervisor.accept(ask(key="K", digest="d"))
            assert refused.value.limit == "store"
            assert "keys of earlier calls are still being read" in str(refused.value)
            while engine.ledger.trouble is None:
                await trio.testing.wait_all_tasks_blocked(0.05)
            other.execute("ROLLBACK")
        await engine.ledger.wait_complete()
        assert (await engine.supervisor.accept(ask(key="K", digest="d"))).id == ids["K"]


async def test_the_key_of_a_task_that_is_forgotten_before_it_was_read_is_not_free_again(
    tmp_path: Path, reader: Reader
) -> None:
    ids = await leave_ended(tmp_path, "K")
    executor = FakeExecutor()
    async with built(tmp_path, executor) as engine:
        await start(engine)
        await reader.wait_stopped()
        await engine.supervisor.forget(engine.catalog.find("t" + ids["K"]))
        with pytest.raises(ExpiredHandle):
            await engine.supervisor.accept(ask(key="K", digest="d"))
        assert not engine.ledger.is_complete
        reader.may_go.set()
        await engine.ledger.wait_complete()
        with pytest.raises(ExpiredHandle):
            await engine.supervisor.accept(ask(key="K", digest="d"))
        assert executor.launched == []


async def test_retention_drops_nothing_before_all_keys_are_read(
    tmp_path: Path, reader: Reader
) -> None:
    ids = await leave_ended(tmp_path, "a", "b")

    def left() -> set[str | None]:
        return {name for name, id_ in ids.items() if (tmp_path / "tasks" / id_).exists()}

    async with built(tmp_path, FakeExecutor(), ended_tasks=1, retention_days=40_000) as engine:
        await start(engine)
        engine.nursery.start_soon(engine.retention.serve)
        await reader.wait_stopped()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert left() == {"a", "b"}
        reader.may_go.set()
        while len(left()) == 2:
            await trio.testing.wait_all_tasks_blocked(0.05)
        (kept,) = left()
        (gone,) = {"a", "b"} - {kept}
        with pytest.raises(ExpiredHandle):
            await engine.supervisor.accept(ask(key=gone, digest="d"))
        assert (await engine.supervisor.accept(ask(key=kept, digest="d"))).id == ids[kept]


async def test_the_end_of_the_engine_ends_a_wait_for_keys(tmp_path: Path, reader: Reader) -> None:
    await leave_ended(tmp_path, "K")
    async with built(tmp_path, FakeExecutor()) as engine:
        await start(engine)

        async def wait_in_vain() -> None:
            with pytest.raises(ShuttingDown):
                await engine.supervisor.accept(ask(key="K", digest="d"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_in_vain)
            await reader.wait_stopped()
            await trio.testing.wait_all_tasks_blocked(0.05)
            engine.supervisor.stop()
        reader.may_go.set()
