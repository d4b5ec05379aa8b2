from __future__ import annotations

from pathlib import Path

from tasks.building import FakeExecutor, ask, built


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
