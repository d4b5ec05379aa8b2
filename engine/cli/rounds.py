"""`round`: several jobs side by side as the seats of a round, and the failed ones again."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, Final

import click

from engine.cli import exits
from engine.cli.app import App
from engine.cli.signals import REDRAWING, Signals, left_by, terminable
from engine.cli.verbs import Helped, Verb, verb
from engine.client.identity import is_text

SEAT: Final = re.compile(r"([a-z0-9_-]{1,64})(?:@([a-z0-9_-]{1,64}))?=(.*)", re.S)
SEAT_FORM: Final = "NAME[@LANE]=TEXT"

Row = dict[str, Any]


class Verbs(Helped, click.Group):
    """A verb that has verbs of its own."""


junit_option = click.option(
    "--junit", metavar="FILE", help="Write a report for CI there, each seat a test case."
)


@click.group(
    "round",
    cls=Verbs,
    help="Run jobs side by side, as the seats of a round, and the failed ones again.",
    subcommand_metavar="VERB [ARGS]...",
)
def round_verb() -> None:
    pass


@round_verb.command(
    "start",
    cls=Verb,
    help="Start the seats together, show how they go and, where one did not succeed, its error "
    "lines. Exit 0 when all succeeded, else 1.",
)
@click.option(
    "--seat", "seats", multiple=True, metavar=SEAT_FORM, help="A seat: bash text, in a fresh shell."
)
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    help='Seats as JSON (- from stdin): {"unit": {"command": "pytest -q"}}, as the wire has them.',
)
@junit_option
@click.pass_context
def start_verb(
    ctx: click.Context, /, seats: tuple[str, ...], file: str | None, junit: str | None
) -> None:
    filed, told = _from_file(file), _from_texts(seats)
    for name in filed.keys() & told.keys():
        raise click.UsageError(f"seat {name} is in -f and in --seat")
    verb(_start, ctx, seats={**filed, **told}, junit=junit)


@round_verb.command("show", cls=Verb, help="Show how a round stands, once.")
@click.argument("round_id", metavar="ID")
@click.pass_context
def show_verb(ctx: click.Context, /, round_id: str) -> None:
    _check_round(round_id)
    verb(_show, ctx, round_id=round_id)


@round_verb.command(
    "retry",
    cls=Verb,
    help="Run the seats again that did not succeed, then as start.",
)
@click.argument("round_id", metavar="ID")
@junit_option
@click.pass_context
def retry_verb(ctx: click.Context, /, round_id: str, junit: str | None) -> None:
    _check_round(round_id)
    verb(_retry, ctx, round_id=round_id, junit=junit)


def _from_texts(given: tuple[str, ...]) -> dict[str, Row]:
    """Seats as `--seat` names them. Raises UsageError."""
    seats: dict[str, Row] = {}
    for text in given:
        found = SEAT.fullmatch(text)
        if not found or not found[3]:
            raise click.UsageError(f"--seat {text!r} is not of the form {SEAT_FORM}")
        name, lane, command = found.groups()
        if not is_text(command):
            raise click.UsageError(f"--seat {name} is not UTF-8")
        if name in seats:
            raise click.UsageError(f"--seat {name} is there twice")
        seats[name] = {"command": command, "session": False}
        seats[name] |= {} if lane is None else {"lane": lane}
    return seats


def _from_file(path: str | None) -> dict[str, Row]:
    """Seats as a file has them, in the wire's form. Raises UsageError."""
    from engine.cli.app import read_stdin

    if path is None:
        return {}
    try:
        if path == "-":
            seats = json.loads(read_stdin("-f"), object_pairs_hook=_once)
        else:
            with open(path, encoding="utf-8") as file:
                seats = json.load(file, object_pairs_hook=_once)
    except OSError as exc:
        raise click.UsageError(f"-f {path} cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        raise click.UsageError(f"-f {path} is no JSON: {exc}") from exc
    if not isinstance(seats, dict) or not all(isinstance(s, dict) for s in seats.values()):
        raise click.UsageError(f'-f {path} has to be an object: {{"unit": {{"command": "…"}}}}')
    return seats


def _once(pairs: list[tuple[str, Any]]) -> Row:
    """An object of JSON, none of whose names is there twice. Raises UsageError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise click.UsageError(f"-f: {twice} is there twice")
    return found


def _check_round(given: str) -> None:
    """Raise UsageError where that is no round's id, though it may be a task's."""
    if not given.startswith("r"):
        raise click.UsageError(f"{given} is no round: their ids begin with r")


def _check_junit(path: str | None) -> None:
    """Raise UsageError now, not when all is done, where no report can be written."""
    from engine.cli import junit

    if path is None:
        return
    if not path:
        raise click.UsageError("--junit: the name of the file is empty")
    if path == "-":
        raise click.UsageError("--junit - : give a file; stdout has the ends of the seats")
    try:
        target = junit.find_target(path)
    except OSError as exc:
        raise click.UsageError(f"--junit {path} cannot be written: {exc.strerror}") from exc
    folder = os.path.dirname(target)
    writable = os.access(folder, os.W_OK | os.X_OK) if target else os.access(path, os.W_OK)
    if os.path.isdir(path) or not writable:
        raise click.UsageError(f"--junit {path} cannot be written")


def _start(app: App, *, seats: dict[str, Row], junit: str | None) -> int:
    from engine.cli.report import report_error
    from engine.client.errors import INVALID_PARAMS, Refused

    if not seats:
        raise click.UsageError(f"which? --seat {SEAT_FORM} or -f FILE")
    _check_junit(junit)
    with Signals(*REDRAWING) as signals:
        client = app.client(starts=True, hello=True, wake=signals)
        asked = {"as": app.caller, "seats": seats}
        try:
            begun = client.call("run_round", asked, resend=False)
        except Refused as exc:
            code = report_error(app, exc)  # seats that are not as they have to be: wrong usage
            return exits.USAGE if exc.code == INVALID_PARAMS else code
        return _follow(app, client, begun["roundId"], signals, junit=junit)


def _retry(app: App, *, round_id: str, junit: str | None) -> int:
    from engine.cli.handles import resolve_round
    from engine.cli.roundscreen import failed
    from engine.cli.roundwatch import read_round, rows_of_seats

    _check_junit(junit)
    with Signals(*REDRAWING) as signals:
        client = app.client(hello=True, wake=signals)
        round_id = resolve_round(app, client, round_id)
        names = failed(rows_of_seats(read_round(client, round_id)))
        if names:
            asked = {"as": app.caller, "roundId": round_id, "retry_seats": names}
            client.call("run_round", asked, resend=False)
        else:
            app.console.say(f"no seat of {round_id} has failed")
        return _follow(app, client, round_id, signals, junit=junit)


def wait_round(app: App, *, round_id: str, timeout: float | None) -> int:
    """Wait until no seat of a round runs; 0 when all succeeded."""
    app.as_job = False
    from engine.cli.handles import resolve_round

    until = None if timeout is None else time.monotonic() + timeout
    with Signals(*REDRAWING) as signals:
        client = app.client(starts=True, wake=signals, timeout=timeout)
        round_id = resolve_round(app, client, round_id)
        return _follow(app, client, round_id, signals, until=until)


def _follow(
    app: App,
    client: Any,
    round_id: str,
    signals: Signals,
    *,
    until: float | None = None,
    junit: str | None = None,
) -> int:
    """Show the round to its end, then what went wrong; the exit code."""
    from engine.cli import roundscreen
    from engine.cli.report import report_spent
    from engine.cli.roundwatch import RoundWatch, quoted_lines
    from engine.cli.tasks import error_lines

    watch = RoundWatch(app, client, round_id, until)
    try:
        with terminable():
            watch.run(signals)
    except KeyboardInterrupt as exc:
        app.console.end_interrupted()
        goes_on = f"round {round_id} goes on; engine wait {round_id}, or engine cancel {round_id}"
        app.console.say(goes_on, always=True)
        return left_by(exc)
    if watch.ended is None:
        report_spent(app, f"round {round_id} goes on; engine wait {round_id}")
        return exits.STILL_RUNNING
    names = roundscreen.failed(watch.rows)
    errors = {name: error_lines(client, watch.rows[name]) for name in names}
    if not app.json:
        for name in names:
            view = app.console.view()
            quoted = quoted_lines(client, watch.rows[name], errors[name])
            for line in roundscreen.seat_errors(name, watch.rows[name], quoted, view):
                app.console.line(line)
    if names:
        app.console.say(roundscreen.verdict(round_id, watch.rows))
    if junit is not None:
        _report(client, round_id, watch.rows, errors, junit)
    return exits.REFUSED if names else exits.DONE


def _report(
    client: Any, round_id: str, rows: dict[str, Row], errors: dict[str, list[Row]], path: str
) -> None:
    from engine.cli import junit
    from engine.cli.tails import read_end

    seats = [
        junit.Seat(
            name,
            row,
            [f"{e['time']} {e['text']}" for e in errors.get(name, ()) if e["source"] != "engine"],
            read_end(client, row),
            read_end(client, row, "stderr"),
        )
        for name, row in rows.items()
    ]
    junit.write(path, junit.report(round_id, seats))


def _show(app: App, *, round_id: str) -> int:
    from engine.cli import roundscreen
    from engine.cli.handles import resolve_round
    from engine.cli.roundwatch import explain, read_round, rows_of_seats
    from engine.cli.tails import last_line, read_tail
    from engine.client.wire import to_json

    client = app.client(role="observer")
    round_id = resolve_round(app, client, round_id)
    found = read_round(client, round_id)
    if app.json:
        app.console.line(to_json(found))
        return exits.DONE
    rows = rows_of_seats(found)
    explain(client, rows)
    view = app.console.view()
    if not view.is_terminal:
        for name, row in rows.items():
            app.console.line(roundscreen.plain_seat(name, row, view.now))
        for name in rows:
            for line in roundscreen.seat_errors(name, rows[name], (), view):
                app.console.line(line)
        return exits.DONE
    tails = {
        name: last_line(read_tail(client, row["taskId"]))
        for name, row in rows.items()
        if row.get("outputBytes")
    }
    for line in roundscreen.round_block(round_id, rows, tails, view, None):
        app.console.line(line)
    return exits.DONE
