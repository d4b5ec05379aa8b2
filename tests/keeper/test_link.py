"""Mirrors `engine/keeper/link.py`: both ends of a socket pair, the other one plain."""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.keeper import link as link_module
from engine.keeper.link import Link, LinkBroken


def send(link: Link, message: dict[str, Any], payload: bytes = b"") -> None:
    link.put(message, payload)
    link.flush()


Ends = tuple[Link, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    link = Link(ours)
    theirs.settimeout(10)
    yield link, theirs
    link.close()
    theirs.close()


def send_fds(sock: socket.socket, data: bytes, *fds: int) -> None:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
    sock.sendmsg([data], [rights])


def test_nothing_there_is_no_message_and_no_wait(ends: Ends) -> None:
    assert ends[0].receive() == []


def test_messages_come_out_whole_in_order_and_once(ends: Ends) -> None:
    link, other = ends
    other.sendall(b'{"op": "a"}\n{"op": "b"}\n{"op":')
    assert link.receive() == [{"op": "a"}, {"op": "b"}]
    other.sendall(b' "c"}\n')
    assert link.receive() == [{"op": "c"}]
    assert link.receive() == []


def test_a_message_may_come_byte_by_byte(ends: Ends) -> None:
    link, other = ends
    for byte in b'{"op": "a"}':
        other.sendall(bytes([byte]))
        assert link.receive() == []
    other.sendall(b"\n")
    assert link.receive() == [{"op": "a"}]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20)), max_size=6),
    st.lists(st.integers(1, 40), min_size=1, max_size=10),
)
def test_messages_survive_any_cut(messages: list[dict[str, str]], cuts: list[int]) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    link, got = Link(ours), list[dict[str, Any]]()
    data = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    turn = 0
    with theirs:
        while data:
            size = cuts[turn % len(cuts)]
            theirs.sendall(data[:size])
            data, turn = data[size:], turn + 1
            got += link.receive()
    link.close()
    assert got == messages


@pytest.mark.parametrize(
    "data",
    [
        b"not json\n",
        b"[1]\n",
        b"null\n",
        b"\xff\n",
        b"\n",
        b"[" * 100_000 + b"\n",
        b'{"op": "a"}\n5\n',
    ],
)
def test_nonsense_breaks_the_link(ends: Ends, data: bytes) -> None:
    link, other = ends
    other.sendall(data)
    with pytest.raises(LinkBroken):
        link.receive()


def test_the_other_end_closing_breaks_the_link(ends: Ends) -> None:
    link, other = ends
    other.close()
    with pytest.raises(LinkBroken):
        link.receive()
    with pytest.raises(LinkBroken):
        send(link, {"ev": "grew"})


def test_a_message_without_end_breaks_the_link(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_INPUT", 1000)
    link, other = ends
    other.sendall(b"x" * 1000)
    assert link.receive() == []
    other.sendall(b"x")
    with pytest.raises(LinkBroken):
        link.receive()


def test_descriptors_come_with_their_message_and_no_job_inherits_them(ends: Ends) -> None:
    link, other = ends
    read_end, write_end = os.pipe()
    send_fds(other, b'{"op": "launch", "fds": 2}\n', read_end, write_end)
    assert link.receive() == [{"op": "launch", "fds": 2}]
    fds = link.take_fds(2)
    assert [os.get_inheritable(fd) for fd in fds] == [False, False]
    os.write(fds[1], b"x")
    assert os.read(read_end, 1) == b"x"
    for fd in (*fds, read_end, write_end):
        os.close(fd)


def test_descriptors_that_did_not_come_break_the_link(ends: Ends) -> None:
    with pytest.raises(LinkBroken):
        ends[0].take_fds(1)


def test_descriptors_that_nobody_takes_are_not_hoarded_and_closed_with_the_link(ends: Ends) -> None:
    link, other = ends
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        send_fds(other, b" ", 0)
        link.receive()
    send_fds(other, b" ", 0)
    with pytest.raises(LinkBroken):
        link.receive()
    link.close()
    link.close()  # twice is once
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_what_the_kernel_does_not_take_is_kept_and_sent_later(ends: Ends) -> None:
    link, other = ends
    payload = bytes(range(256)) * 16384  # 4 MiB
    send(link, {"ev": "ended"}, payload)
    assert link.is_backed_up
    got = bytearray()
    while True:
        link.flush()
        if not link.is_backed_up:
            break
        got += other.recv(1 << 20)
    other.setblocking(False)
    while len(got) < len(payload) + 36:
        got += other.recv(1 << 20)
    line, _, rest = bytes(got).partition(b"\n")
    assert json.loads(line) == {"ev": "ended", "payload": 4194304}
    assert rest == payload


def test_a_reader_that_never_reads_is_given_up(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_OUTPUT", 100_000)
    link, _other = ends
    send(link, {"ev": "grew"}, b"x" * 90_000)
    while not link.is_backed_up:
        send(link, {"ev": "grew"}, b"x" * 50_000)
    send(link, {"ev": "grew"}, b"x" * 1000)
    with pytest.raises(LinkBroken):
        send(link, {"ev": "grew"}, b"x" * 100_000)


def test_a_byte_that_is_no_utf8_arrives_as_such(ends: Ends) -> None:
    link, other = ends
    other.sendall(json.dumps({"argv": ["\udcff é"]}).encode() + b"\n")
    assert os.fsencode(link.receive()[0]["argv"][0]) == b"\xff \xc3\xa9"
