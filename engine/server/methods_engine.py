"""`hello`, `engine_info`, `rpc.discover`, `shutdown`: the engine itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from engine import PROTOCOL, VERSION
from engine.errors import InvalidState
from engine.model import now_ms, rfc3339
from engine.protocol.params import DiscoverParams, EngineInfoParams, HelloParams, ShutdownParams
from engine.server.degraded import degraded
from engine.server.dispatcher import Request
from engine.server.methods_queue import lanes_of
from engine.server.services import Services, caller_of
from engine.tasks.room import look


class EngineMethods:
    def __init__(self, services: Services, document: Callable[[], msgspec.Raw]) -> None:
        """`document`: of all methods, which the table of methods knows how to make."""
        self._services, self._document = services, document

    async def hello(self, request: Request, params: HelloParams) -> dict[str, Any]:
        """Once a connection: where the sessions and calls of its callers start."""
        if request.connection.hello is not None:
            raise InvalidState("this connection has said hello before", state="greeted")
        request.connection.hello = params
        return {
            "name": "engine",
            "version": VERSION,
            "protocol": PROTOCOL,
            "as": caller_of(request, params),
            "role": request.role,
        }

    async def engine_info(self, request: Request, params: EngineInfoParams) -> dict[str, Any]:
        services = self._services
        schedule, settings = services.supervisor.schedule, services.settings
        since = schedule.waiting_since
        own_names = {connection.name for connection in services.connections}
        return {
            "name": "engine",
            "version": VERSION,
            "protocol": PROTOCOL,
            "schemaFingerprint": services.fingerprint,
            "startedAt": rfc3339(services.started_at),
            "slots": schedule.slots,
            "running": len(schedule.running),
            "queued": len(schedule),
            "held": 0,
            "oldestQueuedMs": None if since is None else max(0, now_ms() - since),
            "lanes": lanes_of(services),
            "requestsPending": 0,
            "oldestRequestMs": None,
            "callers": len(services.catalog.busy_callers | own_names),
            "modeOwner": schedule.mode.owner,
            "latestSeq": services.index.latest_seq,
            "journalLines": services.index.line_count,
            "outputBytes": services.retention.output_bytes,
            "diskFreeBytes": look(services.catalog.home.tasks).free_bytes,
            "policy": "none",
            "limits": settings.limits,
            "degraded": degraded(services),
        }

    async def rpc_discover(self, request: Request, params: DiscoverParams) -> msgspec.Raw:
        """The wire in the words of OpenRPC."""
        return self._document()

    async def shutdown(self, request: Request, params: ShutdownParams) -> dict[str, Any]:
        """Begins the end once the reply is on its way."""
        request.finished = lambda _written: self._services.stop(params.mode)
        return {"mode": params.mode, "running": len(self._services.supervisor.schedule.running)}
