"""One job of a keeper: started, watched, ended, and every process that came of it killed.

A job ends when its first process does. Processes that it left behind live on below the keeper,
which goes on copying their output; they are gone when the kernel says that no child is left.
"""

from __future__ import annotations

import os
from typing import Any, Final

from engine.keeper import processes
from engine.keeper.kept import Kept, kill_all
from engine.keeper.spawning import (
    SpawnFailed,
    be_first_out_of_memory,
    exit_code,
    signal_number,
    spawn,
)

# What a request cannot do without: looked at before the claim is taken.
REQUIRED: Final = frozenset(
    {"dir", "argv", "env", "cwd", "cwd_or_parent", "umask", "stdin", "streams", "deadline", "cap"}
    | {"session", "prologue", "fds"}
)


class Job(Kept):
    """A claimed task directory and the processes that come of it: all below this one.

    request: {dir, argv, path?, env, cwd, cwd_or_parent, umask, stdin, streams, deadline, cap,
    session, fds, nofile?}; `deadline` in seconds from the start, `cap` in bytes of output kept in
    each file, `nofile` the job's own soft limit of descriptors.
    """

    def processes(self) -> list[int]:
        return processes.descendants(os.getpid())

    def kill(self) -> None:
        # Each is stopped before its children are looked at: a fork bomb is outrun in two rounds.
        try:
            kill_all(lambda: processes.walk(os.getpid()))
        except OSError:  # no descriptor left to look with
            super().kill()

    def start(self, stdin: int | None) -> None:
        """Start the first process. Raises Refused; a program that cannot run is an ended job."""
        self.open_files()
        ends = [output.take_write_end() for output in self.outputs]
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_DUP2, ends[0], 1),
            (os.POSIX_SPAWN_DUP2, ends[-1], 2),
        ]
        if stdin is None:
            actions.append((os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0))
        else:
            actions.append((os.POSIX_SPAWN_DUP2, stdin, 0))
        try:
            self.pid, self.cwd = spawn(self.request, actions)
        except SpawnFailed as exc:
            self.cwd = exc.cwd
            self.write_spawn_failure(exc)
            return
        finally:
            for output in self.outputs:
                output.close_write_end()
        self.begin_deadline()
        be_first_out_of_memory(self.pid)

    def end(self, status: int, cpu: float) -> None:
        """Write down how the first process ended: `status` as of wait4(2), `cpu` in seconds."""
        self.write_record(
            cause="signal" if os.WIFSIGNALED(status) else "exit",
            exitCode=exit_code(status),
            signal=signal_number(status),
            error=None,
            cpu=cpu,
            survivors=self.survivors() if processes.has_children() else [],
        )
