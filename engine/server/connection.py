"""One websocket connection: frames in, replies out through one writer, pings, and its end.

What a frame means is the dispatcher's. All that a client makes us hold is bounded: past
`OUTBOX_SOFT_BYTES` of unwritten replies its frames are no longer read, past `OUTBOX_HARD_BYTES` it
is dropped, and so is one that stops reading (`stream.WRITE_STALL_SECS`) or answers no ping. What
it asks for that is heavy is done one at a time, and not while it leaves its replies unread.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from engine.model import ANONYMOUS
from engine.server.dispatcher import Dispatcher, Request, Role
from engine.server.inflight import InFlight
from engine.server.stream import HeadStream

MESSAGE_MAX_BYTES: Final = 16 << 20
OUTBOX_SOFT_BYTES: Final = 4 << 20
OUTBOX_SOFT_REPLIES: Final = 10_000
OUTBOX_HARD_BYTES: Final = 64 << 20
PING_EVERY_SECS: Final = 20.0
PONG_WITHIN_SECS: Final = 20.0
CLOSE_GRACE_SECS: Final = 1.0  # for the client to answer our close frame
CANCEL_AT_ONCE: Final = 10  # requests; what follows takes them 1 ms

# RFC 6455, section 7.4.1
GOING_AWAY: Final = 1001
UNSUPPORTED_DATA: Final = 1003
TOO_BIG: Final = 1009
# For these the websocket layer ends by itself: without a close frame, but for 1009.
_FAULTS: Final = frozenset({1002, 1007, TOO_BIG})

log = structlog.stdlib.get_logger("engine.server")


class _Outbox:
    """Replies on their way out. Never waits to take one; who fills it looks at `has_room`."""

    def __init__(self) -> None:
        self._replies: deque[tuple[bytes, Collection[Request]]] = deque()
        self.size = 0  # bytes
        self._filled = trio.Event()
        self._room = trio.Event()
        self._room.set()
        self.drained = trio.Event()
        self.drained.set()

    @property
    def is_overfull(self) -> bool:
        return self.size > OUTBOX_HARD_BYTES

    def __len__(self) -> int:
        return len(self._replies)

    def put(self, reply: bytes, requests: Collection[Request]) -> None:
        if self.drained.is_set():
            self.drained = trio.Event()
        self._replies.append((reply, requests))
        self.size += len(reply)
        self._filled.set()
        full = self.size > OUTBOX_SOFT_BYTES or len(self._replies) > OUTBOX_SOFT_REPLIES
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
        self.size -= len(reply)
        if self.size <= OUTBOX_SOFT_BYTES and len(self._replies) <= OUTBOX_SOFT_REPLIES:
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
    `deliveries`: how many replies that carry ends have been written; `deliveries_known`: how many
    of them had been when the frame came that is dispatched.
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
        self.name = ANONYMOUS + secrets.token_hex(5)
        self.role: Role = role
        self.peer = peer
        self.hello: Any = None
        self.deliveries = self.deliveries_known = 0
        self.in_flight = InFlight()
        self.nursery: trio.Nursery  # from `run` on; the children that answer requests
        self._websocket = websocket
        self._stream = stream
        self._dispatcher = dispatcher
        self._outbox = _Outbox()
        self._is_writing = self._is_over = False
        self._serving = trio.CancelScope()
        self._heavy = trio.Lock()
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
                with self._serving:
                    await self._receive()
                self._is_over = True
                await self.cancel(list(self.in_flight))
                connection_nursery.cancel_scope.cancel()
        finally:
            for request in self._outbox.requests():
                request.settle(False)
            self._stream.end()
            if self._dispatcher.closed is not None:
                self._dispatcher.closed(self)

    def post(self, reply: bytes, requests: Collection[Request] = ()) -> None:
        """Queue one reply; each of `requests` is settled when it has been written, or never is."""
        if self._is_over:
            for request in requests:
                request.settle(False)
            return
        self._outbox.put(reply, requests)
        if self._outbox.is_overfull:
            self._drop("the client does not read its replies")

    @asynccontextmanager
    async def heavy_turn(self) -> AsyncIterator[None]:
        """Hold the one turn that the connection has at work which is shared by all of them.

        Comes only when the replies before it have been written: one that reads none has no more
        made for it.
        """
        async with self._heavy:
            await self._outbox.drained.wait()
            yield

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
        log.warning(
            "connection dropped",
            caller=self.name,
            peer=self.peer,
            reason=reason,
            unwrittenReplies=len(self._outbox),
            unwrittenBytes=self._outbox.size,
            unanswered=len(self.in_flight),
        )
        self._serving.cancel()

    async def cancel(self, requests: Sequence[Request]) -> None:
        """End requests, some at a time: ten thousand in one turn would hold up everybody."""
        for count, request in enumerate(requests, 1):
            request.scope.cancel()
            if count % CANCEL_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    async def _receive(self) -> None:
        try:
            while True:
                # One that comes while we do not read was sent before the replies that fill us.
                self.deliveries_known = self.deliveries
                has_room = self._outbox.has_room
                await self._outbox.wait_room()
                message = await self._websocket.get_message()
                if has_room:
                    self.deliveries_known = self.deliveries
                if isinstance(message, bytes):
                    await self.close(UNSUPPORTED_DATA)
                elif _is_too_big(message):
                    await self.close(TOO_BIG)
                else:
                    self._dispatcher.dispatch(self, message)
        except ConnectionClosed as exc:
            if self._close_ended is not None:
                await self._close_ended.wait()
            elif self._stream.has_too_many_frames and not self._is_writing:
                await self._stream.linger(_close_frame(TOO_BIG))
            elif exc.reason is not None and exc.reason.code in _FAULTS and not self._is_writing:
                # Too big was told by the websocket layer.
                code = exc.reason.code
                await self._stream.linger(b"" if code == TOO_BIG else _close_frame(code))

    async def _write(self) -> None:
        """Write replies one by one, in the order in which they became ready."""
        while True:
            reply, requests = await self._outbox.wait_first()
            self._is_writing = True
            for request in requests:
                request.is_begun = True
            try:
                await self._websocket.send_message(reply.decode())
            except ConnectionClosed:
                if self._stream.has_stalled:
                    self._drop("the client takes no data")
                self._serving.cancel()
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
    """The frame that tells `code` (RFC 6455, section 5.5.1)."""
    return b"\x88\x02" + code.to_bytes(2, "big")
