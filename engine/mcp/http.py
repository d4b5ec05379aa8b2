"""MCP over Streamable HTTP, on connections that the engine has handed over.

Each request passes the same doors as the one that opened its connection. hypercorn's trio worker
speaks HTTP, the SDK's session manager MCP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from engine.mcp.callers import name_of_client, name_of_session
from engine.mcp.context import Context, client_name
from engine.mcp.face import Busy, Face
from engine.mcp.peers import HttpPeers, Peer
from engine.mcp.wire import PATH
from engine.server.doors import Doors, Refusal, bearer_of

KEEP_ALIVE_SECS: Final = 75.0  # a connection without a request; agents think for a while
SESSION_HEADER: Final = "mcp-session-id"
SESSIONS: Final = 1_000  # at once; as many connections may be open

log = structlog.stdlib.get_logger("engine.mcp")


class Replayed(trio.abc.HalfCloseableStream):
    """`stream`, of which `seen` is read first."""

    def __init__(self, stream: trio.SocketStream, seen: bytes) -> None:
        self._stream, self._seen = stream, seen

    @property
    def socket(self) -> trio.socket.SocketType:
        return self._stream.socket

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._seen:
            await trio.lowlevel.checkpoint()
            seen, self._seen = self._seen, b""
            return seen
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class HttpFace:
    """The server for all HTTP conversations, from `open` on."""

    def __init__(self, peers: HttpPeers, busy: Busy) -> None:
        self._peers = peers
        self._config = Config()
        self._config.keep_alive_timeout = KEEP_ALIVE_SECS
        self._config.accesslog = self._config.errorlog = None
        self._worker = WorkerContext(None)
        self._manager = StreamableHTTPSessionManager(
            app=Face(self._find_peer, busy).make_server(),
            # The doors are ours.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_sessions=SESSIONS,
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def serve(self, stream: trio.SocketStream, seen: bytes, doors: Doors) -> None:
        """Answer the requests of one connection, until it ends."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return
            try:
                _check(doors, scope)
            except Refusal as exc:
                words = PlainTextResponse(f"{exc.text}\n", exc.status, dict(exc.headers))
                await words(scope, receive, send)
                return
            await self._manager.handle_request(scope, receive, send)

        wrapped: Any = ASGIWrapper(app)  # type: ignore[arg-type]  # its own words for the same
        replayed: Any = Replayed(stream, seen)
        await TCPServer(wrapped, self._config, self._worker, ConnectionState({}), replayed)

    def _find_peer(self, ctx: Context) -> Peer:
        assert ctx.request is not None
        headers = ctx.request.headers
        session = headers.get(SESSION_HEADER)
        name = name_of_client(client_name(ctx)) if session is None else name_of_session(session)
        return self._peers.find(bearer_of(headers.getlist("authorization")), name)


def _check(doors: Doors, scope: Scope) -> None:
    """Raise `Refusal` unless this request may come in."""
    doors.check(scope["headers"])
    if scope["path"] != PATH:
        raise Refusal(404, "no such page")
    doors.admit(scope["headers"])
