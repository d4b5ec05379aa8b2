"""Faults of processes, made for real: killed, stopped, too many of them, a clock that jumps.

Each time: nothing lost, nothing run twice, the caller told, the next call works, nobody left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from acceptance.faulty import of_few_processes
from acceptance.running import LIMIT, NO_FLOOR, Caller, Engine, Gate, called, wait_gone

pytestmark = pytest.mark.fault

STOP_SECS = 4.0
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
HOUR_MS = 3_600_000
HOLD = """
import ctypes, os, sys
ATTACH = 16
libc = ctypes.CDLL(None)
for pid in map(int, sys.argv[1:]):
    if libc.ptrace(ATTACH, pid, None, None) != 0:
        sys.exit("not allowed")
    os.waitpid(pid, 0)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine:
        yield engine


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def named(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


def keepers(engine: Engine) -> list[int]:
    (mother,) = [pid for pid in children(engine.pid) if named(pid) == "engine-mother"]
    return [pid for pid in children(mother) if named(pid) == "engine-keeper"]


def first_line(caller: Caller, task: str) -> str:
    text: str = caller.call("read_output", taskId=task, timeout_secs=20)["text"]
    return text.splitlines()[0]


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


# -- descriptors used up -------------------------------------------------------------------------


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Engine]:
    """An engine that may have 256 descriptors."""
    prefix = ("prlimit", "--nofile=256:256")
    with Engine(tmp_path / "home", *NO_FLOOR, "--slots", "400", prefix=prefix) as engine:
        yield engine


def test_clients_that_use_up_the_descriptors_shut_nobody_out_who_is_in(
    narrow: Engine, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    ran, accepted = 0, []
    with called(narrow) as ci, Gate(tmp_path / "go") as go, Gate(tmp_path / "bell") as bell:
        assert ci.bash("cd /usr; echo 1")["output"] == "1\n"
        early = ci.send(
            "bash", command=f"{bell.tell}; {go.wait}; echo 2 | tee -a {mark}", session=False
        )
        bell.hear()
        crowd = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(300)]
        try:
            for one in crowd:
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):  # the queue of the listener is full too
                    one.connect(str(narrow.home / "engine.sock"))
            while ci.send("bash", command="echo", session=False).message().get("result"):
                assert ci.call("engine_info")["running"] == 1
            go.open()
            refusal = early.error()
            assert (refusal["code"], refusal["data"]["limit"]) == (-32007, "system")
            accepted.append(refusal["data"]["taskId"])
            for _ in range(20):
                assert ci.call("engine_info")["running"] == 0
                message = ci.send("bash", command=f"echo 2 >> {mark}", session=False).message()
                if "error" in message:
                    assert message["error"]["code"] == -32007
                    accepted += [message["error"]["data"].get("taskId")]
                elif message["result"]["status"] == "succeeded":
                    ran += 1
                else:
                    assert message["result"]["reason"] == "spawn_error"
        finally:
            for one in crowd:
                one.close()
        assert ci.bash("pwd")["output"] == "/usr\n"
        # What was begun is known to whoever asked for it, be it by an error.
        ends = [ci.wait(task)["status"] for task in accepted if task is not None]
        assert len(mark.read_text().split()) == ran + ends.count("succeeded")
    limit = time.monotonic() + LIMIT
    while True:  # the engine gets to know of each that has gone, in its time
        try:
            with called(narrow) as ci:
                assert ci.bash("pwd")["output"] == "/usr\n"
                break
        except OSError:
            assert time.monotonic() < limit


def test_jobs_that_use_up_the_descriptors_leave_enough_to_answer_and_to_cancel(
    narrow: Engine,
) -> None:
    with called(narrow) as ci:
        calls = [ci.send("execute", argv=["sleep", "600"], timeout_secs=0) for _ in range(300)]
        running, refused = [], 0
        for call in calls:
            reply = call.result()
            if reply["status"] == "running":
                running.append(reply["taskId"])
            else:
                assert (reply["status"], reply["reason"]) == ("failed", "spawn_error")
                assert "Too many open files" in reply["error"]["message"]
                refused += 1
        assert refused > 50
        assert len(running) > 100
        standing = {ci.wait(task, timeout_secs=0)["status"] for task in running}
        assert standing == {"running"}
        assert ci.bash("echo none left")["reason"] == "spawn_error"
        for call in [ci.send("cancel", taskId=task, grace_secs=0) for task in running]:
            assert call.result()["status"] == "cancelled"
        assert ci.bash("echo well")["output"] == "well\n"
        for call in [ci.send("bash", command="echo $$", session=False) for _ in range(20)]:
            assert call.result()["status"] == "succeeded"


