"""Work in another thread, and in this one where the system has no thread to give."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

import trio

T = TypeVar("T")
Args = TypeVarTuple("Args")


def check_cancelled() -> None:
    """Raise trio.Cancelled where this thread works for a task that was cancelled; for long work.

    On the event loop, which does such work where there is no thread, nothing.
    """
    with contextlib.suppress(RuntimeError):
        trio.from_thread.check_cancelled()


async def in_thread(
    work: Callable[[Unpack[Args]], T],
    *args: *Args,
    limiter: trio.CapacityLimiter | None = None,
) -> T:
    """What `work(*args)` gives. A user's limit of processes counts threads too: at that limit the
    event loop does the work itself, for a slow answer is better than none."""
    has_begun = False

    def noted() -> T:
        nonlocal has_begun
        has_begun = True
        return work(*args)

    try:
        return await trio.to_thread.run_sync(noted, limiter=limiter)
    except RuntimeError:  # can't start new thread
        if has_begun:
            raise
    return work(*args)
