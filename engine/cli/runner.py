"""One `run`, `exec` or `py` from its first call to its exit code."""

from __future__ import annotations

import signal
from typing import Any, Final

from engine.cli import exits, words
from engine.cli.app import App
from engine.cli.detached import Detached, Then, resolve_after
from engine.cli.follow import Follower, Writer
from engine.cli.progress import Blockage, Progress
from engine.cli.replylogs import ReplyLogs
from engine.cli.signals import Signals
from engine.client.blocking import Ticket
from engine.client.cursors import HOLD, LOGS_HOLD
from engine.client.errors import Refused
from engine.client.wire import to_json

SHORT: Final = 0.25  # seconds: a call that ends within it comes in one answer


class Left(Exception):
    """The person has gone; the job may run on. Carries the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Runner:
    """What is in flight for the job: the call that starts it, then a `Follower`, maybe a cancel."""

    def __init__(
        self, app: App, method: str, params: dict[str, Any], options: dict[str, Any]
    ) -> None:
        self._app = app
        self._method, self._params, self._options = method, params, options
        # A session's state is kept only by a call that ends within its own budget, and
        # on_disconnect ends with its reply: these calls stay for as long as they may.
        self._cancels = options["on_disconnect"] == "cancel"
        self._stays = bool(params.get("session")) or self._cancels or app.json
        # A repeat under the key tells the handle meanwhile, so that output can be shown, or
        # that the job which follows can be begun.
        self._repeats = self._stays and (
            options["then"] is not None or (self._cancels and not app.json)
        )
        self._logs = ReplyLogs(app, options["logs"], options["scope"])
        self._streams = ("stdout", "stderr") if params["streams"] == "split" else ("output",)
        self._began = app.console.clock()
        self._handle: dict[str, str] = {}  # taskId or kickoffId, when known
        self._start: Ticket | None = None
        self._peek: Ticket | None = None
        self._row: Ticket | None = None
        self._cancel: Ticket | None = None
        self._wants_cancel = False
        self._has_asked = False  # the engine, to cancel
        self._is_cancelled = False  # whether the engine has answered so
        self._leaving: int | None = None  # exit code, once the handle is known
        self._signalled: int | None = None
        self._progress = Progress(app)

    def run(self) -> int:
        """Start the job and follow it. Raises `ClientError`, BrokenPipeError."""
        if self._options["detach"]:
            return Detached(self._app, self._method, self._params, self._options["then"]).run()
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT]
        if self._cancels:
            numbers.append(signal.SIGHUP)
        with Signals(*numbers) as signals:
            self._signals = signals
            self._client = self._app.client(starts=True, hello=True, wake=signals)
            resolve_after(self._app, self._client, self._params)
            self._then = Then(self._app, self._client, self._params, self._options["then"])
            self._blockage = Blockage(self._app, self._client, self._params)
            writer = Writer(self._app, signals, raw=self._options["raw"])
            writer.on_signal = self._look_at_signals
            self._follower = Follower(self._app, self._client, writer, self._logs)
            try:
                return self._follow()
            except Left as left:
                return left.code

    def _follow(self) -> int:
        budget = HOLD if self._stays else SHORT
        params = {**self._params, "timeout_secs": budget}
        if not self._app.json:
            params["max_output_bytes"] = 0  # a reply shows text; the bytes are read as such
        self._start = self._client.submit(self._method, params, budget=budget)
        while not (self._follower.is_done and self._cancel is None and not self._then.is_open):
            self._look_at_signals()
            got = self._client.next_answer(self._next_moment())
            if got is not None:
                self._answered(got[0], got[1].result, got[1].error)
            else:
                self._tick()
        return self._finish()

    def _finish(self) -> int:
        record = self._follower.record
        assert record is not None
        self._follower.tell_gone()
        if self._app.json:
            self._app.console.line(to_json(record))
        elif record.get("value") is not None:  # of code, shown as at the interpreter's prompt
            value = str(record["value"]).encode() + b"\n"
            # A writer of its own: the output may have ended within an escape sequence.
            Writer(self._app, self._signals, raw=self._options["raw"]).write("output", value, True)
        if record.get("sessionReset"):
            self._app.console.say("the Python session was lost, and its names with it")
        self._logs.show(record)
        line = words.run_ended(record, self._signalled)
        if line is not None:
            self._app.console.say(line)
        return exits.OURS if self._then.is_refused else exits.of_task(record)

    # What comes back.

    def _answered(self, ticket: Ticket, result: Any, error: Refused | None) -> None:
        for each in (self._follower, self._then, self._blockage):
            if each.answered(ticket, result, error):
                return
        if ticket is self._cancel:
            self._cancel = None
            self._is_cancelled = True
            if error is None:
                self._signalled = len(result.get("signalled") or ())
            return
        if error is not None:
            raise error
        if ticket is self._start:
            self._start = None
            self._started(result, is_start=True)
        elif ticket is self._peek:
            self._peek = None
            self._started(result, is_start=False)
        elif ticket is self._row:
            self._row = None
            self._moved(result)

    def _started(self, reply: dict[str, Any], *, is_start: bool) -> None:
        """The call that started the job, or its repeat, says how things stand."""
        self._then.begin(reply)
        if self._follower.record is not None:
            return
        if reply["status"] in exits.ENDED:
            self._ended(reply)
            return
        self._logs.show(reply)
        if reply.get("taskId"):
            self._reached(reply["taskId"], waits=is_start or not self._start)
        else:
            self._know("kickoffId", reply["kickoffId"])
            self._progress.waits(words.waiting(reply))
            if is_start or self._row is None:
                self._watch_kickoff()

    def _ended(self, record: dict[str, Any]) -> None:
        follower = self._follower
        follower.end(record)
        task_id = record.get("taskId")
        if self._app.json or follower.task_id or not task_id or not record.get("outputBytes"):
            return
        follower.read(task_id, self._streams)

    def _reached(self, task_id: str, *, waits: bool) -> None:
        if self._follower.task_id is None:
            self._progress.runs()
        self._know("taskId", task_id)
        if self._follower.task_id is None:
            self._follower.read(task_id, () if self._app.json else self._streams)
        if waits:
            self._follower.wait()

    def _watch_kickoff(self, after: int | None = None) -> None:
        """Ask for the row of the kickoff, or for the next change past `after`."""
        if after is None:
            asked = {"as": self._app.caller, "kickoffId": self._handle["kickoffId"]}
            self._row = self._client.submit("read_task", asked)
            return
        listed = {
            "as": self._app.caller,
            "changed_after": after,
            "limit": 500,
            "timeout_secs": LOGS_HOLD,
        }
        self._row = self._client.submit("list_tasks", listed, budget=LOGS_HOLD)

    def _moved(self, result: dict[str, Any]) -> None:
        """Rows changed: has the engine reached ours?"""
        if self._follower.record is not None or self._follower.task_id is not None:
            return
        wanted = self._handle["kickoffId"]
        rows = [r for r in result.get("tasks", [result]) if r.get("kickoffId") == wanted]
        if rows and not words.is_waiting(rows[0]):
            self._reached_or_gone(rows[0])
        else:
            self._watch_kickoff(result.get("nextChangedAfter", result.get("changedSeq")))

    def _reached_or_gone(self, row: dict[str, Any]) -> None:
        if row.get("taskId"):
            self._reached(row["taskId"], waits=self._start is None)
            return
        # It ended in the queue: whatever the record lacks, it has no output.
        self._follower.end(row)

    # What is asked of us.

    def _look_at_signals(self) -> None:
        for number in self._signals.take():
            if number == signal.SIGQUIT:
                self._leave(exits.DONE)
            elif number == signal.SIGINT and self._options["keep"]:
                self._leave(exits.INTERRUPTED)
            elif self._wants_cancel:
                self._leave_uncancelled()
            else:
                self._begin_cancel(number)

    def _leave(self, code: int) -> None:
        if not self._handle:  # it will be in a moment; a person must learn the id
            if self._leaving is not None:  # asked for twice
                self._app.console.say("the job may run on", always=True)
                raise Left(code)
            self._leaving = code
            self._ask_handle()
            return
        name = self._name
        self._app.console.say(f"{name} runs on; engine wait {name}", always=True)
        raise Left(code)

    def _leave_uncancelled(self) -> None:
        """Leave although the cancel has not been answered; say so where it may not have arrived."""
        under_way = self._cancel is not None and self._client.place is not None
        if not (self._is_cancelled or under_way):
            self._app.console.say(f"{self._name} may run on: it was not cancelled", always=True)
        raise Left(exits.INTERRUPTED)

    @property
    def _name(self) -> str:
        return next(iter(self._handle.values()), "the job")

    def _begin_cancel(self, number: int) -> None:
        self._wants_cancel = True
        if self._client.place is None:
            self._app.console.say(
                f"the engine is not reachable; {self._name} runs on unless it is cancelled when "
                "the connection is back (Ctrl-C again leaves)"
            )
        if self._handle:
            self._send_cancel()
        elif self._start is not None:
            self._ask_handle()

    def _send_cancel(self) -> None:
        if self._follower.record is not None:
            return
        self._has_asked = True
        if self._client.place is not None:
            self._app.console.say(
                f"cancelling {self._name} (Ctrl-C again leaves; it is cancelled all the same)"
            )
        asked = {"as": self._app.caller, **self._handle}
        self._cancel = self._client.submit("cancel", asked, budget=HOLD)

    def _know(self, kind: str, handle: str) -> None:
        """Note the handle, and do what was waiting for it."""
        self._handle = {kind: handle}
        if self._leaving is not None:
            self._leave(self._leaving)
        if self._wants_cancel and self._cancel is None and not self._has_asked:
            self._send_cancel()

    def _ask_handle(self) -> None:
        """Repeat the call under its key with no budget: the same task, answered at once."""
        if self._peek is None and self._stays and self._start is not None:
            params = {**self._params, "timeout_secs": 0, "max_output_bytes": 0}
            self._peek = self._client.submit(self._method, params)

    # What time brings.

    @property
    def _wants_handle(self) -> bool:
        return self._repeats and not self._handle and self._start is not None

    def _next_moment(self) -> float | None:
        """When to look up although nothing came; None where only news count."""
        if self._wants_handle and self._peek is None:
            return self._began + SHORT
        return self._progress.next_moment(self._follower.task_id)

    def _tick(self) -> None:
        if self._wants_handle and self._app.console.clock() >= self._began + SHORT:
            self._ask_handle()
        task_id, last_output = self._follower.task_id, self._follower.last_output
        if task_id is not None and self._progress.is_quiet(last_output):
            self._blockage.watch(task_id)
        self._progress.tick(task_id, last_output, self._blockage.text)
