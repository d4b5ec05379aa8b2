"""`stdin`: what a job whose input is open, or that has a terminal, is given to read."""

from __future__ import annotations

import os
import sys
import time
from binascii import b2a_base64
from collections.abc import Iterator
from typing import Any, Final

import click

from engine.cli import exits
from engine.cli.app import App
from engine.cli.verbs import Verb, task_argument, verb
from engine.client.identity import is_text

PIECE: Final = 256 << 10  # bytes in one call
FIRST_PAUSE: Final = 0.05  # seconds until a job that has not read is asked again; doubled
LONGEST_PAUSE: Final = 1.0  # seconds


@click.command(
    "stdin",
    cls=Verb,
    help="Give a job TEXT to read, as a line, or our own stdin (-) byte for byte; --eof ends its "
    "input there (at a terminal: types the end-of-file character). Waits while it has more than "
    "1 MiB to read.",
)
@task_argument("handle", metavar="ID")
@click.argument("text", required=False)
@click.option("--eof", is_flag=True, help="End its input.")
@click.option("--force", is_flag=True, help="Also another caller's; it is on record.")
@click.pass_context
def stdin_verb(ctx: click.Context, /, handle: str, text: str | None, **options: bool) -> None:
    if text is None and not options["eof"]:
        raise click.UsageError("what? TEXT, - or --eof")
    if text is not None and not is_text(text):
        raise click.UsageError("TEXT is not UTF-8")
    verb(_feed, ctx, given=handle, text=text, **options)


def _feed(app: App, *, given: str, text: str | None, eof: bool, force: bool) -> int:
    from engine.cli.handles import resolve
    from engine.client.wire import to_json

    client = app.client()
    handle = resolve(app, client, given)
    task_id = "t" + handle[1:] if handle.startswith("k") else handle
    params = {"as": app.caller, "taskId": task_id, "force": force or None}
    feed = Feed(client, params)
    for piece in _pieces(text):
        feed.write(piece)
    if eof:
        feed.end()
    if app.json:
        app.console.line(to_json({"written": feed.written}))
    return exits.DONE


def _pieces(text: str | None) -> Iterator[bytes]:
    if text == "-":
        while piece := os.read(sys.stdin.fileno(), PIECE):
            yield piece
    elif text is not None:
        data = text.encode()
        yield data if data.endswith(b"\n") else data + b"\n"


class Feed:
    """The input of one task; `written` is what it has surely taken, in bytes."""

    def __init__(self, client: Any, params: dict[str, Any]) -> None:
        self._client, self._params = client, params
        self.written = 0

    def write(self, data: bytes) -> None:
        """Write all of it, as the job reads. Raises `Refused`, `ConnectionLost`."""
        from engine.client.errors import OVERLOADED, Refused

        left, pause = data, FIRST_PAUSE
        while left:
            text = b2a_base64(left, newline=False).decode()
            try:
                self._call({"base64": text}, f"whether the next {len(left)} were is not known")
            except Refused as exc:
                taken = exc.data.get("written")
                if exc.code != OVERLOADED or taken is None:
                    raise
                left = left[taken:]
                self.written += taken
                pause = FIRST_PAUSE if taken else min(2 * pause, LONGEST_PAUSE)
                time.sleep(pause)  # nobody tells when the job has read
            else:
                self.written += len(left)
                break

    def end(self) -> None:
        """End the input. Raises as `write` does."""
        self._call({"eof": True}, "whether the input was ended is not known")

    def _call(self, given: dict[str, Any], unknown: str) -> None:
        from engine.client.errors import ConnectionLost

        try:
            self._client.call("write_stdin", {**self._params, **given}, resend=False)
        except ConnectionLost as exc:
            line = f"connection lost: {self.written} bytes were taken, {unknown}"
            raise ConnectionLost(line) from exc
