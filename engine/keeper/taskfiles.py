"""The two files of a task directory by which keepers and engines agree: `claim` and `exit`.

`claim` is a symbolic link whose text is the identity of the keeper that may start the job. One
call makes it, with its content, and fails if it is there: no claim is ever seen half written.

A keeper has its identity as such a link of its own, and its claims are further names of that.

`exit` is reserved in full before the job starts and overwritten in place at its end, so that the
end can be written down on a full disk too. It is valid only with its closing mark.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from typing import Any, Final

CLAIM: Final = "claim"
READY: Final = "ready"  # of a directory made ahead: whose shell waits for it
EXIT: Final = "exit"
EXIT_SIZE: Final = 4096  # bytes: one block, so that the reservation is all or nothing
CALL_EXIT_SIZE: Final = 8 * EXIT_SIZE  # of a call of code, with its value
_MOST_PIECES: Final = 64  # of an output; a keeper leaves a few
_MESSAGE_LIMIT: Final = 150  # characters of an error's text, where the record is too long
_CLOSING_MARK: Final = b"\ncomplete\n"
_ENGINE: Final = "engine"  # text of a claim taken by an engine, to declare the end itself

# Files are opened by directory descriptor, never through a link that a job may have put there.
SAFE_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO put in a file's place would hang an open without O_NONBLOCK.
READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | SAFE_FLAGS
# What opening something else than our file answers: a link, a socket, a file without permissions.
_NOT_OURS: Final = (errno.ELOOP, errno.ENXIO, errno.EACCES)


class Mark:
    """The identity `who`, as a symbolic link `name` in the folder `folder`.

    Claims are further names of it: a new file costs up to forty times as much (see README).
    """

    def __init__(self, who: str, folder: int, name: str) -> None:
        """Raises OSError."""
        self.who, self._folder, self._name = who, folder, name
        os.symlink(who, name, dir_fd=folder)

    def give(self, dir_fd: int, name: str) -> None:
        """Have `name` in another folder say who we are. Raises FileExistsError, OSError."""
        try:
            os.link(
                self._name, name, src_dir_fd=self._folder, dst_dir_fd=dir_fd, follow_symlinks=False
            )
        except FileExistsError:
            raise
        except OSError:  # removed with its folder; on another disk; it has as many names as may be
            os.symlink(self.who, name, dir_fd=dir_fd)

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # somebody has cleared the folder
            os.unlink(self._name, dir_fd=self._folder)


def prepare_claim(dir_fd: int, mark: Mark) -> None:
    """Say who is about to claim the job of this directory. Raises OSError."""
    mark.give(dir_fd, READY)


def take_claim(dir_fd: int, who: str | Mark = _ENGINE) -> bool:
    """Claim the job of this directory for `who`; False if it is claimed already."""
    try:
        if isinstance(who, Mark):
            who.give(dir_fd, CLAIM)
        else:
            os.symlink(who, CLAIM, dir_fd=dir_fd)
    except FileExistsError:
        return False
    return True


def read_ready(dir_fd: int) -> str | None:
    """Who has made a claim ready; None: nobody, mostly."""
    try:
        return os.readlink(READY, dir_fd=dir_fd)
    except OSError:
        return None


def read_claim(dir_fd: int) -> str | None:
    """The identity that claimed the job; None: nobody yet. `""`: an engine, or nobody knows."""
    try:
        text = os.readlink(CLAIM, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
        return ""  # not a link: not by our hand
    return "" if text == _ENGINE else text


def undo_claim(dir_fd: int, made: list[str]) -> None:
    """Give the job back that could not begin: remove the files `made` for it, then the claim."""
    for name in [*made, CLAIM]:
        os.unlink(name, dir_fd=dir_fd)


def open_fresh(dir_fd: int, name: str, flags: int = os.O_WRONLY, size: int = 0) -> int:
    """A descriptor of the file `name`: a new one, or one of at most `size` bytes, made ahead.

    Raises OSError; FileExistsError where something else is in its place.
    """
    try:
        fd = os.open(name, flags | os.O_NONBLOCK | SAFE_FLAGS, dir_fd=dir_fd)
    except FileNotFoundError:
        flags |= os.O_CREAT | os.O_EXCL | SAFE_FLAGS
        return os.open(name, flags, 0o600, dir_fd=dir_fd)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size <= size:
        return fd
    os.close(fd)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)


def reserve_exit(dir_fd: int, size: int = EXIT_SIZE) -> int:
    """Have `exit` full-sized and not valid yet; its descriptor.

    Raises OSError: ENOSPC, and then there is none; EEXIST where one was written.
    """
    fd = open_fresh(dir_fd, EXIT, os.O_RDWR, size)
    made = os.pread(fd, size, 0)
    if made.strip():
        os.close(fd)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), EXIT)
    end = len(made)
    try:
        while end < size:  # a short write does not tell why, the next one does
            end += os.pwrite(fd, b" " * (size - end), end)
    except OSError:
        os.close(fd)
        os.unlink(EXIT, dir_fd=dir_fd)
        raise
    return fd


def written(fd: int) -> tuple[int, list[list[int]]]:
    """Where what was written to the file `fd` ends, and the ranges before of which nothing is kept.

    A file can be of any length with nothing in it: of its pieces `_MOST_PIECES` are looked at.
    """
    end, holes = 0, []
    for _ in range(_MOST_PIECES):
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno != errno.ENXIO:  # that is: there is no more
                raise
            break
        if start > end:
            holes.append([end, start])
        end = os.lseek(fd, start, os.SEEK_HOLE)
    return end, holes


def open_reserved(dir_fd: int) -> int | None:
    """A descriptor of an `exit` that was reserved: it can be written on a full disk too.

    None where there is none, or something that a job has put in its place.
    """
    try:
        fd = os.open(EXIT, os.O_RDWR | os.O_NONBLOCK | SAFE_FLAGS, dir_fd=dir_fd)
    except OSError:
        return None
    status = os.fstat(fd)
    if (
        stat.S_ISREG(status.st_mode)
        and status.st_nlink == 1
        and (status.st_size in (EXIT_SIZE, CALL_EXIT_SIZE))
    ):
        return fd
    os.close(fd)
    return None


def write_exit(fd: int, record: dict[str, Any]) -> None:
    """Overwrite a reserved `exit` with `record`, shortened until it fits."""
    # A job may have cut its own `exit`: then there is no reserve, and it is written all the same.
    room = max(os.fstat(fd).st_size, EXIT_SIZE) - len(_CLOSING_MARK)
    while len(body := json.dumps(record).encode()) > room:
        record = _shortened(record)
    os.pwrite(fd, body + _CLOSING_MARK, 0)


def _shortened(record: dict[str, Any]) -> dict[str, Any]:
    """`record` with less of what can be done without: survivors, error's text, value, cwd."""
    survivors, error, value = record["survivors"], record["error"], record.get("value")
    if survivors:
        return {**record, "survivors": survivors[: len(survivors) // 2]}
    if error and len(error["message"]) > _MESSAGE_LIMIT:
        return {**record, "error": {**error, "message": error["message"][:_MESSAGE_LIMIT]}}
    if value:
        return {**record, "value": value[: len(value) * 3 // 4]}
    return {**record, "cwd": ""}


def read_exit(dir_fd: int) -> dict[str, Any] | None:
    """The record of how the job ended; None while it has not, or where it cannot be trusted."""
    try:
        fd = os.open(EXIT, READ_FLAGS, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno not in _NOT_OURS:
            raise
        return None
    try:
        data = os.read(fd, CALL_EXIT_SIZE) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
    body, mark, _rest = data.partition(_CLOSING_MARK)
    if not mark:
        return None
    try:
        record = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