# -- a fork bomb ---------------------------------------------------------------------------------


def test_a_fork_bomb_at_the_limit_of_processes_is_ended_whole_and_the_others_are_answered(
    tmp_path: Path,
) -> None:
    with of_few_processes(tmp_path, 80) as engine, called(engine) as ci:
        other = ci.start("read -r _; echo still here", stdin="open", session=False)["taskId"]
        bomb = ci.start(
            "trap '' TERM; bomb() { bomb | bomb & }; bomb; exec sleep 600", session=False
        )["taskId"]
        page = ci.call("read_output", taskId=bomb, timeout_secs=20)  # bash: fork: retry
        assert "fork" in page["text"]
        began = time.monotonic()
        assert ci.call("engine_info")["running"] == 2
        assert ci.wait(other, timeout_secs=0)["status"] == "running"
        assert time.monotonic() - began < 2
        full = ci.bash("echo no room", session=False)
        assert full["status"] == "succeeded" or full["reason"] in ("spawn_error", "exit")
        done = ci.cancel(bomb, grace_secs=0.5)
        assert (done["status"], done["survivors"]) == ("cancelled", [])
        assert ci.bash("echo $(echo room)")["output"] == "room\n"
        ci.call("write_stdin", taskId=other, text="go\n")
        assert ci.wait(other)["output"] == "still here\n"
        left = [path for path in Path("/proc").iterdir() if _is_of(bomb, path)]
        assert left == []


def _is_of(task: str, process: Path) -> bool:
    """Whether a folder of /proc is that of a process of this task."""
    try:
        environ = (process / "environ").read_bytes()
    except (OSError, NotADirectoryError):
        return False
    return f"ENGINE_TASK_ID={task}".encode() in environ.split(b"\0")


# -- stopped -------------------------------------------------------------------------------------


def test_clients_of_an_engine_that_was_stopped_wait_it_out_and_hear_of_every_end(
    engine: Engine, tmp_path: Path
) -> None:
    with Gate(tmp_path / "go") as go, called(engine) as ci:
        name = "waiting"
        started = [ci.start(f"{go.wait}; echo end {i}; exit {i}", session=False) for i in range(20)]
        tasks = [reply["taskId"] for reply in started]
        clients = [engine.connect() for _ in range(5)]
        try:
            waits = [
                Caller(clients[i % 5], name).send("wait", taskId=task)
                for i, task in enumerate(tasks)
            ]
            for client in clients:
                Caller(client, name).call("engine_info")
            os.kill(engine.pid, signal.SIGSTOP)
            go.open(20)
            sent = ci.send("bash", command="echo while stopped", session=False)
            time.sleep(STOP_SECS)
            assert not sent.is_answered()
            os.kill(engine.pid, signal.SIGCONT)
            ends = [wait.result() for wait in waits]
            assert sent.result()["output"] == "while stopped\n"
            for client in clients:
                assert Caller(client, name).bash("echo on")["output"] == "on\n"
        finally:
            for client in clients:
                client.close()
        assert [end["exitCode"] for end in ends] == list(range(20))
        assert [end["output"] for end in ends] == [f"end {i}\n" for i in range(20)]
        assert max(end["durationMs"] for end in ends) < 1000 * STOP_SECS
        rows = ci.call("list_tasks", limit=100)["tasks"]
        assert sorted(row["taskId"] for row in rows if row["taskId"] in tasks) == sorted(tasks)


def test_the_end_of_a_job_whose_keeper_was_stopped_is_told_when_that_goes_on(
    engine: Engine, tmp_path: Path
) -> None:
    with Gate(tmp_path / "go") as go, called(engine) as ci:
        task = ci.start(f"echo $PPID $$; {go.wait}; echo late; exit 3")["taskId"]
        keeper, shell = map(int, first_line(ci, task).split())
        os.kill(keeper, signal.SIGSTOP)
        go.open()
        wait_gone(shell)
        assert ci.wait(task, timeout_secs=0.2)["status"] == "running"
        assert ci.bash("echo others")["output"] == "others\n"
        waiting = ci.send("wait", taskId=task)
        os.kill(keeper, signal.SIGCONT)
        end = waiting.result()
        assert (end["status"], end["exitCode"]) == ("failed", 3)
        assert end["output"] == f"{keeper} {shell}\nlate\n"


def idle_keepers(caller: Caller, engine: Engine) -> list[int]:
    """The keepers after two jobs, with none."""
    for _ in range(2):
        caller.execute("true")
    time.sleep(0.2)  # nobody tells that they are free
    found = keepers(engine)
    assert found
    return found


