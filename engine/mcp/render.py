"""What a model is shown of a result: a text, and the same as an object, with the long part once.

Some clients hand their model the content of a result, others the structured content in its place,
none both. So the long texts stand where the client's model sees them, and the other side is short.
Pure: results of the wire in, `Shown` out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from engine.mcp.tools import OUTPUT_BYTES

Result = dict[str, Any]

LOGS_CHARS: Final = 4_000  # of log lines in the result of another tool
PAGE_CHARS: Final = 16_000  # of log lines in a page of them
LINE_MIN_CHARS: Final = 200
TEXTS: Final = ("output", "stdout", "stderr")
# Members that say nothing where they are zero or empty.
DULL: Final = frozenset(
    (
        *("survivors", "notices", "warnings", "logs", "logsDropped"),
        *("omittedBytes", "omittedLines", "droppedBytes"),
    )
)
# The clients whose models see the structured content alone, by the beginnings of their names.
STRUCTURED_READERS: Final = ("claude-code", "codex", "copilot", "github-copilot", "visual studio")


class Shown(NamedTuple):
    text: str
    facts: Result


def reads_structured(client: str) -> bool:
    """Whether the models of the client of this name see structured content in place of content."""
    return client.lower().startswith(STRUCTURED_READERS)


def show(tool: str, result: Result, *, structured: bool) -> Shown:
    """`result` of the method as the client's model is to have it."""
    whole = _trim(tool, telling(result))
    long = _LONG.get(tool, ())
    if structured:
        return Shown(_headline(tool, whole), whole)
    words = _TEXT.get(tool)
    text = json.dumps(whole, ensure_ascii=False) if words is None else words(whole)
    facts = _without(whole, long)
    return Shown(text, facts if facts == whole else {**facts, "textIn": "content"})


