"""A line of the journal in wire form."""

from __future__ import annotations

from typing import Any

from engine.journal.levels import Level
from engine.model import rfc3339
from engine.store.lines import Line


def wire(line: Line) -> dict[str, Any]:
    """The line as replies carry it."""
    shown: dict[str, Any] = {
        "seq": line.seq,
        "time": rfc3339(line.time),
        "level": Level(line.level).name.lower(),
        "caller": line.caller,
        "taskId": None if line.task is None else "t" + line.task,
        "source": line.source,
        "text": line.text,
    }
    if line.cut:
        shown["cut"] = True
    return shown
