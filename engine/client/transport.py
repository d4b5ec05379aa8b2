"""A WebSocket to an engine on trio: opened, bounded in every wait, closed.

trio-websocket does the protocol; errors are those of the blocking `link`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final

import trio
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    WebSocketConnection,
    wrap_client_stream,
)

from engine.client.errors import ConnectionLost, NotReachable
from engine.client.framing import MAX_MESSAGE, PATH
from engine.client.link import GOING_AWAY, SEND_WAIT
from engine.client.places import Place
from engine.client.sockets import (
    HANDSHAKE_WAIT,
    MAX_SOCKET_PATH,
    hung_up,
    refusal,
    spot,
    unreachable,
)

RECEIVE_BYTES: Final = 1 << 16  # a read
CLOSE_WAIT: Final = 0.25  # seconds for the engine to take our goodbye; it answers within one


class Background:
    """A nursery whose children end with its block, and which wraps none of the block's errors."""

    def __init__(self) -> None:
        self._manager = trio.open_nursery()

    async def __aenter__(self) -> trio.Nursery:
        self._nursery = await self._manager.__aenter__()
        return self._nursery

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _exc: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._nursery.cancel_scope.cancel()
        # A child that failed is told of by this, in place of the cancellation that it caused.
        await self._manager.__aexit__(None, None, None)


class _Stream(trio.abc.Stream):
    """`stream`, and an event at its end: in a handshake the WebSocket layer would not tell."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.ended = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.ended.set()
            raise
        if not data:
            self.ended.set()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.ended.set()
            raise

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def open_stream(place: Place) -> trio.SocketStream:
    """A connection to `place` before any protocol. Raises OSError."""
    if place.address is not None:
        return await trio.open_tcp_stream(*place.address)
    assert place.socket is not None
    if len(os.fsencode(place.socket)) <= MAX_SOCKET_PATH:
        return await trio.open_unix_socket(place.socket)
    folder, name = os.path.split(place.socket)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return await trio.open_unix_socket(f"/proc/self/fd/{fd}/{name}")
    finally:
        os.close(fd)


async def _shake_hands(nursery: trio.Nursery, stream: _Stream, place: Place) -> WebSocketConnection:
    """Upgrade to a WebSocket, whose reader is a child of `nursery`. Raises `NotReachable`.

    A reader that is turned away fails with `ConnectionRejected`.
    """
    with trio.move_on_after(HANDSHAKE_WAIT) as scope:

        async def watch() -> None:
            await stream.ended.wait()
            scope.cancel()

        async with Background() as watching_nursery:
            watching_nursery.start_soon(watch)
            return await wrap_client_stream(
                nursery,
                stream,  # type: ignore[arg-type]  # it asks for a socket and uses a stream
                place.host,
                PATH,
                extra_headers=[(b"Authorization", b"Bearer " + place.token.encode("ascii"))],
                max_message_size=MAX_MESSAGE,
                receive_buffer_size=RECEIVE_BYTES,
            )
    if stream.ended.is_set():
        raise hung_up(place, "connection lost")
    raise NotReachable(f"not reachable at {spot(place)} (no answer)")


@asynccontextmanager
async def open_websocket(place: Place) -> AsyncIterator[WebSocketConnection]:
    """A connection to `place`, upgraded. Raises `NotReachable`.

    Leaving the block closes it, in order as far as the engine takes it within `CLOSE_WAIT`.
    """
    try:
        with trio.fail_after(HANDSHAKE_WAIT):
            socket = await open_stream(place)
    except OSError as exc:
        raise unreachable(place, exc) from exc
    except trio.TooSlowError:
        raise NotReachable(f"not reachable at {spot(place)} (no answer)") from None
    status: int | None = None
    try:
        async with socket, Background() as websocket_nursery:
            websocket = await _shake_hands(websocket_nursery, _Stream(socket), place)
            try:
                yield websocket
            finally:
                with trio.move_on_after(CLOSE_WAIT, shield=True):
                    await websocket.aclose()
    except* ConnectionRejected as group:
        rejected = group.exceptions[0]
        status = getattr(rejected, "status_code", 0)
    if status is not None:
        raise refusal(place, status)


async def receive(websocket: WebSocketConnection) -> str:
    """The next message. Raises `ConnectionLost`."""
    try:
        message = await websocket.get_message()
    except ConnectionClosed as exc:
        code = None if exc.reason is None else exc.reason.code
        reason = None if exc.reason is None else exc.reason.reason
        raise ConnectionLost(reason or "connection lost", is_goodbye=code == GOING_AWAY) from exc
    if isinstance(message, bytes):
        raise ConnectionLost("the engine sent a binary frame")
    return message


async def send(websocket: WebSocketConnection, text: str) -> None:
    """Hand one message to the kernel; where the connection has ended, `receive` says why.

    Raises `ConnectionLost` after `SEND_WAIT` seconds in which the engine does not take it.
    """
    try:
        with trio.fail_after(SEND_WAIT):
            await websocket.send_message(text)
    except ConnectionClosed:
        return
    except trio.TooSlowError:
        raise ConnectionLost("the engine takes nothing") from None
