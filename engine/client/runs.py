"""One job from its first call to its end, however long: what to ask next, what an answer means.

Pure: a face asks what `begin` and `take` give, side by side, hands the answers in as they come and
delivers the pieces of output. The first call carries a key, so it may be repeated and never runs
anything twice; the output is read by a cursor, so it is exact over any number of connections.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from engine.client import requests
from engine.client.cursors import HOLD, LOGS_HOLD, OutputCursor
from engine.client.errors import ClientError, RpcError
from engine.client.following import page_of_output
from engine.client.requests import INLINE, Reply
from engine.client.typed import Request
from engine.protocol.results import Cancelled, Finished, OutputPage, Running, TaskDetails, TaskPage

T = TypeVar("T")

SHORT: Final = 0.25  # seconds: a job that ends within it comes in one answer
ROWS: Final = 500  # the most that a page of the task list has
_WAITING: Final = ("queued", "held")


class Piece(NamedTuple):
    """Bytes of one stream: `output`, `stdout` or `stderr`."""

    stream: str
    data: bytes


class About(enum.Enum):
    """What a run asks about. At most one of each is in flight, and one page of each stream."""

    START = enum.auto()
    HANDLE = enum.auto()  # the same call under the same key: it tells the handle meanwhile
    END = enum.auto()
    ROW = enum.auto()  # of a call that waits for its turn
    PAGE = enum.auto()


class Ask(NamedTuple):
    request: Request[Any]
    about: About
    cursor: OutputCursor | None = None


def takers(on_output: T | None, on_stderr: T | None, options: Mapping[str, Any]) -> dict[str, T]:
    """Who takes the pieces of which stream: of the merged one, or of the two apart."""
    is_split = on_stderr is not None or options.get("streams") == "split"
    named = {"stdout" if is_split else "output": on_output, "stderr": on_stderr}
    return {stream: taker for stream, taker in named.items() if taker is not None}


class Run:
    """`result` is there when the job has ended, `is_done` when its output has been read too."""

    def __init__(
        self,
        what: str | Sequence[str],
        options: Mapping[str, Any],
        *,
        caller: str,
        streams: tuple[str, ...] = (),
    ) -> None:
        """`what`: bash text, or an argument list. `streams`: of which the output is wanted."""
        self.result: Finished | None = None
        self.task_id: str | None = None
        self.kickoff_id: str | None = None
        self._what = what
        self._caller = caller
        self._streams = streams
        key = options.get("key") or "run-" + os.urandom(16).hex()
        split = {"streams": "split"} if {"stdout", "stderr"} & set(streams) else {}
        self._options = {"session": False, **options, **split, "as_": caller, "key": key}
        shared = ("max_output_bytes", "logs", "log_scope")
        self._about_replies = {n: options[n] for n in shared if n in options}
        self._cursors: list[OutputCursor] = []
        self._is_watching = False  # whether a row is awaited
        self._pieces: list[Piece] = []

    @property
    def is_done(self) -> bool:
        return self.result is not None and all(cursor.is_done for cursor in self._cursors)

    def pieces(self) -> list[Piece]:
        """The output that has come since the last look."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def begin(self) -> list[Ask]:
        """What to ask first.

        Where the output is wanted, the call must not hold it back: it is answered soon. But a
        call within the caller's session has to stay for as long as it may, or the session would
        not keep what it did; there a repeat tells the handle.
        """
        if not self._streams:
            return [Ask(self.start(INLINE), About.START)]
        if not self._options["session"]:
            return [Ask(self.start(SHORT), About.START)]
        # The repeat has a budget, too: whichever comes first, no call has ended before the other.
        return [Ask(self.start(INLINE), About.START), Ask(self.start(SHORT), About.HANDLE)]

    def start(self, budget: float) -> Request[Reply]:
        """The call that starts the job, or repeats that: always the same task."""
        options = {**self._options, "timeout_secs": budget}
        if isinstance(self._what, str):
            return requests.bash(self._what, **options)
        return requests.execute(self._what, **options)

    def cancel(self) -> Request[Cancelled]:
        """The call that ends the job; its handle must be known."""
        return requests.cancel(task_id=self.task_id, kickoff_id=self._unreached, as_=self._caller)

    def take(self, ask: Ask, result: Any, error: ClientError | None) -> list[Ask]:
        """What to ask next, after the answer to `ask`. Raises `error` unless it can be lived with.

        Look at `pieces` before asking: so whoever takes them sets the pace.
        """
        if ask.cursor is not None:
            return self._paged(ask.cursor, result, error)
        if error is not None:
            raise error
        if ask.about is About.ROW:
            return self._moved(result)
        return self._told(result, is_last=ask.about is not About.HANDLE)

    def _told(self, reply: Reply, *, is_last: bool) -> list[Ask]:
        """How things stand. `is_last`: no other call will tell of the end."""
        if self.result is not None:
            return []
        self.kickoff_id = reply.kickoff_id
        if isinstance(reply, Finished):
            self.result = reply
            return self._read(reply.task_id) if reply.output_bytes else []
        asks = []
        if isinstance(reply, Running):
            self.task_id = reply.task_id
            asks += self._read(reply.task_id)
        elif self._streams and not self._is_watching:
            self._is_watching = True
            row = requests.read_task(kickoff_id=reply.kickoff_id, as_=self._caller)
            asks.append(Ask(row, About.ROW))
        if is_last:
            asks.append(Ask(self._wait(), About.END))
        return asks

    @property
    def _unreached(self) -> str | None:
        """The kickoff id, as long as it is all there is."""
        return self.kickoff_id if self.task_id is None else None

    def _wait(self) -> Request[Reply]:
        return requests.wait(
            task_id=self.task_id,
            kickoff_id=self._unreached,
            timeout_secs=HOLD,
            as_=self._caller,
            **self._about_replies,
        )

    def _moved(self, result: TaskDetails | TaskPage) -> list[Ask]:
        """Rows have changed: has the engine reached ours?"""
        if self.result is not None or self._cursors:
            return []
        rows = [result] if isinstance(result, TaskDetails) else result.tasks
        for row in rows:
            if row.kickoff_id == self.kickoff_id and row.status not in _WAITING:
                self.task_id = row.task_id
                return self._read(row.task_id)
        after = result.changed_seq if isinstance(result, TaskDetails) else result.next_changed_after
        changes = requests.list_tasks(
            changed_after=after, limit=ROWS, timeout_secs=LOGS_HOLD, as_=self._caller
        )
        return [Ask(changes, About.ROW)]

    # Output.

    def _read(self, task_id: str) -> list[Ask]:
        """Begin to read the streams, unless that is under way."""
        if self._cursors:
            return []
        self._cursors = [OutputCursor(task_id, stream) for stream in self._streams]
        return [self._page(cursor) for cursor in self._cursors]

    def _page(self, cursor: OutputCursor) -> Ask:
        hold = HOLD if self.result is None else 0.0
        request = page_of_output(cursor, self._caller, hold)
        return Ask(request, About.PAGE, cursor)

    def _paged(
        self, cursor: OutputCursor, page: OutputPage, error: ClientError | None
    ) -> list[Ask]:
        if isinstance(error, RpcError):
            cursor.skip(error)
        elif error is not None:
            raise error
        else:
            data = cursor.take(page.base64 or b"", page, has_ended=self.result is not None)
            if data:
                self._pieces.append(Piece(cursor.stream, data))
        return [] if cursor.is_done else [self._page(cursor)]
