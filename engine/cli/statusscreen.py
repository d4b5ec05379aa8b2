"""The screen of `engine status`, as a list of lines. Pure."""

from __future__ import annotations

from typing import Any

from engine.cli import units
from engine.cli.view import View, cells, pad, safe

LABEL_CELLS = 11
FACT_CELLS = 28


def status_lines(info: dict[str, Any], url: str, pid: int | None, view: View) -> list[str]:
    """The engine at a glance: what is wrong first, then what it is, does and holds."""
    lines = [(safe(_problem(p)), "red") for p in info.get("degraded") or ()]
    head = f"engine {info['version']}   {url}"
    head += f"   pid {pid}" if pid is not None else ""
    head += f"   up {units.duration(units.since(info['startedAt'], view.now))}"
    lines.append((head, "bold"))
    lines.extend((f"{pad(name, LABEL_CELLS)}{text}", "") for name, text in _facts(info, view))
    width = view.width
    cut = [(t if width is None or cells(t) <= width else view.cut(t, width), c) for t, c in lines]
    return [view.paint(text, colour) if colour else text for text, colour in cut]


def _problem(problem: Any) -> str:
    """A degradation in words; the engine sends text, or an object with a message."""
    if isinstance(problem, dict):
        return str(problem.get("message") or problem.get("what") or problem)
    return str(problem)


def _facts(info: dict[str, Any], view: View) -> list[tuple[str, str]]:
    facts = [("slots", _slots(info, view))]
    lanes = info.get("lanes") or {}
    if lanes:
        facts.append(("lanes", f" {view.dot} ".join(_lane(n, lane) for n, lane in lanes.items())))
    facts.append(("callers", units.number(info.get("callers") or 0)))
    pending = info.get("requestsPending") or 0
    if pending:
        verb = "waits" if pending == 1 else "wait"
        oldest = units.age(info.get("oldestRequestMs") or 0)
        facts.append(("requests", f"{pending} {verb} for a person, oldest {oldest}"))
    if info.get("modeOwner"):
        facts.append(("mode", f"exclusive to {safe(info['modeOwner'])}"))
    stored = units.size(info.get("outputBytes") or 0)
    cap = (info.get("limits") or {}).get("total_output_cap_bytes")
    stored += f" of {units.size(cap)}" if isinstance(cap, int) else ""
    disk = info.get("diskFreeBytes")
    free = f"disk {units.size(disk)} free" if isinstance(disk, int) else ""
    facts.append(("output", (pad(stored, FACT_CELLS) + free).rstrip()))
    facts.append(("journal", _journal(info)))
    return facts


def _slots(info: dict[str, Any], view: View) -> str:
    parts = [f"{info['running']} of {info['slots']} running"]
    if info.get("queued"):
        oldest = info.get("oldestQueuedMs")
        age = f", oldest {units.age(oldest)}" if oldest is not None else ""
        parts.append(f"{info['queued']} queued{age}")
    if info.get("held"):
        parts.append(f"{info['held']} held")
    return f" {view.dot} ".join(parts)


def _lane(name: str, lane: dict[str, Any]) -> str:
    text = f"{safe(name)} {lane['running']} of {lane['limit']}"
    return text + (f", {lane['queued']} queued" if lane.get("queued") else "")


def _journal(info: dict[str, Any]) -> str:
    lines = f"{units.number(info.get('journalLines') or 0)} lines"
    store = "store degraded" if info.get("degraded") else "store ok"
    policy = info.get("policy") or "none"
    return pad(lines, FACT_CELLS) + f"{store}   policy {policy}"
