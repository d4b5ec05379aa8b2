"""Mirrors `engine/keeper/warm.py`: shells started ahead, below keepers of a real mother."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keeper.harness import KeeperClient, Nursery, is_running, nursery, order, read_exit
from keeper.shell_session import Session

from engine.jobs.shellstate import CallPlan, ShellState, plan_call
from engine.keeper import processes

LIMIT = 10.0  # seconds for any wait in a test
BASE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


@pytest.fixture
def mother(tmp_path: Path) -> Iterator[Nursery]:
    with nursery(tmp_path) as mother:
        yield mother
        assert mother.log() == ""


def state_of(cwd: Path) -> ShellState:
    """The state of a session that has done nothing yet."""
    session = Session(cwd, BASE)
    session.call(":")
    assert session.state is not None
    return session.state


class Warm:
    """A keeper that has been asked to prepare a shell for the directory `name`."""

    def __init__(self, mother: Nursery, cwd: Path, name: str = "aaaaaa", **changes: Any) -> None:
        self.directory, self.keeper = mother.directory(name), mother.keeper()
        self.cwd = cwd
        self.state = state_of(cwd)
        message = self._order("", **changes) | {"op": "prepare"}
        self.send(message, self._plan("").prologue)

    def _plan(self, text: str) -> CallPlan:
        return plan_call(
            self.state, text.encode(), session=True, base=BASE, env={}, defaults={}, identity={}
        )

    def _order(self, text: str, **changes: Any) -> dict[str, Any]:
        plan = self._plan(text)
        return order(
            self.directory, *plan.argv, env=plan.environ, cwd=str(self.cwd), session=True,
            cwd_or_parent=True, **changes,
        )  # fmt: skip

    def send(self, message: dict[str, Any], *texts: bytes) -> None:
        fds = []
        for text in texts:
            fds.append(os.memfd_create("text"))
            os.write(fds[-1], text)
        self.keeper.send({**message, "fds": len(fds), "prologue": bool(fds)}, fds)
        for fd in fds:
            os.close(fd)

    def launch(self, text: str, **changes: Any) -> None:
        plan = self._plan(text)
        self.send(self._order(text, call=plan.call.decode(), **changes), plan.prologue)

    def run(self, text: str, **changes: Any) -> dict[str, Any]:
        """The record of the call's end; nobody of it is left."""
        self.launch(text, **changes)
        record: dict[str, Any] = self.keeper.expect("ended")["record"]
        self.keeper.expect("gone")
        return record

    @property
    def keeper_pid(self) -> int:
        return int(os.readlink(self.directory / "ready").split()[0])

    def shell(self) -> int:
        """The pid of the shell, once it waits for the word."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            ready = self.directory / "ready"
            below = processes.descendants(self.keeper_pid) if ready.is_symlink() else []
            if below and Path(f"/proc/{below[0]}/wchan").read_text().endswith("pipe_read"):
                return below[0]
            time.sleep(0.005)
        raise AssertionError("no shell waits")

    def output(self) -> str:
        return (self.directory / "output").read_text()


def test_a_call_runs_in_the_shell_that_waits_for_it(mother: Nursery, tmp_path: Path) -> None:
    warm = Warm(mother, tmp_path)
    pid = warm.shell()
    record = warm.run("echo $$ $PPID; pwd; exit 7")
    assert warm.output() == f"{pid} {warm.keeper_pid}\n{tmp_path}\n"
    assert (record["pid"], record["cause"], record["exitCode"]) == (pid, "exit", 7)
    assert read_exit(warm.directory) == record
    assert os.readlink(warm.directory / "claim") == os.readlink(warm.directory / "ready")


def test_the_shell_waits_without_a_trace_in_its_call(mother: Nursery, tmp_path: Path) -> None:
    warm = Warm(mother, tmp_path)
    warm.shell()
    time.sleep(1.1)  # the second in which $SECONDS would count on
    begun = time.time()
    record = warm.run("echo $SECONDS; ls /proc/$$/fd; times >/dev/null")
    assert warm.output() == "0\n0\n1\n2\n"
    assert record["durationMs"] < 1000
    assert record["startedAt"] >= int(begun * 1000)


def test_a_job_follows_the_one_that_had_a_warm_shell(mother: Nursery, tmp_path: Path) -> None:
    warm = Warm(mother, tmp_path)
    warm.shell()
    warm.run("true")
    second = mother.directory("bbbbbb")
    plan = warm._plan("echo cold")
    message = order(second, *plan.argv, env=plan.environ, session=True, call=plan.call.decode())
    warm.send(message, plan.prologue)
    assert warm.keeper.expect("ended")["record"]["exitCode"] == 0
    warm.keeper.expect("gone")
    assert (second / "output").read_text() == "cold\n"


def replaced(path: Path) -> None:
    path.rename(path.with_name("old"))
    path.mkdir()


@pytest.mark.parametrize("change", [replaced, Path.rmdir], ids=["replaced", "removed"])
def test_a_directory_that_is_not_what_it_was_has_a_shell_of_its_own(
    mother: Nursery, tmp_path: Path, change: Any
) -> None:
    (where := tmp_path / "where").mkdir()
    warm = Warm(mother, where)
    pid = warm.shell()
    change(where)
    record = warm.run('echo $$; test "$(stat -c %i .)" = "$(stat -c %i "$PWD")" && pwd')
    own, seen = warm.output().split()
    assert int(own) == record["pid"] != pid
    assert seen == str(where if where.exists() else tmp_path)
    assert not is_running(pid)
    assert record["survivors"] == []


@pytest.mark.parametrize(
    "change",
    [{"umask": 0o077}, {"streams": "split"}, {"path": "/bin/bash"}, {"nofile": 99}],
    ids=str,
)
def test_a_launch_that_asks_for_something_else_starts_its_own(
    mother: Nursery, tmp_path: Path, change: dict[str, Any]
) -> None:
    warm = Warm(mother, tmp_path)
    pid = warm.shell()
    record = warm.run("true", **change)
    assert record["exitCode"] == 0
    assert record["pid"] != pid
    assert not is_running(pid)


def test_a_shell_that_was_killed_while_it_waited_is_replaced(
    mother: Nursery, tmp_path: Path
) -> None:
    warm = Warm(mother, tmp_path)
    pid = warm.shell()
    os.kill(pid, signal.SIGKILL)
    wait_dead(pid)
    record = warm.run("echo $$")
    assert (record["cause"], record["exitCode"]) == ("exit", 0)
    assert int(warm.output()) != pid


def wait_dead(pid: int) -> None:
    deadline = time.monotonic() + LIMIT
    while is_running(pid):
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.005)


@pytest.mark.parametrize("how", ["keeper killed", "engine gone"])
def test_a_shell_that_gets_no_word_leaves_and_has_begun_nothing(
    mother: Nursery, tmp_path: Path, how: str
) -> None:
    warm = Warm(mother, tmp_path)
    pid = warm.shell()
    if how == "keeper killed":
        os.kill(warm.keeper_pid, signal.SIGKILL)
    else:
        warm.keeper.close()
    wait_dead(pid)
    assert os.listdir(warm.directory) == ["ready"]


def test_a_call_is_cancelled_in_its_warm_shell(mother: Nursery, tmp_path: Path) -> None:
    warm = Warm(mother, tmp_path)
    pid = warm.shell()
    # A bash that forks once it has got its signal waits for that child, who is nobody's then.
    warm.launch("sleep 100 & (echo; exec sleep 100)")
    warm.keeper.expect("grew")
    warm.keeper.send({"op": "cancel", "grace": 5})
    assert pid in warm.keeper.expect("signalled")["pids"]
    record = warm.keeper.expect("ended")["record"]
    assert (record["cause"], record["signal"]) == ("cancelled", signal.SIGTERM)
    warm.keeper.expect("gone")


def test_a_call_ends_at_its_deadline_counted_from_its_beginning(
    mother: Nursery, tmp_path: Path
) -> None:
    warm = Warm(mother, tmp_path)
    warm.shell()
    time.sleep(0.6)
    record = warm.run("sleep 100", deadline=0.5)
    assert record["cause"] == "deadline"
    assert 500 <= record["durationMs"] < 5000


def test_where_the_files_cannot_be_made_the_call_is_refused_and_nothing_is_left(
    mother: Nursery, tmp_path: Path
) -> None:
    warm = Warm(mother, tmp_path)
    pid = warm.shell()
    (warm.directory / "output").symlink_to("/dev/null")
    warm.launch("true")
    assert warm.keeper.expect("refused")["errno"] != 0
    wait_dead(pid)
    assert sorted(os.listdir(warm.directory)) == ["output", "ready"]


def test_thirty_shells_leave_a_keeper_as_it_was(mother: Nursery, tmp_path: Path) -> None:
    keeper: KeeperClient | None = None
    seen, state = [], state_of(tmp_path)
    for i in range(31):
        warm = Warm.__new__(Warm)
        warm.directory, warm.cwd, warm.state = mother.directory(f"a{i:05}"), tmp_path, state
        warm.keeper = keeper = keeper or mother.keeper()
        warm.send(warm._order("") | {"op": "prepare"}, warm._plan("").prologue)
        warm.shell()
        assert warm.run("true")["exitCode"] == 0
        seen.append(sorted(os.listdir(f"/proc/{warm.keeper_pid}/fd")))
    assert seen[0] == seen[-1]
