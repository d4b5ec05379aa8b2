from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from tasks.building import FakeExecutor, ask, built

from engine.errors import DuplicateHandle, ExpiredHandle, InvalidParams, UnknownHandle
from engine.tasks.recovery import recover
from engine.tasks.schedule import Place

CHAIN = 600  # each ends the next: in some two thousand frames, were it one in the other


async def test_who_waits_is_told_where_and_for_what(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor(), slots=2, lanes={"gpu": 1}) as engine:
        supervisor, schedule = engine.supervisor, engine.supervisor.schedule
        first = await supervisor.accept(ask("a", lane="gpu"))
        blocked = await supervisor.accept(ask("a", lane="gpu"))
        second = await supervisor.accept(ask("b"))
        plain = await supervisor.accept(ask("c"))
        after = ["k" + first.id, second.record.task_id]
        dependent = await supervisor.accept(ask("a", after=after))

        told = [schedule.place(task) for task in (first, second, plain, blocked, dependent)]
        assert told == [
            None,
            None,
            Place(1, "all 2 slots are busy"),
            Place(2, "lane gpu is full (1 of 1)", {"category": "lane", "lane": "gpu"}),
            Place(3, f"after k{first.id} and 1 more", {"category": "after", "ids": after}),
        ]
        assert [schedule.place(t) for t in (plain, blocked, dependent)] == told[2:]  # once more
        assert (len(schedule), schedule.waiting_by_lane()) == (3, {"gpu": 1})
        await supervisor.set_mode("b", 60, is_human=False)
        assert schedule.place(plain) == Place(1, "the engine is exclusive to b")
        await engine.canceller.cancel(second, 0, by="b")
        assert plain in schedule.queue
        await supervisor.set_mode("b", None, is_human=False)
        assert plain in schedule.running


async def test_whoever_comes_to_wait_for_a_full_lane_wakes_those_who_look_at_it(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor(), slots=1, lanes={"gpu": 1}) as engine:
        supervisor, seen = engine.supervisor, trio.Event()
        holder = await supervisor.accept(ask("a"))
        first = await supervisor.accept(ask("b", lane="gpu"))
        second = await supervisor.accept(ask("c", lane="gpu"))

        async def look() -> None:
            def is_blocked() -> bool | None:
                place = supervisor.schedule.place(second)
                return True if place is not None and place.blocked_on is not None else None

            # Longer than a test may take: a wait that ends by its time looks once more.
            assert await supervisor.waits.until(("state", second.id), is_blocked, 60)
            seen.set()

        engine.nursery.start_soon(look)
        await trio.testing.wait_all_tasks_blocked()
        assert not seen.is_set()
        await engine.canceller.cancel(holder, 0, by="a")
        await seen.wait()
        assert first in supervisor.schedule.running


async def test_bad_handles_and_lanes_are_refused_and_nothing_is_made(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor(), lanes={"gpu": 1}) as engine:
        accept = engine.supervisor.accept
        first = await accept(ask())
        gone = await accept(ask())
        await engine.supervisor.wait_inline(gone, 0)
        await engine.canceller.cancel(gone, 0, by="ci")
        await engine.supervisor.forget(gone)
        made = sorted(path.name for path in engine.home.tasks.iterdir())
        for error, asked in (
            (UnknownHandle, ask(after=["t000000"])),
            (ExpiredHandle, ask(after=[gone.record.task_id])),
            (DuplicateHandle, ask(after=[first.record.task_id, first.record.kickoff_id])),
            (InvalidParams, ask(lane="cpu")),
        ):
            with pytest.raises(error):
                await accept(asked)
        assert sorted(path.name for path in engine.home.tasks.iterdir()) == made


@pytest.mark.parametrize("is_killed", [False, True])
async def test_hundreds_that_wait_one_for_the_other_are_skipped_and_the_engine_turns(
    tmp_path: Path, is_killed: bool
) -> None:
    """`is_killed`: the engine, after the end of the first and before most have heard of it."""
    length = CHAIN // 2 if is_killed else CHAIN
    async with built(tmp_path, FakeExecutor(), queue_limit=CHAIN + 1) as engine:
        supervisor = engine.supervisor
        task = first = await supervisor.accept(ask())
        await supervisor.wait_inline(first, 0)
        for _ in range(length):
            task = await supervisor.accept(ask(after=[task.record.task_id]))
        await engine.canceller.cancel(first, 0, by="ci")
        if not is_killed:
            turns = 0
            while not task.is_ended:
                await trio.lowlevel.checkpoint()
                turns += 1
            assert turns >= length / 2  # others had their turn meanwhile
        assert (len(supervisor.schedule) > 0) == is_killed
        await engine.index.flush()
    if is_killed:
        async with built(tmp_path, FakeExecutor(), queue_limit=CHAIN + 1) as engine:
            await recover(
                engine.home, engine.index, engine.ledger, engine.supervisor, engine.nursery
            )
            task = engine.catalog.find(task.record.task_id)
            await engine.supervisor.wait_ended(task, 60)
    assert (task.record.status, task.record.reason) == ("skipped", "skipped")
    assert str(task.record.skipped_for).endswith(", which was skipped")


async def test_who_depends_on_many_starts_when_the_last_of_them_has_ended_also_in_the_next_engine(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor(), slots=1) as engine:
        supervisor = engine.supervisor
        _running, first, second = [await supervisor.accept(ask()) for _ in range(3)]
        after = [first.record.task_id, second.record.kickoff_id]
        dependent = await supervisor.accept(ask(after=after, after_when="ended"))
        for task in (first, second):
            await supervisor.wait_inline(task, 0)
        await engine.canceller.cancel(first, 0, by="ci")
        await supervisor.forget(first)
        await engine.index.flush()
        assert dependent in supervisor.schedule.dependencies
    executor = FakeExecutor()
    async with built(tmp_path, executor) as engine:
        await recover(engine.home, engine.index, engine.ledger, engine.supervisor, engine.nursery)
        again = engine.catalog.find(dependent.record.task_id)
        place = engine.supervisor.schedule.place(again)
        assert place is not None
        assert place.reason == f"after {second.record.kickoff_id}"
        other = engine.catalog.find(second.record.task_id)
        await engine.supervisor.wait_inline(other, 0)
        await engine.canceller.cancel(other, 0, by="ci")
        is_begun = await engine.supervisor.waits.until(
            ("start", again.id), lambda: True if again.job is not None else None, 60
        )
        assert is_begun
        assert executor.launched == [second.id, dependent.id]
