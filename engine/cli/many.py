"""Many handles in one wait: what each reply of `wait_any` tells, shown before it is acknowledged.

Without handles it is about the caller's inbox. Looks that go with it are no caller's: a request
of the caller's own would say that what came last has been shown.
"""

from __future__ import annotations

import errno
import os
import time
from typing import Any, Final

from engine.cli import exits, screens, words
from engine.cli.app import App
from engine.cli.view import safe
from engine.client.errors import CannotWrite, Refused
from engine.client.wire import to_json

HOLD: Final = 240.0  # seconds that the engine holds a wait for many
SOON: Final = 3  # ids that a status line names

Row = dict[str, Any]


class ManyWait:
    """One call after the other; each acknowledges what the one before it brought."""

    def __init__(self, app: App, client: Any, ids: list[str] | None, until: float | None) -> None:
        """`ids`: None is the inbox. `until`: by the monotonic clock.

        Raises `CannotWrite` where there is no stdout: what is shown to nobody is not received.
        """
        if not app.has_stdout:
            raise CannotWrite(f"the output cannot be written: {os.strerror(errno.EBADF)}")
        self._app, self._client = app, client
        self._ids, self._until = ids, until
        self._delivery: str | None = None
        self.shown: list[Row] = []  # tasks and rounds whose end was shown, in order

    @property
    def is_over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def next(self, hold: float = HOLD) -> Row:
        """The next reply, whose news have been shown. Raises `Refused`."""
        reply = self._ask(hold)
        if reply["reason"] == "ready":
            # Those that have ended in the order in which they did.
            for update in sorted(reply["updates"], key=lambda each: each.get("endedAt") or ""):
                self._show(update)
            for entry in reply["rounds"]:
                self._show_round(entry)
        self._delivery = reply["delivery"]
        return reply

    def _ask(self, hold: float) -> Row:
        if self._until is not None:
            hold = max(0.0, min(hold, self._until - time.monotonic()))
        asked = {"as": self._app.caller, "ids": self._ids, "wait_seconds": hold}
        asked["ack"] = self._delivery
        reply: Row = self._client.call("wait_any", asked, budget=hold)
        return reply

    def _show(self, update: Row) -> None:
        console = self._app.console
        if self._app.json:
            console.line(to_json(update))
        elif update["ready"] != "ended":
            console.say(words.goes_on(update))
            for warning in update.get("warnings") or ():
                console.say(warning)
        else:
            for line in self._end(update):
                console.line(line)
            if update.get("redelivered"):
                console.say(f"{words.handle(update)} may have been told before")
        if update["ready"] == "ended":
            self.shown.append(update)
            self._app.shown = words.handle(update)

    def _end(self, update: Row) -> list[str]:
        """The lines about the end of a task."""
        try:
            row = self._client.call("read_task", {"taskId": update["taskId"]})
        except Refused:  # dropped since
            row = {"title": ""}
        console = self._app.console
        if console.is_live:
            return screens.one_wait(row, {**row, **update}, console.view())
        return [f"{words.plain_ended({**row, **update})} {safe(row['title'])}".rstrip()]

    def _show_round(self, entry: Row) -> None:
        console = self._app.console
        if self._app.json:
            console.line(to_json(entry))
        elif entry["ready"] == "ended":
            console.line(words.round_ended(entry))
        else:
            console.say(words.round_goes_on(entry))
        if entry["ready"] == "ended":
            self.shown.append(entry)
            self._app.shown = entry["roundId"]

    def show_status(self, pending: list[str]) -> None:
        """Draw what is waited for as a status line, where there is one."""
        if self._app.json:
            return
        view = self._app.console.error_view()
        names = " ".join(pending[:SOON]) + (f" {view.ellipsis}" if len(pending) > SOON else "")
        text = f"{words.going_on(len(pending))}: {names} {view.dot} Ctrl-C stops waiting"
        text = view.cut(text, (view.width or 80) - 3)
        self._app.console.show_status(f"{view.glyph('running')} {text}")


def exit_code(end: Row) -> int:
    """As `wait` of one task exits, or of all the seats of a round."""
    if "seats" not in end:
        return exits.of_task(end)
    good = all(seat["status"] == "succeeded" for seat in end["seats"].values())
    return exits.DONE if good else exits.REFUSED
