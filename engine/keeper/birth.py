"""Starting a process inside a cgroup, which posix_spawn(3) cannot: by hand, fork and exec.

The child goes in before it becomes the program, so nothing of a job is ever outside.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import Any, Final

_REPORT_LIMIT: Final = 64  # bytes of what a child says that became no program
_PROGRAM: Final = b"program"
_CGROUP: Final = b"cgroup"


class NoEntrance(OSError):
    """The child could not enter its cgroup."""


def spawn_inside(
    entrance: str,
    program: str,
    argv: list[str],
    env: dict[str, str],
    actions: list[tuple[Any, ...]],
) -> int:
    """The pid of `program`, in a session of its own, no signal blocked, all at their defaults.

    `entrance`: `cgroup.procs` of its cgroup; `actions`: as os.posix_spawn has them. Raises OSError
    where there is no such program or no process, NoEntrance, ValueError on a NUL.
    """
    words = [os.fsencode(word) for word in argv]
    table = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    if any(b"\0" in text for text in (*words, *table, *table.values())):
        raise ValueError("embedded null byte")
    if any(not name or b"=" in name for name in table):
        raise ValueError("illegal environment variable name")
    procs = os.open(entrance, os.O_WRONLY | os.O_CLOEXEC)
    said, report = os.pipe()
    try:
        pid = os.fork()
        if not pid:
            _become(procs, report, program, words, table, actions)
        os.close(report)
        report = -1
        # Ends with the child's exec, or with the child: one that has not enough memory is killed.
        words_said = os.read(said, _REPORT_LIMIT)
    finally:
        for fd in (procs, said, report):
            if fd >= 0:
                os.close(fd)
    if words_said:
        os.waitpid(pid, 0)
        what, _, number = words_said.partition(b" ")
        error = NoEntrance if what == _CGROUP else OSError
        raise error(int(number), os.strerror(int(number)))
    return pid


def _become(
    procs: int,
    report: int,
    program: str,
    argv: list[bytes],
    env: dict[bytes, bytes],
    actions: list[tuple[Any, ...]],
) -> None:
    """In the child: enter, then be the program. Does not return."""
    what = _CGROUP
    try:
        os.write(procs, b"0")
        what = _PROGRAM
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for action in actions:
            _do(action)
        os.execve(program, argv, env)
    except OSError as exc:
        os.write(report, b"%s %d" % (what, exc.errno or errno.EINVAL))
    finally:
        os._exit(127)


def _do(action: tuple[Any, ...]) -> None:
    """One of posix_spawn's file actions: duplicate or open."""
    if action[0] == os.POSIX_SPAWN_DUP2:
        _kind, fd, wanted = action
        if fd == wanted:
            os.set_inheritable(fd, True)
        else:
            os.dup2(fd, wanted)
        return
    _kind, wanted, path, flags, mode = action
    fd = os.open(path, flags, mode)
    if fd == wanted:
        os.set_inheritable(fd, True)
    else:
        os.dup2(fd, wanted)
        os.close(fd)
