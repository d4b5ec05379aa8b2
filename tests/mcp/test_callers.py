"""Mirrors `engine/mcp/callers.py`."""

from __future__ import annotations

import re

import pytest

from engine.mcp.callers import as_name, caller_of, name_of_client, name_of_session


def test_an_argument_goes_before_the_thread_and_the_thread_before_the_default() -> None:
    meta = {"threadId": "019A-B"}
    assert caller_of({"as": "ci"}, meta, "own") == "ci"
    assert caller_of({"manager_session_id": "boss"}, meta, "own") == "boss"
    assert caller_of({"as": None}, meta, "own") == "019a-b"
    assert caller_of({}, {"threadId": 5}, "own") == "own"
    assert caller_of({}, {}, "own") == "own"


def test_what_a_call_says_is_left_for_the_engine_to_check() -> None:
    assert caller_of({"as": "No Name"}, {}, "own") == "No Name"
    assert caller_of({"as": 5}, {}, "own") == 5


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Claude Code", "claude-code"),
        ("a/b\nc", "a-b-c"),
        ("anon-12", "mcp-12"),
        ("ünïcode", "n-code"),
    ],
)
def test_any_text_becomes_a_name(text: str, name: str) -> None:
    assert as_name(text) == name


def test_long_names_stay_apart() -> None:
    one, other = as_name("x" * 70 + "1"), as_name("x" * 70 + "2")
    assert one != other
    assert re.fullmatch(r"x{53}-[0-9a-f]{10}", one)


def test_a_session_and_a_client_are_callers_of_their_own() -> None:
    assert re.fullmatch(r"mcp-[0-9a-f]{10}", name_of_session("secret"))
    assert name_of_session("secret") != name_of_session("other")
    assert name_of_client("Gemini CLI") == "mcp-gemini-cli"
    assert name_of_client("") == "mcp-client"
