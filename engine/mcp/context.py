"""What the handlers of the MCP server share: who asks, and how a result is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp import types
from mcp.server.context import ServerRequestContext

from engine.mcp.peers import Peer
from engine.mcp.render import Result, reads_structured, show

Context = ServerRequestContext[Any, Any]
FindPeer = Callable[[Context], Peer]

SPEC: Final = "io.modelcontextprotocol/"  # how names of the protocol's own begin
RAW_MAX: Final = 500  # characters


def result_of(ctx: Context, tool: str, result: Result) -> types.CallToolResult:
    """What the client is given of a method's result."""
    shown = show(tool, result, structured=reads_structured(client_name(ctx)))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=shown.text)], structured_content=shown.facts
    )


def failure(text: str) -> types.CallToolResult:
    """An error that a model reads: clients keep those of the protocol to themselves."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def meta_of(ctx: Context) -> dict[str, Any]:
    """The `_meta` of the request as it came."""
    meta = (ctx.params or {}).get("_meta")
    return dict(meta) if isinstance(meta, Mapping) else {}


def client_name(ctx: Context) -> str:
    """What the client calls itself, empty where it does not say."""
    params = ctx.session.client_params
    return "" if params is None else params.client_info.name


def raw_ids(meta: Mapping[str, Any]) -> str:
    """What the client itself put into `_meta`, for the log; the protocol's own is left out."""
    own = {name: value for name, value in meta.items() if not name.startswith(SPEC)}
    return json.dumps(own, ensure_ascii=False)[:RAW_MAX]