def test_an_idle_keeper_that_was_stopped_begins_the_next_job_or_another_does(
    engine: Engine,
) -> None:
    with called(engine) as ci:
        for keeper in idle_keepers(ci, engine):
            os.kill(keeper, signal.SIGSTOP)
        began = time.monotonic()
        assert ci.execute("echo", "on")["output"] == "on\n"
        assert time.monotonic() - began < 4
        assert ci.execute("echo", "well")["output"] == "well\n"


def test_of_keepers_that_a_debugger_holds_none_keeps_a_call_waiting(engine: Engine) -> None:
    with called(engine) as ci:
        with held(idle_keepers(ci, engine)):
            began = time.monotonic()
            assert ci.execute("echo", "on")["output"] == "on\n"
            assert time.monotonic() - began < 4
        assert ci.execute("echo", "well")["output"] == "well\n"


def test_a_job_that_no_keeper_has_begun_is_cancelled_at_once_and_never_runs(
    engine: Engine, tmp_path: Path
) -> None:
    with called(engine) as ci:
        found = idle_keepers(ci, engine)
        with held(found):
            began = time.monotonic()
            call = ci.send("execute", argv=["touch", str(tmp_path / "ran")], timeout_secs=0)
            (row, *_others) = ci.call("list_tasks")["tasks"]
            assert (row["status"], row["title"][:5]) == ("queued", "touch")
            done = ci.cancel(row["taskId"])
            assert (done["status"], done["outcome"]) == ("cancelled", "cancelled")
            assert time.monotonic() - began < 1
            assert call.result()["status"] == "cancelled"
        for _ in range(len(found)):
            assert ci.execute("echo", "well")["output"] == "well\n"
        assert ci.wait(row["taskId"])["status"] == "cancelled"
        assert not (tmp_path / "ran").exists()


