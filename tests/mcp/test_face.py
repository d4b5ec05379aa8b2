"""Mirrors `engine/mcp/face.py`: an agent's conversation, from its client to a job and back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import trio
from acceptance.running import Engine, new_name
from agents import ERAS, SDK_LEAVES_STREAMS, Mode, facts_of, over_http, over_stdio, text_of

from engine.mcp.face import arranged
from engine.mcp.tools import TOOLS

LIMIT = 60.0
NAMES = [
    *("bash", "execute", "wait", "wait_any", "cancel", "write_stdin", "read_output"),
    *("list_tasks", "read_logs", "run_round", "reset_session", "roster"),
]
VERSIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}


@pytest.mark.parametrize("mode", ERAS)
async def test_over_stdio_a_command_runs_where_the_agent_is(
    engine: Engine, tmp_path: Path, mode: Mode
) -> None:
    with trio.fail_after(LIMIT):
        env = {"FLAVOUR": "plum", "ENGINE_CALLER": new_name()}
        async with over_stdio(engine, mode=mode, cwd=tmp_path, env=env) as agent:
            assert agent.protocol_version == VERSIONS[mode]
            assert [tool.name for tool in (await agent.list_tools()).tools] == NAMES
            result = await agent.call_tool("bash", {"command": "echo $FLAVOUR; pwd"})
    assert text_of(result).endswith(f"\nplum\n{tmp_path}")
    facts = facts_of(result)
    assert (facts["status"], facts["exitCode"]) == ("succeeded", 0)
    assert facts["as"] == env["ENGINE_CALLER"]


@SDK_LEAVES_STREAMS
@pytest.mark.parametrize("mode", ERAS)
async def test_over_http_a_command_runs(engine: Engine, mode: Mode) -> None:
    with trio.fail_after(LIMIT):
        async with over_http(engine, mode=mode) as agent:
            assert agent.protocol_version == VERSIONS[mode]
            assert [tool.name for tool in (await agent.list_tools()).tools] == NAMES
            first = await agent.call_tool("bash", {"command": "cd /usr; place=here"})
            result = await agent.call_tool("bash", {"command": "echo $place; pwd"})
    assert text_of(result).endswith("\nhere\n/usr")
    assert facts_of(result)["as"] == facts_of(first)["as"]


async def test_a_long_command_is_promoted_and_its_end_received_once(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        async with over_stdio(engine) as agent:
            command = {"command": "sleep 0.3; echo over", "timeout_secs": 0}
            started = facts_of(await agent.call_tool("bash", command))
            assert started["status"] == "running"
            told = await agent.call_tool("wait_any", {"waitSeconds": 20})
            again = facts_of(await agent.call_tool("wait_any", {}))
    assert facts_of(told)["updates"][0]["id"] == started["taskId"]
    assert text_of(told).endswith("\nover")
    assert (again["reason"], again["updates"]) == ("nothing_pending", [])


async def test_two_sub_agents_on_one_connection_are_two_callers(engine: Engine) -> None:
    one, other = new_name(), new_name()
    with trio.fail_after(LIMIT):
        async with over_stdio(engine) as agent:
            await agent.call_tool("bash", {"command": "cd /usr; v=one", "as": one})
            await agent.call_tool("bash", {"command": "cd /etc; v=two", "as": other})
            first = await agent.call_tool("bash", {"command": "echo $v $PWD", "as": one})
            second = await agent.call_tool("bash", {"command": "echo $v $PWD", "as": other})
            task = {"command": "sleep 0.2", "timeout_secs": 0}
            mine = facts_of(await agent.call_tool("bash", {**task, "as": one}))["taskId"]
            its = facts_of(await agent.call_tool("bash", {**task, "as": other}))["taskId"]
            inbox = facts_of(await agent.call_tool("wait_any", {"as": other}))
            rest = facts_of(await agent.call_tool("wait_any", {"as": one}))
    assert text_of(first).endswith("\none /usr")
    assert text_of(second).endswith("\ntwo /etc")
    assert [update["id"] for update in inbox["updates"]] == [its]
    assert [update["id"] for update in rest["updates"]] == [mine]


async def test_the_caller_is_the_argument_else_the_thread_else_the_option(engine: Engine) -> None:
    named, option = new_name(), new_name()
    thread = "019A-" + new_name()
    with trio.fail_after(LIMIT):
        async with over_stdio(engine, "--as", option) as agent:

            async def caller(arguments: dict[str, Any], meta: Any = None) -> str:
                given = {"command": "true", **arguments}
                called: str = facts_of(await agent.call_tool("bash", given, meta=meta))["as"]
                return called

            assert await caller({"as": named}, {"threadId": thread}) == named
            assert await caller({}, {"threadId": thread}) == thread.lower()
            assert await caller({}) == option
            given = {"as": thread.lower(), "contains": "mcp caller", "timeout_secs": 20}
            logged = text_of(await agent.call_tool("read_logs", given))
            assert f'client=tester meta={{"threadId": "{thread}"}}' in logged
        async with over_stdio(engine) as agent:
            own = await caller({})
            assert re.fullmatch(r"mcp-[0-9a-f]{10}", own)
            assert await caller({}) == own


async def test_a_wrong_argument_is_an_error_that_a_model_can_read(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        async with over_stdio(engine) as agent:
            missing = await agent.call_tool("bash", {"comand": "true"})
            negative = await agent.call_tool("bash", {"command": "true", "timeout_secs": -1})
            unknown = await agent.call_tool("wait", {"taskId": "tnosuch"})
            badly_named = await agent.call_tool("bash", {"command": "true", "as": "No Name"})
    assert all(each.is_error for each in (missing, negative, unknown, badly_named))
    assert text_of(missing).startswith("invalid_params: $.comand: expected one of the known params")
    assert text_of(negative) == (
        "invalid_params: $.timeout_secs: expected number >= 0\n"
        "Next: correct that argument and call again."
    )
    assert text_of(unknown) == (
        "unknown_handle: no such handle: tnosuch\nNext: list_tasks shows the tasks that there are."
    )
    assert text_of(badly_named).startswith("invalid_params: $.as: expected 1 to 64 characters")


@SDK_LEAVES_STREAMS
async def test_a_token_that_may_only_look_is_refused_in_words(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        async with over_http(engine, role="observer") as agent:
            refused = await agent.call_tool("bash", {"command": "true"})
            looked = await agent.call_tool("roster", {})
    assert text_of(refused).startswith("forbidden: the role observer may not call bash")
    assert not looked.is_error


async def test_null_is_taken_as_left_out(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        async with over_stdio(engine) as agent:
            given = {"command": "echo hi", "cwd": None, "timeout_secs": None, "as": None}
            assert text_of(await agent.call_tool("bash", given)).endswith("\nhi")


@pytest.mark.parametrize("mode", ERAS)
async def test_cancelling_a_call_ends_the_wait_and_receives_nothing(
    engine: Engine, mode: Mode, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with over_stdio(engine, mode=mode) as agent:
            gate = tmp_path / "gate"
            command = f"until [ -e {gate} ]; do sleep 0.05; done; echo got it"
            given = {"command": command, "timeout_secs": 0}
            task = facts_of(await agent.call_tool("bash", given))["taskId"]
            with trio.move_on_after(0.3) as scope:
                await agent.call_tool("wait_any", {"ids": [task]})
            assert scope.cancelled_caught
            row = facts_of(await agent.call_tool("wait", {"taskId": task, "timeout_secs": 0}))
            assert row["status"] == "running"
            gate.touch()
            told = await agent.call_tool("wait_any", {})
    assert text_of(told).endswith("got it")
    assert "redelivered" not in facts_of(told)["updates"][0]


async def test_progress_is_told_once_a_second(engine: Engine) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    with trio.fail_after(LIMIT):
        async with over_stdio(engine) as agent:
            await agent.call_tool("bash", {"command": "sleep 2.5"}, progress_callback=on_progress)
    assert heard[:2] == [
        (1.0, 20.0, "bash: 1 of at most 20 s"),
        (2.0, 20.0, "bash: 2 of at most 20 s"),
    ]


async def test_max_wait_bounds_every_wait(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        async with over_stdio(engine, "--max-wait", "0.2") as agent:
            started = facts_of(await agent.call_tool("bash", {"command": "exec sleep 30"}))
            assert started["status"] == "running"
            assert started["elapsedMs"] < 10_000
            waited = facts_of(await agent.call_tool("wait_any", {"wait_seconds": 240}))
            assert waited["reason"] == "wait_elapsed"
            await agent.call_tool("cancel", {"taskId": started["taskId"], "grace_secs": 0})


async def test_twenty_calls_of_one_connection_run_side_by_side(
    engine: Engine, tmp_path: Path
) -> None:
    with trio.fail_after(LIMIT):
        async with over_stdio(engine) as agent:
            gates = []
            async with trio.open_nursery() as nursery:

                async def one(number: int) -> None:
                    # Each waits until all are there: one after the other they would never end.
                    wait = (
                        f"touch {engine.home}/g{number}; until [ -e {engine.home}/g19 ]; do :; done"
                    )
                    given = {"command": wait, "as": f"side-{number}", "session": False}
                    gates.append(facts_of(await agent.call_tool("bash", given))["status"])

                for number in range(20):
                    nursery.start_soon(one, number)
    assert gates == ["succeeded"] * 20


async def test_long_output_is_shown_once_and_cut(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        async with over_stdio(engine) as agent:
            result = await agent.call_tool("bash", {"command": "seq 100000"})
            facts = facts_of(result)
        async with over_stdio(engine, name="codex-mcp-client") as agent:
            other = await agent.call_tool("bash", {"command": "seq 100000"})
    assert len(text_of(result)) < 20_000
    assert "output" not in facts
    assert facts["textIn"] == "content"
    assert "99999\n100000" in text_of(result)
    assert len(text_of(other)) < 200
    assert "99999\n100000" in facts_of(other)["output"]


async def test_results_are_as_their_schemas_say(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        for name in ("tester", "claude-code"):
            async with over_stdio(engine, name=name) as agent:
                schemas = {t.name: t.output_schema for t in (await agent.list_tools()).tools}
                seats = {"a": {"command": "echo a"}, "b": {"argv": ["false"]}}
                calls: list[tuple[str, dict[str, Any]]] = [
                    ("bash", {"command": "echo error: bad; false"}),
                    ("execute", {"code": "1 + 1"}),
                    ("bash", {"command": "sleep 0.1", "timeout_secs": 0}),
                    ("run_round", {"seats": seats}),
                    ("wait_any", {"wait_seconds": 5}),
                    ("list_tasks", {}),
                    ("read_logs", {}),
                    ("roster", {}),
                    ("reset_session", {"kind": "bash"}),
                ]
                for tool, arguments in calls:
                    facts = facts_of(await agent.call_tool(tool, arguments))
                    schema = schemas[tool]
                    assert schema is not None
                    jsonschema.validate(facts, schema, jsonschema.Draft202012Validator)
                    assert "null" not in json.dumps(facts)


async def test_resources_are_outputs_and_the_journal(engine: Engine) -> None:
    with trio.fail_after(LIMIT):
        async with over_stdio(engine) as agent:
            (logs,) = (await agent.list_resources()).resources
            (output,) = (await agent.list_resource_templates()).resource_templates
            told = facts_of(await agent.call_tool("bash", {"command": "echo one; echo two"}))
            uri = output.uri_template.replace("{id}", told["taskId"])
            (whole,) = (await agent.read_resource(uri)).contents
            (journal,) = (await agent.read_resource(str(logs.uri))).contents
    assert getattr(whole, "text", "") == "one\ntwo\n"
    assert f"[{told['taskId']} {told['as']}] two" in getattr(journal, "text", "")


def test_a_wait_that_is_left_out_has_the_tools_own_length() -> None:
    assert arranged(TOOLS["wait_any"], {}, None) == {"wait_seconds": 50.0}
    assert arranged(TOOLS["wait_any"], {"waitSeconds": 3}, None) == {"wait_seconds": 3}
    assert arranged(TOOLS["wait_any"], {"timeout_secs": 9}, 4.0) == {"timeout_secs": 4.0}
    assert arranged(TOOLS["wait"], {"taskId": "t1"}, 4.0) == {
        "taskId": "t1",
        "timeout_secs": 4.0,
        "max_output_bytes": 16_384,
    }
    assert arranged(TOOLS["read_output"], {"taskId": "t1"}, 4.0) == {
        "taskId": "t1",
        "limit_bytes": 16_384,
    }
    assert arranged(TOOLS["bash"], {"command": "x", "cwd": None}, None) == {
        "command": "x",
        "timeout_secs": 20.0,
        "max_output_bytes": 16_384,
    }
