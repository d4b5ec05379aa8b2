"""`status` and `stop`: the engine itself."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Any, Final

import click

from engine.cli import exits
from engine.cli.app import App
from engine.cli.verbs import Verb, verb

METHOD_NOT_FOUND: Final = -32601
STOP_WAIT: Final = 30.0  # seconds until an engine that was told to stop has to be gone


@click.command("status", cls=Verb, help="The engine at a glance. Exit 1 where it is degraded.")
@click.pass_context
def status_verb(ctx: click.Context, /) -> None:
    verb(_status, ctx)


@click.command("stop", cls=Verb, help="Stop the engine and wait until it is gone; jobs run on.")
@click.option("--cancel", is_flag=True, help="End the jobs, too.")
@click.pass_context
def stop_verb(ctx: click.Context, /, cancel: bool) -> None:
    verb(_stop, ctx, cancel=cancel)


def _status(app: App) -> int:
    from engine.cli.callers import read_roster
    from engine.cli.statusscreen import problems, status_lines
    from engine.client.wire import to_json

    client = app.client(role="observer")
    info = client.call("engine_info", {"as": app.caller})
    place = client.place
    if app.json:
        stats = _if_known(lambda: client.call("read_stats", {"as": app.caller}))
        app.console.line(to_json({**info, "stats": stats}))
    elif not app.console.quiet:
        # No sample is as new as this: only what sums up the hour comes.
        now = app.console.now().isoformat(timespec="milliseconds")
        asked = {"as": app.caller, "since": now.replace("+00:00", "Z")}
        stats = _if_known(lambda: client.call("read_stats", asked))
        roster = _if_known(lambda: read_roster(app, client))
        url, pid = (place.url, place.pid) if place else ("", None)
        hour = stats and stats.get("lastHour")
        view = app.console.view()
        for line in status_lines(info, url, pid, view, roster=roster, hour=hour):
            app.console.line(line)
    return exits.REFUSED if problems(info) else exits.DONE


def _if_known(ask: Callable[[], Any]) -> Any:
    """What `ask` returns; None where the engine is of a release that has no such method."""
    from engine.client.errors import Refused

    try:
        return ask()
    except Refused as exc:
        if exc.code != METHOD_NOT_FOUND:
            raise
        return None


def _stop(app: App, *, cancel: bool) -> int:
    from engine.client.errors import NotReachable
    from engine.client.wire import to_json

    client = app.client(role="human")
    pid = client.place.pid if client.place else None
    info = client.call("engine_info", {"as": app.caller})
    gone = _watch(pid)
    try:
        mode = "cancel" if cancel else "leave"
        asked = {"as": app.caller, "mode": mode}
        reply = client.call("shutdown", asked, budget=STOP_WAIT, resend=False)
        if gone is not None and not _is_gone(gone):
            raise NotReachable(f"the engine (pid {pid}) is still there after {STOP_WAIT:g} s")
    finally:
        if gone is not None:
            os.close(gone)
    if app.json:
        app.console.line(to_json(reply))
    elif not app.console.quiet:
        app.console.line(_stopped(info, cancel))
    return exits.DONE


def _watch(pid: int | None) -> int | None:
    """A descriptor that becomes readable when the engine's process ends; None where it is afar."""
    if pid is None or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # not on this machine, or gone by now


def _is_gone(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(STOP_WAIT * 1000))


def _stopped(info: dict[str, Any], cancel: bool) -> str:
    running = info.get("running") or 0
    if not running:
        return "stopped"
    noun, go_on = ("job", "runs on") if running == 1 else ("jobs", "run on")
    return f"stopped; {running} {noun} {'cancelled' if cancel else go_on}"
