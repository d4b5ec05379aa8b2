"""Mirrors `engine/mcp/peers.py`: whose conversation over HTTP a request belongs to."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from engine.mcp.link import Link
from engine.mcp.peers import HttpPeers, Peer, hello_of, place_of


async def test_who_asks_is_known_by_token_and_name_together() -> None:
    async with trio.open_nursery() as nursery:
        peers = HttpPeers("/home", "/home/engine.sock", nursery)
        first = peers.find("agent-token", "mcp-a")
        assert first.name == "mcp-a"
        assert peers.find("agent-token", "mcp-a") is first
        assert peers.find("observer-token", "mcp-a") is not first
        assert peers.find("agent-token", "mcp-b") is not first


async def test_a_way_that_nobody_uses_is_closed_after_a_while(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        peers = HttpPeers("/home", "/home/engine.sock", nursery)
        nursery.start_soon(peers.serve)
        idle, busy = peers.find("token", "idle"), peers.find("token", "busy")
        busy.link.calls = 1  # in flight
        await trio.sleep(290)
        used = peers.find("token", "used")
        await trio.sleep(45)  # 335 s after the first two were used
        assert peers.find("token", "busy") is busy
        assert peers.find("token", "used") is used
        assert peers.find("token", "idle") is not idle
        nursery.cancel_scope.cancel()


async def test_a_caller_is_new_once(nursery: trio.Nursery) -> None:
    link = Link(place_of("/home", "/home/engine.sock", "token"), {}, nursery)
    peer = Peer(link=link, name="mcp-a")
    assert [peer.meets(name) for name in ("ci", "lint", "ci", "lint")] == [True, True, False, False]
    for number in range(998):
        assert peer.meets(f"sub-{number}")
    assert len(peer.met) == 1000
    assert peer.meets("one-more")  # and the thousand are met anew: nothing grows without a bound
    assert peer.met == {"one-more"}


def test_the_engine_is_told_who_and_where_the_agent_is() -> None:
    said = {"cwd": "/proj", "env": {"A": "1"}, "client": "engine mcp"}
    assert hello_of("ci", said) == {"as": "ci", **said}
    assert hello_of("ci", {}) == {"as": "ci", "cwd": None, "env": None, "client": "mcp"}
    place = place_of("/home", "/home/engine.sock", "token")
    assert (place.socket, place.address, place.host) == ("/home/engine.sock", None, "localhost")
    assert place.token == "token"
