"""What is told while a job waits and runs: lines that are said once, and the status line.

`Blockage` knows what a job that reads is blocked on, from the engine's list of tasks.
"""

from __future__ import annotations

from typing import Any, Final

from engine.cli import units, words
from engine.cli.app import App
from engine.cli.view import safe
from engine.client.blocking import Client, Ticket
from engine.client.cursors import LOGS_HOLD
from engine.client.errors import Refused

QUIET: Final = 5.0  # seconds without output until the status line comes
PATIENT: Final = 1.0  # seconds in the queue until it is worth a line
LONG: Final = 20.0  # seconds after which the way out is named
TICK: Final = 1.0  # seconds between two looks of the status line


class Progress:
    """Speaks when something is worth it; `next_moment` says when to ask it again."""

    def __init__(self, app: App) -> None:
        self._console = app.console
        self._shows_status = app.console.shows_status and not app.json
        self._began = app.console.clock()
        self._queued: tuple[float, str] | None = None  # when to say so, and what
        self._told: set[str] = set()

    def waits(self, text: str) -> None:
        """The job is in the queue, as `text` says; that is told once it takes long."""
        self._queued = (self._console.clock() + PATIENT, text)

    def runs(self) -> None:
        """The job has begun by now."""
        self._queued = None
        self._began = self._console.clock()

    def next_moment(self, task_id: str | None) -> float | None:
        """When to `tick` although nothing came; None where only news count."""
        if self._queued is not None:
            return self._queued[0]
        return self._console.clock() + TICK if task_id and self._shows_status else None

    def is_quiet(self, last_output: float) -> bool:
        """Whether there is a status line by now."""
        return self._shows_status and self._console.clock() - last_output >= QUIET

    def tick(self, task_id: str | None, last_output: float, blocked: str = "") -> None:
        """Say what is due about the job; `last_output`: when some came, by the console's clock.

        `blocked`: what it is blocked on, in words.
        """
        now = self._console.clock()
        if self._queued is not None and now >= self._queued[0]:
            self._say_once("queued", self._queued[1])
            self._queued = None
        if task_id is None or not self._shows_status:
            return
        if now - self._began >= LONG:
            self._say_once(
                "long", f"{task_id} takes longer than {LONG:g} s; Ctrl-\\ leaves it running"
            )
        if self.is_quiet(last_output):
            self._console.show_status(self._status(task_id, now, last_output, blocked))

    def _status(self, task_id: str, now: float, last_output: float, blocked: str) -> str:
        view = self._console.error_view()
        running = units.duration(int(now - self._began) * 1000)
        quiet = units.duration(int(now - last_output) * 1000)
        has_output = last_output > self._began
        output = f"last output {quiet} ago" if has_output else "no output yet"
        output = safe(blocked) or output
        parts = [f"{task_id}  running {running}", output, "Ctrl-C cancels"]
        text = view.cut(f" {view.dot} ".join(parts), (view.width or 80) - 3)
        return f"{view.glyph('running')} {text}"

    def _say_once(self, what: str, line: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._console.say(line)


class Blockage:
    """What a job is blocked on, as `text`; asked for from the first `watch` on.

    Only of a job that may ask for input: the others tell by their silence.
    """

    def __init__(self, app: App, client: Client, params: dict[str, Any]) -> None:
        """`params`: of the call that started it."""
        self._app, self._client = app, client
        self._may_read = params.get("stdin") == "open" or bool(params.get("pty"))
        self._task_id: str | None = None
        self._asked: Ticket | None = None
        self.text = ""

    def watch(self, task_id: str) -> None:
        """Ask about the task, unless that is under way."""
        if self._may_read and self._task_id is None:
            self._task_id = task_id
            asked = {"as": self._app.caller, "taskId": task_id}
            self._asked = self._client.submit("read_task", asked)

    def answered(self, ticket: Ticket, result: Any, error: Refused | None) -> bool:
        """Take an answer; False where it is none of ours. Raises `Refused`."""
        if self._asked is None or ticket.id != self._asked.id:
            return False
        if error is not None:
            raise error
        for row in result.get("tasks", [result]):
            if row["taskId"] == self._task_id:
                self.text = words.blocked(row)
        after = result.get("nextChangedAfter", result.get("changedSeq"))
        asked = {"as": self._app.caller, "changed_after": after, "limit": 500}
        asked["timeout_secs"] = LOGS_HOLD
        self._asked = self._client.submit("list_tasks", asked, budget=LOGS_HOLD)
        return True
