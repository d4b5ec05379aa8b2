"""Who is told of one task, and how often: growth at most every few milliseconds.

Also when the job is blocked, and when it is not any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from engine.keeper.kept import Kept, clock
from engine.keeper.link import Link

INTERVAL: Final = 0.005  # seconds between two words of growth

Send = Callable[[Link, dict[str, Any], bytes], None]  # drops a link that does not take it


class News:
    """The links that launched a task or attached to it. `at` is when there is something to tell."""

    def __init__(self, send: Send, first: Link) -> None:
        self._send = send
        self._links = [first]
        self._last = 0.0
        self._blocked: str | None = None  # as was told
        self._start: dict[str, Any] | None = None  # the word of the start, not told yet
        self.at: float | None = None

    def add(self, link: Link) -> None:
        if link not in self._links:
            self._links.append(link)

    def drop(self, link: Link) -> None:
        if link in self._links:
            self._links.remove(link)

    def catch_up(self, link: Link) -> None:
        """Tell anew, soon, if this link that takes messages again has missed some."""
        if link in self._links:
            self.want()

    def tell(self, message: dict[str, Any], payload: bytes = b"") -> None:
        self._tell_start()
        self._tell(message, payload)

    def _tell(self, message: dict[str, Any], payload: bytes = b"") -> None:
        for link in list(self._links):
            self._send(link, message, payload)

    def put_off(self, start: dict[str, Any]) -> None:
        """Have `start` told with the first word that follows, `INTERVAL` from now at the latest.

        The start of what ends at once then wakes nobody.
        """
        self._start, self._last = start, clock()
        self.at = self._last + INTERVAL

    def _tell_start(self) -> None:
        start, self._start = self._start, None
        if start is not None:
            self._tell(start)

    def want(self) -> None:
        """Have growth told as soon as the interval allows."""
        if self.at is None:
            self.at = max(clock(), self._last + INTERVAL)

    def hold_back(self) -> None:
        """Count growth as told now: what ends at once tells of its output with its end."""
        self._last = clock()

    def tell_if_blocked(self, task: Kept) -> None:
        """Tell what the job is blocked on, or that it goes on, if that has changed."""
        category = task.blocked
        if category == self._blocked or task.record is not None:
            return
        self._blocked = category
        if category is None:
            self.tell({"ev": "unblocked"})
        else:
            self.tell({"ev": "blocked", "category": category, **task.sizes()})

    def tell_if_due(self, sizes: dict[str, Any]) -> None:
        if self.at is None or clock() < self.at:
            return
        self.at, self._last = None, clock()
        if self._start is not None:
            self._tell_start()
            if not any(sizes["sizes"]):
                return
        for link in list(self._links):
            if not link.awaits_room:  # a slow reader hears the newest word only
                self._send(link, {"ev": "grew", **sizes}, b"")
