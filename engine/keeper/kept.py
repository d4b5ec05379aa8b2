"""A claimed task directory: its outputs, its record, and the killing of what runs for it.

What all kinds of tasks have in common below a keeper. Which processes are a task's, the kinds know.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any, Final

from engine.keeper import listening, processes, shell, taskfiles
from engine.keeper.blocked import IDLE_SECS, Blocked
from engine.keeper.killing import end_all, kill_all, send
from engine.keeper.output import Output
from engine.keeper.saying import say
from engine.keeper.spawning import SpawnFailed

KILL_GRACE: Final = 5.0  # seconds from TERM to KILL when the deadline has passed
KILL_ROUND: Final = 0.25  # seconds; see Kept.next_timer
LOOK_SECS: Final = 0.01  # from TERM to the first look at those between fork and exec
LOOKS: Final = 6  # each after twice the time of the one before: 0.6 s in all
EXEC_LOOKS: Final = 5  # for the command line of one that is just becoming a program
MESSAGE_LENGTH: Final = 400  # characters of why there was nothing to start
MAX_SURVIVORS: Final = 32  # listed; `exit` is of one size


def clock() -> float:
    """Seconds that go on while the machine sleeps: what a deadline is measured in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def clipped(text: str) -> str:
    """What an error says, with its beginning and its end: a name in it may be a whole script."""
    if len(text) <= MESSAGE_LENGTH:
        return text
    half = MESSAGE_LENGTH // 2
    return f"{text[:half]} … {text[-half:]}"


class Refused(Exception):
    """The job was not started, and its directory cannot hold why: `errno` and the text."""

    def __init__(self, text: str, errno: int = 0) -> None:
        super().__init__(text)
        self.errno = errno


class Kept:
    """One task. request: at least {dir, streams, deadline, cap}, idle?, port?; see `job.Job`.

    `idle`: seconds of standing still that are told of; `port`: where it will listen. Raises
    OSError. Where `is_ours` is False another has the claim, and nothing is open.
    """

    def __init__(self, request: dict[str, Any], keeper: str | taskfiles.Mark) -> None:
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
        self._blocked: Blocked | None = None  # while it runs
        self._heard_before: frozenset[int] | None = None  # sockets at `port` before it began
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
        if self.request.get("port") is not None:
            self._heard_before = listening.listeners(self.request["port"])
        self.started_at, self._started = int(time.time() * 1000), clock()

    def open_output(self, name: str) -> Output:
        """The file `name` and where it comes from. Raises OSError."""
        return Output(self.dir_fd, name, self.request["cap"])

    def begin_timers(self) -> None:
        """The job runs: its deadline counts, and whether it is blocked is looked at."""
        if self.request["deadline"] is not None:
            self.deadline_at = self._started + self.request["deadline"]
        idle_secs = self.request.get("idle", IDLE_SECS)
        self._blocked = Blocked(clock, self.hangs_on_input(), self._measure, idle_secs)

    def hangs_on_input(self) -> Callable[[], bool] | None:
        """What tells whether the job hangs on its input now; None: it can be given none."""
        return None

    def measured(self) -> list[int]:
        """The processes whose time is the task's."""
        return self._living()

    def _measure(self) -> frozenset[tuple[int, ...]]:
        return processes.times(self.measured())

    @property
    def blocked(self) -> str | None:
        """What the job is blocked on as far as is known: see `blocked`."""
        return self._blocked.category if self._blocked is not None else None

    def stir(self) -> None:
        """The job has written, or was written to."""
        if self._blocked is not None:
            self._blocked.stir()

    def write_record(
        self, *, cause: str, cpu: float, survivors: list[dict[str, Any]], **facts: Any
    ) -> None:
        """Write down how the task ended: `cpu` in seconds, `facts` as they stand.

        A cause that we began before the end wins over what the end looks like.
        """
        duration = clock() - self._started
        self.deadline_at = self._blocked = None  # they were the job's; who is left behind has none
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
        failure = {"errno": error.errno, "message": clipped(str(error))}
        facts = {"exitCode": error.exit_code, "signal": None, "error": failure, **facts}
        self.write_record(cause="spawn_error", cpu=0.0, survivors=[], **facts)

    def _write_down(self) -> None:
        assert self.record is not None
        try:
            taskfiles.write_exit(self._exit_fd, self.record)
        except OSError as exc:
            # A failing disk. Whoever listens is told all the same, and survivors stay kept.
            say(f"exit of {self.request['dir']} not written: {exc}")

    def sizes(self) -> dict[str, Any]:
        """Bytes seen and ranges dropped, a list entry for each file."""
        return {
            "sizes": [output.size for output in self.outputs],
            "dropped": [output.dropped for output in self.outputs],
        }

    def state(self) -> dict[str, Any]:
        """All there is to know for one who attaches."""
        facts = {"pid": self.pid, "startedAt": self.started_at, "cwd": self.cwd}
        return {**facts, "record": self.record, "blocked": self.blocked, **self.sizes()}

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
            say(f"processes not listed: {exc}")
            return []

    def survivors(self) -> list[dict[str, Any]]:
        """The processes of this task, with their command lines."""
        found = self._living()[:MAX_SURVIVORS]
        commands = [shell.shown(processes.command(pid, EXEC_LOOKS)) for pid in found]
        return [{"pid": pid, "command": text} for pid, text in zip(found, commands, strict=True)]

    def listener(self) -> str:
        """Whose socket listens at the port of the request.

        `job`: one of the task's processes has it. `new`: nobody of them that we may look at, but
        it came after the task. `before`: it was there before. `none`, `unknown`.
        """
        found = listening.listeners(self.request["port"])
        if found is None or self._heard_before is None:
            return "unknown"
        if not found:
            return "none"
        if listening.has_any(self.measured(), found):
            return "job"
        return "new" if found - self._heard_before else "before"

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
        """Do what is due: a look, the deadline, or KILL for what the grace has not ended."""
        now = clock()
        if self._blocked is not None and now >= self._blocked.next_timer():
            self._blocked.on_timer()
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
        looks = self._blocked.next_timer() if self._blocked is not None else None
        due = (self.deadline_at, self.kill_at, self._look_at, looks)
        return min((at for at in due if at is not None), default=None)

    def on_child_gone(self) -> None:
        """Go on killing: the children of the one that died have just become ours."""
        if self._is_killing:
            self.kill()
