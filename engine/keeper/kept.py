"""A claimed task directory: its outputs, its record, and the killing of what runs for it.

What all kinds of tasks have in common below a keeper. Which processes are a task's, the kinds know.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from engine.keeper import processes, shell, taskfiles
from engine.keeper.output import Output
from engine.keeper.spawning import SpawnFailed

KILL_GRACE: Final = 5.0  # seconds from TERM to KILL when the deadline has passed
KILL_ROUND: Final = 0.25  # seconds; see Kept.next_timer
TERM_SECS: Final = 0.5  # to find all who get TERM: a fork bomb is never found whole
LOOK_SECS: Final = 0.01  # from TERM to the first look at those between fork and exec
LOOKS: Final = 6  # each after twice the time of the one before: 0.6 s in all
EXEC_LOOKS: Final = 5  # for the command line of one that is just becoming a program
MAX_SURVIVORS: Final = 32  # listed; `exit` is of one size


def clock() -> float:
    """Seconds that go on while the machine sleeps: what a deadline is measured in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Refused(Exception):
    """The job was not started, and its directory cannot hold why: `errno` and the text."""

    def __init__(self, text: str, errno: int = 0) -> None:
        super().__init__(text)
        self.errno = errno


class Kept:
    """One task. request: at least {dir, streams, deadline, cap}; see `job.Job`.

    Raises OSError. Where `is_ours` is False another has the claim, and nothing is open.
    """

    def __init__(self, request: dict[str, Any], keeper: str) -> None:
        self.request = request
        self.pid = 0
        self.cwd = ""
        self.outputs: list[Output] = []
        self.record: dict[str, Any] | None = None  # how it ended
        self.cause: str | None = None  # why we are killing it, if we are
        self.deadline_at: float | None = None
        self.kill_at: float | None = None
        self.started_at = 0  # wall clock, ms
        self._started = 0.0
        self._exit_fd = -1
        self._is_killing = False  # the grace is over
        self._forked: dict[int, str] = {}  # got TERM as the copy of their parent; its command
        self._look_at: float | None = None  # when to see what became of them
        self._looks = 0
        self.dir_fd = os.open(request["dir"], os.O_DIRECTORY | taskfiles.SAFE_FLAGS)
        try:
            self.is_ours = taskfiles.take_claim(self.dir_fd, keeper)
        except OSError:
            os.close(self.dir_fd)
            raise
        if not self.is_ours:
            os.close(self.dir_fd)

    def processes(self) -> list[int]:
        """The living processes of this task, parents before children."""
        raise NotImplementedError

    # -- start and end -------------------------------------------------------------------------

    def open_files(self, exit_size: int = taskfiles.EXIT_SIZE) -> None:
        """Reserve the record's place and open the outputs; the clock runs. Raises Refused."""
        made: list[str] = []
        try:
            self._exit_fd = taskfiles.reserve_exit(self.dir_fd, exit_size)
            made.append(taskfiles.EXIT)
            names = ("stdout", "stderr") if self.request["streams"] == "split" else ("output",)
            for name in names:
                self.outputs.append(self.open_output(name))
                made.append(name)
        except OSError as exc:
            with contextlib.suppress(OSError):  # then the claim stands, and the engine says lost
                taskfiles.undo_claim(self.dir_fd, made)
            raise Refused(f"task directory: {exc.strerror}", exc.errno or 0) from exc
        self.started_at, self._started = int(time.time() * 1000), clock()

    def open_output(self, name: str) -> Output:
        """The file `name` and where it comes from. Raises OSError."""
        return Output(self.dir_fd, name, self.request["cap"])

    def begin_deadline(self) -> None:
        if self.request["deadline"] is not None:
            self.deadline_at = self._started + self.request["deadline"]

    def write_record(
        self, *, cause: str, cpu: float, survivors: list[dict[str, Any]], **facts: Any
    ) -> None:
        """Write down how the task ended: `cpu` in seconds, `facts` as they stand.

        A cause that we began before the end wins over what the end looks like.
        """
        duration = clock() - self._started
        self.deadline_at = None  # it was the job's; who is left behind has none
        for output in self.outputs:
            output.drain()
        self.record = {
            "pid": self.pid,
            "cause": cause if cause == "spawn_error" else self.cause or cause,
            **facts,
            "startedAt": self.started_at,
            "endedAt": self.started_at + int(duration * 1000),
            "durationMs": int(duration * 1000),
            "cpuMs": int(cpu * 1000),
            "cwd": self.cwd,
            "survivors": survivors,
            **self.sizes(),
        }
        self._write_down()

    def write_spawn_failure(self, error: SpawnFailed, **facts: Any) -> None:
        """Write down that there was nothing to start."""
        failure = {"errno": error.errno, "message": str(error)}
        facts = {"exitCode": error.exit_code, "signal": None, "error": failure, **facts}
        self.write_record(cause="spawn_error", cpu=0.0, survivors=[], **facts)

    def _write_down(self) -> None:
        assert self.record is not None
        try:
            taskfiles.write_exit(self._exit_fd, self.record)
        except OSError as exc:
            # A failing disk. Whoever listens is told all the same, and survivors stay kept.
            print(f"exit of {self.request['dir']} not written: {exc}", file=sys.stderr, flush=True)

    def sizes(self) -> dict[str, Any]:
        """Bytes seen and ranges dropped, a list entry for each file."""
        return {
            "sizes": [output.size for output in self.outputs],
            "dropped": [output.dropped for output in self.outputs],
        }

    def state(self) -> dict[str, Any]:
        """All there is to know for one who attaches."""
        facts = {"pid": self.pid, "startedAt": self.started_at, "cwd": self.cwd}
        return {**facts, "record": self.record, **self.sizes()}

    def close(self) -> dict[str, Any]:
        """Let go of the files; what processes wrote after the end is added to its record.

        Returns the last `sizes`.
        """
        for output in self.outputs:
            output.drain()
            output.close()
        sizes = self.sizes()
        if self.record is not None and self.record["sizes"] != sizes["sizes"]:
            self.record = {**self.record, **sizes}
            self._write_down()
        if self._exit_fd >= 0:
            os.close(self._exit_fd)
        os.close(self.dir_fd)
        return sizes

    # -- what is left, and killing it ------------------------------------------------------------

    def _living(self) -> list[int]:
        """`processes`; nobody where the system has no descriptor left to look with.

        Whoever kills looks again after KILL_ROUND. A keeper that died of it would leave them all.
        """
        try:
            return self.processes()
        except OSError as exc:
            print(f"processes not listed: {exc}", file=sys.stderr, flush=True)
            return []

    def survivors(self) -> list[dict[str, Any]]:
        """The processes of this task, with their command lines."""
        found = self._living()[:MAX_SURVIVORS]
        commands = [shell.shown(processes.command(pid, EXEC_LOOKS)) for pid in found]
        return [{"pid": pid, "command": text} for pid, text in zip(found, commands, strict=True)]

    def begin_kill(self, cause: str, grace: float) -> list[int]:
        """TERM to every process, KILL after `grace` seconds; the pids that were signalled."""
        if self.record is None:
            self.cause = self.cause or cause
        kill_at = clock() + grace
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        self.deadline_at = None
        signalled = end_all(self._living, self._forked)
        self._look_at, self._looks = clock() + LOOK_SECS, 0
        return signalled

    def _look_again(self, now: float) -> None:
        """TERM once more to those that have become a program since.

        Between fork and exec a child still has the handlers of its shell: a TERM that comes then
        ends nothing, and the program that the child becomes never hears of it.
        """
        for pid, command in list(self._forked.items()):
            if processes.command(pid) != command:
                send((pid,), signal.SIGTERM)
                del self._forked[pid]
        self._looks += 1
        self._look_at = now + LOOK_SECS * 2**self._looks if self._looks < LOOKS else None

    def kill(self) -> None:
        """KILL every process that is there now."""
        kill_all(self._living)

    def stop_killing(self) -> None:
        """Nobody is left to kill; whoever comes from here on was not meant."""
        self.kill_at = self._look_at = None
        self._is_killing = False

    def on_timer(self) -> None:
        """Do what is due: the deadline, or KILL for what the grace has not ended."""
        now = clock()
        if self.deadline_at is not None and now >= self.deadline_at:
            self.begin_kill("deadline", KILL_GRACE)
        if self._look_at is not None and now >= self._look_at:
            self._look_again(now)
        if self.kill_at is not None and now >= self.kill_at:
            self._is_killing = True
            self.kill()
            self.kill_at = now + KILL_ROUND

    def next_timer(self) -> float | None:
        """When `on_timer` is due (`clock` seconds).

        After the first KILL the next round is due at each death of a child, since its own children
        are ours then; the round by time is for a process that took part in no death we saw.
        """
        due = [at for at in (self.deadline_at, self.kill_at, self._look_at) if at is not None]
        return min(due) if due else None

    def on_child_gone(self) -> None:
        """Go on killing: the children of the one that died have just become ours."""
        if self._is_killing:
            self.kill()


