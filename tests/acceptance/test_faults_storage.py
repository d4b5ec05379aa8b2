"""The disk is full, takes no more files, or no writes at all: jobs go on, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.faulty import (
    Disk,
    degraded,
    failing_disk,
    mounted,
    small_disk,
    wait_degraded,
    wait_well,
)
from acceptance.running import LIMIT, NO_FLOOR, PROGRAM, Caller, Client, Engine, Gate

pytestmark = pytest.mark.fault

FULL = "the disk is full"
NO_FILES = "the disk takes no more files"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path, "size=24m", "nr_inodes=400") as disk:
        yield disk


def engine_on(disk: Disk, *options: str) -> Engine:
    """An engine whose home is on the disk, and its log elsewhere."""
    engine = Engine(disk.path / "home", *NO_FLOOR, *options)
    engine.log = disk.path.parent / "log"
    return engine


def refused(error: dict[str, Any]) -> tuple[int, str]:
    return error["code"], error["data"]["limit"]


def of(reply: dict[str, Any]) -> tuple[str, int, str, int]:
    return reply["status"], reply["exitCode"], reply["output"], reply["droppedBytes"]


def lines_of(caller: Caller, task: str) -> list[str]:
    page = caller.call("read_logs", taskId=task, after_seq=0, peek=True)
    return [line["text"] for line in page["lines"] if line["source"] != "engine"]


def fill_up(path: Path) -> None:
    """Write to a file until its last block takes no more."""
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"." * 100 + b"\n"):
            pass


class Work:
    """Two jobs that run until `go`, and three calls that wait for their slots."""

    def __init__(self, client: Client, go: Gate) -> None:
        caller = Caller(client, "ci")
        text = f"echo begun; {go.wait}; for i in 1 2 3; do echo line $i; done"
        self.running = [
            caller.start(f"{text}; exit {code}", session=False)["taskId"] for code in (0, 7)
        ]
        self.waiting = [
            caller.start(f"echo queued {code}; exit {code}", session=False)["kickoffId"]
            for code in (0, 3, 4)
        ]

    def check_running(self, client: Client) -> None:
        """They have ended as they should have, with all that they said."""
        caller = Caller(client, "ci")
        output = "begun\nline 1\nline 2\nline 3\n"
        ends = [of(caller.wait(task)) for task in self.running]
        assert ends == [("succeeded", 0, output, 0), ("failed", 7, output, 0)]

    def check_held(self, client: Client, reason: str) -> None:
        caller = Caller(client, "ci")
        replies = [caller.wait(kickoff, timeout_secs=0) for kickoff in self.waiting]
        assert [(r["status"], r["queuePosition"], r["queueReason"]) for r in replies] == [
            ("running", place, reason) for place in (1, 2, 3)
        ]

    def check_all(self, client: Client) -> None:
        """All have ended so, also those that waited, and their lines are in the journal."""
        caller = Caller(client, "ci")
        self.check_running(client)
        ends = [of(caller.wait(kickoff)) for kickoff in self.waiting]
        assert ends == [
            ("succeeded", 0, "queued 0\n", 0),
            ("failed", 3, "queued 3\n", 0),
            ("failed", 4, "queued 4\n", 0),
        ]
        for task in self.running:
            assert lines_of(caller, task) == ["begun", "line 1", "line 2", "line 3"]
        for code, kickoff in zip((0, 3, 4), self.waiting, strict=True):
            assert lines_of(caller, "t" + kickoff[1:]) == [f"queued {code}"]


def test_on_a_full_disk_jobs_go_on_calls_are_refused_and_all_is_well_once_there_is_room(
    disk: Disk, tmp_path: Path
) -> None:
    engine = engine_on(disk, "--slots", "2")
    with Gate(tmp_path / "go") as go, engine, engine.connect() as client:
        caller = Caller(client, "ci")
        caller.bash("export WORD=kept")
        work = Work(client, go)
        disk.fill()
        for params in ({"command": "true"}, {"command": "true", "key": "K"}):
            assert refused(client.refuse("bash", params)) == (-32007, "disk")
        assert f"nothing new is started: {FULL}" in degraded(client)
        go.open(2)
        work.check_running(client)
        work.check_held(client, FULL)
        disk.free()
        work.check_all(client)
        wait_well(client)
        assert caller.bash("echo $WORD")["output"] == "kept\n"
        listed = caller.call("list_tasks")["tasks"]
        assert sorted(row["status"] for row in listed) == ["failed"] * 3 + ["succeeded"] * 4
    assert "queue_held" in engine.log_text()
    assert "queue_goes_on" in engine.log_text()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_an_engine_starts_on_a_full_disk_and_finds_everything(
    disk: Disk, tmp_path: Path, is_stopped: bool
) -> None:
    with engine_on(disk, "--slots", "2") as engine, Gate(tmp_path / "go") as go:
        with engine.connect() as client:
            work = Work(client, go)
        disk.fill()
        for _ in range(3):  # and again: what the first start takes is taken once
            if is_stopped:
                engine.stop()
            engine.kill()
            engine.start()
            with engine.connect() as client:
                assert f"nothing new is started: {FULL}" in degraded(client)
                work.check_held(client, f"all {2} slots are busy")
        go.open(2)
        with engine.connect() as client:
            work.check_running(client)
        engine.kill()
        engine.start()
        with engine.connect() as client:
            work.check_running(client)
            work.check_held(client, FULL)
            disk.free()
            work.check_all(client)
            wait_well(client)


def test_a_job_that_fills_the_disk_ends_with_its_own_code_and_what_was_lost_is_counted(
    disk: Disk,
) -> None:
    with engine_on(disk) as engine, engine.connect() as client:
        caller = client.caller()
        end = caller.bash("head -c 64M /dev/zero; exit 9", session=False)
        assert (end["status"], end["exitCode"], end["outputBytes"]) == ("failed", 9, 64 << 20)
        kept = end["outputBytes"] - end["droppedBytes"]
        assert 16 << 20 < kept < 24 << 20
        assert (disk.path / "home/tasks" / end["taskId"][1:] / "exit").stat().st_size == 4096
        assert refused(caller.refuse("bash", command="true")) == (-32007, "disk")
        assert caller.call("forget", taskId=end["taskId"])["status"] == "forgotten"  # makes room
        wait_well(client)  # whoever has the file open lets go of it
        assert caller.bash("echo well")["output"] == "well\n"
        assert caller.refuse("wait", taskId=end["taskId"])["code"] == -32004


def test_where_no_more_files_can_be_made_calls_are_refused_and_wait_and_go_on_afterwards(
    disk: Disk, tmp_path: Path
) -> None:
    with engine_on(disk, "--slots", "2") as engine, Gate(tmp_path / "go") as go:
        with engine.connect() as client:
            work = Work(client, go)
            with disk.no_files():
                assert refused(client.refuse("bash", command="true")) == (-32007, "disk")
                assert f"nothing new is started: {NO_FILES}" in degraded(client)
                go.open(2)
                work.check_running(client)
                work.check_held(client, NO_FILES)
                engine.kill()
                engine.start()
                with engine.connect() as again:
                    work.check_running(again)
        with engine.connect() as client:
            work.check_all(client)
            wait_well(client)


def test_what_was_told_and_a_sessions_state_are_known_after_a_full_disk_and_a_kill(
    disk: Disk, tmp_path: Path
) -> None:
    """They are in memory while the disk takes nothing, and are written once it does."""
    big = "head -c 200000 /dev/zero | tr '\\0' x"
    with engine_on(disk) as engine, Gate(tmp_path / "go") as go, Gate(tmp_path / "bell") as bell:
        with engine.connect() as client:
            caller = Caller(client, "ci")
            text = f"{bell.tell}; {go.wait}; BIG=$({big}); export WORD=new"
            pending = caller.send("bash", command=text)
            bell.hear()
            disk.fill()
            go.open()
            assert pending.result()["exitCode"] == 0
            wait_degraded(client, "sessions are not on disk")  # the state comes after the reply
            disk.free()
            assert caller.bash("echo $WORD ${#BIG}")["output"] == "new 200000\n"
            wait_well(client)
        engine.kill()
        engine.start()
        with engine.connect() as client:
            caller = Caller(client, "ci")
            assert caller.bash("echo $WORD ${#BIG}")["output"] == "new 200000\n"


def test_a_full_disk_under_the_log_costs_lines_of_the_log_and_is_said(tmp_path: Path) -> None:
    with small_disk(tmp_path, "size=64k") as disk, Engine(tmp_path / "home", *NO_FLOOR) as engine:
        engine.kill()
        engine.log = disk.path / "log"
        engine.start()
        with engine.connect() as client:
            caller = client.caller()
            disk.fill()
            fill_up(engine.log)
            for _ in range(2):
                task = caller.start("sleep 600")["taskId"]
                caller.cancel(task, grace_secs=0)  # which the log tells of
            said = "the engine's log does not take lines: No space left on device"
            assert degraded(client) == [said]
            assert caller.bash("echo hi")["output"] == "hi\n"
            disk.free()
            caller.cancel(caller.start("sleep 600")["taskId"], grace_secs=0)
            assert degraded(client) == []
        assert "lines of this log were lost: No space left on device" in engine.log_text()


def test_a_disk_that_takes_no_writes_any_more_costs_no_job_its_code(tmp_path: Path) -> None:
    with (
        failing_disk(tmp_path) as disk,
        Gate(tmp_path / "go") as go,
        engine_on(disk, "--slots", "2") as engine,
        engine.connect() as client,
    ):
        caller = Caller(client, "ci")
        work = Work(client, go)
        disk.fail()
        assert refused(caller.refuse("bash", command="true")) == (-32007, "disk")
        go.open(2)
        ends = [caller.wait(task) for task in work.running]
        assert [(end["status"], end["exitCode"]) for end in ends] == [
            ("succeeded", 0),
            ("failed", 7),
        ]
        assert [end["droppedBytes"] for end in ends] == [len("line n\n") * 3] * 2
        for kickoff in work.waiting:
            assert caller.wait(kickoff, timeout_secs=0)["status"] == "running"
        unwritten = caller.refuse("forget", taskId=work.running[0])
        assert refused(unwritten) == (-32007, "store")
        assert any(said.startswith("record.db does not take writes") for said in degraded(client))


def test_a_home_that_is_read_only_is_told_at_the_start(tmp_path: Path) -> None:
    home, seen = tmp_path / "home", tmp_path / "seen"
    seen.mkdir()
    with Engine(home, *NO_FLOOR) as engine:
        engine.stop()
        with mounted("--bind", str(home), on=seen):
            subprocess.run(["mount", "-o", "remount,bind,ro", seen], check=True)
            done = subprocess.run(
                [PROGRAM, "serve", "--home", seen], capture_output=True, text=True, timeout=LIMIT
            )
    said = f"engine: cannot open {seen}/engine.lock: Read-only file system\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_one_home_under_two_paths_is_one_home(tmp_path: Path) -> None:
    home, link, bound = tmp_path / "home", tmp_path / "link", tmp_path / "bound"
    link.symlink_to(home)
    bound.mkdir()
    with Engine(home, *NO_FLOOR) as engine, mounted("--bind", str(home), on=bound):
        for path in (link, bound):
            done = subprocess.run(
                [PROGRAM, "serve", "--home", path], capture_output=True, text=True, timeout=LIMIT
            )
            said = f"engine: another engine (pid {engine.pid}) has the home {path}\n"
            assert (done.returncode, done.stderr) == (3, said)
            done = subprocess.run(
                [PROGRAM, "run", "--home", path, "echo $ENGINE_HOME"],
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
            assert (done.returncode, done.stdout) == (0, f"{home}\n")  # that one serves both


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_home_that_is_moved_or_removed_ends_no_job_and_no_engine(
    tmp_path: Path, is_removed: bool
) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    with Engine(home, *NO_FLOOR) as engine, Gate(tmp_path / "go") as go:
        with engine.connect() as client:
            caller = Caller(client, "ci")
            task = caller.start(f"echo one; {go.wait}; echo two; exit 5")["taskId"]
            home.rename(other)
            if is_removed:
                subprocess.run(["rm", "-r", other], check=True)
            error = caller.refuse("bash", command="true")
            assert refused(error) == (-32007, "disk")
            assert "the home cannot be used: No such file or directory" in error["message"]
            assert degraded(client) == [f"nothing new is started: {error['message'].split(';')[0]}"]
            go.open()
            end = caller.wait(task)
            assert (end["status"], end["exitCode"], end["outputBytes"]) == ("failed", 5, 8)
            if not is_removed:
                other.rename(home)
                assert caller.wait(task)["output"] == "one\ntwo\n"
                assert caller.bash("echo well")["output"] == "well\n"
                assert degraded(client) == []
        assert engine.stop() == 0
        assert os.path.exists(home) != is_removed
