"""Mirrors `engine/mcp/handing.py`: the helper as a process of the engine."""

from __future__ import annotations

import errno
import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import leaks
import pytest
import trio
from acceptance.running import NO_FLOOR, Engine
from agents import facts_of, over_stdio, text_of

from engine.mcp import handing
from engine.mcp.control import Setup

LIMIT = 60.0


def helpers(engine: Engine) -> set[leaks.Process]:
    """The MCP helpers among the children of the engine."""
    found = set()
    for thread in Path(f"/proc/{engine.pid}/task").iterdir():
        for pid in map(int, (thread / "children").read_text().split()):
            process = leaks.living(pid)
            if process is not None and "engine.mcp.helper" in str(process):
                found.add(process)
    return found


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


async def test_the_helper_is_started_by_the_first_agent_and_has_the_sdk_alone(
    tmp_path: Path,
) -> None:
    with trio.fail_after(LIMIT), Engine(tmp_path / "home", *NO_FLOOR) as engine:
        assert helpers(engine) == set()
        async with over_stdio(engine) as agent:
            await agent.call_tool("bash", {"command": "true"})
            (helper,) = helpers(engine)
            assert "pydantic_core" in maps(helper.pid)
            assert "pydantic_core" not in maps(engine.pid)
        async with over_stdio(engine) as agent:
            assert helpers(engine) == {helper}


async def test_after_a_crash_the_next_call_has_another_helper(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT), Engine(tmp_path / "home", *NO_FLOOR) as engine:
        async with over_stdio(engine) as agent:
            await agent.call_tool("bash", {"command": "cd /usr"})
            (helper,) = helpers(engine)
            os.kill(helper.pid, signal.SIGKILL)
            assert leaks.wait_gone({helper}, LIMIT) == set()
            # It may be answered by the pipe, before it has seen the end of the connection.
            with trio.move_on_after(LIMIT):
                while (result := await agent.call_tool("bash", {"command": "pwd"})).is_error:
                    assert "Next: " in text_of(result)
            assert "cwd /usr\n/usr\n" in text_of(result)
            assert helpers(engine) not in (set(), {helper})


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_the_helper_ends_with_the_engine(tmp_path: Path, how: signal.Signals) -> None:
    with trio.fail_after(LIMIT), Engine(tmp_path / "home", *NO_FLOOR) as engine:
        async with over_stdio(engine) as agent:
            await agent.call_tool("bash", {"command": "true"})
            found = helpers(engine)
            engine.stop(how)
            assert leaks.wait_gone(found, 10) == set()


async def test_a_wait_is_answered_with_how_things_stand_when_the_engine_ends(
    tmp_path: Path,
) -> None:
    with trio.fail_after(LIMIT), Engine(tmp_path / "home", *NO_FLOOR) as engine:
        async with over_stdio(engine) as agent:
            given = {"command": "exec sleep 30", "timeout_secs": 0}
            task = facts_of(await agent.call_tool("bash", given))["taskId"]
            stands, is_waiting = [], trio.Event()

            async def on_progress(progress: float, total: Any, message: Any) -> None:
                is_waiting.set()

            async def wait() -> None:
                result = await agent.call_tool(
                    "wait", {"taskId": task}, progress_callback=on_progress
                )
                stands.append(facts_of(result))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await is_waiting.wait()
                await trio.to_thread.run_sync(engine.stop)
            engine.start()
            await agent.call_tool("cancel", {"taskId": task, "grace_secs": 0})
    assert stands[0]["status"] == "running"


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert handing.missing() is None
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "mcp" else found(name)
    )
    assert handing.missing() == "MCP is not installed here (mcp): pip install 'engine[mcp]'"


async def test_a_helper_that_cannot_be_started_is_told_to_everyone_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(trio.lowlevel, "open_process", refuse)
    setup = Setup(
        home=str(tmp_path),
        socket="/s",
        agent_token="a",
        observer_token="o",
        human_token="h",
        own_port=1,
        hosts=[],
        origins=[],
    )
    helper = handing.Helper(setup, {}, tmp_path / "log")
    ours, theirs = trio.socket.socketpair()
    said = []

    async def hand_over() -> None:
        with pytest.raises(handing.HelperGone) as caught:
            await helper.hand_over(trio.SocketStream(theirs), b"", None)
        said.append(str(caught.value))

    with ours, theirs, trio.fail_after(LIMIT):
        async with trio.open_nursery() as serving_nursery:
            serving_nursery.start_soon(helper.serve)
            for _ in range(2):  # and the next attempt is made for who comes later
                async with trio.open_nursery() as client_nursery:
                    client_nursery.start_soon(hand_over)
                    client_nursery.start_soon(hand_over)
            serving_nursery.cancel_scope.cancel()
    assert said == ["the MCP helper could not be started: Cannot allocate memory"] * 4
