"""The list of tasks as people and pipes read it, once or live, as lists of lines. Pure."""

from __future__ import annotations

from typing import Final

from engine.cli import units, words
from engine.cli.screens import Row, foremost, took
from engine.cli.view import View, cells, pad, safe

STATUS_CELLS: Final = 13  # the longest word and a little air
ID_CELLS: Final = 7
CALLER_CELLS: Final = 11
CALLER_MOST: Final = 20  # a longer name is cut on a terminal
AGE_CELLS: Final = 4
TIME_CELLS: Final = 6
COMMAND_LEAST: Final = 20  # cells; with fewer left, the caller's column goes
TIME_FROM: Final = 50  # columns of the terminal from which on there is a TIME
AGE_FROM: Final = 80
PLAIN_NAMES: Final = ("STATUS", "TASK", "CALLER", "EXIT", "CREATED", "TIME", "COMMAND")


class Columns:
    """Which columns a list has at one width: AGE goes first, then CALLER, then TIME."""

    def __init__(self, rows: list[Row], width: int) -> None:
        callers = (cells(safe(row["as"])) for row in rows)
        self.id = max([ID_CELLS, *(len(words.row_handle(row)) for row in rows)])
        self.caller = min(CALLER_MOST, max([CALLER_CELLS, *callers]))
        self.has_time, self.has_age = width >= TIME_FROM, width >= AGE_FROM
        left = width - 2 - STATUS_CELLS - 2 - self.id - 2
        left -= TIME_CELLS + 2 if self.has_time else 0
        left -= AGE_CELLS + 2 if self.has_age else 0
        self.has_caller = self.has_time and left - self.caller - 2 >= COMMAND_LEAST
        self.command = left - (self.caller + 2 if self.has_caller else 0)

    def join(self, status: str, task: str, caller: str, age: str, time: str, text: str) -> str:
        """A line of these fields; `status` with its glyph, `caller` and `text` come cut to fit."""
        fields = [status, pad(task, self.id)]
        fields += [caller] if self.has_caller else []
        fields += [pad(age, AGE_CELLS, right=True)] if self.has_age else []
        fields += [pad(time, TIME_CELLS, right=True)] if self.has_time else []
        return "  ".join([*fields, text]).rstrip()

    def header(self, view: View) -> str:
        names = pad("  STATUS", STATUS_CELLS + 2), "TASK", pad("CALLER", self.caller)
        return self.join(*names, "AGE", "TIME", view.cut("COMMAND", self.command))

    def line(self, row: Row, view: View) -> str:
        look = words.look(row)
        status = view.cut(words.short_status(row), STATUS_CELLS)
        blank = " " * (STATUS_CELLS - cells(status))
        name = pad(view.cut(safe(row["as"]), self.caller), self.caller)
        return self.join(
            f"{view.glyph(look)} {view.paint_status(status, look)}{blank}",
            words.row_handle(row),
            view.paint_caller(name, row["as"]),
            units.age(units.since(row["createdAt"], view.now)),
            took(row, view),
            view.cut(safe(row["title"]), self.command),
        )


def task_table(rows: list[Row], view: View, *, header: bool = True) -> list[str]:
    """One line a task. On a terminal each fits the width: columns go, then the command is cut."""
    if view.width is None:
        plain = PlainTable(rows, header=header)
        head = [plain.header()] if header else []
        return head + [plain.line(row, view) for row in rows]
    columns = Columns(rows, view.width)
    head = [view.paint(columns.header(view), "bold")] if header else []
    return head + [columns.line(row, view) for row in rows]


class PlainTable:
    """The list for pipes: nothing is cut; a column is as wide as the widest field so far."""

    def __init__(self, rows: list[Row], *, header: bool = True) -> None:
        self._widths = [0] * (len(PLAIN_NAMES) - 1)
        for row in rows:
            self._fit(plain_fields(row))
        if header:
            self._fit(list(PLAIN_NAMES))

    def _fit(self, fields: list[str]) -> None:
        pairs = zip(fields, self._widths, strict=False)
        self._widths = [max(cells(field), width) for field, width in pairs]

    def header(self) -> str:
        return "  ".join(self._padded(list(PLAIN_NAMES)))

    def line(self, row: Row, view: View) -> str:
        fields = plain_fields(row)
        self._fit(fields)
        status, *others = self._padded(fields)
        return "  ".join([view.paint_status(status, row["status"]), *others])

    def _padded(self, fields: list[str]) -> list[str]:
        """`fields`, each as wide as its column; the last one takes what is left."""
        return [*(pad(t, w) for t, w in zip(fields, self._widths, strict=False)), fields[-1]]


def plain_fields(row: Row) -> list[str]:
    """The fields of a row, in the order of `PLAIN_NAMES`."""
    code, duration = row.get("exitCode"), row.get("durationMs")
    return [
        row["status"],
        words.row_handle(row),
        safe(row["as"]),
        str(code) if code is not None else str(row.get("signal") or "-"),
        row["createdAt"],
        "-" if duration is None else units.exact_seconds(duration),
        safe(row["title"]),
    ]


def watched(rows: list[Row], info: Row, view: View, height: int) -> list[str]:
    """The list as a block that is drawn again: at most `height` lines, what matters first."""
    room = max(1, height - 2)
    shown = foremost(rows, room)
    lines = task_table(shown, view)
    if len(shown) < len(rows):
        lines.append(f"  +{len(rows) - len(shown)} more")
    return [*lines, _foot(_counts(info, view), "Ctrl-C stops looking", view)]


def task_footer(info: Row, shown: int, total: str, view: View) -> str:
    """The line under the list: what the engine has to do, and how to see more.

    `total`: how many there are, in words; empty where all are shown.
    """
    more = f"{shown} of {total}; -n {max(100, shown * 5)} shows more" if total else ""
    return _foot(_counts(info, view), more, view)


def _counts(info: Row, view: View) -> str:
    counts = [f"{info[name]} {name}" for name in ("held", "queued", "running") if info.get(name)]
    return f" {view.dot} ".join([*counts, f"{view.number(info['slots'])} slots"])


def _foot(left: str, right: str, view: View) -> str:
    """`left` at the left and `right` at the right; without room for both, `left` alone."""
    width = view.width or 80
    gap = width - cells(left) - cells(right)
    text = left if not right or gap < 2 else left + " " * gap + right
    return view.paint(view.cut(text, width), "dim")
