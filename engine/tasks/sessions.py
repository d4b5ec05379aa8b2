"""The callers' shell sessions: the state that each call starts from and an inline end commits."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec
import structlog

from engine.jobs.directory import Spec
from engine.jobs.shellstate import CallPlan, ShellState, commit, decode_state, encode_state

_FILE: Final = "shell"
_NEW: Final = "shell.new"  # becomes it once it is whole

log = structlog.get_logger()


class ShellSessions:
    """States by caller, in memory and each in a file below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._states: dict[str, ShellState | None] = {}

    def state(self, caller: str) -> ShellState | None:
        """The committed state; None: a new session."""
        if caller not in self._states:
            self._states[caller] = self._read(caller)
        return self._states[caller]

    def _read(self, caller: str) -> ShellState | None:
        with contextlib.suppress(OSError):  # of an engine that was killed before it was whole
            os.unlink(self._folder / caller / _NEW)
        try:
            data = (self._folder / caller / _FILE).read_bytes()
        except FileNotFoundError:
            return None
        state = decode_state(data)
        if state is None:
            log.warning("session_not_read", caller=caller)
        return state

    def commit(self, spec: Spec, plan: CallPlan, dump: bytes) -> str | None:
        """Take the state that a call's shell dumped; its directory, None if there is no state.

        On disk before this returns: a reply may tell of it. What the disk does not take is there
        until the engine ends. A call with a directory of its own leaves the session's where it was.
        """
        state = commit(plan, dump)
        if state is None:
            return None
        directory = state.cwd
        if spec.cwd is not None:
            prior = plan.prior
            kept = prior.directory if prior is not None else os.fsencode(spec.base.cwd)
            state = msgspec.structs.replace(state, directory=kept)
        if state is not self._states.get(spec.caller):
            try:
                self._write(spec.caller, state)
            except OSError as exc:
                log.error("session_not_written", caller=spec.caller, reason=str(exc))
            self._states[spec.caller] = state
        return directory

    def _write(self, caller: str, state: ShellState) -> None:
        folder = self._folder / caller
        folder.mkdir(mode=0o700, exist_ok=True)
        new = folder / _NEW
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(new, flags, 0o600), "wb") as file:
            file.write(encode_state(state))
        new.rename(folder / _FILE)

    def reset(self, caller: str) -> None:
        """Forget the caller's session: the next call has a new one.

        The folder stays: what else of the caller lies there is not ours.
        """
        self._states.pop(caller, None)
        for name in (_FILE, _NEW):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._folder / caller / name)
