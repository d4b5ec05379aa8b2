"""Mirrors `engine/keeper/peers.py`."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from engine.keeper import peers


def inode(sock: socket.socket) -> int:
    return os.fstat(sock.fileno()).st_ino


def test_the_two_of_a_pair_are_each_others_peer() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peers.peer_of(inode(ours)) == inode(theirs)
        assert peers.peer_of(inode(theirs)) == inode(ours)


def test_what_is_connected_to_nobody_has_none(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        assert peers.peer_of(inode(server)) is None
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        assert peers.peer_of(inode(tcp)) is None
    assert peers.peer_of(1 << 40) is None


def test_a_kernel_that_does_not_tell_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "NETLINK_SOCK_DIAG", 31)  # nobody answers there
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peers.peer_of(inode(ours)) is None


def test_a_socket_is_known_by_its_link() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        name = os.readlink(f"/proc/self/fd/{ours.fileno()}")
        assert (peers.inode_in(name), peers.socket_name(inode(ours))) == (inode(ours), name)
    assert peers.inode_in("pipe:[7]") is None
