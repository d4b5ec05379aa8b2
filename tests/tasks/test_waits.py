from __future__ import annotations

from collections.abc import Collection, Hashable

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


async def test_ten_thousand_are_woken_a_few_a_turn_and_all_of_them() -> None:
    waits, woken, turns = Waits(), 0, list[int]()

    async def wait() -> None:
        nonlocal woken
        assert await waits.until("k", lambda: True if is_there else None, LIMIT) is True
        woken += 1

    is_there = False
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for _ in range(10_000):
                nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            is_there = True
            waits.wake("k")
            while woken < 10_000:
                before = woken
                await trio.lowlevel.checkpoint()
                turns.append(woken - before)
    assert max(turns) <= 10
    assert len(waits) == 0


async def test_one_that_gives_up_while_others_are_woken_keeps_nobody_asleep() -> None:
    waits, found = Waits(), list[int]()

    async def wait(number: int, scope: trio.CancelScope) -> None:
        with scope:
            await waits.until("k", lambda: True if is_there else None, LIMIT)
            found.append(number)

    is_there = False
    scopes = [trio.CancelScope() for _ in range(100)]
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            for number, scope in enumerate(scopes):
                nursery.start_soon(wait, number, scope)
            await wait_all_tasks_blocked()
            is_there = True
            waits.wake("k")
            for scope in scopes[2:60]:
                scope.cancel()
    assert set(found) >= {0, 1, *range(60, 100)}


class Seen:
    """A predicate that writes down which keys it is asked about, and holds for some of them."""

    def __init__(self, *good: Hashable) -> None:
        self.good = set(good)
        self.asked: list[list[Hashable]] = []

    def __call__(self, keys: Collection[Hashable]) -> Hashable | None:
        self.asked.append(list(keys))
        return next((key for key in keys if key in self.good), None)


async def test_a_wait_under_many_keys_looks_only_at_those_that_were_woken() -> None:
    waits, seen, found = Waits(), Seen(), list[Hashable]()

    async def wait() -> None:
        found.append(await waits.until_any(["a", "b", "c"], seen, LIMIT))

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            assert waits.is_anybody("b")
            assert not waits.is_anybody("d")
            waits.wake("d")
            waits.wake("c")
            waits.wake("a")
            waits.wake("c")
            await wait_all_tasks_blocked()
            seen.good.add("b")
            waits.wake("b")
    assert seen.asked == [["a", "b", "c"], ["c", "a"], ["b"]]
    assert found == ["b"]
    assert len(waits) == 0
    assert not waits.is_anybody("a")


async def test_of_many_keys_one_that_holds_already_is_answered_without_a_time() -> None:
    waits = Waits()
    assert await waits.until_any(["a", "b"], Seen("b"), 0) == "b"
    assert await waits.until_any(["a", "b"], Seen(), 0) is None
    assert len(waits) == 0


async def test_a_wait_under_many_keys_ends_with_its_time(autojump_clock: object) -> None:
    waits, seen, began = Waits(), Seen(), trio.current_time()
    assert await waits.until_any(["a", "b"], seen, 30) is None
    assert trio.current_time() - began == 30
    assert seen.asked == [["a", "b"]]  # nothing was woken: nothing is looked at again
    assert len(waits) == 0


async def test_a_wake_in_the_turn_of_the_time_out_counts_under_many_keys(
    autojump_clock: object,
) -> None:
    outcomes = set[tuple[bool, Hashable]]()

    async def meet() -> tuple[bool, Hashable]:
        waits, seen, found = Waits(), Seen(), list[Hashable]()

        async def wait() -> None:
            found.append(await waits.until_any(["a", "b"], seen, 1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            is_there = waits.is_anybody("b")
            seen.good.add("b")
            waits.wake("b")
        return is_there, found[0]

    while len(outcomes) < 2:  # trio draws which of the two has its turn before the other
        outcomes.add(await meet())
    assert outcomes == {(True, "b"), (False, None)}


async def test_stop_ends_waits_under_many_keys_and_a_cancelled_one_leaves_nothing() -> None:
    waits, found = Waits(), list[Hashable]()

    async def wait() -> None:
        found.append(await waits.until_any(["a", "b"], Seen(), 3600))

    with trio.fail_after(LIMIT):
        with trio.move_on_after(0.01):
            await wait()
        assert len(waits) == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            waits.stop()
        assert await waits.until_any(["a"], Seen(), 3600) is None
    assert found == [None]
    assert len(waits) == 0


async def test_a_thousand_waits_under_ten_keys_each_are_woken_each_by_its_own_alone() -> None:
    waits, seen = Waits(), [Seen() for _ in range(1_000)]
    keys = [[(poller, handle) for handle in range(10)] for poller in range(1_000)]
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            for mine, predicate in zip(keys, seen, strict=True):
                nursery.start_soon(waits.until_any, mine, predicate, 3600)
            await wait_all_tasks_blocked()
            assert len(waits) == 10_000
            waits.wake((500, 3))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert seen[500].asked == [keys[500], [(500, 3)]]
    assert all(len(each.asked) == 1 for each in (*seen[:500], *seen[501:]))
    assert len(waits) == 0
