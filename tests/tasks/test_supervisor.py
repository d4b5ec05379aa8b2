from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import trio.testing
from tasks.building import Built, DyingJob, FakeExecutor, FakeJob, ask, built, refuse

from engine.errors import KeyConflict, Overloaded, ShuttingDown
from engine.jobs.executor import LaunchRefused
from engine.tasks import ending
from engine.tasks import supervisor as module
from engine.tasks.task import Task


async def test_a_job_whose_keepers_all_die_first_fails_and_is_not_tried_for_ever(
    tmp_path: Path,
) -> None:
    executor = FakeExecutor(make=DyingJob)
    async with built(tmp_path, executor) as engine:
        task = await engine.supervisor.accept(ask())
        await engine.supervisor.wait_ended(task, 5)
        assert len(executor.launched) == 5
        assert (task.record.status, task.record.reason) == ("failed", "spawn_error")
        assert task.record.error is not None
        assert task.record.error.message == "5 keepers died before they began it"
        assert engine.supervisor.schedule.running == set()
        assert engine.catalog.live == {}


async def test_a_refused_launch_says_why_and_frees_its_slot(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor(make=refuse), slots=1) as engine:
        tasks = [await engine.supervisor.accept(ask()) for _ in range(3)]
        for task in tasks:
            await engine.supervisor.wait_ended(task, 5)
            assert task.record.exit_code == 126
            assert task.record.error is not None
            assert task.record.error.message == "no process for a keeper"
            end = task.directory.read_exit()
            assert end is not None
            assert end["cause"] == "spawn_error"


async def test_a_directory_that_cannot_be_read_now_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECS", 0.01)
    full = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    executor = FakeExecutor(make=DyingJob, attach_faults=[full, full])
    async with built(tmp_path, executor, slots=1) as engine:
        task = await engine.supervisor.accept(ask())
        (task.directory.path / "claim").symlink_to("1 2 other-boot")
        await engine.supervisor.wait_ended(task, 5)
        assert task.record.status == "lost"
        assert task.record.started_at is not None
        assert executor.attach_faults == []


async def test_one_that_ended_unclaimed_on_a_full_disk_is_let_go_and_not_begun(
    tmp_path: Path,
) -> None:
    executor = FakeExecutor()
    async with built(tmp_path, executor, slots=1) as engine:
        await engine.supervisor.accept(ask())  # has the slot
        task = await engine.supervisor.accept(ask())
        assert engine.supervisor.schedule.take_out(task)
        engine.supervisor.on_ended(task, ending.unstarted("cancelled", 7), b"")
        await engine.supervisor.resolve(task)
        assert (task.record.status, task.id in engine.catalog.live) == ("cancelled", False)
        assert task.id not in executor.launched


async def test_orders_go_on_after_the_highest_that_was_met(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        engine.supervisor.acceptor.count_on(41)
        engine.supervisor.acceptor.count_on(7)
        task = await engine.supervisor.accept(ask())
        assert task.record.order == 42


async def test_calls_over_the_limit_or_after_the_end_began_are_refused_and_make_nothing(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor(), slots=1, queue_limit=1) as engine:
        for _ in range(2):
            await engine.supervisor.accept(ask())
        with pytest.raises(Overloaded) as refused:
            await engine.supervisor.accept(ask())
        assert refused.value.data() == {
            "kind": "overloaded",
            "limit": 1,
            "setting": "queue_limit",
        }
        engine.supervisor.start_nothing()
        with pytest.raises(ShuttingDown):
            await engine.supervisor.accept(ask())
        assert len(os.listdir(engine.home.tasks)) == 2 + 1  # and where they are made
        assert os.listdir(engine.home.ahead) == []


async def test_a_caller_with_too_many_tasks_is_refused_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor(), slots=1, max_tasks_per_caller=2) as engine:
        held = [await engine.supervisor.accept(ask()) for _ in range(2)]
        with pytest.raises(Overloaded) as refused:
            await engine.supervisor.accept(ask())
        assert str(refused.value) == (
            "ci has as many tasks that have not ended as a caller may"
            " (max_tasks_per_caller = 2); wait for some, or cancel them"
        )
        assert refused.value.data() == {
            "kind": "overloaded",
            "limit": 2,
            "setting": "max_tasks_per_caller",
        }
        await engine.supervisor.accept(ask("other"))
        await engine.canceller.cancel(held[1], 0, by="ci")
        await engine.supervisor.accept(ask())


