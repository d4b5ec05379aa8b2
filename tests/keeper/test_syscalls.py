"""Mirrors `engine/keeper/syscalls.py`: a child that waits in a way that the test has said."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.keeper import syscalls

LIMIT = 10.0  # seconds

# Descriptor 0 is a pipe that nobody writes; 1 and 2 are others of this test's.
CHOICES = {
    "select": "import select; select.select([0], [1], [0], None)",
    "select in time": "import select; select.select([0], [], [2], 60)",
    "poll": "import select as s; p = s.poll(); p.register(0, 1); p.register(2, 2); p.poll()",
    "poll in time": "import select as s; p = s.poll(); p.register(0, 1); p.poll(60000)",
    "poll below zero": "import select as s; p = s.poll(); p.register(0, 1); p.poll(-5000)",
    "epoll": "import select as s; p = s.epoll(); p.register(0, 1); p.register(2, 4); p.poll()",
    "epoll in time": "import select as s; p = s.epoll(); p.register(0, 1); p.poll(60)",
}
FOUND = {
    "select": ({0: True, 1: False}, False),
    "select in time": ({0: True, 2: False}, True),
    "poll": ({0: True, 2: False}, False),
    "poll in time": ({0: True}, True),
    "poll below zero": ({0: True}, False),
    "epoll": ({0: True, 2: False}, False),
    "epoll in time": ({0: True}, True),
}


@contextmanager
def waiting(code: str) -> Iterator[int]:
    """A Python process in this code, whose output is never ready to be written."""
    ends = [os.pipe() for _ in range(2)]
    for _read_end, write_end in ends:
        os.set_blocking(write_end, False)
        try:
            while os.write(write_end, bytes(4096)):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(write_end, True)
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=ends[0][1],
        stderr=ends[1][1],
    )
    try:
        yield child.pid
    finally:
        child.kill()
        child.communicate()
        for end in (fd for pair in ends for fd in pair):
            os.close(end)


def call_until(pid: int, *names: str) -> syscalls.Call:
    """What it is in, once that is one of these; nothing tells when it gets there."""
    until = time.monotonic() + LIMIT
    while (call := syscalls.call_of(pid, str(pid))).name not in names:
        assert time.monotonic() < until, call
        time.sleep(0.01)
    return call


@pytest.mark.parametrize("name", CHOICES)
def test_what_a_choice_waits_for_and_whether_it_ends_by_time_is_read(name: str) -> None:
    with waiting(CHOICES[name]) as pid:
        call = call_until(pid, "select", "poll", "ppoll", "epoll", "epoll2")
        assert call.is_choice
        assert (syscalls.awaited(pid, call), call.is_timed) == FOUND[name]


@pytest.mark.parametrize(
    ("code", "name", "first"),
    [
        ("import os; os.read(0, 1)", "read", 0),
        ("import os; os.readv(0, [bytearray(1)])", "read", 0),
        ("import os; os.write(1, b'x')", "write", 1),
        ("import signal; signal.pause()", "signal", None),
        ("import threading; threading.Event().wait()", "lock", None),
    ],
)
def test_other_calls_have_names_of_their_kind(code: str, name: str, first: int | None) -> None:
    with waiting(code) as pid:
        call = call_until(pid, name)
        assert not call.is_choice
        assert first is None or call.args[0] == first


def test_a_process_that_runs_is_in_no_call() -> None:
    with waiting("while True: pass") as pid:
        stat = Path(f"/proc/{pid}/stat")
        until = time.monotonic() + LIMIT
        while int(stat.read_text().rpartition(")")[2].split()[11]) < 30:  # has left its start
            assert time.monotonic() < until
        assert syscalls.call_of(pid, str(pid)) == syscalls.NONE


def test_a_process_that_is_gone_cannot_be_looked_at() -> None:
    with pytest.raises(FileNotFoundError):
        syscalls.call_of(2**22 - 1, str(2**22 - 1))


def test_more_than_a_wait_may_hold_is_not_read() -> None:
    call = syscalls.Call("poll", (0, 1 << 40, 0, 0, 0, 0))
    with pytest.raises(ValueError, match="more than is looked at"):
        syscalls.awaited(os.getpid(), call)
    nowhere = syscalls.Call("poll", (8, 1, 0, 0, 0, 0))
    with pytest.raises(OSError, match="error"):
        syscalls.awaited(os.getpid(), nowhere)
