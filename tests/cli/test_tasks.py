"""Mirrors `engine/cli/tasks.py`."""

from __future__ import annotations

import json

import pytest
from cli.program import Terminal, engine
from client.fake_engine import FakeEngine

from engine.cli import tasks


@pytest.fixture
def busy(fake: FakeEngine) -> FakeEngine:
    """An engine with three tasks of two callers."""
    engine(fake.home, "run", "--as", "ci", "echo one")
    engine(fake.home, "run", "--as", "ci", "exit 3")
    engine(fake.home, "run", "--as", "anna", "true")
    return fake


def listed(fake: FakeEngine, *options: str) -> list[str]:
    """The ids that `tasks` prints."""
    done = engine(fake.home, "tasks", "--no-header", "--as", "ci", *options)
    assert (done.code, done.err) == (0, "")
    return [line.split()[1] for line in done.out.decode().splitlines()]


def test_the_list_is_of_the_caller_newest_first(busy: FakeEngine) -> None:
    assert listed(busy) == ["t8f3001", "t8f3000"]


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        (["-a"], ["t8f3002", "t8f3001", "t8f3000"]),
        (["-c", "anna"], ["t8f3002"]),
        (["--failed"], ["t8f3001"]),
        (["-a", "-s", "succeeded,running"], ["t8f3002", "t8f3000"]),
        (["-a", "-n", "1"], ["t8f3002"]),
        (["-a", "--since", "10m"], ["t8f3002", "t8f3001", "t8f3000"]),
        (["-a", "--since", "2999-01-01T00:00:00Z"], []),
        (["-s", "lost"], []),
    ],
)
def test_options_choose_what_is_listed(
    busy: FakeEngine, options: list[str], tasks: list[str]
) -> None:
    assert listed(busy, *options) == tasks


def test_to_a_pipe_nothing_is_cut_and_there_is_no_escape(busy: FakeEngine) -> None:
    long = "echo " + "x" * 150
    engine(busy.home, "run", "--as", "ci", long)
    out = engine(busy.home, "tasks", "--as", "ci", COLUMNS="40").out
    assert long.encode() in out
    assert b"\x1b" not in out
    assert out.startswith(b"STATUS     TASK     CALLER  EXIT  CREATED")


def test_json_is_the_wires_row_a_line(busy: FakeEngine) -> None:
    rows = [
        json.loads(line) for line in engine(busy.home, "tasks", "-a", "--json").out.splitlines()
    ]
    assert [row["taskId"] for row in rows] == ["t8f3002", "t8f3001", "t8f3000"]
    assert rows[1] == busy.jobs["8f3001"].row


@pytest.mark.parametrize("columns", [40, 50, 79, 80])
def test_on_a_terminal_every_line_fits(busy: FakeEngine, columns: int) -> None:
    with Terminal(busy.home, "tasks", "-a", columns=columns, environ={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 0
    lines = terminal.seen.split("\r\n")
    assert len(lines) == 6  # header, three rows, foot, nothing
    assert max(map(len, lines)) <= columns
    assert "\x1b" not in terminal.seen


def test_an_empty_list_says_whose_it_is_and_what_shows_more(fake: FakeEngine) -> None:
    with Terminal(fake.home, "tasks", "--as", "anna") as terminal:
        assert terminal.wait() == 0
    assert terminal.seen == ("no tasks of anna, nor of others. engine run TEXT starts one\r\n")
    assert engine(fake.home, "tasks", "--no-header").out == b""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--as", "bob"], "no tasks of bob. engine tasks -a shows everybody's (3)"),
        (["-c", "eve"], "no tasks of eve. engine tasks -a shows everybody's (3)"),
        (["--failed", "--as", "bob"], "no such tasks"),
    ],
)
def test_an_empty_list_of_one_among_others_counts_theirs(
    busy: FakeEngine, options: list[str], words: str
) -> None:
    with Terminal(busy.home, "tasks", *options) as terminal:
        assert terminal.wait() == 0
    assert terminal.seen == words + "\r\n"


def test_a_list_that_was_cut_says_of_how_many(busy: FakeEngine) -> None:
    with Terminal(busy.home, "tasks", "-a", "-n", "1", environ={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 0
    foot = terminal.seen.split("\r\n")[2]
    assert foot == "32 slots" + "1 of 3; -n 100 shows more".rjust(72)


def test_no_more_than_two_thousand_are_counted() -> None:
    asked: list[dict[str, object]] = []

    class Endless:
        def call(self, method: str, params: dict[str, object]) -> dict[str, object]:
            asked.append(params)
            assert len(asked) < 9
            return {"tasks": [{}] * 500, "hasMore": True, "next": "x"}

    assert tasks._total(Endless(), {"as": "ci"}, 20, "x") == "2,020+"
    assert len(asked) == 4
    assert tasks._total(Endless(), {"as": "ci"}, 20, None) == ""


@pytest.mark.parametrize(
    "options",
    [["-s", "gone"], ["--since", "soon"], ["-n", "0"], ["-c", "A"], ["-s", "gone", "--watch"]],
)
def test_wrong_options_are_exit_2_before_anything_is_asked(
    fake: FakeEngine, options: list[str]
) -> None:
    done = engine(fake.home, "tasks", *options)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("engine: ")
    assert fake.calls == []


def test_show_has_everything_about_one_task(busy: FakeEngine) -> None:
    lines = engine(busy.home, "show", "t8f3001").out.decode().splitlines()
    assert "exitCode       3" in lines
    assert "command        exit 3" in lines
    row = json.loads(engine(busy.home, "show", "--json", "t8f3001").out)
    assert (row["status"], row["command"]) == ("failed", "exit 3")


def test_looking_asks_nothing_that_receives(busy: FakeEngine) -> None:
    busy.calls.clear()
    engine(busy.home, "tasks", "-a")
    engine(busy.home, "show", "t8f3001")
    engine(busy.home, "output", "t8f3001")
    assert set(busy.methods()) == {"list_tasks", "read_task", "read_output", "read_logs"}
    assert all(params["peek"] for method, params in busy.calls if method == "read_logs")


def test_show_quotes_the_error_lines_of_the_task(busy: FakeEngine) -> None:
    busy.log("warning", "a warning", "ci", "t8f3001")
    busy.log("error", "Name is not defined", "ci", "t8f3001")
    busy.log("error", "another's", "ci", "t8f3000")
    out = engine(busy.home, "show", "t8f3001").out.decode()
    [line] = [line for line in out.splitlines() if line.startswith("error ")]
    assert line == f"error          {busy.lines[1]['time']} Name is not defined"
    assert "errors" not in engine(busy.home, "show", "--json", "t8f3001").out.decode()
