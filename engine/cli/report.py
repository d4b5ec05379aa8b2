"""How what went wrong is told: the words or the object on stderr, and the exit code for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine.cli import exits
from engine.cli.app import App

if TYPE_CHECKING:
    from engine.client.errors import ClientError


def usage_text(exc: click.UsageError) -> str:
    text = " ".join(exc.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:] if text[1:2].islower() else text
    known = exc.ctx.command_path if exc.ctx is not None else None
    return f"{text} (see: {known} --help)" if known and "engine " not in text else text


def _stopped(line: str) -> str:
    """A line as a sentence that another one follows."""
    return line if line.endswith((".", ":", ";", ",")) else line + "."


def report(
    app: App,
    kind: str,
    lines: list[str],
    code: int | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Say what went wrong on stderr, as words or, with `--json`, as one object."""
    if not app.json:
        for line in lines:
            app.console.say(line, always=True)
        return
    from engine.client.wire import to_json

    message = " ".join([*(_stopped(line) for line in lines[:-1]), *lines[-1:]])
    error = {"code": code, "kind": kind, "message": message, "data": data or {}}
    app.console.raw_error(to_json({"error": error}))


def report_spent(app: App, line: str) -> None:
    """Say that time was up before the end, which `-q` leaves to the exit code."""
    if app.json:
        report(app, "still_running", [line])
    else:
        app.console.say(line)


def report_error(app: App, exc: ClientError) -> int:
    """Report `exc`; the exit code for it."""
    from engine.cli.words import refusal
    from engine.client import errors

    if isinstance(exc, errors.Refused):
        report(app, exc.kind, [refusal(exc, app.subject)], exc.code, exc.data)
        code = exits.NOT_ALLOWED if exc.code == errors.FORBIDDEN else exits.REFUSED
    else:
        report(app, exc.kind, exc.lines)
        unreadable = isinstance(exc, errors.TokenUnreadable)
        code = exits.NOT_ALLOWED if unreadable else exits.NOT_REACHABLE
        if isinstance(exc, errors.AmbiguousHandle | errors.CannotWrite):
            code = exits.REFUSED
        if isinstance(exc, errors.Unsendable | errors.WrongUrl):
            code = exits.USAGE
    return exits.OURS if app.as_job else code
