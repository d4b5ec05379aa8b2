from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tasks.queue import FairQueue


def filled(*items: str) -> FairQueue[str]:
    """A queue of items whose first letter is their caller."""
    queue: FairQueue[str] = FairQueue()
    for item in items:
        queue.push(item[0], item)
    return queue


def drain(queue: FairQueue[str]) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


def test_callers_take_turns_and_each_has_its_own_order() -> None:
    assert drain(filled("a1", "a2", "a3", "b1", "c1", "c2")) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_caller_that_was_served_goes_behind_one_that_came_meanwhile() -> None:
    queue = filled("a1", "a2", "a3")
    assert queue.pop() == "a1"
    queue.push("b", "b1")
    assert drain(queue) == ["a2", "b1", "a3"]


def test_an_empty_queue_has_nothing_to_give() -> None:
    queue = filled()
    assert len(queue) == 0
    with pytest.raises(LookupError):
        queue.pop()


def test_what_is_taken_out_is_no_longer_there() -> None:
    queue = filled("a1", "a2", "b1")
    assert queue.remove("a", "a1")
    assert not queue.remove("a", "a1")
    assert not queue.remove("b", "a2")
    assert queue.position("a", "a1") is None
    assert queue.position("x", "a2") is None
    assert drain(queue) == ["a2", "b1"]


steps = st.lists(
    st.one_of(st.sampled_from("abcd"), st.just("pop"), st.integers(0, 30)), max_size=60
)


@given(steps)
def test_positions_tell_the_order_in_which_items_would_be_popped(steps: list[str | int]) -> None:
    queue: FairQueue[str] = FairQueue()
    inside: list[str] = []
    for number, step in enumerate(steps):
        if step == "pop":
            if inside:
                inside.remove(queue.pop())
        elif isinstance(step, str):
            inside.append(f"{step}{number}")
            queue.push(step, inside[-1])
        elif inside:
            item = inside.pop(step % len(inside))
            assert queue.remove(item[0], item)
    order = list(queue)
    assert sorted(order) == sorted(inside)
    assert [queue.position(item[0], item) for item in order] == list(range(1, len(order) + 1))
    assert drain(queue) == order


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40))
def test_nobody_is_served_twice_while_another_waits_for_a_first_turn(callers: list[str]) -> None:
    queue = filled(*(f"{caller}{i}" for i, caller in enumerate(callers)))
    waiting = set(callers)
    for item in drain(queue)[: len(waiting)]:
        assert item[0] in waiting
        waiting.remove(item[0])


def test_one_that_comes_late_is_put_before_the_later_ones_of_its_caller() -> None:
    queue = filled("a1", "a4", "a6", "b1")
    queue.push_before("a", "a3", lambda other: other > "a3")
    queue.push_before("a", "a7", lambda other: other > "a7")
    queue.push_before("c", "c1", lambda other: True)
    assert len(queue) == 7
    assert drain(queue) == ["a1", "b1", "c1", "a3", "a4", "a6", "a7"]
