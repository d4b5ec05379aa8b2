"""The screen of `engine status`, as a list of lines. Pure."""

from __future__ import annotations

from typing import Any, Final

from engine.cli import units
from engine.cli.callers import callers_at_work
from engine.cli.view import View, cells, pad, safe

LABEL_CELLS: Final = 11
FACT_CELLS: Final = 28
CALLERS: Final = 5  # that are named
# What became of the tasks of the last hour; the first two are always told.
ENDS: Final = ("succeeded", "failed", "cancelled", "timed_out", "lost", "skipped", "denied")

Info = dict[str, Any]


def status_lines(
    info: Info,
    url: str,
    pid: int | None,
    view: View,
    *,
    roster: list[Info] | None = None,
    hour: Info | None = None,
) -> list[str]:
    """The engine at a glance: what is wrong first, then what it is, does and holds.

    `roster` and `hour` (the last hour's numbers) are None where the engine does not tell them.
    """
    lines = [(line, "red") for p in problems(info) for line in view.fold(safe(p))]
    up = units.duration(units.since(info["startedAt"], view.now))
    head = [f"engine {info['version']}", url, *([f"pid {pid}"] if pid is not None else [])]
    lines += [(line, "bold") for line in view.pack([*head, f"up {up}"], "   ")]
    lines += [(line, "") for line in _facts(info, view, roster)]
    lines += [(line, "") for line in _hour(hour, view)]
    lines += [(line, "") for line in _stores(info, view)]
    return [view.paint(text, colour) if colour else text for text, colour in lines]


def problems(info: Info) -> list[str]:
    """What is wrong with the engine, in words."""
    found = [str(problem) for problem in info.get("degraded") or ()]
    disk, least = info.get("diskFreeBytes"), (info.get("limits") or {}).get("min_free_bytes")
    if isinstance(disk, int) and isinstance(least, int) and disk < least:
        found.append(f"disk {units.size(disk)} free: new jobs are refused")
    if info.get("policy") == "invalid":
        found.append("the policy file does not parse: every call is held")
    return found


def _listed(label: str, parts: list[str], view: View) -> list[str]:
    """`label`, and `parts` with dots between them; what does not fit goes on below."""
    room = None if view.width is None else view.width - LABEL_CELLS
    texts = view.pack(parts, f" {view.dot} ", room)
    labels = [label, *("" for _ in texts[1:])]
    return [pad(name, LABEL_CELLS) + text for name, text in zip(labels, texts, strict=True)]


def _pair(label: str, text: str, other: str, rest: str, view: View) -> list[str]:
    """Two facts side by side, `other` naming the second; below each other where that is wider."""
    line = f"{pad(label, LABEL_CELLS)}{pad(text, FACT_CELLS)}{other} {rest}".rstrip()
    if not rest:
        return _listed(label, [text], view)
    if view.width is None or cells(line) <= view.width:
        return [line]
    return [*_listed(label, [text], view), *_listed(other, [rest], view)]


def _facts(info: Info, view: View, roster: list[Info] | None) -> list[str]:
    lines = _listed("slots", _slots(info), view)
    lanes = info.get("lanes") or {}
    if lanes:
        lines += _listed("lanes", [_lane(name, lane) for name, lane in lanes.items()], view)
    if roster is None:
        callers = [view.number(info.get("callers") or 0)]
    else:
        callers = callers_at_work(roster)
        if len(callers) > CALLERS + 1:
            hidden = callers[CALLERS:-1]
            callers = [*callers[:CALLERS], f"{len(hidden)} more", callers[-1]]
    lines += _listed("callers", callers, view)
    pending = info.get("requestsPending") or 0
    if pending:
        verb = "waits" if pending == 1 else "wait"
        oldest = units.age(info.get("oldestRequestMs") or 0)
        lines += _listed("requests", [f"{pending} {verb} for a person, oldest {oldest}"], view)
    if info.get("modeOwner"):
        lines += _listed("mode", [f"exclusive to {safe(info['modeOwner'])}"], view)
    return lines


def _slots(info: Info) -> list[str]:
    parts = [f"{info['running']} of {info['slots']} running"]
    if info.get("queued"):
        oldest = info.get("oldestQueuedMs")
        age = f", oldest {units.age(oldest)}" if oldest is not None else ""
        parts.append(f"{info['queued']} queued{age}")
    if info.get("held"):
        parts.append(f"{info['held']} held")
    return parts


def _lane(name: str, lane: Info) -> str:
    text = f"{safe(name)} {lane['running']} of {lane['limit']}"
    return text + (f", {lane['queued']} queued" if lane.get("queued") else "")


def _hour(hour: Info | None, view: View) -> list[str]:
    """What ended in the last hour and how long it took; nothing where the engine is silent."""
    if hour is None:
        return []
    ended = hour["ended"]
    if not any(ended.values()):
        return _listed("last hour", ["nothing ended"], view)
    told = [end for end in ENDS if ended.get(end) or end in ENDS[:2]]
    counts = [f"{view.number(ended.get(e, 0))} {e.replace('_', ' ')}" for e in told]
    times = [
        f"{name} {units.duration(hour[member])}"
        for name, member in (("p50", "p50Ms"), ("p95", "p95Ms"))
        if hour.get(member) is not None
    ]
    lines = _listed("last hour", counts, view)
    if times:
        launch = hour.get("launchP95Ms")
        rest = f"p95 {units.duration(launch)}" if launch is not None else ""
        lines += _pair("time", f" {view.dot} ".join(times), "launch", rest, view)
    return lines


def _stores(info: Info, view: View) -> list[str]:
    stored = units.size(info.get("outputBytes") or 0)
    cap = (info.get("limits") or {}).get("total_output_cap_bytes")
    stored += f" of {units.size(cap)}" if isinstance(cap, int) else ""
    disk = info.get("diskFreeBytes")
    free = f"{units.size(disk)} free" if isinstance(disk, int) else ""
    lines = info.get("journalLines") or 0
    count = f"{view.number(lines)} {'line' if lines == 1 else 'lines'}"
    state = "degraded" if info.get("degraded") else "ok"
    policy = f"{state}   policy {info.get('policy') or 'none'}"
    return [
        *_pair("output", stored, "disk", free, view),
        *_pair("journal", count, "store", policy, view),
    ]
