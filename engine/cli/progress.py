"""What is told while a job waits and runs: lines that are said once, and the status line."""

from __future__ import annotations

from typing import Final

from engine.cli import units
from engine.cli.app import App

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

    def tick(self, task_id: str | None, last_output: float) -> None:
        """Say what is due about the job; `last_output`: when some came, by the console's clock."""
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
        if now - last_output >= QUIET:
            self._console.show_status(self._status(task_id, now, last_output))

    def _status(self, task_id: str, now: float, last_output: float) -> str:
        view = self._console.error_view()
        running = units.duration(int(now - self._began) * 1000)
        quiet = units.duration(int(now - last_output) * 1000)
        has_output = last_output > self._began
        output = f"last output {quiet} ago" if has_output else "no output yet"
        parts = [f"{task_id}  running {running}", output, "Ctrl-C cancels"]
        text = view.cut(f" {view.dot} ".join(parts), (view.width or 80) - 3)
        return f"{view.glyph('running')} {text}"

    def _say_once(self, what: str, line: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._console.say(line)
