"""Mirrors `engine/server/replies.py`."""

from __future__ import annotations

from pathlib import Path

from engine.jobs.directory import TaskDirectory
from engine.jobs.plaintext import json_bytes
from engine.model import Failure, Kind, Status, TaskRecord
from engine.server import replies
from engine.tasks.task import Task


def ended(message: str, cwd: str = "/srv") -> Task:
    record = TaskRecord(
        id="123456",
        caller="ci",
        kind=Kind.ARGV,
        title="true",
        order=1,
        created_at=1,
        status=Status.FAILED,
        ended_at=2,
        cwd=cwd,
        error=Failure(errno=2, message=message),
    )
    return Task(record, TaskDirectory(Path("/nowhere"), "123456"))


def test_what_an_error_says_has_a_quarter_of_the_room() -> None:
    assert replies.ended(ended("x" * 900), 4_000)["error"]["message"] == "x" * 900
    message = replies.ended(ended("x" * 9_000), 4_000)["error"]["message"]
    assert message.endswith(" characters left out; wait has them>")
    assert 300 < json_bytes(message) <= 1_000


def test_a_directory_that_no_reply_has_room_for_is_cut() -> None:
    assert replies.ended(ended("", "/" * 4_095), 4_000)["cwd"] == "/" * 4_095
    shown = replies.ended(ended("", "/x" * 100_000), 4_000)["cwd"]
    assert shown.endswith("characters left out>")
    assert len(shown) < 25_000
