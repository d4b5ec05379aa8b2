"""Rows, a clock and a view that do not change, and the screens that were written down for them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.cli.view import View

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (80, 50, 200, None)  # columns; None: a pipe
NOW = datetime(2026, 11, 30, 12, 4, 31, 208_000, tzinfo=UTC)


def view(width: int | None, **more: Any) -> View:
    return View(now=NOW, zone=UTC, width=width, **more)


def row(name: str, status: str, title: str, **more: Any) -> dict[str, Any]:
    reached = status not in ("queued", "held")
    return {
        "taskId": "t" + name if reached else None,
        "kickoffId": "k" + name,
        "as": "ci",
        "kind": "bash",
        "title": title,
        "status": status,
        "reason": None,
        "exitCode": None,
        "signal": None,
        "createdAt": "2026-11-30T11:55:02.114Z",
        "startedAt": "2026-11-30T11:55:02.116Z" if reached else None,
        "endedAt": None,
        "durationMs": None,
        "lastOutputAt": None,
        "outputBytes": 0,
        "errorLines": 0,
        "warningLines": 0,
        "lane": None,
        "queuePosition": None,
        "queueReason": None,
        "roundId": None,
        "seat": None,
        "changedSeq": 1,
        **more,
    }


def golden(name: str, width: int | None) -> list[str]:
    """The lines of the screen `name` at `width`, as they were written down."""
    path = GOLDEN / f"{name}.{width or 'pipe'}.txt"
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
