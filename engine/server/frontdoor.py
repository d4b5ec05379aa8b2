"""The one way in: accept, read the head, check the doors, then a page or a websocket.

Plain HTTP is answered from a small table, one request a connection; `/rpc` and `/mcp` are handed
on. What a method does, what readiness means, and who speaks MCP is brought in from outside. One
client's fault never leaves its own nursery.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import h11
import msgspec
import structlog
import trio
from trio_websocket import ConnectionClosed, wrap_server_stream
from wsproto.utilities import LocalProtocolError

from engine.server.connection import GOING_AWAY, MESSAGE_MAX_BYTES, Connection
from engine.server.dispatcher import Dispatcher
from engine.server.doors import Admission, Doors, Refusal, check_handshake, wants_websocket
from engine.server.listeners import peer_name
from engine.server.porch import Porch
from engine.server.stream import HeadStream
from engine.server.trimming import Trimmer, find_trim

HEAD_MAX_BYTES: Final = 16 * 1024
HEAD_CHUNK_BYTES: Final = 4 * 1024
HEAD_SECS: Final = 10.0  # for the whole head, however slowly it comes
HANDSHAKE_SECS: Final = 10.0
RESPONSE_SECS: Final = 10.0
RECEIVE_BYTES: Final = 64 * 1024
MAX_CONNECTIONS: Final = 1_000
UNIX_SHARE: Final = 10  # of the connections, one in so many is for the socket in the home alone
BACKOFF_SECS: Final = 0.1  # after an accept for which the system had no descriptor or memory left
DRAIN_SECS: Final = 2.0  # at the end, for replies under way to be written

RPC_PATH: Final = "/rpc"
MCP_PATH: Final = "/mcp"
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_GONE_BEFORE: Final = frozenset({errno.ECONNABORTED, errno.EPROTO})

log = structlog.stdlib.get_logger("engine.server")


class Response(NamedTuple):
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, kw_only=True)
class Pages:
    """What the pages show. `readiness`: None is ready, else the one word that says why not.
    `whoami`: what `/whoami` answers besides the role."""

    readiness: Callable[[], str | None]
    whoami: Callable[[], Mapping[str, Any]]


# Takes a client that is let in, the bytes read from it so far, and the TCP port that it came to
# (None: the socket in the home); comes back when the client is gone. Raises `Refusal`.
HandOver = Callable[[trio.SocketStream, bytes, int | None], Awaitable[None]]


async def _refuse_mcp(stream: trio.SocketStream, seen: bytes, port: int | None) -> None:
    raise Refusal(501, "this engine does not offer MCP")


class FrontDoor:
    def __init__(
        self,
        dispatcher: Dispatcher,
        pages: Pages,
        *,
        max_connections: int = MAX_CONNECTIONS,
        mcp: HandOver = _refuse_mcp,
    ) -> None:
        self._dispatcher = dispatcher
        self._pages = pages
        self._mcp = mcp
        self._max_connections = max_connections
        self._trimmer = Trimmer(find_trim())
        self._inside = 0  # clients that are let in
        self._connections: set[Connection] = set()  # those that are websockets by now

    async def serve(
        self,
        listeners: Sequence[tuple[trio.SocketListener, Doors]],
        *,
        stop: trio.Event,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `stop` is set, then end in order and close the listeners.

        The order: nobody new; new requests refused; replies under way written (`DRAIN_SECS`);
        the connections closed with 1001. Cancelling skips all of that.
        """
        async with trio.open_nursery() as client_nursery:
            async with trio.open_nursery() as accept_nursery:
                for listener, doors in listeners:
                    accept_nursery.start_soon(self._accept, listener, doors, client_nursery)
                accept_nursery.start_soon(self._trimmer.serve)
                task_status.started()
                await stop.wait()
                accept_nursery.cancel_scope.cancel()
            await self._end()
            client_nursery.cancel_scope.cancel()

    async def _end(self) -> None:
        self._dispatcher.is_shutting_down = True
        with trio.move_on_after(DRAIN_SECS):
            for connection in list(self._connections):
                await connection.wait_idle()
        async with trio.open_nursery() as closing_nursery:
            for connection in list(self._connections):
                closing_nursery.start_soon(connection.close, GOING_AWAY)

    async def _accept(
        self, listener: trio.SocketListener, doors: Doors, client_nursery: trio.Nursery
    ) -> None:
        porch = Porch()
        async with listener:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as exc:
                    await _back_off(exc, porch)
                    continue
                client_nursery.start_soon(self._serve_client, stream, doors, porch)

    async def _serve_client(self, stream: trio.SocketStream, doors: Doors, porch: Porch) -> None:
        """One client, from its first byte to its last. Raises nothing: a fault is logged here."""
        try:
            with porch.place() as scope:
                await self._greet(stream, doors, lambda: porch.leave(scope))
        except* (
            trio.BrokenResourceError,
            trio.ClosedResourceError,
            ConnectionClosed,
            LocalProtocolError,  # the websocket layer answers a ping after our close frame
        ) as gone:
            log.debug("client gone", reason=repr(gone.exceptions[0]))
        except* Exception:  # a bug of ours ends this client, not the others
            log.exception("connection failed")
        finally:
            await trio.aclose_forcefully(stream)

    async def _greet(
        self, stream: trio.SocketStream, doors: Doors, let_in: Callable[[], None]
    ) -> None:
        """Answer a client; `let_in` is called where it stays."""
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX_BYTES)
        is_head = False
        try:
            head = await _read_head(stream, http)
            if head is None:
                return
            request, seen = head
            rest, _ = http.trailing_data
            is_head = request.method == b"HEAD"
            doors.check(request.headers)
            path = request.target.decode("latin-1").partition("?")[0]
            if path == RPC_PATH:
                head_stream = HeadStream(stream, seen.removesuffix(rest), rest, self._trimmer.moved)
                admission = self._admit(request, doors)
                let_in()
                await self._serve_websocket(head_stream, admission)
                return
            if path == MCP_PATH:
                doors.admit(request.headers)
                with self._inside_of(doors):
                    let_in()
                    await self._mcp(stream, seen, doors.port)
                return
            response = self._page(path, request, doors)
        except h11.RemoteProtocolError as exc:
            response = Response(exc.error_status_hint, b"bad request\n")
        except Refusal as exc:
            response = Response(exc.status, f"{exc.text}\n".encode(), headers=exc.headers)
        with trio.move_on_after(RESPONSE_SECS):
            await _respond(stream, http, response, is_head=is_head)
        await HeadStream(stream).linger()

    def _page(self, path: str, request: h11.Request, doors: Doors) -> Response:
        """The answer to a plain request. Raises `Refusal`."""
        pages = {
            "/livez": self._livez,
            "/healthz": self._livez,
            "/readyz": self._readyz,
            "/whoami": self._whoami,
        }
        if path not in pages:
            raise Refusal(404, "no such page")
        if request.method not in (b"GET", b"HEAD"):
            raise Refusal(405, "expected GET or HEAD", [("Allow", "GET, HEAD")])
        return pages[path](request, doors)

    def _livez(self, request: h11.Request, doors: Doors) -> Response:
        return Response(200, b"ok\n")

    def _readyz(self, request: h11.Request, doors: Doors) -> Response:
        word = self._pages.readiness()
        return Response(200, b"ready\n") if word is None else Response(503, f"{word}\n".encode())

    def _whoami(self, request: h11.Request, doors: Doors) -> Response:
        facts = {"role": doors.admit(request.headers).role, **self._pages.whoami()}
        return Response(200, msgspec.json.encode(facts), "application/json")

    def _admit(self, request: h11.Request, doors: Doors) -> Admission:
        """What a client that is let in may do. Raises `Refusal`."""
        admission = doors.admit(request.headers)
        if request.method != b"GET" or not wants_websocket(request.headers):
            raise Refusal(426, "expected a websocket handshake", [("Upgrade", "websocket")])
        check_handshake(request.headers)
        self._check_room(doors)
        return admission

    def _check_room(self, doors: Doors) -> None:
        """Raise `Refusal` where as many clients are in as may be."""
        limit = f"max_connections = {self._max_connections}"
        kept = 0 if doors.port is None else self._max_connections // UNIX_SHARE
        if self._inside >= self._max_connections - kept:
            limit += f", {kept} of them for the Unix socket" if kept else ""
            text = f"as many connections are open as may be ({limit}); close one"
            raise Refusal(503, text)

    @contextmanager
    def _inside_of(self, doors: Doors) -> Iterator[None]:
        """A place inside for a client. Raises `Refusal` where there is none."""
        self._check_room(doors)
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    async def _serve_websocket(self, stream: HeadStream, admission: Admission) -> None:
        """Shake hands with the client and hand it on to a `Connection`."""
        self._inside += 1
        try:
            async with trio.open_nursery() as websocket_nursery:
                websocket = None
                with trio.move_on_after(HANDSHAKE_SECS):
                    proposal = await wrap_server_stream(
                        websocket_nursery,
                        stream,
                        max_message_size=MESSAGE_MAX_BYTES,
                        receive_buffer_size=RECEIVE_BYTES,
                    )
                    websocket = await proposal.accept(subprotocol=admission.subprotocol)
                    stream.open()
                if websocket is not None:
                    role, peer = admission.role, peer_name(stream.socket)
                    await self._serve_connection(
                        Connection(websocket, stream, self._dispatcher, role=role, peer=peer)
                    )
                websocket_nursery.cancel_scope.cancel()
        finally:
            self._inside -= 1

    async def _serve_connection(self, connection: Connection) -> None:
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)


