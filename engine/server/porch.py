"""Where the clients of one listener are until they are let in: bounded, whoever they are.

Nothing is known of them yet, so none of them is worth more than one that comes after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

MOST_OUTSIDE: Final = 1_000  # clients of one listener that are not let in (yet)


class Porch:
    def __init__(self) -> None:
        self._outside: dict[trio.CancelScope, None] = {}  # the one that came first is the first

    @contextmanager
    def place(self) -> Iterator[trio.CancelScope]:
        """A scope for a client that has come, cancelled where too many others come after it.

        Where there are too many, the one that came first has to go.
        """
        if len(self._outside) >= MOST_OUTSIDE:
            self.close_oldest()
        with trio.CancelScope() as scope:
            self._outside[scope] = None
            try:
                yield scope
            finally:
                self.leave(scope)

    def leave(self, scope: trio.CancelScope) -> None:
        """The client is let in, or gone."""
        self._outside.pop(scope, None)

    def close_oldest(self) -> None:
        """Send away the one that came first, if there is one."""
        if self._outside:
            scope = next(iter(self._outside))
            self.leave(scope)
            scope.cancel()