@contextlib.contextmanager
def held(pids: list[int]) -> Iterator[None]:
    """A debugger has stopped these processes; skips where none may."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, *map(str, pids)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as debugger:
        assert debugger.stdin is not None
        assert debugger.stdout is not None
        try:
            if debugger.stdout.readline() != "held\n":
                pytest.skip("needs the right to trace")
            yield
        finally:
            debugger.stdin.close()
            debugger.wait(LIMIT)


# -- limited by a job ------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["--fsize=100", "--nofile=60", "--core=7"])
def test_limits_that_a_job_has_given_its_keeper_are_no_other_jobs(
    engine: Engine, limit: str
) -> None:
    if not shutil.which("prlimit"):
        pytest.skip("needs prlimit")
    with called(engine) as ci:
        text = "ulimit -f; ulimit -n; ulimit -c"
        limits = ci.bash(text, session=False)["output"]
        began = time.monotonic()
        for _ in range(3):
            ci.bash(f"prlimit --pid $PPID {limit}:", session=False)
            assert ci.bash(text, session=False)["output"] == limits
        assert time.monotonic() - began < 2
        assert "queue_held" not in engine.log_text()


@pytest.mark.parametrize("change", ["renice -n 7 -p $PPID", "taskset -pc 0 $PPID"])
def test_a_priority_or_processors_that_a_job_has_given_its_keeper_are_no_other_jobs(
    engine: Engine, change: str
) -> None:
    if os.cpu_count() == 1 or not shutil.which("taskset"):
        pytest.skip("needs taskset, and two processors")
    with called(engine) as ci, called(engine) as other:
        text = "nice; grep Cpus_allowed_list /proc/self/status"
        before = other.bash(text, session=False)["output"]
        for _ in range(3):
            assert ci.bash(change, session=False)["exitCode"] == 0
            assert other.bash(text, session=False)["output"] == before


def test_a_lost_task_is_kept_over_the_limit_as_long_as_a_process_of_it_lives(
    tmp_path: Path,
) -> None:
    limit = ("--set", "ended_tasks=1")
    with (
        Engine(tmp_path / "home", *NO_FLOOR, *limit) as engine,
        called(engine) as ci,
        Gate(tmp_path / "bell") as bell,
    ):
        text = f"echo $$; kill -9 $PPID; {bell.tell}; exec sleep 600"
        task = ci.start(text, session=False)["taskId"]
        bell.hear()
        assert ci.wait(task)["status"] == "lost"
        ended = [ci.bash(":")["taskId"] for _ in range(4)]
        ci.call("list_tasks", changed_after=0)
        until = time.monotonic() + LIMIT
        while ended[0] in (left := [row["taskId"] for row in ci.call("list_tasks")["tasks"]]):
            assert time.monotonic() < until
        assert task in left
        (pid,) = ci.cancel(task, grace_secs=0)["signalled"]
        wait_gone(pid)


# -- killed --------------------------------------------------------------------------------------


def test_mother_killed_over_and_over_amid_calls_begins_none_twice_and_loses_none(
    engine: Engine, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    killed: set[int] = set()
    with called(engine) as ci:
        for batch in range(4):
            numbers = range(12 * batch, 12 * batch + 12)  # more than there are keepers at hand
            calls = [
                ci.send("bash", command=f"echo {i} >> {mark}; sleep 0.2; exit {i}", session=False)
                for i in numbers
            ]
            for pid in children(engine.pid):  # mother, whatever her name is so far
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            assert [call.result()["exitCode"] for call in calls] == list(numbers)
    assert len(killed) >= 3
    assert sorted(map(int, mark.read_text().split())) == list(range(48))


def test_an_idle_mother_that_was_killed_is_replaced_with_the_next_job(engine: Engine) -> None:
    with called(engine) as ci:
        ci.bash(":")
        (mother,) = [pid for pid in children(engine.pid) if named(pid) == "engine-mother"]
        os.kill(mother, signal.SIGKILL)
        for i in range(12):  # more than there may be keepers left of hers
            assert ci.bash(f"echo {i}", session=False)["output"] == f"{i}\n"
        calls = [ci.send("bash", command="sleep 0.1", session=False) for _ in range(12)]
        assert {call.result()["status"] for call in calls} == {"succeeded"}


def test_idle_keepers_and_waiting_shells_that_were_killed_cost_no_call_anything(
    engine: Engine, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    with called(engine) as ci:
        ci.bash("cd /usr; export A=1")
        for i in range(5):
            ci.bash(":")
            for call in [ci.send("bash", command=":", session=False) for _ in range(3)]:
                call.result()
            victims = keepers(engine)
            # A shell that waits is its keeper's only child; of one round it alone is killed.
            shells = [pid for keeper in victims for pid in children(keeper)]
            for pid in shells if i % 2 else victims:
                os.kill(pid, signal.SIGKILL)
            for pid in shells if i % 2 else victims:
                wait_gone(pid)
            end = ci.bash(f'echo {i} >> {mark}; echo "$PWD $A"')
            assert (end["status"], end["output"], end["survivors"]) == ("succeeded", "/usr 1\n", [])
    assert mark.read_text() == "".join(f"{i}\n" for i in range(5))


def test_a_session_state_that_went_with_its_keeper_is_told_of(engine: Engine) -> None:
    with called(engine) as ci:
        ci.bash("A=before")
        # More than a socket holds: so it is on its way when the keeper dies.
        text = "echo $PPID $$ >&2; A=after; B=$(head -c 4000000 /dev/zero | tr '\\0' b); sleep 0.5"
        call = ci.send("bash", command=text)
        task = ci.on(ci.client).running_row()["taskId"]
        keeper, _shell = map(int, first_line(ci, task).split())
        os.kill(engine.pid, signal.SIGSTOP)
        written = engine.home / "tasks" / task[1:] / "exit"
        limit = time.monotonic() + LIMIT
        while b"\ncomplete\n" not in written.read_bytes() and time.monotonic() < limit:
            time.sleep(0.01)  # nobody tells of a file
        os.kill(keeper, signal.SIGKILL)
        wait_gone(keeper)
        os.kill(engine.pid, signal.SIGCONT)
        end = call.result()
        assert (end["status"], end["exitCode"]) == ("succeeded", 0)
        (line,) = [line for line in end["logs"] if line["text"].startswith("session state lost")]
        assert (line["level"], line["caller"], line["taskId"]) == ("warning", "ci", task)
        assert ci.bash('echo "$A ${#B}"')["output"] == "before 0\n"


def test_the_interpreter_of_a_session_killed_in_mid_call_fails_that_call_alone(
    engine: Engine,
) -> None:
    with called(engine) as ci:
        code = "import os, time; kept = 1; print(os.getpid(), flush=True); time.sleep(600)"
        task = ci.call("execute", code=code, timeout_secs=0)["taskId"]
        queued = ci.send("execute", code="'kept' in globals()")
        os.kill(int(first_line(ci, task)), signal.SIGKILL)
        end = ci.wait(task)
        assert (end["status"], end["signal"], end["sessionReset"]) == ("failed", "SIGKILL", True)
        following = queued.result()
        assert (following["status"], following["value"]) == ("succeeded", "False")


def test_the_keeper_of_a_session_killed_in_mid_call_makes_it_lost_and_the_next_is_told(
    engine: Engine,
) -> None:
    with called(engine) as ci:
        code = "import os, time; kept = 1; print(os.getppid(), os.getpid(), flush=True)"
        task = ci.call("execute", code=f"{code}; time.sleep(600)", timeout_secs=0)["taskId"]
        keeper, worker = map(int, first_line(ci, task).split())
        assert named(keeper) == "engine-python"
        os.kill(keeper, signal.SIGKILL)
        end = ci.wait(task)
        assert (end["status"], end["sessionReset"]) == ("lost", True)
        assert end["output"] == f"{keeper} {worker}\n"
        following = ci.call("execute", code="'kept' in globals()")
        assert (following["status"], following["value"]) == ("succeeded", "False")
        ci.cancel(task, grace_secs=0)
        wait_gone(worker)


# -- a clock that jumps ----------------------------------------------------------------------------


class Clock:
    """The time of day as the engine's own process is told it; keepers and jobs see the true one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0)

    def set(self, hours: float) -> None:
        """So many hours from the true time."""
        new = self.path.with_suffix(".new")
        new.write_text(f"{hours * 3600:+.0f}\n")
        new.replace(self.path)

    @property
    def env(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self.path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else its locks wait for seconds
            "FAKETIME_DONT_RESET": "1",
        }


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[Clock]:
    if FAKETIME is None:
        pytest.skip("needs libfaketime")
    yield Clock(tmp_path / "clock")
    for path in Path("/dev/shm").glob("*faketime_*"):  # it leaves these where its process is killed
        if not Path(f"/proc/{path.name.rpartition('_')[2]}").exists():
            path.unlink(missing_ok=True)


