"""The screens about tasks, as lists of lines: one task, waits. Pure: no clock, no engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from engine.cli import exits, units, words
from engine.cli.view import View, cells, pad, safe
from engine.client.places import tilde

Row = dict[str, Any]

TIME_CELLS: Final = 6
ROW_STATUS_CELLS: Final = 11  # of a live row
NEWS_CELLS: Final = 19  # `output 3s ago` at the end of a live row
LABEL_CELLS: Final = 11
FACT_CELLS: Final = 17
COMMAND_LINES: Final = 10  # of a long command, on a terminal
VALUE_LINES: Final = 10  # of the terminal that the value of code may fill
LONGEST_FACT: Final = 5  # lines of the terminal that one line of a command may fill
REPLY_ERRORS: Final = 49  # that a reply carries of its task, beside the word on its end
ERROR_LEVELS: Final = frozenset(("error", "critical", "alert", "emergency"))


def took(row: Row, view: View) -> str:
    """How long it ran, or runs by now; empty before its start."""
    if row.get("durationMs") is not None:
        return units.duration(row["durationMs"])
    started = row.get("startedAt")
    return units.duration(units.since(started, view.now)) if started else ""


def one_wait(row: Row, record: Row, view: View) -> list[str]:
    """What a person needs to know when one task has ended, its error lines under a failure."""
    took = units.duration(record.get("durationMs") or 0)
    head = f"{words.handle(record)}  {words.outcome(record)}, {took}"
    title = view.cut(safe(row["title"]), max(0, (view.width or 80) - cells(head) - 4))
    painted = view.paint_status(words.outcome(record), record["status"])
    lines = [f"{view.glyph(record['status'])} {words.handle(record)}  {painted}, {took}  {title}"]
    if record["status"] == "succeeded":
        return [lines[0].rstrip(), *value_lines(record, view)]
    errors = [e for e in record.get("logs") or () if _is_error_of(e, record)]
    if errors:
        noun = "line" if len(errors) == 1 else "lines"
        is_more = len(errors) >= REPLY_ERRORS and record.get("logsDropped")
        lines.append(f"  {len(errors)}{'+' if is_more else ''} error {noun}:")
        lines.extend(error_line(e, view) for e in errors[-5:])
    total = record.get("outputBytes") or 0
    if total:
        name = words.handle(record)
        lines.append(
            view.cut(f"  engine output {name}   shows all {units.size(total)}", view.width or 80)
        )
    return [line.rstrip() for line in lines]


def value_lines(record: Row, view: View) -> list[str]:
    """What the last expression of code was, under the line on its end; nothing where none is."""
    if record.get("value") is None:
        return []
    text = f"  value: {safe(str(record['value']))}"
    return [text if view.width is None else view.cut(text, VALUE_LINES * view.width)]


def _is_error_of(entry: Row, record: Row) -> bool:
    """Whether it is a line of the job: the engine's word on its end says no more than the head."""
    is_own = entry.get("taskId") == record.get("taskId") and entry.get("source") != "engine"
    return entry.get("level") in ERROR_LEVELS and is_own


def error_line(entry: Row, view: View) -> str:
    """A journal line under a task, cut to the width."""
    time = units.clock(entry["time"], view.now, view.zone)
    text = f"  {time}  {safe(entry['text'])}"
    return text if view.width is None else view.cut(text, view.width)


def live_row(row: Row, view: View) -> str:
    """One task of several that are waited for, as it stands."""
    # What it is blocked on stands at the end of the line.
    status = view.cut(words.short_status({**row, "blockedOn": None}), ROW_STATUS_CELLS)
    look = words.look(row)
    head = f"{view.glyph(look)} {words.handle(row)}  "
    head += view.paint_status(status, look) + " " * (ROW_STATUS_CELLS - cells(status))
    head += "  " + pad(took(row, view), TIME_CELLS, right=True) + "  "
    left = (view.width or 80) - 2 - cells(words.handle(row)) - 2 - ROW_STATUS_CELLS - 2
    left -= TIME_CELLS + 2
    if words.is_waiting(row):
        return (head + view.cut(safe(row.get("queueReason") or row["title"]), left)).rstrip()
    if row.get("blockedOn"):
        return (head + view.cut(safe(words.blocked(row)), left)).rstrip()
    title = safe(row["title"])
    if row["status"] == "running" and row.get("lastOutputAt") and left >= NEWS_CELLS + 12:
        room = left - NEWS_CELLS - 2
        ago = units.age(units.since(row["lastOutputAt"], view.now))
        return head + pad(view.cut(title, room), room) + f"  output {ago} ago"
    return (head + view.cut(title, left)).rstrip()


def live_block(rows: list[Row], view: View, height: int) -> list[str]:
    """The block for tasks that are waited for: at most `height` lines, what matters first."""
    ended = sum(r["status"] in exits.ENDED for r in rows)
    shown = foremost(rows, max(1, height - 1))
    lines = [live_row(row, view) for row in shown]
    if len(shown) < len(rows):
        lines.append(f"  +{len(rows) - len(shown)} more")
    foot = f"{ended} of {len(rows)} ended"
    if ended < len(rows):
        way_out, comfort = f" {view.dot} Ctrl-C stops waiting", ", the tasks go on"
        foot += way_out
        foot += comfort if cells(foot + comfort) <= (view.width or 80) else ""
    return [*lines, view.paint(view.cut(foot, view.width or 80), "dim")]


