"""One websocket connection: frames in, replies out through one writer, pings, and its end.

What a frame means is the dispatcher's. All that a client makes us hold is bounded: past
`OUTBOX_SOFT_BYTES` of unwritten replies its frames are no longer read, past `OUTBOX_HARD_BYTES` it
is dropped, and so is one that stops reading (`stream.WRITE_STALL_SECS`) or answers no ping.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, Final

import structlog
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from engine.protocol.envelope import RequestId
from engine.server.dispatcher import Dispatcher, Request, Role
from engine.server.stream import HeadStream

MESSAGE_MAX_BYTES: Final = 16 << 20
OUTBOX_SOFT_BYTES: Final = 4 << 20
OUTBOX_SOFT_REPLIES: Final = 10_000
OUTBOX_HARD_BYTES: Final = 64 << 20
PING_EVERY_SECS: Final = 20.0
PONG_WITHIN_SECS: Final = 20.0
CLOSE_GRACE_SECS: Final = 1.0  # for the client to answer our close frame

# RFC 6455, section 7.4.1
GOING_AWAY: Final = 1001
UNSUPPORTED_DATA: Final = 1003
TOO_BIG: Final = 1009
# For these the websocket layer ends by itself: without a close frame, but for 1009.
_FAULTS: Final = frozenset({1002, 1007, TOO_BIG})

log = structlog.stdlib.get_logger("engine.server")


class InFlight:
    """The requests of one connection that have no reply yet, found by id.

    One id may be in flight twice: each is answered, and a cancel by id means both.
    """

    def __init__(self) -> None:
        self._by_id: dict[object, set[Request]] = {}
        self._count = 0
        self.size = 0  # bytes of their frames
        self.idle = trio.Event()
        self.idle.set()

    def __len__(self) -> int:
        return self._count

    def add(self, request: Request) -> None:
        if self._count == 0:
            self.idle = trio.Event()
        self._by_id.setdefault(request.id, set()).add(request)
        self._count += 1
        self.size += request.size

    def discard(self, request: Request) -> None:
        same = self._by_id.get(request.id, set())
        if request not in same:
            return
        same.remove(request)
        if not same:
            del self._by_id[request.id]
        self._count -= 1
        self.size -= request.size
        if self._count == 0:
            self.idle.set()

    def by_id(self, request_id: RequestId) -> list[Request]:
        return list(self._by_id.get(request_id, ()))


class _Outbox:
    """Replies on their way out. Never waits to take one; who fills it looks at `has_room`."""

    def __init__(self) -> None:
        self._replies: deque[tuple[bytes, Collection[Request]]] = deque()
        self._size = 0
        self._filled = trio.Event()
        self._room = trio.Event()
        self._room.set()
        self.drained = trio.Event()
        self.drained.set()

    @property
    def is_overfull(self) -> bool:
        return self._size > OUTBOX_HARD_BYTES

    def put(self, reply: bytes, requests: Collection[Request]) -> None:
        if self.drained.is_set():
            self.drained = trio.Event()
        self._replies.append((reply, requests))
        self._size += len(reply)
        self._filled.set()
        full = self._size > OUTBOX_SOFT_BYTES or len(self._replies) > OUTBOX_SOFT_REPLIES
        if full and self._room.is_set():
            self._room = trio.Event()

    async def wait_first(self) -> tuple[bytes, Collection[Request]]:
        """The oldest reply, which stays in until `drop_first`: it is not written yet."""
        if not self._replies:
            self._filled = trio.Event()
            await self._filled.wait()
        return self._replies[0]

    def drop_first(self) -> None:
        reply, _ = self._replies.popleft()
        self._size -= len(reply)
        if self._size <= OUTBOX_SOFT_BYTES and len(self._replies) <= OUTBOX_SOFT_REPLIES:
            self._room.set()
        if not self._replies:
            self.drained.set()

    async def wait_room(self) -> None:
        if not self._room.is_set():
            await self._room.wait()

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    def requests(self) -> Iterable[Request]:
        return [request for _, requests in self._replies for request in requests]


class Connection:
    """What the engine knows of one client connection; handlers reach it by `request.connection`.

    `name`: the caller that the connection is where a call says no `as`. `peer`: where it comes
    from, for the record. `hello`: what the method of that name left here, None before.
    """

    def __init__(
        self,
        websocket: WebSocketConnection,
        stream: HeadStream,
        dispatcher: Dispatcher,
        *,
        role: Role,
        peer: str,
    ) -> None:
        self.name = f"anon-{secrets.token_hex(5)}"
        self.role: Role = role
        self.peer = peer
        self.hello: Any = None
        self.in_flight = InFlight()
        self.nursery: trio.Nursery  # from `run` on; the children that answer requests
        self._websocket = websocket
        self._stream = stream
        self._dispatcher = dispatcher
        self._outbox = _Outbox()
        self._is_writing = False
        self._close_ended: trio.Event | None = None  # there once we began to close

    async def run(self) -> None:
        """Serve the client until either side ends it. Ends every request that is in flight."""
        if self._dispatcher.opened is not None:
            self._dispatcher.opened(self)
        try:
            async with trio.open_nursery() as connection_nursery:
                self.nursery = connection_nursery
                connection_nursery.start_soon(self._write)
                connection_nursery.start_soon(self._keep_alive)
                await self._receive()
                connection_nursery.cancel_scope.cancel()
        finally:
            for request in self._outbox.requests():
                request.settle(False)
            if self._dispatcher.closed is not None:
                self._dispatcher.closed(self)

    def post(self, reply: bytes, requests: Collection[Request] = ()) -> None:
        """Queue one reply; each of `requests` is settled when it has been written, or never is."""
        self._outbox.put(reply, requests)
        if self._outbox.is_overfull:
            self._drop("the client does not read its replies")

    async def wait_idle(self) -> None:
        """Wait until no request is in flight and every reply has been written."""
        while len(self.in_flight) or not self._outbox.drained.is_set():
            await self.in_flight.idle.wait()
            await self._outbox.drained.wait()

    async def close(self, code: int) -> None:
        """Say why, and wait `CLOSE_GRACE_SECS` for the client to agree; `run` then ends."""
        if self._close_ended is None:
            self._close_ended = trio.Event()
            with trio.move_on_after(CLOSE_GRACE_SECS):
                await self._websocket.aclose(code)
            self._close_ended.set()

    def _drop(self, reason: str) -> None:
        log.warning("connection dropped", caller=self.name, peer=self.peer, reason=reason)
        self.nursery.cancel_scope.cancel()

    async def _receive(self) -> None:
        try:
            while True:
                await self._outbox.wait_room()
                message = await self._websocket.get_message()
                if isinstance(message, bytes):
                    await self.close(UNSUPPORTED_DATA)
                elif _is_too_big(message):
                    await self.close(TOO_BIG)
                else:
                    self._dispatcher.dispatch(self, message)
        except ConnectionClosed as exc:
            if self._close_ended is not None:
                await self._close_ended.wait()
            elif exc.reason is not None and exc.reason.code in _FAULTS and not self._is_writing:
                await self._stream.linger(_close_frame(exc.reason.code))

    async def _write(self) -> None:
        """Write replies one by one, in the order in which they became ready."""
        while True:
            reply, requests = await self._outbox.wait_first()
            self._is_writing = True
            try:
                await self._websocket.send_message(reply.decode())
            except ConnectionClosed:
                self.nursery.cancel_scope.cancel()
                return
            self._is_writing = False
            self._outbox.drop_first()
            for request in requests:
                request.settle(True)

    async def _keep_alive(self) -> None:
        """Ping, and drop a client that shows no sign of life.

        Not while replies wait to be written: there the limit on a stalled write does the work, and
        a client whose frames we do not read cannot be heard.
        """
        count = 0
        while True:
            await trio.sleep(PING_EVERY_SECS)
            if self._is_writing or not self._outbox.has_room:
                continue
            count += 1
            before = self._stream.received
            try:
                with trio.move_on_after(PONG_WITHIN_SECS) as scope:
                    await self._websocket.ping(count.to_bytes(4, "big"))
            except ConnectionClosed:
                return
            silent = self._stream.received == before and self._outbox.has_room
            if scope.cancelled_caught and silent:
                self._drop("no answer to a ping")


def _is_too_big(text: str) -> bool:
    """Whether the frame was over the limit; the websocket layer counts characters, not bytes."""
    return len(text) * 4 > MESSAGE_MAX_BYTES and len(text.encode()) > MESSAGE_MAX_BYTES


def _close_frame(code: int) -> bytes:
    """The frame that tells `code` (RFC 6455, section 5.5.1); none where it was told already."""
    return b"" if code == TOO_BIG else b"\x88\x02" + code.to_bytes(2, "big")
