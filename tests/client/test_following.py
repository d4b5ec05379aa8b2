"""Mirrors `engine/client/following.py`."""

from __future__ import annotations

import pytest

from engine.client.cursors import LogCursor, OutputCursor
from engine.client.errors import RpcError
from engine.client.following import head_of_journal, page_of_logs, page_of_output, skip_gone
from engine.errors import UnknownHandle


def test_a_page_of_output_may_be_asked_for_twice() -> None:
    request = page_of_output(OutputCursor("t1", offset=3), "ci", 20.0)
    assert (request.method, request.budget, request.resend) == ("read_output", 20.0, True)
    assert (request.params["as"], request.params["offset"]) == ("ci", 3)


def test_a_page_of_logs_is_of_the_lines_that_are_wanted_and_may_be_asked_for_twice() -> None:
    request = page_of_logs(LogCursor(8), 55.0, {"logs": "error", "log_scope": "all", "as_": "ci"})
    assert request.params == {
        "as": "ci",
        "logs": "error",
        "logScope": "all",
        "after_seq": 8,
        "peek": True,
        "limit": 1000,
        "timeout_secs": 55.0,
    }
    assert (request.budget, request.resend) == (55.0, True)


def test_the_head_of_the_journal_is_looked_at_from_its_beginning() -> None:
    assert head_of_journal(None).params == {"before_seq": 1, "limit": 1, "peek": True}


def test_an_error_of_a_page_comes_out_as_its_class() -> None:
    cursor = OutputCursor("t1")
    skip_gone(cursor, RpcError(-32010, "gone", {"oldestOffset": 4}))
    assert cursor.offset == 4
    with pytest.raises(UnknownHandle):
        skip_gone(cursor, RpcError(-32003, "no such handle", {"handle": "t1"}))
