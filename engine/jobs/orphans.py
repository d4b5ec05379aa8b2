"""Processes of a task whose keeper is gone: found by their environment, and ended.

A second net only: a process may have changed its environment. A keeper needs none of this.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import Any, Final

import trio

from engine.keeper import processes
from engine.keeper.killing import send

MARK: Final = "ENGINE_TASK_ID"
KILL_SECS: Final = 5.0  # for the kernel to take away what was sent KILL


def find(task_id: str) -> list[int]:
    """Living processes that carry this task's id, and all below them."""
    marked = processes.with_variable(MARK, task_id)
    below = [pid for root in marked for pid in processes.descendants(root)]
    return list(dict.fromkeys([*marked, *below]))


def owners() -> set[str]:
    """The ids of tasks that living processes carry."""
    return processes.values_of(MARK)


async def end(task_id: str, grace_secs: float) -> tuple[list[int], list[dict[str, Any]]]:
    """TERM to them all, after the grace KILL: who got TERM, and who lives all the same."""
    signalled = find(task_id)
    send(signalled, signal.SIGTERM)
    send(signalled, signal.SIGCONT)
    await _wait_gone(signalled, grace_secs)
    left = find(task_id)
    if left:
        send(left, signal.SIGKILL)
        await _wait_gone(left, KILL_SECS)
    survivors = [{"pid": pid, "command": processes.command(pid)} for pid in find(task_id)]
    return signalled, survivors


async def _wait_gone(pids: Iterable[int], limit_secs: float) -> None:
    with trio.move_on_after(limit_secs):
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                await trio.lowlevel.wait_readable(fd)
            finally:
                os.close(fd)
