"""PROTOCOL 5, `execution_blocked` by `input`: what a caller sees of a job that waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import LIMIT, Caller, Engine, new_name

Row = dict[str, Any]


def wait_row(caller: Caller, task: str, condition: Callable[[Row], bool]) -> Row:
    """The row of a task, once it is so; each change of it is waited for."""
    after, until = 0, time.monotonic() + LIMIT
    while True:
        assert time.monotonic() < until, f"{task} did not become so"
        page = caller.call("list_tasks", changed_after=after, timeout_secs=LIMIT / 3)
        after = page["nextChangedAfter"]
        for row in page["tasks"]:
            if row["taskId"] == task and condition(row):
                found: Row = row
                return found


def wait_blocked(caller: Caller, task: str) -> Any:
    return wait_row(caller, task, lambda row: row["blockedOn"] is not None)["blockedOn"]


def wait_output(caller: Caller, task: str, whole: str) -> None:
    """Wait until the output of a task is this, from its first byte to its last so far."""
    found, at = "", 0
    while found.replace("\r\n", "\n") != whole:
        page = caller.call("read_output", taskId=task, offset=at, timeout_secs=LIMIT / 3)
        assert page["text"], f"no more comes behind {found!r}"
        found, at = found + page["text"], page["nextOffset"]


def write(caller: Caller, task: str, text: str) -> None:
    caller.call("write_stdin", taskId=task, text=text)


def test_a_prompt_is_told_and_the_answer_ends_it(caller: Caller) -> None:
    task = caller.start('read -p "your name? " x; echo "hi $x"; sleep 60', pty=True)["taskId"]
    assert wait_blocked(caller, task) == {"category": "input", "prompt": "your name? "}
    reply = caller.wait(task, timeout_secs=0)
    assert reply["blockedOn"] == {"category": "input", "prompt": "your name? "}
    call = f'{{"taskId": "{task}", "text": "…\\n"}}'
    assert reply["hint"] == f"Call write_stdin with {call} to answer what it waits for."
    assert caller.call("read_task", taskId=task)["blockedOn"]["category"] == "input"
    write(caller, task, "bob\n")
    wait_row(caller, task, lambda row: row["blockedOn"] is None)
    assert "blockedOn" not in caller.wait(task, timeout_secs=0)
    wait_output(caller, task, "your name? bob\nhi bob\n")
    caller.cancel(task)


def test_an_interpreter_at_a_pipe_asks_without_a_prompt(caller: Caller) -> None:
    task = caller.execute("cat", stdin="open", timeout_secs=0)["taskId"]
    assert wait_blocked(caller, task) == {"category": "input", "prompt": ""}
    write(caller, task, "first line\n")
    row = wait_row(caller, task, lambda row: bool(row["blockedOn"] and row["outputBytes"]))
    assert row["outputBytes"] == 11
    caller.call("write_stdin", taskId=task, eof=True)
    done = caller.wait(task)
    assert (done["status"], done["output"]) == ("succeeded", "first line\n")


def test_the_prompt_on_standard_error_of_a_split_job_is_told(caller: Caller) -> None:
    command = "echo begun; printf 'go on? [y/n] ' >&2; read x; exit 3"
    task = caller.start(command, stdin="open", streams="split")["taskId"]
    assert wait_blocked(caller, task) == {"category": "input", "prompt": "go on? [y/n] "}
    write(caller, task, "y\n")
    done = caller.wait(task)
    assert (done["exitCode"], done["stdout"], done["stderr"]) == (3, "begun\n", "go on? [y/n] ")
    (row,) = caller.call("list_tasks")["tasks"]
    assert row["blockedOn"] is None


def test_a_job_of_a_session_that_has_a_shell_ready_asks_too(caller: Caller) -> None:
    for _ in range(3):  # from the second on a shell waits for the next call
        caller.bash("x=5")
    task = caller.start('read y; echo "$x $y"', stdin="open")["taskId"]
    assert wait_blocked(caller, task)["category"] == "input"
    write(caller, task, "6\n")
    assert caller.wait(task)["output"] == "5 6\n"


@pytest.mark.parametrize("command", ["sleep 60 | cat", "sleep 60", "while :; do :; done"])
def test_a_job_that_does_not_read_its_open_input_is_not_told(caller: Caller, command: str) -> None:
    task = caller.start(command, stdin="open")["taskId"]
    asking = caller.start("read x", stdin="open")["taskId"]
    for _ in range(3):  # while another is told of time and again
        wait_blocked(caller, asking)
        assert "blockedOn" not in caller.wait(task, timeout_secs=0)
        caller.cancel(asking)
        asking = caller.start("read x", stdin="open")["taskId"]
    caller.cancel(asking)
    caller.cancel(task)


def test_what_a_job_is_blocked_on_outlives_the_engine(tmp_path: Path) -> None:
    name = new_name()
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as engine:
        with engine.connect() as client:
            caller = Caller(client, name)
            task = caller.start("printf 'a? '; read x; printf 'b? '; read y", stdin="open")[
                "taskId"
            ]
            wait_blocked(caller, task)
        engine.kill()
        engine.start()
        with engine.connect() as client:
            caller = Caller(client, name)
            asked = {"category": "input", "prompt": "a? "}
            assert wait_blocked(caller, task) == asked
            write(caller, task, "1\n")
            again = {"category": "input", "prompt": "a? b? "}
            wait_row(caller, task, lambda row: row["blockedOn"] == again)
            write(caller, task, "2\n")
            assert caller.wait(task)["status"] == "succeeded"
