"""Where a reader is in an output or in the journal: what to ask for next, what a page means.

Pure, and the same over reconnects: a page that is asked for again begins where the last one that
came had ended, so nothing is read twice and nothing is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from engine.client.errors import RpcError
from engine.client.wire import Params

if TYPE_CHECKING:
    from engine.protocol.results import OutputPage

PAGE: Final = 524_288  # bytes asked for at once; the engine ends a page where its JSON is full
LINES: Final = 1000  # lines asked for at once, the most that the engine gives
HOLD: Final = 20.0  # seconds that the engine holds a read of output, or a wait
LOGS_HOLD: Final = 55.0  # seconds that it holds a read of the journal or of the list of tasks
OUTPUT_GONE: Final = -32010


class OutputPlace(NamedTuple):
    """What a cursor looks at in a page of output; a decoded `OutputPage` has it, too."""

    offset: int
    next_offset: int
    size: int
    eof: bool


def place_of(page: dict[str, Any]) -> OutputPlace:
    """The same of a page as it came on the wire."""
    return OutputPlace(page["offset"], page["nextOffset"], page["size"], page["eof"])


class OutputCursor:
    """One stream of a task, from its first byte to its end."""

    def __init__(self, task_id: str, stream: str = "output", *, offset: int = 0) -> None:
        self.task_id = task_id
        self.stream = stream
        self.offset = offset
        self.gone = 0  # bytes that the engine had dropped before they were read
        self.is_done = False

    def params(self, hold: float) -> Params:
        """Of `read_output`: the next page, for whose first byte the engine waits `hold` seconds."""
        return {
            "taskId": self.task_id,
            "stream": self.stream,
            "raw": True,
            "offset": self.offset,
            "limit_bytes": PAGE,
            "timeout_secs": hold,
        }

    def take(self, data: bytes, page: OutputPlace | OutputPage, *, has_ended: bool) -> bytes:
        """The bytes of a page; `is_done` is set when no more is to come.

        A task that has ended is read to the size that the page names and no further: what it left
        behind may write for ever.
        """
        self.gone += max(0, page.offset - self.offset)
        self.offset = page.next_offset
        self.is_done = page.eof or (has_ended and self.offset >= page.size)
        return data

    def skip(self, error: RpcError) -> None:
        """Go on where the kept bytes begin. Raises `error` where it is about something else."""
        oldest = error.data.get("oldestOffset")
        if error.code != OUTPUT_GONE or not isinstance(oldest, int) or oldest <= self.offset:
            raise error
        self.gone += oldest - self.offset
        self.offset = oldest


class LogCursor:
    """A place in the journal, of the reader's own: it moves nobody's read position."""

    def __init__(self, after_seq: int) -> None:
        self.after_seq = after_seq

    def params(self, hold: float) -> Params:
        """Of `read_logs`: the next page, for whose first line the engine waits `hold` seconds."""
        return {
            "after_seq": self.after_seq,
            "peek": True,
            "limit": LINES,
            "timeout_secs": hold,
        }

    def take(self, next_after_seq: int) -> None:
        """Go on after the page that named this place."""
        self.after_seq = next_after_seq
