"""PROTOCOL 9: `rpc.discover`, and that what the engine really answers is what it says there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate
from openrpc_rules import check_document
from schemas import faults

from engine.protocol.results import decode_result


class Judge:
    """Holds replies to the document, and to the types by which the client library reads them."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.methods = {method["name"]: method for method in document["methods"]}

    def check(self, method: str, result: dict[str, Any]) -> Any:
        """The typed result; nothing may be missing in it, or be there that is not told of."""
        schema = self.methods[method]["result"]["schema"]
        assert faults(result, schema, self.document, closed=True) == []
        return decode_result(method, json.dumps(result).encode())

    def check_error(self, method: str, error: dict[str, Any]) -> None:
        """The error is one that the method may answer with, and its code the one that is told."""
        kind = error["data"]["kind"]
        assert {"$ref": f"#/components/errors/{kind}"} in self.methods[method]["errors"]
        assert self.document["components"]["errors"][kind]["code"] == error["code"]


@pytest.fixture(scope="module")
def judge(engine: Engine) -> Iterator[Judge]:
    with engine.connect() as client:
        yield Judge(client.call("rpc.discover"))


def test_the_document_keeps_the_rules_and_names_every_method(client: Client) -> None:
    document = client.call("rpc.discover")
    check_document(document)
    assert {method["name"] for method in document["methods"]} == {
        *("hello", "bash", "execute", "wait", "wait_any", "cancel", "write_stdin", "read_output"),
        *("list_tasks", "read_task", "read_logs", "forget", "reset_session", "engine_info"),
        *("roster", "read_stats", "rpc.discover", "shutdown", "$/cancelRequest"),
        *("set_lane", "set_mode", "run_round", "list_rounds", "read_round"),
    }
    assert document["info"]["title"] == "engine"


def test_a_call_that_ends_and_one_whose_output_is_split(judge: Judge, caller: Caller) -> None:
    result = judge.check("bash", caller.bash("echo hi; echo '<3>bad' >&2; sleep 60 &"))
    assert (result.status, result.output.splitlines()[0]) == ("succeeded", "hi")
    assert len(result.survivors) == 1
    caller.cancel(result.task_id)
    split = judge.check("bash", caller.bash("echo a; echo b >&2; exit 3", streams="split"))
    assert (split.exit_code, split.stdout, split.stderr) == (3, "a\n", "b\n")
    gone = judge.check("execute", caller.execute("/none/such"))
    assert (gone.reason, gone.exit_code, gone.error.errno) == ("spawn_error", 127, 2)


def test_code_and_its_exceptions(judge: Judge, caller: Caller) -> None:
    value = judge.check("execute", caller.call("execute", code="6 * 7"))
    assert (value.value, value.error, value.session_reset) == ("42", None, False)
    error = judge.check("execute", caller.call("execute", code="1 / 0"))
    assert (error.status, error.error.type) == ("failed", "ZeroDivisionError")


def test_a_call_that_runs_and_one_that_waits_for_its_turn(
    judge: Judge, caller: Caller, gate: Gate
) -> None:
    running = judge.check("bash", caller.start(f"echo so far; {gate.wait}"))
    assert running.status == "running"
    again = judge.check("wait", caller.wait(running.task_id, timeout_secs=0))
    assert again.task_id == running.task_id
    gate.open()
    ended = judge.check("wait", caller.wait(running.task_id))
    assert (ended.status, ended.output) == ("succeeded", "so far\n")

    busy = caller.call("execute", code=f"open({str(gate.path)!r}).readline()", timeout_secs=0)
    kickoff = judge.check("execute", caller.call("execute", code="1", timeout_secs=0))
    assert (kickoff.queue_position, hasattr(kickoff, "task_id")) == (1, False)
    gate.open()
    assert judge.check("wait", caller.wait(kickoff.kickoff_id)).value == "1"
    caller.wait(busy["kickoffId"])


def test_other_callers_lines_are_a_marker_in_the_logs(
    judge: Judge, caller: Caller, client: Client
) -> None:
    caller.bash("true")
    client.caller("other").bash("echo '<3>theirs'; exit 1")
    result = judge.check("bash", caller.bash("echo '<3>own'", logs="error"))
    assert (result.logs[0].text, result.logs[0].marker) == ("own", False)
    assert (result.logs[-1].marker, result.logs[-1].left_out) == (True, 2)


def test_cancel_input_and_output(judge: Judge, caller: Caller) -> None:
    fed = caller.start("cat", stdin="open")
    assert judge.check("write_stdin", caller.call("write_stdin", taskId=fed["taskId"], text="hi\n"))
    page = judge.check(
        "read_output", caller.call("read_output", taskId=fed["taskId"], timeout_secs=20)
    )
    assert page.text == "hi\n"
    cancelled = judge.check("cancel", caller.cancel(fed["taskId"]))
    assert (cancelled.outcome, cancelled.status) == ("cancelled", "cancelled")
    raw = judge.check("read_output", caller.call("read_output", taskId=fed["taskId"], raw=True))
    assert (raw.base64, raw.eof) == (b"hi\n", True)
    other = caller.start("sleep 60")
    every = judge.check("cancel", caller.call("cancel", caller=caller.name))
    assert [task.task_id for task in every.tasks] == [other["taskId"]]


