"""Mirrors `engine/mcp/context.py`: who asks, and how a result is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.mcp.context import client_name, failure, meta_of, raw_ids, result_of


def asking(client: str | None = None, params: Any = None) -> Any:
    """What a handler is given, as far as it is looked at here."""
    said = None if client is None else SimpleNamespace(client_info=SimpleNamespace(name=client))
    return SimpleNamespace(session=SimpleNamespace(client_params=said), params=params)


def test_a_client_that_says_no_name_has_an_empty_one() -> None:
    assert client_name(asking("codex-mcp-client")) == "codex-mcp-client"
    assert client_name(asking()) == ""


@pytest.mark.parametrize("params", [None, {}, {"_meta": None}, {"_meta": ["odd"]}])
def test_a_request_without_meta_has_an_empty_one(params: Any) -> None:
    assert meta_of(asking(params=params)) == {}


def test_for_the_log_the_protocols_own_is_left_out_and_the_rest_bounded() -> None:
    meta = {"io.modelcontextprotocol/clientInfo": {"name": "x"}, "threadId": "t-1"}
    assert meta_of(asking(params={"_meta": meta})) == meta
    assert raw_ids(meta) == '{"threadId": "t-1"}'
    assert len(raw_ids({"long": "x" * 10_000})) == 500


REPLY = {"status": "succeeded", "kickoffId": "k1", "taskId": "t1", "exitCode": 0, "output": "hi\n"}


# The names are those that the clients give: `make mcp-clients` shows them.
@pytest.mark.parametrize(
    "client", ["claude-code", "codex-mcp-client", "Visual Studio Code", "copilot-developer-cli"]
)
def test_the_output_is_in_the_structure_for_those_whose_models_see_that(client: str) -> None:
    result = result_of(asking(client), "bash", dict(REPLY))
    assert result.structured_content == REPLY
    assert [getattr(each, "text", "") for each in result.content] == ["t1 succeeded, exit 0"]


@pytest.mark.parametrize("client", ["gemini-cli-mcp-client", "opencode", "cursor-vscode", ""])
def test_and_in_the_text_for_all_others(client: str) -> None:
    result = result_of(asking(client), "bash", dict(REPLY))
    facts = {name: value for name, value in REPLY.items() if name != "output"}
    assert result.structured_content == {**facts, "textIn": "content"}
    assert [getattr(each, "text", "") for each in result.content] == ["t1 succeeded, exit 0\nhi"]


def test_a_failure_is_a_result_that_says_so() -> None:
    result = failure("no such task")
    assert (result.is_error, getattr(result.content[0], "text", "")) == (True, "no such task")
