"""The library without trio: `with connect() as engine: result = engine.bash("make")`.

The same as `api`, one call at a time: a thread waits for the call that another has under way.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from engine.client import many, requests
from engine.client.blocking import Client, Ticket
from engine.client.cursors import HOLD, LOGS_HOLD, LogCursor, OutputCursor
from engine.client.errors import RpcError
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
from engine.client.places import Role
from engine.client.refusals import as_error
from engine.client.requests import JobOptions
from engine.client.runs import Ask, Run, takers
from engine.client.schedule import PATIENCE
from engine.client.target import Target
from engine.client.typed import Request
from engine.client.wire import Params
from engine.protocol.parts import LogLine
from engine.protocol.results import Finished, TaskPage

P = ParamSpec("P")
T = TypeVar("T")

OnOutput = Callable[[bytes], object]


def _method(make: Callable[P, Request[T]]) -> Callable[Concatenate[Engine, P], T]:
    """The method that makes the request and returns its result."""

    def call(self: Engine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.ask(make(*args, **kwargs))

    functools.update_wrapper(call, make)
    return call


class Engine:
    """An engine, seen by one caller; a call may name another one by `as_`."""

    def __init__(self, client: Client, caller: str, more: Callable[[], Client]) -> None:
        """`more`: opens another connection, which whoever asked for it closes."""
        self.caller = caller
        self._client, self._more = client, more
        self._untold = Untold()
        self._known: dict[str, Known] = {}  # of each caller, what `inbox` has handed out
        self._turn = threading.RLock()  # held by the thread whose call is under way

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

    def ask(self, request: Request[T]) -> T:
        """The result of any request.

        Raises what `blocking.Client.call` does, but the class of `engine.errors` in place of an
        `RpcError` whose code has one.
        """
        try:
            return self._ask(request)
        except RpcError as exc:
            raise as_error(exc) from exc

    def _ask(self, request: Request[T]) -> T:
        given = request.as_caller(self.caller)
        caller = given.params["as"]
        with self._turn:
            self._untold.asks(caller)
            result = _call(self._client, given)
            self._untold.answered(caller, result)
            self._acknowledge(self._untold.due(caller))
        return result

    def _acknowledge(self, words: list[Request[TaskPage]]) -> None:
        for request in words:
            self._client.notify(request.method, request.params)

    def _say_goodbye(self) -> None:
        """Acknowledge what the last calls brought, for who has had it and leaves in order."""
        with self._turn:
            self._acknowledge(self._untold.last_words())

    def run(
        self,
        what: str | Sequence[str],
        *,
        on_output: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
        **options: Unpack[JobOptions],
    ) -> Finished:
        """Run bash text in a fresh shell, or an argument list, and wait for its end, however long.

        As `api.Engine.run`. An exception, also KeyboardInterrupt, leaves the job running.
        Raises TypeError for a coroutine function: nobody would await it.
        """
        _refuse_async(on_output, on_stderr)
        deliver = takers(on_output, on_stderr, options)
        caller = options.get("as_") or self.caller
        run = Run(what, options, caller=caller, streams=tuple(deliver))
        asked: dict[int, tuple[Ticket, Ask]] = {}
        with self._turn:
            try:
                return self._follow(run, deliver, asked)
            except RpcError as exc:
                raise as_error(exc) from exc
            finally:
                for ticket, _ in asked.values():
                    self._client.withdraw(ticket)

    def _follow(
        self, run: Run, deliver: dict[str, OnOutput], asked: dict[int, tuple[Ticket, Ask]]
    ) -> Finished:
        asks = run.begin()
        while run.result is None or not run.is_done:
            for ask in asks:
                request = ask.request
                self._untold.asks(request.params["as"])
                ticket = self._client.submit(
                    request.method, request.params, budget=request.budget, resend=request.resend
                )
                asked[ticket.id] = (ticket, ask)
            got = self._client.next_answer(None)
            assert got is not None
            _, ask = asked.pop(got[0].id)
            error = got[1].error
            result: Any = ask.request.decode(got[1].result) if error is None else None
            self._untold.answered(ask.request.params["as"], result)
            asks = run.take(ask, result, error)
            for piece in run.pieces():
                deliver[piece.stream](piece.data)
        return run.result

    # The inbox.

    def inbox(self, *, follow: bool = False, as_: str | None = None) -> Iterator[News]:
        """What the caller has not received, as `api.Engine.inbox` has it."""
        caller = as_ or self.caller
        cursor = InboxCursor(caller, self._known.setdefault(caller, {}))
        client = self._more()
        try:
            with self._untold.reading(caller):
                with self._turn:
                    self._acknowledge(self._untold.due(caller))
                cursor.changed(_call(client, cursor.changes()))
                while not cursor.is_empty or follow:
                    if cursor.is_empty:
                        cursor.changed(_call(client, cursor.changes()))
                    for news in cursor.take(_call(client, cursor.request())):
                        yield news
                        cursor.handed(news)
        except RpcError as exc:
            raise as_error(exc) from exc
        finally:
            client.close()

    # Following.

    def follow_output(
        self, task_id: str, *, stream: Stream = "output", offset: int = 0, as_: str | None = None
    ) -> Iterator[bytes]:
        """The bytes of a task's output from `offset` on, as they come, until it has ended.

        Over restarts of the engine; each byte once.
        """
        cursor = OutputCursor(task_id, stream, offset=offset)
        while not cursor.is_done:
            try:
                page = self._ask(page_of_output(cursor, as_, HOLD))
            except RpcError as exc:
                skip_gone(cursor, exc)
                continue
            data = cursor.take(page.base64 or b"", page, has_ended=False)
            if data:
                yield data

    def follow_logs(
        self,
        *,
        after_seq: int | None = None,
        on_gap: Callable[[int], object] | None = None,
        **wanted: Unpack[LogOptions],
    ) -> Iterator[LogLine]:
        """Lines of the journal after `after_seq` (left out: from now on), as they come, for ever.

        Over restarts of the engine; each line once; nobody's read position moves. `on_gap` is
        told how many lines retention had dropped before they were read.
        """
        if after_seq is None:
            after_seq = self.ask(head_of_journal(wanted.get("as_"))).latest_seq
        cursor = LogCursor(after_seq)
        while True:
            page = self.ask(page_of_logs(cursor, LOGS_HOLD, wanted))
            cursor.take(page.next_after_seq)
            if page.gap and on_gap is not None:
                on_gap(page.gap)
            yield from page.lines

    def close(self) -> None:
        """End the connection, after the call that another thread has under way."""
        with self._turn:
            self._client.close()


def _refuse_async(*takers: OnOutput | None) -> None:
    for taker in takers:
        if inspect.iscoroutinefunction(taker) or inspect.iscoroutinefunction(
            getattr(taker, "__call__", None)  # noqa: B004  # of an object that can be called
        ):
            raise TypeError(f"{taker!r} is a coroutine function; those are for engine.client")


def _call(client: Client, request: Request[T]) -> T:
    """The result of a request that says who asks."""
    result = client.call(
        request.method, request.params, budget=request.budget, resend=request.resend
    )
    return request.decode(result)


@contextmanager
def connect(
    home: str | os.PathLike[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    start: bool = True,
    *,
    as_: str | None = None,
    role: Role = "agent",
    hello: bool = True,
    reconnect: float = PATIENCE,
) -> Iterator[Engine]:
    """An engine, as `api.connect` has it."""
    target = Target(home, url, token, role=role)
    may_start = start and target.is_local

    def opened(words: Params | None = None) -> Client:
        client = Client(
            target.find,
            hello=words,
            patience=reconnect,
            revive=target.start if may_start else None,
            option="reconnect",
        )
        try:
            if may_start:
                client.connect_or_start()
            else:
                client.connect()
        except RpcError as exc:
            client.close()
            raise as_error(exc) from exc
        return client

    client = opened(greeting("engine library", os.environ) if hello else None)
    engine = Engine(client, name_of(as_, os.environ), opened)
    try:
        yield engine
        engine._say_goodbye()
    finally:
        engine.close()
