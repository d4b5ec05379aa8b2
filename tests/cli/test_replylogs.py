"""Mirrors `engine/cli/replylogs.py`: `--logs` and `--scope` of `run`, `exec` and `wait`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Engine
from cli.program import Terminal, engine
from client.fake_engine import FakeEngine

TIME = "2026-11-30T12:04:31.208Z"


def entry(seq: int, text: str, level: str = "error", task: str = "t8f3000") -> dict[str, Any]:
    line = {"seq": seq, "time": TIME, "level": level, "caller": "ci", "taskId": task}
    return line | {"source": "output", "text": text}


MARKER = {"marker": True, "leftOut": 2, "text": "2 error lines from another caller's work left out"}
LINES = [
    f"{TIME} error ci t8f3000 one",
    f"{TIME} error ci t8f3000 two",
    "-- 2 error lines from another caller's work left out; --scope all shows them",
]


@pytest.fixture
def noisy(fake: FakeEngine) -> FakeEngine:
    """An engine whose replies have lines."""
    fake.reply_logs = {"logs": [entry(1, "one"), entry(2, "two"), MARKER], "logsDropped": 0}
    return fake


def last_floor(noisy: FakeEngine) -> str:
    """The floor of the last call that asked for lines."""
    floor: str = [params["logs"] for _, params in noisy.calls if "logs" in params][-1]
    return floor


def test_without_the_option_no_line_is_asked_for_or_shown(noisy: FakeEngine) -> None:
    assert engine(noisy.home, "run", "true") == (0, b"", "")
    assert last_floor(noisy) == "none"
    done = engine(noisy.home, "wait", "t8f3000")
    assert (done.code, done.err) == (0, "")
    assert last_floor(noisy) == "none"


@pytest.mark.parametrize(
    "arguments", [["run", "true"], ["exec", "true"], ["run", "sleep 0.5"], ["run", "echo; true"]]
)
def test_lines_of_a_run_stand_on_stderr_each_once(noisy: FakeEngine, arguments: list[str]) -> None:
    verb, *rest = arguments
    done = engine(noisy.home, verb, "--logs", "error", *rest)
    assert done.code == 0
    lines = done.err.splitlines()
    assert [line for line in lines if not line.startswith("--")] == LINES[:2]
    assert set(lines) == set(LINES)
    calls = [params for method, params in noisy.calls if method in ("bash", "execute", "wait")]
    assert {params["logs"] for params in calls} == {"error"}


def test_lines_of_a_wait_stand_on_stderr(noisy: FakeEngine) -> None:
    engine(noisy.home, "run", "true")
    done = engine(noisy.home, "wait", "--logs", "error", "t8f3000")
    assert done.err.splitlines() == LINES
    assert done.out.count(b"\n") == 1


@pytest.mark.parametrize(
    ("options", "params"),
    [
        (["--logs", "debug"], ("debug", None)),
        (["--scope", "all"], ("warning", "all")),
        (["--logs", "none", "--scope", "caller"], ("none", "caller")),
    ],
)
def test_the_options_reach_the_calls(
    fake: FakeEngine, options: list[str], params: tuple[str, str | None]
) -> None:
    engine(fake.home, "run", *options, "true")
    engine(fake.home, "wait", *options, "t8f3000")
    for method in ("bash", "wait"):
        [asked] = [p for m, p in fake.calls if m == method]
        assert (asked["logs"], asked.get("logScope")) == params


def test_what_a_reply_had_no_room_for_is_counted(fake: FakeEngine) -> None:
    fake.reply_logs = {"logs": [entry(1, "one")], "logsDropped": 12}
    done = engine(fake.home, "run", "--logs", "error", "true")
    assert done.err.splitlines() == [
        "-- 12 older lines; engine logs -p error shows them",
        LINES[0],
    ]


def test_with_json_the_lines_are_in_the_record_alone(noisy: FakeEngine) -> None:
    done = engine(noisy.home, "run", "--json", "--logs", "error", "true")
    assert done.err == ""
    assert json.loads(done.out)["logs"] == noisy.reply_logs["logs"]


def test_a_wait_on_a_terminal_quotes_the_error_lines(noisy: FakeEngine) -> None:
    engine(noisy.home, "run", "false")
    with Terminal(noisy.home, "wait", "t8f3000", environ={"NO_COLOR": "1", "TZ": "UTC"}) as term:
        assert term.wait() == 1
    assert "  2 error lines:\r\n" in term.seen
    assert term.seen.count("12:04:31.208  two\r\n") == 1
    assert last_floor(noisy) == "error"


def test_lines_that_were_asked_for_are_not_quoted_again(noisy: FakeEngine) -> None:
    engine(noisy.home, "run", "false")
    options = ["wait", "--logs", "warning", "t8f3000"]
    with Terminal(noisy.home, *options, environ={"NO_COLOR": "1"}) as term:
        assert term.wait() == 1
    assert "error line" not in term.seen.replace("2 error lines from another", "")
    assert term.seen.count("t8f3000  two\r\n") == 1


def test_lines_beside_several_live_waits_leave_one_block(noisy: FakeEngine) -> None:
    for command in ("true", "sleep 0.6"):
        engine(noisy.home, "run", "-d", command)
    options = ["wait", "--logs", "error", "t8f3000", "t8f3001"]
    with Terminal(noisy.home, *options, environ={"NO_COLOR": "1"}) as term:
        assert term.wait() == 0
    assert term.seen.count("t8f3000  two\r\n") == 1
    last = term.seen.rpartition("left out; --scope all shows them\r\n")[2]
    assert "2 of 2 ended" in last


def test_a_real_run_shows_its_own_lines_and_a_word_on_the_others(tmp_path: Path) -> None:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as real:
        home = real.home
        assert engine(home, "run", "--as", "ci", "true").code == 0  # where ci begins to look
        assert engine(home, "run", "--as", "anna", "echo ERROR hers").code == 0
        done = engine(home, "run", "--as", "ci", "--logs", "error", "echo ERROR mine; exit 3")
        assert (done.code, done.out) == (3, b"ERROR mine\n")
        own, ours, marker, end = done.err.splitlines()
        assert own.split(maxsplit=1)[1].startswith("error ci t")
        assert own.endswith(" ERROR mine")
        assert ours.split()[1:3] == ["error", "engine"]
        assert ours.endswith(" failed (exit 3)")
        assert marker == (
            "-- 1 error line from another caller's work left out; --scope all shows it"
        )
        assert " failed, exit 3, after " in end
