"""Mirrors `engine/cli/callers.py`."""

from __future__ import annotations

import json

import pytest
from cli.fuller_engine import FullerEngine, caller
from cli.looks import WIDTHS, golden, view
from cli.program import Terminal, engine

from engine.cli.callers import caller_table, callers_at_work
from engine.cli.view import cells

ROSTER = [
    caller("anna", endedLastHour=1_204, lastSeen="2026-11-30T11:02:31.000Z"),
    caller("build-agent", 3, connections=2, endedLastHour=41, failedLastHour=2,
           lastSeen="2026-11-30T12:04:29.000Z"),
    caller("ci", 1, 12, endedLastHour=204, failedLastHour=9, lastSeen="2026-11-30T12:04:31.000Z"),
    caller("the-agent-with-a-long-name-of-its-own", connections=0),
]  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
def test_the_callers_at_each_width(width: int | None) -> None:
    assert caller_table(ROSTER, view(width)) == golden("callers", width)


@pytest.mark.parametrize("width", [20, 40, 50, 80])
def test_each_line_fits_the_width(width: int) -> None:
    lines = caller_table(ROSTER, view(width))
    assert len(lines) == len(ROSTER) + 1
    assert max(map(cells, lines)) <= max(width, 32)


def test_those_at_work_are_named_and_the_others_counted() -> None:
    assert callers_at_work(ROSTER) == ["build-agent 3", "ci 1 (+12 queued)", "2 idle"]
    assert callers_at_work([]) == ["0 idle"]
    assert callers_at_work([caller("a", 1)]) == ["a 1"]


def test_failures_are_red_and_none_is_not() -> None:
    painted = caller_table(ROSTER, view(80, colour=True), header=False)
    assert "\x1b[31m       2\x1b[0m" in painted[0]
    assert "\x1b[31m" not in painted[2]


def test_all_pages_of_the_roster_are_read(fake: FullerEngine) -> None:
    fake.roster_pages = [[caller("a"), caller("b")], [caller("c", 2)]]
    done = engine(fake.home, "callers", "--no-header")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.decode().splitlines()] == ["c", "a", "b"]
    assert [params.get("after") for method, params in fake.calls if method == "roster"] == [
        None,
        "b",
    ]


def test_json_is_the_wires_entry_a_line(fake: FullerEngine) -> None:
    fake.roster_pages = [ROSTER]
    lines = engine(fake.home, "callers", "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == ROSTER


def test_nobody_is_said_on_a_terminal_and_a_header_to_a_pipe(fake: FullerEngine) -> None:
    with Terminal(fake.home, "callers") as terminal:
        assert terminal.wait() == 0
    assert terminal.seen == "no callers. engine run TEXT makes you one\r\n"
    head = b"CALLER  RUNNING  QUEUED  ENDED  FAILED  CONNECTIONS  SEEN\n"
    assert engine(fake.home, "callers") == (0, head, "")


def test_an_engine_without_a_roster_refuses(fake: FullerEngine) -> None:
    fake.roster_pages = None
    assert engine(fake.home, "callers") == (1, b"", "engine: no method roster\n")