async def _back_off(exc: OSError, porch: Porch) -> None:
    """Wait a moment where the system has no room, nothing where the client went away again.

    A client that is not in makes room: it may be one that never says a word.
    """
    if exc.errno in _NO_ROOM:
        porch.close_oldest()
        log.error("cannot accept", reason=exc.strerror)
        await trio.sleep(BACKOFF_SECS)
    elif exc.errno not in _GONE_BEFORE:
        raise exc


async def _read_head(
    stream: trio.SocketStream, http: h11.Connection
) -> tuple[h11.Request, bytes] | None:
    """The request and all bytes read so far; None where the client ends or dawdles.

    Raises `h11.RemoteProtocolError`, with the status that says what is wrong.
    """
    seen = b""
    with trio.move_on_after(HEAD_SECS):
        while True:
            event = http.next_event()
            if isinstance(event, h11.Request):
                return event, seen
            if event is not h11.NEED_DATA:
                return None
            data = bytes(await stream.receive_some(HEAD_CHUNK_BYTES))
            seen += data
            http.receive_data(data)
    return None


async def _respond(
    stream: trio.SocketStream, http: h11.Connection, response: Response, *, is_head: bool
) -> None:
    headers = [
        ("Date", formatdate(usegmt=True)),
        ("Content-Type", response.content_type),
        ("Content-Length", str(len(response.body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
        *response.headers,
    ]
    reason = HTTPStatus(response.status).phrase
    events = [
        h11.Response(status_code=response.status, headers=headers, reason=reason),
        h11.Data(data=b"" if is_head else response.body),
        h11.EndOfMessage(),
    ]
    await stream.send_all(b"".join(http.send(event) or b"" for event in events))
