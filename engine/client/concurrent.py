"""The client on trio: any number of calls at a time over one connection, made again when lost.

What a loss means to a call is the business of `calls`; how many there may be, that of `room`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import trio
from trio_websocket import WebSocketConnection

from engine.client.calls import REPLY_WAIT, Calls, Ticket, spent, ungreeted
from engine.client.errors import (
    CannotStart,
    ClientClosed,
    ClientError,
    ConnectionLost,
    NotReachable,
    ProtocolFailure,
    RpcError,
    TokenRefused,
)
from engine.client.places import Place
from engine.client.room import Room
from engine.client.schedule import PATIENCE, Schedule
from engine.client.transport import Background, open_websocket, receive, send
from engine.client.wire import Answer, Params

LEAVE_WAIT: Final = 1.0  # seconds for the connection to end in order


class _Waiter:
    """One who waits for an answer."""

    __slots__ = ("answer", "error", "woken")

    def __init__(self) -> None:
        self.woken = trio.Event()
        self.answer: Answer | None = None
        self.error: ClientError | None = None

    def fail(self, error: ClientError) -> None:
        self.error = error
        self.woken.set()


class Client:
    """Calls to the engine at `find()`, which is asked again at each attempt to connect."""

    def __init__(
        self,
        find: Callable[[], Place],
        *,
        hello: Params | None = None,
        patience: float = PATIENCE,
        start: Callable[[], object] | None = None,
    ) -> None:
        """`start`: starts an engine where none is (it blocks, and is called in a thread), also
        in place of one that vanished without a goodbye and that nobody else has replaced."""
        self._find = find
        self._patience = patience
        self._start = start
        self._calls = Calls(hello, patience)
        self._waiters: dict[int, _Waiter] = {}
        self._room = Room()
        self._has_news = trio.Event()  # something to send, or a call while there is no connection
        self._reading = trio.CancelScope()
        self._stall: ConnectionLost | None = None  # why nothing more can be sent
        self._is_closed = False
        self._has_left = trio.Event()

    async def connect(self, nursery: trio.Nursery) -> None:
        """Make the first connection; what keeps it up runs as a child of `nursery`.

        Raises `NotReachable`, `TokenUnreadable`, `CannotStart`, `RpcError` (of hello).
        """
        await nursery.start(self._serve)

    async def aclose(self) -> None:
        """End the connection; whoever waits for an answer is told by `ClientClosed`."""
        self._is_closed = True
        for ticket in self._calls.give_up():
            self._fail(ticket, ClientClosed(f"closed before {ticket.method} was answered"))
        self._reading.cancel()
        self._wake()
        with trio.move_on_after(LEAVE_WAIT, shield=True):
            await self._has_left.wait()

    async def call(
        self, method: str, params: Params, *, budget: float = 0.0, resend: bool = True
    ) -> Any:
        """The result of one call. Cancelling tells the engine that nobody waits for it.

        Raises `RpcError` with the engine's error; `NotReachable` when the patience after a loss
        is spent; `ConnectionLost` where the call must not be sent twice; `ClientClosed`.
        """
        ticket = self._calls.make(method, params, budget=budget, resend=resend)
        size = len(ticket.text)
        await self._room.enter(size)
        try:
            return await self._answer(ticket)
        finally:
            self._room.leave(size)

    def notify(self, method: str, params: Params) -> None:
        """Have sent what nobody answers, if there is a connection. Raises `Unsendable`."""
        self._calls.notify(method, params)
        self._wake()

    async def _answer(self, ticket: Ticket) -> Any:
        if self._is_closed:
            raise ClientClosed(f"closed before {ticket.method} was sent")
        waiter = self._waiters[ticket.id] = _Waiter()
        self._calls.submit(ticket, trio.current_time())
        self._wake()
        try:
            await waiter.woken.wait()
        finally:
            del self._waiters[ticket.id]
            self._calls.withdraw(ticket)  # does nothing to one that is answered
            self._wake()
        if waiter.error is not None:
            raise waiter.error
        assert waiter.answer is not None
        if waiter.answer.error is not None:
            raise waiter.answer.error
        return waiter.answer.result

    def _wake(self) -> None:
        """There may be something to send, or an answer to be awaited for a shorter time."""
        self._has_news.set()
        self._reading.deadline = self._due()

    def _due(self) -> float:
        due = self._calls.due
        return float("inf") if due is None else due

    def _fail(self, ticket: Ticket, error: ClientError) -> None:
        waiter = self._waiters.get(ticket.id)
        if waiter is not None:
            waiter.fail(error)

    # The connection.

    async def _serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Keep up a connection for as long as there are calls for it."""
        try:
            await self._begin(task_status.started)
            while await self._wait_attempt():
                try:
                    await self._attempt()
                except (NotReachable, CannotStart) as exc:
                    self._count_failure(exc)
                except ClientError as exc:
                    self._give_up(exc)  # to ask again will not help
        finally:
            self._has_left.set()

    async def _begin(self, tell: Callable[[], None]) -> None:
        """Make the first connection, to an engine that is started where none is, and hold it."""
        try:
            await self._hold(tell)
        except NotReachable as exc:
            if self._start is None or not exc.absent:
                raise
        else:
            return
        schedule = Schedule(trio.current_time(), self._patience)
        while True:
            await trio.to_thread.run_sync(self._start, abandon_on_cancel=True)
            try:
                await self._hold(tell)
            except NotReachable as exc:
                if not exc.absent or not schedule.failed(trio.current_time()):
                    raise
                # Another engine has the home and is not listening yet, or is on its way out.
                await trio.sleep_until(schedule.due)
            else:
                return

    async def _attempt(self) -> None:
        """Connect again, if need be to an engine that is started for it, and hold that."""
        try:
            await self._hold(self._found)
        except NotReachable as exc:
            if self._start is None or not self._calls.may_revive(absent=exc.absent):
                raise
        else:
            return
        await trio.to_thread.run_sync(self._start, abandon_on_cancel=True)
        await self._hold(self._found)

    def _found(self) -> None:
        self._calls.found(trio.current_time())

    async def _hold(self, tell: Callable[[], None]) -> None:
        """Connect, `tell` it, and converse until that is over. Raises where none came about."""
        place = self._find()
        async with open_websocket(place) as websocket:
            now = trio.current_time()
            for ticket, error in self._calls.connected(now, place.pid):
                self._fail(ticket, error)
            await self._greet(websocket)
            tell()
            self._stall = None
            try:
                async with Background() as writing_nursery:
                    writing_nursery.start_soon(self._write, websocket)
                    await self._read(websocket)
            except ConnectionLost as exc:
                self._lose(exc)

    async def _greet(self, websocket: WebSocketConnection) -> None:
        """Say hello and await its answer."""
        try:
            with trio.fail_after(REPLY_WAIT):
                while not self._calls.has_greeted:
                    while (text := self._calls.next_text(trio.current_time())) is not None:
                        await send(websocket, text)
                    if not self._calls.has_greeted:
                        self._calls.take(await receive(websocket))
        except (ConnectionLost, ProtocolFailure) as exc:
            self._calls.disconnected()
            raise ungreeted(exc) from exc
        except trio.TooSlowError:
            self._calls.disconnected()
            raise NotReachable("not reachable (no answer)") from None
        except RpcError:
            self._calls.disconnected()
            raise

    async def _write(self, websocket: WebSocketConnection) -> None:
        """Send what there is to send; the reader is told of the end of it all."""
        while True:
            text = self._calls.next_text(trio.current_time())
            if text is None:
                self._has_news = trio.Event()
                await self._has_news.wait()
                continue
            try:
                await send(websocket, text)
            except ConnectionLost as exc:
                self._stall = exc
                self._reading.cancel()
                return

    async def _read(self, websocket: WebSocketConnection) -> None:
        """Hand out the answers; returns when the client is closed. Raises `ConnectionLost`."""
        while not self._is_closed:
            with trio.CancelScope(deadline=self._due()) as self._reading:
                self._take(await receive(websocket))
            if self._stall is not None:
                raise self._stall
            if not self._is_closed and trio.current_time() >= self._due():
                raise ConnectionLost("no answer")

    def _take(self, text: str) -> None:
        try:
            got = self._calls.take(text)
        except (RpcError, ProtocolFailure) as exc:  # it did not understand us, or we it
            raise ConnectionLost(str(exc)) from exc
        if got is None:
            return
        waiter = self._waiters.get(got[0].id)
        if waiter is not None:
            waiter.answer = got[1]
            waiter.woken.set()

    def _lose(self, loss: ConnectionLost) -> None:
        now = trio.current_time()
        for ticket, error in self._calls.lost(now, is_goodbye=loss.is_goodbye):
            self._fail(ticket, error)
        self._calls.miss(now)

    async def _wait_attempt(self) -> bool:
        """Wait until it is time to connect: somebody needs it, and it is due. False: closed."""
        while not self._is_closed:
            if not self._calls.has_open:
                self._calls.rest()
            elif self._calls.schedule is None:
                self._calls.miss(trio.current_time(), first=0.0)
            schedule = self._calls.schedule
            if schedule is not None and trio.current_time() >= schedule.due:
                return True
            self._has_news = trio.Event()
            with trio.move_on_at(float("inf") if schedule is None else schedule.due):
                await self._has_news.wait()
        return False

    def _count_failure(self, error: NotReachable | CannotStart) -> None:
        if isinstance(error, TokenRefused):
            self._give_up(error)
        elif not self._calls.attempt_failed(trio.current_time()):
            self._give_up(spent(error, self._patience, "reconnect"))

    def _give_up(self, error: ClientError) -> None:
        """Nobody waits any more; the next call tries anew."""
        for ticket in self._calls.give_up():
            self._fail(ticket, error)
        self._calls.rest()
