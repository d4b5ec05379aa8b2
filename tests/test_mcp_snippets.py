"""Mirrors `scripts/mcp_snippets.py`: configurations are well formed, and what they name exists."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.mcp.schemas import input_schema
from engine.mcp.tools import TOOLS
from scripts.mcp_snippets import PAGE, Snippet, read_snippets, snippet

LIMIT = 30.0
LOOKING = {"wait", "wait_any", "read_output", "read_logs", "list_tasks", "roster"}
SNIPPETS = read_snippets()
CLIENTS = ["Claude Code", "Codex CLI", "Gemini CLI", "Cursor", "VS Code", "OpenCode"]


def test_each_client_has_its_configuration() -> None:
    assert list(dict.fromkeys(each.client for each in SNIPPETS)) == CLIENTS
    named = re.findall(r"^(?:.*, )?`[~.][^`\n]*`", PAGE.read_text(), re.M)
    assert len(SNIPPETS) == len(named) == 11  # none was passed over


@pytest.mark.parametrize("each", SNIPPETS, ids=lambda each: each.file)
def test_a_configuration_is_well_formed(each: Snippet) -> None:
    assert each.parsed()


def commands(value: Any) -> Iterator[list[str]]:
    """The command lines of the servers that a configuration starts."""
    if isinstance(value, dict):
        for key in ("mcpServers", "mcp_servers", "servers", "mcp"):
            for server in value.get(key, {}).values():
                command = server["command"]
                yield command if isinstance(command, list) else [command, *server["args"]]


def test_each_client_starts_what_the_installed_program_understands() -> None:
    started = [(each.client, command) for each in SNIPPETS for command in commands(each.parsed())]
    assert started == [(client, ["engine", "mcp"]) for client in CLIENTS]
    program = Path(sys.executable).with_name("engine")
    done = subprocess.run([program, "mcp", "--help"], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0
    for option in ("--max-wait", "--http"):
        assert option in PAGE.read_text()
        assert option in done.stdout


def allowed(file: str) -> list[str]:
    """The tools that the file of this name lets run unasked."""
    (found,) = (each for each in SNIPPETS if each.file == file)
    facts = found.parsed()
    match file.rpartition("/")[2]:
        case "settings.json":
            return [_within("mcp__engine__", name) for name in facts["permissions"]["allow"]]
        case "config.toml":
            tools = facts["mcp_servers"]["engine"]["tools"]
            assert {each["approval_mode"] for each in tools.values()} == {"approve"}
            return list(tools)
        case "engine.toml":
            (rule,) = facts["rule"]
            assert (rule["mcpName"], rule["decision"]) == ("engine", "allow")
            return list(rule["toolName"])
        case "permissions.json":
            return [_within("engine:", name) for name in facts["mcpAllowlist"]]
        case "cli-config.json":
            names = facts["permissions"]["allow"]
            return [_within("Mcp(engine:", name).removesuffix(")") for name in names]
        case _:
            rules = dict(facts["permission"])
            assert next(iter(rules.items())) == ("engine_*", "ask")
            return [_within("engine_", name) for name in itertools.islice(rules, 1, None)]


def _within(prefix: str, name: str) -> str:
    assert name.startswith(prefix)
    return name.removeprefix(prefix)


@pytest.mark.parametrize(
    "file",
    [
        "~/.claude/settings.json",
        "~/.codex/config.toml",
        "~/.gemini/policies/engine.toml",
        "~/.cursor/permissions.json",
        "~/.cursor/cli-config.json",
        "~/.config/opencode/opencode.json",
    ],
)
def test_the_tools_that_look_run_unasked_and_no_others(file: str) -> None:
    assert sorted(allowed(file)) == sorted(LOOKING)
    assert set(TOOLS) >= LOOKING
    assert not any(TOOLS[name].hints.is_destructive for name in LOOKING)


def test_those_that_the_page_says_to_be_annotated_are() -> None:
    assert {name for name, tool in TOOLS.items() if tool.hints.is_read_only} == {
        "read_output",
        "list_tasks",
        "roster",
    }


def hook(said: dict[str, Any]) -> Any:
    """What the hook answers; None: nothing, and the call stays as it is."""
    script = snippet("Claude Code", "~/.claude/engine-caller.py").text
    done = subprocess.run(
        [sys.executable, "-I", "-c", script],
        input=json.dumps(said),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert done.stderr == ""
    return json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else None


CALL = {
    "hook_event_name": "PreToolUse",
    "tool_name": "mcp__engine__bash",
    "tool_input": {"command": "make"},
}


def test_the_hook_names_the_sub_agent_that_calls_and_keeps_the_rest() -> None:
    answer = hook({**CALL, "agent_id": "a1B2", "agent_type": "Code Reviewer"})
    assert answer == {
        "hookEventName": "PreToolUse",
        "updatedInput": {"command": "make", "as": "sub-a1b2-code-reviewer"},
    }


def test_the_hook_leaves_the_main_conversation_and_a_name_that_is_given_alone() -> None:
    assert hook({**CALL, "agent_type": "main"}) is None
    given = {"command": "make", "as": "tester"}
    assert hook({**CALL, "tool_input": given, "agent_id": "a1"}) is None


def test_a_name_that_the_hook_makes_is_one_that_every_tool_takes() -> None:
    answer = hook({**CALL, "agent_id": "é" * 50, "agent_type": "x" * 100})
    for name in TOOLS:
        pattern = input_schema(name)["properties"]["as"]["pattern"]
        assert re.search(pattern, answer["updatedInput"]["as"])


def test_the_hook_is_registered_for_the_engines_tools_alone() -> None:
    (entry,) = snippet("Claude Code", "~/.claude/settings.json").parsed()["hooks"]["PreToolUse"]
    assert all(re.fullmatch(entry["matcher"], f"mcp__engine__{name}") for name in TOOLS)
    assert not re.fullmatch(entry["matcher"], "mcp__other__bash")
    assert [each["command"] for each in entry["hooks"]] == ["python3 ~/.claude/engine-caller.py"]
