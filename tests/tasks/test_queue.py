from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tasks.queue import FairQueue, Lane

LIMITS = {"gpu": 1, "db": 2}


def is_always_open(_lane: Lane) -> bool:
    return True


def filled(*items: str) -> FairQueue[str]:
    """A queue of items whose first letter is their caller; `a1:gpu` stands in a lane."""
    queue: FairQueue[str] = FairQueue()
    for order, text in enumerate(items):
        item, _, lane = text.partition(":")
        queue.push(item[0], item, order, lane or None)
    return queue


def drain(queue: FairQueue[str], *shut: str, only: str | None = None) -> list[str]:
    found = []
    while (item := queue.pop(lambda lane: lane not in shut, only)) is not None:
        found.append(item)
    return found


def test_callers_take_turns_and_each_has_its_own_order() -> None:
    assert drain(filled("a1", "a2", "a3", "b1", "c1", "c2")) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_caller_that_was_served_goes_behind_one_that_came_meanwhile() -> None:
    queue = filled("a1", "a2", "a3")
    assert queue.pop(is_always_open) == "a1"
    queue.push("b", "b1", 9)
    assert drain(queue) == ["a2", "b1", "a3"]


def test_of_a_thousand_jobs_of_one_caller_only_one_is_before_the_single_job_of_another() -> None:
    queue = filled(*(f"a{n}" for n in range(1000)), "b0")
    assert queue.position("b0", is_always_open) == 2
    assert queue.pop(is_always_open) == "a0"
    assert queue.pop(is_always_open) == "b0"


def test_an_empty_queue_has_nothing_to_give() -> None:
    queue = filled()
    assert len(queue) == 0
    assert queue.pop(is_always_open) is None
    assert queue.pop(is_always_open, "a") is None


def test_what_is_taken_out_is_no_longer_there() -> None:
    queue = filled("a1", "a2", "b1", "a3:gpu")
    assert "a1" in queue
    assert queue.remove("a1")
    assert not queue.remove("a1")
    assert "a1" not in queue
    assert queue.position("a1", is_always_open) is None
    assert queue.remove("a3")
    assert queue.waiting_in("gpu") == []
    assert drain(queue) == ["a2", "b1"]


def test_one_that_comes_late_is_put_before_the_later_ones_of_its_caller() -> None:
    queue: FairQueue[str] = FairQueue()
    for order in (1, 4, 6):
        queue.push("a", f"a{order}", order)
    queue.push("b", "b1", 0)
    queue.push("a", "a3", 3)
    assert drain(queue) == ["a1", "b1", "a3", "a4", "a6"]


def test_what_waits_for_a_full_lane_holds_nothing_up() -> None:
    queue = filled("a1:gpu", "a2:gpu", "a3", "b1:gpu", "b2:db", "c1")
    assert drain(queue, "gpu") == ["a3", "b2", "c1"]
    assert queue.waiting_in("gpu") == ["a1", "a2", "b1"]


def test_a_caller_that_waits_for_a_lane_alone_keeps_its_turn() -> None:
    queue = filled("a1:gpu", "b1", "b2", "b3:gpu")
    assert drain(queue, "gpu") == ["b1", "b2"]
    assert drain(queue) == ["a1", "b3"]


def test_a_caller_has_its_turn_once_a_round_whatever_lanes_its_jobs_are_in() -> None:
    queue = filled("a1:gpu", "a2:db", "a3", "b1", "b2:gpu")
    assert drain(queue) == ["a1", "b1", "a2", "b2", "a3"]


def test_where_one_caller_alone_may_start_the_others_keep_their_places() -> None:
    queue = filled("a1", "b1", "b2", "c1", "a2")
    assert list(queue.in_order(is_always_open, "b")) == ["b1", "b2", "a1", "c1", "a2"]
    assert queue.position("a2", is_always_open, "b") == 5
    assert drain(queue, only="b") == ["b1", "b2"]
    assert queue.pop(is_always_open, "nobody") is None
    assert drain(queue) == ["a1", "c1", "a2"]


def test_what_can_start_now_stands_before_what_waits_for_a_lane() -> None:
    queue = filled("a1:gpu", "a2", "b1:gpu", "c1", "a3")
    order = list(queue.in_order(lambda lane: lane != "gpu"))
    assert order == ["a2", "c1", "a3", "b1", "a1"]


places = st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "gpu", "db"]))
steps = st.lists(st.one_of(places, st.just("pop"), st.integers(0, 30)), max_size=60)


