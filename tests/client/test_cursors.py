"""Mirrors `engine/client/cursors.py`."""

from __future__ import annotations

import pytest

from engine.client.cursors import LogCursor, OutputCursor, OutputPlace, place_of
from engine.client.errors import RpcError
from engine.protocol.results import OutputPage


def page(offset: int, next_offset: int, size: int, *, eof: bool = False) -> OutputPage:
    return OutputPage(offset=offset, next_offset=next_offset, size=size, eof=eof, dropped_bytes=0)


def test_a_cursor_asks_for_what_is_after_the_last_page() -> None:
    cursor = OutputCursor("t1", "stderr", offset=5)
    assert cursor.take(b"abc", page(5, 8, 8), has_ended=False) == b"abc"
    assert cursor.params(20.0) == {
        "taskId": "t1",
        "stream": "stderr",
        "raw": True,
        "offset": 8,
        "limit_bytes": 524_288,
        "timeout_secs": 20.0,
    }
    assert not cursor.is_done


def test_it_is_done_at_the_end_of_the_file() -> None:
    cursor = OutputCursor("t1")
    cursor.take(b"ab", page(0, 2, 2, eof=True), has_ended=False)
    assert cursor.is_done


def test_of_a_task_that_has_ended_it_reads_what_there_is_and_waits_for_no_more() -> None:
    cursor = OutputCursor("t1")
    cursor.take(b"ab", page(0, 2, 4), has_ended=True)
    assert not cursor.is_done
    cursor.take(b"cd", page(2, 4, 4), has_ended=True)
    assert cursor.is_done


def test_a_page_as_it_came_says_as_much_as_a_decoded_one() -> None:
    page = {"base64": "YWI=", "offset": 3, "nextOffset": 5, "size": 9, "eof": False}
    assert place_of(page) == OutputPlace(offset=3, next_offset=5, size=9, eof=False)
    cursor = OutputCursor("t1", offset=3)
    assert cursor.take(b"ab", place_of(page), has_ended=False) == b"ab"
    assert (cursor.offset, cursor.gone, cursor.is_done) == (5, 0, False)


def test_what_was_dropped_is_counted_and_passed_over() -> None:
    cursor = OutputCursor("t1")
    cursor.skip(RpcError(-32010, "gone", {"oldestOffset": 10}))
    assert (cursor.offset, cursor.gone) == (10, 10)
    cursor.take(b"ab", page(12, 14, 14), has_ended=False)
    assert (cursor.offset, cursor.gone) == (14, 12)


@pytest.mark.parametrize(
    "error",
    [
        RpcError(-32003, "no such handle", {"oldestOffset": 10}),
        RpcError(-32010, "gone", {"oldestOffset": 0}),
        RpcError(-32010, "gone", {}),
    ],
)
def test_an_error_about_something_else_is_raised(error: RpcError) -> None:
    cursor = OutputCursor("t1")
    with pytest.raises(RpcError):
        cursor.skip(error)


def test_a_log_cursor_goes_on_after_the_page_and_moves_nobody() -> None:
    cursor = LogCursor(7)
    assert cursor.params(55.0) == {
        "after_seq": 7,
        "peek": True,
        "limit": 1000,
        "timeout_secs": 55.0,
    }
    cursor.take(9)
    assert cursor.params(0.0)["after_seq"] == 9