def foremost(rows: list[Row], room: int) -> list[Row]:
    """Those of `rows`, in their order, that `room` lines show, one kept for how many more."""
    if len(rows) <= room:
        return rows
    rank = {"failed": 0, "timed_out": 0, "lost": 0, "running": 1}
    best = sorted(enumerate(rows), key=lambda pair: rank.get(words.look(pair[1]), 2))
    return [row for _, row in sorted(best[: room - 1], key=lambda pair: pair[0])]


def one_task(row: Row, view: View, errors: Sequence[Row] = ()) -> list[str]:
    """Everything about one task, its newest error lines; to a pipe, a field or line a line."""
    if view.width is None:
        return _fields(row, errors)
    width = view.width
    status = words.outcome(row) if not words.is_waiting(row) else words.waiting(row)
    time = took(row, view)
    head = view.paint_status(safe(status), words.look(row)) + (f", {time}" if time else "")
    lines = [f"{view.glyph(words.look(row))} {words.handle(row)}  {head}"]
    counted = row.get("errorLines")
    if counted is not None:  # the job's alone; the engine's word on its end is listed with them
        counted += sum(e.get("source") == "engine" for e in errors)
    for label, facts in _facts({**row, "errorLines": counted}, view):
        lines += _fact_lines(label, facts, view, width)
    if errors:
        counted = counted or 0
        more = f"the newest {len(errors)} of {counted:,}" if counted > len(errors) else ""
        lines.append(f"  {pad('errors', LABEL_CELLS)}{more}".rstrip())
        lines.extend(error_line(e, view) for e in errors)
    return lines


def _fact_lines(label: str, facts: list[str], view: View, width: int) -> list[str]:
    """Facts side by side; below each other where they do not fit.

    One that stands alone is left to the terminal to wrap, so that a path can be copied whole.
    """
    text = "".join(pad(f, FACT_CELLS) for f in facts[:-1]) + facts[-1]
    room = width - 2 - LABEL_CELLS
    if len(facts) == 1:
        texts = [view.cut(text, LONGEST_FACT * width)]
    elif cells(text) <= room:
        texts = [text]
    else:
        texts = view.pack([part for fact in facts for part in fact.split("   ")], "   ", room)
    labels = [label, *("" for _ in texts[1:])]
    pairs = zip(labels, texts, strict=True)
    return [f"  {pad(name, LABEL_CELLS)}{line}".rstrip() for name, line in pairs]


def _facts(row: Row, view: View) -> list[tuple[str, list[str]]]:
    command = (row.get("command") or row["title"]).split("\n")
    if len(command) > COMMAND_LINES:
        command = [*command[:COMMAND_LINES], f"(and {len(command) - COMMAND_LINES} lines more)"]
    facts = [("command" if i == 0 else "", [safe(text)]) for i, text in enumerate(command)]
    more = f"session {'yes' if row.get('session') else 'no'}   lane {row.get('lane') or view.dash}"
    if row.get("roundId"):
        more += f"   round {row['roundId']} seat {row.get('seat') or view.dash}"
    facts.append(("caller", [safe(row["as"]), more]))
    if row.get("after"):
        facts.append(("after", [" ".join(row["after"])]))
    if row.get("blockedOn") and not words.is_waiting(row):
        facts.append(("blocked", [safe(words.blocked(row))]))
    if row.get("cwd"):
        facts.append(("cwd", [safe(tilde(row["cwd"]))]))
    facts.append(("created", _times(row, view)))
    cpu = row.get("cpuMs")
    errors, warnings = (
        view.dash if (count := row.get(name)) is None else f"{count:,}"
        for name in ("errorLines", "warningLines")
    )
    counts = f"errors {errors}  warnings {warnings}"
    output = f"output {units.size(row.get('outputBytes') or 0)}"
    facts.append(("cpu", [view.dash if cpu is None else units.tenths(cpu), output, counts]))
    if row.get("value") is not None:
        facts.append(("value", [safe(str(row["value"]))]))
    if row.get("droppedBytes"):
        facts.append(("dropped", [units.size(row["droppedBytes"])]))
    facts.extend(("output", [safe(tilde(path))]) for path in paths(row.get("outputPath")))
    facts.extend(
        ("survivor", [f"{s['pid']}  {safe(s['command'])}"]) for s in row.get("survivors") or ()
    )
    return facts


def paths(value: Any) -> list[str]:
    """The files in an `outputPath`: one text, or several in a list or an object."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [str(v) for v in value.values()]
    return [str(v) for v in value] if isinstance(value, list) else []


def _times(row: Row, view: View) -> list[str]:
    times = [units.clock(row["createdAt"], view.now, view.zone)]
    if row.get("startedAt"):
        gap = units.since(row["createdAt"], units.parse_time(row["startedAt"]))
        times.append(f"started +{gap}ms" if gap < 1000 else f"started +{units.duration(gap)}")
    if row.get("endedAt"):
        times.append(f"ended {units.clock(row['endedAt'], view.now, view.zone)}")
    return times


def _fields(row: Row, errors: Sequence[Row]) -> list[str]:
    from engine.client.wire import to_json

    width = max(map(len, row))
    shown = {k: safe(v) if isinstance(v, str) else to_json(v) for k, v in row.items()}
    lines = [f"{pad(name, width)}  {text}" for name, text in shown.items()]
    return [*lines, *(f"{pad('error', width)}  {e['time']} {safe(e['text'])}" for e in errors)]
