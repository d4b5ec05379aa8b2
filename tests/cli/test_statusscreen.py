"""Mirrors `engine/cli/statusscreen.py`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from engine.cli.statusscreen import status_lines
from engine.cli.view import View, cells

INFO: dict[str, Any] = {
    "version": "0.1.0",
    "startedAt": "2026-11-27T08:00:31.208Z",
    "slots": 32,
    "running": 5,
    "queued": 2,
    "oldestQueuedMs": 41_000,
    "held": 1,
    "lanes": {"gpu": {"limit": 1, "running": 1, "queued": 2}},
    "callers": 7,
    "requestsPending": 2,
    "oldestRequestMs": 31 * 60_000,
    "outputBytes": int(3.2 * (1 << 30)),
    "diskFreeBytes": 118 << 30,
    "journalLines": 412_207,
    "policy": "none",
    "limits": {"total_output_cap_bytes": 20 << 30},
    "degraded": [],
}


def view(width: int | None, *, colour: bool = False) -> View:
    now = datetime(2026, 11, 30, 12, 4, 31, 208_000, tzinfo=UTC)
    return View(now=now, zone=UTC, width=width, colour=colour)


def test_the_engine_at_a_glance() -> None:
    assert status_lines(INFO, "ws://127.0.0.1:8420/rpc", 4120, view(80)) == [
        "engine 0.1.0   ws://127.0.0.1:8420/rpc   pid 4120   up 3d04h",
        "slots      5 of 32 running · 2 queued, oldest 41s · 1 held",
        "lanes      gpu 1 of 1, 2 queued",
        "callers    7",
        "requests   2 wait for a person, oldest 31m",
        "output     3.2 GiB of 20 GiB           disk 118 GiB free",
        "journal    412,207 lines               store ok   policy none",
    ]


def test_what_is_wrong_takes_the_first_line_in_red() -> None:
    wrong = INFO | {"degraded": ["store does not take writes since 12:01 (disk full)"]}
    lines = status_lines(wrong, "", None, view(80, colour=True))
    assert lines[0] == "\x1b[31mstore does not take writes since 12:01 (disk full)\x1b[0m"


def test_each_line_fits_the_width() -> None:
    for width in (20, 50, 80):
        lines = status_lines(INFO, "ws://127.0.0.1:8420/rpc", 4120, view(width))
        assert max(map(cells, lines)) <= width
