"""Log files in turns: older ones are `NAME.1`, `NAME.2` …, and the oldest goes.

Also of a log that other processes append to, who cannot be told to open a new one: what it holds
is moved away from under them.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

import structlog
import trio

from engine.keeper.linux import punch_hole
from engine.threads import in_thread

LOOK_SECS: Final = 60.0  # between looks at a log of others: they write a line in a thousand jobs
_BLOCK_BYTES: Final = 512  # of st_blocks: stat(2)

log = structlog.get_logger()


def numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def make_room(path: Path, kept: int) -> None:
    """Free the name of the newest of `kept` older files; what is over that number goes."""
    number = max(kept, 1)
    while (old := numbered(path, number)).exists():
        old.unlink()
        number += 1
    for number in range(kept - 1, 0, -1):
        if numbered(path, number).exists():
            os.rename(numbered(path, number), numbered(path, number + 1))


def move_content(path: Path, most_bytes: int, kept: int) -> bool:
    """Empty a log that takes over `most_bytes` of disk into the newest older file.

    What is appended meanwhile stays in it. Its size goes on counting: what was moved is a hole.
    Raises OSError; then nothing is lost.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        status = os.fstat(fd)
        if status.st_blocks * _BLOCK_BYTES <= most_bytes:
            return False
        fresh = path.with_name(path.name + ".new")
        if kept:
            _copy(fd, os.lseek(fd, 0, os.SEEK_DATA), status.st_size, fresh)
        make_room(path, kept)
        if kept:
            os.rename(fresh, numbered(path, 1))
        _clear(fd, status.st_size)
    finally:
        os.close(fd)
    return True


def _copy(fd: int, start: int, end: int, target: Path) -> None:
    os.lseek(fd, start, os.SEEK_SET)
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as copy:
        while start < end:
            piece = os.read(fd, min(end - start, 1 << 20))
            copy.write(piece)
            start += len(piece)


def _clear(fd: int, end: int) -> None:
    try:
        punch_hole(fd, 0, end)
    except OSError as exc:
        if exc.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        os.ftruncate(fd, 0)  # no holes here: what came since the copy goes too


async def serve_moves(path: Path, most_bytes: int, kept: int) -> None:
    """Look at a log that others append to every `LOOK_SECS`, until cancelled."""
    while True:
        try:
            await in_thread(move_content, path, most_bytes, kept)
        except OSError as exc:
            log.error("log_not_turned", path=str(path), reason=str(exc))
        await trio.sleep(LOOK_SECS)
