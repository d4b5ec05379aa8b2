"""Mirrors `engine/cli/wait.py`."""

from __future__ import annotations

import json
import re
import signal
import socket
import time

import pytest
from cli.program import LIMIT, Terminal, engine, start
from client.fake_engine import FakeEngine


def begin(fake: FakeEngine, *commands: str) -> list[str]:
    """Start jobs; their ids."""
    return [engine(fake.home, "run", "-d", c).out.decode().strip() for c in commands]


def test_one_wait_exits_as_the_job_did_also_after_its_end(fake: FakeEngine) -> None:
    [task] = begin(fake, "exit 7")
    for _ in range(2):
        done = engine(fake.home, "wait", task)
        assert (done.code, done.err) == (7, "")
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z t8f3000 failed exit=7 0\.\d{3}s exit 7\n",
            done.out.decode(),
        )


def test_a_kickoff_is_waited_on_as_its_task(fake: FakeEngine) -> None:
    fake.holds_queue = True
    [kickoff] = begin(fake, "exit 4")
    with start(fake.home, "wait", kickoff) as wait:
        fake.wait_for(lambda: "wait" in fake.methods())
        fake.release_queue()
        out, _ = wait.communicate(timeout=LIMIT)
    assert (wait.returncode, out.split()[1:4]) == (4, [b"t8f3000", b"failed", b"exit=4"])


def test_several_end_with_zero_only_when_all_succeeded(fake: FakeEngine) -> None:
    good, bad, late = begin(fake, "true", "exit 3", "sleep 0.3")
    assert engine(fake.home, "wait", good, late).code == 0
    done = engine(fake.home, "wait", good, bad, late)
    assert done.code == 1
    assert sorted(line.split()[1] for line in done.out.decode().splitlines()) == [good, bad, late]


def test_the_same_id_twice_is_one_wait(fake: FakeEngine) -> None:
    [task] = begin(fake, "exit 3")
    done = engine(fake.home, "wait", task, task)
    assert (done.code, done.out.count(b"\n")) == (3, 1)


def test_time_that_is_up_is_exit_75_and_names_the_next_call(fake: FakeEngine) -> None:
    [task, other] = begin(fake, "sleep 60", "sleep 60")
    done = engine(fake.home, "wait", task, "--timeout", "0.2")
    assert (done.code, done.out) == (75, b"")
    assert re.fullmatch(r"engine: t8f3000 still running after \S+; engine wait t8f3000\n", done.err)
    done = engine(fake.home, "wait", task, other, "--timeout", "0.2")
    assert done == (75, b"", f"engine: 2 are still running; engine wait {task} {other}\n")
    done = engine(fake.home, "wait", "--timeout", "0.2", task, other, "--json")
    assert (done.code, done.out) == (75, b"")
    assert json.loads(done.err)["error"] == {
        "code": None,
        "kind": "still_running",
        "message": f"2 are still running; engine wait {task} {other}",
        "data": {},
    }


@pytest.mark.parametrize(
    ("given", "why"), [("-1", "-1 is less than 0"), ("inf", "inf is not a finite number")]
)
def test_a_time_that_cannot_be_meant_is_refused_with_the_reason(
    fake: FakeEngine, given: str, why: str
) -> None:
    done = engine(fake.home, "wait", "--timeout", given, "t8f3000")
    assert (done.code, done.out, fake.calls) == (125, b"", [])
    assert done.err == f"engine: invalid value for '--timeout': {why} (see: engine wait --help)\n"


def test_what_has_not_begun_when_time_is_up_is_queued_and_says_where(fake: FakeEngine) -> None:
    fake.holds_queue = True
    [kickoff] = begin(fake, "true")
    done = engine(fake.home, "wait", kickoff, "--timeout", "0.2")
    state = f"{kickoff} still queued #1: all slots are taken"
    assert done == (75, b"", f"engine: {state}; engine wait {kickoff}\n")
    fake.holds_queue = False
    [task] = begin(fake, "sleep 60")
    done = engine(fake.home, "wait", task, kickoff, "--timeout", "0.2")
    state = "2 have not ended (1 of them queued)"
    assert done == (75, b"", f"engine: {state}; engine wait {task} {kickoff}\n")


def test_an_interrupt_only_stops_waiting(fake: FakeEngine) -> None:
    [task] = begin(fake, "sleep 60")
    with start(fake.home, "wait", task, fresh=True) as wait:
        fake.wait_for(lambda: "wait" in fake.methods())
        wait.send_signal(signal.SIGINT)
        out, err = wait.communicate(timeout=LIMIT)
    assert (wait.returncode, out, err) == (130, b"", b"")
    assert "cancel" not in fake.methods()


