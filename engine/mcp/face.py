"""The MCP server: what it offers, and the way of a tool call to the engine and back."""

from __future__ import annotations

import functools
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import structlog
import trio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params

from engine import VERSION
from engine.client.errors import ClientError
from engine.client.transport import Background
from engine.mcp.callers import caller_of
from engine.mcp.context import (
    Context,
    FindPeer,
    client_name,
    failure,
    meta_of,
    raw_ids,
    result_of,
)
from engine.mcp.extension import TaskExtension, begun, has_tasks
from engine.mcp.refusals import words_of
from engine.mcp.resources import ResourceFace
from engine.mcp.schemas import SPELLINGS, input_schema, output_schema
from engine.mcp.tools import INSTRUCTIONS, TOOLS, Tool

PROGRESS_SECS: Final = 1.0
NO_SUCH_TOOL: Final = -32602

log = structlog.stdlib.get_logger("engine.mcp")


@functools.cache
def make_tools() -> list[types.Tool]:
    """The tools in the order of their table."""
    return [
        types.Tool(
            name=name,
            title=tool.title,
            description=tool.description,
            input_schema=input_schema(name),
            output_schema=output_schema(name),
            annotations=types.ToolAnnotations(
                title=tool.title,
                read_only_hint=tool.hints.is_read_only,
                destructive_hint=tool.hints.is_destructive,
                idempotent_hint=tool.hints.is_idempotent,
                open_world_hint=tool.hints.is_open_world,
            ),
        )
        for name, tool in TOOLS.items()
    ]


class Busy:
    """How many tool calls are in flight."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = trio.Event()
        self._idle.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        if not self._count:
            self._idle = trio.Event()
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._idle.set()

    async def wait_idle(self) -> None:
        await self._idle.wait()


class Face:
    """The handlers of one server. `find_peer` tells whose conversation a request belongs to."""

    def __init__(self, find_peer: FindPeer, busy: Busy) -> None:
        self._find_peer, self._busy = find_peer, busy
        self._tools = make_tools()

    def make_server(self) -> Server[Any]:
        resources = ResourceFace(self._find_peer)
        server: Server[Any] = Server(
            "engine",
            title="engine",
            version=VERSION,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_list_resources=resources.list_resources,
            on_list_resource_templates=resources.list_templates,
            on_read_resource=resources.read_resource,
        )
        server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        TaskExtension(self._find_peer).bind(server)
        return server

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._tools)

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | dict[str, Any]:
        """The result of a tool; what goes wrong with it is a result too, for the model to read."""
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(code=NO_SUCH_TOOL, message=f"Unknown tool: {params.name}")
        peer, meta = self._find_peer(ctx), meta_of(ctx)
        arguments = arranged(tool, params.arguments or {}, peer.max_wait)
        arguments["as"] = caller = caller_of(arguments, meta, peer.name)
        try:
            with self._busy.one():
                async with _progress(ctx, params.name, _wait_secs(tool, arguments)):
                    result = await peer.link.call(params.name, arguments)
        except ClientError as exc:
            return failure(words_of(params.name, exc))
        if peer.meets(caller):
            log.info("mcp_caller", caller=caller, client=client_name(ctx), meta=raw_ids(meta))
        if params.name in ("bash", "execute") and result["status"] == "running" and has_tasks(ctx):
            return begun(result)
        return result_of(ctx, params.name, result)


def arranged(tool: Tool, given: Mapping[str, Any], max_wait: float | None) -> dict[str, Any]:
    """The params of the method: the arguments, the tool's own defaults, no wait over `max_wait`."""
    arguments = {name: value for name, value in given.items() if value is not None}
    for name, spelling in SPELLINGS.items():
        if spelling in arguments and name in tool.waits:
            arguments[name] = arguments.pop(spelling)
    arguments = {**tool.defaults, **arguments}
    if tool.waits and not any(name in arguments for name in tool.waits) and tool.wait_secs:
        arguments[tool.waits[0]] = tool.wait_secs
    for name in tool.waits:
        value = arguments.get(name)
        if isinstance(value, int | float) and max_wait is not None and value > max_wait:
            arguments[name] = max_wait
    return arguments


def _wait_secs(tool: Tool, arguments: Mapping[str, Any]) -> float:
    given = [arguments.get(name) for name in tool.waits]
    return max([0.0, *(value for value in given if isinstance(value, int | float))])


@asynccontextmanager
async def _progress(ctx: Context, tool: str, secs: float) -> AsyncIterator[None]:
    """While the block runs, tell the client once a second, where it asked to be told."""
    if progress_token_from_params(ctx.params) is None:
        yield
        return
    async with Background() as progress_nursery:
        progress_nursery.start_soon(_tell_progress, ctx, tool, secs)
        yield


async def _tell_progress(ctx: Context, tool: str, secs: float) -> None:
    total = secs or None
    limit = f" of at most {secs:g}" if secs else ""
    for count in itertools.count(1):
        await trio.sleep(PROGRESS_SECS)
        done = count * PROGRESS_SECS
        await ctx.session.report_progress(done, total, f"{tool}: {done:g}{limit} s")
