"""The requests by which a cursor is followed, and what a refusal means to it. Pure."""

from __future__ import annotations

from typing import Literal

from engine.client.cursors import LogCursor, OutputCursor
from engine.client.errors import RpcError
from engine.client.refusals import as_error
from engine.client.requests import Common, read_logs
from engine.client.typed import Request
from engine.protocol.fields import LogLevel, LogScope
from engine.protocol.results import LogPage, OutputPage

Stream = Literal["output", "stdout", "stderr"]


class LogOptions(Common, total=False):
    """Which lines of the journal, as `read_logs` has it."""

    logs: LogLevel | None
    log_scope: LogScope | None
    caller: str | None
    task_id: str | None
    contains: str | None


def page_of_output(cursor: OutputCursor, as_: str | None, hold: float) -> Request[OutputPage]:
    """The next page of the output, for whose first byte the engine waits `hold` seconds."""
    return Request("read_output", {"as": as_, **cursor.params(hold)}, budget=hold)


def skip_gone(cursor: OutputCursor, refused: RpcError) -> None:
    """Go on where the kept bytes begin; where it is about something else, raise its error."""
    try:
        cursor.skip(refused)
    except RpcError as exc:
        raise as_error(exc) from exc


def page_of_logs(cursor: LogCursor, hold: float, wanted: LogOptions) -> Request[LogPage]:
    """The next page of the journal, for whose first line the engine waits `hold` seconds."""
    asked = read_logs(**wanted)
    return Request("read_logs", {**asked.params, **cursor.params(hold)}, budget=hold)


def head_of_journal(as_: str | None) -> Request[LogPage]:
    """A look that brings no line but `latest_seq`."""
    return read_logs(before_seq=1, limit=1, peek=True, as_=as_)
