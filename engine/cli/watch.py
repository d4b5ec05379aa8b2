"""`tasks --watch`: the list as it changes, drawn in place or, to a pipe, a line a change.

It looks, as an observer: the engine holds `list_tasks` until a row has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NoReturn

from engine.cli import units
from engine.cli.app import App
from engine.cli.audience import Audience
from engine.cli.console import rows as rows_of
from engine.cli.live import Block, Pace
from engine.cli.signals import REDRAWING, Signals
from engine.cli.tasklist import PlainTable, plain_fields, watched
from engine.client.cursors import LOGS_HOLD

PAGE: Final = 500  # rows at once, the most that the engine gives
KEPT: Final = 500  # rows that are known at least, so that others move up where one goes

Row = dict[str, Any]


class Rows:
    """The rows as last seen that are to be listed: the newest of those in `states`."""

    def __init__(self, states: list[str] | None, after: datetime | None, limit: int) -> None:
        self._states, self._after = states, after
        self._limit = limit
        self._rows: dict[str, Row] = {}

    def begin(self, rows: list[Row]) -> None:
        """Know these rows, newest first, and no other."""
        self._rows = {_name(row): row for row in reversed(rows)}

    def take(self, row: Row) -> Row | None:
        """Note a row that changed; as it is to be told, None where it is none of the list's."""
        name = _name(row)
        known = self._rows.pop(name, None)
        if row["status"] == "forgotten":
            return {**known, **row} if known is not None else None
        if not self._is_listed(row):
            return None
        self._rows[name] = row
        if len(self._rows) > max(KEPT, self._limit):
            del self._rows[min(self._rows, key=lambda n: str(self._rows[n]["createdAt"]))]
        return row

    def _is_listed(self, row: Row) -> bool:
        if self._states is not None and row["status"] not in self._states:
            return False
        return self._after is None or units.parse_time(row["createdAt"]) >= self._after

    @property
    def newest(self) -> list[Row]:
        """The rows to show, newest first."""
        # The newest of one millisecond is the one that changed first, by and large.
        rows = sorted(self._rows.values(), key=lambda row: row["createdAt"], reverse=True)
        return rows[: self._limit]


def _name(row: Row) -> str:
    """A task's id without its letter, which a row that is forgotten has too."""
    return str(row.get("taskId") or row["kickoffId"])[1:]


class Watch:
    """What is on its way about the list, and what of it has been shown."""

    def __init__(self, app: App, params: dict[str, Any], rows: Rows, header: bool) -> None:
        # The engine is asked for rows in any state: one that leaves those listed has to be seen.
        self._app, self._params = app, {**params, "state": None}
        self._rows, self._header = rows, header
        self._seq = 0
        self._info: Row = {}
        self._told: dict[str, list[str]] = {}  # to a pipe: the fields of each task's last line
        self._table: PlainTable | None = None
        self._is_live = app.console.is_live and not app.json
        self._block = Block(app.console) if self._is_live else None
        self._pace = Pace()

    def run(self, read: Callable[[Any], list[Row]]) -> NoReturn:
        """Show the rows that `read` has from a client, then what changes, until interrupted."""
        with (
            Signals(*REDRAWING) as signals,
            Audience(self._app.console.out_fd, signals) as audience,
        ):
            client = self._app.client(role="observer", wake=audience)
            self._begin(client, read)
            changes, numbers = self._ask(client), self._count(client)
            while True:
                self._draw()
                got = client.next_answer(self._pace.next_look if self._is_live else None)
                if self._block is not None:
                    self._block.attend(signals)
                if got is None:
                    continue
                ticket, answer = got
                if answer.error is not None:
                    raise answer.error
                if ticket.id != changes.id:
                    self._info, numbers = answer.result, None
                    continue
                if answer.result["latestSeq"] < self._seq:  # an engine that begins anew
                    self._begin(client, read)
                else:
                    self._take(answer.result)
                changes, numbers = self._ask(client), numbers or self._count(client)

    def _begin(self, client: Any, read: Callable[[Any], list[Row]]) -> None:
        head = client.call("list_tasks", {**self._params, "limit": 1})
        self._seq = head["latestSeq"]  # what changes while the list is read is told after it
        rows = read(client)
        self._rows.begin(rows)
        if not self._is_live:
            self._tell(rows[::-1])

    def _ask(self, client: Any) -> Any:
        asked = {
            **self._params,
            "changed_after": self._seq,
            "limit": PAGE,
            "timeout_secs": LOGS_HOLD,
        }
        return client.submit("list_tasks", asked, budget=LOGS_HOLD)

    def _count(self, client: Any) -> Any:
        """Send for the engine's numbers, which only the screen shows."""
        return client.submit("engine_info", {"as": self._app.caller}) if self._is_live else None

    def _take(self, page: Row) -> None:
        self._seq = page["nextChangedAfter"]
        changed = [told for row in page["tasks"] if (told := self._rows.take(row)) is not None]
        if not self._is_live:
            self._tell(changed)

    def _tell(self, rows: list[Row]) -> None:
        """Print a line for each row that looks other than when it was printed last."""
        from engine.client.wire import to_json

        console = self._app.console
        if self._app.json:
            for row in rows:
                console.line(to_json(row))
            return
        if self._table is None:
            self._table = PlainTable(rows, header=self._header)
            if self._header:
                console.line(self._table.header())
        for row in rows:
            fields = plain_fields(row)
            if self._told.get(_name(row)) == fields:
                continue
            self._told.pop(_name(row), None)
            self._told[_name(row)] = fields
            if len(self._told) > 2 * KEPT:
                del self._told[next(iter(self._told))]
            console.line(self._table.line(row, console.view()))

    def _draw(self) -> None:
        if self._block is None or not self._info or not self._pace.is_due():
            return
        console = self._app.console
        height = max(3, rows_of(console.out_fd) - 2)
        self._block.draw(watched(self._rows.newest, self._info, console.view(), height))
