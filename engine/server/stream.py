"""A client's stream with its first bytes given back, and with an end to every write.

The front door reads the head of a connection and hands the stream on: `HeadStream` replays what
was read, and gives out what follows in turns of a few frames. It knows no HTTP.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import trio

from engine.server.frames import FrameMeter, TooManyFrames

WRITE_STALL_SECS: Final = 30.0  # a client that takes no CHUNK_BYTES in this time is gone
CHUNK_BYTES: Final = 64 * 1024
LINGER_SECS: Final = 2.0  # for a client that is still sending to read why it is turned away


class HeadStream(trio.abc.HalfCloseableStream):
    """`stream`, of which `head` and `rest` are read first. Writes that stall raise
    `BrokenResourceError`.

    What follows the head is given out after `open`, that is after the handshake: the websocket
    layer looks at frames that came with the handshake only when more data comes. A message in too
    many frames raises `BrokenResourceError` and leaves `has_too_many_frames` set; a write that
    stalled leaves `has_stalled`.
    `aclose` only marks it closed: who made it says the last words and closes the socket.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        head: bytes = b"",
        rest: bytes = b"",
        moved: Callable[[int], None] = lambda _size: None,
    ) -> None:
        """`moved` is told of each number of bytes that was read or is to be written."""
        self._stream = stream
        self._moved, self._passed = moved, 0
        self._head = head
        self._rest = rest
        self._meter = FrameMeter()
        self._is_open = trio.Event()
        self._is_closed = False
        self._is_reading = False
        self._reader_left = trio.Event()
        self.received = 0  # bytes read from the client since the head: a sign of life
        self.has_stalled = self.has_too_many_frames = False

    @property
    def socket(self) -> trio.socket.SocketType:
        return self._stream.socket

    def open(self) -> None:
        """Let readers past the head."""
        self._is_open.set()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._is_closed:
            raise trio.ClosedResourceError
        if self._head:
            head, self._head = self._head, b""
            await trio.lowlevel.checkpoint()
            return head
        await self._is_open.wait()
        if self._rest:
            await trio.lowlevel.checkpoint()
        else:
            self._rest = await self._receive(max_bytes)
        data = self._rest if max_bytes is None else self._rest[:max_bytes]
        try:
            size = self._meter.take(data)
        except TooManyFrames as exc:
            self.has_too_many_frames = True
            raise trio.BrokenResourceError("a message in too many frames") from exc
        self._rest = self._rest[size:]
        return data[:size]

    async def _receive(self, max_bytes: int | None) -> bytes:
        self._is_reading = True
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        finally:
            self._is_reading = False
            self._reader_left.set()
        self.received += len(data)
        self._pass(len(data))
        return data

    def _pass(self, size: int) -> None:
        self._passed += size
        self._moved(size)

    def end(self) -> None:
        """Who used it has let go of what has passed, which is told once more."""
        self._moved(self._passed)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError
        view = memoryview(data)
        self._pass(len(view))
        view = view[self._send_now(view[:CHUNK_BYTES]) :]
        for start in range(0, len(view), CHUNK_BYTES):
            with trio.move_on_after(WRITE_STALL_SECS) as scope:
                await self._stream.send_all(view[start : start + CHUNK_BYTES])
            if scope.cancelled_caught:
                self.has_stalled = True
                raise trio.BrokenResourceError("the client takes no data")

    def _send_now(self, data: memoryview) -> int:
        """How much of `data` the kernel took at once: mostly all, and then nobody has to wait."""
        try:
            return os.write(self._stream.socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise trio.BrokenResourceError("the client is gone") from exc

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        self._is_closed = True
        await trio.lowlevel.checkpoint()

    async def linger(self, last_words: bytes = b"") -> None:
        """Write `last_words`, end our side, and discard what comes in, `LINGER_SECS` at most.

        Closing a socket with unread input resets the connection, and the reset may overtake the
        last thing that was written: the reason for the close.
        """
        with trio.move_on_after(LINGER_SECS):
            try:
                await self._stream.send_all(last_words)
                await self._stream.send_eof()
                if self._is_reading:  # the websocket layer reads once more after its last word
                    self._reader_left = trio.Event()
                    await self._reader_left.wait()
                while await self._stream.receive_some(CHUNK_BYTES):
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return  # the client was faster
