"""`inbox`, and `wait` for whatever is not named one by one: all of the caller's, or the first."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from engine.cli import exits, words
from engine.cli.app import App
from engine.cli.verbs import Verb, verb

NOBODY: Final = "nothing_pending"
NAMED: Final = 5  # of those that go on
PAGE: Final = 500  # rows at once, the most that the engine gives


@click.command(
    "inbox",
    cls=Verb,
    help="Print the ends of tasks and rounds that the caller has not received so far, and receive "
    "them.",
)
@click.option("--follow", is_flag=True, help="Go on with what ends, until Ctrl-C.")
@click.pass_context
def inbox_verb(ctx: click.Context, /, follow: bool) -> None:
    verb(_inbox, ctx, follow=follow)


def _inbox(app: App, *, follow: bool) -> int:
    from engine.cli.audience import Audience
    from engine.cli.many import ManyWait

    with Audience(app.console.out_fd) as audience:
        client = app.client(wake=audience)
        wait = ManyWait(app, client, None, None)
        seq = _seq(app, client)
        reply = wait.next(0.0)
        while reply["reason"] == "ready" or follow:
            if not follow:
                reply = wait.next(0.0)
                continue
            if reply["reason"] == NOBODY:
                seq = _wait_change(app, client, seq)
            wait.show_status(reply["pending_ids"])
            reply = wait.next()
    if not wait.shown:
        _tell_nothing(app, reply["pending_ids"])
    return exits.DONE


def _seq(app: App, client: Any) -> int:
    """Where the list of the caller's tasks is by now."""
    seq: int = client.call("list_tasks", {"as": app.caller, "limit": 1})["latestSeq"]
    return seq


def _wait_change(app: App, client: Any, seq: int) -> int:
    """Wait until a task of the caller's has changed, as one that is new has; where we are then."""
    from engine.client.cursors import LOGS_HOLD

    asked = {"as": app.caller, "changed_after": seq, "limit": PAGE, "timeout_secs": LOGS_HOLD}
    page = client.call("list_tasks", asked, budget=LOGS_HOLD)
    # An engine that begins anew counts from the start.
    return int(page["latestSeq"] if page["latestSeq"] < seq else page["nextChangedAfter"])


def _tell_nothing(app: App, pending: list[str]) -> None:
    """Say that nothing has ended, to a person."""
    if app.json:
        return
    text = f"nothing pending for {app.caller}"
    if pending:
        text = f"nothing new for {app.caller}; {words.going_on(len(pending))}"
    if app.console.view().is_terminal:
        app.console.line(text)
    else:
        app.console.say(text)


def wait_inbox(app: App, *, ids: tuple[str, ...], timeout: float | None) -> int:
    """Wait for all ends that the caller has not received; 0 when all of them were good."""
    from engine.cli.many import ManyWait, exit_code

    assert not ids
    app.as_job = False
    client = app.client(starts=True, timeout=timeout)
    wait = ManyWait(app, client, None, _until(timeout))
    reply = wait.next(0.0)
    while not reply["all_finished"] and not wait.is_over:
        wait.show_status(reply["pending_ids"])
        reply = wait.next()
    if not reply["all_finished"]:
        return _spent(app, client, reply["pending_ids"], "engine wait")
    if not wait.shown:
        _tell_nothing(app, [])
    return max(map(exit_code, wait.shown), default=0) and exits.REFUSED


def wait_first(app: App, *, ids: tuple[str, ...], timeout: float | None) -> int:
    """Wait for the first end, and exit as that does; `OURS` where there is none to wait for."""
    from engine.cli.handles import resolve_any
    from engine.cli.many import ManyWait, exit_code

    client = app.client(starts=True, timeout=timeout)
    handles = list(dict.fromkeys(resolve_any(app, client, given) for given in ids))
    app.subject = handles[0] if len(handles) == 1 else ""
    wait = ManyWait(app, client, handles or None, _until(timeout))
    reply = wait.next(0.0)
    while not wait.shown and not wait.is_over and reply["reason"] != NOBODY:
        wait.show_status(reply["pending_ids"])
        reply = wait.next()
    if reply["reason"] == NOBODY:
        _tell_nothing(app, [])
        return exits.OURS
    if not wait.shown:
        again = " ".join(["engine wait --any", *handles])
        return _spent(app, client, reply["pending_ids"], again)
    return exit_code(wait.shown[0])


def _until(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _spent(app: App, client: Any, pending: list[str], again: str) -> int:
    """Say what has not ended, of one task also why, and that by `again` it is waited for."""
    from engine.cli.handles import as_param
    from engine.cli.report import report_spent

    if len(pending) == 1 and not pending[0].startswith("r"):
        row = client.call("read_task", as_param(pending[0]))  # as nobody, who is told nothing by it
        state = words.still(row, app.console.now())
    else:
        more = len(pending) - NAMED
        names = " ".join(pending[:NAMED]) + (f" and {more} more" if more > 0 else "")
        state = f"{words.going_on(len(pending))}: {names}"
    report_spent(app, f"{state}; {again}")
    return exits.STILL_RUNNING
