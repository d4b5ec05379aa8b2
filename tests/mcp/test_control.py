"""Mirrors `engine/mcp/control.py`."""

from __future__ import annotations

import msgspec
import pytest

from engine.mcp.control import (
    PACKET_MAX_BYTES,
    Client,
    Closed,
    Note,
    Setup,
    decode_to_engine,
    decode_to_helper,
    encode,
)

SETUP = Setup(
    home="/h",
    socket="/h/engine.sock",
    agent_token="aaa",
    observer_token="ooo",
    human_token="hhh",
    own_port=8420,
    hosts=["name"],
    origins=[],
)


def test_packets_arrive_as_they_were_sent() -> None:
    client = Client(id=7, seen=b"GET /mcp HTTP/1.1\r\n\xff", port=None)
    assert decode_to_helper(encode(SETUP)) == SETUP
    assert decode_to_helper(encode(client)) == client
    assert decode_to_engine(encode(Closed(id=7))) == Closed(id=7)
    note = Note(level="info", event="x", facts={"a": 1, "b": None})
    assert decode_to_engine(encode(note)) == note


def test_the_longest_head_fits_into_a_packet() -> None:
    seen = b"\xff" * (16 * 1024 + 4 * 1024)
    assert len(encode(Client(id=1 << 40, seen=seen, port=65_535))) < PACKET_MAX_BYTES


def test_tokens_are_in_no_representation() -> None:
    assert repr(SETUP) == "Setup(…)"


@pytest.mark.parametrize("packet", [b"", b"{}", b'{"type":"Setup"}', b'{"type":"Closed","id":'])
def test_what_is_no_packet_is_refused(packet: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_to_engine(packet)
