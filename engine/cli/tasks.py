"""`tasks` and `show`: look at what there is, without taking part."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import click

from engine.cli import exits
from engine.cli.app import CALLER, App
from engine.cli.main import Verb, verb

PAGE: Final = 500  # rows at once, the most that the engine gives
ERRORS: Final = 20  # lines that `show` quotes at most
LAST_SEQ: Final = (1 << 53) - 1  # no line has a greater number
FAILED: Final = ("failed", "timed_out", "lost")
STATES: Final = ("queued", "held", "running", "succeeded", "cancelled", "skipped", "denied")


@click.command("tasks", cls=Verb, help="List the caller's tasks, newest first.")
@click.option("-a", "--all", "everybody", is_flag=True, help="Of all callers.")
@click.option("-c", "--caller", metavar="NAME", help="Of this caller.")
@click.option("-s", "--state", metavar="STATE[,STATE]", help="In these states.")
@click.option("--failed", is_flag=True, help="Failed, timed out or lost.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, metavar="N", help="(20)")
@click.option("--since", metavar="10m|TIME", help="Accepted since then.")
@click.option("--no-header", is_flag=True, help="Rows only.")
@click.pass_context
def tasks_verb(ctx: click.Context, /, **options: Any) -> None:
    verb(_tasks, ctx, **options)


@click.command("show", cls=Verb, help="Show everything about one task.")
@click.argument("id_", metavar="ID")
@click.pass_context
def show_verb(ctx: click.Context, /, id_: str) -> None:
    verb(_show, ctx, id_=id_)


def _tasks(app: App, **options: Any) -> int:
    from engine.cli import screens

    params = _params(app, options)
    after = moment_of(options["since"], app.console.now())
    client = app.client()
    rows, has_more = read_rows(client, params, options["limit"], after)
    if app.json:
        from engine.client.wire import to_json

        for row in rows:
            app.console.line(to_json(row))
        return exits.DONE
    view = app.console.view()
    if not rows and view.is_terminal:
        app.console.line(_nothing(app, options))
        return exits.DONE
    for line in screens.task_table(rows, view, header=not options["no_header"]):
        app.console.line(line)
    if view.is_terminal and not options["no_header"]:
        info = client.call("engine_info", {"as": app.caller})
        app.console.line(screens.task_footer(info, len(rows), has_more, view))
    return exits.DONE


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
) -> tuple[list[dict[str, Any]], bool]:
    """The newest `limit` rows, none older than `after`, and whether there are more."""
    from engine.cli import units

    rows: list[dict[str, Any]] = []
    before = None
    while True:
        asked = {**params, "limit": min(PAGE, limit - len(rows)), "before": before}
        page = client.call("list_tasks", asked)
        for row in page["tasks"]:
            if after is not None and units.parse_time(row["createdAt"]) < after:
                return rows, False
            rows.append(row)
        if not page["hasMore"] or len(rows) >= limit:
            return rows, bool(page["hasMore"])
        before = page["next"]


def _nothing(app: App, options: dict[str, Any]) -> str:
    if options["state"] or options["failed"] or options["since"]:
        return "no such tasks"
    if options["everybody"]:
        return "no tasks"
    name = options["caller"] or app.caller
    return f"no tasks of {name}. engine tasks -a shows everybody's"


def error_lines(app: App, client: Any, row: dict[str, Any]) -> list[dict[str, Any]]:
    """The newest lines of level error or worse of a task, the engine's word on its end included."""
    if not row.get("taskId"):
        return []
    asked = {"as": app.caller, "taskId": row["taskId"], "logs": "error", "logScope": "all"}
    asked |= {"before_seq": LAST_SEQ, "limit": ERRORS, "peek": True}
    lines: list[dict[str, Any]] = client.call("read_logs", asked)["lines"]
    return lines


def _show(app: App, *, id_: str) -> int:
    from engine.cli import screens
    from engine.cli.handles import resolve, task_of

    client = app.client()
    row = task_of(app, client, resolve(app, client, id_))
    if app.json:
        from engine.client.wire import to_json

        app.console.line(to_json(row))
        return exits.DONE
    errors = error_lines(app, client, row)
    for line in screens.one_task(row, app.console.view(), errors):
        app.console.line(line)
    return exits.DONE
