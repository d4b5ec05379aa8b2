"""strace(1) as the hand that kills: a process dies before its n-th call of a kind.

The count is of each thread by itself, and whoever gets there first dies. Children are let go when
they become a program of their own, so a kill meets the process that is meant and no other.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
from pathlib import Path
from typing import Final

from acceptance.running import wait_gone

ATTACH_SECS: Final = 10.0
DETACH_SECS: Final = 2.0
KILLED: Final = "+++ killed by SIGKILL +++"
_BASE: Final = ("strace", "-b", "execve")


def _expression(calls: str, when: int | None) -> list[str]:
    """What to trace, and what to kill at; None: nothing."""
    trace = ["-e", f"trace={calls}", "-e", "signal=KILL"]
    return trace if when is None else [*trace, "-e", f"inject={calls}:signal=KILL:when={when}"]


def wrapping(log: Path, calls: str, when: int | None) -> tuple[str, ...]:
    """A command prefix: what it runs is traced from its first moment, under its own pid."""
    return (*_BASE, "-q", "-D", "-f", "-o", str(log), *_expression(calls, when))


def read_trace(log: Path) -> list[str]:
    """What a `wrapping` strace has written, once it has ended: its process must have."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and _is_tracer(entry.path, log):
            wait_gone(int(entry.name), ATTACH_SECS)
    return log.read_text(errors="replace").splitlines() if log.exists() else []


def _is_tracer(path: str, log: Path) -> bool:
    try:
        words = Path(path, "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return words[0] == b"strace" and os.fsencode(log) in words


class Attached:
    """strace at a process that runs already. The first kill is the last: it lets all others go.

    `children`: follow what it forks, too.
    """

    def __init__(self, pid: int, calls: str, when: int | None, *, children: bool) -> None:
        self.lines: list[str] = []
        read_end, write_end = os.pipe()
        follow = ["-f"] if children else []
        try:
            self._process = subprocess.Popen(
                [
                    *(*_BASE, *follow, "-o", f"/proc/self/fd/{write_end}"),
                    *(*_expression(calls, when), "-p", str(pid)),
                ],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[write_end],
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self._reader = threading.Thread(target=self._read, args=(read_end,))
        self._reader.start()
        assert self._process.stderr is not None
        # It says that it is attached, or that the process is gone.
        if not select.select([self._process.stderr], [], [], ATTACH_SECS)[0]:
            self.end()
            raise AssertionError("strace does not attach")

    def _read(self, fd: int) -> None:
        with open(fd, errors="replace") as file:
            for line in file:
                self.lines.append(line.rstrip())
                if KILLED in line:
                    self._process.terminate()

    def end(self) -> None:
        """Let go of whoever is still traced."""
        self._process.terminate()
        try:
            self._process.wait(DETACH_SECS)
        except subprocess.TimeoutExpired:
            # It waits for one to stop that waits, in vfork(2), for one that it holds.
            self._process.kill()
            self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._reader.join(ATTACH_SECS)


def place_of_kill(lines: list[str]) -> str | None:
    """The call before which the kill came; None where none did."""
    for number, line in enumerate(lines):
        if KILLED in line:
            # The call has no result; of a process with threads each says that it was killed.
            return next((one for one in reversed(lines[:number]) if one.endswith("= ?")), line)
    return None


def calls_made(lines: list[str]) -> dict[str, int]:
    """For each system call the most that one thread has made."""
    counts: dict[tuple[str, str], int] = {}
    for line in lines:
        pid, _, rest = line.partition(" ")
        if not pid.isdigit():
            pid, rest = "", line
        rest = rest.strip()
        name, bracket, _ = rest.partition("(")
        if bracket and name.isidentifier():
            counts[pid, name] = counts.get((pid, name), 0) + 1
    most: dict[str, int] = {}
    for (_pid, name), count in counts.items():
        most[name] = max(most.get(name, 0), count)
    return most
