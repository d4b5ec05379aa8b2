"""Fixtures that are read: resources, prompts, completions."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from engine.mcp.context import Context
from scripts.mcp_fixtures.words import PNG, Given, form

BAD_PARAMS: Final = -32602
TEXT: Final = "test://static-text"
BINARY: Final = "test://static-binary"
WATCHED: Final = "test://watched-resource"
_TEMPLATE: Final = re.compile(r"test://template/([^/]+)/data\Z")
_PAGE: Final = types.PaginatedRequestParams


class Resources:
    """Those of the engine, and the suite's."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._engines = {method: server.get_request_handler(method) for method in _METHODS}

    def bind(self) -> None:
        add = self._server.add_request_handler
        add("resources/list", _PAGE, self._list)
        add("resources/templates/list", _PAGE, self._list_templates)
        add("resources/read", types.ReadResourceRequestParams, self._read)
        add("resources/subscribe", types.SubscribeRequestParams, _done)
        add("resources/unsubscribe", types.UnsubscribeRequestParams, _done)

    async def _engine(self, method: str, ctx: Context, params: Any) -> Any:
        entry = self._engines[method]
        assert entry is not None
        return await entry.handler(ctx, params)

    async def _list(self, ctx: Context, params: Any) -> types.ListResourcesResult:
        result: types.ListResourcesResult = await self._engine("resources/list", ctx, params)
        for uri in (TEXT, BINARY, WATCHED):
            name = uri.removeprefix("test://")
            result.resources.append(types.Resource(uri=uri, name=name, description=name))
        return result

    async def _list_templates(self, ctx: Context, params: Any) -> Any:
        result = await self._engine("resources/templates/list", ctx, params)
        template = types.ResourceTemplate(uri_template="test://template/{id}/data", name="template")
        result.resource_templates.append(template)
        return result

    async def _read(self, ctx: Context, params: types.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        if uri == BINARY:
            blob = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
            return types.ReadResourceResult(contents=[blob])
        if template := _TEMPLATE.match(uri):
            facts = {"id": template[1], "templateTest": True, "data": f"Data of {template[1]}"}
            return _text(uri, json.dumps(facts), "application/json")
        if uri in (TEXT, WATCHED):
            return _text(uri, "This is the content of the static text resource.", "text/plain")
        return await self._engine("resources/read", ctx, params)


_METHODS: Final = ("resources/list", "resources/templates/list", "resources/read")


def _text(uri: str, text: str, kind: str) -> types.ReadResourceResult:
    contents = types.TextResourceContents(uri=uri, mime_type=kind, text=text)
    return types.ReadResourceResult(contents=[contents])


async def _done(ctx: Context, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


class Prompts:
    _arguments: Final[dict[str, tuple[str, ...]]] = {
        "test_simple_prompt": (),
        "test_prompt_with_arguments": ("arg1", "arg2"),
        "test_prompt_with_embedded_resource": ("resourceUri",),
        "test_prompt_with_image": (),
        "test_input_required_result_prompt": (),
    }

    async def list_prompts(self, ctx: Context, params: Any) -> types.ListPromptsResult:
        prompts = [
            types.Prompt(
                name=name,
                description=name.replace("_", " "),
                arguments=[types.PromptArgument(name=each, required=True) for each in arguments],
            )
            for name, arguments in self._arguments.items()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> Any:
        given = params.arguments or {}
        if params.name not in self._arguments:
            raise MCPError(BAD_PARAMS, f"Unknown prompt: {params.name}")
        if params.name == "test_input_required_result_prompt":
            context = Given(ctx, params.input_responses or {}, None).content(
                "user_context", "context"
            )
            if context is None:
                question = form("In what context?", "context", "string")
                return types.InputRequiredResult(input_requests={"user_context": question})
            return _prompt(_said(f"In the context of {context}."))
        if params.name == "test_prompt_with_arguments":
            words = f"arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
            return _prompt(_said(f"Prompt with arguments: {words}"))
        if params.name == "test_prompt_with_embedded_resource":
            uri = given.get("resourceUri", TEXT)
            contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text="embedded")
            embedded = types.EmbeddedResource(type="resource", resource=contents)
            return _prompt(embedded, _said("Please process the embedded resource above."))
        if params.name == "test_prompt_with_image":
            image = types.ImageContent(type="image", data=PNG, mime_type="image/png")
            return _prompt(image, _said("Please look at the image above."))
        return _prompt(_said("This is a simple prompt for testing."))


def _said(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def _prompt(*contents: types.ContentBlock) -> types.GetPromptResult:
    messages = [types.PromptMessage(role="user", content=content) for content in contents]
    return types.GetPromptResult(messages=messages)


async def complete(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    """Nothing to complete, in the form that a completion has."""
    return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))
