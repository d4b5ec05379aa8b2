"""The table of methods: name, handler, params, roles."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from engine import VERSION, errors
from engine.model import now_ms
from engine.protocol import params as p
from engine.protocol.openrpc import MethodFacts, make_body, make_document
from engine.server.delivering import add_notices
from engine.server.dispatcher import ALL_ROLES, Method, Request, Role
from engine.server.methods_engine import EngineMethods
from engine.server.methods_input import InputMethods
from engine.server.methods_logs import LogMethods
from engine.server.methods_many import ManyMethods
from engine.server.methods_queue import QueueMethods
from engine.server.methods_rounds import RoundMethods
from engine.server.methods_run import RunMethods
from engine.server.methods_stats import StatsMethods
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
    "wait_any": (p.WaitAnyParams, ALL_ROLES),
    "run_round": (p.RunRoundParams, _ACTING),
    "list_rounds": (p.ListRoundsParams, ALL_ROLES),
    "read_round": (p.ReadRoundParams, ALL_ROLES),
    "cancel": (p.CancelParams, _ACTING),
    "write_stdin": (p.WriteStdinParams, _ACTING),
    "read_output": (p.ReadOutputParams, ALL_ROLES),
    "list_tasks": (p.ListTasksParams, ALL_ROLES),
    "read_task": (p.ReadTaskParams, ALL_ROLES),
    "read_logs": (p.ReadLogsParams, ALL_ROLES),
    "forget": (p.ForgetParams, _ACTING),
    "reset_session": (p.ResetSessionParams, _ACTING),
    "set_lane": (p.SetLaneParams, _HUMAN),
    "set_mode": (p.SetModeParams, _ACTING),
    "engine_info": (p.EngineInfoParams, ALL_ROLES),
    "roster": (p.RosterParams, ALL_ROLES),
    "read_stats": (p.ReadStatsParams, ALL_ROLES),
    "rpc.discover": (p.DiscoverParams, ALL_ROLES),
    "shutdown": (p.ShutdownParams, _HUMAN),
}


# Method -> what it does, in a line of the wire's own document.
SUMMARIES: Final[dict[str, str]] = {
    "hello": "Once a connection: where the calls and new sessions of its callers start.",
    "bash": "Runs bash text in the caller's shell session, or in a fresh shell.",
    "execute": "Runs an argument list without a shell, or Python text in the caller's interpreter.",
    "wait": "Resumes a promoted call: its result, or how things stand when the time is spent.",
    "wait_any": "Waits for the first of many handles; without any for the caller's inbox.",
    "run_round": "Runs jobs side by side under one handle, or those of one again that failed.",
    "list_rounds": "Rounds, newest first.",
    "read_round": "A round and the rows of its seats, without touching anything.",
    "cancel": "Ends every process of a task, or of all tasks of a caller, and waits for that.",
    "write_stdin": "Feeds a job whose standard input is open.",
    "read_output": "A page of a task's output from any offset; with a time, waits for more.",
    "list_tasks": "Tasks, newest first; or those changed since, waiting for the first.",
    "read_task": "All about one task, without touching anything.",
    "read_logs": "Lines of the journal; with a time, waits for more.",
    "forget": "Drops an ended task and its files.",
    "reset_session": "Has the caller's next call start in a new session.",
    "set_lane": "Gives a lane its limit, also a new one; what runs in it goes on.",
    "set_mode": "Has only the caller's calls start, for a time; or everybody's again.",
    "engine_info": "The engine's numbers.",
    "roster": "The callers: their connections, and what they run.",
    "read_stats": "The last hour in samples of five seconds, and as a whole.",
    "rpc.discover": "This document.",
    "shutdown": "Begins the end of the engine.",
}

_ANY: Final = (
    errors.InvalidParams,
    errors.InternalError,
    errors.ShuttingDown,
    errors.Overloaded,
    errors.RequestCancelled,
    errors.Forbidden,
)
_OF_A_HANDLE: Final = (errors.UnknownHandle, errors.ExpiredHandle)
# Method -> the errors that it may answer with, besides those that any may.
ERRORS: Final[dict[str, tuple[type[errors.EngineError], ...]]] = {
    "hello": (errors.InvalidState,),
    # Handles: those in `after`, and the task that a key stands for.
    "bash": (*_OF_A_HANDLE, errors.DuplicateHandle, errors.KeyConflict),
    "execute": (*_OF_A_HANDLE, errors.DuplicateHandle, errors.KeyConflict),
    "wait": _OF_A_HANDLE,
    "wait_any": (*_OF_A_HANDLE, errors.DuplicateHandle),
    "run_round": (*_OF_A_HANDLE, errors.DuplicateHandle, errors.InvalidState),
    "read_round": _OF_A_HANDLE,
    "cancel": (*_OF_A_HANDLE, errors.InvalidState),
    "write_stdin": (*_OF_A_HANDLE, errors.InvalidState),
    "read_output": (*_OF_A_HANDLE, errors.OutputGone),
    "read_task": _OF_A_HANDLE,
    "read_logs": (errors.UnknownHandle,),  # the lines of one that has expired may be there
    "forget": (*_OF_A_HANDLE, errors.InvalidState),
    "set_mode": (errors.InvalidState,),
}


@functools.cache
def _wire() -> tuple[str, msgspec.Raw]:
    """The fingerprint and the document. Takes 20 ms."""
    facts = {
        name: MethodFacts(
            params=type_,
            roles=roles,
            errors=(*_ANY, *ERRORS.get(name, ())),
            summary=SUMMARIES[name],
        )
        for name, (type_, roles) in SCHEMAS.items()
    }
    body = make_body(facts)
    digest = hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()[:16]
    whole = make_document(body, version=VERSION, fingerprint=digest)
    return digest, msgspec.Raw(msgspec.json.encode(whole))


def fingerprint() -> str:
    """Changes whenever a method, a param, a result or a role does: 16 hexadecimal digits."""
    return _wire()[0]


def document() -> msgspec.Raw:
    """The wire in the words of OpenRPC, as JSON."""
    return _wire()[1]


def make_methods(services: Services) -> dict[str, Method]:
    """The dispatcher's table for these services."""
    groups = (
        EngineMethods(services, document),
        RunMethods(services),
        ManyMethods(services),
        RoundMethods(services),
        TaskMethods(services),
        LogMethods(services),
        QueueMethods(services),
        InputMethods(services),
        StatsMethods(services),
    )
    table = {}
    for name, (type_, roles) in SCHEMAS.items():
        word = name.replace(".", "_")
        (handler,) = [getattr(group, word) for group in groups if hasattr(group, word)]
        table[name] = Method(handler=_when_ready(services, handler), params=type_, roles=roles)
    return table


def _when_ready(services: Services, handler: Handler) -> Handler:
    """`handler`, for which a call that comes while tasks are recovered waits."""

    async def handle_when_ready(request: Request, params: Any) -> Any:
        if not services.ready.is_set():
            await services.ready.wait()
        caller = caller_of(request, params)
        services.logs.greet(caller, is_onlooker=request.is_onlooker)
        handle = getattr(params, "task_id", None) or getattr(params, "kickoff_id", None)
        with services.catalog.using(*([handle] if handle is not None else ())):
            if request.is_onlooker:
                return await handler(request, params)
            services.roster.saw(caller, request.connection, now_ms())
            services.inbox.next_request(request.connection, caller, request.deliveries)
            result = await handler(request, params)
        if isinstance(result, dict):
            add_notices(services, request, caller, result)
        return result

    return handle_when_ready
