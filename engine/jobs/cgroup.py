"""The engine's own cgroup (cgroup v2), divided among jobs that ask for a limit of memory.

A cgroup that has processes cannot hand controllers down. So the engine, and with it mother, keepers
and all other jobs, lives in a leaf below its own; beside that a job with `memory_bytes` gets a
cgroup, which its keeper makes and removes (see `engine.keeper.memory`). Handed down the controller
is only while there is such a job: a systemd before 254 can start no process in a cgroup that hands
one down, and so could not start the engine again beside jobs that run on.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Final

import structlog
import trio

from engine.jobs.executor import LaunchRefused
from engine.keeper.memory import remove_tree
from engine.model import ENGINE_CGROUP
from engine.threads import in_thread

PREFIX: Final = "job-"

log = structlog.get_logger()


class NoCgroup(Exception):
    """The engine has no cgroup of its own; the text says why."""


class JobCgroups:
    """The cgroups of one home's jobs, below `folder`.

    `home_key` keeps them apart from those of another engine that was started from a job of this.
    """

    def __init__(self, folder: Path, home_key: str, *, always_on: bool) -> None:
        """`always_on`: whoever starts the engine puts it into the leaf; see above."""
        self.folder, self._always_on = folder, always_on
        self._prefix = f"{PREFIX}{home_key}-"
        self._lock = trio.Lock()
        self._live: set[str] = set()  # names of jobs that are launched or attached to

    async def begin(self, id_: str, limit_bytes: int) -> dict[str, Any]:
        """What a keeper is told of the job's limit. Raises LaunchRefused."""
        name = self._name(id_)
        async with self._lock:
            self._live.add(name)
            try:
                await in_thread(self._hand_down)
            except OSError as exc:
                self._live.discard(name)
                text = f"memory_bytes: {self.folder}: {exc.strerror}"
                raise LaunchRefused(text, exc.errno or 0) from exc
        return {"cgroup": str(self.folder), "name": name, "bytes": limit_bytes}

    def _hand_down(self) -> None:
        _write(self.folder / "cgroup.subtree_control", "+memory")
        self._sweep()

    def adopt(self, id_: str) -> None:
        """Leave the job's cgroup alone, if it has one: its keeper is attached to."""
        self._live.add(self._name(id_))

    async def end(self, id_: str) -> None:
        """Nobody tells of the job any more: with its keeper its cgroup is gone, or goes now."""
        name = self._name(id_)
        if name not in self._live:
            return
        async with self._lock:
            self._live.discard(name)
            await in_thread(self.tidy)

    def tidy(self) -> None:
        """Remove what killed keepers left; hand nothing down while nobody needs it."""
        self._sweep()
        if self._always_on or self._live:
            return
        if not any(name.startswith(PREFIX) for name in os.listdir(self.folder)):
            try:
                _write(self.folder / "cgroup.subtree_control", "-memory")
            except OSError as exc:
                log.warning("cgroup_not_tidied", path=str(self.folder), reason=str(exc))

    def _sweep(self) -> None:
        """Remove the empty ones of our jobs; one with processes stays until another sweep."""
        for name in os.listdir(self.folder):
            if name.startswith(self._prefix) and name not in self._live:
                remove_tree(os.path.join(self.folder, name))

    def _name(self, id_: str) -> str:
        return self._prefix + id_


def take_cgroup(tasks: Path, proc: str = "/proc/self") -> JobCgroups:
    """Move this process into the leaf of its own cgroup, and divide that. Raises NoCgroup.

    `tasks`: the folder of the home's tasks. To be called before any child is there.
    """
    try:
        own = own_cgroup(_read(f"{proc}/cgroup"), _read(f"{proc}/mountinfo"))
        is_in_leaf = own.name == ENGINE_CGROUP
        folder = own.parent if is_in_leaf else own
        _check_ours(folder)
        if not is_in_leaf:
            _move(folder)
        status = os.stat(tasks)
        key = hashlib.sha256(f"{status.st_dev} {status.st_ino}".encode()).hexdigest()[:8]
        cgroups = JobCgroups(folder, key, always_on=is_in_leaf)
        _write(folder / "cgroup.subtree_control", "+memory")
        cgroups.tidy()
    except OSError as exc:
        raise NoCgroup(f"{exc.filename or 'cgroup'}: {exc.strerror}") from exc
    return cgroups


def own_cgroup(cgroup: str, mountinfo: str) -> Path:
    """Where the cgroup v2 of a process is, by its /proc files. Raises NoCgroup.

    cgroups(7), proc_pid_mountinfo(5).
    """
    path = next((line[3:] for line in cgroup.splitlines() if line.startswith("0::")), None)
    if path is None or not path.startswith("/") or path.startswith("/.."):
        raise NoCgroup("no cgroup v2 here")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ")[0] != "cgroup2":
            continue
        root, point = (_unescaped(text) for text in before.split(" ")[3:5])
        if root == "/" or path == root or path.startswith(root + "/"):
            return Path(point + path.removeprefix(root.rstrip("/")).rstrip("/"))
    raise NoCgroup("no cgroup v2 is mounted")


def _unescaped(text: str) -> str:
    """`\\040` for a space and the like, as mountinfo has them."""
    for code, char in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace("\\" + code, char)
    return text


def _check_ours(folder: Path) -> None:
    """Raise NoCgroup unless the cgroup is delegated: to be divided by us, with memory to limit."""
    if not (folder / "cgroup.type").exists():  # the kernel's root has none
        raise NoCgroup(f"{folder} is the whole machine's")
    needed = [folder, folder / "cgroup.procs", folder / "cgroup.subtree_control"]
    if not all(os.access(path, os.W_OK) for path in needed):
        raise NoCgroup(f"{folder} is not delegated")
    if "memory" not in _read(folder / "cgroup.controllers").split():
        raise NoCgroup(f"{folder} has no memory controller")


def _move(folder: Path) -> None:
    """Go into the leaf. Raises NoCgroup where others are in the cgroup: then it is not ours."""
    if set(_read(folder / "cgroup.procs").split()) != {str(os.getpid())}:
        raise NoCgroup(f"other processes are in {folder}")
    leaf = folder / ENGINE_CGROUP
    leaf.mkdir(exist_ok=True)
    _write(leaf / "cgroup.procs", str(os.getpid()))


def _read(path: str | Path) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _write(path: Path, text: str) -> None:
    """Write to a file that is there: the kernel takes it as a command."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
