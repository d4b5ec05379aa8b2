"""One job of a keeper: started, watched, ended, and every process that came of it killed.

A job ends when its first process does. Processes that it left behind live on below the keeper,
which goes on copying their output; they are gone when the kernel says that no child is left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys
import time
from typing import Any, Final

from engine.keeper import processes, taskfiles
from engine.keeper.output import Output

KILL_GRACE: Final = 5.0  # seconds from TERM to KILL when the deadline has passed
KILL_ROUND: Final = 0.25  # seconds; see Job.next_timer
TERM_SECS: Final = 0.5  # to find all who get TERM: a fork bomb is never found whole
OOM_SCORE: Final = 300  # added for the job: the kernel takes it before its keeper
MAX_OOM_SCORE: Final = 1000  # proc(5)
MAX_SURVIVORS: Final = 32  # listed; `exit` is one block
_NOT_FOUND: Final = (errno.ENOENT, errno.ENOTDIR)


def clock() -> float:
    """Seconds that go on while the machine sleeps: what a deadline is measured in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Refused(Exception):
    """The job was not started, and its directory cannot hold why."""


class SpawnFailed(Exception):
    """The program could not be started; 127 or 126 is what a shell would exit with."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {os.strerror(code)}")
        self.errno = code
        self.exit_code = 127 if code in _NOT_FOUND else 126


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


# What a request cannot do without: looked at before the claim is taken.
REQUIRED: Final = frozenset(
    ("dir", "argv", "env", "cwd", "cwd_or_parent", "umask", "stdin", "streams", "deadline", "cap")
    + ("session", "prologue", "fds")
)


class Job:
    """A claimed task directory and the processes that come of it.

    request: {dir, argv, path?, env, cwd, cwd_or_parent, umask, stdin, streams, deadline, cap,
    session, fds, nofile?}; `deadline` in seconds from the start, `cap` in bytes of output kept in
    each file, `nofile` the job's own soft limit of descriptors.
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
        self.dir_fd = os.open(request["dir"], os.O_DIRECTORY | taskfiles.SAFE_FLAGS)
        try:
            self.is_ours = taskfiles.take_claim(self.dir_fd, keeper)
        except OSError:
            os.close(self.dir_fd)
            raise
        if not self.is_ours:
            os.close(self.dir_fd)

    # -- start ---------------------------------------------------------------------------------

    def start(self, stdin: int | None) -> None:
        """Start the first process. Raises Refused; a program that cannot run is an ended job."""
        made: list[str] = []
        try:
            self._exit_fd = taskfiles.reserve_exit(self.dir_fd)
            made.append(taskfiles.EXIT)
            names = ("stdout", "stderr") if self.request["streams"] == "split" else ("output",)
            for name in names:
                self.outputs.append(Output(self.dir_fd, name, self.request["cap"]))
                made.append(name)
        except OSError as exc:
            with contextlib.suppress(OSError):  # then the claim stands, and the engine says lost
                taskfiles.undo_claim(self.dir_fd, made)
            raise Refused(f"task directory: {exc.strerror}") from exc
        self.started_at, self._started = int(time.time() * 1000), clock()
        try:
            self._spawn(stdin)
        except SpawnFailed as exc:
            self.end(None, 0.0, error=exc)
            return
        finally:
            for output in self.outputs:
                output.close_write_end()
        if self.request["deadline"] is not None:
            self.deadline_at = self._started + self.request["deadline"]
        self._be_first_out_of_memory()

    def _spawn(self, stdin: int | None) -> None:
        request, ends = self.request, [output.take_write_end() for output in self.outputs]
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_DUP2, ends[0], 1),
            (os.POSIX_SPAWN_DUP2, ends[-1], 2),
        ]
        if stdin is None:
            actions.append((os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0))
        else:
            actions.append((os.POSIX_SPAWN_DUP2, stdin, 0))
        mask = os.umask(request["umask"])
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        program = request["argv"][0]
        try:
            self.cwd = enter_directory(request["cwd"], or_parent=request["cwd_or_parent"])
            program = request.get("path") or find_program(program, request["env"])
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (request.get("nofile", limits[0]), limits[1])
            )
            self.pid = os.posix_spawn(
                program,
                request["argv"],
                {**request["env"], "PWD": self.cwd},
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        except OSError as exc:
            raise SpawnFailed(exc.errno or 0, program) from exc
        except ValueError as exc:  # a NUL, a name of a variable with `=`, half a surrogate pair
            raise SpawnFailed(errno.EINVAL, f"{program}: {exc}") from exc
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            os.umask(mask)
            os.chdir("/")

    def _be_first_out_of_memory(self) -> None:
        with open("/proc/self/oom_score_adj") as file:
            score = min(int(file.read()) + OOM_SCORE, MAX_OOM_SCORE)
        try:
            with open(f"/proc/{self.pid}/oom_score_adj", "w") as file:
                file.write(str(score))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return  # it has ended already, or runs as somebody else: then it is not ours to mark

    # -- end -----------------------------------------------------------------------------------

    def end(self, status: int | None, cpu: float, *, error: SpawnFailed | None = None) -> None:
        """Write down how the first process ended: `status` as of wait4(2), `cpu` in seconds."""
        duration = clock() - self._started
        self.deadline_at = None  # it was the job's; who is left behind has none
        for output in self.outputs:
            output.drain()
        if error is not None:
            cause = "spawn_error"
        elif self.cause is not None:
            cause = self.cause
        else:
            cause = "signal" if status is not None and os.WIFSIGNALED(status) else "exit"
        self.record = {
            "pid": self.pid,
            "cause": cause,
            "exitCode": error.exit_code if error else _exit_code(status),
            "signal": _signal_number(status),
            "error": {"errno": error.errno, "message": str(error)} if error else None,
            "startedAt": self.started_at,
            "endedAt": self.started_at + int(duration * 1000),
            "durationMs": int(duration * 1000),
            "cpuMs": int(cpu * 1000),
            "cwd": self.cwd,
            "survivors": self.survivors() if error is None else [],
            **self.sizes(),
        }
        self._write_down()

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

    def survivors(self) -> list[dict[str, Any]]:
        """The processes below this keeper, with their command lines."""
        found = processes.descendants(os.getpid())[:MAX_SURVIVORS]
        return [{"pid": pid, "command": processes.command(pid)} for pid in found]

    def begin_kill(self, cause: str, grace: float) -> list[int]:
        """TERM to every process, KILL after `grace` seconds; the pids that were signalled."""
        if self.record is None:
            self.cause = self.cause or cause
        kill_at = clock() + grace
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        self.deadline_at = None
        signalled: dict[int, None] = {}
        enough_at = clock() + TERM_SECS
        while fresh := [p for p in processes.descendants(os.getpid()) if p not in signalled]:
            # A stopped process does not see TERM before it is continued.
            send(fresh, signal.SIGTERM)
            send(fresh, signal.SIGCONT)
            signalled.update(dict.fromkeys(fresh))
            if clock() >= enough_at:
                break
        return list(signalled)

    def on_timer(self) -> None:
        """Do what is due: the deadline, or KILL for what the grace has not ended."""
        now = clock()
        if self.deadline_at is not None and now >= self.deadline_at:
            self.begin_kill("deadline", KILL_GRACE)
        if self.kill_at is not None and now >= self.kill_at:
            self._is_killing = True
            kill_all()
            self.kill_at = now + KILL_ROUND

    def next_timer(self) -> float | None:
        """When `on_timer` is due (`clock` seconds).

        After the first KILL the next round is due at each death of a child, since its own children
        are ours then; the round by time is for a process that took part in no death we saw.
        """
        due = [at for at in (self.deadline_at, self.kill_at) if at is not None]
        return min(due) if due else None

    def on_child_gone(self) -> None:
        """Go on killing: the children of the one that died have just become ours."""
        if self._is_killing:
            kill_all()


def kill_all() -> None:
    """KILL every process below this one, stopped first so that none forks its way out."""
    seen: set[int] = set()
    while fresh := [pid for pid in processes.descendants(os.getpid()) if pid not in seen]:
        send(fresh, signal.SIGSTOP)
        seen.update(fresh)
    send(seen, signal.SIGKILL)


def send(pids: Any, number: signal.Signals) -> None:
    """Signal each of `pids`; one that has just gone is what we wanted."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # gone, or grown out of our reach by setuid: then it is listed as survivor


def _exit_code(status: int | None) -> int | None:
    return os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None


def _signal_number(status: int | None) -> int | None:
    return os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
