"""Mirrors `engine/server/frames.py`."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.server.frames import FrameMeter, TooManyFrames


def head(size: int, *, opcode: int = 1, fin: bool = True, masked: bool = True) -> bytes:
    """RFC 6455, section 5.2."""
    first, mask = (0x80 if fin else 0) | opcode, 0x80 if masked else 0
    if size < 126:
        sized = struct.pack("!BB", first, mask | size)
    elif size < 1 << 16:
        sized = struct.pack("!BBH", first, mask | 126, size)
    else:
        sized = struct.pack("!BBQ", first, mask | 127, size)
    return sized + (b"mask" if masked else b"")


def turns(meter: FrameMeter, data: bytes) -> list[int]:
    sizes = []
    while data:
        sizes.append(meter.take(data))
        data = data[sizes[-1] :]
    return sizes


def test_a_turn_has_128_frames_at_most_and_large_payloads_pass_whole() -> None:
    empty = head(0) * 300
    assert turns(FrameMeter(), empty) == [6 * 128, 6 * 128, 6 * 44]
    large = head(70_000) + b"\x00" * 70_000
    assert turns(FrameMeter(), large) == [len(large)]


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 125, 126, 65_536]), st.booleans()), max_size=6),
    st.integers(1, 40),
)
def test_where_the_bytes_are_cut_changes_nothing(
    frames: list[tuple[int, bool]], piece: int
) -> None:
    data = b"".join(head(size, masked=masked) + bytes(size) for size, masked in frames)
    meter = FrameMeter()
    for start in range(0, min(len(data), 4_000), piece):
        assert sum(turns(meter, data[start : start + piece])) == len(data[start : start + piece])


def test_a_message_in_16384_frames_is_too_many_whatever_comes_between() -> None:
    meter = FrameMeter()
    fragment = head(1, opcode=0, fin=False) + b"x"
    turns(meter, head(1, fin=False) + b"x" + (fragment + head(0, opcode=9)) * 16_382)
    with pytest.raises(TooManyFrames):
        turns(meter, fragment)


def test_each_message_counts_its_own_frames() -> None:
    meter = FrameMeter()
    message = head(1, fin=False) + b"x" + head(1, opcode=0) + b"y"
    for _ in range(20):
        turns(meter, message * 1_000)
