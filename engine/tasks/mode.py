"""Shared or exclusive: whether one caller alone may start anything, and until when.

What runs goes on; what others ask for waits until the mode ends: by its owner, by its time, or
by a person.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec
import structlog
import trio

from engine.errors import InvalidState
from engine.model import ANONYMOUS, now_ms
from engine.store.ledger import Ledger, Setting
from engine.store.writer import StoreUnavailable

FACT: Final = "mode"  # its name in the ledger

log = structlog.get_logger()


class Exclusive(msgspec.Struct, frozen=True):
    """The engine is one caller's. `until`: ms, of the wall clock, as it holds over restarts."""

    owner: str
    until: int


class Mode:
    """`held` is None while the engine is shared."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        text = ledger.settings().get(FACT)
        self.held = None if text is None else msgspec.json.decode(text, type=Exclusive | None)
        self._changed = trio.Event()
        if self.held is not None and self.held.owner.startswith(ANONYMOUS):
            self.held = None
        self._drop_if_over()

    @property
    def owner(self) -> str | None:
        return None if self.held is None else self.held.owner

    async def take(self, caller: str, ttl_secs: float) -> None:
        """Give the engine to `caller`, or leave it to it for longer.

        Raises InvalidState where another has it, StoreUnavailable.
        """
        self._check_free(caller)
        await self._set(Exclusive(caller, now_ms() + int(ttl_secs * 1000)), by=caller)

    async def share(self, caller: str, *, is_human: bool) -> None:
        """End the mode, if there is one. Raises InvalidState where it is another's, unless a
        person says so; StoreUnavailable."""
        if not is_human:
            self._check_free(caller)
        if self.held is not None:
            await self._set(None, by=caller)

    def _check_free(self, caller: str) -> None:
        if self.held is not None and self.held.owner != caller:
            owner = self.held.owner
            raise InvalidState(
                f"the engine is exclusive to {owner}", state="exclusive", owner=owner
            )

    async def _set(self, held: Exclusive | None, *, by: str) -> None:
        """In force at once, and on disk when this returns; else as it was."""
        before, self.held = self.held, held
        self._changed.set()
        try:
            await self._ledger.add(Setting(name=FACT, value=msgspec.json.encode(held).decode()))
        except StoreUnavailable:
            if self.held is held:
                self.held = before
                self._changed.set()
            raise
        log.info("mode_set", owner=held and held.owner, until=held and held.until, by=by)

    def leave(self, caller: str) -> bool:
        """The caller is gone, and the mode with it if it was its own; whether it was."""
        if self.held is None or self.held.owner != caller:
            return False
        self._end()
        return True

    def _end(self) -> None:
        log.info("mode_ended", owner=self.owner)
        self.held = None

    def _drop_if_over(self) -> bool:
        held = self.held
        if held is None or held.until > now_ms():
            return False
        self._end()
        return True

    async def serve(self, ended: Callable[[], None]) -> None:
        """End the mode when its time is over, and call `ended`."""
        while True:
            self._changed = trio.Event()
            left = math.inf if self.held is None else (self.held.until - now_ms()) / 1000
            with trio.move_on_after(max(0, left)):
                await self._changed.wait()
            if self._drop_if_over():
                ended()
