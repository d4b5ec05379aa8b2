"""The blocking client: calls in flight, and the connection under them, made again when it is lost.

A call that may be sent twice (a read, a wait, a `bash` with its key) is sent again after a
reconnect; any other raises `ConnectionLost`. One thread; nothing is printed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from engine.client.errors import (
    SHUTTING_DOWN,
    ConnectionLost,
    NotReachable,
    ProtocolFailure,
    Refused,
    TokenRefused,
)
from engine.client.link import Link, Wake, open_link, wait_readable
from engine.client.places import Place
from engine.client.schedule import PATIENCE, Schedule
from engine.client.wire import Answer, Params, decode_answer, encode_call

AT_ONCE: Final = 2.0  # seconds after a call was sent; a loss by then may be the call's doing
LOSSES: Final = 3  # of this kind, in a row, and the call is not sent again
REPLY_WAIT: Final = 30.0  # seconds past a call's own budget; then the connection counts as lost


class Ticket(NamedTuple):
    """One call in flight. `id` is unique in the client, also over reconnects."""

    id: int
    method: str
    params: Params
    budget: float  # seconds that the engine may take by the call's own terms
    resend: bool


def ignore(*_: object) -> None:
    """The default for the two tellers below."""


class Client:
    """Calls to the engine at `find()`, which is asked again at each attempt to connect."""

    def __init__(
        self,
        find: Callable[[], Place],
        *,
        hello: Params | None = None,
        patience: float = PATIENCE,
        wake: Wake | None = None,
        tell_lost: Callable[[], None] = ignore,
        tell_back: Callable[[float], None] = ignore,
    ) -> None:
        self._find = find
        self._hello = hello
        self._patience = patience
        self._wake = wake
        self._tell_lost = tell_lost
        self._tell_back = tell_back
        self._link: Link | None = None
        self._schedule: Schedule | None = None
        self._last_id = 0
        self._open: dict[int, tuple[Ticket, float]] = {}  # with the moment when it is overdue
        self._sent_at = 0.0  # when the last call was sent
        self._losses: dict[int, int] = {}  # in a row, right after the call was sent; by ticket
        self._answers: deque[tuple[Ticket, Answer]] = deque()

    @property
    def place(self) -> Place | None:
        """Where the open connection leads; None while there is none."""
        return self._link.place if self._link else None

    def connect(self) -> None:
        """Make the connection, once. Raises `NotReachable` or `TokenUnreadable`."""
        link = open_link(self._find(), self._wake)
        try:
            if self._hello is not None:
                self._greet(link)
        except (ConnectionLost, ProtocolFailure) as exc:
            link.close()
            raise NotReachable(f"not reachable ({exc})") from exc
        except Refused as exc:
            link.close()
            if exc.code == SHUTTING_DOWN:
                raise NotReachable("the engine is shutting down", absent=True) from exc
            raise
        self._link = link

    def close(self) -> None:
        """End the connection and with it the waits in flight; the jobs go on."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def submit(
        self, method: str, params: Params, *, budget: float = 0.0, resend: bool = True
    ) -> Ticket:
        """Send a call, or put it by for the next connection, and return its ticket.

        Raises `Unsendable` at once.
        """
        self._last_id += 1
        ticket = Ticket(self._last_id, method, params, budget, resend)
        text = encode_call(ticket.id, method, params)
        self._open[ticket.id] = (ticket, time.monotonic() + budget + REPLY_WAIT)
        if self._link is not None:
            self._send(text)
        return ticket

    def call(self, method: str, params: Params, *, budget: float = 0.0, resend: bool = True) -> Any:
        """The result of one call. Raises `Refused` with the engine's error.

        Answers to other calls stay for `next_answer`.
        """
        ticket = self.submit(method, params, budget=budget, resend=resend)
        others: deque[tuple[Ticket, Answer]] = deque()
        try:
            while True:
                got = self.next_answer(None)
                if got is None:
                    continue
                if got[0].id != ticket.id:
                    others.append(got)
                elif got[1].error is not None:
                    raise got[1].error
                else:
                    return got[1].result
        finally:
            self._answers.extendleft(reversed(others))

    def next_answer(self, until: float | None) -> tuple[Ticket, Answer] | None:
        """The next answer to any ticket; None at `until` (monotonic) or when a signal came.

        Raises `NotReachable` when the patience after a loss is spent, `ConnectionLost` for a call
        that was in flight and must not be sent twice, or after which it was lost again and again.
        """
        while not self._answers:
            if self._link is None:
                if not self._try_again(until):
                    return None
                continue
            due = min((due for _, due in self._open.values()), default=None)
            limit = min((t for t in (until, due) if t is not None), default=None)
            try:
                text = self._link.receive(limit)
            except (ConnectionLost, ProtocolFailure):
                self._lose()
                continue
            if text is not None:
                self._take(decode_answer(text))
            elif due is not None and time.monotonic() >= due:
                self._lose()
            else:
                return None
        return self._answers.popleft()

    def _greet(self, link: Link) -> None:
        self._last_id += 1
        assert self._hello is not None
        link.send(encode_call(self._last_id, "hello", self._hello))
        until = time.monotonic() + REPLY_WAIT
        while time.monotonic() < until:
            text = link.receive(until)
            if text is not None:
                answer = decode_answer(text)
                if answer.error is not None:
                    raise answer.error
                return
        raise ConnectionLost("no answer")

    def _send(self, text: str) -> None:
        assert self._link is not None
        try:
            self._link.send(text)
        except ConnectionLost:
            self._sent_at = time.monotonic()
            self._lose()
        self._sent_at = time.monotonic()

    def _take(self, answer: Answer) -> None:
        self._losses.clear()
        ticket, _ = self._open.get(answer.id, (None, 0.0))
        if ticket is None:
            return  # the late answer to a call that was sent again
        if answer.error is not None and answer.error.code == SHUTTING_DOWN and ticket.resend:
            self._sent_at = 0.0  # the call is not what ended this
            self._lose()  # its successor will answer
            return
        del self._open[answer.id]
        self._answers.append((ticket, answer))

    def _lose(self) -> None:
        """Count the connection as lost. Raises where a call cannot be sent twice."""
        self.close()
        once = [ticket for ticket, _ in self._open.values() if not ticket.resend]
        if once:
            raise ConnectionLost(
                f"connection lost before {once[0].method} was answered: it may have been done"
            )
        self._count_loss()
        if self._schedule is None:
            self._schedule = Schedule(time.monotonic(), self._patience)
            self._tell_lost()

    def _count_loss(self) -> None:
        """Note which calls may have ended the connection. Raises where one did so too often."""
        if time.monotonic() - self._sent_at > AT_ONCE:
            self._losses.clear()
            return
        for ticket, _ in self._open.values():
            self._losses[ticket.id] = self._losses.get(ticket.id, 0) + 1
            if self._losses[ticket.id] >= LOSSES:
                raise ConnectionLost(
                    f"connection lost {LOSSES} times right after {ticket.method} was sent: gave up"
                )

    def _try_again(self, until: float | None) -> bool:
        """Wait for the next attempt and make it; False at `until` or when a signal came."""
        schedule = self._schedule
        if schedule is None:  # never connected, or closed by us
            raise NotReachable("not connected")
        limit = schedule.due if until is None else min(until, schedule.due)
        if wait_readable([] if self._wake is None else [self._wake.fileno()], limit):
            assert self._wake is not None
            self._wake.drain()
            return False
        if time.monotonic() < schedule.due:
            return False
        try:
            self.connect()
        except TokenRefused:
            raise
        except NotReachable as exc:
            if not schedule.failed(time.monotonic()):
                raise NotReachable(
                    *exc.lines, f"gave up after {self._patience:g} s (--reconnect)"
                ) from exc
            return True
        self._schedule = None
        self._tell_back(time.monotonic() - schedule.lost_at)
        for ticket, _ in list(self._open.values()):
            self._open[ticket.id] = (ticket, time.monotonic() + ticket.budget + REPLY_WAIT)
            if self._link is not None:
                self._send(encode_call(ticket.id, ticket.method, ticket.params))
        return True
