"""Mirrors `engine/keeper/mother.py`: the fork server as a real process."""

from __future__ import annotations

import array
import errno
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from keeper.harness import MOTHER, KeeperClient, bash, nursery, order

from engine.keeper import mother as mother_module


def keeper_pid(directory: Path) -> int:
    return int(os.readlink(directory / "claim").split()[0])


class Program:
    """mother.py with its own end at the number `fd` and `prepare` run before it is loaded."""

    def __init__(self, home: Path, fd: int, prepare: Callable[[], None] | None = None) -> None:
        (home / "keepers").mkdir()
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        os.dup2(theirs.fileno(), fd)
        theirs.close()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(MOTHER), str(fd), str(home / "keepers"), "64"],
                pass_fds=[fd],
                stderr=subprocess.PIPE,
                env={},
                preexec_fn=prepare,
            )
        finally:
            os.close(fd)

    def bear(self) -> KeeperClient:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))
            self.requests.sendmsg([b"k"], [rights])
        return KeeperClient(ours)

    def close(self) -> str:
        self.requests.close()
        _out, err = self.process.communicate(timeout=10)
        return err.decode()


@pytest.mark.parametrize("fd", [20, 100, 101, 102])
def test_the_engines_number_for_the_socket_may_be_any(tmp_path: Path, fd: int) -> None:
    directory = tmp_path / "aaaaaa"
    directory.mkdir()
    program = Program(tmp_path, fd)
    keeper = program.bear()
    keeper.send(bash(directory, "exit 3"))
    assert keeper.expect("ended")["record"]["exitCode"] == 3
    keeper.expect("gone")
    keeper.close()
    assert program.close() == ""


@pytest.mark.case("C103")
def test_a_small_limit_of_descriptors_is_the_jobs_and_not_the_keepers(tmp_path: Path) -> None:
    directory = tmp_path / "aaaaaa"
    directory.mkdir()
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

    program = Program(tmp_path, 20, prepare)
    keeper = program.bear()
    keeper.send(bash(directory, "ulimit -Sn", nofile=64))
    assert keeper.expect("ended")["record"]["exitCode"] == 0
    keeper.expect("gone")
    keeper.close()
    assert program.close() == ""
    assert (directory / "output").read_bytes() == b"64\n"


def test_mother_ends_with_her_engine_and_idle_keepers_with_theirs(tmp_path: Path) -> None:
    with nursery(tmp_path) as mother:
        directory, keeper = mother.directory(), mother.keeper()
        keeper.send(bash(directory, "true"))
        keeper.expect("gone")
        watcher = os.pidfd_open(keeper_pid(directory))
        mother.requests.close()
        assert mother.process.wait(10) == 0
        assert not select.select([watcher], [], [], 0)[0]  # it still has its engine
        keeper.close()
        assert select.select([watcher], [], [], 10)[0]
        os.close(watcher)


def test_a_keeper_is_named_has_its_own_session_and_nothing_of_the_others(tmp_path: Path) -> None:
    with nursery(tmp_path) as mother:
        first, keeper = mother.keeper(), mother.keeper()
        directory = mother.directory()
        keeper.send(bash(directory, "ls -l /proc/$PPID/fd; cat /proc/$PPID/comm; ps -o sid= $PPID"))
        keeper.expect("gone")
        lines = (directory / "output").read_text().split("\n")
        pid = keeper_pid(directory)
        assert lines[-3:-1] == ["engine-keeper", str(pid).rjust(len(lines[-2]))]
        # Its control link, its listener: no request socket, no link of the other keeper.
        assert sum("socket:" in line for line in lines) == 2
        first.close()


def test_a_keeper_that_ended_leaves_no_zombie(tmp_path: Path) -> None:
    with nursery(tmp_path) as mother:
        keeper, directory = mother.keeper(), mother.directory()
        keeper.send(bash(directory, "true"))
        keeper.expect("gone")
        pid = keeper_pid(directory)
        watcher = os.pidfd_open(pid)
        keeper.close()
        assert select.select([watcher], [], [], 10)[0]
        os.close(watcher)
        mother.keeper().send({"op": "survey"})  # mother has been round her loop
        assert mother.clients[-1].expect("gone") == {"ev": "gone"}
        assert not Path(f"/proc/{pid}").exists()


def test_no_process_to_be_had_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    requests, control = socket.socketpair()
    ours, theirs = socket.socketpair()
    with requests, control, theirs:
        mother_module.bear(requests, b"k", theirs, str(tmp_path))
    client = KeeperClient(ours)
    assert client.next() == {
        "ev": "refused",
        "message": "no process for a keeper: Resource temporarily unavailable",
        "errno": 11,
    }
    client.close()


def test_a_keeper_that_cannot_begin_says_why(tmp_path: Path) -> None:
    program = Program(tmp_path, 20)
    (tmp_path / "keepers").rmdir()
    keeper = program.bear()
    assert keeper.expect("refused") == {
        "ev": "refused",
        "message": "no keeper: No such file or directory",
        "errno": 2,
    }
    with pytest.raises(EOFError):
        keeper.next()
    keeper.close()
    assert program.close() == ""


def test_a_stopped_mother_bears_when_she_goes_on(tmp_path: Path) -> None:
    with nursery(tmp_path) as mother:
        os.kill(mother.process.pid, signal.SIGSTOP)
        keeper, directory = mother.keeper(), mother.directory()
        keeper.send(order(directory, "sh", "-c", "exit 4"))
        os.kill(mother.process.pid, signal.SIGCONT)
        assert keeper.expect("ended")["record"]["exitCode"] == 4
        keeper.expect("gone")


def test_what_comes_out_is_json_for_any_path(tmp_path: Path) -> None:
    with nursery(tmp_path) as mother:
        directory = mother.home / "tasks" / "é\N{GRINNING FACE}"
        directory.mkdir()
        keeper = mother.keeper()
        keeper.send(bash(directory, "pwd", cwd=str(directory)))
        record = keeper.expect("ended")["record"]
        keeper.expect("gone")
        assert record["cwd"] == str(directory)
        assert (directory / "output").read_text() == f"{directory}\n"
        assert json.loads(json.dumps(record)) == record
