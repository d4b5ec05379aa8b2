"""`hello`, `engine_info`, `rpc.discover`, `shutdown`: the engine itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from engine import PROTOCOL, VERSION
from engine.errors import InvalidState
from engine.model import now_ms, rfc3339
from engine.protocol.params import DiscoverParams, EngineInfoParams, HelloParams, ShutdownParams
from engine.server.dispatcher import Request
from engine.server.services import Services, caller_of


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
        supervisor, settings = services.supervisor, services.settings
        disk = os.statvfs(services.catalog.home.tasks)
        queued = [task.record.created_at for task in supervisor.waiting()]
        callers = {task.record.caller for task in services.catalog.unfinished()}
        return {
            "name": "engine",
            "version": VERSION,
            "protocol": PROTOCOL,
            "schemaFingerprint": services.fingerprint,
            "startedAt": rfc3339(services.started_at),
            "slots": supervisor.slots,
            "running": len(supervisor.running),
            "queued": len(queued),
            "held": 0,
            "oldestQueuedMs": max(0, now_ms() - min(queued)) if queued else None,
            "lanes": {},
            "requestsPending": 0,
            "oldestRequestMs": None,
            "callers": len(callers | {c.name for c in services.connections}),
            "modeOwner": None,
            "latestSeq": services.index.latest_seq,
            "journalLines": services.index.line_count,
            "outputBytes": services.index.output_bytes(),
            "diskFreeBytes": disk.f_bavail * disk.f_frsize,
            "policy": "none",
            "limits": {
                "inline_budget_secs": settings.inline_budget_secs,
                "output_cap_bytes": settings.output_cap_bytes,
                "queue_limit": settings.queue_limit,
                "min_free_bytes": settings.min_free_bytes,
                "max_connections": settings.max_connections,
                "max_waits": settings.max_waits,
                "max_inflight_bytes": settings.max_inflight_bytes,
            },
            "degraded": [
                f"{name} does not take writes: {trouble}"
                for name, trouble in (
                    ("index.db", services.index.trouble),
                    ("record.db", services.ledger.trouble),
                )
                if trouble is not None
            ],
        }

    async def rpc_discover(self, request: Request, params: DiscoverParams) -> msgspec.Raw:
        """The wire in the words of OpenRPC."""
        return self._document()

    async def shutdown(self, request: Request, params: ShutdownParams) -> dict[str, Any]:
        """Begins the end once the reply is on its way."""
        request.finished = lambda _written: self._services.stop(params.mode)
        return {"mode": params.mode, "running": len(self._services.supervisor.running)}
