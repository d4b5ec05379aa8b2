from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from engine.tasks.waits import Waits

LIMIT = 5.0  # seconds for any wait here


def nothing() -> int | None:
    return None


async def test_what_holds_already_is_answered_without_a_time() -> None:
    waits = Waits()
    assert await waits.until("k", lambda: 7, 0) == 7
    assert await waits.until("k", nothing, 0) is None


async def test_a_wait_ends_when_its_key_is_woken_and_the_predicate_holds() -> None:
    waits, box, found = Waits(), list[int](), list[int | None]()

    async def wait() -> None:
        found.append(await waits.until("k", lambda: box[0] if box else None, LIMIT))

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            waits.wake("k")  # nothing has changed: it goes on waiting
            await wait_all_tasks_blocked()
            assert found == []
            box.append(3)
            waits.wake("other")
            await wait_all_tasks_blocked()
            assert found == []
            waits.wake("k")
    assert found == [3]
    assert len(waits) == 0


async def test_a_wait_ends_with_nothing_when_the_time_is_spent(autojump_clock: object) -> None:
    waits, began = Waits(), trio.current_time()
    assert await waits.until("k", nothing, 30) is None
    assert trio.current_time() - began == 30
    assert len(waits) == 0


async def test_an_event_in_the_turn_of_the_time_out_counts(autojump_clock: object) -> None:
    waits, box = Waits(), list[int]()

    async def change() -> None:
        await trio.sleep(1)
        box.append(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        assert await waits.until("k", lambda: 1 if box else None, 1) in (1, None)
        found = await waits.until("k", lambda: 1 if box else None, 0.001)
        assert found == 1


async def test_stop_ends_all_waits_with_how_things_stand_and_later_ones_at_once() -> None:
    waits, found = Waits(), list[str | None]()

    async def wait(answer: str | None) -> None:
        asked = iter([None])
        found.append(await waits.until(answer, lambda: next(asked, answer), 3600))

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            for answer in ("so", None, "so"):
                nursery.start_soon(wait, answer)
            await wait_all_tasks_blocked()
            assert len(waits) == 3
            waits.stop()
        assert await waits.until("k", nothing, 3600) is None
    assert sorted(found, key=str) == [None, "so", "so"]
    assert len(waits) == 0


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    waits = Waits()
    with trio.move_on_after(0.01):
        await waits.until("k", nothing, 3600)
    assert len(waits) == 0
    waits.wake("k")