async def test_a_key_answers_with_its_task_or_a_conflict(tmp_path: Path) -> None:
    executor = FakeExecutor()
    async with built(tmp_path, executor) as engine:
        first = await engine.supervisor.accept(ask(key="K", digest="d"))
        assert await engine.supervisor.accept(ask(key="K", digest="d")) is first
        with pytest.raises(KeyConflict):
            await engine.supervisor.accept(ask(key="K", digest="other"))
        assert await engine.supervisor.accept(ask("else", key="K", digest="d")) is not first


async def test_what_was_written_while_the_last_keeper_left_is_taken_over(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        task = await engine.supervisor.accept(ask())
        await engine.supervisor.wait_inline(task, 0)
        await engine.canceller.cancel(task, 0, by="ci")
        assert task.record.sizes == (0,)
        (task.directory.path / "output").write_bytes(b"the last of it")
        (task.directory.path / "claim").symlink_to("1 2 other-boot")
        await engine.supervisor.resolve(task)
        assert task.record.sizes == (14,)
        assert task.record.last_output_at is not None


async def started(engine: Built, task: Task) -> None:
    """Wait until the job of `task` has begun."""
    waits = engine.supervisor.waits
    assert await waits.until(("start", task.id), lambda: task.record.started_at, 5) is not None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
async def test_jobs_whose_files_could_not_be_made_wait_and_start_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(module, "RETRY_SECS", 0.05)
    monkeypatch.setattr(module, "takes_files", lambda _tasks: False)
    refusals = [LaunchRefused("task directory: full", number) for _ in range(3)]

    def make() -> FakeJob:
        if refusals:
            raise refusals.pop()
        return FakeJob()

    executor = FakeExecutor(make=make)
    async with built(tmp_path, executor, slots=1) as engine:
        tasks = [await engine.supervisor.accept(ask()) for _ in range(3)]
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert engine.supervisor.schedule.running == set()
        reason = f"the disk takes no files: {os.strerror(number)}"
        assert [engine.supervisor.schedule.place(task) for task in tasks] == [
            (1, reason, None),
            (2, reason, None),
            (3, reason, None),
        ]
        for task in tasks:
            await started(engine, task)
            await engine.canceller.cancel(task, 0, by="ci")
        first = tasks[0].id
        assert executor.launched == [*[first] * 4, tasks[1].id, tasks[2].id]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
async def test_a_keeper_that_alone_can_write_no_file_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(module, "RETRY_SECS", 60)
    refusals = [LaunchRefused("task directory: limited", number)]

    def make() -> FakeJob:
        if refusals:
            raise refusals.pop()
        return FakeJob()

    executor = FakeExecutor(make=make)
    async with built(tmp_path, executor, slots=1) as engine:
        task = await engine.supervisor.accept(ask())
        await started(engine, task)
        assert engine.supervisor.schedule.lack is None
        assert executor.launched == [task.id] * 2
        await engine.canceller.cancel(task, 0, by="ci")


async def test_a_job_that_no_keeper_may_write_the_files_of_has_not_started(tmp_path: Path) -> None:
    def make() -> FakeJob:
        raise LaunchRefused("task directory: File too large", errno.EFBIG)

    executor = FakeExecutor(make=make)
    async with built(tmp_path, executor, slots=1) as engine:
        task = await engine.supervisor.accept(ask())
        await engine.supervisor.wait_ended(task, 5)
        assert (task.record.status, task.record.reason) == ("failed", "spawn_error")
        assert len(executor.launched) == module.MAX_LAUNCHES
