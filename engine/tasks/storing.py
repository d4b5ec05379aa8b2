"""Durable facts that a caller waits for: written, or the caller is told that they are not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import trio

from engine.errors import Overloaded
from engine.store.ledger import Key, Ledger
from engine.store.rounds import StoredRound
from engine.store.writer import StoreUnavailable

FACT_SECS: Final = 10.0  # for a fact to be on disk

_NO_STORE: Final = "the store does not take writes"


@contextlib.contextmanager
def store_needed() -> Iterator[None]:
    """Raises Overloaded where the store does not take what is written inside."""
    try:
        yield
    except StoreUnavailable as exc:
        raise Overloaded(_NO_STORE, "store") from exc


async def add_in_time(ledger: Ledger, fact: Key | StoredRound) -> None:
    """Write `fact` for good. Raises Overloaded; after `FACT_SECS` it may be on its way still.

    Cancelling waits for the outcome: whoever has made something for it must know.
    """
    with trio.move_on_after(FACT_SECS, shield=True), store_needed():
        await ledger.add(fact)
        return
    raise Overloaded(_NO_STORE, "store")
