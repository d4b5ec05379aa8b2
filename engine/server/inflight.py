"""The requests of one connection that have no reply yet."""

from __future__ import annotations

from collections.abc import Iterator

import trio

from engine.protocol.envelope import RequestId
from engine.server.dispatcher import Request


class InFlight:
    """The requests, found by id.

    One id may be in flight twice: each is answered, and a cancel by id means both.
    """

    def __init__(self) -> None:
        self._by_id: dict[object, set[Request]] = {}
        self._all: set[Request] = set()
        self.size = 0  # bytes of their frames
        self.idle = trio.Event()
        self.idle.set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, request: Request) -> None:
        if not self._all:
            self.idle = trio.Event()
        self._all.add(request)
        self._by_id.setdefault(request.id, set()).add(request)
        self.size += request.size

    def discard(self, request: Request) -> None:
        if request not in self._all:
            return
        self._all.remove(request)
        same = self._by_id.get(request.id, set())
        same.discard(request)
        if not same:
            self._by_id.pop(request.id, None)
        self.size -= request.size
        if not self._all:
            self.idle.set()

    def take(self, request_id: RequestId) -> set[Request]:
        """Those with this id; they are not found by it again, and are in flight still."""
        return self._by_id.pop(request_id, set())

    def __iter__(self) -> Iterator[Request]:
        return iter(self._all)
