"""A websocket client that keeps no rules: raw bytes after a right handshake, read or not read."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import time
from pathlib import Path
from typing import Any, Final

TEXT: Final = 1  # opcodes: RFC 6455, section 11.8
CLOSE: Final = 8
PING: Final = 9
LIMIT: Final = 30.0  # seconds for what must come

Json = dict[str, Any]


def handshake(token: str, *, extensions: str = "") -> bytes:
    """The head that asks for a websocket."""
    lines = [
        "GET /rpc HTTP/1.1",
        "Host: localhost",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        f"Authorization: Bearer {token}",
        *([f"Sec-WebSocket-Extensions: {extensions}"] if extensions else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True, rsv: int = 0) -> bytes:
    """A masked frame; the mask is nought, so the payload stands in it as it is."""
    return announced(len(payload), opcode, fin=fin, rsv=rsv) + payload


def announced(size: int, opcode: int = TEXT, *, fin: bool = True, rsv: int = 0) -> bytes:
    """The head of a frame of `size` bytes."""
    first = bytes([(fin << 7) | rsv << 4 | opcode])
    if size < 126:
        head = first + bytes([0x80 | size])
    elif size < 1 << 16:
        head = first + b"\xfe" + struct.pack("!H", size)
    else:
        head = first + b"\xff" + struct.pack("!Q", size)
    return head + b"\0\0\0\0"


def call(number: Any, method: str, **params: Any) -> bytes:
    """A call as JSON; a name that Python reserves gets an underscore."""
    named = {name.removesuffix("_"): value for name, value in params.items()}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": named}).encode()


class Raw:
    """One connection over the home's socket. `send` may block; `pour` gives up in time."""

    def __init__(self, home: Path, *, upgrade: bool = True, extensions: str = "") -> None:
        facts = json.loads((home / "engine.json").read_text())
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(LIMIT)
        self.sock.connect(facts["socket"])
        self.token: str = facts["tokens"]["agent"]
        self.head = b""
        self._left = b""
        if upgrade:
            self.sock.sendall(handshake(self.token, extensions=extensions))
            while b"\r\n\r\n" not in self._left:
                self._left += self._more()
            self.head, _, self._left = self._left.partition(b"\r\n\r\n")

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def pour(self, data: bytes, until: float) -> int:
        """Send what is taken before that time (monotonic); how much. Raises OSError once gone."""
        view, sent = memoryview(data), 0
        self.sock.setblocking(False)
        try:
            while sent < len(view):
                left = until - time.monotonic()
                if left <= 0 or not select.select([], [self.sock], [], left)[1]:
                    break
                sent += self.sock.send(view[sent:])
        finally:
            self.sock.settimeout(LIMIT)
        return sent

    def _more(self) -> bytes:
        data = self.sock.recv(1 << 16)
        if not data:
            raise EOFError
        return data

    def _take(self, size: int) -> bytes:
        while len(self._left) < size:
            self._left += self._more()
        data, self._left = self._left[:size], self._left[size:]
        return data

    def receive(self) -> tuple[int, bytes]:
        """The next frame of the engine. Raises EOFError, ConnectionError, TimeoutError."""
        first, size = self._take(2)
        if size == 126:
            (size,) = struct.unpack("!H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._take(8))
        return first & 15, self._take(size)

    def reply(self) -> Any:
        """The next message; pings are passed over."""
        opcode, payload = self.receive()
        while opcode != TEXT:
            opcode, payload = self.receive()
        return json.loads(payload)

    def end(self) -> int | None:
        """How it ended: the code of the close frame, None where there was none."""
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                opcode, payload = self.receive()
                if opcode == CLOSE:
                    return int.from_bytes(payload[:2], "big")
        return None

    def is_gone(self, within: float) -> bool:
        """Whether the engine has hung up, waited for `within` seconds; what it sent is let lie."""
        poll = select.poll()
        poll.register(self.sock, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(within * 1000))


def nice() -> None:
    """Leave the processor to the engine and to who measures it: there are few."""
    os.nice(10)
    with contextlib.suppress(OSError):  # of this session's processes together: sched(7)
        Path("/proc/self/autogroup").write_text("10")
