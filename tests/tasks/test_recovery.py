from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio
import trio.testing
from tasks.building import BASE, Built, FakeExecutor, FakeJob, ask, built

from engine.errors import ExpiredHandle
from engine.jobs.directory import Spec, TaskDirectory, make_directory
from engine.jobs.executor import Order
from engine.model import Kind
from engine.store.ledger import Tomb
from engine.tasks.ending import unstarted
from engine.tasks.recovery import Recovery, recover


async def recovered(engine: Built) -> Recovery:
    return await recover(
        engine.home, engine.index, engine.ledger, engine.supervisor, engine.nursery
    )


def leave_spec(engine: Built, order: int, **more: str) -> str:
    """A call that was accepted, and its engine killed before a row or a key was written."""
    directory = make_directory(engine.home.tasks)
    spec = Spec(
        id=directory.id,
        caller="ci",
        kind=Kind.ARGV,
        title="true",
        order=order,
        created_at=1,
        base=BASE,
        argv=["true"],
        **more,  # type: ignore[arg-type]
    )
    directory.write_spec(spec)
    return directory.id


def lose_ledger(home: Path) -> None:
    for path in home.glob("record.db*"):
        path.unlink()


async def test_a_call_that_was_accepted_and_not_begun_is_begun_in_its_turn(tmp_path: Path) -> None:
    executor = FakeExecutor()
    async with built(tmp_path, executor, slots=1) as engine:
        third, first, second = (leave_spec(engine, order) for order in (9, 7, 8))
        assert await recovered(engine) == Recovery(queued=3)
        assert [task.id for task in engine.supervisor.schedule.queue] == [second, third]
        late = await engine.supervisor.accept(ask())
        assert late.record.order == 10
        for id_ in (first, second, third):
            task = engine.catalog.find("k" + id_)
            await engine.supervisor.wait_inline(task, 0)
            await engine.canceller.cancel(task, 0, by="ci")
        assert executor.launched[:3] == [first, second, third]


async def test_its_key_is_its_own_though_it_was_not_written(tmp_path: Path) -> None:
    executor = FakeExecutor()
    async with built(tmp_path, executor) as engine:
        id_ = leave_spec(engine, 1, key="K", digest="d")
        await recovered(engine)
        again = await engine.supervisor.accept(ask(key="K", digest="d"))
        assert again.id == id_
        await engine.supervisor.wait_inline(again, 0)
        assert executor.launched == [id_]


