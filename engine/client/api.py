"""The library on trio: `async with connect() as engine: result = await engine.bash("make")`.

`Engine` has every method of the wire as a coroutine, typed by its result, and `run`, which stays
with a job to its end. Errors: the classes of `engine.errors` for what the engine refuses, those of
`engine.client.errors` for what keeps it from answering. See `sync` for the same without trio.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar, Unpack

import trio

from engine.client import many, requests
from engine.client.concurrent import Client
from engine.client.cursors import HOLD, LOGS_HOLD, LogCursor, OutputCursor
from engine.client.errors import ClientError, ConnectionLost, RpcError
from engine.client.following import (
    LogOptions,
    Stream,
    head_of_journal,
    page_of_logs,
    page_of_output,
    skip_gone,
)
from engine.client.identity import greeting, name_of
from engine.client.inbox import InboxCursor, Known, News, Untold
from engine.client.places import Role, check_choice
from engine.client.refusals import as_error
from engine.client.requests import JobOptions
from engine.client.runs import About, Ask, Run, takers
from engine.client.schedule import PATIENCE
from engine.client.target import Target
from engine.client.transport import Background
from engine.client.typed import Request
from engine.protocol.parts import LogLine
from engine.protocol.results import Finished

P = ParamSpec("P")
T = TypeVar("T")

CANCEL_WAIT: Final = 20.0  # seconds in which a run that is cancelled cancels its job
GOODBYE_WAIT: Final = 1.0  # seconds for the engine to take our last words
ASKED: Final = 8  # answers of one run that are not looked at yet; it asks for five at most

OnCancel = Literal["keep", "cancel"]
OnOutput = Callable[[bytes], Awaitable[None] | None]


def _method(
    make: Callable[P, Request[T]],
) -> Callable[Concatenate[Engine, P], Awaitable[T]]:
    """The coroutine that makes the request and returns its result."""

    async def call(self: Engine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.ask(make(*args, **kwargs))

    functools.update_wrapper(call, make)
    return call


class Engine:
    """An engine, seen by one caller; a call may name another one by `as_`."""

    def __init__(self, client: Client, caller: str, more: Callable[[], Awaitable[Client]]) -> None:
        """`more`: opens another connection, which whoever asked for it closes."""
        self.caller = caller
        self._client, self._more = client, more
        self._untold = Untold()
        self._known: dict[str, Known] = {}  # of each caller, what `inbox` has handed out

    bash = _method(requests.bash)
    execute = _method(requests.execute)
    wait = _method(requests.wait)
    wait_any = _method(many.wait_any)
    run_round = _method(many.run_round)
    list_rounds = _method(many.list_rounds)
    read_round = _method(many.read_round)
    cancel = _method(requests.cancel)
    cancel_all = _method(requests.cancel_all)
    write_stdin = _method(requests.write_stdin)
    read_output = _method(requests.read_output)
    list_tasks = _method(requests.list_tasks)
    read_task = _method(requests.read_task)
    read_logs = _method(requests.read_logs)
    forget = _method(requests.forget)
    reset_session = _method(requests.reset_session)
    set_lane = _method(many.set_lane)
    set_mode = _method(many.set_mode)
    engine_info = _method(requests.engine_info)
    roster = _method(requests.roster)
    read_stats = _method(requests.read_stats)
    discover = _method(requests.discover)
    shutdown = _method(requests.shutdown)

    async def ask(self, request: Request[T]) -> T:
        """The result of any request. Cancelling ends the call, never the job.

        Raises what `concurrent.Client.call` does, but the class of `engine.errors` in place of an
        `RpcError` whose code has one.
        """
        try:
            return await self._ask(request)
        except RpcError as exc:
            raise as_error(exc) from exc

    async def _ask(self, request: Request[T]) -> T:
        given = request.as_caller(self.caller)
        caller = given.params["as"]
        self._untold.asks(caller)
        result = await _call(self._client, given)
        self._untold.answered(caller, result)
        self._acknowledge(caller)
        return result

    def _acknowledge(self, caller: str) -> None:
        for request in self._untold.due(caller):
            self._client.notify(request.method, request.params)

    async def _say_goodbye(self) -> None:
        """Acknowledge what the last calls brought, for who has had it and leaves in order."""
        with trio.move_on_after(GOODBYE_WAIT), suppress(ClientError):  # else it comes once more
            for request in self._untold.last_words():
                await _call(self._client, request)  # answered, it has surely been sent

    async def run(
        self,
        what: str | Sequence[str],
        *,
        on_output: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
        on_cancel: OnCancel = "keep",
        **options: Unpack[JobOptions],
    ) -> Finished:
        """Run bash text in a fresh shell, or an argument list, and wait for its end, however long.

        Over restarts of the engine and lost connections; the job runs once. `on_output` gets the
        bytes of the output as they come, exactly and in order; with `on_stderr` (or streams
        "split") those of stdout, and the other those of stderr. Either may be a coroutine, and
        sets the pace. Bytes that the engine's cap drops are left out; `dropped_bytes` of the
        result counts them. `on_cancel`: what becomes of the job when this call is cancelled.
        Raises as `ask`; an exception of `on_output` leaves the job running.
        """
        check_choice("on_cancel", on_cancel, OnCancel)
        deliver = takers(on_output, on_stderr, options)
        caller = options.get("as_") or self.caller
        run = Run(what, options, caller=caller, streams=tuple(deliver))
        try:
            return await self._follow(run, deliver)
        except RpcError as exc:
            raise as_error(exc) from exc
        except trio.Cancelled:
            if on_cancel == "cancel":
                await self._cancel(run)
            raise

    async def _follow(self, run: Run, deliver: dict[str, OnOutput]) -> Finished:
        answers, heard = trio.open_memory_channel[tuple[Ask, Any, ClientError | None]](ASKED)

        async def answer(ask: Ask) -> None:
            result, error = None, None
            try:
                result = await self._ask(ask.request)
            except ClientError as exc:
                error = exc
            await answers.send((ask, result, error))

        async with answers, heard, Background() as asking_nursery:
            asks = run.begin()
            while run.result is None or not run.is_done:
                for ask in asks:
                    asking_nursery.start_soon(answer, ask)
                asks = run.take(*await heard.receive())
                for piece in run.pieces():
                    taken = deliver[piece.stream](piece.data)
                    if inspect.isawaitable(taken):
                        await taken
            return run.result

    async def _cancel(self, run: Run) -> None:
        """Cancel the job of a run that nobody waits for any more. Raises where that failed."""
        with trio.move_on_after(CANCEL_WAIT, shield=True) as scope:
            try:
                if run.kickoff_id is None:  # the call may have been accepted
                    repeat = Ask(run.start(0.0), About.HANDLE)
                    run.take(repeat, await self._ask(repeat.request), None)
                if run.result is None:
                    await self._ask(run.cancel())
            except RpcError as exc:
                raise as_error(exc) from exc
        if scope.cancelled_caught:
            raise ConnectionLost(f"the job was not cancelled within {CANCEL_WAIT:g} s")

    # The inbox.

    async def inbox(
        self, *, follow: bool = False, as_: str | None = None
    ) -> AsyncGenerator[News, None]:
        """What the caller has not received: ends of its tasks and rounds, and what blocks them.

        Ends when nothing of the caller's is left to wait for; with `follow` never. Over restarts of
        the engine; each end once. What was handed out is acknowledged when the loop comes for more,
        over a connection of its own: what its body asks acknowledges nothing. Close it with
        `contextlib.aclosing`.
        """
        caller = as_ or self.caller
        cursor = InboxCursor(caller, self._known.setdefault(caller, {}))
        client = await self._more()
        try:
            with self._untold.reading(caller):
                self._acknowledge(caller)
                cursor.changed(await _call(client, cursor.changes()))
                while not cursor.is_empty or follow:
                    if cursor.is_empty:
                        cursor.changed(await _call(client, cursor.changes()))
                    for news in cursor.take(await _call(client, cursor.request())):
                        yield news
                        cursor.handed(news)
        except RpcError as exc:
            raise as_error(exc) from exc
        finally:
            await client.aclose()

    # Following.

    async def follow_output(
        self,
        task_id: str,
        *,
        stream: Stream = "output",
        offset: int = 0,
        as_: str | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of a task's output from `offset` on, as they come, until it has ended.

        Over restarts of the engine; each byte once. Close it with `contextlib.aclosing`.
        """
        cursor = OutputCursor(task_id, stream, offset=offset)
        while not cursor.is_done:
            request = page_of_output(cursor, as_, HOLD)
            try:
                page = await self._ask(request)
            except RpcError as exc:
                skip_gone(cursor, exc)
                continue
            data = cursor.take(page.base64 or b"", page, has_ended=False)
            if data:
                yield data

    async def follow_logs(
        self,
        *,
        after_seq: int | None = None,
        on_gap: Callable[[int], object] | None = None,
        **wanted: Unpack[LogOptions],
    ) -> AsyncGenerator[LogLine, None]:
        """Lines of the journal after `after_seq` (left out: from now on), as they come, for ever.

        Over restarts of the engine; each line once; nobody's read position moves. `on_gap` is
        told how many lines retention had dropped before they were read. Close it with
        `contextlib.aclosing`.
        """
        if after_seq is None:
            after_seq = (await self.ask(head_of_journal(wanted.get("as_")))).latest_seq
        cursor = LogCursor(after_seq)
        while True:
            page = await self.ask(page_of_logs(cursor, LOGS_HOLD, wanted))
            cursor.take(page.next_after_seq)
            if page.gap and on_gap is not None:
                on_gap(page.gap)
            for line in page.lines:
                yield line


