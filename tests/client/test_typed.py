"""Mirrors `engine/client/typed.py`."""

from __future__ import annotations

from typing import Any

import pytest

from engine.client.errors import ProtocolFailure
from engine.client.typed import Request
from engine.protocol.results import Cancelled, CancelledAll, Kickoff, OutputPage, Running

COMMON = {"kickoffId": "k1", "as": "ci", "logs": [], "logsDropped": 0, "notices": []}


def decode(method: str, result: Any) -> Any:
    request: Request[Any] = Request(method, {})
    return request.decode(result)


def test_a_reply_is_the_first_type_whose_members_are_all_there() -> None:
    waiting = {**COMMON, "status": "running", "hint": "h"}
    kickoff = decode("bash", {**waiting, "queuePosition": 3, "queueReason": "full"})
    assert isinstance(kickoff, Kickoff)
    assert (kickoff.queue_position, kickoff.as_) == (3, "ci")
    started = {"taskId": "t1", "elapsedMs": 5, "outputBytes": 2, "lastOutputAt": None}
    running = decode("wait", {**waiting, **started, "changed": True, "output": "hi"})
    assert isinstance(running, Running)
    assert (running.task_id, running.output) == ("t1", "hi")
    done = {"status": "cancelled", "outcome": "cancelled", "signalled": [1], "survivors": []}
    assert isinstance(decode("cancel", done), Cancelled)
    assert decode("cancel", {"tasks": [], "count": 0}) == CancelledAll(tasks=[], count=0)


def test_a_newer_engine_may_say_more() -> None:
    page = {"offset": 0, "nextOffset": 2, "size": 2, "eof": True, "droppedBytes": 0, "new": 1}
    read = decode("read_output", {**page, "base64": "aGk="})
    assert isinstance(read, OutputPage)
    assert (read.base64, read.text, read.eof) == (b"hi", None, True)


def test_the_result_of_a_method_without_a_type_stays_as_it_is() -> None:
    assert decode("a_method_to_come", {"a": [1]}) == {"a": [1]}


@pytest.mark.parametrize("result", [{}, None, [1], {"written": "many"}])
def test_what_is_no_result_of_the_method_is_no_engine_of_ours(result: Any) -> None:
    with pytest.raises(ProtocolFailure, match="no result of write_stdin"):
        decode("write_stdin", result)


def test_a_caller_that_is_given_stays() -> None:
    request: Request[Any] = Request("wait", {"as": "a"}, 3.0, False)
    assert request.as_caller("b") is request
    assert Request[Any]("wait", {"x": 1}, 3.0, False).as_caller("b") == Request(
        "wait", {"as": "b", "x": 1}, 3.0, False
    )
