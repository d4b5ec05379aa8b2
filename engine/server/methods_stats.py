"""`roster` and `read_stats`: who is there, and what was done in the last hour."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from engine.model import rfc3339
from engine.protocol.fields import to_ms
from engine.protocol.params import ReadStatsParams, RosterParams
from engine.server.dispatcher import Request
from engine.server.services import Services
from engine.server.stats import Tally

PAGE_CALLERS: Final = 500  # on a page of the roster; making it takes 2 ms
ENTRY_BYTES: Final = 320  # of one of them, at most
FRAME_BYTES: Final = 2_048  # of a page of samples, for what stands round them
_NOTHING: Final = Tally()


class StatsMethods:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def roster(self, request: Request, params: RosterParams) -> dict[str, Any]:
        """The callers by name: all who were seen, have tasks, or had one that ended lately."""
        services = self._services
        running = Counter(task.record.caller for task in services.supervisor.schedule.running)
        queued = Counter(task.record.caller for task in services.supervisor.schedule.waiting())
        names = {*services.roster.names(), *running, *queued, *services.stats.by_caller}
        rest = sorted(name for name in names if params.after is None or name > params.after)
        limit = min(PAGE_CALLERS, max(1, request.page_bytes // ENTRY_BYTES))
        page = [self._entry(name, running[name], queued[name]) for name in rest[:limit]]
        return {"callers": page, "hasMore": len(rest) > limit}

    def _entry(self, name: str, running: int, queued: int) -> dict[str, Any]:
        roster = self._services.roster
        tally = self._services.stats.by_caller.get(name, _NOTHING)
        seen = roster.last_seen(name)
        return {
            "name": name,
            "connections": roster.connections(name),
            "running": running,
            "queued": queued,
            "endedLastHour": tally.ended,
            "failedLastHour": tally.failed,
            "lastSeen": None if seen is None else rfc3339(seen),
        }

    async def read_stats(self, request: Request, params: ReadStatsParams) -> dict[str, Any]:
        """The samples that were over after `since`, oldest first, and the whole hour."""
        stats = self._services.stats
        hour = await stats.hour()
        since = 0 if params.since is None else to_ms("$.since", params.since)
        samples, has_more = stats.samples(since, request.page_bytes - FRAME_BYTES)
        return {"samples": samples, "hasMore": has_more, "lastHour": hour}
