"""The last lines that tasks have written, kept up to date while they run.

For each task one read waits at the end of its output; what came is read once a second at most.
"""

from __future__ import annotations

import re
import time
from typing import Any, Final

from engine.client.blocking import Client, Ticket
from engine.client.cursors import HOLD
from engine.client.errors import INVALID_PARAMS, Refused

TAIL: Final = 4_000  # bytes that are read of an output's end
REPORTED: Final = 64 << 10  # likewise, for a report
PAUSE: Final = 1.0  # seconds at least from one read of a task's output to the next
ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
)


def plain(text: str) -> str:
    """`text` as it ended up on a screen: without escape sequences, lines as last rewritten."""
    lines = (line.rstrip("\r") for line in ESCAPES.sub("", text).split("\n"))
    return "\n".join(line.rpartition("\r")[2] for line in lines)


def last_line(text: str) -> str:
    """The last line of `text` in which there is anything."""
    lines = [line.strip() for line in plain(text).split("\n")]
    return next((line for line in reversed(lines) if line), "")


def page_params(task_id: str, stream: str, offset: int, limit: int, hold: float) -> dict[str, Any]:
    """Of a read by nobody in particular."""
    return {
        "taskId": task_id,
        "stream": stream,
        "offset": offset,
        "limit_bytes": limit,
        "timeout_secs": hold,
    }


def read_tail(client: Client, task_id: str, *streams: str, limit: int = TAIL) -> str:
    """The end of a task's output as text, of its stdout where that is apart.

    `streams`: the end of the first of them that was kept, in its place. `limit`: bytes of it.
    """
    for stream in streams or ("output", "stdout"):
        try:
            page = client.call("read_output", page_params(task_id, stream, -limit, limit, 0.0))
        except Refused as exc:
            if exc.code != INVALID_PARAMS:
                return ""  # nothing was started, or it is dropped
        else:
            return plain(_from_a_line_on(page))
    return ""


def read_end(client: Client, row: dict[str, Any], *streams: str) -> str:
    """Likewise as much as a report has; empty where nothing was written."""
    if not row.get("outputBytes"):
        return ""
    return read_tail(client, row["taskId"], *streams, limit=REPORTED)


def _from_a_line_on(page: Any) -> str:
    """The text of a page, where it begins in mid-output from its first whole line on."""
    text: str = page["text"]
    rest = text.partition("\n")[2]
    return rest if page["offset"] and rest.strip() else text


class _Tail:
    def __init__(self) -> None:
        self.stream = "output"
        self.ticket: Ticket | None = None
        self.is_watch = False  # whether that one waits for more
        self.due = 0.0  # when to read, by the monotonic clock
        self.is_stale = True


class Tails:
    """`lines`: by task id."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tails: dict[str, _Tail] = {}
        self.lines: dict[str, str] = {}

    def follow(self, task_id: str) -> None:
        """Know the last line of this task from now on."""
        self._tails.setdefault(task_id, _Tail())

    def tend(self) -> None:
        """Ask for what is due."""
        now = time.monotonic()
        for task_id, tail in self._tails.items():
            if tail.is_stale and tail.ticket is None and now >= tail.due:
                tail.is_stale, tail.is_watch, tail.due = False, False, now + PAUSE
                params = page_params(task_id, tail.stream, -TAIL, TAIL, 0.0)
                tail.ticket = self._client.submit("read_output", params)

    def answered(self, ticket: Ticket, result: Any, error: Refused | None) -> bool:
        """Take an answer; False where it is none of ours."""
        for task_id, tail in self._tails.items():
            if tail.ticket is not None and tail.ticket.id == ticket.id:
                tail.ticket = None
                self._take(task_id, tail, result, error)
                return True
        return False

    def _take(self, task_id: str, tail: _Tail, page: Any, error: Refused | None) -> None:
        if error is not None:
            is_split = error.code == INVALID_PARAMS and tail.stream == "output"
            tail.stream, tail.is_stale = "stdout", is_split
            tail.due = 0.0
        elif tail.is_watch:
            tail.is_stale = True  # there is more, or the end of it
        else:
            self.lines[task_id] = last_line(page["text"]) or self.lines.get(task_id, "")
            if not page["eof"]:
                tail.is_watch = True
                params = page_params(task_id, tail.stream, page["size"], 4, HOLD)
                tail.ticket = self._client.submit("read_output", params, budget=HOLD)
