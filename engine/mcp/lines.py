"""MCP over a connection that was upgraded: one JSON message a line, as over stdio.

The first line is no message of MCP but the pipe's greeting: who the agent is and where it runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import msgspec
import structlog
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from engine.mcp.wire import LINE_MAX_BYTES, SWITCHED

RECEIVE_BYTES: Final = 64 * 1024
GREETING_SECS: Final = 10.0
WRITE_STALL_SECS: Final = 30.0  # a client that takes no message in this time is gone

log = structlog.stdlib.get_logger("engine.mcp")


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """What the pipe says of itself; what it adds later is no error."""

    name: str  # the caller where no call names one
    cwd: str | None = None
    env: dict[str, str] | None = None
    client: str | None = None
    max_wait: float | None = None


class BadLine(Exception):
    """The connection cannot go on: a line without an end, or no greeting."""


class Lines:
    """The lines of a stream, of which `rest` has been read already."""

    def __init__(self, stream: trio.abc.Stream, rest: bytes) -> None:
        self._stream, self._rest = stream, bytearray(rest)
        self._looked = 0  # so far there is no end of line

    async def next(self) -> bytes | None:
        """The next line without its end; None at the end. Raises `BadLine`."""
        while (end := self._rest.find(b"\n", self._looked)) < 0:
            self._looked = len(self._rest)
            if self._looked > LINE_MAX_BYTES:
                raise BadLine(f"a line of more than {LINE_MAX_BYTES} bytes")
            data = await self._stream.receive_some(RECEIVE_BYTES)
            if not data:
                return None
            self._rest += data
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        self._looked = 0
        return line

    async def greeting(self) -> Greeting:
        """The first line. Raises `BadLine`."""
        with trio.move_on_after(GREETING_SECS):
            line = await self.next()
            try:
                return msgspec.json.decode(line or b"", type=Greeting)
            except msgspec.DecodeError as exc:
                raise BadLine(f"no greeting: {exc}") from exc
        raise BadLine("no greeting")


async def accept(stream: trio.abc.Stream) -> None:
    """Say that the connection speaks lines from now on."""
    await stream.send_all(SWITCHED)


async def converse(server: Server[Any], stream: trio.abc.Stream, lines: Lines) -> None:
    """Serve MCP until the client ends the connection; what it waits for then ends too."""
    read_in, read_out = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_in, write_out = anyio.create_memory_object_stream[SessionMessage](0)
    async with trio.open_nursery() as line_nursery:
        line_nursery.start_soon(_read, lines, read_in)
        line_nursery.start_soon(_write, stream, write_out)
        await server.run(read_out, write_in, server.create_initialization_options())
        line_nursery.cancel_scope.cancel()


async def _read(lines: Lines, messages: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    async with messages:
        try:
            async for line in _each(lines):
                await messages.send(_message(line))
        except (trio.BrokenResourceError, trio.ClosedResourceError, BadLine) as exc:
            log.debug("mcp_client_gone", reason=str(exc))
        except anyio.BrokenResourceError:
            return  # the server has ended the conversation


async def _each(lines: Lines) -> AsyncIterator[bytes]:
    while (line := await lines.next()) is not None:
        if line.strip():
            yield line


def _message(line: bytes) -> SessionMessage | Exception:
    """The message in a line; what is none is for the server to judge."""
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError as exc:
        return exc


async def _write(
    stream: trio.abc.Stream, messages: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    async with messages:
        try:
            async for each in messages:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                with trio.fail_after(WRITE_STALL_SECS):
                    await stream.send_all(text.encode() + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as exc:
            log.debug("mcp_client_gone", reason=str(exc))
