"""What the shell of a session says once its command is over, before it writes its state.

A word on a pipe: status, processor times as `times` has them, directory, each closed by a NUL. It
comes in pieces, and every job can write there: what makes no sense is no word.
"""

from __future__ import annotations

import os
import re
import time
from typing import Final, NamedTuple

from engine.keeper import shell

_MOST_BYTES: Final = 8192  # of a word: a directory has up to 4096
_PARTS: Final = 3
# The second line of `times`, of the children that were waited for. The locale says which point.
_CHILDREN: Final = re.compile(rb"[^\n]*\n(\d+)m(\d+)[.,](\d{3})s (\d+)m(\d+)[.,](\d{3})s\n")
_PAGE: Final = os.sysconf("SC_PAGESIZE")
_CPU_CLOCK: Final = 2  # CPUCLOCK_SCHED of all threads; see clock_getcpuclockid(3)


class Told(NamedTuple):
    """How a command ended: its exit code, processor time of its children in seconds."""

    status: int
    children_cpu: float
    cwd: str


class Telling:
    """The pipe at its descriptor. `fd` is its read end."""

    def __init__(self) -> None:
        """Raises OSError."""
        self.fd, write_end = os.pipe()
        os.set_blocking(self.fd, False)
        os.dup2(write_end, shell.FD_TELL, inheritable=False)
        os.close(write_end)
        self._input = b""

    def read(self) -> Told | None:
        """The word, once all of it has come. What is more than a word can have is dropped."""
        try:
            self._input += os.read(self.fd, _MOST_BYTES)
        except BlockingIOError:
            return None
        parts = self._input.split(b"\0")
        if len(parts) <= _PARTS and len(self._input) <= _MOST_BYTES:
            return None
        self._input = b""
        return _parse(parts) if len(parts) == _PARTS + 1 else None

    def forget(self) -> None:
        """Drop what is there: it is not of the next command."""
        self._input = b""
        try:
            while os.read(self.fd, _MOST_BYTES):
                pass
        except BlockingIOError:
            pass


def _parse(parts: list[bytes]) -> Told | None:
    status, times, directory, rest = parts
    found = _CHILDREN.fullmatch(times)
    is_status = status.isdigit() and len(status) <= 3 and int(status) <= 255
    if found is None or rest or not is_status or not directory.startswith(b"/"):
        return None
    minutes, secs, millis, *system = map(int, found.groups())
    cpu = 60 * (minutes + system[0]) + secs + system[1] + (millis + system[2]) / 1000
    return Told(int(status), cpu, os.fsdecode(directory.removesuffix(b"\n")))


def cpu_of(pid: int) -> float:
    """Seconds of processor time that a living process has used, without its children's.

    Raises OSError.
    """
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


def memory_of(pid: int) -> int:
    """Bytes of memory that a living process has to itself. Raises OSError."""
    with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
        _size, resident, shared, *_rest = map(int, (file.read(256) or b"").split())
    return (resident - shared) * _PAGE
