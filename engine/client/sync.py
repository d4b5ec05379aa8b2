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

from engine.client import requests
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
from engine.client.places import Role
from engine.client.refusals import as_error
from engine.client.requests import JobOptions
from engine.client.runs import Ask, Run, takers
from engine.client.schedule import PATIENCE
from engine.client.target import Target
from engine.client.typed import Request
from engine.protocol.parts import LogLine
from engine.protocol.results import Finished

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

    def __init__(self, client: Client, caller: str) -> None:
        self.caller = caller
        self._client = client
        self._turn = threading.RLock()  # held by the thread whose call is under way

    bash = _method(requests.bash)
    execute = _method(requests.execute)
    wait = _method(requests.wait)
    cancel = _method(requests.cancel)
    cancel_all = _method(requests.cancel_all)
    write_stdin = _method(requests.write_stdin)
    read_output = _method(requests.read_output)
    list_tasks = _method(requests.list_tasks)
    read_task = _method(requests.read_task)
    read_logs = _method(requests.read_logs)
    forget = _method(requests.forget)
    reset_session = _method(requests.reset_session)
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
        with self._turn:
            result = self._client.call(
                given.method, given.params, budget=given.budget, resend=given.resend
            )
        return given.decode(result)

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
                ticket = self._client.submit(
                    request.method, request.params, budget=request.budget, resend=request.resend
                )
                asked[ticket.id] = (ticket, ask)
            got = self._client.next_answer(None)
            assert got is not None
            _, ask = asked.pop(got[0].id)
            error = got[1].error
            result: Any = ask.request.decode(got[1].result) if error is None else None
            asks = run.take(ask, result, error)
            for piece in run.pieces():
                deliver[piece.stream](piece.data)
        return run.result

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
    client = Client(
        target.find,
        hello=greeting("engine library", os.environ) if hello else None,
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
    engine = Engine(client, name_of(as_, os.environ))
    try:
        yield engine
    finally:
        engine.close()
