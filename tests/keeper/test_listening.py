"""Mirrors `engine/keeper/listening.py`, and the question that keepers answer by it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keeper.harness import KeeperClient, Nursery, bash, nursery

from engine.keeper.listening import has_any, listeners


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def inode(sock: socket.socket) -> int:
    return os.fstat(sock.fileno()).st_ino


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"])
def test_who_can_be_reached_at_the_loopback_listens(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no IPv6 here")
    with server:
        port = server.getsockname()[1]
        assert listeners(port) == frozenset({inode(server)})
        assert has_any([os.getpid()], frozenset({inode(server)}))
    assert listeners(port) == frozenset()


def test_who_listens_elsewhere_or_has_only_a_connection_does_not() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.2", port)) as one:
            assert listeners(port) == frozenset()
            assert listeners(one.getsockname()[1]) == frozenset()


def test_a_process_that_is_gone_or_has_not_the_socket_is_none_of_the_listeners() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wanted = frozenset({inode(server)})
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
            assert not has_any([2**22 - 1, child.pid], wanted)
            assert has_any([2**22 - 1, child.pid, os.getpid()], wanted)


# -- by keepers ----------------------------------------------------------------------------------


@pytest.fixture
def mother(tmp_path: Path) -> Iterator[Nursery]:
    with nursery(tmp_path) as mother:
        yield mother
        assert mother.log() == ""


def whose(keeper: KeeperClient) -> Any:
    keeper.send({"op": "listener"})
    return keeper.expect("listener")["whose"]


def test_a_keeper_says_whose_the_listener_at_its_jobs_port_is(mother: Nursery) -> None:
    keeper, port = mother.keeper(), free_port()
    script = (
        "import socket, sys; sys.stdin.readline();"
        f" s = socket.create_server(('127.0.0.1', {port})); print('up', flush=True);"
        " sys.stdin.readline(); s.close(); print('down', flush=True); sys.stdin.readline()"
    )
    keeper.send(bash(mother.directory(), f'python3 -c "{script}"; true', stdin="open", port=port))
    keeper.expect("started")
    assert whose(keeper) == "none"
    keeper.send({"op": "write", "data": "Cg==", "eof": False})
    keeper.expect("grew")
    assert whose(keeper) == "job"
    keeper.send({"op": "write", "data": "Cg==", "eof": False})
    while keeper.expect("grew")["sizes"] != [len("up\ndown\n")]:
        pass
    assert whose(keeper) == "none"
    with socket.create_server(("127.0.0.1", port)):
        assert whose(keeper) == "new"
    keeper.send({"op": "write", "data": "", "eof": True})
    keeper.expect("gone")


def test_a_listener_that_was_there_before_the_job_is_known_as_such(mother: Nursery) -> None:
    keeper = mother.keeper()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        keeper.send(bash(mother.directory(), "read x", stdin="open", port=port))
        keeper.expect("started")
        assert whose(keeper) == "before"
    assert whose(keeper) == "none"
    keeper.send({"op": "write", "data": "", "eof": True})
    keeper.expect("gone")
