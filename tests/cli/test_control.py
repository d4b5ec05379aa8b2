"""Mirrors `engine/cli/control.py`."""

from __future__ import annotations

import json
import re

import pytest
from cli.fuller_engine import FullerEngine
from cli.program import engine
from client.fake_engine import FakeEngine


def begin(fake: FakeEngine, command: str, *options: str) -> str:
    return engine(fake.home, "run", "-d", command, *options).out.decode().strip()


def test_cancel_ends_a_task_and_says_so(fake: FakeEngine) -> None:
    task = begin(fake, "sleep 60")
    assert engine(fake.home, "cancel", task) == (0, b"", "engine: t8f3000 cancelled, 1 process\n")
    assert fake.jobs["8f3000"].row["status"] == "cancelled"


def test_cancel_of_what_has_ended_says_how_it_had(fake: FakeEngine) -> None:
    engine(fake.home, "run", "true")
    done = engine(fake.home, "cancel", "t8f3000")
    assert (done.code, done.out) == (0, b"")
    assert re.fullmatch(
        r"engine: t8f3000 had already succeeded at (\S+ )?\d\d:\d\d:\d\d\n", done.err
    )


def test_each_of_several_is_cancelled_also_after_one_that_is_not_there(fake: FakeEngine) -> None:
    first, second = begin(fake, "sleep 60"), begin(fake, "sleep 60")
    done = engine(fake.home, "cancel", first, "t1zzzzz", second)
    assert done.code == 1
    assert done.err.splitlines()[1] == "engine: no such task t1zzzzz"
    assert {job.row["status"] for job in fake.jobs.values()} == {"cancelled"}


def test_another_callers_task_takes_force(fake: FakeEngine) -> None:
    task = begin(fake, "sleep 60", "--as", "anna")
    done = engine(fake.home, "cancel", task, "--as", "ci")
    assert done == (77, b"", "engine: t8f3000 is anna's; cancel it with --force\n")
    assert engine(fake.home, "cancel", task, "--as", "ci", "--force").code == 0


def test_all_that_the_caller_has_is_cancelled_and_nothing_of_others(fake: FakeEngine) -> None:
    first, second = begin(fake, "sleep 60", "--as", "ci"), begin(fake, "sleep 60", "--as", "ci")
    other = begin(fake, "sleep 60", "--as", "anna")
    done = engine(fake.home, "cancel", "--all", "--as", "ci")
    assert (done.code, done.out) == (0, b"")
    assert done.err == (
        f"engine: {first} cancelled, 1 process\nengine: {second} cancelled, 1 process\n"
    )
    assert fake.jobs[other[1:]].row["status"] == "running"
    done = engine(fake.home, "cancel", "--all", "--as", "ci")
    assert done == (0, b"", "engine: nothing of ci runs or waits\n")
    done = engine(fake.home, "cancel", "--all", "--as", "anna", "--json")
    assert [json.loads(line)["taskId"] for line in done.out.splitlines()] == [other]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "which? ID... or --all"), (["t8f3000", "--all"], "ID and --all: give one")],
)
def test_cancel_takes_ids_or_all(fake: FakeEngine, arguments: list[str], words: str) -> None:
    done = engine(fake.home, "cancel", *arguments)
    assert (done.code, done.out, fake.calls) == (2, b"", [])
    assert done.err == f"engine: {words} (see: engine cancel --help)\n"


def test_kill_is_another_word_for_cancel(fake: FakeEngine) -> None:
    assert engine(fake.home, "kill", begin(fake, "sleep 60")).code == 0


def test_forget_drops_an_ended_task_and_no_other(fake: FakeEngine) -> None:
    engine(fake.home, "run", "true")
    running = begin(fake, "sleep 60")
    assert engine(fake.home, "forget", "t8f3000") == (0, b"", "")
    assert engine(fake.home, "forget", running) == (1, b"", "engine: t8f3001 is running\n")
    assert list(fake.jobs) == ["8f3001"]


def test_of_a_forget_whose_answer_is_lost_it_says_what_is_not_known(fake: FullerEngine) -> None:
    first, second = begin(fake, "true"), begin(fake, "true")
    engine(fake.home, "wait", first, second)
    fake.loses = ["forget"]
    done = engine(fake.home, "forget", first, second)
    assert (done.code, done.out) == (69, b"")
    assert done.err.splitlines()[0] == (
        "engine: connection lost: t8f3000 may have been forgotten; engine show t8f3000 tells"
    )
    assert done.err.splitlines()[1].startswith("engine: connected again after ")
    assert fake.methods().count("forget") == 2  # none was sent again
    assert fake.jobs == {}


def test_a_reset_whose_answer_is_lost_is_sent_again(fake: FullerEngine) -> None:
    fake.loses = ["reset_session"]
    assert engine(fake.home, "reset", "bash").code == 0
    assert fake.methods() == ["reset_session", "reset_session"]


@pytest.mark.parametrize("kind", ["bash", "python"])
def test_reset_starts_the_session_afresh(fake: FakeEngine, kind: str) -> None:
    assert engine(fake.home, "reset", kind, "--as", "ci") == (0, b"", "")
    assert fake.calls == [("reset_session", {"as": "ci", "kind": kind})]


def test_call_prints_the_reply_of_any_method(fake: FakeEngine) -> None:
    done = engine(fake.home, "call", "bash", '{"command": "echo hi"}', "--as", "ci")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["output"] == "hi\n"
    assert fake.calls[-1] == ("bash", {"command": "echo hi", "as": "ci"})
    done = engine(fake.home, "call", "list_tasks", "-", stdin=b'{"as": "anna"}')
    assert json.loads(done.out)["tasks"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["no_such"], 1, "engine: no method no_such\n"),
        (["shutdown"], 77, "engine: the token's role may not call shutdown\n"),
        (["bash", "[1]"], 2, "engine: params are a JSON object: they go by name"),
        (["bash", "{"], 2, "engine: that is no JSON: "),
    ],
)
def test_a_call_that_is_refused_says_why(
    fake: FakeEngine, arguments: list[str], code: int, words: str
) -> None:
    done = engine(fake.home, "call", *arguments)
    assert (done.code, done.out) == (code, b"")
    assert done.err.startswith(words)


def test_with_json_an_error_is_an_object_on_stderr(fake: FakeEngine) -> None:
    done = engine(fake.home, "cancel", "--json", "t1zzzzz")
    assert (done.code, done.out) == (1, b"")
    assert json.loads(done.err) == {
        "error": {
            "code": -32003,
            "kind": "unknown_handle",
            "message": "no such task t1zzzzz",
            "data": {"kind": "unknown_handle"},
        }
    }