def test_json_is_one_record_a_line_as_they_end(fake: FakeEngine) -> None:
    gate = fake.home / "gate"
    slow, quick = begin(fake, f"until [ -e {gate} ]; do sleep 0.05; done; echo slow", "echo quick")
    with start(fake.home, "wait", "--json", slow, quick) as wait:
        assert wait.stdout is not None
        first = json.loads(wait.stdout.readline())
        gate.touch()
        second = json.loads(wait.communicate(timeout=LIMIT)[0])
    assert (first["taskId"], first["output"]) == (quick, "quick\n")
    assert (second["taskId"], second["output"]) == (slow, "slow\n")


@pytest.mark.parametrize(("arguments", "code"), [(["t1zzzzz"], 125), (["t1zzzzz", "t8f3000"], 1)])
def test_a_task_that_is_not_there_ends_the_wait_at_once(
    fake: FakeEngine, arguments: list[str], code: int
) -> None:
    begin(fake, "sleep 60")
    done = engine(fake.home, "wait", *arguments)
    assert (done.code, done.out) == (code, b"")
    assert done.err == "engine: no such task t1zzzzz\n"


def test_an_engine_that_comes_back_gives_the_same_result(fake: FakeEngine) -> None:
    [task] = begin(fake, "sleep 1; exit 6")
    with start(fake.home, "wait", "--no-start", task) as wait:
        fake.wait_for(lambda: "wait" in fake.methods())
        fake.stop()
        fake.start()
        out, err = wait.communicate(timeout=LIMIT)
    assert (wait.returncode, out.split()[1:4]) == (6, [b"t8f3000", b"failed", b"exit=6"])
    lost, back = err.decode().splitlines()
    assert lost == "engine: connection lost; trying again for up to 60 s"
    assert back.startswith("engine: connected again after ")


def test_on_a_terminal_one_wait_ends_in_a_summary(fake: FakeEngine) -> None:
    [task] = begin(fake, "sleep 0.6; echo ab; exit 1")
    with Terminal(fake.home, "wait", task, environ={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 1
    last = terminal.seen.rpartition("\x1b[2K")[2]
    assert re.fullmatch(
        r"✗ t8f3000  failed, exit 1, 0\.[5-9]s  sleep 0\.6; echo ab; exit 1\r\n"
        r"  engine output t8f3000   shows all 3 B\r\n",
        last,
    )


def test_on_a_terminal_several_are_drawn_in_place(fake: FakeEngine) -> None:
    tasks = begin(fake, "true", "sleep 0.6; exit 2")
    with Terminal(fake.home, "wait", *tasks, environ={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 1
    assert "\x1b[3A" in terminal.seen  # up over its own three lines, nothing else is cleared
    assert "\x1b[2J" not in terminal.seen
    assert "\x1b[?1049h" not in terminal.seen
    last = terminal.seen.rpartition("\x1b[3A")[2].replace("\x1b[2K", "").split("\r\n")
    assert last[0].startswith("✓ t8f3000  succeeded")
    assert last[1].startswith("✗ t8f3001  failed 2")
    assert last[2:] == ["2 of 2 ended", ""]


@pytest.mark.parametrize(("name", "value"), [("CI", "1"), ("TERM", "dumb")])
def test_where_nothing_can_be_redrawn_each_end_is_a_line(
    fake: FakeEngine, name: str, value: str
) -> None:
    tasks = begin(fake, "true", "true")
    with Terminal(fake.home, "wait", *tasks, environ={name: value}) as terminal:
        assert terminal.wait() == 0
    assert "\x1b" not in terminal.seen
    assert terminal.seen.count("\r\n") == 2


@pytest.mark.parametrize("what", [["t8f3000"], ["t8f3000", "t8f3001"], ["--any"], [], ["r8f3000"]])
def test_a_stopped_engine_keeps_nobody_past_his_own_time(fake: FakeEngine, what: list[str]) -> None:
    fake.stop()
    with socket.socket(socket.AF_UNIX) as stopped:  # as the kernel keeps it for a process that is
        (fake.home / "engine.sock").unlink(missing_ok=True)
        stopped.bind(str(fake.home / "engine.sock"))
        stopped.listen()
        began = time.monotonic()
        done = engine(fake.home, "wait", *what, "--timeout", "0.5")
    assert time.monotonic() - began < 8  # it is 10 s for who says nothing
    assert (done.code, done.out) == (125 if what in (["t8f3000"], ["--any"]) else 69, b"")
    assert done.err.splitlines() == [
        f"engine: not reachable at {fake.home}/engine.sock (no answer)",
        "engine: gave up after 2 s (--timeout)",
    ]
