"""Who has called: when last, and over how many connections. What their tasks do is the tasks'."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.server.connection import Connection

MOST_CALLERS: Final = 10_000  # known by their calls; then the one seen longest ago is forgotten


class Roster:
    """Callers by name. One that is named is remembered for a while after its connections end, one
    that was a connection goes with it.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}  # ms; the one seen last is the last
        self._connections: dict[str, set[Connection]] = {}
        self._callers: dict[Connection, set[str]] = {}

    def saw(self, caller: str, connection: Connection, now: int) -> None:
        """A call of `caller` came over `connection`."""
        self._seen.pop(caller, None)
        self._seen[caller] = now
        connections = self._connections.get(caller)
        if connections is None:
            connections = self._connections[caller] = set()
        if connection not in connections:
            connections.add(connection)
            self._callers.setdefault(connection, set()).add(caller)
        self._keep_few()

    def _keep_few(self) -> None:
        if len(self._seen) <= MOST_CALLERS:
            return
        caller = next(iter(self._seen))
        del self._seen[caller]
        for connection in self._connections.pop(caller, ()):
            self._callers[connection].discard(caller)

    def recall(self, caller: str, at: int) -> None:
        """An engine before this one had a call of `caller` at that time, or a later one."""
        self._seen[caller] = max(at, self._seen.get(caller, at))
        self._keep_few()

    def closed(self, connection: Connection) -> None:
        for caller in self._callers.pop(connection, ()):
            connections = self._connections[caller]
            connections.discard(connection)
            if not connections:
                del self._connections[caller]
        self._seen.pop(connection.name, None)

    def drop_older(self, than: int) -> None:
        """Forget those who have no connection and were not seen since."""
        for caller in [name for name, at in self._seen.items() if at < than]:
            if caller not in self._connections:
                del self._seen[caller]

    def names(self) -> Iterable[str]:
        return self._seen

    def last_seen(self, caller: str) -> int | None:
        return self._seen.get(caller)

    def connections(self, caller: str) -> int:
        return len(self._connections.get(caller, ()))
