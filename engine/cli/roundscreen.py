"""The screens about a round: its seats side by side, as lists of lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from engine.cli import exits, units, words
from engine.cli.screens import (
    ROW_STATUS_CELLS,
    TIME_CELLS,
    error_line,
    foremost,
    took,
)
from engine.cli.view import View, cells, pad, safe

SEAT_LEAST: Final = 6  # cells
SEAT_MOST: Final = ((60, 20), (0, 11))  # from so many columns on; longer names are cut
ID_CELLS: Final = 7
TIME_FROM: Final = 50  # columns of the terminal from which on there is a TIME
ERRORS: Final = 5  # lines of a seat that are quoted, on a terminal

Row = dict[str, Any]
Rows = Mapping[str, Row]  # by seat, in their order


def failed(rows: Rows) -> list[str]:
    """The seats that have ended and did not succeed."""
    return [n for n, r in rows.items() if r["status"] in exits.ENDED and r["status"] != "succeeded"]


def round_block(
    round_id: str, rows: Rows, tails: Mapping[str, str], view: View, height: int | None
) -> list[str]:
    """The round as it stands, in at most `height` lines, what matters first.

    `tails`: by seat the last line that it has written.
    """
    ended = sum(row["status"] in exits.ENDED for row in rows.values())
    head = f"round {round_id} {view.dot} {ended} of {len(rows)} ended"
    columns = _Columns(rows, view)
    room = len(rows) if height is None else max(1, height - 2)
    names = {id(row): name for name, row in rows.items()}
    shown = foremost(list(rows.values()), room)
    lines = [
        view.cut(head, columns.width),
        view.paint(view.cut(columns.header(), columns.width), "bold"),
    ]
    lines += [columns.line(names[id(row)], row, tails.get(names[id(row)], "")) for row in shown]
    if len(shown) < len(rows):
        lines.append(f"  +{len(rows) - len(shown)} more")
    return lines


class _Columns:
    def __init__(self, rows: Rows, view: View) -> None:
        self._view, self.width = view, view.width or 80
        longest = max((cells(name) for name in rows), default=0)
        most = next(most for least, most in SEAT_MOST if self.width >= least)
        self._seat = min(most, max(SEAT_LEAST, longest))
        self._id = max([ID_CELLS, *(len(words.row_handle(row)) for row in rows.values())])
        self._has_time = self.width >= TIME_FROM
        left = self.width - 2 - self._seat - 2 - ROW_STATUS_CELLS - 2 - self._id - 2
        self._text = left - (TIME_CELLS + 2 if self._has_time else 0)

    def _join(self, seat: str, status: str, time: str, task: str, text: str) -> str:
        fields = [pad(seat, self._seat), status]
        fields += [pad(time, TIME_CELLS, right=True)] if self._has_time else []
        fields += [pad(task, self._id), self._view.cut(text, max(0, self._text))]
        return "  ".join(fields).rstrip()

    def header(self) -> str:
        status = pad("STATUS", ROW_STATUS_CELLS)
        return "  " + self._join("SEAT", status, "TIME", "TASK", "LAST LINE")

    def line(self, name: str, row: Row, tail: str) -> str:
        view, look = self._view, words.look(row)
        # What it is blocked on stands at the end of the line.
        status = view.cut(words.short_status({**row, "blockedOn": None}), ROW_STATUS_CELLS)
        blank = " " * (ROW_STATUS_CELLS - cells(status))
        painted = view.paint_status(status, look) + blank
        handle, text = words.row_handle(row), last_words(row, tail)
        fields = self._join(view.cut(name, self._seat), painted, took(row, view), handle, text)
        return f"{view.glyph(look)} {fields}"


def last_words(row: Row, tail: str) -> str:
    """What a seat has to say: why it waits or was not started, or its last line."""
    if words.is_waiting(row) or row["status"] == "skipped":
        return safe(row.get("queueReason") or "")
    return safe(words.blocked(row) or words.spawn_error(row) or tail)


def plain_seat(name: str, row: Row, now: datetime) -> str:
    """The end of a seat on one line, for pipes; of one that runs how long it does by `now`."""
    if row.get("durationMs") is None and row.get("startedAt"):
        row = {**row, "durationMs": units.since(row["startedAt"], now)}
    return f"{words.plain_ended(row)} {name} {safe(row['title'])}".rstrip()


def seat_errors(name: str, row: Row, errors: Sequence[Row], view: View) -> list[str]:
    """A seat that did not succeed, under the block: its newest error lines, and how to see more."""
    own = [each for each in errors if each.get("source") != "engine"]
    unstarted = safe(words.unstarted(row))
    if not view.is_terminal:
        lines = [f"{name} {row.get('endedAt') or '-'} {unstarted}"] if unstarted else []
        return lines + [f"{name} {each['time']} {safe(each['text'])}" for each in own]
    time = units.duration(row.get("durationMs") or 0)
    head = f"{name}  {unstarted or f'{words.outcome(row)}, {time}'}"
    lines = [f"{view.glyph(words.look(row))} {view.paint_status(head, words.look(row))}"]
    lines += [error_line(each, view) for each in own[-ERRORS:]]
    if row.get("outputBytes"):
        handle, size = words.handle(row), units.size(row["outputBytes"])
        lines.append(view.cut(f"  engine output {handle}   shows all {size}", view.width or 80))
    return lines


def verdict(round_id: str, rows: Rows) -> str:
    """The last line about a round that did not succeed."""
    names = failed(rows)
    count = f"{len(names)} of {len(rows)} seats did not succeed: {' '.join(names)}"
    return f"{count}; engine round retry {round_id}"
