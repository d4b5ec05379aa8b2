"""The cgroup of one job (cgroup v2): how much memory it may have, had, and was killed for.

Made for a job that asked for a limit, gone when nobody of it is left. The engine says where; see
`engine.jobs.cgroup`. Nothing here moves a process: a job's first one is born in it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Final

_SWAP: Final = "memory.swap.max"  # not there where the kernel does not count swap
_WHOLE: Final = "memory.oom.group"  # since Linux 4.19


class JobMemory:
    """request: {cgroup, name, bytes}: the cgroup above, our name below it, what is allowed.

    Raises OSError: also where the cgroup above does not hand the memory controller down.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self._path = os.path.join(request["cgroup"], request["name"])
        # One that is there is of a keeper that was killed before the job began.
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._path)
        try:
            self._write("memory.max", str(request["bytes"]))
            self._write_if_there(_SWAP, "0")
            # Whether the kernel kills all or none of the job.
            self.ends_whole = self._write_if_there(_WHOLE, "1")
        except OSError:
            self.remove()
            raise

    @property
    def entrance(self) -> str:
        """The file into which a process writes 0 to come in."""
        return os.path.join(self._path, "cgroup.procs")

    def _write(self, name: str, value: str) -> None:
        fd = os.open(os.path.join(self._path, name), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)

    def _write_if_there(self, name: str, value: str) -> bool:
        try:
            self._write(name, value)
        except FileNotFoundError:
            return False
        return True

    def _read(self, name: str) -> str:
        with open(os.path.join(self._path, name), encoding="ascii") as file:
            return file.read()

    def measure(self) -> dict[str, int | None]:
        """`oomKills`: processes that the kernel killed for want of memory; `maxRssBytes`: the peak.

        None of what the kernel (before 5.19: the peak) or a job that is root keeps from us.
        """
        kills: int | None = None
        peak: int | None = None
        with contextlib.suppress(OSError, ValueError):
            events = dict(line.split() for line in self._read("memory.events").splitlines())
            kills = int(events.get("oom_kill", "0"))
        with contextlib.suppress(OSError, ValueError):
            peak = int(self._read("memory.peak"))
        return {"oomKills": kills, "maxRssBytes": peak}

    def remove(self) -> None:
        """Remove it, with what the job made below it; one that is not empty stays."""
        remove_tree(self._path)


def remove_tree(path: str) -> bool:
    """Remove a cgroup and those below it; False where somebody is in one of them."""
    for folder, below, _files in os.walk(path, topdown=False):
        for name in below:
            with contextlib.suppress(OSError):  # what is in it keeps the one above, too
                os.rmdir(os.path.join(folder, name))
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
