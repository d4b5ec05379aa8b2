"""The blocking client: one connection, made again when it is lost, under the calls in flight.

One thread; nothing is printed. What a loss means to a call is the business of `calls`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from engine.client.calls import REPLY_WAIT, Calls, Ticket, spent, ungreeted
from engine.client.errors import (
    CannotStart,
    ClientClosed,
    ConnectionLost,
    NotReachable,
    ProtocolFailure,
    TokenRefused,
    Unsendable,
)
from engine.client.link import Link, Wake, open_link
from engine.client.places import Place
from engine.client.schedule import ANSWER_SECS, PATIENCE, Bound, Schedule
from engine.client.sockets import spot, wait_readable
from engine.client.wire import Answer, Params

__all__ = ["Client", "Ticket"]

OPTION: Final = "--reconnect"  # what says how long to try
TIMEOUT: Final = "--timeout"  # what says how long to wait


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
        revive: Callable[[], object] | None = None,
        option: str = OPTION,
        timeout: float | None = None,
    ) -> None:
        """`revive`: starts an engine where the one that was there vanished without a goodbye, and
        nobody else started one meanwhile. `option`: what sets `patience`. `timeout`: for how many
        seconds from now an engine that does not answer is waited for, or `ANSWER_SECS` a call."""
        self._find = find
        self._bound = None if timeout is None else Bound(time.monotonic(), timeout, TIMEOUT)
        self._calls = Calls(hello, patience, self._bound)
        self._patience = patience
        self._wake = wake
        self._tell_lost = tell_lost
        self._tell_back = tell_back
        self._revive = revive
        self._option = option
        self._link: Link | None = None
        self._is_wanted = False  # from `connect` to `close`
        self._failed: list[tuple[Ticket, ConnectionLost]] = []  # by the last connection
        self._answers: deque[tuple[Ticket, Answer]] = deque()

    @property
    def place(self) -> Place | None:
        """Where the open connection leads; None while there is none."""
        return self._link.place if self._link else None

    def connect(self) -> None:
        """Make the connection, once. Raises `NotReachable` or `TokenUnreadable`."""
        began = time.monotonic()
        try:
            self._connect()
        except NotReachable as exc:
            if self._bound is None or time.monotonic() < self._bound.limit(began):
                raise
            raise self._out_of_time(exc) from exc

    def _connect(self) -> None:
        link = open_link(self._find(), self._wake, self._connect_until())
        self._failed = self._calls.connected(time.monotonic(), link.place.pid)
        try:
            self._greet(link)
        except (ConnectionLost, ProtocolFailure) as exc:
            self._drop(link)
            raise ungreeted(exc) from exc
        except BaseException:
            self._drop(link)
            raise
        self._link = link
        self._is_wanted = True

    def connect_or_start(self) -> None:
        """As `connect`, but where nobody listens start an engine by `revive`.

        Raises `CannotStart`, too.
        """
        assert self._revive is not None
        try:
            self.connect()
        except NotReachable as exc:
            if not exc.absent:
                raise
        else:
            return
        schedule = Schedule(time.monotonic(), self._patience)
        while True:
            self._revive()
            try:
                self.connect()
            except NotReachable as exc:
                if exc.absent and self._is_out_of_time():
                    raise self._out_of_time(exc) from exc
                if not exc.absent or not schedule.failed(time.monotonic()):
                    raise
                # Another engine has the home and is not listening yet, or is on its way out.
                wait_readable([], schedule.due)
            else:
                return

    def close(self) -> None:
        """End the connection and with it the waits in flight; the jobs go on."""
        self._is_wanted = False
        self._calls.rest()
        if self._link is not None:
            self._drop(self._link)

    def submit(
        self, method: str, params: Params, *, budget: float = 0.0, resend: bool = True
    ) -> Ticket:
        """Send a call, or put it by for the next connection, and return its ticket.

        Raises `Unsendable` and `ClientClosed` at once.
        """
        if not self._is_wanted:
            raise ClientClosed(f"closed before {method} was sent")
        ticket = self._calls.make(method, params, budget=budget, resend=resend)
        if not self._calls.has_open:
            self._look()
        self._calls.submit(ticket, time.monotonic())
        self._flush()
        return ticket

    def call(self, method: str, params: Params, *, budget: float = 0.0, resend: bool = True) -> Any:
        """The result of one call. Raises `Refused` with the engine's error.

        Answers to other calls stay for `next_answer`.
        """
        ticket = self.submit(method, params, budget=budget, resend=resend)
        others: deque[tuple[Ticket, Answer]] = deque()
        answer: Answer | None = None
        try:
            while answer is None:
                got = self.next_answer(None)
                if got is not None and got[0].id == ticket.id:
                    answer = got[1]
                elif got is not None:
                    others.append(got)
        finally:
            self._answers.extendleft(reversed(others))
            if answer is None:  # interrupted, or not to be had
                self.withdraw(ticket)
        if answer.error is not None:
            raise answer.error
        return answer.result

    def notify(self, method: str, params: Params) -> None:
        """Send what nobody answers, if there is a connection; one that ends meanwhile is no error.

        Raises `Unsendable`.
        """
        if self._link is None:
            return
        self._calls.notify(method, params)
        self._flush()

    def withdraw(self, ticket: Ticket) -> None:
        """Wait for this call no more; the engine is told. Its answer, if one comes, is dropped."""
        self._calls.withdraw(ticket)
        self._answers = deque(got for got in self._answers if got[0].id != ticket.id)
        self._flush()

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
            due = self._calls.due
            limit = min((t for t in (until, due) if t is not None), default=None)
            try:
                text = self._link.receive(limit)
            except ConnectionLost as exc:
                self._lose(is_goodbye=exc.is_goodbye)
                continue
            except ProtocolFailure:
                self._lose()
                continue
            if text is not None:
                self._take(text)
            elif due is not None and time.monotonic() >= due:
                self._miss_answer(self._link)
            else:
                return None
        return self._answers.popleft()

    def _miss_answer(self, link: Link) -> None:
        """An answer is overdue. Raises `NotReachable` where no more may be waited for."""
        if not self._is_out_of_time():
            self._lose()
            return
        self._drop(link)
        self._give_up()
        raise self._out_of_time(NotReachable(f"not reachable at {spot(link.place)} (no answer)"))

    def _is_out_of_time(self) -> bool:
        return self._bound is not None and time.monotonic() >= self._bound.until

    def _out_of_time(self, exc: NotReachable | CannotStart) -> NotReachable:
        assert self._bound is not None
        return spent(exc, self._bound.seconds, self._bound.option)

    def _connect_until(self) -> float | None:
        """When an attempt to connect is over, if before its usual time."""
        now, schedule = time.monotonic(), self._calls.schedule
        limits = [] if self._bound is None else [self._bound.limit(now)]
        if schedule is not None:
            limits.append(max(schedule.lost_at + self._patience, now + ANSWER_SECS))
        return min(limits, default=None)

    def _look(self) -> None:
        """See whether the connection has ended while nobody waited, and whether by a goodbye.

        Sending would say no more than that it has.
        """
        if self._link is None:
            return
        try:
            self._link.look()
        except ConnectionLost as exc:
            self._lose(is_goodbye=exc.is_goodbye)
        except (ProtocolFailure, Unsendable):
            self._lose()

    def _greet(self, link: Link) -> None:
        """Send hello and await its answer."""
        until = time.monotonic() + REPLY_WAIT
        if self._bound is not None:
            until = min(until, self._bound.limit(time.monotonic()))
        while not self._calls.has_greeted:
            while (text := self._calls.next_text(time.monotonic())) is not None:
                link.send(text)
            answer = link.receive(until)
            if answer is not None:
                self._calls.take(answer)
            elif time.monotonic() >= until:
                raise NotReachable("not reachable (no answer)")

    def _flush(self) -> None:
        """Send what there is to send, where there is a connection."""
        while self._link is not None:
            text = self._calls.next_text(time.monotonic())
            if text is None:
                return
            try:
                self._link.send(text)
            except ConnectionLost:
                self._lose()

    def _take(self, text: str) -> None:
        try:
            got = self._calls.take(text)
        except ConnectionLost as exc:
            self._lose(is_goodbye=exc.is_goodbye)
            return
        if got is not None:
            self._answers.append(got)

    def _drop(self, link: Link) -> None:
        link.close()
        self._link = None
        self._calls.disconnected()

    def _lose(self, *, is_goodbye: bool = False) -> None:
        """Count the connection as lost. Raises where a call cannot be sent twice."""
        if self._link is not None:
            self._drop(self._link)
        now = time.monotonic()
        failed = self._calls.lost(now, is_goodbye=is_goodbye)
        if failed:
            raise failed[0][1]
        if self._calls.miss(now):
            self._tell_lost()

    def _try_again(self, until: float | None) -> bool:
        """Wait for the next attempt and make it; False at `until` or when a signal came."""
        if not self._is_wanted:
            raise ClientClosed("closed while an answer was awaited")
        self._calls.miss(time.monotonic(), first=0.0)  # where the last one has been given up
        schedule = self._calls.schedule
        assert schedule is not None
        limit = schedule.due if until is None else min(until, schedule.due)
        limit = limit if self._bound is None else min(limit, self._bound.until)
        if wait_readable([] if self._wake is None else [self._wake.fileno()], limit):
            assert self._wake is not None
            self._wake.drain()
            return False
        if time.monotonic() < schedule.due:
            if not self._is_out_of_time():
                return False
            self._give_up()
            raise self._out_of_time(NotReachable("connection lost"))
        try:
            self._attempt()
        except TokenRefused:
            self._give_up()
            raise
        except (NotReachable, CannotStart) as exc:
            if self._is_out_of_time():
                self._give_up()
                raise self._out_of_time(exc) from exc
            if not self._calls.attempt_failed(time.monotonic()):
                self._give_up()
                raise spent(exc, self._patience, self._option) from exc
            return True
        self._tell_back(self._calls.found(time.monotonic()))
        self._flush()
        if self._failed:
            raise self._failed[0][1]
        return True

    def _give_up(self) -> None:
        """Nothing is in flight any more; the next call tries anew."""
        self._calls.give_up()
        self._calls.rest()

    def _attempt(self) -> None:
        """Connect, if need be to an engine that is started for it."""
        try:
            self._connect()
        except NotReachable as exc:
            if self._revive is None or not self._calls.may_revive(absent=exc.absent):
                raise
            self._revive()
            self._connect()
