"""Mirrors `engine/cli/inbox.py`, with the engine that is the real thing."""

from __future__ import annotations

import fcntl
import json
import re
import select
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from acceptance.running import Engine, Gate
from cli.program import LIMIT, PROGRAM, Result, Terminal, engine, environment, start


def begin(real: Engine, me: str, *commands: str) -> list[str]:
    """Start jobs; their ids."""
    ran = [engine(real.home, "run", "--as", me, "-d", command) for command in commands]
    assert [done.code for done in ran] == [0] * len(ran)
    return [done.out.decode().strip() for done in ran]


def inbox(real: Engine, me: str, *more: str) -> Result:
    return engine(real.home, "inbox", "--as", me, *more)


def ended(*tasks: str, real: Engine) -> None:
    """Wait, as another caller, until these have ended."""
    assert engine(real.home, "wait", "--as", "another", *tasks).code in range(125)


def words(out: bytes) -> list[list[str]]:
    """Of each line what stands after the time."""
    return [line.split()[1:4] for line in out.decode().splitlines()]


def test_what_was_started_and_left_is_in_the_inbox_once(real: Engine, me: str, gate: Gate) -> None:
    tasks = begin(real, me, f"{gate.wait}; echo one", f"{gate.wait}; exit 3")
    for _ in tasks:
        gate.open()
    ended(*tasks, real=real)
    first, second = inbox(real, me), inbox(real, me)
    assert sorted(words(first.out)) == sorted(
        [[tasks[0], "succeeded", "exit=0"], [tasks[1], "failed", "exit=3"]]
    )
    assert (first.code, first.err) == (0, "")
    assert second == (0, b"", f"engine: nothing pending for {me}\n")


@pytest.mark.parametrize(("verb", "code"), [("inbox", 1), ("wait", 1), ("wait --any", 125)])
def test_who_gave_no_stdout_receives_nothing(real: Engine, me: str, verb: str, code: int) -> None:
    (task,) = begin(real, me, "true")
    ended(task, real=real)
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(PROGRAM)} {verb} --as {me} >&-"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(real.home),
        timeout=LIMIT,
    )
    right = b"engine: the output cannot be written: Bad file descriptor\n"
    assert (done.returncode, done.stderr) == (code, right)
    assert words(inbox(real, me).out) == [[task, "succeeded", "exit=0"]]


@pytest.mark.parametrize(
    ("verb", "code"),
    [(["run", "echo hi; exit 3"], 3), (["run", "true"], 0), (["run", "--json", "true"], 0)],
)
def test_what_a_run_has_shown_to_its_end_is_not_in_the_inbox(
    real: Engine, me: str, verb: list[str], code: int
) -> None:
    assert engine(real.home, *verb, "--as", me).code == code
    assert inbox(real, me).out == b""


@pytest.mark.parametrize(
    "verb", [["wait"], ["wait", "--json"], ["output", "-f"], ["wait", "--any"]]
)
def test_nor_is_what_was_waited_for_by_id(real: Engine, me: str, verb: list[str]) -> None:
    [task] = begin(real, me, "sleep 0.1; exit 3")
    assert engine(real.home, *verb, task, "--as", me).code == 3
    assert inbox(real, me).out == b""


def test_what_others_looked_at_is(real: Engine, me: str) -> None:
    [task] = begin(real, me, "exit 3")
    ended(task, real=real)
    assert engine(real.home, "show", "--as", me, task).code == 0
    assert words(inbox(real, me).out) == [[task, "failed", "exit=3"]]


def test_with_json_each_is_the_wires_update(real: Engine, me: str) -> None:
    [task] = begin(real, me, "echo said")
    ended(task, real=real)
    update = json.loads(inbox(real, me, "--json").out)
    assert (update["id"], update["ready"], update["status"]) == (task, "ended", "succeeded")
    assert (update["output"], update["exitCode"]) == ("said\n", 0)
    assert inbox(real, me, "--json") == (0, b"", "")


