"""What a test left behind: processes and open descriptors.

The test process is made a subreaper, so whatever a test starts and however it flees, it ends up
a child of this process when its parents are gone: one look at the children finds all of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from pathlib import Path
from typing import Final, NamedTuple

GRACE_SECS: Final = 5.0  # for what is on its way out already, such as a keeper of a stopped engine
KILL_SECS: Final = 5.0  # for the kernel to take away what was killed
_PR_SET_CHILD_SUBREAPER: Final = 36


class Process(NamedTuple):
    """One process; the start time, in clock ticks, keeps it apart from a later one of its pid."""

    pid: int
    started: int

    def __str__(self) -> str:
        command = Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
        return f"{self.pid} ({command.decode(errors='replace')[:200]})"


def adopt_orphans() -> None:
    """Make this process the parent of every descendant that loses its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def children() -> set[Process]:
    """The children of this process, zombies left out."""
    return {process for pid in _child_pids() if (process := living(pid))}


def reap(known: set[Process]) -> None:
    """Take away the zombies among the children: orphans of the test, whom nobody else awaits."""
    for pid in _child_pids() - {process.pid for process in known}:
        if living(pid) is None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def wait_gone(processes: set[Process], seconds: float) -> set[Process]:
    """Those of `processes` that still live after at most `seconds`."""
    end = time.monotonic() + seconds
    return {process for process in processes if not _ends(process, end)}


def kill_all(known: set[Process]) -> None:
    """Kill every child but the `known`, then those that they leave to us, until none is left."""
    end = time.monotonic() + KILL_SECS
    while (new := children() - known) and time.monotonic() < end:
        for process in new:
            os.kill(process.pid, signal.SIGKILL)
        wait_gone(new, KILL_SECS)


def descriptors() -> dict[int, str]:
    """The open descriptors of this process and what they lead to."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the one that the listing itself used
            continue
    return found


def _child_pids() -> set[int]:
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            listed = Path(f"/proc/self/task/{thread}/children").read_bytes()
        except FileNotFoundError:  # the thread has ended
            continue
        found |= {int(pid) for pid in listed.split()}
    return found


def living(pid: int) -> Process | None:
    """The process of this pid; None where there is none, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else Process(pid, int(fields[19]))


def _ends(process: Process, end: float) -> bool:
    """Wait until `process` has ended, at the latest until `end`; False if it lives on."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(max(end - time.monotonic(), 0) * 1000)
    finally:
        os.close(pidfd)
    return living(process.pid) != process