def telling(value: Any) -> Any:
    """`value` without the members that are null, or dull, at any depth."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if v is not None and (v or k not in DULL)}
        return {k: telling(v) for k, v in kept.items()}
    return [telling(each) for each in value] if isinstance(value, list) else value


def _trim(tool: str, result: Result) -> Result:
    """Bring what the wire does not bound for us down to a model's measure."""
    if "logs" in result:
        result["logs"] = _trim_lines(result["logs"], LOGS_CHARS)
    if tool == "read_logs":
        result["lines"] = _trim_lines(result["lines"], PAGE_CHARS)
    if tool == "wait_any":
        ends = [*result["updates"], *(s for r in result["rounds"] for s in r["seats"].values())]
        given = [(end, name) for end in ends for name in TEXTS if end.get(name)]
        share = OUTPUT_BYTES // max(1, len(given))
        for end, name in given:
            end[name] = cut_middle(end[name], share)
        logged = [end for end in ends if end.get("logs")]
        for end in logged:
            end["logs"] = _trim_lines(end["logs"], LOGS_CHARS // len(logged))
    return result


def _trim_lines(lines: list[Result], room: int) -> list[Result]:
    """`lines`, of which each has an equal share of the room; where that is too little the newest
    stay."""
    most = max(1, room // LINE_MIN_CHARS)
    kept = lines[-most:]
    share = room // max(1, len(kept))
    cut = [
        {**line, "text": line["text"][:share] + "…", "cut": True}
        if len(line["text"]) > share
        else line
        for line in kept
    ]
    left = len(lines) - len(kept)
    if left:
        text = f"<{left} older lines left out; read_logs has them>"
        cut.insert(0, {"marker": True, "leftOut": left, "text": text})
    return cut


def cut_middle(text: str, room: int) -> str:
    """The two ends of a text that is longer than `room`, cut at line ends where there are some."""
    if len(text) <= room:
        return text
    half = room // 2
    head, tail = text[:half], text[-half:]
    head = head[: head.rfind("\n") + 1] or head
    tail = tail[tail.find("\n") + 1 :] or tail
    left = len(text) - len(head) - len(tail)
    return f"{head.rstrip()}\n<{left} characters left out; read_output has them>\n{tail}"


def _without(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {k: _without(v, names) for k, v in value.items() if k not in names}
    return [_without(each, names) for each in value] if isinstance(value, list) else value


# The texts.


def _headline(tool: str, result: Result) -> str:
    """One line, for a client that shows its user the content."""
    if "status" in result and "kickoffId" in result:
        return _stand(result)
    if tool == "wait_any":
        return _summary(result)
    return f"{tool}: see the structured content"


_STANDS: Final = {
    "exitCode": "exit {}",
    "signal": "by {}",
    "durationMs": "{} ms",
    "elapsedMs": "{} ms so far",
    "cwd": "cwd {}",
}


def _stand(result: Mapping[str, Any]) -> str:
    """How a task stands, in a line: `t8f3kr9 failed, exit 2, 1250 ms`."""
    words = [f"{result.get('taskId') or result['kickoffId']} {result['status']}"]
    words += [form.format(result[name]) for name, form in _STANDS.items() if name in result]
    if result.get("reason") not in (None, "exit", "signal"):
        words.append(f"reason {result['reason']}")
    if "queuePosition" in result:
        words.append(f"place {result['queuePosition']} in the queue: {result['queueReason']}")
    return ", ".join(words)


def _reply(result: Result) -> str:
    parts = [_stand(result)]
    for name in TEXTS:
        if text := result.get(name):
            parts.append(text.rstrip("\n") if name == "output" else f"{name}:\n{text.rstrip()}")
    if "value" in result:
        parts.append(f"value: {result['value']}")
    if "error" in result:
        parts.append(f"error: {result['error'].get('message')}")
    if omitted := result.get("omittedBytes"):
        parts.append(f"{omitted} of {result['outputBytes']} bytes left out; read_output has them")
    if left := result.get("survivors"):
        parts.append("still running: " + ", ".join(f"{p['pid']} {p['command']}" for p in left))
    if "cwdMissing" in result:
        parts.append(f"cwd was missing: {result['cwdMissing']}")
    if result.get("sessionReset"):
        parts.append("the session was lost: names and imports are gone")
    if "blockedOn" in result:
        parts.append(f"blocked on {json.dumps(result['blockedOn'], ensure_ascii=False)}")
    parts += [*result.get("warnings", []), *_one(result.get("hint")), *_logs(result)]
    return "\n".join([*parts, *_notices(result)])


def _one(text: str | None) -> list[str]:
    return [text] if text else []


def _logs(result: Result) -> list[str]:
    return ["log lines:", *map(_line, result["logs"])] if result.get("logs") else []


def _notices(result: Result) -> list[str]:
    ends = [
        f"{end.get('taskId') or end.get('roundId')} {end['status']}"
        for end in result.get("notices", [])
    ]
    return [f"ended meanwhile (wait_any has them): {', '.join(ends)}"] if ends else []


def _line(line: Result) -> str:
    if line.get("marker"):
        return str(line["text"])
    whose = " ".join(str(line[k]) for k in ("taskId", "caller") if k in line) or "engine"
    return f"{line['seq']} {line['level']} [{whose}] {line['text']}"


def _summary(result: Result) -> str:
    pending = result["pending_ids"]
    words = f"{result['reason']}; all_finished {str(result['all_finished']).lower()}"
    shown = ", ".join(pending[:20]) + ", …" * (len(pending) > 20)
    return f"{words}; pending: {shown}" if pending else words


def _many(result: Result) -> str:
    parts = [_summary(result)]
    for update in result["updates"]:
        why = update.get("ready")
        why = f" ({why})" if why not in (None, "ended") else ""
        parts.append(f"--- {update['id']}{why}")
        parts += _one(update.get("prompt"))
        parts.append(_reply(update))
    for round_ in result["rounds"]:
        parts.append(f"--- round {round_['roundId']}: {round_.get('ready') or 'goes on'}")
        parts += round_.get("warnings", [])
        for name, seat in round_["seats"].items():
            handle = seat.get("taskId") or seat.get("kickoffId") or ""
            parts.append(f"- seat {name}: " + _reply({"kickoffId": handle, **seat}))
    return "\n".join([*parts, *_notices(result)])


def _page(result: Result) -> str:
    text = str(result.get("text", result.get("base64", "")))
    where = f"bytes {result['offset']} to {result['nextOffset']} of {result['size']}"
    return f"{where}, eof {str(result['eof']).lower()}\n{text}"


def _tasks(result: Result) -> str:
    rows = [f"{_stand(row)}: {row.get('title', '')}" for row in result["tasks"]]
    more = f"more: before {result.get('next')}" if result.get("hasMore") else None
    return "\n".join([*(rows or ["no tasks"]), *_one(more)])


def _lines(result: Result) -> str:
    lines = [_line(line) for line in result["lines"]] or ["no new lines"]
    end = f"next after_seq {result['nextAfterSeq']}, hasMore {str(result['hasMore']).lower()}"
    return "\n".join([*lines, end])


_OF_REPLY: Final = (*TEXTS, "logs")
_LONG: Final = {
    "bash": _OF_REPLY,
    "execute": _OF_REPLY,
    "wait": _OF_REPLY,
    "wait_any": _OF_REPLY,
    "read_output": ("text", "base64"),
    "list_tasks": ("tasks",),
    "read_logs": ("lines",),
    "roster": ("callers",),
}
_TEXT: Final[dict[str, Callable[[Result], str]]] = {
    "bash": _reply,
    "execute": _reply,
    "wait": _reply,
    "wait_any": _many,
    "read_output": _page,
    "list_tasks": _tasks,
    "read_logs": _lines,
}
