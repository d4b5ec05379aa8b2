"""Fixtures that answer at once, and those that speak with the client while they run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio
from mcp import types
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params

from engine.mcp.context import Context, meta_of
from engine.mcp.extension import CAPABILITIES, NOT_DECLARED
from scripts.mcp_fixtures.words import PNG, WAV, said

PAUSE_SECS: Final = 0.05
Speaking = Callable[[Context, dict[str, Any]], Awaitable[types.CallToolResult]]

_TEXT: Final = types.TextContent(type="text", text="several kinds:")
_IMAGE: Final = types.ImageContent(type="image", data=PNG, mime_type="image/png")
_SOUND: Final = types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")


def _embedded(uri: str, kind: str, text: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=kind, text=text)
    return types.EmbeddedResource(type="resource", resource=contents)


def _result(*content: types.ContentBlock) -> types.CallToolResult:
    return types.CallToolResult(content=list(content))


TELLING: Final = {
    "test_simple_text": said("This is a simple text response for testing."),
    "test_image_content": _result(_IMAGE),
    "test_audio_content": _result(_SOUND),
    "test_embedded_resource": _result(
        _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": _result(
        _TEXT, _IMAGE, _embedded("test://mixed-content-resource", "application/json", '{"a": 1}')
    ),
    "test_error_handling": said(
        "This tool intentionally returns an error for testing", is_error=True
    ),
    "test_header_param": said("The header and the body agree."),
    "json_schema_2020_12_tool": said("The schema was as it is."),
}

_ENUMS: Final[dict[str, Any]] = {
    "untitledSingle": {"type": "string", "enum": ["one", "two"]},
    "titledSingle": {"type": "string", "oneOf": [{"const": "a", "title": "The first"}]},
    "legacyEnum": {"type": "string", "enum": ["x", "y"], "enumNames": ["An x", "A y"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["one", "two"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "The first"}]}},
}
_DEFAULTS: Final[dict[str, Any]] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}


async def _log(ctx: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", text, related_request_id=ctx.request_id)
        await trio.sleep(PAUSE_SECS)
    return said("three lines were logged")


async def _progress(ctx: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, f"{done} of 100")
        await trio.sleep(PAUSE_SECS)
    return said(str(progress_token_from_params(ctx.params)))


async def _sample(ctx: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    content = types.TextContent(type="text", text=str(arguments.get("prompt")))
    message = types.SamplingMessage(role="user", content=content)
    result = await ctx.session.create_message(
        [message], max_tokens=100, related_request_id=ctx.request_id
    )
    return said(f"LLM response: {getattr(result.content, 'text', '')}")


async def _ask(ctx: Context, message: str, properties: dict[str, Any]) -> types.CallToolResult:
    schema = {"type": "object", "properties": properties, "required": []}
    result = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return said(f"User response: {result.action} {result.content}")


async def _elicit(ctx: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    return await _ask(ctx, str(arguments.get("message")), {"response": {"type": "string"}})


async def _elicit_defaults(ctx: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    return await _ask(ctx, "Who are you?", _DEFAULTS)


async def _elicit_enums(ctx: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    return await _ask(ctx, "Which of them?", _ENUMS)


async def _need_sampling(ctx: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    """The error that the specification has for a client that does not declare what is needed."""
    if "sampling" not in (meta_of(ctx).get(CAPABILITIES) or {}):
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(NOT_DECLARED, "Missing required client capability", needed)
    return said("The client samples.")


async def _greet(ctx: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    return said(f"Hello, {arguments.get('name')}!")


async def _reconnect(ctx: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await trio.sleep(PAUSE_SECS)
    return said("Reconnection test completed.")


SPEAKING: Final[dict[str, Speaking]] = {
    "greet": _greet,
    "test_tool_with_logging": _log,
    "test_logging_tool": _log,
    "test_tool_with_progress": _progress,
    "test_streaming_elicitation": _progress,
    "test_sampling": _sample,
    "test_elicitation": _elicit,
    "test_elicitation_sep1034_defaults": _elicit_defaults,
    "test_elicitation_sep1330_enums": _elicit_enums,
    "test_missing_capability": _need_sampling,
    "test_reconnection": _reconnect,
}
