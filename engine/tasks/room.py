"""Whether the disk has room for another job: its files, and the beginning of what it will say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

LEAST_BYTES: Final = 1 << 20
_TRIAL_BYTES: Final = 64 << 10
LEAST_FILES: Final = 32  # where the file system counts them


class Room(NamedTuple):
    """What there is at one moment. `lack`: why no job should be started; None where nothing
    speaks against it. `free_bytes`: that the disk has left for us; 0 where it cannot be asked.
    """

    lack: str | None
    free_bytes: int


def look(tasks: Path) -> Room:
    """What room the disk has, asked once."""
    try:
        disk = os.statvfs(tasks)
    except OSError as exc:
        return Room(f"the home cannot be used: {exc.strerror}", 0)
    return Room(_lack(disk), disk.f_bavail * disk.f_frsize)


def lack_of_room(tasks: Path) -> str | None:
    """Why no job should be started now."""
    return look(tasks).lack


def _lack(disk: os.statvfs_result) -> str | None:
    if disk.f_flag & os.ST_RDONLY:
        return "the disk is read-only"
    if disk.f_bavail * disk.f_frsize < LEAST_BYTES:
        return "the disk is full"
    if disk.f_files and disk.f_favail < LEAST_FILES:
        return "the disk takes no more files"
    return None


def takes_files(tasks: Path) -> bool:
    """Whether the disk takes a file now, tried with one without a name; False where it has none."""
    try:
        fd = os.open(tasks, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        return os.write(fd, bytes(_TRIAL_BYTES)) == _TRIAL_BYTES
    except OSError:
        return False
    finally:
        os.close(fd)
