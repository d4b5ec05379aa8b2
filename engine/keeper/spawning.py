"""Starting a process for a keeper: its directory, its program, its limits, a session of its own."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import signal
from typing import Any, Final

from engine.keeper.birth import NoEntrance, spawn_inside

OOM_SCORE: Final = 300  # added for the job: the kernel takes it before its keeper
MAX_OOM_SCORE: Final = 1000  # proc(5)
# As plain numbers, once: to make members of an enumeration of them takes as long as a short job.
CATCHABLE: Final = frozenset(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
_NOT_FOUND: Final = (errno.ENOENT, errno.ENOTDIR)


class SpawnFailed(Exception):
    """The program could not be started; 127 or 126 is what a shell would exit with."""

    def __init__(self, code: int, what: str, cwd: str = "") -> None:
        super().__init__(f"{what}: {os.strerror(code)}")
        self.errno = code
        self.cwd = cwd  # where it was to start; empty: that is what could not be entered
        self.exit_code = 127 if code in _NOT_FOUND else 126


def spawn(
    request: dict[str, Any], actions: list[tuple[Any, ...]], entrance: str | None = None
) -> tuple[int, str]:
    """Start a process; its pid and its working directory. Raises SpawnFailed.

    request: {argv, path?, env, cwd, cwd_or_parent, umask, nofile?}; `path` is the program's file,
    else it is found by the PATH in `env`; `nofile` its own soft limit of descriptors. `entrance`:
    of the cgroup in which it is born, see `birth`.
    """
    mask = os.umask(request["umask"])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    program, cwd = request["argv"][0], ""
    try:
        cwd = enter_directory(request["cwd"], or_parent=request["cwd_or_parent"])
        program = request.get("path") or find_program(program, request["env"])
        nofile = request.get("nofile", limits[0])
        resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, limits[1]))
        env = {**request["env"], "PWD": cwd}
        if entrance is not None:
            pid = spawn_inside(entrance, program, request["argv"], env, actions)
        else:
            pid = os.posix_spawn(
                program,
                request["argv"],
                env,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=CATCHABLE,
            )
    except NoEntrance as exc:
        raise SpawnFailed(exc.errno or 0, "the cgroup of memory_bytes", cwd) from exc
    except OSError as exc:
        raise SpawnFailed(exc.errno or 0, program, cwd) from exc
    except ValueError as exc:  # a NUL, a name of a variable with `=`, half a surrogate pair
        raise SpawnFailed(errno.EINVAL, f"{program}: {exc}", cwd) from exc
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.umask(mask)
        os.chdir("/")
    return pid, cwd


def enter_directory(path: str, *, or_parent: bool) -> str:
    """Change to `path`, or, if allowed, to its nearest parent that exists; where we are then.

    Raises SpawnFailed.
    """
    where = path
    while True:
        try:
            os.chdir(where)
        except OSError as exc:
            if not or_parent or where == "/":
                raise SpawnFailed(exc.errno or 0, f"cwd {path}") from exc
            where = os.path.dirname(where.rstrip("/")) or "/"
        else:
            return where


def find_program(name: str, env: dict[str, str]) -> str:
    """The file that execvp(3) would take, by the PATH that the job will have."""
    if "/" in name:
        return name
    seen: str | None = None
    for folder in env.get("PATH", os.defpath).split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            seen = seen or candidate
    if seen:
        raise SpawnFailed(errno.EACCES, seen)
    raise SpawnFailed(errno.ENOENT, name)


def be_first_out_of_memory(pid: int) -> None:
    """Have the kernel take `pid` before its keeper when memory runs out."""
    # It may have ended already, or run as somebody else; nothing hangs on the mark.
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as file,
    ):
        file.write(b"%d" % min(_own_oom_score() + OOM_SCORE, MAX_OOM_SCORE))


@functools.cache
def _own_oom_score() -> int:
    with open("/proc/self/oom_score_adj", "rb", buffering=0) as file:
        return int(file.read(32))


def exit_code(status: int | None) -> int | None:
    """The code of one that ended by itself; `status` as of wait4(2)."""
    return os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None


def signal_number(status: int | None) -> int | None:
    """The signal that ended it, if one did."""
    return os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
