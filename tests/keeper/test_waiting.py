"""Mirrors `engine/keeper/waiting.py`: real programs below real keepers, who hangs on its input."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from keeper.harness import LIMIT, KeeperClient, Nursery, bash, nursery

from engine.keeper import syscalls, waiting

ROOT = Path(__file__).parents[2]
PYTHON = "python3 -c"


class Case(NamedTuple):
    text: str
    pty: bool = False
    needs: str = "bash"  # a program


HANGS = {
    "read": Case("read x"),
    "a prompt at a terminal": Case('read -p "name? " x', pty=True),
    "cat": Case("cat"),
    "cat at a terminal": Case("cat", pty=True),
    "a shell at a terminal": Case("exec bash --norc -i", pty=True),
    "python at a terminal": Case("python3 -q", pty=True),
    "python": Case("python3 -i"),
    "input()": Case(f"{PYTHON} \"input('who? ')\""),
    "a password": Case(f"{PYTHON} 'import getpass; getpass.getpass()'", pty=True),
    "no echo": Case("stty -echo; read x", pty=True),
    "a pager": Case("seq 1000 | less", pty=True, needs="less"),
    "a pager of much": Case("seq 1000000 | less", pty=True, needs="less"),
    "an editor": Case("vim -u NONE", pty=True, needs="vim"),
    "a debugger": Case("gdb -q", pty=True, needs="gdb"),
    "node": Case("node -e 'process.stdin.on(\"data\", () => {})'", needs="node"),
    "a key generator": Case("ssh-keygen -t ed25519 -f ./key", pty=True, needs="ssh-keygen"),
    "a child of a child": Case("sh -c 'sh -c cat; true'; true"),
    "a child under a time limit": Case("timeout 60 cat"),
    "a child of make": Case("printf 'all:\\n\\tread x\\n' > mk; make -f mk", needs="make"),
    "a child in a session of its own": Case("setsid -w cat"),
    "a substitution": Case("x=$(cat); true"),
    "the first of a pipeline": Case("cat | sort"),
    "a child of python": Case(f"{PYTHON} \"import subprocess as s; s.run(['cat'])\""),
    "a child that python reads from": Case(
        f"{PYTHON} \"import subprocess as s; s.run(['cat'], capture_output=True)\""
    ),
    "a thread, where the others rest": Case(
        f"{PYTHON} 'import threading as t; e = t.Event(); t.Thread(target=e.wait).start(); input()'"
    ),
    "a thread whose end is waited for": Case(
        f"{PYTHON} 'import ctypes as c; f = c.CFUNCTYPE(c.c_void_p, c.c_void_p)(lambda _: input());"
        " n, lib = c.c_ulong(), c.CDLL(None);"
        " lib.pthread_create(c.byref(n), None, f, None); lib.pthread_join(n, None)'"
    ),
    "a prompt of asyncio": Case("python3 -m asyncio", pty=True),
    "a loop of asyncio": Case(
        f"{PYTHON} 'import asyncio; l = asyncio.new_event_loop();"
        " l.add_reader(0, print); l.run_forever()'",
        pty=True,
    ),
    "a select": Case(f"{PYTHON} 'import select; select.select([0], [], [])'"),
    "a thread that a loop of asyncio waits for": Case(
        f"{PYTHON} 'import asyncio; asyncio.run(asyncio.to_thread(input))'"
    ),
    "the foreground beside a sleep": Case("sleep 60 & read x"),
    "a child of the foreground beside a sleep": Case("sleep 60 & cat; wait"),
    "a child of the foreground of a terminal": Case("set -m; sleep 60 & cat", pty=True),
}
WORKS = {
    "a server": Case("python3 -m http.server 0 --bind 127.0.0.1"),
    "a server that would take keys": Case(
        'node -e \'process.stdin.on("data", () => {});'
        ' require("http").createServer().listen(0, "127.0.0.1")\'',
        needs="node",
    ),
    "a server with a thread that reads": Case(
        f"{PYTHON} 'import socket, threading;"
        ' s = socket.create_server(("127.0.0.1", 0));'
        " threading.Thread(target=input, daemon=True).start(); s.accept()'"
    ),
    "a thread that reads beside a sleep": Case(
        f"{PYTHON} 'import sys, threading, time;"
        " threading.Thread(target=sys.stdin.read, daemon=True).start(); time.sleep(60)'"
    ),
    "a thread that reads beside a wait at a lock": Case(
        f"{PYTHON} 'import sys, threading;"
        " threading.Thread(target=sys.stdin.read, daemon=True).start(); threading.Event().wait()'"
    ),
    "a reader beside a thread that sleeps": Case(
        f"{PYTHON} 'import threading, time;"
        " threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); input()'"
    ),
    "a loop of asyncio that sleeps beside a thread that reads": Case(
        f"{PYTHON} 'import asyncio; l = asyncio.new_event_loop(); l.call_later(60, print);"
        " l.run_until_complete(l.run_in_executor(None, input))'"
    ),
    "a loop of asyncio that serves, too": Case(
        f"{PYTHON} 'import asyncio, socket; l = asyncio.new_event_loop();"
        ' l.add_reader(0, print); s = socket.create_server(("127.0.0.1", 0));'
        " l.add_reader(s, print); l.run_forever()'",
        pty=True,
    ),
    "a loop that a child may wake": Case(
        f"{PYTHON} 'import os, select, socket, time; a, b = socket.socketpair();"
        " os.fork() or time.sleep(60); select.select([0, a], [], [])'",
        pty=True,
    ),
    "a loop that a child may wake by a pipe": Case(
        f"{PYTHON} 'import os, select, time; a, b = os.pipe();"
        " os.fork() or time.sleep(60); select.select([0, a], [], [])'",
        pty=True,
    ),
    "a loop of asyncio that does something else later": Case(
        f"{PYTHON} 'import asyncio; l = asyncio.new_event_loop();"
        " l.add_reader(0, print); l.call_later(60, print); l.run_forever()'",
        pty=True,
    ),
    "a screen that is refreshed": Case("top -d 60", pty=True, needs="top"),
    "a select in time": Case(f"{PYTHON} 'import select; select.select([0], [], [], 60)'"),
    "a poll in time": Case(
        f"{PYTHON} 'import select as s; p = s.poll(); p.register(0); p.poll(60000)'"
    ),
    "a read in time": Case("while ! read -t 60 x; do :; done"),
    "a read in time at a terminal": Case("while ! read -t 60 x; do :; done", pty=True),
    "sleep": Case("exec sleep 60"),
    "sleep at a terminal": Case("sleep 60", pty=True),
    "a shell that waits for a sleep": Case("sleep 60; true"),
    "wait": Case("sleep 60 & wait"),
    "a loop": Case("while :; do :; done"),
    "a sleep before a reader": Case("sleep 60 | cat"),
    "a substitution of a sleep": Case("x=$(sleep 60)"),
    "a reader of something else": Case("read x < <(sleep 60)"),
    "a reader in the background": Case("cat <&0 & sleep 60"),
    "a reader in the background of a terminal": Case("set -m; cat & sleep 60", pty=True),
    "a child that python reads from": Case(
        f"{PYTHON} \"import subprocess as s; s.run(['sleep', '60'], capture_output=True)\""
    ),
    "a reader that is stopped": Case("kill -STOP $$; read x"),
}
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TERM": "xterm", "HOME": "/"}
QUIET_SECS = 1.5  # three looks or more


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """Case -> on what its keeper says that it is blocked; all of them run at the same time."""
    cases = {
        **{"+" + name: c for name, c in HANGS.items()},
        **{"-" + n: c for n, c in WORKS.items()},
    }
    with nursery(tmp_path_factory.mktemp("home")) as mother:
        directories, keepers = dict[str, Path](), dict[str, KeeperClient]()
        for number, (name, case) in enumerate(cases.items()):
            if shutil.which(case.needs, path=ENV["PATH"]) is not None:
                keepers[name] = mother.keeper()
                directories[name] = mother.directory(f"a{number:05}")
                launch(keepers[name], directories[name], case)
        try:
            for name, keeper in keepers.items():
                if name.startswith("+"):
                    with contextlib.suppress(TimeoutError):
                        keeper.expect("blocked", "ended")
            time.sleep(QUIET_SECS)  # what works on: nothing tells that nothing will come
            yield {name: state(mother, directory) for name, directory in directories.items()}
        finally:
            for keeper in keepers.values():
                keeper.send({"op": "cancel", "grace": 0})
            for keeper in keepers.values():
                keeper.expect("gone")


def launch(keeper: KeeperClient, directory: Path, case: Case) -> None:
    stdin = "null" if case.pty else "open"
    keeper.send(bash(directory, case.text, stdin=stdin, pty=case.pty, env=ENV, cwd=str(directory)))


def state(mother: Nursery, directory: Path) -> str | None:
    link = mother.find(directory)
    link.send({"op": "attach", "dir": str(directory)})
    found = link.expect("state", "absent")
    assert found["ev"] == "state"
    blocked: str | None = found["blocked"]
    return blocked


def answer(told: dict[str, str | None], name: str) -> str | None:
    if name not in told:
        pytest.skip("this machine has no such program")
    return told[name]


@pytest.mark.parametrize("name", HANGS)
def test_a_job_that_hangs_on_its_input_is_told(told: dict[str, str | None], name: str) -> None:
    assert answer(told, "+" + name) == "input"


@pytest.mark.parametrize("name", WORKS)
def test_a_job_that_does_not_is_not(told: dict[str, str | None], name: str) -> None:
    assert answer(told, "-" + name) is None


# -- without a keeper ----------------------------------------------------------------------------

# A parent and its child, which reads what nobody writes; prints whether that is seen.
LOOK = """
import os, subprocess, sys, time
from engine.keeper.waiting import input_of, is_stuck
read_end, write_end = os.pipe()
with subprocess.Popen(["cat"], stdin=read_end) as child:
    until = time.monotonic() + 10
    while not (found := is_stuck(child.pid, [child.pid], input_of(write_end))):
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    print(os.getuid(), found)
    os.close(write_end)
