"""A ledger that serves, for the tests of what it keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import trio

from engine.store.ledger import Ledger

LIMIT = 15.0  # seconds for any wait here


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Ledger]:
    with closing(Ledger(path)) as ledger, trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            await nursery.start(ledger.serve)
            yield ledger
            nursery.cancel_scope.cancel()
