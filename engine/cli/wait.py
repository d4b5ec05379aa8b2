"""`wait`: until tasks have ended, however they end."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from engine.cli import exits
from engine.cli.app import App
from engine.cli.replylogs import ReplyLogs, log_options
from engine.cli.signals import REDRAWING, Signals
from engine.cli.verbs import Seconds, Verb, task_argument, verb

LIVE_CALLS: Final = 32  # a second, for a screen that shows how things stand meanwhile


@click.command(
    "wait",
    cls=Verb,
    help="Wait until all these tasks have ended. One: exits as it did. Several: 0 when all "
    "succeeded, else 1. ID: a task or kickoff, on a terminal also a unique prefix, or @last; or a "
    "round. Without any: for all of the caller's whose end it has not received.",
)
@task_argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--any", "first", is_flag=True, help="For the first of them; exits as it did.")
@click.option("--timeout", type=Seconds(0), metavar="S", help="Give up: exit 75.")
@log_options
@click.pass_context
def wait_verb(
    ctx: click.Context,
    /,
    ids: tuple[str, ...],
    first: bool,
    timeout: float | None,
    logs: str | None,
    scope: str | None,
) -> None:
    if (logs or scope) and (first or not ids):
        raise click.UsageError("--logs and --scope go with IDs and without --any")
    if first or not ids:
        from engine.cli.inbox import wait_first, wait_inbox

        verb(wait_first if first else wait_inbox, ctx, ids=ids, timeout=timeout)
    if any(given.startswith("r") for given in ids):
        from engine.cli.rounds import wait_round

        if len(set(ids)) > 1:
            raise click.UsageError("a round is waited for alone, or with --any")
        verb(wait_round, ctx, round_id=ids[0], timeout=timeout)
    verb(_wait, ctx, ids=ids, timeout=timeout, logs=logs, scope=scope)


def _wait(
    app: App, *, ids: tuple[str, ...], timeout: float | None, logs: str | None, scope: str | None
) -> int:
    from engine.cli.handles import resolve

    app.as_job = len(set(ids)) == 1
    until = None if timeout is None else time.monotonic() + timeout
    with Signals(*REDRAWING) as signals:
        client = app.client(starts=True, wake=signals, timeout=timeout)
        handles = list(dict.fromkeys(resolve(app, client, given) for given in ids))
        waiter = Waiter(app, handles, until, logs=logs, scope=scope)
        waiter.run(client, signals)
    return waiter.exit_code()


class Waiter:
    """The tasks that are waited for: their rows as last seen, and the records of those ended."""

    def __init__(
        self,
        app: App,
        handles: list[str],
        until: float | None,
        *,
        logs: str | None = None,
        scope: str | None = None,
    ) -> None:
        from engine.cli.live import Block, Pace

        self._app = app
        self._handles = handles
        self._until = until
        self._rows: dict[str, dict[str, Any]] = {}
        self._records: dict[str, dict[str, Any]] = {}
        self._pace = Pace()
        self._live = app.console.is_live and not app.json
        self._block = Block(app.console) if self._live and len(handles) > 1 else None
        # The summary of one task quotes its error lines.
        quotes = self._live and self._block is None
        self._logs = ReplyLogs(app, logs, scope, otherwise="error" if quotes else "none")

    def run(self, client: Any, signals: Signals) -> None:
        """Wait until all have ended or time is up, showing what comes."""
        from engine.cli.handles import as_param, task_of
        from engine.cli.live import TICK
        from engine.client.cursors import HOLD

        for handle in self._handles:
            self._app.subject = handle
            self._rows[handle] = task_of(self._app, client, handle)
        asked: dict[int, str] = {}

        def ask(handle: str) -> None:
            hold = min(HOLD, max(TICK, len(self._handles) / LIVE_CALLS)) if self._live else HOLD
            if self._until is not None:
                hold = max(0.0, min(hold, self._until - time.monotonic()))
            params = {"as": self._app.caller, **as_param(handle), "timeout_secs": hold}
            params |= self._logs.params
            params |= {} if self._app.json else {"max_output_bytes": 0}
            asked[client.submit("wait", params, budget=hold).id] = handle

        for handle in self._handles:
            ask(handle)
        self._show()
        while asked:
            got = client.next_answer(self._pace.next_look if self._live else None)
            if self._block is not None:
                self._block.attend(signals)
            if got is not None:
                handle = asked.pop(got[0].id)
                self._app.subject = handle
                if got[1].error is not None:
                    raise got[1].error
                self._take(handle, got[1].result)
                if handle not in self._records and not self._is_over():
                    ask(handle)
            self._show(last=not asked)
        if self._block is not None:
            self._block.release()

    def _is_over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def _take(self, handle: str, reply: dict[str, Any]) -> None:
        from engine.cli import words

        # A reply has no title, and what it does not carry (queueReason, once started) is over.
        stale = ("queuePosition", "queueReason", "blockedOn")
        kept = {k: v for k, v in self._rows[handle].items() if k not in stale}
        # It calls running what it has no task for yet; the row knows better.
        status = "queued" if words.is_waiting(reply) else reply["status"]
        self._rows[handle] = {**kept, **reply, "status": status}
        self._logs.show(reply)
        if reply["status"] in exits.ENDED:
            self._records[handle] = reply
            self._tell_end(handle)
            self._app.shown = words.handle(reply)

    def _tell_end(self, handle: str) -> None:
        """Print what is due at the end of one task; a live block shows it by itself."""
        from engine.cli import screens, words
        from engine.cli.view import safe
        from engine.client.wire import to_json

        console, row, record = self._app.console, self._rows[handle], self._records[handle]
        if self._app.json:
            console.line(to_json(record))
        elif not self._live:
            console.line(f"{words.plain_ended(row)} {safe(row['title'])}".rstrip())
            for line in screens.value_lines(record, console.view()) if self._app.as_job else ():
                console.line(line)
        elif self._block is None:
            if self._logs.is_asked:  # they have just been shown
                record = {**record, "logs": []}
            for line in screens.one_wait(row, record, console.view()):
                console.line(line)

    def _show(self, last: bool = False) -> None:
        """Draw how things stand, where there is a screen for it; not too often."""
        from engine.cli import screens
        from engine.cli.console import rows

        if not (self._live and self._pace.is_due(last=last)):
            return
        console = self._app.console
        if self._block is not None:
            height = max(2, rows(console.out_fd) - 2)
            current = [self._rows[h] for h in self._handles]
            self._block.draw(screens.live_block(current, console.view(), height))
        elif self._rows[self._handles[0]]["status"] not in exits.ENDED:
            view = console.error_view()
            row = self._rows[self._handles[0]]
            foot = f" {view.dot} Ctrl-C stops waiting"
            line = screens.live_row(row, view)
            spare = (view.width or 80) - len(foot) - 1
            console.show_status(line + foot if len(line) <= spare and not view.colour else line)

    def exit_code(self) -> int:
        """As one task did; of several, 0 when all succeeded. Says which still run."""
        from engine.cli import words
        from engine.cli.report import report_spent

        left = [h for h in self._handles if h not in self._records]
        if len(left) == 1:
            row = self._rows[left[0]]
            state = words.still(row, self._app.console.now())
            report_spent(self._app, f"{state}; engine wait {words.row_handle(row)}")
        elif left:
            names = " ".join(left)
            waiting = sum(words.is_waiting(self._rows[h]) for h in left)
            state = (
                f"{len(left)} are still running"
                if not waiting
                else (f"{len(left)} have not ended ({waiting} of them queued)")
            )
            report_spent(self._app, f"{state}; engine wait {names}")
        if left:
            return exits.STILL_RUNNING
        if self._app.as_job:
            return exits.of_task(self._records[self._handles[0]])
        good = all(record["status"] == "succeeded" for record in self._records.values())
        return exits.DONE if good else exits.REFUSED
