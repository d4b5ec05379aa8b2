"""The calls of one client: what is in flight, what is to be sent, what answers and losses mean.

Pure: no socket and no clock; `now` is any monotonic time in seconds. A face (`blocking`,
`concurrent`) brings the connection, sends what `next_text` gives, hands in what comes, and says
when the connection is there and when it is gone.

A call that may be sent twice (a read, a wait, a `bash` with its key) is sent again on the next
connection, under the same id; any other fails with `ConnectionLost`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from engine.client.errors import (
    SHUTTING_DOWN,
    CannotStart,
    ConnectionLost,
    NotReachable,
    ProtocolFailure,
)
from engine.client.schedule import PATIENCE, START_AFTER, Bound, Schedule
from engine.client.wire import Answer, Params, decode_answer, encode_call, encode_cancel

AT_ONCE: Final = 2.0  # seconds after a call was sent; a loss by then may be the call's doing
LOSSES: Final = 3  # of this kind, in a row, by an engine that lives: the call is not sent again
DEATHS: Final = 10  # the same where the engine was another one each time: killed, more likely
REPLY_WAIT: Final = 30.0  # seconds past a call's own budget; then the connection counts as lost


class Ticket(NamedTuple):
    """One call. `id` is unique in the client, also over reconnects."""

    id: int
    method: str
    text: str  # as it is sent
    budget: float  # seconds that the engine may take by the call's own terms
    resend: bool


class _Entry:
    """A call in flight."""

    __slots__ = ("_bound", "deaths", "due", "is_sent", "is_suspect", "losses", "sent_at", "ticket")

    def __init__(self, ticket: Ticket, now: float, bound: Bound | None) -> None:
        self.ticket, self._bound = ticket, bound
        self.is_sent = False  # on the present connection
        self.sent_at = 0.0
        self.is_suspect = False  # whether the last connection was lost right after it was sent
        self.clear()
        self.renew(now)

    def clear(self) -> None:
        """It has done no harm: somebody was answered, or the loss came late."""
        self.losses = 0  # in a row, right after it was sent, of an engine that was there again
        self.deaths = 0  # and of one that was not

    def renew(self, now: float) -> None:
        """Count its time anew."""
        self.due = now + self.ticket.budget + REPLY_WAIT  # when it is overdue
        if self._bound is not None:
            self.due = min(self.due, self._bound.limit(now, self.ticket.budget))


class Calls:
    """Between `connected` and `lost` there is a connection; `schedule` says when to try for one."""

    def __init__(
        self, hello: Params | None = None, patience: float = PATIENCE, bound: Bound | None = None
    ) -> None:
        self.schedule: Schedule | None = None  # there while the connection is missed
        self.has_said_goodbye = False  # whether the engine ended the last connection in order
        self._hello = hello
        self._patience, self._bound = patience, bound
        self._last_id = 0
        self._open: dict[int, _Entry] = {}
        self._unsent: deque[int | str] = deque()  # ids of calls, and notifications
        self._is_connected = False
        self._greeting: _Entry | None = None  # hello, until it is answered
        self._engine: object = None  # which one the last connection led to

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    @property
    def due(self) -> float | None:
        """When the connection counts as lost for want of an answer; None where none is awaited."""
        if not self._is_connected:
            return None
        if self._greeting is not None:
            return self._greeting.due
        return min((entry.due for entry in self._open.values()), default=None)

    @property
    def has_greeted(self) -> bool:
        """Whether calls can be sent."""
        return self._is_connected and self._greeting is None

    # Calls.

    def make(
        self, method: str, params: Params, *, budget: float = 0.0, resend: bool = True
    ) -> Ticket:
        """A call that is not in flight yet. Raises `Unsendable`."""
        self._last_id += 1
        text = encode_call(self._last_id, method, params)
        return Ticket(self._last_id, method, text, budget, resend)

    def submit(self, ticket: Ticket, now: float) -> None:
        """Have the call sent as soon as there is a connection."""
        self._open[ticket.id] = _Entry(ticket, now, self._bound)
        if self.has_greeted:
            self._unsent.append(ticket.id)

    def notify(self, method: str, params: Params) -> None:
        """Have a notification sent, if there is a connection: of the next it is none."""
        if self.has_greeted:
            self._unsent.append(encode_call(None, method, params))

    def withdraw(self, ticket: Ticket) -> None:
        """Nobody waits for the call any more; the engine is told if it has heard of it."""
        entry = self._open.pop(ticket.id, None)
        if entry is None or not self._is_connected:
            return
        if entry.is_sent:
            self._unsent.append(encode_cancel(ticket.id))
        elif self._greeting is None:
            self._unsent.remove(ticket.id)

    def next_text(self, now: float) -> str | None:
        """The next text to send, taken to be sent; None where there is none."""
        if not self._unsent:
            return None
        item = self._unsent.popleft()
        if isinstance(item, str):
            return item
        entry = self._greeting if self._greeting is not None else self._open[item]
        entry.is_sent, entry.sent_at = True, now
        return entry.ticket.text

    def take(self, text: str) -> tuple[Ticket, Answer] | None:
        """The call that is answered, no longer in flight; None for what answers nobody.

        Raises `ConnectionLost` where the engine is on its way out (its successor will answer),
        `Refused` for what is no answer to a call, `ProtocolFailure`.
        """
        answer = decode_answer(text)
        is_ending = answer.error is not None and answer.error.code == SHUTTING_DOWN
        if self._greeting is not None and answer.id == self._greeting.ticket.id:
            self._greeted(answer, is_ending)
            return None
        for entry in self._open.values():
            entry.clear()
        answered = self._open.get(answer.id)
        if answered is None:
            return None  # the late answer to a call that was sent again, or is not awaited
        if is_ending and answered.ticket.resend:
            raise ConnectionLost("the engine is shutting down", is_goodbye=True)
        del self._open[answer.id]
        return answered.ticket, answer

    def _greeted(self, answer: Answer, is_ending: bool) -> None:
        if is_ending:
            raise ConnectionLost("the engine is shutting down", is_goodbye=True)
        if answer.error is not None:
            raise answer.error
        self._greeting = None
        self._unsent.extend(self._open)

    # The connection.

    def connected(self, now: float, engine: object = None) -> list[tuple[Ticket, ConnectionLost]]:
        """There is a connection: say hello, then send again what is in flight.

        `engine`: what tells one from the next, if known. Returns the calls that are not sent
        again, as each time they were the connection was lost; they are no longer in flight.
        """
        is_same = engine is not None and engine == self._engine
        self._engine = engine
        self._is_connected = True
        failed = []
        for entry in list(self._open.values()):
            entry.renew(now)
            reason = _judge(entry, is_same)
            if reason is not None:
                failed.append(self._fail(entry, reason))
        if self._hello is None:
            self._unsent.extend(self._open)
        else:
            ticket = self.make("hello", self._hello)
            self._greeting = _Entry(ticket, now, self._bound)
            self._unsent.append(ticket.id)
        return failed

    def _fail(self, entry: _Entry, reason: str) -> tuple[Ticket, ConnectionLost]:
        del self._open[entry.ticket.id]
        return entry.ticket, ConnectionLost(reason)

    def disconnected(self) -> None:
        """There is no connection any more, by our own will."""
        self._is_connected = False
        self._greeting = None
        self._unsent.clear()

    def lost(self, now: float, *, is_goodbye: bool = False) -> list[tuple[Ticket, ConnectionLost]]:
        """The connection has ended: calls that fail by it, no longer in flight.

        `is_goodbye`: the engine ended it in order, so no call is to blame.
        """
        self.disconnected()
        self.has_said_goodbye = is_goodbye
        failed = []
        for entry in [entry for entry in self._open.values() if entry.is_sent]:
            entry.is_sent = False
            entry.is_suspect = now - entry.sent_at <= AT_ONCE and not is_goodbye
            if not entry.is_suspect:
                entry.clear()
            if not entry.ticket.resend:
                method = entry.ticket.method
                reason = f"connection lost before {method} was answered: it may have been done"
                failed.append(self._fail(entry, reason))
        return failed

    def miss(self, now: float, *, first: float | None = None) -> bool:
        """Note that a connection is missed; False where that was known.

        `first`: seconds until the first attempt, if not the usual.
        """
        if self.schedule is not None:
            return False
        more = {} if first is None else {"first": first}
        self.schedule = Schedule(now, self._patience, **more)
        return True

    def rest(self) -> None:
        """Nobody misses the connection; whoever does next begins anew.

        A goodbye stays said: an engine that was told to end is not started by a later call either.
        """
        self.schedule = None

    def may_revive(self, *, absent: bool) -> bool:
        """Whether an engine may be started in place of the one that was lost.

        Once, and not at once: whoever looks after it is to be first. One that ended in order was
        told to, and its end is left to those who did.
        """
        if self.schedule is None or not absent or self.has_said_goodbye:
            return False
        return self.schedule.attempts + 1 == START_AFTER

    def attempt_failed(self, now: float) -> bool:
        """Count an attempt to connect; False where no other is due: patience is spent."""
        assert self.schedule is not None
        if self.schedule.failed(now):
            return True
        self.schedule = None
        return False

    def found(self, now: float) -> float:
        """The connection is back: for how many seconds it was missed."""
        away = 0.0 if self.schedule is None else now - self.schedule.lost_at
        self.schedule = None
        return away

    def give_up(self) -> list[Ticket]:
        """Everything in flight, which it is no longer."""
        tickets = [entry.ticket for entry in self._open.values()]
        self._open.clear()
        self._unsent.clear()
        return tickets


def _judge(entry: _Entry, is_same: bool) -> str | None:
    """Why a call after which the connection was lost is not sent again, if so.

    `is_same`: the engine lives, so what it ended was the connection alone.
    """
    if not entry.is_suspect:
        return None
    entry.is_suspect = False
    method = entry.ticket.method
    if is_same:
        entry.losses += 1
    else:
        entry.deaths += 1
    if entry.losses >= LOSSES:
        return f"connection lost {LOSSES} times right after {method} was sent: gave up"
    if entry.deaths >= DEATHS:
        return f"the engine ended {DEATHS} times right after {method} was sent: gave up"
    return None


def spent(error: NotReachable | CannotStart, patience: float, option: str) -> NotReachable:
    """The error of a client that has tried for as long as it may, which `option` says."""
    return NotReachable(*error.lines, f"gave up after {patience:g} s ({option})")


def ungreeted(exc: ConnectionLost | ProtocolFailure) -> NotReachable:
    """The error of an attempt that ended between the handshake and the answer to hello."""
    if isinstance(exc, ConnectionLost) and exc.is_goodbye:
        return NotReachable(str(exc), absent=True)  # the next one will have an engine of its own
    # Nothing but hello has been asked: one that was killed by now is as one that was not there.
    return NotReachable(f"not reachable ({exc})", absent=isinstance(exc, ConnectionLost))