async def test_a_ledger_that_was_lost_is_given_the_keys_of_ended_tasks_too(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        task = await engine.supervisor.accept(ask(key="K", digest="d"))
        await engine.supervisor.wait_inline(task, 0)
        await engine.canceller.cancel(task, 0, by="ci")
        await engine.index.flush()
    lose_ledger(tmp_path)
    executor = FakeExecutor()
    async with built(tmp_path, executor) as engine:
        await recovered(engine)
        again = await engine.supervisor.accept(ask(key="K", digest="d"))
        assert (again.id, executor.launched) == (task.id, [])
        assert engine.ledger.is_complete


async def test_a_task_whose_folder_was_removed_is_lost_and_its_handle_known(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        task = await engine.supervisor.accept(ask())
        await engine.supervisor.wait_inline(task, 0)
        await engine.index.flush()
    shutil.rmtree(task.directory.path)
    async with built(tmp_path, FakeExecutor()) as engine:
        assert (await recovered(engine)).gone == 1
        again = engine.catalog.find(task.record.task_id)
        await engine.supervisor.wait_ended(again, 5)
        assert again.record.status == "lost"


async def test_a_task_is_listed_from_the_start_on_before_a_keeper_says_that_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = FakeExecutor()

    async def launch(_directory: TaskDirectory, _order: Order) -> FakeJob:
        return await trio.sleep_forever()

    monkeypatch.setattr(executor, "launch", launch)
    async with built(tmp_path, executor) as engine:
        id_ = leave_spec(engine, 1)
        assert await recovered(engine) == Recovery(queued=1)
        await engine.index.flush()
        rows = engine.index.newest_first(caller=None, states=None, before=None)
        assert [row.id for row in rows] == [id_]


@pytest.mark.parametrize("is_ended_known", [True, False])
@pytest.mark.parametrize("has_files", [True, False])
async def test_a_task_that_was_forgotten_stays_so_though_its_row_and_folder_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ended_known: bool, has_files: bool
) -> None:
    """Its engine was killed between the tomb, which is written first, and the rest."""
    async with built(tmp_path, FakeExecutor()) as engine:
        task = await engine.supervisor.accept(ask())
        await engine.supervisor.wait_inline(task, 0)
        if not is_ended_known:
            await engine.index.flush()
            monkeypatch.setattr(engine.index, "put", lambda _record: None)
        await engine.canceller.cancel(task, 0, by="ci")
        await engine.index.flush()
        await engine.ledger.add(Tomb(id=task.id, ended_at=6, status="cancelled"))
    if not has_files:
        shutil.rmtree(task.directory.path)
    async with built(tmp_path, FakeExecutor()) as engine:
        assert await recovered(engine) == Recovery()
        with pytest.raises(ExpiredHandle):
            engine.catalog.find(task.record.task_id)
        await engine.index.flush()
        assert list(engine.index.newest_first(caller=None, states=None, before=None)) == []
        assert not task.directory.path.exists()


async def test_strangers_of_one_name_are_all_put_aside(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        for text in ("one", "two"):
            (engine.home.tasks / "NOTES").write_text(text)
            assert (await recovered(engine)).aside == 1
        kept = sorted(path.read_text() for path in engine.home.aside.iterdir())
        assert kept == ["one", "two"]


async def test_a_task_that_runs_is_in_an_index_that_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = FakeExecutor()

    async def attach(_directory: TaskDirectory, _claim: str) -> FakeJob:
        return FakeJob()

    monkeypatch.setattr(executor, "attach", attach)
    monkeypatch.setattr(TaskDirectory, "claimed_at", lambda _self: 5)  # when its job says it began
    async with built(tmp_path, executor) as engine:
        id_ = leave_spec(engine, 1)
        (engine.home.tasks / id_ / "claim").symlink_to("1 2 boot")
        assert await recovered(engine) == Recovery(adopted=1)
        await trio.testing.wait_all_tasks_blocked()
        await engine.index.flush()
        record = engine.index.find(id_)
        assert record is not None
        assert (record.status, record.started_at, record.cwd) == ("running", 5, "/")


@pytest.mark.parametrize("sign", ["a row", "output"])
async def test_a_task_that_has_begun_is_not_begun_again_where_its_claim_is_gone(
    tmp_path: Path, sign: str
) -> None:
    executor = FakeExecutor()
    async with built(tmp_path, executor) as engine:
        id_ = leave_spec(engine, 1)
        if sign == "a row":
            task = await recovered(engine)
            assert task == Recovery(queued=1)
            await trio.testing.wait_all_tasks_blocked()
            await engine.index.flush()
        else:
            (engine.home.tasks / id_ / "output").write_text("begun\n")
    launched = list(executor.launched)
    async with built(tmp_path, executor) as engine:
        assert await recovered(engine) == Recovery(adopted=1)
        again = engine.catalog.find("t" + id_)
        await engine.supervisor.wait_ended(again, 5)
        assert (again.record.status, executor.launched) == ("lost", launched)


async def test_what_stands_in_the_place_of_a_folder_is_put_aside_and_its_task_is_lost(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        task = await engine.supervisor.accept(ask())
        await engine.supervisor.wait_inline(task, 0)
        await engine.index.flush()
    shutil.rmtree(task.directory.path)
    task.directory.path.symlink_to("/etc")
    async with built(tmp_path, FakeExecutor()) as engine:
        assert await recovered(engine) == Recovery(aside=1, gone=1)
        again = engine.catalog.find(task.record.task_id)
        await engine.supervisor.wait_ended(again, 5)
        assert again.record.status == "lost"


async def test_what_ended_while_no_engine_ran_comes_in_the_order_of_its_ends(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        ids = [leave_spec(engine, order) for order in range(1, 9)]
        for at, id_ in enumerate(reversed(ids), 1):
            directory = TaskDirectory(engine.home.tasks, id_)
            assert directory.end_unstarted(unstarted("cancelled", at))
        assert await recovered(engine) == Recovery(ended=8)
        ready = engine.supervisor.inbox.ready("ci")
        assert list(ready) == ["t" + id_ for id_ in reversed(ids)]