@given(
    st.lists(places, max_size=25),
    steps,
    st.sets(st.sampled_from(["gpu", "db"])),
    st.sampled_from([None, "a", "b"]),
)
def test_positions_tell_the_order_in_which_items_would_be_popped(
    first: list[tuple[str, str | None]],
    steps: list[tuple[str, str | None] | str | int],
    shut: set[str],
    only: str | None,
) -> None:
    """Each that starts is over at once; full lanes and the mode when nothing else can start."""
    queue: FairQueue[str] = FairQueue()
    inside: list[str] = []
    for number, step in enumerate([*first, *steps]):
        if step == "pop":
            item = queue.pop(lambda lane: lane not in shut, only)
            if item is not None:
                inside.remove(item)
        elif isinstance(step, tuple):
            caller, lane = step
            inside.append(f"{caller}{number}")
            # Some come late, and go before those that were accepted after them.
            order = 100 - number if number % 7 == 0 else 200 + number
            queue.push(caller, inside[-1], order, lane)
        elif inside and isinstance(step, int):
            assert queue.remove(inside.pop(step % len(inside)))

    def is_open(lane: Lane) -> bool:
        return lane not in shut

    assert (len(queue), sorted(queue)) == (len(inside), sorted(inside))
    told = list(queue.in_order(is_open, only))

    def position_alone(item: str) -> int | None:
        """The first that is asked for since something has changed."""
        queue.push("z", "z1", 1_000)
        queue.remove("z1")
        return queue.position(item, is_open, only)

    positions = [position_alone(item) for item in told]
    together = [queue.position(item, is_open, only) for item in told]
    popped = drain(queue, *shut, only=only)
    popped += drain(queue, only=only) if only else []
    popped += drain(queue, *shut) if only else []
    popped += drain(queue)
    assert told == popped
    assert sorted(popped) == sorted(inside)
    assert positions == together == list(range(1, len(inside) + 1))


def test_places_that_are_known_are_found_out_anew_when_anything_has_changed() -> None:
    queue = filled("a1", "a2:gpu", "b1", "b2", "c1")

    def told(shut: str = "", only: str | None = None) -> dict[str, int | None]:
        for _ in range(2):
            found = {item: queue.position(item, lambda lane: lane != shut, only) for item in queue}
        return found

    assert told() == {"a1": 1, "b1": 2, "c1": 3, "a2": 4, "b2": 5}
    assert told(shut="gpu") == {"a1": 1, "b1": 2, "c1": 3, "b2": 4, "a2": 5}
    assert told(only="b") == {"b1": 1, "b2": 2, "a1": 3, "c1": 4, "a2": 5}
    assert queue.pop(is_always_open) == "a1"
    assert told() == {"b1": 1, "c1": 2, "a2": 3, "b2": 4}
    queue.remove("b1")
    assert told() == {"b2": 1, "c1": 2, "a2": 3}
    queue.push("d", "d1", 9)
    assert told() == {"b2": 1, "c1": 2, "a2": 3, "d1": 4}
    assert queue.position("a1", is_always_open) is None


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40))
def test_nobody_is_served_twice_while_another_waits_for_a_first_turn(callers: list[str]) -> None:
    queue = filled(*(f"{caller}{i}" for i, caller in enumerate(callers)))
    waiting = set(callers)
    for item in drain(queue)[: len(waiting)]:
        assert item[0] in waiting
        waiting.remove(item[0])


@given(st.lists(st.one_of(places, st.just("end")), max_size=60))
def test_no_lane_is_ever_over_its_limit_and_none_that_could_start_waits(
    steps: list[tuple[str, str | None] | str],
) -> None:
    queue: FairQueue[tuple[str, str | None, int]] = FairQueue()
    running: list[tuple[str, str | None, int]] = []

    def is_open(lane: Lane) -> bool:
        used = Counter(item[1] for item in running)
        return lane is None or used[lane] < LIMITS[lane]

    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            item = (*step, number)
            queue.push(step[0], item, number, step[1])
        elif running:
            running.pop(0)
        while len(running) < 4 and (found := queue.pop(is_open)) is not None:
            running.append(found)
        used = Counter(item[1] for item in running)
        assert all(used[lane] <= limit for lane, limit in LIMITS.items())
        assert len(running) == 4 or not any(is_open(item[1]) for item in queue)
    for caller in "abcd":
        started = [item for item in running if item[0] == caller]
        for lane in (None, "gpu", "db"):
            numbers = [item[2] for item in started if item[1] == lane]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("shut", [(), ("gpu",), ("gpu", "db")])
def test_the_full_lanes_are_those_in_which_somebody_waits(shut: tuple[str, ...]) -> None:
    queue = filled("a1", "a2:gpu", "b1:gpu")
    assert queue.shut(lambda lane: lane not in shut) == ({"gpu"} if shut else set())


def test_the_next_of_each_caller_and_lane_are_the_heads() -> None:
    queue = filled("a1", "a2", "a3:gpu", "a4:gpu", "b1")
    assert sorted(queue.heads()) == ["a1", "a3", "b1"]


def test_of_each_named_lane_it_is_known_how_many_wait_in_it() -> None:
    queue = filled("a1", "a2:gpu", "a3:gpu", "b1:gpu", "b2:db")
    assert queue.by_lane() == {"gpu": 3, "db": 1}
    queue.remove("a2")
    queue.remove("b2")
    assert queue.by_lane() == {"gpu": 2}
