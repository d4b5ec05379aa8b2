"""`set_lane` and `set_mode`: what may start, while the engine runs."""

from __future__ import annotations

from typing import Any

import structlog

from engine.model import rfc3339
from engine.protocol.params import SetLaneParams, SetModeParams
from engine.server.dispatcher import Request
from engine.server.services import Services, caller_of

log = structlog.get_logger()


class QueueMethods:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def set_lane(self, request: Request, params: SetLaneParams) -> dict[str, Any]:
        """Give a lane its limit, a new one too. What runs in it goes on."""
        supervisor, lane = self._services.supervisor, params.lane
        await supervisor.set_lane(lane, params.limit)
        log.info("lane_set", lane=lane, limit=params.limit, by=caller_of(request, params))
        return {"lane": lane, **lanes_of(self._services)[lane]}

    async def set_mode(self, request: Request, params: SetModeParams) -> dict[str, Any]:
        """Give the engine to the caller alone, or to everybody again. What runs goes on."""
        supervisor = self._services.supervisor
        ttl_secs = params.ttl_secs if params.mode == "exclusive" else None
        caller, is_human = caller_of(request, params), request.role == "human"
        await supervisor.set_mode(caller, ttl_secs, is_human=is_human)
        held = supervisor.schedule.mode.held
        return {
            "mode": "shared" if held is None else "exclusive",
            "modeOwner": None if held is None else held.owner,
            "expiresAt": None if held is None else rfc3339(held.until),
        }


def lanes_of(services: Services) -> dict[str, dict[str, int]]:
    """All lanes by name, those too that only calls which wait for them have by now."""
    schedule = services.supervisor.schedule
    lanes = schedule.lanes
    queued = schedule.waiting_by_lane()
    return {
        name: {
            "limit": lanes.limits.get(name, 0),
            "running": lanes.running(name),
            "queued": queued.get(name, 0),
        }
        for name in sorted(lanes.limits.keys() | queued.keys())
    }