async def _call(client: Client, request: Request[T]) -> T:
    """The result of a request that says who asks."""
    result = await client.call(
        request.method, request.params, budget=request.budget, resend=request.resend
    )
    return request.decode(result)


@asynccontextmanager
async def connect(
    home: str | os.PathLike[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    start: bool = True,
    *,
    as_: str | None = None,
    role: Role = "agent",
    hello: bool = True,
    reconnect: float = PATIENCE,
) -> AsyncIterator[Engine]:
    """An engine: that of `home` (ENGINE_HOME, the user's data folder), or at `url` (ENGINE_URL).

    `token`: in place of the one that the home has for `role`. `start`: start the engine of the
    home where none runs, also in place of one that vanished. `as_`: the caller (ENGINE_CALLER,
    else a name of its own). `hello`: callers start in this process's directory and environment.
    `reconnect`: seconds to try for a connection that was lost, while a call waits for it.
    Leaving the block ends what still waits, by `ClientClosed`; jobs go on.
    Raises `NotReachable`, `TokenUnreadable`, `CannotStart`; ValueError for another role.
    """
    target = Target(home, url, token, role=role)
    start_engine = target.start if start and target.is_local else None
    words = greeting("engine library", os.environ) if hello else None
    client = Client(target.find, hello=words, patience=reconnect, start=start_engine)
    async with Background() as client_nursery:

        async def more() -> Client:
            other = Client(target.find, patience=reconnect, start=start_engine)
            await other.connect(client_nursery)
            return other

        try:
            await client.connect(client_nursery)
        except RpcError as exc:
            raise as_error(exc) from exc
        engine = Engine(client, name_of(as_, os.environ), more)
        try:
            yield engine
            await engine._say_goodbye()
        finally:
            await client.aclose()
