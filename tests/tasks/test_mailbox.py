"""Mirrors `engine/tasks/mailbox.py`."""

from __future__ import annotations

import pytest

from engine.tasks.mailbox import Delivery, Item, Mailbox


@pytest.fixture
def box() -> Mailbox:
    """With the ends of t1, t2 and t3, in this order."""
    box = Mailbox()
    for handle in ("t1", "t2", "t3"):
        box.add(handle, Item(is_own=True))
    return box


def delivery(id_: str = "d1") -> Delivery:
    return Delivery(id_, "ci", "a connection")


def test_ends_are_ready_in_the_order_in_which_they_came(box: Mailbox) -> None:
    assert list(box.ready) == list(box.fresh) == ["t1", "t2", "t3"]


def test_an_end_on_its_way_is_not_ready_and_comes_back_to_its_place(box: Mailbox) -> None:
    first = delivery()
    box.hold("t1", first)
    box.hold("t2", first)
    assert list(box.ready) == ["t3"]
    box.release(first, ["t2", "t1"])
    assert list(box.ready) == list(box.fresh) == ["t1", "t2", "t3"]


def test_an_end_that_two_replies_carry_is_ready_when_neither_does(box: Mailbox) -> None:
    first, second = delivery(), delivery("d2")
    box.hold("t1", first)
    box.hold("t1", second)
    box.release(first, ["t1"])
    assert list(box.ready) == ["t2", "t3"]
    box.release(second, ["t1"])
    assert list(box.ready) == ["t1", "t2", "t3"]


def test_of_two_replies_at_a_time_with_the_same_end_the_second_has_the_mark(box: Mailbox) -> None:
    first, second = delivery(), delivery("d2")
    box.hold("t1", first)
    box.hold("t1", second)  # before it is known what the first will carry
    assert (first.marked, second.marked) == (set(), {"t1"})


def test_an_end_that_one_reply_tells_in_two_places_has_no_mark(box: Mailbox) -> None:
    first = delivery()
    box.hold("t1", first)
    box.hold("t1", first)
    assert (first.marked, list(first.handles)) == (set(), ["t1"])


def test_an_end_that_is_expected_is_ready_when_it_is_not_any_more(box: Mailbox) -> None:
    box.expected["t2"] += 1
    box.settle(["t2"])
    assert list(box.ready) == ["t1", "t3"]
    del box.expected["t2"]
    box.settle(["t2"])
    assert list(box.ready) == ["t1", "t2", "t3"]


def test_what_was_told_is_not_fresh_and_is_marked_when_it_is_told_again(box: Mailbox) -> None:
    box.items["t1"].is_told = box.items["t3"].is_noticed = True
    box.settle(["t1", "t3"])
    assert list(box.fresh) == ["t2"]
    assert list(box.ready) == ["t1", "t2", "t3"]
    both = delivery()
    for handle in ("t1", "t2", "t3"):
        box.hold(handle, both)
    assert both.marked == {"t1"}


def test_an_end_of_somebody_else_is_never_ready_and_is_kept_only_if_it_was_told(
    box: Mailbox,
) -> None:
    first = delivery()
    box.hold("t8", first)
    box.hold("t9", first)
    assert list(box.ready) == ["t1", "t2", "t3"]
    box.items["t9"].is_told = True
    box.release(first, ["t8", "t9"])
    assert list(box.items) == ["t1", "t2", "t3", "t9"]
    assert list(box.ready) == ["t1", "t2", "t3"]


def test_a_received_end_is_gone_from_everywhere(box: Mailbox) -> None:
    first = delivery()
    box.hold("t2", first)
    box.receive("t2")
    box.release(first, ["t2"])
    assert list(box.items) == list(box.ready) == list(box.fresh) == ["t1", "t3"]
    assert not box.is_empty
    box.receive("t1")
    box.receive("t3")
    assert box.is_empty
