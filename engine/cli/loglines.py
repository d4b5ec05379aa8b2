"""Lines of the journal as people and pipes read them, and what is said about those not shown. Pure.

On a terminal the columns are aligned and the text is never cut: the terminal wraps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from engine.cli import units
from engine.cli.view import View, cells, pad, safe

Entry = dict[str, Any]

LEVELS: Final = (  # least severe first
    *("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"),
)
LEVEL_CELLS: Final = 8  # all words but `emergency`, which is rare enough to stand out
CALLER_CELLS: Final = 11
CALLER_MOST: Final = 20  # a longer name is cut on a terminal
TASK_CELLS: Final = 7
ENGINE: Final = "engine"  # stands for the caller of the engine's own lines
LOOKS: Final[dict[str, tuple[str, ...]]] = {
    "debug": ("dim",),
    "info": (),
    "notice": ("bold",),
    "warning": ("yellow",),
    "error": ("red",),
    "critical": ("bold", "red"),
    "alert": ("bold", "red"),
    "emergency": ("bold", "red"),
}


class LogLines:
    """Renders lines; the column of callers grows with the longest name that came so far."""

    def __init__(self, *, has_prefix: bool = True) -> None:
        self._has_prefix = has_prefix
        self._caller_cells = CALLER_CELLS

    def render(self, entries: Sequence[Entry], view: View) -> list[str]:
        """One line of text for each of `entries`."""
        if not self._has_prefix:
            return [_text(entry, view) for entry in entries]
        if not view.is_terminal:
            return [_plain(entry, view) for entry in entries]
        longest = max((cells(safe(_caller(entry))) for entry in entries), default=0)
        self._caller_cells = max(self._caller_cells, min(longest, CALLER_MOST))
        return [self._aligned(entry, view) for entry in entries]

    def _aligned(self, entry: Entry, view: View) -> str:
        width = self._caller_cells
        level, caller = str(entry["level"]), _caller(entry)
        name = pad(view.cut(safe(caller), width), width)
        task = pad(safe(entry.get("taskId") or ""), TASK_CELLS)
        parts = (
            view.paint(_time(entry, view), "dim"),
            " ",
            view.paint(pad(level, LEVEL_CELLS), *_look(level)),
            " ",
            view.paint(name, "dim") if _is_ours(entry) else view.paint_caller(name, caller),
            f"  {task}  ",
            _text(entry, view),
        )
        return "".join(parts).rstrip()


def _plain(entry: Entry, view: View) -> str:
    level, caller = str(entry["level"]), _caller(entry)
    parts = (
        str(entry["time"]),
        view.paint(safe(level), *_look(level)),
        safe(caller) if _is_ours(entry) else view.paint_caller(safe(caller), caller),
        safe(entry.get("taskId") or "-"),
        _text(entry, view),
    )
    return " ".join(parts).rstrip()


def _look(level: str) -> tuple[str, ...]:
    return LOOKS.get(level, ("bold",))


def _is_ours(entry: Entry) -> bool:
    """Whether the line is the engine's own; it may be about a caller's task all the same."""
    return entry.get("source") == ENGINE or not entry.get("caller")


def _caller(entry: Entry) -> str:
    return ENGINE if _is_ours(entry) else str(entry["caller"])


def _time(entry: Entry, view: View) -> str:
    return units.clock(entry["time"], view.now, view.zone)


def _text(entry: Entry, view: View) -> str:
    """The text; a sign at its end where the engine has kept the beginning only."""
    return safe(entry["text"]) + (view.ellipsis if entry.get("cut") else "")


def _count(count: int, noun: str, view: View) -> str:
    shown = view.number(count)
    return f"{shown} {noun}" if count == 1 else f"{shown} {noun}s"


def left_out(count: int, floor: str, view: View) -> str:
    """`-- 3 error lines from another caller's work left out; -a shows them`."""
    which = "it" if count == 1 else "them"
    lines = _count(count, f"{floor} line", view)
    return f"-- {lines} from another caller's work left out; -a shows {which}"


def gone(count: int, following: Sequence[Entry], view: View) -> str:
    """`-- 1,204 lines are gone (retention); reading on at 12:04:40.000`."""
    verb = "is" if count == 1 else "are"
    text = f"-- {_count(count, 'line', view)} {verb} gone (retention)"
    if not following:
        return text
    at = _time(following[0], view) if view.is_terminal else str(following[0]["time"])
    return f"{text}; reading on at {at}"


def not_carried(count: int, floor: str, view: View) -> str:
    """What a reply had no room for: `-- 12 older lines; engine logs -p error shows them`."""
    which = "it" if count == 1 else "them"
    return f"-- {_count(count, 'older line', view)}; engine logs -p {floor} shows {which}"
