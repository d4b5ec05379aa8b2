"""The callers' shell sessions: the state that each call starts from and an inline end commits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog
import trio

from engine.jobs.directory import Spec
from engine.jobs.pythonlocal import forget_lost
from engine.jobs.shellstate import (
    CallPlan,
    ShellState,
    commit,
    decode_state,
    encode_state,
    size_of,
)
from engine.store import slots
from engine.threads import in_thread

MOST_SESSIONS: Final = 10_000  # callers whose shell's state is on disk
MOST_AT_HAND: Final = 1_000  # and in memory too, some KiB each,
AT_HAND_BYTES: Final = 64 << 20  # all together
MOST_STATE_BYTES: Final = 16 << 20  # of one caller
MOST_TOTAL_BYTES: Final = 1 << 30  # of all, on disk
PYTHON: Final = "python"  # the link to the caller's interpreter
_FILE: Final = "shell"  # see `slots`

log = structlog.get_logger()


class ShellSessions:
    """States by caller, in memory and each in a file below `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        most_bytes: int = MOST_STATE_BYTES,
        most_total_bytes: int = MOST_TOTAL_BYTES,
    ) -> None:
        """`most_bytes`: of one caller's state; `most_total_bytes`: of all of them, on disk."""
        self._folder = folder
        self._most_bytes, self._most_total_bytes = most_bytes, most_total_bytes
        self._states: dict[str, ShellState | None] = {}  # the one used last is the last
        self._at_hand: dict[str, int] = {}  # bytes of each of these
        self._numbers: dict[str, int] = {}  # and how often it was written
        self._at_hand_bytes = 0
        self._on_disk: dict[str, int] = {}  # bytes of the state of each caller who has a folder
        self._on_disk_bytes = 0
        self._has_grown = trio.Event()
        self.unwritten: set[str] = set()  # callers whose state the disk has not taken

    def state(self, caller: str) -> ShellState | None:
        """The committed state; None: a new session."""
        known = caller in self._states
        self._keep(caller, self._states[caller] if known else self._read(caller))
        return self._states[caller]

    def size(self, caller: str) -> int:
        """Bytes of the committed state."""
        self.state(caller)
        return self._at_hand[caller]

    def _keep(self, caller: str, state: ShellState | None) -> None:
        """Have the state at hand; those not used for longest are read again when they are."""
        is_same = caller in self._states and self._states[caller] is state
        size = self._at_hand[caller] if is_same else size_of(state)
        self._states.pop(caller, None)  # it becomes the last
        self._at_hand_bytes -= self._at_hand.get(caller, 0)
        self._states[caller], self._at_hand[caller] = state, size
        self._at_hand_bytes += size
        for name in list(self._states)[:-1] if self._is_hand_full() else ():
            if name not in self.unwritten:
                self._put_away(name)
                if not self._is_hand_full():
                    return

    def _is_hand_full(self) -> bool:
        return len(self._states) > MOST_AT_HAND or self._at_hand_bytes > AT_HAND_BYTES

    def _put_away(self, caller: str) -> None:
        self._states.pop(caller, None)
        self._numbers.pop(caller, None)
        self._at_hand_bytes -= self._at_hand.pop(caller, 0)

    def _read(self, caller: str) -> ShellState | None:
        found = slots.read(self._folder / caller, _FILE)
        if found is None:
            return None
        self._numbers[caller] = found.number
        state = decode_state(found.data)
        if state is None:
            log.warning("session_not_read", caller=caller)
        return state

    def commit(self, spec: Spec, plan: CallPlan, dump: bytes) -> str | None:
        """Take the state that a call's shell dumped; its directory, None if there is no state.

        On disk before this returns: a reply may tell of it. What the disk does not take is there
        until the engine ends. A call with a directory of its own leaves the session's where it was.
        """
        if len(dump) > self._most_bytes:
            self.leave_out(spec, len(dump))
            return None
        state = commit(plan, dump)
        if state is None:
            return None
        directory = state.cwd
        if spec.cwd is not None:
            prior = plan.prior
            kept = prior.directory if prior is not None else os.fsencode(spec.base.cwd)
            state = msgspec.structs.replace(state, directory=kept)
        if state is not self._states.get(spec.caller):
            self.unwritten.add(spec.caller)
            self._keep(spec.caller, state)
        self.write()
        return directory

    def leave_out(self, spec: Spec, size: int) -> None:
        """Say that a call has left a state that is too large: the session is as before it."""
        log.warning(
            "session_state_too_large",
            taskId="t" + spec.id,
            caller=spec.caller,
            bytes=size,
            limit=self._most_bytes,
            session="as before this call",
        )

    def write(self) -> None:
        """Bring to disk what it has not taken before; the first refusal ends the attempt."""
        for caller in sorted(self.unwritten):
            state = self._states.get(caller)
            try:
                if state is not None:
                    self._write(caller, state)
            except OSError as exc:
                log.error("session_not_written", caller=caller, reason=str(exc))
                return
            self.unwritten.discard(caller)

    def _write(self, caller: str, state: ShellState) -> None:
        self.make_folder(caller)
        if caller not in self._numbers:  # it was not at hand when its call ended
            found = slots.read(self._folder / caller, _FILE)
            self._numbers[caller] = 0 if found is None else found.number
        data, number = encode_state(state), self._numbers[caller] + 1
        slots.write(self._folder / caller, _FILE, data, number)
        os.utime(self._folder / caller)  # when the session has changed, see `_oldest_first`
        self._numbers[caller] = number
        self._note(caller, len(data))

    def write_anew(self) -> None:
        """Bring to disk again all states at hand: their folder was taken away."""
        self.unwritten.update(name for name, state in self._states.items() if state is not None)
        self.write()

    def make_folder(self, caller: str) -> None:
        """Have the caller's folder, for whatever its sessions keep there. Raises OSError."""
        try:
            (self._folder / caller).mkdir(mode=0o700, parents=True)
        except FileExistsError:
            return
        self._note(caller, 0)

    def _note(self, caller: str, size: int) -> None:
        """Take note of what the caller has on disk."""
        before = self._on_disk.get(caller, -1)
        self._on_disk_bytes += size - max(before, 0)
        self._on_disk[caller] = size
        if size > before and self._is_over():
            self._has_grown.set()

    def _is_over(self) -> bool:
        return len(self._on_disk) > MOST_SESSIONS or self._on_disk_bytes > self._most_total_bytes

    def reset(self, caller: str) -> None:
        """Forget the caller's session: the next call has a new one.

        The folder stays: what else of the caller lies there is not ours.
        """
        self._put_away(caller)
        self.unwritten.discard(caller)
        if caller in self._on_disk:
            self._note(caller, 0)
        slots.remove(self._folder / caller, _FILE)

    async def serve(self, is_busy: Callable[[str], bool]) -> None:
        """Drop the sessions that changed longest ago, a tenth of what may be at a time.

        Not of a caller that is busy or has an interpreter; for their number not of one that has
        used its session not long ago, for their bytes such a one after all others.
        """
        await self._look()
        while True:
            self._has_grown = trio.Event()
            if self._is_over():
                await self._thin_out(await self._look(), is_busy)
            await self._has_grown.wait()

    async def _look(self) -> list[str]:
        """Count anew what is on disk: the callers, the one that changed longest ago first."""
        found = await in_thread(_oldest_first, self._folder)
        self._on_disk = dict(found)
        self._on_disk_bytes = sum(self._on_disk.values())
        return list(self._on_disk)

    async def _thin_out(self, names: list[str], is_busy: Callable[[str], bool]) -> None:
        excess = excess_bytes = 0
        if len(names) > MOST_SESSIONS:
            excess = len(names) - MOST_SESSIONS + MOST_SESSIONS // 10
        if self._on_disk_bytes > self._most_total_bytes:
            excess_bytes = self._on_disk_bytes - self._most_total_bytes * 9 // 10
        for place, name in enumerate(names):
            is_over = place < excess or excess_bytes > 0
            if is_over and name not in self._states and not is_busy(name):
                excess_bytes -= self._drop(name)
            await trio.lowlevel.checkpoint()
        for name in list(self._states)[:-1]:
            if excess_bytes > 0 and not is_busy(name) and name not in self.unwritten:
                excess_bytes -= self._drop(name)

    def _drop(self, caller: str) -> int:
        """Drop what the caller has; the bytes of its state."""
        size = self._on_disk.get(caller, 0)
        if size:
            log.warning("session_dropped", caller=caller, bytes=size, next="a new session")
        self.reset(caller)
        forget_lost(self._folder / caller / PYTHON)
        with contextlib.suppress(OSError):  # what else of the caller lies there is not ours
            os.rmdir(self._folder / caller)
            self._on_disk.pop(caller, None)
        return size


def _oldest_first(folder: Path) -> list[tuple[str, int]]:
    """The callers who have a folder, each with the bytes of its state; the one that changed longest
    ago first.
    """
    changed, sizes = {}, {}
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # it went meanwhile
            changed[entry.name] = entry.stat(follow_symlinks=False).st_mtime_ns
            sizes[entry.name] = 0
            for name in slots.names(_FILE):
                with contextlib.suppress(OSError):  # a caller who has an interpreter alone
                    size = os.lstat(folder / entry.name / name).st_size
                    sizes[entry.name] = max(sizes[entry.name], size)
    return [(name, sizes[name]) for name in sorted(changed, key=changed.__getitem__)]
