from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio
from tasks.building import FakeExecutor, FakeJob, ask, built

from engine.errors import InvalidState
from engine.model import Status


async def test_of_all_that_a_caller_has_nothing_starts_while_it_is_cancelled(
    tmp_path: Path,
) -> None:
    executor = FakeExecutor()
    async with built(tmp_path, executor, slots=1) as engine:
        mine = [await engine.supervisor.accept(ask("a")) for _ in range(20)]
        await engine.supervisor.wait_inline(mine[0], 0)
        done = await engine.canceller.cancel_all("a", 0, by="a")
        assert [one.task for one in done] == mine
        assert {one.outcome for one in done} == {"cancelled"}
        assert executor.launched == [mine[0].id]
        assert {task.record.status for task in mine} == {"cancelled"}


async def test_another_callers_jobs_go_on_and_take_the_slot(tmp_path: Path) -> None:
    executor = FakeExecutor()
    async with built(tmp_path, executor, slots=1) as engine:
        mine = await engine.supervisor.accept(ask("a"))
        other = await engine.supervisor.accept(ask("b"))
        await engine.supervisor.wait_inline(mine, 0)
        await engine.canceller.cancel_all("a", 0, by="b")
        await engine.supervisor.wait_inline(other, 0)
        assert (mine.record.status, other.record.status) == ("cancelled", "running")


async def test_what_has_ended_stays_as_it_ended(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        task = await engine.supervisor.accept(ask())
        await engine.supervisor.wait_inline(task, 0)
        first = await engine.canceller.cancel(task, 0, by="ci")
        again = await engine.canceller.cancel(task, 0, by="ci")
        assert (first.outcome, first.signalled) == ("cancelled", [1])
        assert (again.outcome, again.signalled) == ("already_finished", [])


async def test_who_goes_away_while_a_long_queue_is_cancelled_leaves_nobody_in_between(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor(), slots=1) as engine:
        tasks = [await engine.supervisor.accept(ask("a")) for _ in range(100)]
        await engine.supervisor.wait_inline(tasks[0], 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(engine.canceller.cancel_all, "a", 0, by="a"))
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            assert 0 < sum(task.is_ended for task in tasks) < 99
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            for task in tasks[1:]:
                await engine.supervisor.wait_ended(task, 5)
        assert {task.record.status for task in tasks[1:]} == {"cancelled"}


class SilentJob(FakeJob):
    """Its keeper takes no questions."""

    async def cancel(self, grace_secs: float) -> list[int] | None:
        await trio.lowlevel.checkpoint()
        return None


async def test_what_does_not_end_is_no_cancelled_task_and_no_finished_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.tasks.cancelling.KILL_SECS", 0.05)
    async with built(tmp_path, FakeExecutor(make=SilentJob)) as engine:
        task = await engine.supervisor.accept(ask("a"))
        await engine.supervisor.wait_inline(task, 0)
        with pytest.raises(InvalidState) as refused:
            await engine.canceller.cancel(task, 0, by="a")
        assert refused.value.data() == {
            "kind": "invalid_state",
            "state": "running",
            "taskId": task.record.task_id,
            "signalled": [],
            "survivors": [],
        }


async def test_one_that_cannot_be_cancelled_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.tasks.cancelling.KILL_SECS", 0.05)
    jobs = iter([SilentJob(), FakeJob()])
    async with built(tmp_path, FakeExecutor(make=lambda: next(jobs))) as engine:
        tasks = [await engine.supervisor.accept(ask("a")) for _ in range(2)]
        await engine.supervisor.wait_started(tasks)
        with pytest.raises(InvalidState) as refused:
            await engine.canceller.cancel_all("a", 0, by="a")
        standing = {task.record.status: task.record.task_id for task in tasks}
        assert standing.keys() == {"running", "cancelled"}
        assert refused.value.facts["taskId"] == standing[Status.RUNNING]
