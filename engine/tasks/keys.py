"""The keys of the tasks that there are, for a ledger that is new: it may stand in for a lost one.

They stand in the tasks' folders, and are read while calls are answered already. Until all are
known, a call with a key that is not known yet waits: it may have been asked before.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple, Unpack

import structlog
import trio

from engine.config import Home
from engine.jobs.directory import Asked, Spec, TaskDirectory
from engine.store.ledger import Key, Ledger
from engine.store.writer import StoreUnavailable
from engine.tasks.waits import Waits
from engine.threads import in_thread

BATCH: Final = 500  # folders read in one go of the thread, and keys in one transaction
RETRY_SECS: Final = 5.0  # where folders cannot be read or the store takes no keys
KEYS_SECS: Final = 20.0  # that a call waits; none may take longer

T = TypeVar("T")
Args = TypeVarTuple("Args")
log = structlog.get_logger()


def key_of(spec: Spec) -> Key | None:
    """The key under which this was asked."""
    if spec.key is None:
        return None
    return Key(caller=spec.caller, key=spec.key, digest=spec.digest or "", task=spec.id)


def keys_in(tasks: Path, names: list[str]) -> list[Key]:
    """The keys of the tasks of these names. Raises OSError where no descriptor is left."""
    specs = (TaskDirectory(tasks, name).read_spec() for name in names)
    return [key for spec in specs if spec is not None and (key := key_of(spec))]


async def give_keys(home: Home, ledger: Ledger, waits: Waits) -> None:
    """Give a ledger that has not had them the keys of all tasks.

    Killed in the middle, the next start begins anew; a key that is there already stays as it is.
    """
    if ledger.is_complete:
        return

    async def list_() -> list[str]:
        return await in_thread(os.listdir, home.tasks)

    async def give(names: list[str]) -> int:
        keys = await in_thread(keys_in, home.tasks, names)
        await ledger.add(*keys)
        return len(keys)

    given, names = 0, await _insist(list_)
    for start in range(0, len(names), BATCH):
        given += await _insist(give, names[start : start + BATCH])
    await _insist(ledger.set_complete)
    waits.wake("keys")
    if given:
        log.warning("record_made_anew", keys=given)


async def _insist(work: Callable[[Unpack[Args]], Awaitable[T]], *args: *Args) -> T:
    """What `work(*args)` gives, as soon as disk and store allow it."""
    has_failed = False
    while True:
        try:
            return await work(*args)
        except (OSError, StoreUnavailable) as exc:
            if not has_failed:
                log.error("keys_not_given", reason=str(exc))
            has_failed = True
        await trio.sleep(RETRY_SECS)  # nobody tells when they do


async def wait_known(ledger: Ledger, waits: Waits, asked: Asked) -> bool:
    """Wait until it is known whether the key of this call was used before; False: it is not."""
    if asked.key is None or ledger.is_complete or ledger.find_key(asked.caller, asked.key):
        return True
    return bool(await waits.until("keys", lambda: ledger.is_complete or None, KEYS_SECS))
