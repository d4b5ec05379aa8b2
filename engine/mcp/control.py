"""What the engine and its MCP helper tell each other: one JSON object a packet, pure.

The socket keeps packets apart (SOCK_SEQPACKET); its end is the end of the helper.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

PACKET_MAX_BYTES: Final = 128 * 1024  # a head of 16 KiB, what came with it, and both as base64


class Setup(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """First of all: where the engine is, and the doors that each request has to pass."""

    home: str
    socket: str
    agent_token: str
    observer_token: str
    human_token: str
    own_port: int
    hosts: list[str]
    origins: list[str]

    def __repr__(self) -> str:
        return "Setup(…)"


class Client(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A connection that was let in, whose descriptor comes with the packet.

    `seen`: the bytes read from it so far, from the first of the head on. `port`: of the TCP
    listener that it came to; None: the socket in the home.
    """

    id: int
    seen: bytes
    port: int | None


class Closed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The helper is done with a connection."""

    id: int


class Note(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something for the engine's log."""

    level: str
    event: str
    facts: dict[str, Any]


ToHelper = Setup | Client
ToEngine = Closed | Note

_TO_HELPER: Final = msgspec.json.Decoder(ToHelper)
_TO_ENGINE: Final = msgspec.json.Decoder(ToEngine)


def encode(packet: ToHelper | ToEngine) -> bytes:
    return msgspec.json.encode(packet)


def decode_to_helper(packet: bytes) -> ToHelper:
    return _TO_HELPER.decode(packet)


def decode_to_engine(packet: bytes) -> ToEngine:
    return _TO_ENGINE.decode(packet)
