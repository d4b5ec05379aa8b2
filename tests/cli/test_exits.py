"""Mirrors `engine/cli/exits.py`."""

from __future__ import annotations

from typing import Any

import pytest

from engine.cli.exits import of_task


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"status": "succeeded", "exitCode": 0}, 0),
        ({"status": "failed", "exitCode": 7}, 7),
        ({"status": "failed", "exitCode": 127, "reason": "spawn_error"}, 127),
        ({"status": "failed", "exitCode": None, "signal": "SIGKILL"}, 137),
        ({"status": "failed", "exitCode": None, "signal": "SIGRTMIN+1"}, 163),
        ({"status": "failed", "exitCode": None, "signal": "SIGWHAT"}, 125),
        ({"status": "cancelled", "exitCode": None, "signal": "SIGKILL"}, 143),
        ({"status": "cancelled", "exitCode": 3}, 3),
        ({"status": "timed_out", "exitCode": None, "signal": "SIGTERM"}, 124),
        ({"status": "timed_out", "exitCode": 0}, 124),
        ({"status": "lost", "exitCode": None, "signal": None}, 125),
        ({"status": "skipped", "exitCode": None, "signal": None}, 125),
        ({"status": "denied", "exitCode": None, "signal": None}, 77),
    ],
)
def test_the_exit_code_is_the_jobs_where_it_has_one(record: dict[str, Any], code: int) -> None:
    assert of_task(record) == code
