"""Mirrors `engine/cli/escapes.py`."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.escapes import TerminalFilter


def shown(data: bytes) -> bytes:
    return TerminalFilter().feed(data, final=True)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\ttext\r\n", b"plain\ttext\r\n"),
        (b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m"),
        (b"\x1b[38:2::1:2:3mx", b"\x1b[38:2::1:2:3mx"),
        (b"\x1b]0;title\x07hi", b"hi"),
        (b"\x1b]0;title\x1b\\hi", b"hi"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", b"link"),
        (b"\x1bPq#0\x1b\\after", b"after"),
        (b"\x1b[2J\x1b[H\x1b[?25lhi", b"hi"),
        (b"\x1b[>4;2mx", b"x"),  # xterm's private m is no colour
        (b"\x1b(Bx\x1b7y\x1bcz", b"xyz"),
        (b"a\x07b\x08c\x00d\x7f", rb"a\x07b\x08c\x00d\x7f"),
        ("a\x9b31mb\x9d0;t\x9cc\x85d".encode(), b"a\x1b[31mbcd"),
        (b"bad \xff byte", "bad \ufffd byte".encode()),
        (b"\x1b]0;never ended\nnext line\n", b"\nnext line\n"),
        (b"\x1b[" + b"1" * 65 + b"m", b"1m"),
    ],
)
def test_colours_pass_and_what_moves_or_names_does_not(data: bytes, text: bytes) -> None:
    assert shown(data) == text


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_how_the_bytes_are_cut_changes_nothing(data: bytes, cuts: list[int]) -> None:
    whole = shown(data)
    pieces = TerminalFilter()
    edges = [0, *sorted(min(c, len(data)) for c in cuts), len(data)]
    out = b"".join(pieces.feed(data[a:b]) for a, b in pairwise(edges))
    assert out + pieces.feed(b"", final=True) == whole


@given(st.text(alphabet="\x1b\x9b\x9d[]Pm0;?ab\x07\\\n", max_size=80))
def test_only_colours_reach_the_terminal_as_escapes(text: str) -> None:
    left = re.sub(rb"\x1b\[[0-9;:]*m", b"", shown(text.encode()))
    assert b"\x1b" not in left
    assert not {"\x9b", "\x9d"} & set(left.decode())
