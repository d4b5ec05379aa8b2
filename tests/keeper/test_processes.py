"""Mirrors `engine/keeper/processes.py`: real processes, /proc as the kernel has it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.keeper import processes

LEADERLESS = (
    "import ctypes, os, threading\n"
    "threading.Thread(target=lambda: (print('up', flush=True), os.read(0, 1))).start()\n"
    "ctypes.CDLL(None).syscall(60, 0)\n"  # exit(2) of the first thread alone
)


@contextlib.contextmanager
def child(*argv: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process with pipes for its input and output, killed and reaped afterwards."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what the kernel has no event for."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 10)[0], "nothing was printed"
    return process.stdout.readline()


def test_the_boot_has_a_random_name() -> None:
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", processes.boot_id())


def test_identity_is_pid_start_and_boot() -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert processes.identity(os.getpid()) == f"{os.getpid()} {fields[19]} {boot}"


def test_a_process_that_is_gone_has_no_identity() -> None:
    with child("true") as process:
        process.wait(10)
        with pytest.raises(ProcessLookupError):
            processes.identity(process.pid)
        assert processes.start_time(process.pid) is None


def test_an_identity_is_alive_until_its_process_ends() -> None:
    with child("cat") as process:
        who = processes.identity(process.pid)
        assert processes.is_alive(who)
    assert not processes.is_alive(who)


def test_a_zombie_is_not_alive() -> None:
    with child("cat") as process:
        who = processes.identity(process.pid)
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.kill(process.pid, 0)  # which the kernel allows: this is why it is no test of life
        assert not processes.is_alive(who)
        assert not processes.is_running(process.pid)


def test_a_namesake_is_not_alive() -> None:
    pid, started, boot = processes.identity(os.getpid()).split()
    assert not processes.is_alive(f"{pid} {int(started) + 1} {boot}")
    assert not processes.is_alive(f"{pid} {started} 00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize(
    "text", ["", "engine", "1", "x y z", "-1 0 {boot}", "{pid} {boot}", "1 2 3 4"]
)
def test_what_is_no_identity_is_not_alive(text: str) -> None:
    assert not processes.is_alive(text.format(pid=os.getpid(), boot=processes.boot_id()))


def test_a_name_full_of_brackets_and_spaces_hides_nothing() -> None:
    script = "open('/proc/self/comm', 'w').write(') Z 1 (x) '); print('up', flush=True); input()"
    with child(sys.executable, "-c", script) as process:
        started = processes.start_time(process.pid)
        assert first_line(process) == b"up\n"
        assert Path(f"/proc/{process.pid}/comm").read_text() == ") Z 1 (x) \n"
        assert processes.start_time(process.pid) == started
        assert processes.is_running(process.pid)


def test_a_process_whose_first_thread_has_left_is_running() -> None:
    with child(sys.executable, "-c", LEADERLESS) as process:
        assert first_line(process) == b"up\n"
        who = processes.identity(process.pid)
        until(lambda: " Z " in Path(f"/proc/{process.pid}/stat").read_text())
        assert processes.is_running(process.pid)
        assert processes.is_alive(who)
        assert process.pid in processes.descendants(os.getpid())


@pytest.mark.parametrize("has_children_file", [True, False])
def test_descendants_are_all_below_parents_first_and_no_zombie(
    monkeypatch: pytest.MonkeyPatch, has_children_file: bool
) -> None:
    monkeypatch.setattr(processes, "_HAS_CHILDREN_FILE", has_children_file)
    script = (
        "import os, subprocess\n"
        "a = subprocess.Popen(['sh', '-c', 'sleep 600 & echo; wait'], stdout=subprocess.PIPE)\n"
        "a.stdout.readline()\n"  # it has forked
        "z = subprocess.Popen(['true'])\n"
        "os.waitid(os.P_PID, z.pid, os.WEXITED | os.WNOWAIT)\n"
        "print(a.pid, z.pid, flush=True)\n"
        "input()\n"
    )
    with child(sys.executable, "-c", script) as process:
        shell, zombie = map(int, first_line(process).split())
        found = processes.descendants(process.pid)
        assert found[0] == shell
        assert zombie not in found
        assert len(found) == 2
        for pid in found:
            os.kill(pid, 9)


def test_a_process_is_named_before_its_children_are_looked_at() -> None:
    with child("sh", "-c", "read x; sleep 600 & echo $!; wait") as process:
        walk = processes.walk(os.getpid())
        while next(walk) != process.pid:
            pass
        assert process.stdin is not None
        process.stdin.write(b"fork\n")
        process.stdin.flush()
        sleep = int(first_line(process))
        assert sleep in walk
        os.kill(sleep, 9)


THREADS_WITH_CHILDREN = """
import subprocess, sys, threading
def work():
    child = subprocess.Popen(["sleep", "600"])
    children.append(child)
    print(child.pid, flush=True)
children = []
for line in sys.stdin:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    sys.stdin.readline()
    children.pop().kill()
"""


def test_a_child_is_found_while_the_thread_that_began_it_ends() -> None:
    with child(sys.executable, "-c", THREADS_WITH_CHILDREN) as process:
        assert process.stdin is not None
        for _ in range(300):
            process.stdin.write(b"\n")
            process.stdin.flush()
            pid = int(first_line(process))
            assert pid in processes.descendants(process.pid)
            process.stdin.write(b"\n")
            process.stdin.flush()
        process.stdin.close()
        assert process.wait(10) == 0


def test_nobody_is_below_a_process_that_is_gone() -> None:
    with child("true") as process:
        process.wait(10)
    assert processes.descendants(process.pid) == []


def test_a_command_is_one_printable_line() -> None:
    with child(
        sys.executable, "-c", "print('up', flush=True); input()", "a\nb\x1b[31m", "é", "\udcff"
    ) as process:
        first_line(process)
        line = processes.command(process.pid)
    bad = "\N{REPLACEMENT CHARACTER}"
    assert line.endswith(f"input() a{bad}b{bad}[31m é {bad}")
    assert "\n" not in line


def test_a_long_command_is_cut_at_200_characters() -> None:
    with child(sys.executable, "-c", "print('up', flush=True); input()", "x" * 5000) as process:
        first_line(process)
        assert len(processes.command(process.pid)) == 200


def test_a_process_without_a_command_line_is_shown_by_its_name() -> None:
    with child("cat") as process:
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes.command(process.pid) == "[cat]"
    assert processes.command(process.pid) == ""


def test_processes_are_found_by_the_variable_they_were_started_with() -> None:
    mark = f"t{os.getpid()}"
    with child("cat", env={"ENGINE_TASK_ID": mark}) as process, child("cat", env={"OTHER": mark}):
        assert processes.with_variable("ENGINE_TASK_ID", mark) == [process.pid]
        assert processes.with_variable("ENGINE_TASK_ID", mark[:-1]) == []
