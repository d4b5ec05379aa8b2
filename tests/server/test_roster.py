"""Mirrors `engine/server/roster.py`."""

from __future__ import annotations

from typing import Any

import pytest

from engine.server import roster as module
from engine.server.roster import Roster


def connection(name: str) -> Any:
    """All that a roster knows of a connection."""
    return type("Client", (), {"name": name})()


def test_a_caller_has_the_time_of_its_last_call_and_its_connections() -> None:
    roster, first, second = Roster(), connection("anon-1"), connection("anon-2")
    roster.saw("ci", first, 10)
    roster.saw("ci", first, 20)
    roster.saw("ci", second, 30)
    roster.saw("docs", second, 25)
    assert sorted(roster.names()) == ["ci", "docs"]
    assert (roster.last_seen("ci"), roster.connections("ci")) == (30, 2)
    assert (roster.last_seen("docs"), roster.connections("docs")) == (25, 1)
    assert (roster.last_seen("nobody"), roster.connections("nobody")) == (None, 0)


def test_a_name_outlives_its_connection_and_a_connection_that_was_a_caller_does_not() -> None:
    roster, one = Roster(), connection("anon-1")
    roster.saw("ci", one, 10)
    roster.saw("anon-1", one, 11)
    roster.closed(one)
    assert sorted(roster.names()) == ["ci"]
    assert roster.connections("ci") == 0
    roster.closed(one)  # one that never called is no matter either


def test_who_has_no_connection_is_forgotten_after_a_while() -> None:
    roster, one, other = Roster(), connection("anon-1"), connection("anon-2")
    roster.saw("there", one, 10)
    roster.saw("gone", other, 10)
    roster.saw("late", other, 20)
    roster.closed(other)
    roster.drop_older(20)
    assert sorted(roster.names()) == ["late", "there"]


def test_what_is_recalled_is_never_newer_than_what_was_seen() -> None:
    roster, one = Roster(), connection("anon-1")
    roster.saw("ci", one, 50)
    roster.recall("ci", 40)
    roster.recall("old", 30)
    roster.recall("old", 20)
    assert (roster.last_seen("ci"), roster.last_seen("old")) == (50, 30)


def test_of_too_many_callers_the_one_seen_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert module.MOST_CALLERS == 10_000
    monkeypatch.setattr(module, "MOST_CALLERS", 3)
    roster, one = Roster(), connection("anon-1")
    for caller in ("a", "b", "c", "a", "d"):
        roster.saw(caller, one, 10)
    assert sorted(roster.names()) == ["a", "c", "d"]
    assert [roster.connections(caller) for caller in "abcd"] == [1, 0, 1, 1]
    roster.saw("b", one, 11)
    roster.recall("e", 12)
    assert sorted(roster.names()) == ["b", "d", "e"]
    roster.closed(one)
    assert [roster.connections(caller) for caller in "abcd"] == [0, 0, 0, 0]
