"""Limits that hold: each is reached for real, and the caller told which it was and what to do."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from acceptance.running import LIMIT, Caller, Client, Engine, Gate
from websockets.exceptions import ConnectionClosed, InvalidStatus

MIB = 1 << 20


def serving(tmp_path: Path, *settings: str, options: tuple[str, ...] = ()) -> Engine:
    """An engine with these settings, in a home of its own; it is not begun."""
    sets = [word for setting in (*settings, "min_free_bytes=0") for word in ("--set", setting)]
    return Engine(tmp_path / "home", *sets, *options)


def wait_expired(caller: Caller, task: str) -> dict[str, Any]:
    """The error of a handle, waited for by the change that the list of tasks tells of."""
    after = 0
    while True:
        page = caller.call("list_tasks", changed_after=after, caller="*", timeout_secs=LIMIT)
        assert page["tasks"], f"{task} is still there"
        after = page["nextChangedAfter"]
        if {"taskId": task, "status": "forgotten"} in page["tasks"]:
            return caller.refuse("wait", taskId=task)


def test_over_the_number_of_ended_tasks_the_first_expire_for_every_method(tmp_path: Path) -> None:
    with serving(tmp_path, "ended_tasks=3") as engine, engine.connect() as client:
        caller = client.caller()
        first = caller.bash("echo hi; exit 3", key="K")
        later = [caller.bash(f"echo {n}")["taskId"] for n in range(3)]
        task, kickoff = first["taskId"], first["kickoffId"]
        error = wait_expired(caller, task)

        data = {"kind": "expired_handle", "handle": task, "status": "failed"}
        assert (error["code"], error["data"]) == (-32004, data | {"endedAt": first["endedAt"]})
        for method in ("read_output", "cancel", "read_task", "forget"):
            refused = caller.refuse(method, taskId=task)
            assert (refused["code"], refused["data"]) == (error["code"], error["data"])
        assert caller.refuse("write_stdin", taskId=task, text="x")["data"] == error["data"]
        for method in ("wait", "cancel", "read_task"):
            refused = caller.refuse(method, kickoffId=kickoff)
            assert (refused["code"], refused["data"]["handle"]) == (-32004, kickoff)
        lines = caller.call("read_logs", taskId=task, logs="debug", peek=True)["lines"]
        assert [line["text"] for line in lines] == ["hi", f"task {task} failed (exit 3)"]
        again = caller.refuse("bash", command="echo hi; exit 3", key="K")
        assert (again["code"], again["data"]) == (-32004, error["data"])
        assert caller.refuse("bash", command="echo other", key="K")["code"] == -32013
        rows = caller.call("list_tasks")["tasks"]
        assert [row["taskId"] for row in rows] == later[::-1]
        assert not (engine.home / "tasks" / task[1:]).exists()
        assert [caller.wait(each)["output"] for each in later] == ["0\n", "1\n", "2\n"]

    with serving(tmp_path, "ended_tasks=3") as engine, engine.connect() as client:
        assert client.refuse("wait", taskId=task)["data"] == error["data"]


def test_a_call_has_its_own_output_in_its_reply_however_soon_it_expires(tmp_path: Path) -> None:
    with serving(tmp_path, "ended_tasks=1") as engine, engine.connect() as client:
        caller = client.caller()
        said = [
            caller.send("bash", command=f"echo {n}; echo more", session=False) for n in range(60)
        ]
        assert [each.result()["output"] for each in said] == [f"{n}\nmore\n" for n in range(60)]


def test_over_the_bytes_of_all_outputs_the_first_of_those_that_have_some_expire(
    tmp_path: Path,
) -> None:
    write = "head -c 700000 /dev/zero"
    with serving(tmp_path, "total_output_cap_bytes=1048576") as engine, engine.connect() as client:
        caller = client.caller()
        silent = caller.bash("true")["taskId"]
        first = caller.bash(write, max_output_bytes=0)["taskId"]
        assert client.call("engine_info")["outputBytes"] == 700_000
        last = caller.bash(write, max_output_bytes=0)
        error = wait_expired(caller, first)

        assert (error["code"], error["data"]["status"]) == (-32004, "succeeded")
        assert last["outputBytes"] == 700_000
        assert caller.wait(silent)["status"] == "succeeded"
        assert caller.call("read_output", taskId=last["taskId"])["size"] == 700_000
        assert client.call("engine_info")["outputBytes"] == 700_000


def test_what_was_asked_counts_into_the_bytes_where_it_is_much(tmp_path: Path) -> None:
    with serving(tmp_path, "total_output_cap_bytes=1048576") as engine, engine.connect() as client:
        caller = client.caller()
        small = caller.bash("cat > /dev/null", stdin={"text": "x" * 100})["taskId"]
        assert client.call("engine_info")["outputBytes"] == 0
        first = caller.bash("wc -c", stdin={"text": "x" * 700_000})
        assert first["output"] == "700000\n"
        on_disk = (engine.home / "tasks" / first["taskId"][1:] / "spec.json").stat().st_size
        assert client.call("engine_info")["outputBytes"] == on_disk + 7
    (engine.home / "index.db").unlink()
    with engine, engine.connect() as client:
        caller = caller.on(client)
        assert client.call("engine_info")["outputBytes"] == on_disk + 7
        last = caller.bash("true " + "x" * 700_000)["taskId"]
        assert wait_expired(caller, first["taskId"])["code"] == -32004
        assert caller.wait(small)["status"] == "succeeded"
        assert caller.wait(last)["status"] == "succeeded"


def test_an_ended_task_expires_when_its_days_are_over(tmp_path: Path) -> None:
    days = 1.5 / 86_400
    with serving(tmp_path, f"retention_days={days}") as engine, engine.connect() as client:
        caller = client.caller()
        task = caller.bash("echo hi")["taskId"]
        assert caller.wait(task)["output"] == "hi\n"
        assert wait_expired(caller, task)["code"] == -32004
        assert client.call("engine_info")["outputBytes"] == 0


def test_what_was_over_the_limit_at_the_start_goes_then_and_nothing_else(tmp_path: Path) -> None:
    with serving(tmp_path) as engine, engine.connect() as client:
        name = client.caller().name
        caller = Caller(client, name)
        tasks = [caller.bash(f"echo {n}")["taskId"] for n in range(30)]
    with serving(tmp_path, "ended_tasks=10") as engine, engine.connect() as client:
        caller = Caller(client, name)
        wait_expired(caller, tasks[19])
        rows = caller.call("list_tasks")["tasks"]
        assert [row["taskId"] for row in rows] == tasks[:19:-1]
        left = set(os.listdir(engine.home / "tasks")) - {".ahead"}
        assert left >= {task[1:] for task in tasks[20:]}


def test_a_task_with_processes_left_behind_outlives_the_limit(tmp_path: Path, gate: Gate) -> None:
    with serving(tmp_path, "ended_tasks=1") as engine, engine.connect() as client:
        caller = client.caller()
        haunted = caller.bash(f"({gate.wait}; echo late) & echo early")["taskId"]
        caller.bash("true")
        second = caller.bash("true")["taskId"]
        assert caller.call("read_output", taskId=haunted)["text"] == "early\n"

        gate.open()
        assert wait_expired(caller, haunted)["code"] == -32004
        assert caller.wait(second)["status"] == "succeeded"


def test_output_over_the_cap_is_dropped_and_counted(tmp_path: Path) -> None:
    with serving(tmp_path, "output_cap_bytes=1048576") as engine, engine.connect() as client:
        reply = client.caller().bash("head -c 3000000 /dev/zero; echo end", max_output_bytes=100)

        assert (reply["status"], reply["outputBytes"]) == ("succeeded", 3_000_004)
        assert 3_000_004 - MIB <= reply["droppedBytes"] < 3_000_004
        kept = reply["outputBytes"] - reply["droppedBytes"]
        assert kept <= MIB
        assert client.call("engine_info")["outputBytes"] == kept
        on_disk = os.stat(reply["outputPath"]).st_blocks * 512
        assert abs(on_disk - kept) <= 64 << 10
        error = client.refuse("read_output", taskId=reply["taskId"], offset=600_000)
        assert (error["code"], error["data"]["kind"]) == (-32010, "output_gone")
        assert error["data"]["oldestOffset"] > 600_000


def test_one_caller_with_too_many_tasks_is_refused_and_another_is_not(
    tmp_path: Path, gate: Gate
) -> None:
    with serving(tmp_path, "max_tasks_per_caller=2") as engine, engine.connect() as client:
        caller = client.caller()
        tasks = [caller.start(gate.wait)["taskId"] for _ in range(2)]
        error = caller.refuse("bash", command="true")

        assert error["code"] == -32007
        assert error["message"] == (
            f"{caller.name} has as many tasks that have not ended as a caller may"
            " (max_tasks_per_caller = 2); wait for some, or cancel them"
        )
        data = {"kind": "overloaded", "limit": 2, "setting": "max_tasks_per_caller"}
        assert error["data"] == data
        assert client.caller().bash("echo hi")["output"] == "hi\n"
        caller.cancel(tasks[0])
        assert caller.bash("echo hi")["output"] == "hi\n"
        caller.cancel(tasks[1])


def test_a_full_queue_names_its_limit(tmp_path: Path, gate: Gate) -> None:
    options = ("--slots", "1")
    with (
        serving(tmp_path, "queue_limit=1", options=options) as engine,
        engine.connect() as client,
    ):
        caller = client.caller()
        running, queued = caller.start(gate.wait), caller.start("true")
        error = caller.refuse("execute", argv=["true"])

        assert (error["code"], error["data"]) == (
            -32007,
            {"kind": "overloaded", "limit": 1, "setting": "queue_limit"},
        )
        assert error["message"] == (
            "as many calls wait for a slot as may (queue_limit = 1); try again when some have ended"
        )
        gate.open()
        assert caller.wait(running["taskId"])["status"] == "succeeded"
        assert caller.wait(queued["kickoffId"])["status"] == "succeeded"


def test_too_little_free_disk_names_its_limit(tmp_path: Path) -> None:
    settings = ("--set", f"min_free_bytes={1 << 60}")
    with Engine(tmp_path / "home", *settings) as engine, engine.connect() as client:
        error = client.caller().refuse("bash", command="true")

        data = {"kind": "overloaded", "limit": 1 << 60, "setting": "min_free_bytes"}
        assert (error["code"], error["data"]) == (-32007, data)
        assert "bytes of disk are free, too few for new calls" in error["message"]
        assert error["message"].endswith(f"(min_free_bytes = {1 << 60}); make room")


def test_the_connection_too_many_is_told_so_by_http_and_one_that_ends_makes_room(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "max_connections=2") as engine:
        with engine.connect() as first, engine.connect():
            for tcp in (False, True):
                with pytest.raises(InvalidStatus) as refused:
                    engine.connect(tcp=tcp)
                response = refused.value.response
                assert response.status_code == 503
                assert response.body == (
                    b"as many connections are open as may be (max_connections = 2); close one\n"
                )
            assert first.call("engine_info")["limits"]["max_connections"] == 2
        with engine.connect() as later:
            assert later.call("engine_info")["protocol"] == 1


def test_clients_that_say_nothing_keep_nobody_out(tmp_path: Path) -> None:
    with serving(tmp_path, "max_connections=2") as engine, contextlib.ExitStack() as stack:
        address = urlsplit(engine.facts()["url"])
        assert address.hostname is not None
        assert address.port is not None
        for _ in range(5):
            stack.enter_context(socket.create_connection((address.hostname, address.port)))
            plain = stack.enter_context(socket.socket(socket.AF_UNIX))
            plain.connect(str(engine.home / "engine.sock"))
        for tcp in (False, True):
            client = stack.enter_context(engine.connect(tcp=tcp))
            assert client.call("engine_info")["protocol"] == 1


def test_clients_of_the_port_leave_the_home_s_socket_its_share(tmp_path: Path) -> None:
    with serving(tmp_path, "max_connections=10") as engine, contextlib.ExitStack() as stack:
        for _ in range(9):
            stack.enter_context(engine.connect(tcp=True))
        with pytest.raises(InvalidStatus) as refused:
            engine.connect(tcp=True)
        assert refused.value.response.status_code == 503
        assert refused.value.response.body == (
            b"as many connections are open as may be"
            b" (max_connections = 10, 1 of them for the Unix socket); close one\n"
        )
        client = stack.enter_context(engine.connect())
        assert client.call("engine_info")["protocol"] == 1
        with pytest.raises(InvalidStatus):
            engine.connect()


def test_too_many_calls_in_flight_on_a_connection_are_refused_and_those_go_on(
    tmp_path: Path, gate: Gate
) -> None:
    with serving(tmp_path, "max_waits=3") as engine, engine.connect() as client:
        caller = client.caller()
        task = caller.start(gate.wait)["taskId"]
        waits = [caller.send("wait", taskId=task) for _ in range(3)]
        error = client.refuse("engine_info")

        data = {"kind": "overloaded", "limit": 3, "setting": "max_waits"}
        assert (error["code"], error["data"]) == (-32007, data)
        assert error["message"] == (
            "too many requests in flight on this connection (max_waits = 3); wait for replies"
        )
        with engine.connect() as other:
            assert other.call("engine_info")["protocol"] == 1
        gate.open()
        assert [wait.result()["status"] for wait in waits] == ["succeeded"] * 3
        assert client.call("engine_info")["protocol"] == 1


def test_too_many_bytes_in_flight_on_a_connection_are_refused_and_those_go_on(
    tmp_path: Path, gate: Gate
) -> None:
    with serving(tmp_path, f"max_inflight_bytes={MIB}") as engine, engine.connect() as client:
        caller = client.caller()
        large = caller.send("bash", command=f"{gate.wait}; : {'x' * 600_000}")
        caller.running_row()
        error = caller.refuse("bash", command=f": {'x' * 600_000}")

        data = {"kind": "overloaded", "limit": MIB, "setting": "max_inflight_bytes"}
        assert (error["code"], error["data"]) == (-32007, data)
        assert f"(max_inflight_bytes = {MIB})" in error["message"]
        gate.open()
        assert large.result()["status"] == "succeeded"
        assert caller.bash(f": {'x' * 600_000}")["status"] == "succeeded"


def test_a_message_over_16_mib_closes_with_1009_and_says_why(
    engine: Engine, client: Client
) -> None:
    with engine.connect() as large:
        large.send_text(" " * (16 * MIB + 1))
        with pytest.raises(ConnectionClosed) as closed:
            large.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
    assert client.call("engine_info")["protocol"] == 1


def test_no_reply_is_larger_than_a_mebibyte_and_its_page_says_that_there_is_more(
    client: Client,
) -> None:
    caller = client.caller()
    task = caller.bash("head -c 3000000 /dev/zero | tr '\\0' '\\1'", max_output_bytes=0)["taskId"]
    pending = caller.send("read_output", taskId=task, limit_bytes=524_288)
    frame = client.websocket.recv(timeout=LIMIT)
    page = json.loads(frame)["result"]

    assert pending.id == json.loads(frame)["id"]
    assert len(frame) <= MIB
    assert (page["eof"], page["size"]) == (False, 3_000_000)
    assert 0 < page["nextOffset"] < 524_288


def test_a_batch_has_64_calls_at_most_and_what_does_not_fit_into_its_reply_names_the_limit(
    client: Client, caller: Caller
) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "engine_info"}
    client.send_json([call] * 65)
    refused = client.receive()
    assert (refused["error"]["code"], refused["id"]) == (-32600, None)
    assert "64" in refused["error"]["message"]
    client.send_json([call] * 64)
    assert len(client.receive()) == 64

    document = {"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}
    client.send_json([document | {"id": number} for number in range(64)])
    frame = client.websocket.recv(timeout=LIMIT)
    replies = json.loads(frame)
    assert len(frame) <= MIB
    assert len(replies) == 64
    errors = [reply["error"] for reply in replies if "error" in reply]
    assert errors
    for error in errors:
        assert (error["code"], error["data"]) == (-32007, {"kind": "overloaded", "limit": MIB})
        assert error["message"] == "the replies of a batch share 1 MiB; send this alone"


def test_over_its_lines_the_journal_drops_the_least_severe_and_says_how_many(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "journal_lines=10000") as engine, engine.connect() as client:
        caller = client.caller()
        caller.bash("echo 'error: kept'; seq 12000", max_output_bytes=0, logs="none")
        caller.bash("true", logs="none")
        info = client.call("engine_info")
        errors = caller.call("read_logs", logs="error", peek=True, after_seq=0)
        page = caller.call("read_logs", logs="info", after_seq=0, limit=1000)

        assert info["journalLines"] <= 10_000 + 100
        assert [line["text"] for line in errors["lines"]] == ["error: kept"]
        assert page["gap"] > 0


def test_all_limits_are_told_by_their_settings_names(client: Client) -> None:
    limits = client.call("engine_info")["limits"]
    assert limits.keys() >= {
        *("slots", "inline_budget_secs", "output_cap_bytes", "total_output_cap_bytes"),
        *("retention_days", "ended_tasks", "journal_lines", "queue_limit", "max_tasks_per_caller"),
        *("min_free_bytes", "max_connections", "max_waits", "max_inflight_bytes"),
        *("warm_shells", "python_sessions", "log_file_bytes", "log_files"),
    }
    assert (limits["ended_tasks"], limits["retention_days"]) == (100_000, 7)
    assert limits["total_output_cap_bytes"] == 21_474_836_480
