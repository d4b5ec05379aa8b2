"""Mirrors `engine/server/updates.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.model import Kind, Status, TaskRecord
from engine.server.updates import Look, Page, look_at


def record(**facts: Any) -> TaskRecord:
    known: dict[str, Any] = {"status": Status.RUNNING, **facts}
    return TaskRecord(
        id="a", caller="ci", kind=Kind.BASH, title="true", order=1, created_at=1, **known
    )


def look(record: TaskRecord, *shown: str, is_lane_full: bool = False) -> Look | None:
    return look_at(record, shown, is_lane_full=lambda: is_lane_full)


def test_what_goes_on_and_says_nothing_is_not_ready() -> None:
    assert look(record()) is None
    assert look(record(status=Status.QUEUED)) is None


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled", "lost", "skipped"])
def test_what_has_ended_is_ready_however_it_did(status: str) -> None:
    assert look(record(status=Status(status), blocked="input", ready=True)) == Look("ended")


@pytest.mark.parametrize("category", ["input", "idle"])
def test_each_thing_it_may_be_blocked_on_is_told_once(category: str) -> None:
    blocked = record(blocked=category)
    assert look(blocked) == Look("execution_blocked", category)
    assert look(blocked, "lane", category) is None
    assert look(blocked, "lane") == Look("execution_blocked", category)


def test_a_full_lane_is_told_once_and_asked_for_only_where_there_is_one() -> None:
    waiting = record(status=Status.QUEUED, lane="gpu")
    assert look(waiting, is_lane_full=True) == Look("execution_blocked", "lane")
    assert look(waiting, "lane", is_lane_full=True) is None
    assert look(waiting) is None
    assert look(record(), is_lane_full=True) is None


def test_that_it_is_ready_is_told_once_and_before_that_it_is_blocked() -> None:
    ready = record(ready=True, blocked="idle")
    assert look(ready) == Look("ready_when", "ready_when")
    assert look(ready, "ready_when") == Look("execution_blocked", "idle")
    assert look(ready, "ready_when", "idle") is None


def test_a_page_takes_updates_until_the_next_does_not_fit() -> None:
    page = Page(4_000, ["t123456"] * 10)
    updates = [{"id": number, "output": "x" * 1_000} for number in range(9)]
    assert [page.add(update) for update in updates[:4]] == [True, True, True, False]
    assert page.entries["updates"] == updates[:3]
    assert len(json.dumps(page.entries["updates"])) + 10 * 11 < 4_000


def test_the_first_update_always_fits_and_has_room_for_what_it_says() -> None:
    page = Page(1_000, ["t" * 84] * 10_000)
    assert page.room == 100
    assert page.add({"output": "x" * 2_000})
    assert not page.add({"output": "x" * 250})


def test_the_first_update_is_cut_to_the_page_and_says_what_is_left_out_and_where_it_is() -> None:
    page = Page(512 * 1024, [])
    message = "x" * 900_000
    assert page.add({"id": "t123456", "error": {"errno": 2, "message": message}, "output": "ok\n"})
    (entry,) = page.entries["updates"]
    assert len(json.dumps(entry)) < 512 * 1024
    assert (entry["id"], entry["output"], entry["error"]["errno"]) == ("t123456", "ok\n", 2)
    kept, _, rest = entry["error"]["message"].partition("…")
    assert rest == f"<{900_000 - len(kept)} characters left out; wait has them>"
    assert len(kept) > 100_000
