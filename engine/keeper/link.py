"""A stream socket between an engine and a keeper, seen from the keeper: messages, descriptors.

A message is one line of JSON (ASCII; a lone surrogate stands for a byte that is no UTF-8, as
`os.fsencode` has it), then as many raw bytes as its `payload` says. Descriptors ride along
with a message by SCM_RIGHTS; its `fds` says how many. Nothing here blocks.
"""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any, Final

MAX_INPUT: Final = 64 << 20  # bytes of one message: argv and environment of the largest call fit
MAX_OUTPUT: Final = 64 << 20  # bytes waiting for a reader: over it the reader counts as dead
_MAX_FDS: Final = 8  # descriptors in one message
_CHUNK: Final = 112 << 10  # bytes read at a time: what is larger malloc maps anew for each


class LinkBroken(Exception):
    """The other side is gone, does not read, or does not speak our language."""


class Link:
    """One connection. `receive` gives whole messages; what was `put` goes out with `flush`, which
    never waits and carries on where it was.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.fds: list[int] = []  # received, not yet taken by a message
        self._input = bytearray()
        self._output = bytearray()
        self.awaits_room = False  # somebody watches for it

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def is_backed_up(self) -> bool:
        return bool(self._output)

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have come in whole. Raises LinkBroken."""
        try:
            # Without MSG_CMSG_CLOEXEC a job would inherit what we are handed.
            data, ancillary, _flags, _address = self.sock.recvmsg(
                _CHUNK, socket.CMSG_SPACE(_MAX_FDS * 4), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return []
        except OSError as exc:
            raise LinkBroken(str(exc)) from exc
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
                self.fds += received
        if not data:
            raise LinkBroken("closed")
        if len(self.fds) > _MAX_FDS:
            raise LinkBroken("descriptors that belong to no message")
        self._input += data
        if len(self._input) > MAX_INPUT:
            raise LinkBroken("message too large")
        return self._take_messages() if b"\n" in data else []

    def _take_messages(self) -> list[dict[str, Any]]:
        *lines, rest = self._input.split(b"\n")
        self._input = bytearray(rest)
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as exc:
            raise LinkBroken("not JSON") from exc
        if not all(isinstance(message, dict) for message in messages):
            raise LinkBroken("not an object")
        return messages

    def take_fds(self, count: int) -> list[int]:
        """The next `count` descriptors that came along; the taker closes them."""
        if count > len(self.fds):
            raise LinkBroken("descriptors are missing")
        taken, self.fds = self.fds[:count], self.fds[count:]
        return taken

    def put(self, message: dict[str, Any], payload: bytes = b"") -> None:
        """Have a message go out with the next `flush`, behind what waits. Raises LinkBroken."""
        if payload:
            message = {**message, "payload": len(payload)}
        self._output += json.dumps(message).encode() + b"\n" + payload
        if len(self._output) > MAX_OUTPUT:
            raise LinkBroken("does not read")

    def flush(self) -> None:
        """Send on what is waiting, as much as the kernel takes. Raises LinkBroken."""
        while self._output:
            try:
                sent = self.sock.send(self._output, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError as exc:
                raise LinkBroken(str(exc)) from exc
            del self._output[:sent]

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.pop())
        self.sock.close()
