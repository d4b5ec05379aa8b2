"""Mirrors `engine/mcp/extension.py`: the Tasks extension, for a client that declares it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from acceptance.running import Engine
from agents import SDK_LEAVES_STREAMS, RawAgent

LIMIT = 60.0
TASKS = "io.modelcontextprotocol/tasks"


@SDK_LEAVES_STREAMS
async def test_a_promoted_call_is_a_task_and_its_end_the_result(
    engine: Engine, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    command = f"until [ -e {gate} ]; do sleep 0.05; done; echo error: over; exit 3"
    with trio.fail_after(LIMIT):
        async with RawAgent.open(engine, extensions={TASKS: {}}) as agent:
            task = await agent.call_tool("bash", {"command": command, "timeout_secs": 0})
            assert task["resultType"] == "task"
            assert (task["taskId"][0], task["status"]) == ("t", "working")
            going = await agent.call("tasks/get", taskId=task["taskId"])
            assert (going["resultType"], going["status"]) == ("complete", "working")
            await trio.Path(gate).touch()
            while (ended := await agent.call("tasks/get", taskId=task["taskId"]))[
                "status"
            ] == "working":
                pass
    assert ended["status"] == "completed"
    assert ended["result"]["isError"] is True
    assert ended["result"]["structuredContent"]["exitCode"] == 3
    assert "error: over" in ended["result"]["content"][0]["text"]


@SDK_LEAVES_STREAMS
async def test_a_short_call_is_answered_at_once(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        async with RawAgent.open(engine, extensions={TASKS: {}}) as agent:
            result = await agent.call_tool("bash", {"command": "echo hi"})
    assert result["resultType"] == "complete"
    assert result["content"][0]["text"].endswith("\nhi")


@SDK_LEAVES_STREAMS
async def test_cancelling_a_task_ends_the_job(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        async with RawAgent.open(engine, extensions={TASKS: {}}) as agent:
            given = {"command": "exec sleep 60", "timeout_secs": 0}
            task = (await agent.call_tool("bash", given))["taskId"]
            assert (await agent.call("tasks/cancel", taskId=task))["resultType"] == "complete"
            assert (await agent.call("tasks/get", taskId=task))["status"] == "cancelled"


@SDK_LEAVES_STREAMS
async def test_without_the_extension_there_are_no_tasks(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        async with RawAgent.open(engine) as agent:
            given = {"command": "exec sleep 60", "timeout_secs": 0}
            result = await agent.call_tool("bash", given)
            assert result["resultType"] == "complete"
            task = result["structuredContent"]["taskId"]
            refused = await agent.refuse("tasks/get", taskId=task)
            await agent.call_tool("cancel", {"taskId": task, "grace_secs": 0})
    assert refused["code"] == -32021
    assert refused["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


@SDK_LEAVES_STREAMS
@pytest.mark.parametrize("id_", ["tnosuch", "knosuch", "no task!"])
async def test_an_unknown_task_is_refused(engine: Engine, id_: str) -> None:
    with trio.fail_after(LIMIT):
        async with RawAgent.open(engine, extensions={TASKS: {}}) as agent:
            refused: dict[str, Any] = await agent.refuse("tasks/get", taskId=id_)
    assert refused["code"] == -32602, json.dumps(refused)
    assert refused["message"].startswith("Unknown task: ")
