"""A reader of a caller's inbox: what to ask for, what of an answer is new, what is acknowledged.

Pure. What it hands out is acknowledged once the reader comes for more, so one that dies is told
again, with the mark. What it has handed out and was told again, as a connection broke before the
acknowledgement was there, it keeps to itself. `Untold` sees to it that a program which leaves in
order has acknowledged what its calls brought.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from engine.client.many import MANY_HOLD, wait_any
from engine.client.requests import list_tasks
from engine.client.typed import Request
from engine.protocol.parts import RoundUpdate, Update
from engine.protocol.results import Finished, TaskPage, WaitAny

KEPT: Final = 10_000  # ends that are known as handed out; one reply has 1,000 at most
ROWS: Final = 500  # the most that a page of the task list has
CHANGES_HOLD: Final = 55.0  # seconds that the engine holds a read of the list of tasks

News = Update | RoundUpdate
Known = dict[tuple[str, ...], None]  # ends, in the order in which they were handed out


class InboxCursor:
    """One reading of a caller's inbox, over any number of connections."""

    def __init__(self, caller: str, known: Known) -> None:
        """`known`: what the program was handed before, by any reading; it grows."""
        self._caller, self._known = caller, known
        self._delivery: str | None = None
        self._seq: int | None = None
        self.is_empty = False  # nothing was there to wait for

    def request(self) -> Request[WaitAny]:
        """Of the next news; all that was handed out before is acknowledged by it."""
        return wait_any(wait_seconds=MANY_HOLD, ack=self._delivery, as_=self._caller)

    def take(self, reply: WaitAny) -> list[News]:
        """The news in a reply that are to be handed out."""
        self._delivery = reply.delivery
        self.is_empty = reply.reason == "nothing_pending"
        entries: list[News] = [*reply.updates, *reply.rounds]
        return [each for each in entries if each.ready is not None and not self._is_known(each)]

    def _is_known(self, news: News) -> bool:
        return news.redelivered and _key(news) in self._known

    def handed(self, news: News) -> None:
        """The program has had it, and comes for more."""
        if news.ready == "ended":
            self._known[_key(news)] = None
            if len(self._known) > KEPT:
                del self._known[next(iter(self._known))]

    def changes(self) -> Request[TaskPage]:
        """Of a wait for the caller's next task, where there is nothing to wait for.

        The first says where the list is; it is made before the first look at the inbox.
        """
        if self._seq is None:
            return list_tasks(limit=1, as_=self._caller)
        return list_tasks(
            changed_after=self._seq, limit=ROWS, timeout_secs=CHANGES_HOLD, as_=self._caller
        )

    def changed(self, page: TaskPage) -> None:
        """Note where the list of tasks is by now."""
        is_anew = self._seq is None or page.latest_seq < self._seq
        self._seq = page.latest_seq if is_anew else page.next_changed_after


class Untold:
    """Callers whose last reply carried an end, which no call of theirs has acknowledged so far."""

    def __init__(self) -> None:
        self._callers: set[str] = set()
        self._readings: Counter[str] = Counter()

    def asks(self, caller: str) -> None:
        """A call of this caller goes out: it says that it has what came before."""
        self._callers.discard(caller)

    def answered(self, caller: str, result: object) -> None:
        has_end = isinstance(result, Finished)
        if has_end or (isinstance(result, WaitAny) and result.delivery is not None):
            self._callers.add(caller)

    @contextmanager
    def reading(self, caller: str) -> Iterator[None]:
        """Meanwhile the caller's inbox is read, where what is not acknowledged is waited for."""
        self._readings[caller] += 1
        try:
            yield
        finally:
            self._readings[caller] -= 1

    def due(self, caller: str) -> list[Request[TaskPage]]:
        """What is to be said at once, as the caller's inbox is being read."""
        return self._words([caller] if self._readings[caller] else [])

    def last_words(self) -> list[Request[TaskPage]]:
        """What is to be said where no call follows."""
        return self._words(sorted(self._callers))

    def _words(self, callers: list[str]) -> list[Request[TaskPage]]:
        """Of each that has something to acknowledge a call that says so; nobody need answer."""
        told = [caller for caller in callers if caller in self._callers]
        self._callers.difference_update(told)
        return [list_tasks(limit=1, as_=caller) for caller in told]


def _key(news: News) -> tuple[str, ...]:
    """What it is the end of: of a round, this try of it."""
    if isinstance(news, Update):
        return (news.id,)
    return (news.round_id, *(seat.task_id or "" for seat in news.seats.values()))
