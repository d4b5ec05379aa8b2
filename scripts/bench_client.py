"""A client of the wire in plain sockets: what a call costs is then the engine's, not a library's.

It knows of WebSockets (RFC 6455) what one connection to an engine needs: whole text frames in both
directions, pings answered, nothing else.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
from pathlib import Path
from typing import Any, Final

LIMIT: Final = 120.0  # seconds for any one reply
_CHUNK: Final = 1 << 18  # bytes a read
_TEXT, _PING, _PONG = 0x81, 0x89, 0x8A  # the first byte of a frame that is whole
_MASKED: Final = 0x80
_KEY: Final = bytes(4)  # a client has to mask; with zeros that changes nothing


class Client:
    """JSON-RPC over one websocket."""

    def __init__(self, home: Path) -> None:
        facts = json.loads((home / "engine.json").read_text())
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(LIMIT)
        self._socket.connect(facts["socket"])
        self._held = bytearray()
        self._ids = itertools.count(1)
        self._open(facts["tokens"]["agent"])

    def _open(self, token: str) -> None:
        lines = [
            *("GET /rpc HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket"),
            *("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="),
            *(f"Authorization: Bearer {token}", "", ""),
        ]
        self._socket.sendall("\r\n".join(lines).encode())
        while (end := self._held.find(b"\r\n\r\n")) < 0:
            self._read()
        status = self._held.split(b" ", 2)[1]
        if status != b"101":
            raise RuntimeError(f"the front door says {status.decode()}")
        del self._held[: end + 4]

    def close(self) -> None:
        self._socket.close()

    def send(self, method: str, **params: Any) -> int:
        number = next(self._ids)
        frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._send_frame(_TEXT, json.dumps(frame).encode())
        return number

    def _send_frame(self, first: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = bytes((first, _MASKED | size))
        elif size < 1 << 16:
            head = struct.pack(">BBH", first, _MASKED | 126, size)
        else:
            head = struct.pack(">BBQ", first, _MASKED | 127, size)
        self._socket.sendall(head + _KEY + data)

    def receive(self) -> dict[str, Any]:
        """The next reply. Raises RuntimeError for an error."""
        reply: dict[str, Any] = json.loads(self.receive_text())
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def receive_text(self) -> bytes:
        """The next reply as it came."""
        while True:
            first, data = self._frame()
            if first == _TEXT:
                return data
            if first != _PING:
                raise RuntimeError(f"a frame of kind {first:#x}: {data!r}")
            self._send_frame(_PONG, data)

    def _frame(self) -> tuple[int, bytes]:
        first, size = self._take(2)
        if size == 126:
            (size,) = struct.unpack(">H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._take(8))
        return first, self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self._held) < size:
            self._read()
        data = bytes(self._held[:size])
        del self._held[:size]
        return data

    def _read(self) -> None:
        data = self._socket.recv(_CHUNK)
        if not data:
            raise RuntimeError("the engine has ended the connection")
        self._held += data

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = self.send(method, **params)
        reply = self.receive()
        if reply["id"] != number:
            raise RuntimeError(f"a reply to {reply['id']}, not to {number}")
        result: dict[str, Any] = reply["result"]
        return result

    def bash(self, command: str, caller: str = "bench", **params: Any) -> dict[str, Any]:
        return self.call("bash", **{"as": caller}, command=command, **params)
