"""A round until it has ended: drawn in place or, to a pipe, a line a seat; then what went wrong.

Its end comes by `wait_any`, and so is received; how its seats stand is looked at by nobody in
particular, so that no look says that an end has been shown.
"""

from __future__ import annotations

import time
from typing import Any, Final

from engine.cli import exits, roundscreen, words
from engine.cli.app import App
from engine.cli.console import rows as rows_of
from engine.cli.live import Block, Pace
from engine.cli.many import HOLD
from engine.cli.signals import Signals
from engine.cli.tails import Tails, last_line, read_tail
from engine.client.blocking import Client, Ticket
from engine.client.cursors import LOGS_HOLD
from engine.client.errors import Refused
from engine.client.wire import to_json

LAST_LINES: Final = 5  # of a seat that has no error lines
PAGE: Final = 500  # rows at once, the most that the engine gives

Row = dict[str, Any]


def read_round(client: Client, round_id: str) -> Row:
    """The round, its seats as rows, also of those that were forgotten. Raises `Refused`."""
    found: Row = client.call("read_round", {"roundId": round_id})
    return found


def rows_of_seats(found: Row) -> dict[str, Row]:
    """By name the rows of its seats, as whole as they can be of a task that was forgotten."""
    return {
        name: {"kickoffId": "k" + row["taskId"][1:], "title": "", "changedSeq": 0, **row}
        if row["status"] == "forgotten"
        else row
        for name, row in found["seats"].items()
    }


def explain(client: Client, rows: dict[str, Row]) -> None:
    """Have the seats that were not started say why: no row does."""
    for row in rows.values():
        if row["status"] == "failed" and row["reason"] == "spawn_error" and "error" not in row:
            asked = {"taskId": row["taskId"], "timeout_secs": 0, "logs": "none"}
            try:
                row["error"] = client.call("wait", asked).get("error")
            except Refused:
                row["error"] = None  # dropped meanwhile


def quoted_lines(client: Client, row: Row, errors: list[Row]) -> list[Row]:
    """What explains a seat that failed: its error lines or, where it has none, its last lines."""
    if any(each["source"] != "engine" for each in errors) or not row.get("outputBytes"):
        return errors
    lines = [line for line in read_tail(client, row["taskId"]).split("\n") if line.strip()]
    time = row["lastOutputAt"] or row["endedAt"]
    return [{"time": time, "source": "output", "text": line} for line in lines[-LAST_LINES:]]


class RoundWatch:
    """`rows`: the seats as last seen. `ended`: the entry that told of the end, once it came."""

    def __init__(self, app: App, client: Client, round_id: str, until: float | None = None) -> None:
        """`until`: by the monotonic clock."""
        self._app, self._client, self._id, self._until = app, client, round_id, until
        self.rows: dict[str, Row] = {}
        self.ended: Row | None = None
        self._wait: Ticket | None = None
        self._changes: Ticket | None = None
        self._tails = Tails(client)
        self._pace = Pace()
        self._told: set[str] = set()  # tasks whose end was printed
        self._is_live = app.console.is_live and not app.json
        self._block = Block(app.console) if self._is_live else None

    def run(self, signals: Signals) -> None:
        """Show how it goes until it has ended, or time is up. Raises `Refused`."""
        seq = self._client.call("list_tasks", {"limit": 1})["latestSeq"]
        first = read_round(self._client, self._id)
        self._caller = first["as"]
        self._take(rows_of_seats(first))
        self._ask_wait()
        self._ask_changes(seq)
        while self.ended is None and not self._is_over():
            self._draw()
            got = self._client.next_answer(self._next_look())
            if self._block is not None:
                self._block.attend(signals)
            if got is not None:
                self._answered(got[0], got[1].result, got[1].error)
        self._finish()

    def _is_over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def _next_look(self) -> float | None:
        looks = [self._pace.next_look] if self._is_live else []
        return min([*looks, *([] if self._until is None else [self._until])], default=None)

    def _ask_wait(self) -> None:
        hold = HOLD if self._until is None else max(0.0, self._until - time.monotonic())
        asked = {"as": self._app.caller, "ids": [self._id], "include_output": self._app.json}
        asked["wait_seconds"] = min(HOLD, hold)
        self._wait = self._client.submit("wait_any", asked, budget=min(HOLD, hold))

    def _ask_changes(self, after: int) -> None:
        asked = {"caller": self._caller, "changed_after": after, "limit": PAGE}
        asked["timeout_secs"] = LOGS_HOLD
        self._changes = self._client.submit("list_tasks", asked, budget=LOGS_HOLD)

    # What comes back.

    def _answered(self, ticket: Ticket, result: Any, error: Refused | None) -> None:
        if self._tails.answered(ticket, result, error):
            return
        if error is not None:
            raise error
        if self._changes is not None and ticket.id == self._changes.id:
            rows = [row for row in result["tasks"] if row.get("roundId") == self._id]
            self._take({row["seat"]: row for row in rows})
            self._ask_changes(result["nextChangedAfter"])
        elif self._wait is not None and ticket.id == self._wait.id:
            self._waited(result)

    def _waited(self, reply: Row) -> None:
        for entry in reply["rounds"] if reply["reason"] == "ready" else ():
            if entry["ready"] == "ended":
                self.ended = entry
                return
            if not self._is_live:
                self._app.console.say(words.round_goes_on(entry))
        self._ask_wait()

    def _take(self, seats: dict[str, Row]) -> None:
        """Note rows; each tells what its seat has now, if it is of this try of it."""
        for name, row in seats.items():
            known = self.rows.get(name)
            if known is None or row["changedSeq"] >= known["changedSeq"]:
                self.rows[name] = row
                self._tell(name, row)

    def _tell(self, name: str, row: Row) -> None:
        if self._is_live:
            if row.get("taskId") and not words.is_waiting(row):
                self._tails.follow(row["taskId"])
        elif row["status"] in exits.ENDED and row["kickoffId"] not in self._told:
            self._told.add(row["kickoffId"])
            if not self._app.json:
                self._app.console.line(roundscreen.plain_seat(name, row, self._app.console.now()))

    # What is shown.

    def _draw(self, last: bool = False) -> None:
        if self._block is None:
            return
        self._tails.tend()
        if self._pace.is_due(last=last):
            console = self._app.console
            height = max(3, rows_of(console.out_fd) - 2)
            view = console.view()
            self._block.draw(
                roundscreen.round_block(self._id, self.rows, self.tails(), view, height)
            )

    def tails(self) -> dict[str, str]:
        """By seat the last line that it has written."""
        lines = self._tails.lines
        return {name: lines.get(row.get("taskId") or "", "") for name, row in self.rows.items()}

    def _finish(self) -> None:
        """Show how it stands, or how it was in the end."""
        self._take(rows_of_seats(read_round(self._client, self._id)))
        explain(self._client, self.rows)
        self._settle_tails()
        self._draw(last=True)
        if self._block is not None:
            self._block.release()
        if self.ended is not None:
            self._app.shown = self._id
            if self._app.json:
                self._app.console.line(to_json(self.ended))

    def _settle_tails(self) -> None:
        """Read the ends of the outputs that have been seen in part."""
        if not self._is_live or self.ended is None:
            return
        for row in self.rows.values():
            if row.get("taskId") and row.get("outputBytes"):
                self._tails.lines[row["taskId"]] = last_line(read_tail(self._client, row["taskId"]))
