from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.jobs.directory import TaskDirectory
from engine.model import Kind, Status, TaskRecord
from engine.tasks.task import Listener, Task


def make_task(status: Status = Status.QUEUED) -> Task:
    record = TaskRecord(
        id="aaaaaa",
        caller="ci",
        kind=Kind.BASH,
        title="x",
        order=1,
        created_at=0,
        status=status,
    )
    return Task(record, TaskDirectory(Path("/nowhere"), "aaaaaa"))


def test_a_change_makes_a_new_record_and_leaves_the_old_as_it_was() -> None:
    task = make_task()
    before = task.record
    task.change(status=Status.RUNNING, started_at=5)
    assert (before.status, before.started_at) == ("queued", None)
    assert (task.record.status, task.record.started_at) == ("running", 5)
    assert not task.is_ended
    task.change(status=Status.SUCCEEDED)
    assert task.is_ended


@pytest.mark.parametrize(
    ("before", "after"),
    [("succeeded", "running"), ("lost", "succeeded"), ("running", "denied"), ("held", "running")],
)
def test_a_step_that_the_table_has_not_is_refused(before: str, after: str) -> None:
    task = make_task(Status(before))
    with pytest.raises(AssertionError, match=f"{before} -> {after}"):
        task.change(status=Status(after))
    assert task.record.status == before


def test_a_listener_hands_on_the_news_with_its_task() -> None:
    heard: list[Any] = []
    task = make_task()
    listener = Listener(
        task,
        lambda *news: heard.append(("started", *news)),
        lambda *news: heard.append(("grew", *news)),
        lambda *news: heard.append(("blocked", *news)),
        lambda *news: heard.append(("ended", *news)),
        lambda *news: heard.append(("settled", *news)),
    )
    listener.on_started({"pid": 1})
    listener.on_grew({"sizes": [1]})
    listener.on_blocked("idle")
    listener.on_ended({"exitCode": 0}, b"state")
    listener.on_settled({"mishap": "killed"}, b"later")
    assert heard == [
        ("started", task, {"pid": 1}),
        ("grew", task, {"sizes": [1]}),
        ("blocked", task, "idle"),
        ("ended", task, {"exitCode": 0}, b"state"),
        ("settled", task, {"mishap": "killed"}, b"later"),
    ]
