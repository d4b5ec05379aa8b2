"""The daemon inside the test's own process: how it begins, and what its end leaves behind."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
import trio

from engine.config import Home, Settings
from engine.daemon import serve
from engine.server.listeners import CannotListen
from engine.startup import CannotStart, lock_home, prepare_home

LIMIT = 20.0  # seconds for any wait here


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    prepare_home(home)
    return home


async def ask_ready(url: str) -> bytes:
    port = int(url.rpartition(":")[2].partition("/")[0])
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        return b"".join([chunk async for chunk in stream])


@pytest.mark.parametrize("by_signal", [True, False])
async def test_it_serves_once_started_and_leaves_nothing_however_it_ends(
    home: Home, by_signal: bool
) -> None:
    with trio.fail_after(LIMIT):
        for _ in range(2):  # the second finds what the first left
            async with trio.open_nursery() as nursery:
                url = await nursery.start(serve, home, Settings(min_free_bytes=0), 0o022, None)
                assert b" 200 " in await ask_ready(url)
                if by_signal:
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    nursery.cancel_scope.cancel()
    assert home.socket.exists() is not by_signal
    assert (home.path / "listen.port").exists()


async def test_an_address_that_is_taken_ends_the_start_with_that_error_alone(home: Home) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with trio.fail_after(LIMIT), pytest.raises(CannotListen, match="Address already in use"):
            await serve(home, Settings(listen=listen), 0o022, None)


async def test_a_home_whose_database_cannot_be_made_is_told(home: Home) -> None:
    home.index.with_name("index.db-shm").mkdir()  # where SQLite keeps what it needs to write
    with trio.fail_after(LIMIT), pytest.raises(CannotStart, match="as home: attempt to write"):
        await serve(home, Settings(), 0o022, None)


def test_the_lock_is_one_holders_and_free_once_it_is_closed(home: Home) -> None:
    held = lock_home(home)
    with pytest.raises(CannotStart, match=f"another engine .pid {os.getpid()}. has the home"):
        lock_home(home)
    held.close()
    lock_home(home).close()
