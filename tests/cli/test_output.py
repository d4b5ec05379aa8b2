"""Mirrors `engine/cli/output.py`."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from cli.program import LIMIT, Terminal, engine, start
from client.fake_engine import FakeEngine


def begin(fake: FakeEngine, command: str, *options: str) -> str:
    return engine(fake.home, "run", "-d", command, *options).out.decode().strip()


def test_the_bytes_are_exact_over_many_pages(fake: FakeEngine) -> None:
    command = "head -c 1000000 /dev/zero | tr '\\0' '\\377'; echo; exit 3"
    task = begin(fake, command)
    engine(fake.home, "wait", task)
    right = subprocess.run(["bash", "-c", command], capture_output=True).stdout
    assert engine(fake.home, "output", task) == (0, right, "")


def test_split_streams_go_where_they_belong(fake: FakeEngine) -> None:
    task = begin(fake, "echo out; echo err >&2", "--split")
    engine(fake.home, "wait", task)
    assert engine(fake.home, "output", task) == (0, b"out\n", "err\n")


def test_of_a_running_task_it_prints_what_there_is(fake: FakeEngine) -> None:
    task = begin(fake, "echo so far; sleep 60")
    fake.wait_for(lambda: fake.jobs["8f3000"].kept)
    assert engine(fake.home, "output", task) == (0, b"so far\n", "")


def test_following_ends_with_the_task_and_exits_as_it_did(fake: FakeEngine) -> None:
    task = begin(fake, "echo 1; sleep 0.3; echo 2; exit 9")
    assert engine(fake.home, "output", "-f", task) == (9, b"1\n2\n", "")
    assert engine(fake.home, "output", task, "-f") == (9, b"1\n2\n", "")


def test_following_a_kickoff_begins_when_the_task_does(fake: FakeEngine) -> None:
    fake.holds_queue = True
    kickoff = begin(fake, "echo late")
    done = engine(fake.home, "output", kickoff)
    assert done == (0, b"", "engine: k8f3000 has not started: no output\n")
    with start(fake.home, "output", "-f", kickoff) as output:
        fake.wait_for(lambda: "list_tasks" in fake.methods())
        fake.release_queue()
        out, _ = output.communicate(timeout=LIMIT)
    assert (output.returncode, out) == (0, b"late\n")


def test_following_goes_on_where_a_lost_connection_left_it(fake: FakeEngine) -> None:
    task = begin(fake, "for i in $(seq 20); do echo $i; sleep 0.1; done")
    with start(fake.home, "output", "-f", task) as output:
        assert output.stdout is not None
        assert output.stdout.readline() == b"1\n"
        fake.stop()
        fake.start()
        out, _ = output.communicate(timeout=LIMIT)
    assert (output.returncode, out) == (0, "".join(f"{i}\n" for i in range(2, 21)).encode())


def test_an_interrupt_only_stops_looking(fake: FakeEngine) -> None:
    task = begin(fake, "echo up; sleep 60")
    with start(fake.home, "output", "-f", task) as output:
        assert output.stdout is not None
        assert output.stdout.readline() == b"up\n"
        output.send_signal(signal.SIGINT)
        output.communicate(timeout=LIMIT)
    assert output.returncode == 130
    assert "cancel" not in fake.methods()


@pytest.mark.parametrize(("options", "code"), [([], 1), (["-f"], 125)])
def test_a_task_that_is_not_there_or_expired(
    fake: FakeEngine, options: list[str], code: int
) -> None:
    assert engine(fake.home, "output", "t1zzzzz", *options) == (
        code,
        b"",
        "engine: no such task t1zzzzz\n",
    )
    assert engine(fake.home, "output", "t7a0000", *options) == (
        code,
        b"",
        "engine: t7a0000 is expired (ended 2026-11-22 failed): dropped, with its output\n",
    )


def test_json_is_the_engines_pages(fake: FakeEngine) -> None:
    task = begin(fake, "echo hi")
    engine(fake.home, "wait", task)
    [page] = engine(fake.home, "output", "--json", task).out.splitlines()
    assert json.loads(page)["text"] == "hi\n"


def test_a_terminal_sees_no_title_and_the_file_keeps_every_byte(fake: FakeEngine) -> None:
    task = begin(fake, r"printf '\033]0;pwned\007\033[2J\033[31mERROR\033[0m x\n'")
    engine(fake.home, "wait", task)
    raw = b"\x1b]0;pwned\x07\x1b[2J\x1b[31mERROR\x1b[0m x\n"
    assert engine(fake.home, "output", task).out == raw
    with Terminal(fake.home, "output", task) as terminal:
        assert terminal.wait() == 0
    assert terminal.seen == "\x1b[31mERROR\x1b[0m x\r\n"