def test_where_nobody_reads_it_nothing_is_received(real: Engine, me: str) -> None:
    [task] = begin(real, me, "seq 2000")  # more than the pipe takes at a time
    ended(task, real=real)
    with start(real.home, "inbox", "--json", "--as", me) as process:
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        select.select([process.stdout], [], [], LIMIT)  # it was told, and is writing
        process.stdout.close()
        process.stdout = None
        process.wait(LIMIT)
    assert process.returncode == 141
    again = inbox(real, me)
    assert words(again.out) == [[task, "succeeded", "exit=0"]]
    assert again.err == f"engine: {task} may have been told before\n"


def test_followed_it_goes_on_with_what_ends_also_of_tasks_that_are_begun_later(
    real: Engine, me: str, gate: Gate
) -> None:
    with start(real.home, "inbox", "--follow", "--as", me, fresh=True) as follow:
        assert follow.stdout is not None
        for code in (1, 2):
            [task] = begin(real, me, f"{gate.wait}; exit {code}")
            gate.open()
            assert words(follow.stdout.readline()) == [[task, "failed", f"exit={code}"]]
        # By asking on it says that it has shown the last; left before, it would be told again.
        with real.connect() as client:
            reply = client.call("wait_any", as_=me, wait_seconds=LIMIT / 2)
        assert reply["reason"] == "nothing_pending"
        follow.send_signal(signal.SIGINT)
        out, err = follow.communicate(timeout=LIMIT)
    assert (follow.returncode, out, err) == (130, b"", b"")
    again = inbox(real, me)
    assert (words(again.out), again.err) == ([], f"engine: nothing pending for {me}\n")


def test_followed_it_ends_with_its_reader(real: Engine, me: str) -> None:
    with start(real.home, "inbox", "--follow", "--as", me) as follow:
        assert follow.stdout is not None
        follow.stdout.close()
        follow.stdout = None
        follow.wait(LIMIT)
    assert follow.returncode == 141


def test_an_engine_that_was_killed_tells_what_ended_meanwhile_once(
    tmp_path: Path, gate: Gate, me: str
) -> None:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as own:
        with start(own.home, "inbox", "--follow", "--no-start", "--as", me) as follow:
            assert follow.stdout is not None
            first, second = begin(own, me, "exit 1", f"{gate.wait}; exit 2")
            assert words(follow.stdout.readline()) == [[first, "failed", "exit=1"]]
            own.kill()
            gate.open()
            own.start()
            assert words(follow.stdout.readline()) == [[second, "failed", "exit=2"]]
            follow.terminate()
            rest, _ = follow.communicate(timeout=LIMIT)
        assert rest == b""


# `engine wait` without ids, and with --any.


def test_without_ids_all_of_the_callers_are_waited_for(real: Engine, me: str, gate: Gate) -> None:
    good, bad = begin(real, me, f"{gate.wait}; true", f"{gate.wait}; exit 3")
    with start(real.home, "wait", "--as", me) as wait:
        gate.open(2)
        out, err = wait.communicate(timeout=LIMIT)
    assert (wait.returncode, err) == (1, b"")
    assert sorted(words(out)) == sorted([[good, "succeeded", "exit=0"], [bad, "failed", "exit=3"]])
    assert engine(real.home, "wait", "--as", me) == (
        *(0, b""),
        f"engine: nothing pending for {me}\n",
    )


def test_without_ids_it_is_zero_where_all_succeeded(real: Engine, me: str) -> None:
    begin(real, me, "true", "true")
    assert engine(real.home, "wait", "--as", me).code == 0


def test_any_ends_with_the_first_and_exits_as_that_did(real: Engine, me: str, gate: Gate) -> None:
    first, second = begin(real, me, "sleep 0.2; exit 7", gate.wait)
    done = engine(real.home, "wait", "--any", second, first, "--as", me)
    assert (done.code, done.err) == (7, "")
    assert words(done.out) == [[first, "failed", "exit=7"]]
    gate.open()
    # What ended first ends it again: a script that goes on leaves it out.
    assert engine(real.home, "wait", "--any", second, first, "--as", me).code == 7
    assert engine(real.home, "wait", "--any", second, "--as", me).code == 0


