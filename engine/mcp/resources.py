"""The resources: outputs of tasks, and the newest lines of the journal. To read moves nothing."""

from __future__ import annotations

import re
from typing import Any, Final

from mcp import types
from mcp.shared.exceptions import MCPError

from engine.client.errors import ClientError, RpcError
from engine.mcp.context import Context, FindPeer
from engine.mcp.refusals import words_of
from engine.mcp.render import show

LOGS: Final = "engine://logs"
OUTPUT: Final = "engine://tasks/{id}/output"
OUTPUT_BYTES: Final = 65_536  # the newest of an output
LOG_LINES: Final = 200
NOT_FOUND: Final = -32602  # with the uri in `data`
BROKEN: Final = -32603
_OUTPUT: Final = re.compile(r"engine://tasks/([A-Za-z0-9_-]{1,84})/output\Z")
_HEAD: Final = (1 << 53) - 1  # a seq past all that there are


class ResourceFace:
    def __init__(self, find_peer: FindPeer) -> None:
        self._find_peer = find_peer

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        text = "The newest lines of the journal: what all jobs and the engine itself have said."
        logs = types.Resource(uri=LOGS, name="logs", description=text, mime_type="text/plain")
        return types.ListResourcesResult(resources=[logs])

    async def list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        output = types.ResourceTemplate(
            uri_template=OUTPUT,
            name="output",
            description="The newest 64 KiB of a task's output, by its taskId.",
            mime_type="text/plain",
        )
        return types.ListResourceTemplatesResult(resource_templates=[output])

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """The text of a resource. Raises MCPError where there is none."""
        uri = str(params.uri)
        output = _OUTPUT.match(uri)
        if uri != LOGS and output is None:
            raise MCPError(NOT_FOUND, "Resource not found", {"uri": uri})
        try:
            text = await (self._logs(ctx) if output is None else self._output(ctx, output[1]))
        except RpcError as exc:
            if exc.kind in ("unknown_handle", "expired_handle", "output_gone"):
                raise MCPError(NOT_FOUND, f"Resource not found: {exc}", {"uri": uri}) from exc
            raise MCPError(BROKEN, words_of("read_output", exc)) from exc
        except ClientError as exc:
            raise MCPError(BROKEN, words_of("read_output", exc)) from exc
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _logs(self, ctx: Context) -> str:
        wanted = {"logScope": "all", "before_seq": _HEAD, "limit": LOG_LINES, "peek": True}
        result = await self._ask(ctx, "read_logs", wanted)
        return show("read_logs", result, structured=False).text

    async def _output(self, ctx: Context, task: str) -> str:
        wanted = {"taskId": task, "offset": -OUTPUT_BYTES, "limit_bytes": OUTPUT_BYTES}
        return str((await self._ask(ctx, "read_output", wanted))["text"])

    async def _ask(self, ctx: Context, method: str, params: dict[str, Any]) -> dict[str, Any]:
        peer = self._find_peer(ctx)
        result: dict[str, Any] = await peer.link.call(method, {"as": peer.name, **params})
        return result
