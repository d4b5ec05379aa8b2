"""`tasks` and `show`: look at what there is, without taking part."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import click

from engine.cli import exits
from engine.cli.app import CALLER, App
from engine.cli.verbs import Verb, task_argument, verb

PAGE: Final = 500  # rows at once, the most that the engine gives
COUNTED: Final = 2_000  # tasks that are counted, where more are there than are listed
ERRORS: Final = 20  # lines that `show` quotes at most
LAST_SEQ: Final = (1 << 53) - 1  # no line has a greater number
FAILED: Final = ("failed", "timed_out", "lost")
STATES: Final = ("queued", "held", "running", "succeeded", "cancelled", "skipped", "denied")


@click.command("tasks", cls=Verb, help="List the caller's tasks, newest first.")
@click.option("-a", "--all", "everybody", is_flag=True, help="Of all callers.")
@click.option("-c", "--caller", metavar="NAME", help="Of this caller.")
@click.option("-s", "--state", metavar="STATE[,STATE]", help="In these states.")
@click.option("--failed", is_flag=True, help="Failed, timed out or lost.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, metavar="N", help="The newest N (20)."
)
@click.option("--since", metavar="10m|TIME", help="Accepted since then.")
@click.option("--no-header", is_flag=True, help="Rows only.")
@click.option("--watch", is_flag=True, help="Go on with what changes, until Ctrl-C.")
@click.pass_context
def tasks_verb(ctx: click.Context, /, **options: Any) -> None:
    verb(_tasks, ctx, **options)


@click.command("show", cls=Verb, help="Show everything about one task.")
@task_argument("id_", metavar="ID")
@click.pass_context
def show_verb(ctx: click.Context, /, id_: str) -> None:
    verb(_show, ctx, id_=id_)


def _tasks(app: App, *, watch: bool, **options: Any) -> int:
    params = _params(app, options)
    after = moment_of(options["since"], app.console.now())
    limit, header = options["limit"], not options["no_header"]
    if watch:
        from engine.cli.watch import Rows, Watch

        rows = Rows(params["state"], after, limit)
        Watch(app, params, rows, header).run(lambda c: read_rows(c, params, limit, after)[0])
    client = app.client(role="observer")
    found, rest = read_rows(client, params, limit, after)
    if app.json:
        from engine.client.wire import to_json

        for row in found:
            app.console.line(to_json(row))
    elif found or not app.console.view().is_terminal:
        _print(app, client, found, header, lambda: _total(client, params, len(found), rest))
    else:
        app.console.line(_nothing(app, client, options))
    return exits.DONE


def _print(app: App, client: Any, rows: list[Any], header: bool, count: Callable[[], str]) -> None:
    from engine.cli import tasklist

    view = app.console.view()
    for line in tasklist.task_table(rows, view, header=header):
        app.console.line(line)
    if view.is_terminal and header:
        info = client.call("engine_info", {"as": app.caller})
        app.console.line(tasklist.task_footer(info, len(rows), count(), view))


def _params(app: App, options: dict[str, Any]) -> dict[str, Any]:
    caller = options["caller"]
    if caller is not None and not CALLER.fullmatch(caller):
        raise click.UsageError(f"-c {caller!r} is not 1 to 64 characters of a-z 0-9 _ -")
    states = [s for s in (options["state"] or "").split(",") if s]
    wrong = [s for s in states if s not in STATES + FAILED]
    if wrong:
        raise click.UsageError(f"-s {wrong[0]}: states are {' '.join(STATES + FAILED)}")
    if options["failed"]:
        states += FAILED
    everybody = "*" if options["everybody"] else None
    return {"as": app.caller, "caller": caller or everybody, "state": states or None}


def moment_of(text: str | None, now: datetime) -> datetime | None:
    """The moment that `--since` names: a span before `now`, or an RFC 3339 time."""
    from engine.cli import units

    if text is None:
        return None
    try:
        return now - timedelta(seconds=units.parse_span(text))
    except (ValueError, OverflowError):
        pass  # no span: a time then
    try:
        moment = units.parse_time(text)
    except ValueError as exc:
        raise click.UsageError(f"--since {text}: give 90s, 10m, 2h, 3d or a time") from exc
    return moment if moment.tzinfo else moment.astimezone()


def read_rows(
    client: Any, params: dict[str, Any], limit: int, after: datetime | None
) -> tuple[list[dict[str, Any]], str | None]:
    """The newest `limit` rows, none older than `after`, and the cursor of those that follow."""
    from engine.cli import units

    rows: list[dict[str, Any]] = []
    before = None
    while True:
        asked = {**params, "limit": min(PAGE, limit - len(rows)), "before": before}
        page = client.call("list_tasks", asked)
        for row in page["tasks"]:
            if after is not None and units.parse_time(row["createdAt"]) < after:
                return rows, None
            rows.append(row)
        before = page["next"] if page["hasMore"] else None
        if before is None or len(rows) >= limit:
            return rows, before


def _total(client: Any, params: dict[str, Any], shown: int, rest: str | None) -> str:
    """How many there are, the `rest` behind a cursor with them; empty where that is all."""
    if rest is None:
        return ""
    count = shown
    before: str | None = rest
    while before is not None and count < COUNTED:
        page = client.call("list_tasks", {**params, "limit": PAGE, "before": before})
        count += len(page["tasks"])
        before = page["next"] if page["hasMore"] else None
    return f"{count:,}" if before is None else f"{count:,}+"


def _nothing(app: App, client: Any, options: dict[str, Any]) -> str:
    if options["state"] or options["failed"] or options["since"]:
        return "no such tasks"
    if options["everybody"]:
        return "no tasks. engine run TEXT starts one"
    name = options["caller"] or app.caller
    everybody = {"as": app.caller, "caller": "*"}
    one = client.call("list_tasks", {**everybody, "limit": 1})
    if not one["tasks"]:
        return f"no tasks of {name}, nor of others. engine run TEXT starts one"
    count = _total(client, everybody, 1, one["next"] if one["hasMore"] else None) or "1"
    return f"no tasks of {name}. engine tasks -a shows everybody's ({count})"


def error_lines(client: Any, row: dict[str, Any]) -> list[dict[str, Any]]:
    """The newest lines of level error or worse of a task, the engine's word on its end included.

    It is nobody's look, so that it moves nobody's position.
    """
    if not row.get("taskId"):
        return []
    asked = {"taskId": row["taskId"], "logs": "error", "logScope": "all"}
    asked |= {"before_seq": LAST_SEQ, "limit": ERRORS, "peek": True}
    lines: list[dict[str, Any]] = client.call("read_logs", asked)["lines"]
    return lines


def _show(app: App, *, id_: str) -> int:
    from engine.cli import screens
    from engine.cli.handles import resolve, task_of

    client = app.client(role="observer")
    row = task_of(app, client, resolve(app, client, id_))
    if app.json:
        from engine.client.wire import to_json

        app.console.line(to_json(row))
        return exits.DONE
    if row["kind"] == "code" and row["status"] in exits.ENDED:
        asked = {"as": app.caller, "taskId": row["taskId"], "timeout_secs": 0, "logs": "none"}
        value = client.call("wait", {**asked, "max_output_bytes": 0}).get("value")
        row |= {} if value is None else {"value": value}
    errors = error_lines(client, row)
    for line in screens.one_task(row, app.console.view(), errors):
        app.console.line(line)
    return exits.DONE
