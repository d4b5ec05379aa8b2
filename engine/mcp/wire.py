"""How a pipe and the helper speak: an upgraded HTTP connection, then a line a message. Pure.

The standard library alone: the pipe is a process beside each agent.
"""

from __future__ import annotations

from typing import Final

PATH: Final = "/mcp"
PROTOCOL: Final = "engine-mcp"  # in the Upgrade header
LINE_MAX_BYTES: Final = 16 << 20
HEAD_MAX_BYTES: Final = 16 << 10
SWITCHED: Final = (
    f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n\r\n"
).encode()


def request(host: str, token: str) -> bytes:
    """The head that asks for the upgrade."""
    return (
        f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        f"Connection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n\r\n"
    ).encode("ascii")
