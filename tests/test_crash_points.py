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
from scripts.crash_many import CALLER, Many
from scripts.crash_scenario import Scenario
from scripts.crash_tracing import calls_made, place_of_kill
from scripts.soak_inbox import Tell

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


def test_one_that_was_to_be_skipped_and_has_run_is_seen(scenario: Scenario) -> None:
    call = scenario.calls["S1"]
    account, judge = Account(), Judge(scenario, may_lose=False, may_kill=False)
    end: dict[str, Any] = {"as": "cat", "status": "skipped", "exitCode": None, "output": ""}
    judge._judge_end(call, end, end, "", account)
    assert (account.unbegun, account.wrong) == (["S1"], [])
    judge._judge_end(call, end, end, "ran\n", account)
    assert [words.partition(":")[0] for words in account.wrong] == [
        "S1 has run and was to be skipped"
    ]


# -- the round and the inbox ---------------------------------------------------------------------

FAILED = ("failed", 1, None, "exit")


def seat_row(task: str, code: int = 0, **facts: Any) -> dict[str, Any]:
    status = "failed" if code else "succeeded"
    end = {"status": status, "exitCode": code, "signal": None, "reason": "exit"}
    about = {"as": CALLER, "roundId": "r1", "title": "", "startedAt": "1", "endedAt": "2"}
    return {"taskId": task, **about, **end, **facts}


def round_of(marks: Path) -> tuple[Many, dict[str, list[dict[str, Any]]]]:
    """A round that was retried, whose ends were told as they should be."""
    many = Many(marks)
    many.round_id, many.is_sent = "r1", True
    many.is_retry_sent = many.is_retried = True
    rows = {"Z1": [seat_row("t1")], "Z2": [seat_row("t2", 1), seat_row("t3", 1)]}
    for name, tasks in rows.items():
        for each in tasks:
            (marks / f"{name}.{each['taskId']}").write_text("ran\n")
    many.ledger.tells["t1"].append(Tell(1.0, False, False, ("succeeded", 0, None, "exit")))
    for task in ("t2", "t3"):
        many.ledger.tells[task].append(Tell(1.0, False, False, FAILED))
    many.ledger.rounds["r1"] = [False, False]
    return many, rows


def found(many: Many, rows: dict[str, list[dict[str, Any]]], *told: str) -> list[str]:
    return many.complaints(rows, told, may_kill=False)


def test_nothing_is_wrong_with_a_round_whose_ends_were_told_twice_only_with_the_mark(
    tmp_path: Path,
) -> None:
    many, rows = round_of(tmp_path)
    many.ledger.tells["t2"].append(Tell(2.0, True, False, FAILED))
    many.ledger.rounds["r1"].append(True)
    assert found(many, rows) == []


def test_an_end_lost_or_told_twice_without_the_mark_is_seen(tmp_path: Path) -> None:
    many, rows = round_of(tmp_path)
    many.ledger.tells["t2"].append(Tell(2.0, False, False, FAILED))
    assert found(many, rows) == ["t2 was told 2 times unmarked"]
    many.ledger.tells["t2"] = []
    assert found(many, rows) == ["nobody was told of the end of t2 "]
    assert found(many, rows, "t2") == []
    many.ledger.rounds["r1"] = [False, False, False]
    (wrong,) = found(many, rows, "t2")
    assert wrong.startswith("the ends of r1 were told")


def test_half_a_round_or_a_seat_begun_twice_is_seen(tmp_path: Path) -> None:
    many, rows = round_of(tmp_path)
    (tmp_path / "Z2.t3").write_text("ran\nran\n")
    assert found(many, rows) == ["Z2.t3 was begun 2 times"]
    (tmp_path / "Z2.t3").unlink()
    assert [words[:15] for words in found(many, rows)] == ["Z2 ended so: {'"]
    del rows["Z2"]
    assert [words[:14] for words in found(many, rows)] == ["Z2.t2 has run ", "half a round: "]
    rows["Z2"] = [seat_row(f"t{number}", 1) for number in (2, 3, 4)]
    assert "Z2 has 3 tasks, of 2 to 2" in found(many, rows)
    assert found(many, {}) == [
        *("Z1.t1 has run and is gone", "Z2.t2 has run and is gone", "r1 is gone"),
    ]


def test_one_that_has_not_waited_for_its_lane_or_the_end_before_it_is_seen(tmp_path: Path) -> None:
    many, rows = round_of(tmp_path)
    other: dict[str, Any] = {"as": "bob", "roundId": None}
    rows |= {
        "L1": [seat_row("t4", 9, **other, endedAt="5")],
        "L2": [seat_row("t5", **other, startedAt="5")],
        "N1": [seat_row("t6", **other, startedAt="4")],
    }
    assert found(many, rows) == ["N1 was started 4, L1 has ended 5"]


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
