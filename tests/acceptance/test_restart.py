"""The engine killed with -9 and started again: jobs run on, and nothing that was said is unsaid."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from acceptance.hammer import Hammer
from acceptance.running import NO_FLOOR, Caller, Engine, Gate, called, is_running, wait_gone


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine:
        yield engine


def restart(engine: Engine, *more: str) -> None:
    engine.kill()
    engine.start(*more)


def text_so_far(caller: Caller, task: str, offset: int = 0) -> dict[str, Any]:
    return caller.call("read_output", taskId=task, offset=offset, timeout_secs=20)


def directory(engine: Engine, task: str) -> Path:
    return engine.home / "tasks" / task[1:]


def kill_jobs(engine: Engine) -> None:
    """Kill all that runs below the home while the engine is down."""
    assert engine.process is None
    engine.end_leftovers()


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


# -- what runs ---------------------------------------------------------------------------------


@pytest.mark.case("C110")
def test_a_running_job_is_found_again_with_its_output_and_ends_with_its_own_code(
    engine: Engine, tmp_path: Path
) -> None:
    with Gate(tmp_path / "go") as go:
        with called(engine) as ci:
            task = ci.start(f"echo before; {go.wait}; echo after; echo done")["taskId"]
            first = text_so_far(ci, task)
            assert (first["text"], first["nextOffset"], first["eof"]) == ("before\n", 7, False)
        restart(engine)
        with called(engine) as ci:
            running = ci.wait(task, timeout_secs=0)
            assert (running["status"], running["taskId"]) == ("running", task)
            assert running["outputBytes"] == 7
            assert text_so_far(ci, task)["text"] == "before\n"
            tail = ci.send("read_output", taskId=task, offset=7, timeout_secs=20)
            waiting = ci.send("wait", taskId=task)
            go.open()
            assert tail.result()["text"].startswith("after\n")
            end = waiting.result()
            assert (end["status"], end["exitCode"]) == ("succeeded", 0)
            assert end["output"] == "before\nafter\ndone\n"
            assert text_so_far(ci, task, offset=7)["text"] == "after\ndone\n"


@pytest.mark.case("C111")
def test_a_job_that_ends_while_no_engine_runs_keeps_its_code_and_its_times(
    engine: Engine, tmp_path: Path
) -> None:
    with Gate(tmp_path / "go") as go:
        with called(engine) as ci:
            task = ci.start(f"echo $$; {go.wait}; echo bye; exit 7")["taskId"]
            pid = int(text_so_far(ci, task)["text"])
        engine.kill()
        go.open()
        wait_gone(pid)
        ended = time.time() * 1000
    time.sleep(0.5)  # the engine is away for a while longer
    engine.start()
    with called(engine) as ci:
        end = ci.wait(task)
        assert (end["status"], end["exitCode"], end["reason"]) == ("failed", 7, "exit")
        assert end["output"] == f"{pid}\nbye\n"
        assert abs(ms(end["endedAt"]) - ended) < 300
        assert end["durationMs"] == ms(end["endedAt"]) - ms(end["startedAt"])


def test_a_deadline_is_kept_while_no_engine_runs(engine: Engine) -> None:
    with called(engine) as ci:
        task = ci.start("echo $$; sleep 600", deadline_secs=1)["taskId"]
        pid = int(text_so_far(ci, task)["text"])
    engine.kill()
    wait_gone(pid, 10)
    engine.start()
    with called(engine) as ci:
        end = ci.wait(task)
        assert (end["status"], end["reason"]) == ("timed_out", "deadline")
        assert 1000 <= end["durationMs"] < 3000


@pytest.mark.case("C117")
def test_a_job_that_says_nothing_is_taken_for_alive_because_its_process_is(
    engine: Engine, tmp_path: Path
) -> None:
    with Gate(tmp_path / "go") as go:
        with called(engine) as ci:
            task = ci.start(f"{go.wait}")["taskId"]
        for _ in range(2):
            restart(engine)
            with called(engine) as ci:
                assert ci.wait(task, timeout_secs=1)["status"] == "running"
        with called(engine) as ci:
            go.open()
            assert ci.wait(task)["status"] == "succeeded"


def test_who_was_left_behind_writes_on_and_is_ended_by_cancel_after_a_restart(
    engine: Engine, tmp_path: Path
) -> None:
    with Gate(tmp_path / "go") as go:
        with called(engine) as ci:
            end = ci.bash(f"({go.wait}; echo late; exec sleep 600) & echo early")
            (left,) = [survivor["pid"] for survivor in end["survivors"]]
        restart(engine)
        with called(engine) as ci:
            task = end["taskId"]
            go.open()
            output = directory(engine, task) / "output"
            limit = time.monotonic() + 10
            while output.read_text() != "early\nlate\n" and time.monotonic() < limit:
                time.sleep(0.01)  # nobody tells of an ended task's output
            assert text_so_far(ci, task, offset=6)["text"] == "late\n"
            assert ci.wait(task)["status"] == "succeeded"
            done = ci.cancel(task)
            assert (done["status"], done["outcome"]) == ("succeeded", "already_finished")
            assert left in done["signalled"]
            assert not is_running(left)


def test_a_keeper_that_is_stopped_holds_up_nobody_else(engine: Engine) -> None:
    with called(engine) as ci:
        task = ci.start("echo $PPID; sleep 600")["taskId"]
        keeper = int(text_so_far(ci, task)["text"])
    os.kill(keeper, signal.SIGSTOP)
    restart(engine)
    with called(engine) as ci:
        assert ci.wait(task, timeout_secs=0)["status"] == "running"
        assert ci.bash("echo hi")["output"] == "hi\n"
        done = ci.cancel(task)
        assert (done["status"], done["outcome"]) == ("cancelled", "cancelled")


# -- what waits and what has ended ---------------------------------------------------------------


def test_kickoffs_wait_again_in_the_order_of_their_acceptance(
    engine: Engine, tmp_path: Path
) -> None:
    mark, run = tmp_path / "order", "echo {} >> {}"
    restart(engine, "--slots", "1")
    with Gate(tmp_path / "go") as go:
        with called(engine, "a") as a:
            first = a.start(f"{go.wait}")["taskId"]
            kickoffs = [
                a.on(a.client).start(run.format(name, mark), session=False)
                if name.startswith("a")
                else Caller(a.client, "b").start(run.format(name, mark), session=False)
                for name in ("a1", "a2", "b1", "a3", "b2")
            ]
            before = [kickoff["queuePosition"] for kickoff in kickoffs]
            assert "taskId" not in kickoffs[0]
        restart(engine, "--slots", "1")
        with called(engine, "a") as a:
            again = [a.wait(k["kickoffId"], timeout_secs=0) for k in kickoffs]
            assert [reply["queuePosition"] for reply in again] == [1, 3, 2, 5, 4]
            assert before == [1, 2, 2, 4, 4]  # as each was told when it came
            late = a.start(run.format("a4", mark), session=False)
            assert late["queuePosition"] == 6
            newest = a.call("list_tasks", caller="*")["tasks"]
            assert [row["kickoffId"] for row in newest] == [
                late["kickoffId"],
                *(kickoff["kickoffId"] for kickoff in reversed(kickoffs)),
                "k" + first[1:],
            ]
            go.open()
            for kickoff in (*kickoffs, late):
                assert a.wait(kickoff["kickoffId"])["status"] == "succeeded"
    assert mark.read_text().split() == ["a1", "b1", "a2", "b2", "a3", "a4"]


@pytest.mark.case("C121")
def test_every_ended_task_answers_after_a_restart_and_a_forgotten_one_says_expired(
    engine: Engine,
) -> None:
    with called(engine) as ci:
        tasks = [ci.start(f"echo {i}; exit {i}")["taskId"] for i in range(4)]
        ends = [record_of(ci.wait(task)) for task in tasks]
        gone = ci.bash("true")
        ci.call("forget", taskId=gone["taskId"])
        error = ci.refuse("wait", taskId=gone["taskId"])
    restart(engine)
    with called(engine) as ci:
        assert [record_of(ci.wait(task)) for task in tasks] == ends
        assert [end["exitCode"] for end in ends] == [0, 1, 2, 3]
        for i, task in enumerate(tasks):
            assert text_so_far(ci, task)["text"] == f"{i}\n"
        assert ci.refuse("wait", taskId=gone["taskId"]) == error
        assert (error["code"], error["data"]["status"]) == (-32004, "succeeded")
        assert error["data"]["endedAt"] == gone["endedAt"]


def record_of(reply: dict[str, Any]) -> dict[str, Any]:
    """`reply` less the lines and the notices of other work, which are told once."""
    own = [line for line in reply["logs"] if line.get("taskId") == reply["taskId"]]
    return {**reply, "logs": own, "logsDropped": 0, "notices": []}


@pytest.mark.case("C128")
def test_list_and_single_answers_agree_before_and_after_a_restart(engine: Engine) -> None:
    with called(engine) as ci:
        running = [ci.start("sleep 600")["taskId"] for _ in range(2)]
        ended = [ci.bash(f"exit {i}")["taskId"] for i in range(2)]
        cancelled = ci.start("sleep 600")["taskId"]
        ci.cancel(cancelled)
    wanted = {
        **dict.fromkeys(running, "running"),
        ended[0]: "succeeded",
        ended[1]: "failed",
        cancelled: "cancelled",
    }
    for _ in range(2):
        with called(engine) as ci:
            listed = {row["taskId"]: row["status"] for row in ci.call("list_tasks")["tasks"]}
            single = {task: ci.wait(task, timeout_secs=0)["status"] for task in wanted}
            assert listed == single == wanted
            rows = ci.call("list_tasks", state=["running"])["tasks"]
            assert {row["taskId"] for row in rows} == set(running)
            assert ci.call("engine_info")["running"] == 2
        restart(engine)


def test_the_sequence_of_changes_goes_on_after_a_kill(engine: Engine, tmp_path: Path) -> None:
    with Gate(tmp_path / "go") as go:
        with called(engine) as ci:
            old = ci.bash("true")["taskId"]
            running = ci.start(f"{go.wait}")["taskId"]
            page = ci.call("list_tasks")
            assert {row["taskId"] for row in page["tasks"]} == {old, running}
            seq = page["nextChangedAfter"]
        restart(engine)
        with called(engine) as ci:
            change = ci.send("list_tasks", changed_after=seq, timeout_secs=20)
            go.open()
            changed = change.result()
        assert [row["taskId"] for row in changed["tasks"]] == [running]
        assert changed["tasks"][0]["changedSeq"] > seq
        assert changed["nextChangedAfter"] >= changed["tasks"][0]["changedSeq"]


def test_a_session_lives_on_after_a_kill(engine: Engine, tmp_path: Path) -> None:
    with called(engine) as ci:
        ci.bash(f"cd {tmp_path}; export A='ü 1'; f() {{ echo f $A; }}; alias g='echo g'; umask 027")
    restart(engine)
    with called(engine) as ci:
        assert ci.bash("pwd; f; g; umask")["output"] == f"{tmp_path}\nf ü 1\ng\n0027\n"


# -- what dies besides the engine ----------------------------------------------------------------


def test_a_killed_keeper_makes_its_job_lost_and_cancel_finds_the_processes(engine: Engine) -> None:
    with called(engine) as ci:
        task = ci.start("sleep 600 & echo $PPID $$ $!; sleep 601")["taskId"]
        keeper, shell, child = map(int, text_so_far(ci, task)["text"].split())
        other = ci.start("exec sleep 600", session=False)["taskId"]
        waiting = ci.send("wait", taskId=task)
        os.kill(keeper, signal.SIGKILL)
        end = waiting.result()
        assert (end["status"], end["reason"]) == ("lost", "lost")
        assert (end["exitCode"], end["signal"]) == (None, None)
        assert end["output"] == f"{keeper} {shell} {child}\n"
        assert is_running(shell)
        done = ci.cancel(task, grace_secs=1)
        assert {shell, child} <= set(done["signalled"])
        assert (done["status"], done["survivors"]) == ("lost", [])
        assert not is_running(shell)
        assert not is_running(child)
        assert ci.wait(other, timeout_secs=0)["status"] == "running"
        ci.cancel(other, grace_secs=0)


def test_a_keeper_killed_while_no_engine_runs_makes_its_job_lost(engine: Engine) -> None:
    with called(engine) as ci:
        task = ci.start("echo $PPID; sleep 600")["taskId"]
        keeper = int(text_so_far(ci, task)["text"])
    engine.kill()
    os.kill(keeper, signal.SIGKILL)
    wait_gone(keeper)
    engine.start()
    with called(engine) as ci:
        end = ci.wait(task)
        assert (end["status"], end["output"]) == ("lost", f"{keeper}\n")
        assert ms(end["startedAt"]) <= ms(end["endedAt"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_next_jobs_run_though_mother_is_killed_or_stopped(
    engine: Engine, tmp_path: Path, number: signal.Signals
) -> None:
    with Gate(tmp_path / "go") as go, called(engine) as ci:
        running = ci.start(f"{go.wait}; echo on")["taskId"]
        (mother,) = [
            int(pid)
            for pid in Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split()
        ]
        os.kill(mother, number)
        calls = [ci.send("bash", command=f"echo {i}", session=False) for i in range(12)]
        assert [call.result()["output"] for call in calls] == [f"{i}\n" for i in range(12)]
        go.open()
        assert ci.wait(running)["output"] == "on\n"


@pytest.mark.case("C113")
def test_a_process_that_has_the_pid_of_a_keeper_by_chance_gets_no_signal(engine: Engine) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with subprocess.Popen(["sleep", "600"]) as innocent:
        try:
            stat = Path(f"/proc/{innocent.pid}/stat").read_text()
            started = stat.rpartition(")")[2].split()[19]
            stale = [
                f"{innocent.pid} {int(started) - 1} {boot}",
                f"{innocent.pid} {started} 00000000-0000-0000-0000-000000000000",
                f"1 0 {boot}",
                f"0 0 {boot}",
            ]
            with called(engine) as ci:
                tasks = [ci.start("sleep 600")["taskId"] for _ in stale]
            engine.kill()
            kill_jobs(engine)
            for task, claim in zip(tasks, stale, strict=True):
                path = directory(engine, task) / "claim"
                path.unlink()
                path.symlink_to(claim)
            engine.start()
            with called(engine) as ci:
                for task in tasks:  # at once: not one of them was taken for a keeper that lives
                    assert ci.wait(task, timeout_secs=5)["status"] == "lost"
                    assert ci.cancel(task)["signalled"] == []
                    ci.call("forget", taskId=task)
            assert innocent.poll() is None
        finally:
            innocent.kill()


@pytest.mark.case("C118")
def test_an_engine_that_was_stopped_judges_no_job_by_the_time_it_missed(engine: Engine) -> None:
    with called(engine) as ci:
        short = ci.start("sleep 0.5; echo done", deadline_secs=10)["taskId"]
        late = ci.start("sleep 600", deadline_secs=1)["taskId"]
        long = ci.start("sleep 600", deadline_secs=600)["taskId"]
        waiting = ci.send("wait", taskId=short)
        os.kill(engine.pid, signal.SIGSTOP)
        time.sleep(5)
        os.kill(engine.pid, signal.SIGCONT)
        end = waiting.result()
        assert (end["status"], end["output"]) == ("succeeded", "done\n")
        assert 500 <= end["durationMs"] < 2500
        timed_out = ci.wait(late)
        assert timed_out["status"] == "timed_out"
        assert 1000 <= timed_out["durationMs"] < 3000
        assert ms(timed_out["startedAt"]) <= ms(timed_out["endedAt"])
        assert ci.wait(long, timeout_secs=0)["status"] == "running"
        ci.cancel(long, grace_secs=0)


# -- what was spoilt -------------------------------------------------------------------------------


def test_strangers_and_half_made_folders_are_put_aside_and_kept(engine: Engine) -> None:
    with called(engine) as ci:
        task = ci.bash("echo fine")["taskId"]
    engine.kill()
    tasks = engine.home / "tasks"
    (tasks / "NOTES").write_text("mine")
    (tasks / "empty0").mkdir()
    (tasks / "half00").mkdir()
    (tasks / "half00" / "spec.json").write_text('{"v":1,"id":"ha')
    (tasks / "copied").mkdir()
    shutil.copy(directory(engine, task) / "spec.json", tasks / "copied")
    (tasks / "link00").symlink_to("/etc")
    (tasks / "fifo00").mkdir()
    os.mkfifo(tasks / "fifo00" / "spec.json")
    engine.start()
    with called(engine) as ci:
        assert ci.wait(task)["output"] == "fine\n"
        assert [row["taskId"] for row in ci.call("list_tasks", caller="*")["tasks"]] == [task]
        assert ci.bash("echo next")["output"] == "next\n"
    aside = {path.name.partition("-")[0]: path for path in (engine.home / "aside").iterdir()}
    assert set(aside) == {"NOTES", "empty0", "half00", "copied", "link00", "fifo00"}
    assert aside["NOTES"].read_text() == "mine"
    assert "set_aside" in engine.log_text()


@pytest.mark.case("C120")
def test_one_spoilt_record_costs_no_other_task_and_never_the_start(engine: Engine) -> None:
    with called(engine) as ci:
        names = ("spec", "exit", "list", "gone", "row", "good")
        tasks = {name: ci.start(f"echo {name}; sleep 600")["taskId"] for name in names}
        for task in tasks.values():
            text_so_far(ci, task)
        ended = ci.bash("echo ended")["taskId"]
        ci.call("list_tasks")
    engine.kill()
    keep = {name: directory(engine, task) for name, task in tasks.items()}
    (keep["spec"] / "spec.json").write_text("garbage")
    (keep["exit"] / "exit").write_bytes(b'{"exitCode": "x"}\ncomplete\n')
    (keep["list"] / "exit").write_bytes(b"[1, 2]\ncomplete\n")
    shutil.rmtree(keep["gone"])
    with contextlib.closing(sqlite3.connect(engine.home / "index.db")) as index:
        index.execute("UPDATE task SET body = 'garbage' WHERE id = ?", (tasks["row"][1:],))
        index.execute("UPDATE task SET body = x'00ff' WHERE id = ?", (ended[1:],))
        index.commit()
    engine.start()
    with called(engine) as ci:
        assert ci.wait(tasks["gone"])["status"] == "lost"
        for name in ("spec", "exit", "list", "row", "good"):
            running = ci.wait(tasks[name], timeout_secs=0)
            text = text_so_far(ci, tasks[name])["text"]  # a reply may have told of it before
            assert (running["status"], text) == ("running", f"{name}\n")
        assert ci.wait(ended)["output"] == "ended\n"
        cancelled = ci.call("cancel", caller="ci", grace_secs=0)["tasks"]
        assert {task["status"] for task in cancelled} == {"cancelled"}
        ci.call("forget", taskId=tasks["gone"])
    assert "index_rows_damaged" in engine.log_text()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "removed"])
def test_a_lost_database_is_made_again_from_the_directories(
    engine: Engine, tmp_path: Path, damage: str
) -> None:
    mark = tmp_path / "n"
    with called(engine) as ci:
        ended = ci.bash(f"echo x >> {mark}; echo out", key="K")
        running = ci.start("echo on; sleep 600")["taskId"]
        text_so_far(ci, running)
        seq = ci.call("list_tasks")["latestSeq"]
    engine.stop()
    for name in ("index.db", "record.db"):
        path = engine.home / name
        for suffix in ("-wal", "-shm"):
            path.with_name(name + suffix).unlink(missing_ok=True)
        if damage == "garbage":
            path.write_bytes(b"garbage " * 1000)
        elif damage == "truncated":
            os.truncate(path, path.stat().st_size // 2)
        else:
            path.unlink()
    engine.start()
    with called(engine) as ci:
        again = ci.bash(f"echo x >> {mark}; echo out", key="K")
        assert record_of(again) == record_of(ended)
        assert ci.wait(running, timeout_secs=0)["status"] == "running"
        assert text_so_far(ci, running)["text"] == "on\n"
        page = ci.call("list_tasks")
        assert [row["taskId"] for row in page["tasks"]] == [running, ended["taskId"]]
        assert page["latestSeq"] > seq
        ci.cancel(running, grace_secs=0)
    assert mark.read_text() == "x\n"
    if damage != "removed":
        assert list(engine.home.glob("index.db.damaged-*"))
        assert json.loads((engine.home / "engine.json").read_text())["pid"] == engine.pid


# -- all at once -----------------------------------------------------------------------------------


def test_no_job_is_begun_twice_or_gone_over_kills_at_random_moments(
    engine: Engine, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    hammer = Hammer(engine, marks, seed=20)
    for kill_within in (0.05, 0.3, 0.02, 0.1):
        hammer.round(10, kill_within=kill_within)
    assert sum(hammer.settle().values()) == 40