def test_any_without_ids_is_the_first_of_the_callers(real: Engine, me: str, gate: Gate) -> None:
    _, quick = begin(real, me, gate.wait, "sleep 0.1; exit 5")
    done = engine(real.home, "wait", "--any", "--as", me)
    assert (done.code, words(done.out)) == (5, [[quick, "failed", "exit=5"]])
    gate.open()


def test_any_of_nothing_is_our_fault_and_all_of_nothing_is_good(real: Engine, me: str) -> None:
    for more in ([], ["--timeout", "0"], ["--timeout", "1"]):
        done = engine(real.home, "wait", "--any", *more, "--as", me)
        assert done == (125, b"", f"engine: nothing pending for {me}\n")
        done = engine(real.home, "wait", *more, "--as", me)
        assert done == (0, b"", f"engine: nothing pending for {me}\n")
    done = engine(real.home, "wait", "--any", "--as", me, "t1zzzzz")
    assert done == (125, b"", "engine: no such task t1zzzzz\n")


def test_time_that_is_up_is_exit_75_and_names_the_next_call(
    real: Engine, me: str, gate: Gate
) -> None:
    [task] = begin(real, me, gate.wait)
    done = engine(real.home, "wait", "--any", task, "--timeout", "0.2", "--as", me)
    assert (done.code, done.out) == (75, b"")
    state = rf"engine: {task} still running after \S+; engine wait"
    assert re.fullmatch(rf"{state} --any {task}\n", done.err)
    done = engine(real.home, "wait", "--timeout", "0", "--as", me)
    assert (done.code, done.out) == (75, b"")
    assert re.fullmatch(rf"{state}\n", done.err)
    [other] = begin(real, me, gate.wait)
    done = engine(real.home, "wait", "--timeout", "0", "--as", me)
    assert done.code == 75
    assert re.fullmatch(
        rf"engine: 2 go on: ({task} {other}|{other} {task}); engine wait\n", done.err
    )
    gate.open(2)


def test_time_that_is_up_while_somebody_has_the_engine_to_himself_names_him(
    real: Engine, me: str
) -> None:
    with real.connect() as client:
        client.call("set_mode", as_="owner", mode="exclusive", ttl_secs=60)
        try:
            [kickoff] = begin(real, me, "true")
            done = engine(real.home, "wait", "--timeout", "0", "--as", me)
        finally:
            client.call("set_mode", as_="owner", mode="shared")
    assert done.code == 75
    assert done.err.startswith(f"engine: {kickoff} still queued #1: ")
    assert "owner" in done.err
    assert engine(real.home, "wait", "--as", me).code == 0


def test_what_waits_for_input_is_said_while_it_is_waited_for(real: Engine, me: str) -> None:
    asking = 'printf "Name? "; read -r name; exit 4'
    done = engine(real.home, "run", "-d", "--stdin", "open", "--as", me, asking)
    task = done.out.decode().strip()
    with start(real.home, "wait", "--any", task, "--as", me) as wait:
        assert wait.stderr is not None
        line = wait.stderr.readline()
        assert line.decode() == f"engine: {task} waits for input: Name?\n"
        assert engine(real.home, "stdin", task, "anna", "--as", me).code == 0
        assert wait.wait(LIMIT) == 4


def test_on_a_terminal_the_end_is_as_after_a_wait_and_what_goes_on_is_named(
    real: Engine, me: str, gate: Gate
) -> None:
    task, other = begin(real, me, "sleep 0.2; echo ab; exit 1", gate.wait)
    with Terminal(real.home, "wait", "--as", me, environ={"NO_COLOR": "1"}) as terminal:
        terminal.read_until(f"1 goes on: {other} · Ctrl-C stops waiting")
        gate.open()
        assert terminal.wait() == 1
    assert f"✗ {task}  failed, exit 1, " in terminal.seen
    assert f"  engine output {task}   shows all 3 B\r\n" in terminal.seen
    assert f"✓ {other}  succeeded, " in terminal.seen


def test_on_a_terminal_an_empty_inbox_says_so_on_stdout(real: Engine, me: str) -> None:
    for verb in ("wait", "inbox"):
        with Terminal(real.home, verb, "--as", me, "-q") as terminal:
            assert terminal.wait() == 0
        assert terminal.seen == f"nothing pending for {me}\r\n"
