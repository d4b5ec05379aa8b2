"""The calls of Linux that the standard library lacks.

prctl(2) PR_SET_CHILD_SUBREAPER and PR_SET_NAME; fallocate(2) with FALLOC_FL_PUNCH_HOLE; ptrace(2)
PTRACE_DETACH.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2
_PTRACE_DETACH = 17

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """From now on orphans among our descendants become our children. Raises OSError."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def set_process_name(name: str) -> None:
    """Name this process for ps and top: at most 15 bytes. Cosmetic, so a refusal is ignored."""
    _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)


def punch_hole(fd: int, offset: int, length: int) -> None:
    """Give the bytes of a range back to the file system; they read as zeros, the size stays.

    Raises OSError (EOPNOTSUPP where the file system cannot).
    """
    if not hasattr(_libc, "fallocate"):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    mode = _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE
    while _libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        code = ctypes.get_errno()
        if code != errno.EINTR:  # the death of a child is a signal here
            raise OSError(code, os.strerror(code))


def stop_tracing(pid: int, number: int) -> None:
    """Let a child go on that asked us to trace it (PTRACE_TRACEME) and has stopped for a signal.

    It gets the signal, but for the SIGTRAP that only tracing made.
    """
    deliver = 0 if number == signal.SIGTRAP else number
    _libc.ptrace(_PTRACE_DETACH, pid, None, ctypes.c_long(deliver))