def test_lists_with_a_forgotten_task_and_all_about_one(judge: Judge, caller: Caller) -> None:
    first = caller.bash("echo one")
    second = caller.bash("echo two", deadline_secs=30)
    page = judge.check("list_tasks", caller.call("list_tasks"))
    assert [row.title for row in page.tasks] == ["echo two", "echo one"]
    details = judge.check("read_task", caller.call("read_task", taskId=second["taskId"]))
    assert (details.command, details.deadline_secs, details.session) == ("echo two", 30.0, True)
    gone = judge.check("forget", caller.call("forget", taskId=first["taskId"]))
    assert gone.status == "forgotten"
    changed = judge.check("list_tasks", caller.call("list_tasks", changed_after=0))
    assert [(row.task_id, row.status) for row in changed.tasks] == [
        (second["taskId"], "succeeded"),
        (first["taskId"], "forgotten"),
    ]


def test_the_journal_the_session_and_the_engine(judge: Judge, caller: Caller) -> None:
    task = caller.bash("echo '<4>look'")
    page = judge.check("read_logs", caller.call("read_logs", taskId=task["taskId"], after_seq=0))
    assert [(line.level, line.text) for line in page.lines] == [("warning", "look")]
    assert judge.check("reset_session", caller.call("reset_session")).kind == "bash"
    info = judge.check("engine_info", caller.call("engine_info"))
    assert (info.name, info.protocol, info.slots) == ("engine", 1, 100)
    assert info.limits["queue_limit"] == 10_000
    roster = judge.check("roster", caller.call("roster"))
    assert caller.name in {entry.name for entry in roster.callers}
    stats = judge.check("read_stats", caller.call("read_stats"))
    assert len(stats.samples) == 720
    document = judge.check("rpc.discover", caller.call("rpc.discover"))
    assert document.openrpc == "1.3.2"
    with caller.client.websocket:
        hello = judge.check("hello", caller.call("hello"))
    assert (hello.as_, hello.role) == (caller.name, "agent")


def test_errors_are_among_those_that_are_told(
    judge: Judge, caller: Caller, client: Client, gate: Gate
) -> None:
    task = caller.bash("true")["taskId"]
    running = caller.start(gate.wait)["taskId"]
    gone = caller.bash("true", key="k")["taskId"]
    caller.call("forget", taskId=gone)
    other = client.caller("other")
    for method, params, kind in (
        ("wait", {"taskId": "t0000000"}, "unknown_handle"),
        ("wait", {"taskId": gone}, "expired_handle"),
        ("wait", {}, "invalid_params"),
        ("bash", {"command": "false", "key": "k"}, "key_conflict"),
        ("bash", {"command": "true", "key": "k"}, "expired_handle"),
        ("write_stdin", {"taskId": task, "text": "x"}, "invalid_state"),
        ("read_output", {"taskId": "t0000000"}, "unknown_handle"),
        ("read_task", {"taskId": gone}, "expired_handle"),
        ("read_logs", {"taskId": "t0000000"}, "unknown_handle"),
        ("forget", {"taskId": running}, "invalid_state"),
        ("shutdown", {}, "forbidden"),
    ):
        error = caller.refuse(method, **params)
        assert error["data"]["kind"] == kind
        judge.check_error(method, error)
    judge.check_error("cancel", other.refuse("cancel", taskId=running))
    judge.check_error("forget", other.refuse("forget", taskId=task))
    gate.open()
    caller.wait(running)


def test_a_fingerprint_is_current_until_the_wire_changes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    seen = []
    for _ in range(2):
        with Engine(home, "--set", "min_free_bytes=0") as engine, engine.connect() as client:
            seen.append(client.call("engine_info")["schemaFingerprint"])
            info = client.call("rpc.discover")["info"]
            assert info["x-schemaFingerprint"] == seen[-1]
            current = client.call("bash", command="true", tool_schema_fingerprint=seen[0])
            assert "schemaChanged" not in current
            stale = client.call("bash", command="true", tool_schema_fingerprint="of-old")
            assert stale["schemaChanged"] is True
            empty = client.call("list_tasks", limit=1, tool_schema_fingerprint="")
            assert empty["schemaChanged"] is True
    assert seen[0] == seen[1]


def test_shutting_down_is_told_of_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Engine(home, "--set", "min_free_bytes=0") as engine, engine.connect("human") as client:
        judge = Judge(client.call("rpc.discover"))
        assert judge.check("shutdown", client.call("shutdown")).mode == "leave"
        assert engine.wait_exit() == 0
