from __future__ import annotations

from pathlib import Path

import pytest
from tasks.building import FakeExecutor, ask, built

from engine.errors import ExpiredHandle, UnknownHandle


async def test_both_handles_find_a_task_live_ended_or_from_the_index(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        task = await engine.supervisor.accept(ask())
        assert engine.catalog.find("k" + task.id) is engine.catalog.find("t" + task.id) is task
        await engine.supervisor.wait_inline(task, 0)
        await engine.canceller.cancel(task, 0, by="ci")
        assert task.id not in engine.catalog.live
        assert engine.catalog.find("t" + task.id).record == task.record


async def test_a_forgotten_task_is_expired_and_a_strange_one_unknown(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        task = await engine.supervisor.accept(ask())
        await engine.supervisor.wait_inline(task, 0)
        await engine.canceller.cancel(task, 0, by="ci")
        await engine.supervisor.forget(task)
        for handle in (task.record.task_id, task.record.kickoff_id):
            with pytest.raises(ExpiredHandle) as expired:
                engine.catalog.find(handle)
            assert expired.value.data()["endedAt"] == "1970-01-01T00:00:00.006Z"
            assert expired.value.data()["status"] == "cancelled"
        for handle in ("taaaaaa", "x" + task.id, "t", "r" + task.id):
            with pytest.raises(UnknownHandle):
                engine.catalog.find(handle)
        assert not task.directory.path.exists()


async def test_of_each_caller_the_tasks_that_have_not_ended_are_counted(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor(), slots=1) as engine:
        first, second = [await engine.supervisor.accept(ask()) for _ in range(2)]
        await engine.supervisor.accept(ask("other"))
        await engine.supervisor.wait_inline(first, 0)
        count = engine.catalog.count_unfinished
        assert (count("ci"), count("other"), count("nobody")) == (2, 1, 0)
        await engine.canceller.cancel(second, 0, by="ci")
        assert count("ci") == 1
        await engine.canceller.cancel(first, 0, by="ci")
        assert (count("ci"), count("other")) == (0, 1)
        undone = await engine.supervisor.accept(ask())
        engine.catalog.retire(undone)
        assert count("ci") == 0
