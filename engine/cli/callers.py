"""`callers`: who works with the engine, and how much of it runs and failed."""

from __future__ import annotations

from typing import Any, Final

import click

from engine.cli import exits, units
from engine.cli.app import App
from engine.cli.verbs import Verb, verb
from engine.cli.view import View, cells, pad, safe

PAGES: Final = 200  # of the roster; more callers than that are not shown
CALLER_CELLS: Final = 11
CALLER_MOST: Final = ((60, 24), (40, 16), (0, 11))  # from so many columns on; longer names are cut
# Name of the column, the member of the wire, from how many columns of a terminal on it is shown.
NUMBERS: Final = (
    ("RUNNING", "running", 0),
    ("QUEUED", "queued", 0),
    ("ENDED/H", "endedLastHour", 60),
    ("FAILED/H", "failedLastHour", 60),
    ("CONN", "connections", 80),
)
PLAIN_NAMES: Final = ("CALLER", "RUNNING", "QUEUED", "ENDED", "FAILED", "CONNECTIONS", "SEEN")

Entry = dict[str, Any]


@click.command(
    "callers",
    cls=Verb,
    help="Who works with the engine: what runs and waits for each, what ended and failed in the "
    "last hour (ENDED/H, FAILED/H), open connections, and when its last call came.",
)
@click.option("--no-header", is_flag=True, help="Rows only.")
@click.pass_context
def callers_verb(ctx: click.Context, /, no_header: bool) -> None:
    verb(_callers, ctx, no_header=no_header)


def _callers(app: App, *, no_header: bool) -> int:
    from engine.client.wire import to_json

    entries = read_roster(app, app.client(role="observer"))
    if app.json:
        for entry in entries:
            app.console.line(to_json(entry))
        return exits.DONE
    view = app.console.view()
    if not entries and view.is_terminal:
        app.console.line("no callers. engine run TEXT makes you one")
        return exits.DONE
    for line in caller_table(entries, view, header=not no_header):
        app.console.line(line)
    return exits.DONE


def read_roster(app: App, client: Any) -> list[Entry]:
    """All callers, by name. Raises `Refused` where the engine is too old to have a roster."""
    entries: list[Entry] = []
    for _ in range(PAGES):
        after = entries[-1]["name"] if entries else None
        page = client.call("roster", {"as": app.caller, "after": after})
        entries += page["callers"]
        if not page.get("hasMore"):
            break
    return entries


def caller_table(entries: list[Entry], view: View, *, header: bool = True) -> list[str]:
    """One line a caller, those with work first; on a terminal each fits the width."""
    ranked = sorted(entries, key=lambda e: (-e["running"], -e["queued"], e["name"]))
    return (_plain if view.width is None else _aligned)(ranked, view, header)


def _aligned(entries: list[Entry], view: View, header: bool) -> list[str]:
    width = view.width or 80
    longest = max((cells(safe(entry["name"])) for entry in entries), default=0)
    room = next(most for least, most in CALLER_MOST if width >= least)
    name_cells = min(room, max(CALLER_CELLS, longest))
    columns = [column for column in NUMBERS if width >= column[2]]
    lines = []
    if header:
        names = [pad("CALLER", name_cells), *(name for name, _, _ in columns), "SEEN"]
        lines.append(view.paint(view.cut("  ".join(names), width), "bold"))
    for entry in entries:
        name = pad(view.cut(safe(entry["name"]), name_cells), name_cells)
        fields = [
            _number(entry, member, len(column), view, marked=column == "FAILED/H")
            for column, member, _ in columns
        ]
        line = "  ".join([view.paint_caller(name, entry["name"]), *fields])
        used = name_cells + sum(2 + len(column) for column, _, _ in columns)
        lines.append(f"{line}  {view.cut(_seen(entry, view), max(0, width - used - 2))}".rstrip())
    return lines


def _number(entry: Entry, member: str, width: int, view: View, *, marked: bool) -> str:
    text = pad(view.number(entry[member]), width, right=True)
    return view.paint(text, "red") if marked and entry[member] else text


def _seen(entry: Entry, view: View) -> str:
    if entry.get("lastSeen") is None:
        return view.dash
    return units.age(units.since(entry["lastSeen"], view.now)) + " ago"


def _plain(entries: list[Entry], view: View, header: bool) -> list[str]:
    table = [list(PLAIN_NAMES)] if header else []
    for entry in entries:
        numbers = [str(entry[member]) for _, member, _ in NUMBERS]
        table.append([safe(entry["name"]), *numbers, entry.get("lastSeen") or "-"])
    widths = [max(map(cells, column)) for column in zip(*table, strict=True)]
    padded = [[pad(t, w) for t, w in zip(line, widths, strict=True)] for line in table]
    return ["  ".join(line).rstrip() for line in padded]


def callers_at_work(entries: list[Entry]) -> list[str]:
    """`build-agent 3`, `ci 1 (+2 queued)`, …, `4 idle`: for the engine at a glance."""
    busy = [e for e in entries if e["running"] or e["queued"]]
    busy.sort(key=lambda e: (-e["running"], -e["queued"], e["name"]))
    parts = []
    for entry in busy:
        waiting = f" (+{entry['queued']} queued)" if entry["queued"] else ""
        parts.append(f"{safe(entry['name'])} {entry['running']}{waiting}")
    idle = len(entries) - len(busy)
    return [*parts, f"{idle} idle"] if idle or not parts else parts
