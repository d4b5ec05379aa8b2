"""Signals to all of a task, whoever forks meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Final

from engine.keeper import processes

TERM_SECS: Final = 0.5  # to find all who get TERM: a fork bomb is never found whole


def end_all(living: Callable[[], list[int]], forked: dict[int, str]) -> list[int]:
    """TERM to all that `living` names, until it names nobody new; those who got it.

    Notes in `forked` who, with the command line of its parent, may be about to become a program.
    """
    signalled: dict[int, None] = {}
    enough_at = time.monotonic() + TERM_SECS
    while fresh := [pid for pid in living() if pid not in signalled]:
        commands = {pid: processes.command(pid) for pid in (*signalled, *fresh)}
        for pid in fresh:
            parent = processes.parent(pid)
            if commands[pid] and commands[pid] == commands.get(parent):
                forked[pid] = commands[pid]
        # A stopped process does not see TERM before it is continued.
        send(fresh, signal.SIGTERM)
        send(fresh, signal.SIGCONT)
        signalled.update(dict.fromkeys(fresh))
        if time.monotonic() >= enough_at:
            break
    return list(signalled)


def kill_all(living: Callable[[], Iterable[int]]) -> None:
    """KILL all that `living` names, each stopped when named, so that none forks its way out."""
    seen: set[int] = set()
    has_new = True
    while has_new:
        has_new = False
        for pid in living():
            if pid not in seen:
                send((pid,), signal.SIGSTOP)
                seen.add(pid)
                has_new = True
    send(seen, signal.SIGKILL)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each of `pids`; one that has just gone is what we wanted."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # gone, or grown out of our reach by setuid: then it is listed as survivor
