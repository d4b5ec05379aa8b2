"""Mirrors `engine/mcp/pipe.py`: `engine mcp` beside an agent, over the lives of several engines."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio
from acceptance.running import NO_FLOOR, PROGRAM, Engine
from agents import ERAS, Mode, facts_of, over_stdio, text_of

from engine.client.errors import NotReachable
from engine.client.places import Place
from engine.mcp import pipe
from engine.mcp.handing import ROOT

LIMIT = 60.0


@pytest.mark.parametrize("mode", ERAS)
async def test_an_agent_rides_out_a_restart_in_its_own_session(tmp_path: Path, mode: Mode) -> None:
    with trio.fail_after(LIMIT), Engine(tmp_path / "home", *NO_FLOOR) as engine:
        async with over_stdio(engine, mode=mode) as agent:
            before = facts_of(await agent.call_tool("bash", {"command": "cd /usr; kept=yes"}))
            engine.stop()
            engine.start()
            after = await agent.call_tool("bash", {"command": "echo $kept $PWD"})
    assert text_of(after).endswith("\nyes /usr")
    assert facts_of(after)["as"] == before["as"]


@pytest.mark.parametrize("mode", ERAS)
async def test_what_was_in_flight_when_the_engine_died_is_answered_with_the_next_call(
    tmp_path: Path, mode: Mode
) -> None:
    with trio.fail_after(LIMIT), Engine(tmp_path / "home", *NO_FLOOR) as engine:
        async with over_stdio(engine, mode=mode) as agent:
            gate, began = tmp_path / "gate", tmp_path / "began"
            os.mkfifo(began)
            command = f"until [ -e {gate} ]; do sleep 0.05; done; echo over"
            given = {"command": command, "timeout_secs": 0}
            task = facts_of(await agent.call_tool("bash", given))["taskId"]
            texts = {}
            async with trio.open_nursery() as nursery:

                async def call(tool: str, arguments: Any) -> None:
                    result = await agent.call_tool(tool, arguments)
                    assert result.is_error
                    texts[tool] = text_of(result)

                nursery.start_soon(call, "wait_any", {"ids": [task]})
                nursery.start_soon(call, "bash", {"command": f"echo > {began}; exec sleep 30"})
                await trio.to_thread.run_sync(began.read_text)
                engine.kill()
            engine.start()
            gate.write_text("")
            told = await agent.call_tool("wait_any", {"ids": [task]})
            rows = text_of(await agent.call_tool("list_tasks", {"state": ["running"]}))
            await agent.call_tool("cancel", {"caller": facts_of(told)["updates"][0]["as"]})
    assert texts["wait_any"].startswith("connection_lost: the engine went away before")
    assert texts["wait_any"].endswith("\nNext: call it again.")
    assert "it may have been started: call list_tasks to see" in texts["bash"]
    assert text_of(told).endswith("\nover")
    assert f"echo > {began}" in rows


async def test_an_engine_is_started_where_none_runs(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "home")
    engine.home.mkdir()
    (engine.home / "engine.toml").write_text("min_free_bytes = 0\n")
    with trio.fail_after(LIMIT):
        async with over_stdio(engine) as agent:
            assert text_of(await agent.call_tool("bash", {"command": "echo hi"})).endswith("\nhi")
        await trio.run_process([PROGRAM, "--home", str(engine.home), "stop"], capture_stdout=True)


def ancestors_of(pid: int) -> Iterator[int]:
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
        yield pid


def test_the_engine_that_it_starts_is_none_of_its_children(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "home")
    command = [str(PROGRAM), "--home", str(engine.home), "mcp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        assert select.select([process.stdout], [], [], LIMIT)[0]
        assert process.pid not in ancestors_of(engine.facts()["pid"])
        assert not Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        process.stdin.close()
        assert process.wait(LIMIT) == 0
    subprocess.run([*command[:-1], "stop"], check=True, capture_output=True, timeout=LIMIT)


def test_an_engine_that_hangs_up_in_the_handshake_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is killed then: nothing was asked, so another may be started."""
    path = str(tmp_path / "engine.sock")
    place = Place("ws://localhost/rpc", path, None, "localhost", "token", str(tmp_path), None)
    monkeypatch.setattr(pipe, "find_place", lambda *_given: place)
    options = pipe.Options(str(tmp_path), None, "ci", None, may_start=False)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(path)
        listener.listen()
        hung_up = pool.submit(lambda: listener.accept()[0].close())
        with pytest.raises(NotReachable) as caught:
            pipe.Pipe(options, {})._open()
        hung_up.result(LIMIT)
    assert caught.value.absent


def test_an_engine_that_cannot_start_is_told_with_its_reason(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "engine.toml").write_text("slots = -1\n")
    done = subprocess.run(
        [PROGRAM, "--home", home, "mcp"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("engine mcp: the engine ended at once, exit ")
    assert "slots" in first
    assert second.startswith("see ")


def test_where_none_may_be_started_it_says_so_and_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "--home", tmp_path / "home", "--no-start", "mcp"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith("engine mcp: no engine at home in ")


def test_it_ends_when_its_stdin_does(engine: Engine) -> None:
    done = subprocess.run(
        [PROGRAM, "--home", str(engine.home), "mcp"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_it_loads_the_standard_library_alone() -> None:
    names = "{n.split('.')[0] for n in sys.modules}"
    look = (
        f"import sys; sys.path.insert(0, {ROOT!r}); import engine.mcp.pipe;"
        f" import engine.client.start; print(*sorted({names} - sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", look], capture_output=True, text=True, timeout=LIMIT
    )
    assert (done.stdout.split(), done.stderr) == (["__main__", "engine"], "")
