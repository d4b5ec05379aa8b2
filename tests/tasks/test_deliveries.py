"""Mirrors `engine/tasks/deliveries.py`."""

from __future__ import annotations

import pytest

from engine.tasks.deliveries import Deliveries
from engine.tasks.mailbox import Delivery


@pytest.fixture
def deliveries() -> Deliveries:
    return Deliveries()


def carrying(deliveries: Deliveries, *handles: str, caller: str = "ci") -> Delivery:
    delivery = deliveries.new(caller, "one")
    delivery.handles = dict.fromkeys(handles)
    deliveries.add(delivery)
    return delivery


def test_one_is_found_by_its_id_for_its_own_caller_alone(deliveries: Deliveries) -> None:
    delivery = carrying(deliveries, "t1")
    assert deliveries.find("ci", delivery.id) is delivery
    assert deliveries.find("other", delivery.id) is None
    assert deliveries.find("ci", "nonsense") is None
    deliveries.drop(delivery)
    assert deliveries.find("ci", delivery.id) is None


def test_one_with_nothing_in_it_is_not_kept(deliveries: Deliveries) -> None:
    delivery = carrying(deliveries)
    deliveries.written(delivery, 1)
    assert deliveries.find("ci", delivery.id) is None
    assert deliveries.take_all("one") == {}


def test_one_is_gone_with_the_last_of_its_handles(deliveries: Deliveries) -> None:
    delivery = carrying(deliveries, "t1", "t2")
    deliveries.take_out(delivery, "t1")
    assert deliveries.find("ci", delivery.id) is delivery
    deliveries.take_out(delivery, "t2")
    assert deliveries.find("ci", delivery.id) is None
    deliveries.take_out(None, "t3")  # of a delivery that nobody knows


def test_what_a_request_acknowledges_is_taken_and_what_was_written_later_is_left(
    deliveries: Deliveries,
) -> None:
    first, second, other = (
        carrying(deliveries, "t1"),
        carrying(deliveries, "t2"),
        carrying(deliveries, "t3", caller="other"),
    )
    for number, delivery in enumerate((first, second, other), 1):
        deliveries.written(delivery, number)
    assert deliveries.take_known("one", "ci", 1) == [first]
    assert deliveries.take_known("one", "ci", 1) == []
    assert deliveries.take_known("two", "ci", 9) == []
    assert deliveries.take_all("one") == {"ci": [second], "other": [other]}
    assert deliveries.take_all("one") == {}


def test_ids_are_distinct_also_from_those_of_another_engine(deliveries: Deliveries) -> None:
    ids = {each.new("ci", "one").id for each in (deliveries, Deliveries()) for _ in range(100)}
    assert len(ids) == 200
    before = deliveries.of_before("old-1", "ci")
    assert deliveries.of_before("old-1", "ci") is before
    assert (before.is_kept, before.connection) == (True, None)
