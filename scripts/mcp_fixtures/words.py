"""What the fixtures share."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mcp import types

from engine.mcp.context import Context, meta_of
from engine.mcp.extension import CAPABILITIES

OBJECT: Final[dict[str, Any]] = {"type": "object", "properties": {}}
# One pixel, and a sound without samples.
PNG: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
WAV: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="


class Given(NamedTuple):
    """What comes with a call that had to ask first. `responses`: by the name of the request."""

    ctx: Context
    responses: dict[str, Any]
    state: str | None

    def content(self, name: str, member: str) -> Any:
        """The member of an accepted form; None where there is none."""
        answer = self.responses.get(name)
        return (getattr(answer, "content", None) or {}).get(member)

    @property
    def capabilities(self) -> dict[str, Any]:
        """Those that the request declares."""
        return meta_of(self.ctx).get(CAPABILITIES) or {}


def said(text: str, *, is_error: bool = False) -> types.CallToolResult:
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], is_error=is_error)


def form(message: str, name: str, kind: str) -> types.ElicitRequest:
    """A question whose answer is one member of this kind."""
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def sample(text: str) -> types.CreateMessageRequest:
    content = types.TextContent(type="text", text=text)
    message = types.SamplingMessage(role="user", content=content)
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=50)
    )
