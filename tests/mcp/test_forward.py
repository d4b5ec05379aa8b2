"""Mirrors `engine/mcp/forward.py`: the engine's /mcp at an address of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from acceptance.running import NO_FLOOR, PROGRAM, Engine

LIMIT = 60.0
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "tester", "version": "1"},
    },
}


@asynccontextmanager
async def forwarding(engine: Engine) -> AsyncIterator[tuple[str, trio.Process]]:
    command = [str(PROGRAM), "--home", str(engine.home), "mcp", "--http", "127.0.0.1:0"]
    process = await trio.lowlevel.open_process(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        async with process.stdout:
            yield (await process.stdout.receive_some()).decode().strip(), process
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def status_of(url: str, token: str) -> int:
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
    }
    async with httpx2.AsyncClient(headers=headers, timeout=30.0) as http:
        return (await http.post(url, json=INITIALIZE)).status_code


async def test_the_engine_may_be_started_again_meanwhile(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT), Engine(tmp_path / "home", *NO_FLOOR) as engine:
        async with forwarding(engine) as (url, _process):
            assert await status_of(url, engine.token()) == 200
            engine.stop()
            engine.start()
            assert await status_of(url, engine.token()) == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order(engine: Engine, number: signal.Signals) -> None:
    with trio.fail_after(LIMIT):
        async with forwarding(engine) as (url, process):
            assert await status_of(url, engine.token()) == 200
            os.kill(process.pid, number)
            assert await process.wait() == 0


def test_an_address_that_is_taken_is_told(engine: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, words = run(engine.home, "--http", f"127.0.0.1:{taken.getsockname()[1]}")
    assert code == 69
    assert "in use" in words


def test_where_no_engine_may_be_started_there_is_nothing_to_forward_to(tmp_path: Path) -> None:
    code, words = run(tmp_path / "home", "--http", "127.0.0.1:0", start=False)
    assert code == 69
    assert words.startswith("engine mcp: no engine at home in ")


def run(home: Path, *options: str, start: bool = True) -> tuple[int, str]:
    before = [] if start else ["--no-start"]
    done = subprocess.run(
        [PROGRAM, "--home", home, *before, "mcp", *options],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr
