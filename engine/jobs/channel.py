"""The engine's end of a link to a keeper: messages with payloads in, messages with descriptors out.

The form is that of `engine.keeper.link`; here it waits, under trio.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import trio

from engine.jobs.directory import TaskDirectory
from engine.jobs.keeperwords import is_word
from engine.keeper.link import MAX_INPUT

_CHUNK: Final = 112 << 10  # bytes read at a time: what is larger malloc maps anew for each


class ChannelClosed(Exception):
    """The keeper is gone."""


class Channel:
    """One stream socket. `receive` is for one reader at a time; `send` for any number.

    Neither is a checkpoint where it need not wait: each would cost a short call a turn of the loop.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._input = bytearray()
        self._send_lock = trio.Lock()
        self.known_by: TaskDirectory | None = None  # in which the keeper's identity stands

    async def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send `message` and duplicates of `fds`. Raises ChannelClosed."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            self._send_lock.acquire_nowait()
        except trio.WouldBlock:
            await self._send_lock.acquire()
        try:
            while data:
                try:
                    data = data[self._send_some(data, fds) :]
                    fds = ()
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._sock)
        except (OSError, ValueError, trio.ClosedResourceError) as exc:  # ValueError: closed by us
            raise ChannelClosed from exc
        finally:
            self._send_lock.release()

    def _send_some(self, data: memoryview, fds: Sequence[int]) -> int:
        if not fds:
            return self._sock.send(data)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        return self._sock.sendmsg([data], [rights])

    async def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message and its payload. Raises ChannelClosed."""
        while True:
            end = self._input.find(b"\n")
            if end >= 0:
                message, size = self._parse(end)
                if len(self._input) >= end + 1 + size:
                    payload = bytes(self._input[end + 1 : end + 1 + size])
                    del self._input[: end + 1 + size]
                    return message, payload
            if len(self._input) > MAX_INPUT:
                raise ChannelClosed
            self._input += await self._receive_some()

    async def _receive_some(self) -> bytes:
        """What has come in, at least a byte. Raises ChannelClosed."""
        while True:
            try:
                await trio.lowlevel.wait_readable(self._sock)
                data = self._sock.recv(_CHUNK)
            except BlockingIOError:
                continue
            except (OSError, ValueError, trio.ClosedResourceError) as exc:
                raise ChannelClosed from exc
            if not data:
                raise ChannelClosed
            return data

    def put_back(self, message: dict[str, Any]) -> None:
        """Have `message`, received just now and without payload, received again."""
        self._input[:0] = json.dumps(message).encode() + b"\n"

    def _parse(self, end: int) -> tuple[dict[str, Any], int]:
        """The message before `end` and the size of its payload."""
        try:
            message = json.loads(self._input[:end])
            size = int(message.get("payload", 0))
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as exc:
            raise ChannelClosed from exc  # no keeper of ours: a job can listen there too
        if not is_word(message) or not 0 <= size <= MAX_INPUT:
            raise ChannelClosed
        return message, size

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()


async def connect(folder: Path, name: str) -> Channel:
    """A channel to the socket `name` in `folder`. Raises ChannelClosed if nobody listens."""
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Through a descriptor of the folder: a socket's path is limited to 107 bytes.
    fd = os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        await sock.connect(f"/proc/self/fd/{fd}/{name}")
        return Channel(socket.socket(fileno=sock.detach()))
    except OSError as exc:
        raise ChannelClosed from exc
    finally:
        sock.close()
        os.close(fd)


@contextlib.contextmanager
def memory_files(texts: Iterable[bytes]) -> Iterator[list[int]]:
    """Descriptors, for reading alone, of files in memory that hold `texts`. Raises OSError."""
    with contextlib.ExitStack() as stack:
        fds = []
        for text in texts:
            fds.append(_memory_file(text))
            stack.callback(os.close, fds[-1])
        yield fds


def _memory_file(data: bytes) -> int:
    fd = os.memfd_create("engine", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(fd)
