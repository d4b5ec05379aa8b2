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
        # One alone, as nearly all are, has no set around it: it would be bigger than the request.
        self._by_id: dict[object, Request | set[Request]] = {}
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
        same = self._by_id.setdefault(request.id, request)
        if isinstance(same, set):
            same.add(request)
        elif same is not request:
            self._by_id[request.id] = {same, request}
        self.size += request.size

    def discard(self, request: Request) -> None:
        if request not in self._all:
            return
        self._all.remove(request)
        same = self._by_id.get(request.id)
        if isinstance(same, set):
            same.discard(request)
        if not same or same is request:
            self._by_id.pop(request.id, None)
        self.size -= request.size
        if not self._all:
            self.idle.set()

    def take(self, request_id: RequestId) -> set[Request]:
        """Those with this id; they are not found by it again, and are in flight still."""
        same = self._by_id.pop(request_id, set())
        return same if isinstance(same, set) else {same}

    def __iter__(self) -> Iterator[Request]:
        return iter(self._all)
