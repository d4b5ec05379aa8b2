"""Whether somebody accepts connections at a port of this machine's loopback."""

from __future__ import annotations

import socket
from typing import Final

import trio

CONNECT_SECS: Final = 0.5  # a listener whose queue is full does not answer
_ADDRESSES: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


async def accepts(port: int) -> bool:
    """Connect to `port` on 127.0.0.1, then on ::1, and let go at once; whether one took it."""
    for family, host in _ADDRESSES:
        try:
            sock = trio.socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # no IPv6; no descriptor to be had
            await trio.lowlevel.checkpoint()
            continue
        with sock, trio.move_on_after(CONNECT_SECS):
            try:
                await sock.connect((host, port))
            except OSError:
                continue
            # From a port of its own choice a connection may meet itself, with no listener there.
            return bool(sock.getsockname() != sock.getpeername())
    return False
