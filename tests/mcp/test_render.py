"""Mirrors `engine/mcp/render.py`."""

from __future__ import annotations

from typing import Any

import pytest

from engine.mcp.render import cut_middle, reads_structured, show, telling

ENDED: dict[str, Any] = {
    "status": "failed",
    "taskId": "t8f3kr9",
    "kickoffId": "k8f3kr9",
    "as": "ci",
    "exitCode": 2,
    "signal": None,
    "reason": "exit",
    "output": "one\ntwo\n",
    "outputBytes": 8,
    "omittedBytes": 0,
    "durationMs": 12,
    "survivors": [],
    "logs": [
        {"seq": 7, "level": "error", "caller": "ci", "taskId": "t8f3kr9", "text": "bad"},
        {"marker": True, "leftOut": 3, "text": "<3 error lines from other callers left out>"},
    ],
    "logsDropped": 0,
    "notices": [{"taskId": "t1", "status": "succeeded", "exitCode": 0, "endedAt": "x"}],
}


def line(text: str) -> dict[str, Any]:
    return {"seq": 1, "level": "error", "taskId": "t1", "caller": "ci", "text": text}


def test_a_result_is_a_line_about_the_task_then_its_output_then_its_log_lines() -> None:
    assert show("bash", ENDED, structured=False).text == (
        "t8f3kr9 failed, exit 2, 12 ms\n"
        "one\n"
        "two\n"
        "log lines:\n"
        "7 error [t8f3kr9 ci] bad\n"
        "<3 error lines from other callers left out>\n"
        "ended meanwhile (wait_any has them): t1 succeeded"
    )


def test_beside_the_text_stands_what_is_short() -> None:
    facts = show("bash", ENDED, structured=False).facts
    assert facts == {
        "status": "failed",
        "taskId": "t8f3kr9",
        "kickoffId": "k8f3kr9",
        "as": "ci",
        "exitCode": 2,
        "reason": "exit",
        "outputBytes": 8,
        "durationMs": 12,
        "notices": [{"taskId": "t1", "status": "succeeded", "exitCode": 0, "endedAt": "x"}],
        "textIn": "content",
    }


def test_for_a_client_that_shows_the_structure_alone_all_is_in_there() -> None:
    shown = show("bash", ENDED, structured=True)
    assert shown.text == "t8f3kr9 failed, exit 2, 12 ms"
    assert shown.facts["output"] == "one\ntwo\n"
    assert shown.facts["logs"][0]["text"] == "bad"
    assert "textIn" not in shown.facts


@pytest.mark.parametrize("name", ["claude-code", "Claude-Code", "codex-mcp-client", "copilot"])
def test_clients_that_show_the_structure_alone_are_known(name: str) -> None:
    assert reads_structured(name)


@pytest.mark.parametrize("name", ["", "gemini-cli-mcp-client", "opencode", "inspector"])
def test_any_other_is_given_text(name: str) -> None:
    assert not reads_structured(name)


def test_a_queued_call_says_why_and_what_to_do() -> None:
    queued = {
        "status": "running",
        "kickoffId": "k1",
        "as": "ci",
        "queuePosition": 3,
        "queueReason": "all slots are taken",
        "hint": "Call wait.",
        "logs": [],
        "notices": [],
    }
    assert show("bash", queued, structured=False).text == (
        "k1 running, place 3 in the queue: all slots are taken\nCall wait."
    )


def test_outputs_of_many_ends_share_the_room_of_one() -> None:
    ends = [{**ENDED, "id": f"t{i}", "ready": "ended", "output": "x\n" * 10_000} for i in range(8)]
    result = {
        "reason": "ready",
        "updates": ends,
        "rounds": [],
        "pending_ids": ["t9"],
        "all_finished": False,
        "delivery": "d1",
        "notices": [],
    }
    shown = show("wait_any", result, structured=False)
    assert len(shown.text) < 20_000
    assert shown.text.startswith("ready; all_finished false; pending: t9\n--- t0\n")
    assert "characters left out; read_output has them>" in shown.text
    assert all("output" not in update for update in shown.facts["updates"])


def test_log_lines_share_their_room_and_the_newest_stay() -> None:
    lines = [line("x" * 4_096) for _ in range(99)] + [line("last")]
    shown = show("bash", {**ENDED, "logs": lines}, structured=True).facts["logs"]
    assert shown[0] == {
        "marker": True,
        "leftOut": 80,
        "text": "<80 older lines left out; read_logs has them>",
    }
    assert shown[1]["text"] == "x" * 200 + "…"
    assert shown[1]["cut"] is True
    assert shown[-1] == line("last")


def test_a_page_of_output_says_where_it_is() -> None:
    page = {
        "text": "abc",
        "offset": 0,
        "nextOffset": 3,
        "size": 9,
        "eof": False,
        "droppedBytes": 0,
        "notices": [],
    }
    shown = show("read_output", page, structured=False)
    assert shown.text == "bytes 0 to 3 of 9, eof false\nabc"
    assert shown.facts == {
        "offset": 0,
        "nextOffset": 3,
        "size": 9,
        "eof": False,
        "textIn": "content",
    }


def test_a_list_is_a_line_a_task() -> None:
    rows = [{**ENDED, "title": "make test"}]
    page = {"tasks": rows, "hasMore": True, "next": "77", "latestSeq": 9, "nextChangedAfter": 9}
    assert show("list_tasks", page, structured=False).text == (
        "t8f3kr9 failed, exit 2, 12 ms: make test\nmore: before 77"
    )


def test_what_is_null_or_dull_is_left_out_at_any_depth() -> None:
    value = {"a": None, "survivors": [], "b": [{"c": None, "d": 0, "omittedBytes": 0}], "e": []}
    assert telling(value) == {"b": [{"d": 0}], "e": []}


def test_a_long_text_is_cut_at_line_ends() -> None:
    assert cut_middle("short\n", 100) == "short\n"
    text = "".join(f"{n:03}\n" for n in range(100))
    assert cut_middle(text, 20) == (
        "000\n001\n<384 characters left out; read_output has them>\n098\n099\n"
    )
