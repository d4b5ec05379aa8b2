"""One job of a keeper: started, watched, ended, and every process that came of it killed.

A job ends when its first process does. Processes that it left behind live on below the keeper,
which goes on copying their output; they are gone when the kernel says that no child is left.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Final

from engine.keeper import processes, taskfiles
from engine.keeper.feed import Feed, keyboard
from engine.keeper.kept import Kept, Refused, kill_all
from engine.keeper.output import Output
from engine.keeper.spawning import (
    SpawnFailed,
    be_first_out_of_memory,
    exit_code,
    signal_number,
    spawn,
)
from engine.keeper.terminal import Terminal
from engine.keeper.warm import WarmShell

# What a request cannot do without: looked at before the claim is taken.
REQUIRED: Final = frozenset(
    {"dir", "argv", "env", "cwd", "cwd_or_parent", "umask", "stdin", "streams", "deadline", "cap"}
    | {"session", "prologue", "fds"}
)


AHEAD: Final = frozenset({"dir", "argv", "env", "cwd", "cwd_or_parent", "umask", "session"})


class Job(Kept):
    """A claimed task directory and the processes that come of it: all below this one.

    request: {dir, argv, path?, env, cwd, cwd_or_parent, umask, stdin, streams, deadline, cap,
    session, fds, nofile?, pty?}; `deadline` in seconds from the start, `cap` in bytes of output
    kept in each file, `nofile` the job's own soft limit of descriptors; `stdin` is null, fd (one
    that comes along) or open; `pty`: a terminal, at which the one that comes along is typed.

    `feed` is what writes to its standard input, until the job has ended.
    """

    def __init__(self, request: dict[str, Any], keeper: str) -> None:
        super().__init__(request, keeper)
        self.feed: Feed | None = None
        self._terminal: Terminal | None = None
        self._warm: WarmShell | None = None

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
        opened = self._open_input(stdin)
        try:
            self.open_files()
            actions = self._actions(stdin if opened is None else opened)
            self.pid, self.cwd = spawn(self.request, actions)
        except SpawnFailed as exc:
            self.cwd = exc.cwd
            self.write_spawn_failure(exc)
            return
        finally:
            for output in self.outputs:
                output.close_write_end()
            if opened is not None:
                os.close(opened)
        self.begin_deadline()
        be_first_out_of_memory(self.pid)

    def start_warm(self, warm: WarmShell) -> None:
        """Let `warm`, which waits for it, begin. Raises Refused."""
        self._warm = warm
        self.open_files()
        self.pid, self.cwd = warm.pid, warm.cwd
        warm.begin()
        self.begin_deadline()

    def _open_input(self, text: int | None) -> int | None:
        """Make what `feed` writes to; the job's end of it, where that is a pipe. Raises Refused."""
        try:
            if self.request.get("pty"):
                self._terminal = Terminal()
                self.feed = keyboard(self._terminal.master, text)
            elif self.request["stdin"] == "open":
                read_end, write_end = os.pipe()
                self.feed = Feed(write_end)
                return read_end
        except OSError as exc:
            with contextlib.suppress(OSError):  # then the claim stands, and the engine says lost
                taskfiles.undo_claim(self.dir_fd, [])
            raise Refused(f"standard input: {exc.strerror}", exc.errno or 0) from exc
        return None

    def open_output(self, name: str) -> Output:
        if self._warm is not None:
            output = Output(self.dir_fd, name, self.request["cap"], self._warm.output)
            self._warm.output = -1  # it is the output's
            return output
        if self._terminal is None:
            return super().open_output(name)
        master = self._terminal.master
        output = Output(self.dir_fd, name, self.request["cap"], master, is_terminal=True)
        self._terminal.has_master = False  # it is the output's
        return output

    def _actions(self, stdin: int | None) -> list[tuple[Any, ...]]:
        if self._terminal is not None:
            return self._terminal.actions()
        ends = [output.take_write_end() for output in self.outputs]
        input_: tuple[Any, ...] = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
        if stdin is not None:
            input_ = (os.POSIX_SPAWN_DUP2, stdin, 0)
        return [(os.POSIX_SPAWN_DUP2, ends[0], 1), (os.POSIX_SPAWN_DUP2, ends[-1], 2), input_]

    def close_input(self) -> None:
        """The first process has ended: `feed`, unwatched by now, goes with it."""
        if self.feed is not None:
            self.feed.close()
            self.feed = None
        if self._terminal is not None:
            self._terminal.close()

    def close(self) -> dict[str, Any]:
        self.close_input()
        return super().close()

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
