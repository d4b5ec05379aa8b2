"""`output`: what a task wrote, byte for byte."""

from __future__ import annotations

from typing import Any

import click

from engine.cli import exits
from engine.cli.app import App
from engine.cli.audience import Audience
from engine.cli.verbs import Verb, task_argument, verb


@click.command("output", cls=Verb, help="Print the output of a task, bytes exact.")
@task_argument("id_", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Until the task has ended; exits as it did.")
@click.option("--raw", is_flag=True, help="Escape sequences to a terminal, too.")
@click.pass_context
def output_verb(ctx: click.Context, /, id_: str, follow: bool, raw: bool) -> None:
    verb(_output, ctx, id_=id_, follow=follow, raw=raw)


def _output(app: App, *, id_: str, follow: bool, raw: bool) -> int:
    with Audience(app.console.out_fd) as audience:
        return _show(app, app.client(wake=audience), id_, follow=follow, raw=raw)


def _show(app: App, client: Any, id_: str, *, follow: bool, raw: bool) -> int:
    from engine.cli.handles import resolve, streams_of, task_of

    row = task_of(app, client, resolve(app, client, id_))
    if not row.get("taskId") and follow and row["status"] not in exits.ENDED:
        row = wait_reached(app, client, row)
    if not row.get("taskId"):
        app.console.say(f"{row['kickoffId']} has not started: no output")
        return exits.of_task(row) if follow else exits.DONE
    streams = streams_of(row)
    if app.json:
        return _pages(app, client, row["taskId"], streams)
    if follow:
        return _follow(app, client, row["taskId"], streams, raw)
    return _print(app, client, row["taskId"], streams, raw)


def wait_reached(app: App, client: Any, row: dict[str, Any]) -> dict[str, Any]:
    """The row of a kickoff once the engine has reached it, or it has ended without."""
    from engine.client.cursors import LOGS_HOLD

    while not row.get("taskId") and row["status"] not in exits.ENDED:
        asked = {"as": app.caller, "caller": row["as"], "changed_after": row["changedSeq"]}
        asked |= {"timeout_secs": LOGS_HOLD, "limit": 1}
        client.call("list_tasks", asked, budget=LOGS_HOLD)
        row = client.call("read_task", {"as": app.caller, "kickoffId": row["kickoffId"]})
    return row


def _print(app: App, client: Any, task_id: str, streams: tuple[str, ...], raw: bool) -> int:
    """Print what there is now, each stream to its own end."""
    from engine.cli.follow import Tail, Writer
    from engine.client.errors import Refused

    writer = Writer(app, raw=raw)
    for stream in streams:
        tail = Tail(client, app.caller, task_id, stream)
        cursor = tail.cursor
        end: int | None = None  # the size at the first page: what grows later is not waited for
        while not cursor.is_done and (end is None or cursor.offset < end):
            try:
                page = client.call("read_output", tail.page_params(0.0))
            except Refused as exc:
                tail.skip(exc)
                continue
            end = page["size"] if end is None else end
            writer.write(stream, tail.take(page, has_ended=True), final=cursor.is_done)
        if cursor.gone:
            app.console.say(f"{cursor.gone} bytes are not kept and could not be shown")
    return exits.DONE


def _follow(app: App, client: Any, task_id: str, streams: tuple[str, ...], raw: bool) -> int:
    """Print what there is and what comes, until the task has ended."""
    from engine.cli.follow import Follower, Writer

    follower = Follower(app, client, Writer(app, raw=raw))
    follower.read(task_id, streams)
    follower.wait()
    while not follower.is_done:
        got = client.next_answer(None)
        if got is not None:
            follower.answered(got[0], got[1].result, got[1].error)
    follower.tell_gone()
    assert follower.record is not None
    return exits.of_task(follower.record)


def _pages(app: App, client: Any, task_id: str, streams: tuple[str, ...]) -> int:
    """Print the engine's pages as they are."""
    from engine.client.cursors import PAGE
    from engine.client.wire import to_json

    for stream in streams:
        asked = {"as": app.caller, "taskId": task_id, "stream": stream, "limit_bytes": PAGE}
        offset, end = 0, None
        while end is None or offset < end:
            page = client.call("read_output", {**asked, "offset": offset})
            app.console.line(to_json(page))
            end = page["size"] if end is None else end
            if page["nextOffset"] <= offset:
                break
            offset = page["nextOffset"]
    return exits.DONE
