"""Which call of a session each process below its keeper came of.

Calls follow each other in one interpreter, and their children are children of that interpreter,
or of the keeper once their parents are gone. Told apart, in this order: a process seen before is
whose it was; a child is its parent's call's; the environment names the call (`ENGINE_TASK_ID`);
who holds a call's pipe as standard output or error is that call's; anything else came of the call
that runs, or ran last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final

from engine.keeper import processes

MARK: Final = b"ENGINE_TASK_ID="


class Descent:
    """What is known of the processes below this one."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], str] = {}  # pid and start time -> call

    def sort(
        self, interpreter: Iterable[int], pipes: Mapping[str, Iterable[str]], latest: str
    ) -> dict[str, list[int]]:
        """Call -> its living processes, parents before children; the interpreter's left out.

        `pipes`: each call that is still looked after, and the names of its pipes as /proc shows
        them; `latest`: whose is what tells nothing of itself.
        """
        own, found = set(interpreter), dict[int, str]()
        known: dict[tuple[int, int], str] = {}
        for pid in processes.descendants(os.getpid()):
            if pid in own or (parentage := processes.parentage(pid)) is None:
                continue
            parent, started = parentage
            call = self._known.get((pid, started)) or found.get(parent) or _named(pid, pipes)
            found[pid] = known[pid, started] = call or latest
        self._known = known
        sorted_: dict[str, list[int]] = {}
        for pid, call in found.items():
            sorted_.setdefault(call, []).append(pid)
        return sorted_


def _named(pid: int, pipes: Mapping[str, Iterable[str]]) -> str | None:
    """The call that the environment or the outputs of `pid` tell."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            for entry in file.read().split(b"\0"):
                if entry.startswith(MARK) and (name := os.fsdecode(entry[len(MARK) :])) in pipes:
                    return name
        held = {os.readlink(f"/proc/{pid}/fd/{number}") for number in (1, 2)}
    except OSError:  # gone, closed, or another user's
        return None
    return next((call for call, names in pipes.items() if not held.isdisjoint(names)), None)
