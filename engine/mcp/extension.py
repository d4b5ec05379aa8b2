"""The Tasks extension: to a client that declares it, a promoted call is a task of its protocol.

The task's id is the engine's. Asking how it stands looks and receives nothing; the result of an
ended one is that of `wait`, which receives it. A job that failed is a `completed` call whose
result has `isError`: `failed` is for errors of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from engine.client.errors import ClientError, RpcError
from engine.mcp.callers import caller_of
from engine.mcp.context import Context, FindPeer, meta_of, result_of
from engine.mcp.refusals import words_of
from engine.mcp.tools import OUTPUT_BYTES

TASKS: Final = "io.modelcontextprotocol/tasks"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
MODERN: Final = "2026-07-28"
TTL_MS: Final = (
    7 * 86_400_000
)  # as long as the engine keeps an ended task, unless it is set otherwise
POLL_MS: Final = 1_000
NOT_DECLARED: Final = -32021
NAMES_DIFFER: Final = -32020
UNKNOWN: Final = -32602
BROKEN: Final = -32603

_STANDS: Final = {"queued": "working", "held": "input_required", "running": "working"}


class TaskParams(types.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = {}  # noqa: RUF012  # pydantic copies it


def has_tasks(ctx: Context) -> bool:
    """Whether this request declares the extension."""
    capabilities = meta_of(ctx).get(CAPABILITIES)
    if ctx.protocol_version < MODERN or not isinstance(capabilities, Mapping):
        return False
    extensions = capabilities.get("extensions")
    return isinstance(extensions, Mapping) and TASKS in extensions


def begun(result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a call that goes on, from the engine's reply about it."""
    now = datetime.now(UTC)
    started = datetime.fromtimestamp(
        now.timestamp() - result.get("elapsedMs", 0) / 1000, now.tzinfo
    )
    handle = result.get("taskId") or result["kickoffId"]
    return {
        "resultType": "task",
        **_task(handle, "working", _time(started), _time(now), result["hint"]),
    }


class TaskExtension:
    """`tasks/get`, `tasks/cancel` and `tasks/update`."""

    def __init__(self, find_peer: FindPeer) -> None:
        self._find_peer = find_peer

    def bind(self, server: Server[Any]) -> None:
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)
        server.add_request_handler("tasks/update", UpdateParams, self._update)

    async def _get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        row = await self._look(ctx, params)
        status = _STANDS.get(row["status"], "completed")
        status = "cancelled" if row["status"] == "cancelled" else status
        changed = row["endedAt"] or row["startedAt"] or row["createdAt"]
        words = f"{row['status']}" + f" ({row['queueReason']})" * bool(row["queueReason"])
        task = _task(params.task_id, status, row["createdAt"], changed, words)
        if status == "completed":
            task["result"] = await self._result(ctx, params, row)
        return {"resultType": "complete", **task}

    async def _cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        row = await self._look(ctx, params)
        handle = "taskId" if row["taskId"] else "kickoffId"
        await self._ask(ctx, "cancel", {handle: row[handle], "grace_secs": 5.0})
        return {"resultType": "complete"}

    async def _update(self, ctx: Context, params: UpdateParams) -> dict[str, Any]:
        """Nothing asks for input: answers that nobody waits for are ignored, as the spec has it."""
        await self._look(ctx, params)
        return {"resultType": "complete"}

    async def _result(
        self, ctx: Context, params: TaskParams, row: Mapping[str, Any]
    ) -> dict[str, Any]:
        how = {"timeout_secs": 0, "max_output_bytes": OUTPUT_BYTES}
        result = await self._ask(ctx, "wait", {"taskId": row["taskId"], **how})
        shown = result_of(ctx, "wait", result)
        shown.is_error = result["status"] != "succeeded"
        return shown.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def _look(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """The task's row. Raises MCPError where the request may not ask for it."""
        if not has_tasks(ctx):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(NOT_DECLARED, "Missing required client capability", needed)
        if ctx.request is not None:  # HTTP: the header for those who route by it has to agree
            named = ctx.request.headers.get("mcp-name", params.task_id)
            if named != params.task_id:
                raise MCPError(NAMES_DIFFER, "Mcp-Name does not match params.taskId")
        handle = "kickoffId" if params.task_id.startswith("k") else "taskId"
        return await self._ask(ctx, "read_task", {handle: params.task_id})

    async def _ask(self, ctx: Context, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a method. Raises MCPError."""
        peer = self._find_peer(ctx)
        caller = caller_of({}, meta_of(ctx), peer.name)
        try:
            result: dict[str, Any] = await peer.link.call(method, {"as": caller, **params})
        except RpcError as exc:
            is_unknown = exc.kind in ("unknown_handle", "expired_handle", "invalid_params")
            code = UNKNOWN if is_unknown else BROKEN
            raise MCPError(code, f"Unknown task: {exc}" if is_unknown else str(exc)) from exc
        except ClientError as exc:
            raise MCPError(BROKEN, words_of(method, exc)) from exc
        return result


def _task(id_: str, status: str, created: str, changed: str, words: str) -> dict[str, Any]:
    return {
        "taskId": id_,
        "status": status,
        "statusMessage": words,
        "createdAt": created,
        "lastUpdatedAt": changed,
        "ttlMs": TTL_MS,
        "pollIntervalMs": POLL_MS,
    }


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