def test_a_clock_that_jumps_ends_no_job_and_no_wait_and_no_time_is_negative(
    clock: Clock, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with (
        Engine(home, *NO_FLOOR, env=clock.env) as engine,
        Gate(tmp_path / "go") as go,
        called(engine) as ci,
    ):
        began = time.monotonic()
        long = ci.start(f"{go.wait}; echo done", deadline_secs=600, session=False)["taskId"]
        late = ci.start("exec sleep 600", deadline_secs=5, session=False)["taskId"]
        ended = [ci.bash("echo 0")]
        waiting = ci.send("wait", taskId=long, timeout_secs=20)
        late_wait = ci.send("wait", taskId=late, timeout_secs=20)
        for hours in (5, -5, 48, 0):
            clock.set(hours)
            now = ci.call("engine_info")
            assert now["running"] == 2
            standing = ci.wait(long, timeout_secs=0)
            assert standing["status"] == "running"
            assert standing["elapsedMs"] >= 0
            ended.append(ci.bash(f"echo {hours}"))
        assert time.monotonic() - began < 5
        assert not waiting.is_answered()
        timed_out = late_wait.result()
        assert 4.9 < time.monotonic() - began < 10
        assert timed_out["status"] == "timed_out"
        assert 5000 <= timed_out["durationMs"] < 8000
        go.open()
        done = waiting.result()
        assert (done["status"], done["output"]) == ("succeeded", "done\n")
        for end in (*ended, done, timed_out):
            assert 0 <= end["durationMs"] < 10_000
            assert ms(end["endedAt"]) - ms(end["startedAt"]) == end["durationMs"]
            assert ci.wait(end["taskId"])["status"] == end["status"]
        # Newest first is the order of acceptance, whatever the clock said.
        rows = ci.call("list_tasks", limit=100)["tasks"]
        order = [long, late, *(end["taskId"] for end in ended)]
        assert [row["taskId"] for row in rows] == order[::-1]
        jump = ms(ended[1]["createdAt"]) - ms(ended[0]["createdAt"])
        assert abs(jump - 5 * HOUR_MS) < 60_000  # the fault is really there


def test_an_engine_killed_before_and_started_after_a_jump_has_all_in_its_place(
    clock: Clock, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with Engine(home, *NO_FLOOR, env=clock.env) as engine, Gate(tmp_path / "go") as go:
        with called(engine) as ci:
            ended = ci.bash("echo ended; exit 4")
            task = ci.start(f"{go.wait}; echo on", deadline_secs=600)["taskId"]
        for hours in (-30, 6):
            engine.kill()
            clock.set(hours)
            engine.start()
            with called(engine) as ci:
                assert ci.wait(task, timeout_secs=0)["status"] == "running"
                assert ci.wait(ended["taskId"])["exitCode"] == 4
                assert ci.bash("echo new")["output"] == "new\n"
        with called(engine) as ci:
            go.open()
            assert ci.wait(task)["output"] == "on\n"
            rows = ci.call("list_tasks")["tasks"]
            assert [row["taskId"] for row in rows][-2:] == [task, ended["taskId"]]