"""


def test_an_ordinary_user_may_look_at_its_own_descendants(tmp_path: Path) -> None:
    change = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if os.getuid() == 0 and shutil.which(change[0]) is None:
        pytest.skip("nobody to become")
    prefix, user = (change, 65534) if os.getuid() == 0 else ([], os.getuid())
    done = subprocess.run(
        [*prefix, sys.executable, "-B", "-c", LOOK],
        env={"PATH": ENV["PATH"], "PYTHONPATH": str(ROOT)},
        cwd="/",
        capture_output=True,
        timeout=LIMIT * 2,
        check=False,
    )
    assert (done.stdout.decode(), done.stderr.decode()) == (f"{user} True\n", "")


@pytest.fixture
def reader() -> Iterator[tuple[int, waiting.Input]]:
    """A process that hangs on its input, and that input."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        source = waiting.input_of(child.stdin.fileno())
        until = time.monotonic() + LIMIT
        while not waiting.is_stuck(child.pid, [child.pid], source):
            assert time.monotonic() < until
            time.sleep(0.01)  # until it has begun to read: nothing tells
        yield child.pid, source


def test_nothing_is_told_of_a_job_with_too_many_processes(
    reader: tuple[int, waiting.Input], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, source = reader
    monkeypatch.setattr(waiting, "MAX_PROCESSES", 1)
    assert waiting.is_stuck(pid, [pid], source)
    assert not waiting.is_stuck(pid, [pid, os.getpid()], source)


def test_nothing_is_told_where_the_kernel_does_not_say_what_a_process_does(
    reader: tuple[int, waiting.Input], monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_there(_pid: int, _thread: str) -> syscalls.Call:
        raise FileNotFoundError

    pid, source = reader
    monkeypatch.setattr(syscalls, "call_of", not_there)
    assert not waiting.is_stuck(pid, [pid], source)


def test_a_reader_that_was_stopped_would_not_take_what_is_written(
    reader: tuple[int, waiting.Input],
) -> None:
    pid, source = reader
    os.kill(pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        assert not waiting.is_stuck(pid, [pid], source)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_who_reads_another_input_does_not_hang_on_this_one(
    reader: tuple[int, waiting.Input],
) -> None:
    pid, _source = reader
    read_end, write_end = os.pipe()
    try:
        assert not waiting.is_stuck(pid, [pid], waiting.input_of(write_end))
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_process_that_is_gone_hangs_on_nothing() -> None:
    child = subprocess.run(["true"], check=True)
    assert child.returncode == 0
    assert not waiting.is_stuck(2**22 - 1, [2**22 - 1], waiting.Input(1, 1))
