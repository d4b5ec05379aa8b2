"""PROTOCOL 3 and 5, `ready_when`: by a line of the output and by a port."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate, new_name
from acceptance.test_blocked import wait_row

SERVE = "exec python3 -m http.server {} --bind 127.0.0.1"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_line(caller: Caller, task: str, text: str) -> dict[str, Any]:
    """The line of the journal about a task that holds `text`, waited for."""
    after, found = 0, dict[str, Any]()
    while not found:
        page = caller.call(
            "read_logs", logs="notice", taskId=task, after_seq=after, timeout_secs=20, peek=True
        )
        after = page["nextAfterSeq"]
        found = next((line for line in page["lines"] if text in line["text"]), {})
        assert found or page["endReason"] == "woke", f"no line says {text!r}"
    return found


def is_ready(caller: Caller, task: str) -> Any:
    return caller.wait(task, timeout_secs=0)["ready"]


def test_a_job_is_ready_once_a_line_of_its_output_says_so(caller: Caller, gate: Gate) -> None:
    command = f"echo starting; {gate.wait}; printf '\\033[32mready\\033[0m to go'; sleep 60"
    reply = caller.start(command, ready_when={"contains": "ready to go"})
    task = reply["taskId"]
    assert reply["ready"] is False
    assert is_ready(caller, task) is False
    gate.open()
    line = wait_line(caller, task, "is ready")
    assert line["text"] == f"{task} is ready: a line of its output says so"
    assert (line["level"], line["caller"], line["source"]) == ("notice", caller.name, "engine")
    assert is_ready(caller, task) is True
    caller.cancel(task)


def test_a_wait_that_ends_with_its_time_has_nothing_to_tell_of_a_job_that_was_ready_or_is_not(
    caller: Caller, gate: Gate
) -> None:
    text = f"{gate.wait}; echo it is up now; sleep 60"
    task = caller.start(text, ready_when={"contains": "up"})["taskId"]
    before = caller.call("wait_any", ids=[task], wait_seconds=0)
    gate.open()
    told = caller.call("wait_any", ids=[task], wait_seconds=20)
    behind = caller.call("wait_any", ids=[task], wait_seconds=0)
    replies = [(one["reason"], one["updates"][0]["ready"]) for one in (before, told, behind)]
    assert replies == [("wait_elapsed", None), ("ready", "ready_when"), ("wait_elapsed", None)]
    lines = [one["updates"][0].get("line") for one in (before, told, behind)]
    assert lines == [None, "it is up now", None]
    caller.cancel(task)


def test_a_reply_about_a_job_without_the_condition_does_not_speak_of_it(caller: Caller) -> None:
    reply = caller.start("sleep 60")
    assert "ready" not in reply
    caller.cancel(reply["taskId"])


def test_a_server_is_ready_once_its_port_accepts_and_can_be_used_then(caller: Caller) -> None:
    port = free_port()
    task = caller.start(SERVE.format(port), ready_when={"port": port}, cwd="/")["taskId"]
    assert wait_line(caller, task, "is ready")["text"] == f"{task} is ready: port {port} accepts"
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert sock.recv(8) == b"HTTP/1.0"
    assert is_ready(caller, task) is True
    assert caller.cancel(task)["outcome"] == "cancelled"


def test_a_port_of_somebody_else_makes_no_job_ready(caller: Caller, gate: Gate) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = f"{gate.wait}; {SERVE.format(port)}"
        task = caller.start(command, ready_when={"port": port})["taskId"]
        warning = f"port {port} was taken before the task began"
        wait_line(caller, task, warning)
        assert caller.wait(task, timeout_secs=0)["warnings"] == [warning]
        (stands,) = caller.call("wait_any", ids=[task], wait_seconds=0)["updates"]
        assert (stands["ready"], stands["warnings"]) == (None, [warning])
        assert is_ready(caller, task) is False
    gate.open()
    wait_line(caller, task, "is ready")
    caller.cancel(task)


def test_code_is_ready_once_a_thread_of_it_listens(caller: Caller) -> None:
    port = free_port()
    code = (
        "import socket, threading\n"
        f"server = socket.create_server(('127.0.0.1', {port}))\nserver.accept()[0].close()\n"
        "threading.Event().wait()"
    )
    task = caller.call("execute", code=code, ready_when={"port": port}, timeout_secs=0)["taskId"]
    wait_line(caller, task, "is ready")
    caller.cancel(task)


@pytest.mark.parametrize("wanted", [{"contains": "never said"}, {"port": 1}])
def test_a_job_that_ended_before_it_was_ready_never_is(
    caller: Caller, wanted: dict[str, Any]
) -> None:
    done = caller.bash("echo hello", ready_when=wanted)
    assert (done["status"], done["output"]) == ("succeeded", "hello\n")
    lines = caller.call("read_logs", logs="notice", taskId=done["taskId"], after_seq=0)["lines"]
    assert lines == []


def test_the_same_key_with_another_condition_is_another_job(caller: Caller) -> None:
    first = caller.start("sleep 60", key="k", ready_when={"port": 1})
    assert caller.start("sleep 60", key="k", ready_when={"port": 1})["taskId"] == first["taskId"]
    assert caller.refuse("bash", command="sleep 60", key="k")["code"] == -32013
    caller.cancel(first["taskId"])


def test_a_bad_condition_is_refused_before_anything_is_made(caller: Caller) -> None:
    error = caller.refuse("bash", command="true", ready_when={"port": 0})
    assert error["code"] == -32602
    assert error["message"] == "$.ready_when.port: expected integer between 1 and 65535"
    assert caller.call("list_tasks")["tasks"] == []


def test_being_ready_and_the_watch_for_it_outlive_the_engine(tmp_path: Path) -> None:
    name, port = new_name(), free_port()
    with (
        Gate(tmp_path / "gate") as gate,
        Engine(tmp_path / "home", "--set", "min_free_bytes=0") as engine,
    ):

        def on(client: Client) -> Caller:
            return Caller(client, name)

        with engine.connect() as client:
            early = on(client).start("echo up; sleep 60", ready_when={"contains": "up"})["taskId"]
            wait_line(on(client), early, "is ready")
            text = f"{gate.wait}; echo now up; sleep 60"
            line = on(client).start(text, ready_when={"contains": "now up"})["taskId"]
            text = f"{gate.wait}; {SERVE.format(port)}"
            served = on(client).start(text, ready_when={"port": port})["taskId"]
            wait_row(on(client), served, lambda row: row["status"] == "running")
        engine.kill()
        engine.start()
        with engine.connect() as client:
            caller = on(client)
            assert [is_ready(caller, task) for task in (early, line, served)] == [
                True,
                False,
                False,
            ]
            gate.open(2)
            wait_line(caller, line, "is ready")
            wait_line(caller, served, "is ready")
            assert [is_ready(caller, task) for task in (early, line, served)] == [True] * 3
            lines = caller.call("read_logs", logs="notice", taskId=early, after_seq=0)["lines"]
            assert len(lines) == 1  # said once
