"""What is wrong with the engine's own keeping, in words: `degraded` of `engine_info`.

Each is said for as long as it is so. A database that was set aside is said until somebody has
looked after it: until its file is not in the home any more.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.server.enginelog import LOG_FILE
from engine.server.services import Services
from engine.store.opening import MOST_LOG_BYTES
from engine.tasks.room import lack_of_room


def degraded(services: Services) -> list[str]:
    """A sentence for each; empty where nothing is wrong."""
    return list(_found(services))


def _found(services: Services) -> Iterator[str]:
    lack = lack_of_room(services.catalog.home.tasks)
    if lack is not None:
        yield f"nothing new is started: {lack}"
    if services.missed_port is not None:
        yield f"port {services.missed_port} is kept for this home, and was taken at the start"
    for name, why in services.watch.missing.items():
        yield f"{name} was removed from the home and cannot be made again: {why}"
    ledger, sessions = services.ledger, services.supervisor.sessions
    stores = (("index.db", services.index), ("record.db", ledger))
    for name, store in stores:
        if store.trouble is not None:
            yield f"{name} does not take writes: {store.trouble}"
        if store.read_trouble is not None:
            yield f"{name} cannot be read, start the engine anew: {store.read_trouble}"
        if (done := store.files.trouble()) is not None:
            yield f"{done}: what is written there now is lost; start the engine anew"
    for name, store in stores:
        for path in store.set_aside():
            yield f"{name} was damaged: what could be is made anew, {path.name} is what was found"
        if (size := store.files.log_bytes()) > MOST_LOG_BYTES:
            yield (
                f"{name}-wal has grown to {size >> 20} MiB: another process reads the database"
                " without an end, which keeps it from being cut"
            )
    if ledger.was_gone:
        yield (
            "record.db was gone at the start: what was forgotten is not known any more, and its"
            " keys are free again"
        )
    if ledger.told_trouble is not None:
        yield f"record.told does not take writes: {ledger.told_trouble}"
    if sessions.unwritten:
        names = ", ".join(sorted(sessions.unwritten))
        yield f"sessions are not on disk, and are lost with the engine: {names}"
    if LOG_FILE.trouble is not None:
        yield f"the engine's log does not take lines: {LOG_FILE.trouble}"
