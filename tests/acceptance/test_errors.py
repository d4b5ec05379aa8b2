"""PROTOCOL 1 and 6: what is refused, by which code, and that nothing was made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate, new_name
from websockets.exceptions import ConnectionClosed


def exchange(client: Client, text: str) -> Any:
    client.send_text(text)
    return client.receive()


@pytest.mark.case("C139")
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", -32700),
        ("", -32700),
        ("[]", -32600),
        ("1", -32600),
        ('{"jsonrpc":"2.0"}', -32600),
        ('{"jsonrpc":"1.0","id":null,"method":"engine_info"}', -32600),
        ('{"jsonrpc":"2.0","id":{},"method":"engine_info"}', -32600),
        ('{"jsonrpc":"2.0","method":5}', -32600),
    ],
)
def test_what_is_no_message_is_answered_without_an_id(
    frame: str, code: int, client: Client
) -> None:
    reply = exchange(client, frame)

    assert reply.keys() == {"jsonrpc", "id", "error"}
    assert (reply["jsonrpc"], reply["id"]) == ("2.0", None)
    assert (reply["error"]["code"], reply["error"].keys()) == (code, {"code", "message", "data"})
    kinds = {-32700: "parse_error", -32600: "invalid_request"}
    assert reply["error"]["data"]["kind"] == kinds[code]
    assert client.call("engine_info")["protocol"] == 1


@pytest.mark.case("C139")
@pytest.mark.parametrize("id_", [0, "", "x", 1.5, -1, None, "é", 2**53])
def test_an_id_comes_back_as_it_was(id_: Any, client: Client) -> None:
    message = {"jsonrpc": "2.0", "id": id_, "method": "engine_info"}
    more: dict[str, Any]
    for more in ({}, {"params": {}}):
        message |= more
        reply = exchange(client, json.dumps(message))
        assert (reply["id"], type(reply["id"])) == (id_, type(id_))
        assert reply["result"]["protocol"] == 1


@pytest.mark.case("C139")
def test_an_unknown_method_params_by_position_and_a_notification(client: Client) -> None:
    caller = client.caller()

    unknown = client.refuse("no_such_method")
    by_position = client.refuse("engine_info", [1])
    empty = client.refuse("engine_info", [])
    client.notify("no_such_method")
    client.notify("bash", as_=caller.name, command=5)
    client.notify("bash", as_=caller.name, command="true", timeout_secs=0)

    assert (unknown["code"], unknown["data"]["kind"]) == (-32601, "method_not_found")
    assert (by_position["code"], empty["code"]) == (-32602, -32602)
    assert exchange(client, '{"jsonrpc":"2.0","id":9,"method":"engine_info"}')["id"] == 9
    assert len(caller.call("list_tasks")["tasks"]) == 1


def test_a_binary_frame_closes_with_1003_and_harms_nobody_else(engine: Engine) -> None:
    with engine.connect() as other, engine.connect() as client:
        client.websocket.send(b"{}")
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()

        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1003
        assert other.call("engine_info")["protocol"] == 1


def test_bytes_that_are_no_utf8_close_the_connection_and_harm_nobody_else(
    engine: Engine, client: Client
) -> None:
    with engine.connect() as bad:
        bad.websocket.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosed) as caught:
            bad.receive()

    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1007
    assert client.call("engine_info")["protocol"] == 1


@pytest.mark.case("C142")
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("[" * 200_000, -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"bash","method":"bash"}', -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"a","command":"b"}}', -32700),
    ],
)
def test_hostile_json_is_refused_and_harms_no_connection(
    frame: str, code: int, engine: Engine, client: Client
) -> None:
    with engine.connect() as hostile:
        assert exchange(hostile, frame)["error"]["code"] == code
        assert hostile.call("engine_info")["protocol"] == 1
    assert client.call("engine_info")["protocol"] == 1


SECONDS = "number >= 0"
BAD_PARAMS: list[tuple[str, str, str | None]] = [
    ("{}", "$.command", None),
    ('{"command":1}', "$.command", "string"),
    ('{"command":null}', "$.command", None),
    ('{"command":""}', "$.command", None),
    (r'{"command":"a\u0000b"}', "$.command", "string without NUL"),
    ('{"command":"true","timeout_secs":-1}', "$.timeout_secs", SECONDS),
    ('{"command":"true","timeout_secs":true}', "$.timeout_secs", SECONDS),
    ('{"command":"true","timeout_secs":"5"}', "$.timeout_secs", SECONDS),
    ('{"command":"true","timeout_secs":1e999}', "$.timeout_secs", None),
    ('{"command":"true","timeout_secs":' + "9" * 5000 + "}", "$.timeout_secs", None),
    ('{"command":"true","deadline_secs":0}', "$.deadline_secs", "number > 0"),
    ('{"command":"true","session":1}', "$.session", "boolean"),
    ('{"command":"true","cwd":"tmp"}', "$.cwd", "an absolute path"),
    (r'{"command":"true","cwd":"/a\u0000"}', "$.cwd", None),
    ('{"command":"true","env":{"A":1}}', "$.env.A", "string"),
    (r'{"command":"true","env":{"A":"\u0000"}}', "$.env.A", None),
    ('{"command":"true","env":[]}', "$.env", None),
    ('{"command":"true","stdin":"text"}', "$.stdin", None),
    ('{"command":"true","stdin":{"text":1}}', "$.stdin", None),
    ('{"command":"true","stdin":{"text":"x","eof":true}}', "$.stdin", None),
    ('{"command":"true","streams":"both"}', "$.streams", '"merged" or "split"'),
    ('{"command":"true","on_disconnect":"kill"}', "$.on_disconnect", None),
    ('{"command":"true","max_output_bytes":-1}', "$.max_output_bytes", None),
    ('{"command":"true","logs":"loud"}', "$.logs", None),
    ('{"command":"true","logScope":"mine"}', "$.logScope", None),
    ('{"command":"true","timeout_ms":5}', "$.timeout_ms", None),
    ('{"command":"true","as":"UPPER"}', "$.as", None),
    ('{"command":"true","pty":true,"streams":"split"}', "$.pty", None),
    ('{"command":"true","lane":"x"}', "$.lane", None),
]


@pytest.mark.parametrize(("members", "path", "expected"), BAD_PARAMS)
def test_a_bad_param_is_named_with_what_was_expected_before_anything_is_made(
    members: str, path: str, expected: str | None, client: Client
) -> None:
    name = new_name()
    own = "" if '"as"' in members else f'"as":"{name}"' + ("," if members != "{}" else "")
    frame = f'{{"jsonrpc":"2.0","id":1,"method":"bash","params":{{{own}{members[1:]}}}'

    error = exchange(client, frame)["error"]

    assert (error["code"], error["data"]["kind"]) == (-32602, "invalid_params")
    assert error["data"]["path"] == path or error["data"]["path"].startswith(path)
    assert error["message"] == f"{error['data']['path']}: expected {error['data']['expected']}"
    if expected is not None:
        assert error["data"]["expected"] == expected
    assert client.call("list_tasks", as_=name)["tasks"] == []


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", r'"\ud800"', r'"a\udfff"', "01", "1.", "'x'"]
)
def test_what_json_does_not_have_is_no_json(value: str, client: Client) -> None:
    name = new_name()
    frame = (
        '{"jsonrpc":"2.0","id":1,"method":"bash",'
        f'"params":{{"as":"{name}","command":"true","key":{value}}}}}'
    )

    assert exchange(client, frame)["error"]["code"] in (-32700, -32602)
    assert client.call("list_tasks", as_=name)["tasks"] == []


def test_null_is_left_out_for_every_optional_param(caller: Caller) -> None:
    names = [
        *("timeout_secs", "deadline_secs", "session", "cwd", "env", "stdin", "pty", "streams"),
        *("on_disconnect", "key", "lane", "after", "after_when", "ready_when", "memory_bytes"),
        *("max_output_bytes", "logs", "logScope", "tool_schema_fingerprint"),
    ]
    reply = caller.bash("echo hi", **dict.fromkeys(names))
    task = reply["taskId"]

    assert reply["output"] == "hi\n"
    assert caller.call("wait", taskId=task, kickoffId=None, timeout_secs=None)["taskId"] == task
    names = ["stream", "offset", "limit_bytes", "timeout_secs", "raw"]
    assert caller.call("read_output", taskId=task, **dict.fromkeys(names))["text"] == "hi\n"
    names = ["caller", "state", "limit", "before", "changed_after", "timeout_secs"]
    assert len(caller.call("list_tasks", **dict.fromkeys(names))["tasks"]) == 1
    assert caller.call("cancel", taskId=task, grace_secs=None, force=None, caller=None)


@pytest.mark.parametrize(
    "method", ["wait", "cancel", "read_output", "read_task", "forget", "list_tasks", "bash"]
)
def test_an_unknown_param_is_refused_by_every_method(method: str, client: Client) -> None:
    required = {"bash": {"command": "true"}, "list_tasks": {}}.get(method, {"taskId": "t000zzz"})

    error = client.refuse(method, {**required, "surprise": 1})

    assert (error["code"], error["data"]["path"]) == (-32602, "$.surprise")


# -- batches -----------------------------------------------------------------------------------


def call(id_: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def test_a_batch_is_answered_as_one_with_each_part_on_its_own(client: Client) -> None:
    name = new_name()
    client.send_json(
        [
            call(1, "bash", **{"as": name, "command": "sleep 0.2; echo one"}),
            call(2, "bash", **{"as": name, "command": "echo two"}),
            {"jsonrpc": "2.0", "method": "bash", "params": {"as": name, "command": "echo no id"}},
            call("3", "no_such_method"),
            5,
            call(4, "wait", taskId="t000zzz"),
        ]
    )

    replies = client.receive()

    found = {
        reply["id"]: reply["result"]["output"] if "result" in reply else reply["error"]["code"]
        for reply in replies
    }
    assert found == {1: "one\n", 2: "two\n", "3": -32601, None: -32600, 4: -32003}
    assert len(replies) == 5


def test_a_batch_has_at_most_64_calls(client: Client) -> None:
    client.send_json([call(i, "engine_info") for i in range(64)])
    assert len(client.receive()) == 64

    client.send_json([call(i, "engine_info") for i in range(65)])
    reply = client.receive()
    assert (reply["id"], reply["error"]["code"]) == (None, -32600)


def test_a_batch_of_notifications_has_no_reply(client: Client) -> None:
    client.send_json([{"jsonrpc": "2.0", "method": "engine_info"}] * 3)

    assert exchange(client, json.dumps(call(7, "engine_info")))["id"] == 7


def test_a_batch_shares_one_mebibyte(client: Client, caller: Caller) -> None:
    task = caller.bash("head -c 600000 /dev/zero | tr '\\0' '\\1'")["taskId"]
    client.send_json([call(i, "read_output", taskId=task, limit_bytes=524_288) for i in range(64)])

    text = client.websocket.recv(timeout=30)

    assert len(text) <= 1 << 20
    replies = json.loads(text)
    assert len(replies) == 64
    for reply in replies:
        page = reply["result"]
        assert 1000 < len(page["text"]) == page["nextOffset"]


def test_a_batch_of_large_outputs_shares_one_mebibyte(client: Client, caller: Caller) -> None:
    task = caller.bash("head -c 600000 /dev/zero | tr '\\0' '\\1'")["taskId"]
    client.send_json([call(i, "wait", taskId=task, max_output_bytes=524_288) for i in range(64)])

    text = client.websocket.recv(timeout=30)

    assert len(text) <= 1 << 20
    assert {reply["result"]["taskId"] for reply in json.loads(text)} == {task}


# -- $/cancelRequest ---------------------------------------------------------------------------


@pytest.mark.parametrize("id_", [0, "", "x", 1.5, None, "never sent"])
def test_a_cancel_that_finds_nothing_is_silent(id_: Any, client: Client) -> None:
    client.send_json({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id_}})

    assert client.call("engine_info")["protocol"] == 1


def test_every_kind_of_wait_can_be_cancelled(caller: Caller, gate: Gate) -> None:
    task = caller.start(gate.wait)["taskId"]
    since = caller.call("list_tasks")["latestSeq"]
    waits = [
        caller.send("wait", taskId=task),
        caller.send("read_output", taskId=task, timeout_secs=20),
        caller.send("list_tasks", changed_after=since, timeout_secs=55),
    ]
    for wait in waits:
        caller.client.cancel_request(wait)
    errors = [wait.error() for wait in waits]
    gate.open()

    assert {(error["code"], error["data"]["kind"]) for error in errors} == {
        (-32008, "request_cancelled")
    }
    assert caller.wait(task)["status"] == "succeeded"


# -- sizes -------------------------------------------------------------------------------------


def test_a_message_over_16_mib_closes_with_1009_and_harms_nobody_else(
    engine: Engine, client: Client
) -> None:
    with engine.connect() as big:
        fits = big.caller().bash("echo fits", stdin={"text": "x" * ((16 << 20) - 1000)})
        with pytest.raises(ConnectionClosed) as caught:
            big.caller().bash("echo no", stdin={"text": "x" * (16 << 20)})

    assert fits["output"] == "fits\n"
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1009
    assert client.call("engine_info")["protocol"] == 1


def test_a_reply_with_much_output_and_many_survivors_is_below_a_mebibyte(caller: Caller) -> None:
    command = (
        "head -c 600000 /dev/zero | tr '\\0' '\\1';"
        "secs=$(printf '%0200d' {1..5}); for i in {1..300}; do sleep 60 $secs & done; exit 0"
    )
    call = caller.send("bash", command=command, max_output_bytes=524_288)

    text = json.dumps(call.message(), ensure_ascii=False)
    reply = json.loads(text)["result"]
    ended = caller.cancel(reply["taskId"], grace_secs=0)

    assert (len(ended["signalled"]), ended["survivors"]) == (300, [])
    assert len(text.encode()) <= 1 << 20
    assert len(reply["survivors"]) == 32  # as many as a record has room for
    assert len(reply["output"]) > 100_000


def test_every_call_of_a_large_batch_tells_its_handle_whatever_it_prints(client: Client) -> None:
    name = new_name()
    loud = "head -c 100000 /dev/zero | tr '\\0' '\\1'"
    members = {"as": name, "max_output_bytes": 524_288}
    calls = [call(i, "bash", **members, command=loud) for i in range(32)]
    held = f"{loud}; sleep 30"
    calls += [call(i, "bash", **members, command=held, timeout_secs=0.5) for i in range(32, 64)]
    client.send_json(calls)

    text = client.websocket.recv(timeout=30)
    replies = json.loads(text)
    client.call("cancel", as_=name, caller=name, grace_secs=0)

    assert len(text) <= 1 << 20
    assert len({reply["result"]["taskId"] for reply in replies}) == 64
    assert {reply["result"]["status"] for reply in replies} == {"succeeded", "running"}
