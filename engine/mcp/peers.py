"""Who is at the other end of an MCP conversation, and the ways to the engine that they have.

Over stdio a conversation is a connection. Over HTTP it is a session, or since 2026-07-28 nothing:
there the ways are kept by who asks, and closed when nobody has used them for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from engine.client.places import Place
from engine.client.wire import Params
from engine.mcp.link import Link

IDLE_SECS: Final = 300.0  # after which a way that nobody uses is closed
SWEEP_SECS: Final = 30.0
CALLERS_KNOWN: Final = 1_000  # of a peer; past that they are met anew


@dataclass(kw_only=True)
class Peer:
    """`name`: the caller where neither a call nor its `_meta` names one. `max_wait`: the longest
    that a call may wait, in seconds. `met`: callers that have called."""

    link: Link
    name: str
    max_wait: float | None = None
    met: set[str] = field(default_factory=set)

    def meets(self, caller: str) -> bool:
        """Whether this caller is new here."""
        if caller in self.met:
            return False
        if len(self.met) >= CALLERS_KNOWN:
            self.met.clear()
        self.met.add(caller)
        return True


class HttpPeers:
    """The peers of HTTP conversations, by their token and session or client."""

    def __init__(self, home: str, socket: str, nursery: trio.Nursery) -> None:
        self._home, self._socket, self._nursery = home, socket, nursery
        self._peers: dict[tuple[str, str], Peer] = {}

    def find(self, token: str, name: str) -> Peer:
        """The peer that calls by this token under this name; made where there is none."""
        peer = self._peers.get((token, name))
        if peer is None:
            place = place_of(self._home, self._socket, token)
            peer = Peer(link=Link(place, hello_of(name, {}), self._nursery), name=name)
            self._peers[token, name] = peer
        peer.link.last_used = trio.current_time()
        return peer

    async def serve(self) -> None:
        """Close what is idle, for ever."""
        while True:
            await trio.sleep(SWEEP_SECS)
            now = trio.current_time()
            for key, peer in list(self._peers.items()):
                if not peer.link.calls and now - peer.link.last_used > IDLE_SECS:
                    del self._peers[key]
                    peer.link.close()


def place_of(home: str, socket: str, token: str) -> Place:
    """The engine's socket, with the token that the conversation was let in by."""
    return Place("", socket, None, "localhost", token, home, None)


def hello_of(name: str, said: Mapping[str, Any]) -> Params:
    """The params of `hello`: the directory and environment of the agent, where it told them."""
    return {
        "as": name,
        "cwd": said.get("cwd"),
        "env": said.get("env"),
        "client": said.get("client", "mcp"),
    }
