"""Mirrors `engine/jobs/ports.py`."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio

from engine.jobs import ports

LIMIT = 10.0  # seconds


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0"])
async def test_a_port_that_somebody_listens_at_accepts(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no IPv6 here")
    with server, trio.fail_after(LIMIT):
        assert await ports.accepts(server.getsockname()[1])


async def test_a_port_that_nobody_listens_at_does_not() -> None:
    with trio.fail_after(LIMIT):
        assert not await ports.accepts(free_port())


async def test_a_listener_that_takes_nobody_in_is_not_waited_for() -> None:
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for sock in (first, second):  # one waits to be taken, the other fills the queue
            sock.setblocking(False)
            sock.connect_ex(server.getsockname())
        with trio.fail_after(LIMIT):
            assert not await ports.accepts(server.getsockname()[1])


async def test_a_connection_that_meets_itself_is_no_listener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()

    def bound(*args: Any) -> trio.socket.SocketType:
        sock = trio.socket.socket(*args)
        sock._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # type: ignore[attr-defined]
        sock._sock.bind(("127.0.0.1", port))  # type: ignore[attr-defined]
        return sock

    class Sockets:
        socket = staticmethod(bound)

    class Trio:
        socket = Sockets
        move_on_after = staticmethod(trio.move_on_after)
        lowlevel = trio.lowlevel

    monkeypatch.setattr(ports, "trio", Trio)
    monkeypatch.setattr(ports, "_ADDRESSES", ((socket.AF_INET, "127.0.0.1"),))
    with trio.fail_after(LIMIT):
        assert not await ports.accepts(port)
