"""Follow one task: its output to our streams at the exact bytes, until it has ended.

`Tail` reads pages of one stream; `Follower` owns the calls that are in flight for one task and
what signals mean to it. Which call started the task is the business of `run`.
"""

from __future__ import annotations

import base64
import select
from typing import Any

from engine.cli.app import App
from engine.cli.escapes import TerminalFilter
from engine.cli.exits import ENDED
from engine.cli.replylogs import ReplyLogs
from engine.cli.signals import Signals
from engine.client.blocking import Client, Ticket
from engine.client.cursors import HOLD, OutputCursor, place_of
from engine.client.errors import Refused


class Writer:
    """Our stdout and stderr for a job's bytes; what is a terminal gets no control sequences."""

    def __init__(self, app: App, signals: Signals | None = None, *, raw: bool = False) -> None:
        self._console = app.console
        self._signals = signals
        console = app.console
        self._filters = {
            fd: TerminalFilter()
            for fd, is_terminal in (
                (console.out_fd, console.out_is_terminal),
                (console.err_fd, console.err_is_terminal),
            )
            if is_terminal and not raw
        }
        self.on_signal: Any = None  # called when a signal comes while a reader is slow

    def write(self, stream: str, data: bytes, final: bool = False) -> None:
        """Write bytes of `output`, `stdout` or `stderr`. Raises BrokenPipeError."""
        fd = self._console.err_fd if stream == "stderr" else self._console.out_fd
        if fd in self._filters:
            data = self._filters[fd].feed(data, final)
        if data:
            self._console.job_output(fd, data, self._attend)

    def _attend(self, fd: int) -> None:
        """Wait until `fd` takes more; a signal meanwhile is acted upon at once."""
        if self._signals is None:
            return
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        poll.register(self._signals.fileno(), select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._signals.fileno() in ready:
                self._signals.drain()
                if self.on_signal is not None:
                    self.on_signal()
            if fd in ready:
                return


class Tail:
    """The pages of one stream, one call in flight at a time; `cursor` is where it is."""

    def __init__(self, client: Client, caller: str, task_id: str, stream: str) -> None:
        self._client, self._caller = client, caller
        self.cursor = OutputCursor(task_id, stream)
        self.ticket: Ticket | None = None

    def ask(self, hold: float) -> None:
        """Send for the next page; the engine waits `hold` seconds for a first byte."""
        self.ticket = self._client.submit("read_output", self.page_params(hold), budget=hold)

    def page_params(self, hold: float) -> dict[str, Any]:
        return {"as": self._caller, **self.cursor.params(hold)}

    def take(self, page: dict[str, Any], has_ended: bool) -> bytes:
        """The bytes of an answered page, as `OutputCursor.take` has it."""
        self.ticket = None
        data = base64.b64decode(page["base64"])
        return self.cursor.take(data, place_of(page), has_ended=has_ended)

    def skip(self, error: Refused) -> None:
        """Go on where the kept bytes begin. Raises `error` where it is about something else."""
        self.ticket = None
        self.cursor.skip(error)


class Follower:
    """Reads the streams of a task and waits for its end, side by side."""

    def __init__(
        self, app: App, client: Client, writer: Writer, logs: ReplyLogs | None = None
    ) -> None:
        """`logs`: shows the lines that come while the task runs; not those of its end."""
        self.app, self.client, self.writer, self._logs = app, client, writer, logs
        self.task_id: str | None = None
        self.record: dict[str, Any] | None = None  # of the end
        self.is_acknowledged = False  # a call that went out after it says that it came
        self.last_output = app.console.clock()
        self._tails: list[Tail] = []
        self._wait: Ticket | None = None

    @property
    def is_done(self) -> bool:
        return self.record is not None and all(tail.cursor.is_done for tail in self._tails)

    def read(self, task_id: str, streams: tuple[str, ...]) -> None:
        """Begin to read the streams of `task_id`, from their first byte."""
        self.task_id = task_id
        for stream in streams:
            tail = Tail(self.client, self.app.caller, task_id, stream)
            self._tails.append(tail)
            self._ask(tail)

    def _ask(self, tail: Tail) -> None:
        self.is_acknowledged = self.record is not None
        tail.ask(0.0 if self.record else HOLD)

    def wait(self) -> None:
        """Ask for the end of the task, unless that is under way. `--json` shows its output too."""
        if self._wait is not None:
            return
        params = {
            "as": self.app.caller,
            "taskId": self.task_id,
            "timeout_secs": HOLD,
            "max_output_bytes": None if self.app.json else 0,
            **(self._logs.params if self._logs is not None else {"logs": "none"}),
        }
        self._wait = self.client.submit("wait", params, budget=HOLD)

    def end(self, record: dict[str, Any]) -> None:
        """Note the final record; tails read on to where the output ends."""
        self.record = record

    def answered(self, ticket: Ticket, result: Any, error: Refused | None) -> bool:
        """Take an answer; False where it is none of ours. Raises `Refused`."""
        if self._wait is not None and ticket.id == self._wait.id:
            self._waited(result, error)
            return True
        for tail in self._tails:
            if tail.ticket is not None and ticket.id == tail.ticket.id:
                self._paged(tail, result, error)
                return True
        return False

    def _waited(self, result: Any, error: Refused | None) -> None:
        self._wait = None
        if error is not None:
            raise error
        if result["status"] in ENDED:
            self.end(result)
        else:
            if self._logs is not None:
                self._logs.show(result)
            self.wait()

    def _paged(self, tail: Tail, result: Any, error: Refused | None) -> None:
        if error is not None:
            tail.skip(error)
        else:
            data = tail.take(result, self.record is not None)
            if data:
                self.last_output = self.app.console.clock()
            self.writer.write(tail.cursor.stream, data, final=tail.cursor.is_done)
        if not tail.cursor.is_done:
            self._ask(tail)

    def tell_gone(self) -> None:
        """Say how many bytes could not be shown, if any. All is shown then."""
        assert self.record is not None
        if not self.is_acknowledged:
            self.app.shown = str(self.record.get("taskId") or "")
        gone = sum(tail.cursor.gone for tail in self._tails)
        if gone:
            self.app.console.say(f"{gone} bytes are not kept and could not be shown")
