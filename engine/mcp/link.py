"""The way of one MCP connection to the engine: its calls, over RPC, as any client has it.

One connection to the engine's socket. A call that is cancelled here is cancelled there, and has
received nothing: where its answer had been written by then, an end in it counts as told only if
another request follows on the same connection. None does: what comes next opens a new one, and
the old one closes when its other calls are answered, so that the engine tells the end again.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, Final

import trio
from trio_websocket import WebSocketConnection

from engine.client.errors import ClientError, ConnectionLost, NotReachable, ProtocolFailure
from engine.client.places import Place
from engine.client.transport import open_websocket, receive, send
from engine.client.wire import Answer, Params, decode_answer, encode_call, encode_cancel

# Methods whose answers may carry ends.
TELLING: Final = frozenset({"bash", "execute", "wait", "wait_any"})


class _Waiter:
    """A call that is not answered yet. `is_withdrawn`: nobody waits for it any more."""

    __slots__ = ("answer", "answered", "caller", "is_withdrawn", "method")

    def __init__(self, method: str, caller: str) -> None:
        self.method, self.caller = method, caller
        self.answered = trio.Event()
        self.answer: Answer | None = None  # None though answered: the connection is gone
        self.is_withdrawn = False


class _Wire:
    """One connection: `serve` keeps it until it is lost or, once it is `retired`, idle."""

    def __init__(self) -> None:
        self.is_lost = False
        self.is_retired = False  # nothing more is asked over it
        self._ids = itertools.count(1)
        self._waiters: dict[int, _Waiter] = {}
        self._outbox: deque[str] = deque()
        self._news = trio.Event()
        self._scope = trio.CancelScope()

    @property
    def is_usable(self) -> bool:
        return not self.is_lost and not self.is_retired

    async def serve(
        self, place: Place, hello: Params, *, task_status: trio.TaskStatus[ClientError | None]
    ) -> None:
        """Connect, say hello, and converse. Starts with the reason where that did not come about.

        A reason and no exception: this is a child of a nursery that others share.
        """
        error: ClientError | None = NotReachable("the engine closed the connection at once")
        try:
            async with open_websocket(place) as websocket:
                with self._scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._write, websocket)
                        nursery.start_soon(self._read, websocket)
                        error = await self._greet(hello)
                        if error is None:
                            task_status.started(None)
                            await trio.sleep_forever()
                        nursery.cancel_scope.cancel()
        except ClientError as exc:
            error = exc
        finally:
            self.is_lost = True
            for waiter in self._waiters.values():
                waiter.answered.set()
            self._waiters.clear()
        if error is not None:
            task_status.started(error)

    async def _greet(self, hello: Params) -> ClientError | None:
        try:
            await self.call("hello", hello, "")
        except ClientError as exc:
            return exc
        return None

    async def call(self, method: str, params: Params, caller: str) -> Any:
        """The result. Raises `RpcError`, `ConnectionLost`, `Unsendable`."""
        id_, waiter = next(self._ids), _Waiter(method, caller)
        self._put(encode_call(id_, method, params))
        self._waiters[id_] = waiter
        try:
            await waiter.answered.wait()
        except trio.Cancelled:
            waiter.is_withdrawn = True
            self._put(encode_cancel(id_))
            raise
        if waiter.answer is None:
            raise ConnectionLost(f"the engine went away before {method} was answered")
        if waiter.answer.error is not None:
            raise waiter.answer.error
        return waiter.answer.result

    def withdrawn(self, caller: str) -> _Waiter | None:
        """A call of this caller that nobody waits for and that is not answered yet."""
        for waiter in self._waiters.values():
            if waiter.is_withdrawn and waiter.caller == caller:
                return waiter
        return None

    def retire(self) -> None:
        """Ask nothing more, and end once all is answered."""
        self.is_retired = True
        if not self._waiters:
            self._scope.cancel()

    def _put(self, text: str) -> None:
        self._outbox.append(text)
        self._news.set()

    async def _write(self, websocket: WebSocketConnection) -> None:
        try:
            while True:
                while self._outbox:
                    await send(websocket, self._outbox.popleft())
                self._news = trio.Event()
                await self._news.wait()
        except ConnectionLost:  # the engine takes nothing
            self._scope.cancel()

    async def _read(self, websocket: WebSocketConnection) -> None:
        try:
            while True:
                self._take(decode_answer(await receive(websocket)))
        except (ConnectionLost, ProtocolFailure):
            self._scope.cancel()

    def _take(self, answer: Answer) -> None:
        waiter = self._waiters.pop(answer.id, None)
        if waiter is None:
            return
        if waiter.is_withdrawn and answer.error is None and waiter.method in TELLING:
            self.is_retired = True
        waiter.answer = answer
        waiter.answered.set()
        if self.is_retired and not self._waiters:
            self._scope.cancel()


class Link:
    """Calls to the engine, over a connection that is opened when it is needed."""

    def __init__(self, place: Place, hello: Params, nursery: trio.Nursery) -> None:
        self._place, self._hello, self._nursery = place, hello, nursery
        self._wire: _Wire | None = None
        self._opening = trio.Lock()
        self.calls = 0  # in flight
        self.last_used = trio.current_time()

    async def open(self) -> None:
        """Connect now, where there is no connection. Raises `NotReachable`, `RpcError`."""
        await self._usable()

    async def call(self, method: str, params: Params) -> Any:
        """The result of a call, whose params name the caller. Cancelling receives nothing.

        Raises `RpcError`, `ConnectionLost`, `NotReachable`, `Unsendable`.
        """
        caller = str(params["as"])
        self.calls += 1
        try:
            wire = await self._usable()
            while (before := wire.withdrawn(caller)) is not None:
                await before.answered.wait()  # its answer says whether the connection can be used
                wire = await self._usable()
            return await wire.call(method, params, caller)
        finally:
            self.calls -= 1
            self.last_used = trio.current_time()

    def close(self) -> None:
        """End the connection, once what is in flight is answered."""
        if self._wire is not None:
            self._wire.retire()

    async def _usable(self) -> _Wire:
        async with self._opening:
            if self._wire is None or not self._wire.is_usable:
                self._wire = _Wire()
                error = await self._nursery.start(self._wire.serve, self._place, self._hello)
                if error is not None:
                    raise error
            return self._wire
