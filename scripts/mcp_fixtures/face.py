"""The engine's face with the fixtures of the conformance suite beside its own tools.

The handlers of the engine stay what they are: a fixture is asked first, and what is none of them
goes on to the engine's.
"""

from __future__ import annotations

from typing import Any, Final

from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from engine.mcp.context import Context
from engine.mcp.extension import NOT_DECLARED, TASKS, has_tasks
from engine.mcp.face import Face
from scripts.mcp_fixtures.asking import ASKING
from scripts.mcp_fixtures.jobs import JOBS, Job
from scripts.mcp_fixtures.reading import Prompts, Resources, complete
from scripts.mcp_fixtures.tools import SPEAKING, TELLING
from scripts.mcp_fixtures.words import OBJECT, Given

SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}},
    "test_header_param": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
_PAGE: Final = types.PaginatedRequestParams


class FixtureFace(Face):
    def make_server(self) -> Server[Any]:
        server = super().make_server()
        names = [*TELLING, *SPEAKING, *ASKING, *JOBS]
        self._tools = [*self._tools, *(_tool(name) for name in names)]
        Resources(server).bind()
        prompts = Prompts()
        server.add_request_handler("prompts/list", _PAGE, prompts.list_prompts)
        server.add_request_handler("prompts/get", types.GetPromptRequestParams, prompts.get_prompt)
        server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)
        return server

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Any:
        if params.name in TELLING:
            return TELLING[params.name]
        if params.name in SPEAKING:
            return await SPEAKING[params.name](ctx, params.arguments or {})
        if params.name in ASKING:
            given = Given(ctx, params.input_responses or {}, params.request_state)
            answer = ASKING[params.name](given)
            return await self._begin(ctx, answer) if isinstance(answer, Job) else answer
        if params.name in JOBS:
            return await self._begin(ctx, JOBS[params.name](params.arguments or {}))
        return await super()._call_tool(ctx, params)

    async def _begin(self, ctx: Context, job: Job) -> Any:
        """A job of the engine: what comes back, and what becomes of it, is the engine's answer."""
        if job.needs_tasks and not has_tasks(ctx):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(NOT_DECLARED, "Missing required client capability", needed)
        arguments = {"command": job.command, "timeout_secs": 0, "session": False}
        params = types.CallToolRequestParams(name="bash", arguments=arguments)
        return await super()._call_tool(ctx, params)


def _tool(name: str) -> types.Tool:
    words = f"For the conformance suite alone: {name.replace('_', ' ')}."
    return types.Tool(name=name, description=words, input_schema=SCHEMAS.get(name, OBJECT))


async def _set_level(ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()
