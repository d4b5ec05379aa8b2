"""The table of methods: name, handler, params, roles."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from engine.protocol import params as p
from engine.server.dispatcher import ALL_ROLES, Method, Request, Role
from engine.server.methods_engine import EngineMethods
from engine.server.methods_input import InputMethods
from engine.server.methods_logs import LogMethods
from engine.server.methods_run import RunMethods
from engine.server.methods_tasks import TaskMethods
from engine.server.services import Services, caller_of

Handler = Callable[[Request, Any], Awaitable[Any]]

_ACTING: Final[frozenset[Role]] = frozenset({"agent", "human"})
_HUMAN: Final[frozenset[Role]] = frozenset({"human"})

# Method -> its params and who may call it. An observer reads and waits.
SCHEMAS: Final[dict[str, tuple[type[p.Params], frozenset[Role]]]] = {
    "hello": (p.HelloParams, ALL_ROLES),
    "bash": (p.BashParams, _ACTING),
    "execute": (p.ExecuteParams, _ACTING),
    "wait": (p.WaitParams, ALL_ROLES),
    "cancel": (p.CancelParams, _ACTING),
    "write_stdin": (p.WriteStdinParams, _ACTING),
    "read_output": (p.ReadOutputParams, ALL_ROLES),
    "list_tasks": (p.ListTasksParams, ALL_ROLES),
    "read_task": (p.ReadTaskParams, ALL_ROLES),
    "read_logs": (p.ReadLogsParams, ALL_ROLES),
    "forget": (p.ForgetParams, _ACTING),
    "reset_session": (p.ResetSessionParams, _ACTING),
    "engine_info": (p.EngineInfoParams, ALL_ROLES),
    "shutdown": (p.ShutdownParams, _HUMAN),
}


def fingerprint() -> str:
    """Changes whenever a method or a param does: 16 hexadecimal digits."""
    schemas, components = msgspec.json.schema_components([type_ for type_, _ in SCHEMAS.values()])
    named = dict(zip(SCHEMAS, schemas, strict=True))
    text = msgspec.json.encode([named, components], order="sorted")
    return hashlib.sha256(text).hexdigest()[:16]


def make_methods(services: Services) -> dict[str, Method]:
    """The dispatcher's table for these services."""
    groups = (
        EngineMethods(services),
        RunMethods(services),
        TaskMethods(services),
        LogMethods(services),
        InputMethods(services),
    )
    table = {}
    for name, (type_, roles) in SCHEMAS.items():
        (handler,) = [getattr(group, name) for group in groups if hasattr(group, name)]
        table[name] = Method(handler=_when_ready(services, handler), params=type_, roles=roles)
    return table


def _when_ready(services: Services, handler: Handler) -> Handler:
    """`handler`, for which a call that comes while tasks are recovered waits."""

    async def handle(request: Request, params: Any) -> Any:
        if not services.ready.is_set():
            await services.ready.wait()
        services.logs.greet(caller_of(request, params), is_onlooker=request.role == "observer")
        return await handler(request, params)

    return handle
