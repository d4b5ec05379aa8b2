"""What must hold before an engine serves: a home of its own, locked; limits it can live with."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import pathlib
import resource
import shutil
import stat
from typing import Final

from engine.config import Home
from engine.model import as_text

HOME_TAKEN: Final = 3  # exit code: another engine has this home
REFUSED: Final = 1  # exit code: it cannot start here
# Whoever reaches them gets a signal: SIGXCPU, SIGXFSZ (setrlimit(2)).
_DEADLY: Final = (
    (resource.RLIMIT_CPU, "t", "processor time"),
    (resource.RLIMIT_FSIZE, "f", "the size of files"),
)
RESERVE_BYTES: Final = 512 << 10  # a start writes less, and makes fewer files than that
RESERVE_FILES: Final = 16
MIN_DESCRIPTORS: Final = 256  # of engine and keeper each: under it they would fail in mid-work


class CannotStart(Exception):
    """The engine cannot run in this home; the text says why, to whoever started it."""

    def __init__(self, text: str, code: int = REFUSED) -> None:
        super().__init__(text)
        self.code = code


def check_limits() -> None:
    """Raise CannotStart under a limit that would end the engine in the middle of its work.

    One that may be lifted is lifted, for the jobs too: they are other people's than the shell's in
    which the engine was started.
    """
    for number, option, what in _DEADLY:
        _soft, hard = resource.getrlimit(number)
        if hard != resource.RLIM_INFINITY:
            raise CannotStart(
                f"{what} is limited (ulimit -H{option}): the engine would be killed in mid-work; "
                "start it from a shell without that limit"
            )
        resource.setrlimit(number, (hard, hard))


def prepare_home(home: Home) -> None:
    """Make the home and its folders, closed to everybody else. Raises CannotStart."""
    if as_text(str(home.path)) != str(home.path):
        raise CannotStart(f"the home's path is no UTF-8: {as_text(str(home.path))}")
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = home.path.stat()
        if status.st_uid != os.getuid():
            raise CannotStart(f"{home.path} belongs to another user (uid {status.st_uid})")
        if stat.S_IMODE(status.st_mode) & 0o077:
            home.path.chmod(0o700)
        for folder in (home.tasks, home.sessions, home.keepers):
            folder.mkdir(mode=0o700, exist_ok=True)
        _use_reserve(home)
    except OSError as exc:
        raise CannotStart(f"cannot use {home.path} as home: {exc.strerror}") from exc


def take_reserve(home: Home) -> bool:
    """Give up the room that was set apart; False where there is none."""
    if not home.reserve.exists():
        return False
    shutil.rmtree(home.reserve, ignore_errors=True)
    return True


def _use_reserve(home: Home) -> None:
    """Have some room set apart, or take it where there is no other: jobs may have filled the disk,
    and whoever asks for them needs an engine."""
    disk = os.statvfs(home.path)
    is_full = disk.f_bavail * disk.f_frsize < RESERVE_BYTES
    if is_full or (disk.f_files and disk.f_favail < RESERVE_FILES):
        take_reserve(home)
        return
    with contextlib.suppress(OSError):  # it is there; or a start without it must do
        home.reserve.mkdir(mode=0o700)
        for number in range(RESERVE_FILES):
            with open(home.reserve / str(number), "xb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES // RESERVE_FILES)


class HomeLock:
    """The descriptors whose locks one engine at a time has."""

    def __init__(self, *fds: int) -> None:
        self._fds = fds

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)


def lock_home(home: Home) -> HomeLock:
    """The locks that one engine at a time has. Raises CannotStart.

    The kernel lets go of it when this process ends, however it ends: a file that is merely there
    blocks nobody. What counts is the lock on the home's own folder, which nobody can remove from
    it; that on the file is for those who look there, and for file systems that lock no folders.
    """
    try:
        folder = os.open(home.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fd = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise CannotStart(f"cannot open {home.lock}: {exc.strerror}") from exc
    for each in (folder, fd):
        try:
            fcntl.flock(each, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refused = _whose(home, each, fd)
            HomeLock(folder, fd).close()
            raise refused from None
        except OSError as exc:  # of the folder
            if each == fd:
                raise CannotStart(f"cannot lock {home.lock}: {exc.strerror}") from exc
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return HomeLock(folder, fd)


def _whose(home: Home, locked: int, file: int) -> CannotStart:
    """The error that names who has the lock on `locked`. `file`: the open file of the lock."""
    own_word = os.pread(file, 32, 0).decode("ascii", "replace").strip()
    owners = _lock_owners(locked)
    pid = owners[0] if owners else own_word or "unknown"
    # The word comes a moment later than the locks, and may be that of the engine before.
    if not owners or pid == own_word or (locked != file and _has_lock_file(home, pid)):
        return CannotStart(f"another engine (pid {pid}) has the home {home.path}", HOME_TAKEN)
    try:
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        command = b"?"
    text = as_text(os.fsdecode(command)).strip()[:200]
    return CannotStart(f"pid {pid} ({text}), no engine, has locked the home {home.path}: end it")


def _has_lock_file(home: Home, pid: str) -> bool:
    """Whether a process has the lock's file open, be it removed; as far as may be seen."""
    names = (home.lock.name, f"{home.lock.name} (deleted)")
    with contextlib.suppress(OSError):
        links = [entry.path for entry in os.scandir(f"/proc/{pid}/fd")]
        return any(os.path.basename(os.readlink(link)) in names for link in links)
    return False


def _lock_owners(fd: int) -> list[str]:
    """The pids of those who have the lock on this file, by the kernel's word (proc_locks(5)).

    A lock outlives who took it where a child has its descriptor: then whoever has the file open.
    """
    status = os.fstat(fd)
    with contextlib.suppress(OSError), open("/proc/locks") as file:
        for line in file:
            fields = line.split()  # 1: FLOCK ADVISORY WRITE 3889 fd:00:12345 0 EOF
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(f":{status.st_ino}"):
                if os.path.exists(f"/proc/{fields[4]}"):
                    return [fields[4]]
                return _open_in(fd)
    return []


def _open_in(fd: int) -> list[str]:
    """The pids of the processes, but ours, that have this file open, as far as may be seen."""
    ours, found = os.fstat(fd), []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for link in os.scandir(f"{entry.path}/fd"):
                status = os.stat(link.path)
                if os.path.samestat(status, ours):
                    found.append(entry.name)
                    break
    return found


def collect_garbage_less() -> None:
    """Leave what is loaded out of every collection, and look for cycles less often.

    A call makes some thousand objects that live for milliseconds; the default looks ten times.
    The second threshold bounds how long a look at those that stayed takes: 50 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 20)


def raise_descriptor_limit() -> None:
    """Let the engine itself have as many descriptors as it may: every wait and job holds some.

    Raises CannotStart.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < MIN_DESCRIPTORS:
        raise CannotStart(
            f"{hard} descriptors are too few (ulimit -Hn): it takes {MIN_DESCRIPTORS}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
