"""Mirrors `scripts/crash_account.py`, `crash_tracing.py`: an account that sees nothing is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Engine

sys.path.insert(0, str(Path(__file__).parent.parent))

from scripts.crash_account import Account, Judge
from scripts.crash_scenario import Scenario
from scripts.crash_tracing import calls_made, place_of_kill

END = {"status": "failed", "exitCode": 7, "reason": "exit", "signal": None, "output": "argv\n"}


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    made = Scenario(tmp_path)
    yield made
    made.close()


def account_of_b1(
    scenario: Scenario, *, lines: str = "ran\n", rows: int = 1, may_lose: bool = False, **end: Any
) -> Account:
    """What is said of a call that was answered and whose job ended with code 7."""
    call = scenario.calls["B1"]
    call.is_sent, call.handle = True, "abc123"
    if lines:
        (scenario.marks / "B1").write_text(lines)
    judge = Judge(scenario, may_lose=may_lose, may_kill=False)
    judge.rows = {"B1": [{"taskId": "tabc123", **END, **end}] * rows}
    judge.ends = {"B1": {"taskId": "tabc123", "as": "bob", **END, **end}}
    account = Account()
    judge._judge_call(Engine(scenario.marks), call, account)
    return account


def test_a_call_that_was_begun_once_and_has_its_end_is_counted_so(scenario: Scenario) -> None:
    account = account_of_b1(scenario)
    assert (account.once, account.wrong) == (["B1"], [])


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ({"lines": "ran\nran\n"}, "B1 was begun 2 times"),
        ({"rows": 2}, "B1 has 2 tasks"),
        ({"rows": 0}, "B1: told, and now"),
        ({"lines": ""}, "B1 ended well and was not begun"),
        ({"exitCode": 0, "status": "succeeded"}, "B1 {"),
        ({"output": ""}, "B1 {"),
        ({"status": "lost", "exitCode": None, "reason": "lost"}, "B1 {"),
        ({"as": "ann"}, "B1 is ann's"),
    ],
)
def test_what_is_not_so_is_wrong(scenario: Scenario, found: dict[str, Any], complaint: str) -> None:
    (wrong,) = account_of_b1(scenario, **found).wrong
    assert wrong.startswith(complaint)


def test_a_task_may_be_lost_where_its_keeper_was_killed(scenario: Scenario) -> None:
    lost: dict[str, Any] = {"status": "lost", "exitCode": None, "reason": "lost", "output": "ar"}
    account = account_of_b1(scenario, may_lose=True, **lost)
    assert (account.cut_short, account.wrong) == (["B1"], [])


def test_one_that_was_forgotten_may_not_come_back(scenario: Scenario) -> None:
    scenario.forget_sent = scenario.is_forgotten = True
    (wrong,) = account_of_b1(scenario).wrong
    assert wrong.startswith("B1 was forgotten, and is back")


def test_one_that_ran_and_of_which_nobody_knows_is_gone(scenario: Scenario) -> None:
    call = scenario.calls["B1"]
    call.is_sent = True
    (scenario.marks / "B1").write_text("ran\n")
    account = Account()
    judge = Judge(scenario, may_lose=False, may_kill=False)
    judge._judge_call(Engine(scenario.marks), call, account)
    assert account.wrong == ["B1 has run and is gone"]


def test_the_session_may_know_what_was_told_to_be_committed_or_asked_for_later(
    scenario: Scenario,
) -> None:
    for name in ("A0", "A1", "A2"):
        scenario.calls[name].is_sent = True
    scenario.calls["A0"].end = scenario.calls["A1"].end = END
    judge = Judge(scenario, may_lose=False, may_kill=False)
    assert judge._told == {"A1", "A2"}


TRACE = """\
18  mkdir("/h", 0700) = 0
21  write(3, "x", 1) = 1
21  write(3, "y", 1 <unfinished ...>
18  write(4, "z", 1) = ?
21  <... write resumed>) = ?
18  +++ killed by SIGKILL +++
21  +++ killed by SIGKILL +++
"""


def test_a_trace_tells_where_the_kill_came_and_what_a_thread_called() -> None:
    lines = TRACE.splitlines()
    assert place_of_kill(lines) == "21  <... write resumed>) = ?"
    assert place_of_kill(lines[:4]) is None
    assert calls_made(lines) == {"mkdir": 1, "write": 2}