def end_all(living: Callable[[], list[int]], forked: dict[int, str]) -> list[int]:
    """TERM to all that `living` names, until it names nobody new; those who got it.

    Notes in `forked` who, with the command line of its parent, may be about to become a program.
    """
    signalled: dict[int, None] = {}
    enough_at = clock() + TERM_SECS
    while fresh := [pid for pid in living() if pid not in signalled]:
        commands = {pid: processes.command(pid) for pid in (*signalled, *fresh)}
        for pid in fresh:
            parent = processes.parent(pid)
            if commands[pid] and commands[pid] == commands.get(parent):
                forked[pid] = commands[pid]
        # A stopped process does not see TERM before it is continued.
        send(fresh, signal.SIGTERM)
        send(fresh, signal.SIGCONT)
        signalled.update(dict.fromkeys(fresh))
        if clock() >= enough_at:
            break
    return list(signalled)


def kill_all(living: Callable[[], Iterable[int]]) -> None:
    """KILL all that `living` names, each stopped when named, so that none forks its way out."""
    seen: set[int] = set()
    has_new = True
    while has_new:
        has_new = False
        for pid in living():
            if pid not in seen:
                send((pid,), signal.SIGSTOP)
                seen.add(pid)
                has_new = True
    send(seen, signal.SIGKILL)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each of `pids`; one that has just gone is what we wanted."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # gone, or grown out of our reach by setuid: then it is listed as survivor
