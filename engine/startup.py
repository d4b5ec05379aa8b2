"""What must hold before an engine serves: a home of its own, locked; limits it can live with."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
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
    except OSError as exc:
        raise CannotStart(f"cannot use {home.path} as home: {exc.strerror}") from exc


def lock_home(home: Home) -> int:
    """The descriptor of the lock that one engine at a time has. Raises CannotStart.

    The kernel lets go of it when this process ends, however it ends: a file that is merely there
    blocks nobody.
    """
    try:
        fd = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise CannotStart(f"cannot open {home.lock}: {exc.strerror}") from exc
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise CannotStart(
            f"another engine (pid {owner}) has the home {home.path}", HOME_TAKEN
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def collect_garbage_less() -> None:
    """Leave what is loaded out of every collection, and look for cycles less often.

    A call makes some thousand objects that live for milliseconds; the default looks ten times.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


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
