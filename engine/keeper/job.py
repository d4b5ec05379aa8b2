"""One job of a keeper: started, watched, ended, and every process that came of it killed.

A job ends when its first process does. Processes that it left behind live on below the keeper,
which goes on copying their output; they are gone when the kernel says that no child is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any, Final

from engine.keeper import processes, taskfiles
from engine.keeper.feed import Feed, keyboard
from engine.keeper.kept import Kept, Refused, clock
from engine.keeper.killing import kill_all
from engine.keeper.memory import JobMemory
from engine.keeper.output import Output
from engine.keeper.spawning import (
    SpawnFailed,
    be_first_out_of_memory,
    exit_code,
    signal_number,
    spawn,
)
from engine.keeper.taskfiles import Mark
from engine.keeper.telling import Told, cpu_of, memory_of
from engine.keeper.terminal import Terminal
from engine.keeper.waiting import Input, input_of, is_stuck
from engine.keeper.warm import WarmShell

# What a request cannot do without: looked at before the claim is taken.
REQUIRED: Final = frozenset(
    {"dir", "argv", "env", "cwd", "cwd_or_parent", "umask", "stdin", "streams", "deadline", "cap"}
    | {"session", "prologue", "call", "fds"}
)


SETTLE_SECS: Final = 30.0  # that a shell may write its state after it has told its end
MOST_EARLY: Final = 2 << 20  # bytes of such a shell: one that has more may write for long
HOLD_SECS: Final = 60.0  # that it is then there for an engine that begins meanwhile
AHEAD: Final = frozenset({"dir", "argv", "env", "cwd", "cwd_or_parent", "umask", "session"})


class Job(Kept):
    """A claimed task directory and the processes that come of it: all below this one.

    request: {dir, argv, path?, env, cwd, cwd_or_parent, umask, stdin, streams, deadline, cap,
    session, prologue, call, fds, nofile?, pty?, memory?}; `deadline` in seconds from the start,
    `cap` in bytes of output kept in each file, `nofile` the job's own soft limit of descriptors;
    `stdin` is null, fd (one that comes along) or open; `pty`: a terminal, at which the one that
    comes along is typed; `memory`: see `memory.JobMemory`.

    `feed` is what writes to its standard input, until the job has ended.
    """

    def __init__(self, request: dict[str, Any], keeper: str | Mark) -> None:
        super().__init__(request, keeper)
        self.feed: Feed | None = None
        self._terminal: Terminal | None = None
        self._input: Input | None = None  # what `feed` writes to
        self._warm: WarmShell | None = None
        self._memory: JobMemory | None = None
        self.told: Told | None = None  # how it ended, until an engine has the state as well
        self.has_settled = False  # the shell that has told that has ended
        self._settle_at: float | None = None  # when it, then an engine, has had its time

    def processes(self) -> list[int]:
        return [pid for pid in processes.descendants(os.getpid()) if not self._is_settling(pid)]

    def _is_settling(self, pid: int) -> bool:
        return self.told is not None and not self.has_settled and pid == self.pid

    def kill(self) -> None:
        # Each is stopped before its children are looked at: a fork bomb is outrun in two rounds.
        try:
            kill_all(lambda: (p for p in processes.walk(os.getpid()) if not self._is_settling(p)))
        except OSError:  # no descriptor left to look with
            super().kill()

    def start(self, stdin: int | None) -> None:
        """Start the first process. Raises Refused; a program that cannot run is an ended job."""
        self._limit_memory()
        opened = self._open_input(stdin)
        try:
            self.open_files()
            actions = self._actions(stdin if opened is None else opened)
            entrance = None if self._memory is None else self._memory.entrance
            self.pid, self.cwd = spawn(self.request, actions, entrance)
        except SpawnFailed as exc:
            self.cwd = exc.cwd
            self.write_spawn_failure(exc)
            return
        finally:
            for output in self.outputs:
                output.close_write_end()
            if opened is not None:
                os.close(opened)
        self.begin_timers()
        be_first_out_of_memory(self.pid)

    def start_warm(self, warm: WarmShell) -> None:
        """Let `warm`, which waits for it, begin. Raises Refused."""
        self._warm = warm
        self.open_files()
        self.pid, self.cwd = warm.pid, warm.cwd
        warm.begin()
        self.begin_timers()

    def hangs_on_input(self) -> Callable[[], bool] | None:
        if self._input is None:
            return None
        source = self._input

        def hangs() -> bool:
            has_more = self.feed is not None and self.feed.is_awaiting_reader
            return not has_more and is_stuck(self.pid, self._living(), source)

        return hangs

    def _limit_memory(self) -> None:
        """Make the job's cgroup, if it has a limit. Raises Refused."""
        if self.request.get("memory") is None:
            return
        try:
            self._memory = JobMemory(self.request["memory"])
        except OSError as exc:
            raise self._refusal("memory_bytes", exc) from exc

    def _refusal(self, what: str, exc: OSError) -> Refused:
        """Why the job, of which nothing is made yet, does not start; the claim is given back."""
        with contextlib.suppress(OSError):  # then the claim stands, and the engine says lost
            taskfiles.undo_claim(self.dir_fd, [])
        return Refused(f"{what}: {exc.strerror}", exc.errno or 0)

    def _open_input(self, text: int | None) -> int | None:
        """Make what `feed` writes to; the job's end of it, where that is a pipe. Raises Refused."""
        try:
            if self.request.get("pty"):
                self._terminal = Terminal()
                self._input = self._terminal.input()
                self.feed = keyboard(self._terminal.master, text)
            elif self.request["stdin"] == "open":
                read_end, write_end = os.pipe()
                self.feed, self._input = Feed(write_end), input_of(write_end)
                return read_end
        except OSError as exc:
            raise self._refusal("standard input", exc) from exc
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
        if self._memory is not None:
            self._memory.remove()
        return super().close()

    def end_early(self, told: Told) -> bool:
        """Write down how the command ended, while its shell has its state to write yet.

        False where that is not the whole truth yet: the end is that of the shell then.
        """
        request = self.request
        is_plain = request["session"] and request["streams"] == "merged"
        if self.record is not None or self.cause is not None or not is_plain:
            return False
        if request["stdin"] != "null" or request.get("pty") or request.get("memory"):
            return False
        try:
            if memory_of(self.pid) > MOST_EARLY or not processes.is_only_descendant(self.pid):
                return False
            cpu = cpu_of(self.pid) + told.children_cpu
        except OSError:  # no descriptor to look with
            return False
        self.told, self._settle_at = told, clock() + SETTLE_SECS
        facts = {"exitCode": told.status, "signal": None, "error": None, "unsettled": True}
        self.write_record(cause="exit", cpu=cpu, survivors=[], **facts)
        return True

    def settle(self, status: int) -> str | None:
        """The shell that had told its end has ended; what it came to, if not to that."""
        told, self.has_settled, self._settle_at = self.told, True, clock() + HOLD_SECS
        assert told is not None
        if os.WIFSIGNALED(status):
            return f"its shell was killed by signal {os.WTERMSIG(status)}"
        code = exit_code(status)
        return None if code == told.status else f"its shell ended with {code}"

    def kept(self) -> None:
        """An engine has the state."""
        if self.has_settled and self.record is not None:
            self.told = self._settle_at = None
            self.record = {name: v for name, v in self.record.items() if name != "unsettled"}
            self._write_down()

    def state(self) -> dict[str, Any]:
        settling = {} if self.told is None else {"settling": self.told.cwd}
        return {**super().state(), **settling}

    def on_timer(self) -> None:
        super().on_timer()
        if self._settle_at is not None and clock() >= self._settle_at:
            self._settle_at = None
            if self.has_settled:
                self.told = None
            else:
                os.kill(self.pid, signal.SIGKILL)  # not waited for yet: it is nobody else

    def next_timer(self) -> float | None:
        due = (super().next_timer(), self._settle_at)
        return min((at for at in due if at is not None), default=None)

    def end(self, status: int, cpu: float) -> None:
        """Write down how the first process ended: `status` as of wait4(2), `cpu` in seconds."""
        cause, measured = "signal" if os.WIFSIGNALED(status) else "exit", {}
        if self._memory is not None:
            measured = self._memory.measure()
            # Whichever of its processes the kernel took: what went wrong since came of that.
            if measured["oomKills"] and status:
                cause = "out_of_memory"
        # Killed as a whole it leaves nobody, though one or the other may still be dying.
        is_whole = cause == "out_of_memory" and self._memory is not None and self._memory.ends_whole
        has_left = not is_whole and processes.has_children()
        self.write_record(
            cause=cause,
            exitCode=exit_code(status),
            signal=signal_number(status),
            error=None,
            cpu=cpu,
            survivors=self.survivors() if has_left else [],
            **measured,
        )
