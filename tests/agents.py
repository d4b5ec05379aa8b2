"""Agents for the tests of MCP: the SDK's own client, over stdio and over HTTP, in both eras.

async with over_stdio(engine, "--as", "ci") as agent:
    assert text_of(await agent.call_tool("bash", {"command": "echo hi"})).endswith("hi")
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import httpx2
import pytest
from acceptance.running import PROGRAM, Engine, new_name
from mcp import Client, types
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

Mode = Literal["legacy", "auto"]
# Of streams of events over HTTP, by the SDK's own client.
SDK_LEAVES_STREAMS: Final = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
ERAS: Final[tuple[Mode, ...]] = ("legacy", "auto")  # with a handshake, and since 2026-07-28


@asynccontextmanager
async def over_stdio(
    engine: Engine,
    *options: str,
    mode: Mode = "auto",
    name: str = "tester",
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[Client]:
    """An agent that starts `engine mcp` with these options, as its configuration would."""
    parameters = StdioServerParameters(
        command=str(PROGRAM),
        args=["--home", str(engine.home), "mcp", *options],
        env=dict(os.environ) | (env or {}),
        cwd=cwd,
    )
    with engine.log.open("a") as errors:
        transport = stdio_client(parameters, errlog=errors)
        async with Client(transport, mode=mode, client_info=info(name), **more) as client:
            yield client


@asynccontextmanager
async def over_http(
    engine: Engine,
    *,
    url: str | None = None,
    mode: Mode = "auto",
    name: str | None = None,
    role: str = "agent",
    **more: Any,
) -> AsyncIterator[Client]:
    """An agent that knows the engine's URL and a token; since 2026 its name is the caller's."""
    headers = {"Authorization": f"Bearer {engine.token(role)}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30.0) as http:
        transport = streamable_http_client(url or url_of(engine), http_client=http)
        who = info(name or new_name("http"))
        async with Client(transport, mode=mode, client_info=who, **more) as client:
            yield client


def info(name: str) -> types.Implementation:
    return types.Implementation(name=name, version="1")


def url_of(engine: Engine) -> str:
    url: str = engine.facts()["url"]
    return url.replace("ws://", "http://").removesuffix("/rpc") + "/mcp"


def text_of(result: types.CallToolResult) -> str:
    """The one text of a result."""
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


def facts_of(result: types.CallToolResult) -> dict[str, Any]:
    """The structured content of a result that is no error."""
    assert not result.is_error, text_of(result)
    facts = result.structured_content
    assert isinstance(facts, dict)
    return facts


class RawAgent:
    """A client of 2026-07-28 over HTTP that shows each answer as it came, with no state at all."""

    def __init__(self, url: str, http: httpx2.AsyncClient, extensions: dict[str, Any]) -> None:
        self._url, self._http = url, http
        self._ids = itertools.count(1)
        self._meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"extensions": extensions},
        }

    @classmethod
    @asynccontextmanager
    async def open(
        cls, engine: Engine, extensions: dict[str, Any] | None = None
    ) -> AsyncIterator[RawAgent]:
        headers = {"Authorization": f"Bearer {engine.token()}"}
        async with httpx2.AsyncClient(headers=headers, timeout=30.0) as http:
            yield cls(url_of(engine), http, extensions or {})

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return await self.call("tools/call", name=name, arguments=arguments)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result; an error fails the test."""
        message = await self._ask(method, params)
        assert "result" in message, message
        result: dict[str, Any] = message["result"]
        return result

    async def refuse(self, method: str, **params: Any) -> dict[str, Any]:
        """The error, where one must come."""
        message = await self._ask(method, params)
        assert "error" in message, message
        error: dict[str, Any] = message["error"]
        return error

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
        }
        if named := params.get("name") or params.get("taskId") or params.get("uri"):
            headers["Mcp-Name"] = named
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method}
        body = {**message, "params": {**params, "_meta": self._meta}}
        response = await self._http.post(self._url, json=body, headers=headers)
        text = response.text
        if response.headers["content-type"].startswith("text/event-stream"):
            text = [line[6:] for line in text.splitlines() if line.startswith("data: ")][-1]
        answer: dict[str, Any] = json.loads(text)
        return answer
