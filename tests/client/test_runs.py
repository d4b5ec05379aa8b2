"""Mirrors `engine/client/runs.py`: the engine's answers are the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from engine.client.errors import ConnectionLost, RpcError
from engine.client.runs import Ask, Piece, Run, takers
from engine.protocol.parts import TaskRow
from engine.protocol.results import (
    Finished,
    Kickoff,
    OutputPage,
    Running,
    TaskPage,
)

COMMON: dict[str, Any] = {
    "kickoff_id": "k1",
    "as_": "ci",
    "logs": [],
    "logs_dropped": 0,
    "notices": [],
}


def finished(output_bytes: int = 0) -> Finished:
    nothing: dict[str, Any] = dict.fromkeys(
        ("exit_code", "signal", "reason", "cwd", "started_at", "duration_ms", "cpu_ms")
    )
    none: dict[str, Any] = dict.fromkeys(("omitted_bytes", "omitted_lines", "dropped_bytes"), 0)
    return Finished(
        **COMMON,
        **nothing,
        **none,
        status="succeeded",
        task_id="t1",
        output_bytes=output_bytes,
        output_path="/o",
        created_at="",
        ended_at="",
        max_rss_bytes=None,
        survivors=[],
    )


def running() -> Running:
    return Running(
        **COMMON,
        status="running",
        task_id="t1",
        elapsed_ms=1,
        output_bytes=0,
        last_output_at=None,
        changed=False,
        hint="",
    )


def kickoff() -> Kickoff:
    return Kickoff(**COMMON, status="running", queue_position=1, queue_reason="full", hint="")


def page(data: bytes, offset: int, *, eof: bool = False) -> OutputPage:
    end = offset + len(data)
    return OutputPage(
        base64=data, offset=offset, next_offset=end, size=end, eof=eof, dropped_bytes=0
    )


def rows(*rows: TaskRow) -> TaskPage:
    return TaskPage(tasks=list(rows), has_more=False, next=None, latest_seq=9, next_changed_after=9)


def brief(asks: list[Ask]) -> list[tuple[str, float | None]]:
    """Method and time of each."""
    return [(ask.request.method, ask.request.params.get("timeout_secs")) for ask in asks]


def make(*streams: str, **options: Any) -> Run:
    return Run("make", options, caller="ci", streams=streams)


def test_a_job_whose_output_nobody_wants_is_started_and_waited_for() -> None:
    run = make()
    (start,) = run.begin()
    assert brief([start]) == [("bash", 20.0)]
    assert start.request.params["session"] is False
    assert start.request.resend
    (wait,) = run.take(start, running(), None)
    assert wait.request.params == {"taskId": "t1", "timeout_secs": 20.0, "as": "ci"}
    (wait,) = run.take(wait, running(), None)
    assert run.take(wait, finished(7), None) == []
    assert run.is_done
    assert run.result == finished(7)


def test_the_first_call_and_its_repeat_have_one_key() -> None:
    run, other = make(), make()
    first, again = run.start(20.0).params, run.start(0.0).params
    assert first["key"] == again["key"]
    assert first["key"] != other.start(20.0).params["key"]
    assert make(key="mine").start(1.0).params["key"] == "mine"


def test_an_argument_list_is_executed() -> None:
    run = Run(["make", "-j"], {}, caller="ci")
    assert run.start(1.0).params["argv"] == ["make", "-j"]


def test_output_that_is_wanted_is_read_beside_the_wait() -> None:
    run = make("output")
    (start,) = run.begin()
    assert brief([start]) == [("bash", 0.25)]
    read, wait = run.take(start, running(), None)
    assert brief([read, wait]) == [("read_output", 20.0), ("wait", 20.0)]
    (read,) = run.take(read, page(b"one\n", 0), None)
    assert run.pieces() == [Piece("output", b"one\n")]
    assert run.pieces() == []
    assert read.request.params["offset"] == 4
    run.take(wait, finished(8), None)
    assert not run.is_done
    assert run.take(read, page(b"two\n", 4, eof=True), None) == []
    assert run.pieces() == [Piece("output", b"two\n")]
    assert run.is_done


def test_what_is_left_when_the_job_has_ended_is_read_without_waiting() -> None:
    run = make("output")
    (start,) = run.begin()
    (read,) = run.take(start, finished(4), None)
    assert brief([read]) == [("read_output", 0.0)]
    assert not run.is_done
    run.take(read, page(b"one\n", 0, eof=True), None)
    assert run.is_done


def test_a_job_that_wrote_nothing_is_not_read() -> None:
    run = make("output")
    (start,) = run.begin()
    assert run.take(start, finished(), None) == []
    assert run.is_done


def test_two_streams_are_read_side_by_side() -> None:
    run = make("stdout", "stderr")
    (start,) = run.begin()
    assert start.request.params["streams"] == "split"
    out, err, _wait = run.take(start, running(), None)
    assert [out.request.params["stream"], err.request.params["stream"]] == ["stdout", "stderr"]
    run.take(err, page(b"e", 0), None)
    run.take(out, page(b"o", 0), None)
    assert run.pieces() == [Piece("stderr", b"e"), Piece("stdout", b"o")]


def test_a_call_in_the_session_stays_while_its_repeat_tells_the_handle() -> None:
    run = make("output", session=True)
    start, repeat = run.begin()
    assert brief([start, repeat]) == [("bash", 20.0), ("bash", 0.25)]
    assert brief(run.take(repeat, running(), None)) == [("read_output", 20.0)]
    assert brief(run.take(start, running(), None)) == [("wait", 20.0)]


def test_the_end_is_taken_from_whichever_call_tells_it_first() -> None:
    run = make("output", session=True)
    start, repeat = run.begin()
    (read,) = run.take(repeat, finished(1), None)
    assert run.take(start, finished(1), None) == []
    run.take(read, page(b"x", 0, eof=True), None)
    assert run.is_done


def test_a_call_that_waits_for_its_turn_is_watched_until_it_is_reached() -> None:
    run = make("output")
    (start,) = run.begin()
    look, wait = run.take(start, kickoff(), None)
    assert (look.request.method, look.request.params["kickoffId"]) == ("read_task", "k1")
    assert wait.request.params["kickoffId"] == "k1"
    (look,) = run.take(look, rows(TaskRow(task_id="t1", kickoff_id="k1", status="queued")), None)
    assert look.request.params["changed_after"] == 9
    assert brief([look]) == [("list_tasks", 55.0)]
    (look,) = run.take(look, rows(TaskRow(task_id="t2", kickoff_id="k2", status="running")), None)
    (read,) = run.take(look, rows(TaskRow(task_id="t1", kickoff_id="k1", status="running")), None)
    assert (read.request.method, read.request.params["taskId"]) == ("read_output", "t1")
    assert [ask.request.method for ask in run.take(wait, kickoff(), None)] == ["wait"]


def test_one_that_ends_before_it_is_reached_is_done() -> None:
    run = make("output")
    (start,) = run.begin()
    look, wait = run.take(start, kickoff(), None)
    run.take(wait, finished(), None)
    assert run.is_done
    assert run.take(look, rows(), None) == []


def test_what_the_cap_dropped_is_passed_over() -> None:
    run = make("output")
    (start,) = run.begin()
    read, _wait = run.take(start, running(), None)
    (read,) = run.take(read, None, RpcError(-32010, "gone", {"oldestOffset": 9}))
    assert read.request.params["offset"] == 9


def test_any_other_error_ends_the_run() -> None:
    run = make("output")
    (start,) = run.begin()
    with pytest.raises(RpcError, match="overloaded"):
        run.take(start, None, RpcError(-32007, "overloaded"))
    read, _wait = run.take(start, running(), None)
    with pytest.raises(ConnectionLost):
        run.take(read, None, ConnectionLost("gone"))


def test_the_reply_is_asked_for_as_it_was_wanted() -> None:
    run = make(max_output_bytes=0, logs="none", log_scope="all")
    (start,) = run.begin()
    (wait,) = run.take(start, running(), None)
    for asked in (start, wait):
        params = asked.request.params
        assert (params["max_output_bytes"], params["logs"]) == (0, "none")
        assert params["logScope"] == "all"


def test_a_cancel_names_the_job_as_far_as_it_is_known() -> None:
    run = make()
    (start,) = run.begin()
    (wait,) = run.take(start, kickoff(), None)
    assert run.cancel().params == {"kickoffId": "k1", "as": "ci"}
    run.take(wait, running(), None)
    assert run.cancel().params == {"taskId": "t1", "as": "ci"}


def test_who_takes_what_follows_from_the_streams() -> None:
    assert takers("o", None, {}) == {"output": "o"}
    assert takers("o", "e", {}) == {"stdout": "o", "stderr": "e"}
    assert takers(None, "e", {}) == {"stderr": "e"}
    assert takers("o", None, {"streams": "split"}) == {"stdout": "o"}
    assert takers(None, None, {}) == {}


def test_what_processes_left_behind_go_on_to_write_is_not_waited_for() -> None:
    run = make("output")
    (start,) = run.begin()
    read, wait = run.take(start, running(), None)
    run.take(wait, finished(8), None)
    assert run.take(read, page(b"one\n", 0), None) == []  # all there was, though no end of it
    assert run.is_done
