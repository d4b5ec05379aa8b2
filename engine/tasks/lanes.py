"""Lanes: named limits on how many jobs run at once, within the slots.

The limits are the settings', over them what `set_lane` has said since. A lane in which calls wait
and which the settings no longer have lets nothing start until it is there again.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from engine.errors import InvalidParams
from engine.store.ledger import Ledger, Setting

PREFIX: Final = "lane "  # of the names of their facts in the ledger


class _Said(msgspec.Struct, frozen=True):
    """A limit that `set_lane` gave. It counts while the settings say what they said then."""

    limit: int
    configured: int | None


class Lanes:
    """The limits, and how many run in each. None stands for no lane: there is always room."""

    def __init__(self, configured: dict[str, int], ledger: Ledger) -> None:
        self._configured, self._ledger = configured, ledger
        self.limits = dict(configured)
        self._running: Counter[str] = Counter()
        for name, text in ledger.settings().items():
            if name.startswith(PREFIX):
                lane, said = name.removeprefix(PREFIX), msgspec.json.decode(text, type=_Said)
                if said.configured == configured.get(lane):
                    self.limits[lane] = said.limit

    def check(self, lane: str | None) -> None:
        """Raise InvalidParams, with the lanes that there are, unless this is one."""
        if lane is None or lane in self.limits:
            return
        names = ", ".join(sorted(self.limits))
        known = f"one of the lanes {names}" if names else "nothing: this engine has no lanes"
        raise InvalidParams("$.lane", known)

    def is_open(self, lane: str | None) -> bool:
        """Whether one more may start in it."""
        return lane is None or self._running[lane] < self.limits.get(lane, 0)

    def take(self, lane: str | None) -> None:
        """One more runs in it: also where there is no room, for one that was begun before us."""
        if lane is not None:
            self._running[lane] += 1

    def give_back(self, lane: str | None) -> None:
        if lane is not None:
            self._running[lane] -= 1

    def running(self, lane: str) -> int:
        return self._running[lane]

    def reason(self, lane: str) -> str:
        """Why nothing starts in a lane that is not open."""
        limit = self.limits.get(lane)
        if limit is None:
            return f"there is no lane {lane} now"
        if limit == 0:
            return f"lane {lane} is closed"
        return f"lane {lane} is full ({self._running[lane]} of {limit})"

    async def set_limit(self, lane: str, limit: int) -> None:
        """Give a lane its limit, a new one too; what runs goes on. Raises StoreUnavailable."""
        said = _Said(limit, self._configured.get(lane))
        text = msgspec.json.encode(said).decode()
        await self._ledger.add(Setting(name=PREFIX + lane, value=text))
        self.limits[lane] = limit
