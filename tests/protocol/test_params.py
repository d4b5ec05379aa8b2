"""Mirrors `engine/protocol/params.py`: what each method takes, at its borders."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from engine.errors import InvalidParams
from engine.protocol import params as p
from engine.protocol.decode import decode_params

TASK = {"taskId": "t8f3kr9"}

# Each method's Struct, and the least that it takes.
LEAST: dict[type[p.Params], dict[str, Any]] = {
    p.HelloParams: {},
    p.BashParams: {"command": "true"},
    p.ExecuteParams: {"argv": ["true"]},
    p.WaitParams: TASK,
    p.WaitAnyParams: {},
    p.CancelParams: TASK,
    p.ReadOutputParams: TASK,
    p.ListTasksParams: {},
    p.ReadTaskParams: TASK,
    p.WriteStdinParams: {**TASK, "eof": True},
    p.ForgetParams: TASK,
    p.ResetSessionParams: {},
    p.SetLaneParams: {"lane": "gpu", "limit": 1},
    p.SetModeParams: {"mode": "shared"},
    p.EngineInfoParams: {},
    p.ShutdownParams: {},
    p.CancelRequestParams: {},
}


def decode(type_: type[Any], **members: Any) -> Any:
    return decode_params(json.dumps({**LEAST[type_], **members}).encode(), type_)


def refusal(type_: type[Any], **members: Any) -> str:
    with pytest.raises(InvalidParams) as caught:
        decode(type_, **members)
    return str(caught.value)


@pytest.mark.parametrize("type_", LEAST)
def test_every_method_takes_as_and_a_fingerprint_and_no_unknown_param(
    type_: type[p.Params],
) -> None:
    members = {"as": "agent-1", "tool_schema_fingerprint": "f1"}
    params = decode(type_, **members)
    assert (params.as_, params.tool_schema_fingerprint) == ("agent-1", "f1")
    assert refusal(type_, colour="red").startswith("$.colour: expected one of the known params: ")


def test_left_out_params_have_the_documented_defaults() -> None:
    bash = msgspec.to_builtins(decode(p.BashParams))
    assert bash == {
        "as": None,
        "tool_schema_fingerprint": None,
        "command": "true",
        "timeout_secs": 20.0,
        "deadline_secs": None,
        "session": True,
        "cwd": None,
        "env": None,
        "stdin": "null",
        "pty": False,
        "streams": "merged",
        "on_disconnect": "keep",
        "key": None,
        "lane": None,
        "after": None,
        "after_when": "succeeded",
        "ready_when": None,
        "memory_bytes": None,
        "max_output_bytes": 32768,
        "logs": "warning",
        "logScope": "caller",
    }
    wait = decode(p.WaitParams)
    assert (wait.timeout_secs, wait.max_output_bytes) == (20.0, 32768)
    assert (wait.logs, wait.log_scope) == ("warning", "caller")
    cancel = decode(p.CancelParams)
    assert (cancel.grace_secs, cancel.force) == (5.0, False)
    output = decode(p.ReadOutputParams)
    assert (output.stream, output.offset, output.limit_bytes) == ("output", 0, 65536)
    assert (output.timeout_secs, output.raw) == (0.0, False)
    tasks = decode(p.ListTasksParams)
    assert (tasks.caller, tasks.state, tasks.limit, tasks.before) == (None, None, 50, None)
    assert (tasks.changed_after, tasks.timeout_secs) == (None, 0.0)
    assert decode(p.ResetSessionParams).kind == "bash"
    assert decode(p.ShutdownParams).mode == "leave"


def test_null_is_left_out_for_every_optional_param() -> None:
    for type_, least in LEAST.items():
        names = [f.encode_name for f in msgspec.structs.fields(type_) if not f.required]
        nulls = {name: None for name in names if name not in least}
        assert decode(type_, **nulls) == decode(type_), type_


@pytest.mark.case("C150")
@pytest.mark.parametrize(
    "name",
    ["../../x", "/etc/x", "a/b", "a\0b", "", ".", "x" * 300, "con\u202ename", "a\n", "A", "é"],
)
def test_a_caller_that_could_name_a_file_elsewhere_is_refused(name: str) -> None:
    words = "1 to 64 characters of a-z 0-9 _ -"
    for type_ in LEAST:
        assert refusal(type_, **{"as": name}) == f"$.as: expected {words}"
    assert refusal(p.ListTasksParams, caller=name) == f'$.caller: expected {words}, or "*"'
    assert decode(p.ListTasksParams, caller="*").caller == "*"


@pytest.mark.case("C150")
@pytest.mark.parametrize("handle", ["../state", "", "t/1", "t1\n", "x" * 85, "t.1", "t\0", "té"])
def test_a_handle_that_could_name_a_file_elsewhere_is_refused(handle: str) -> None:
    words = "expected handle of 1 to 84 characters of A-Z a-z 0-9 _ -"
    for type_ in (p.WaitParams, p.CancelParams, p.ReadOutputParams, p.ReadTaskParams):
        assert refusal(type_, taskId=handle) == f"$.taskId: {words}"
    assert refusal(p.ForgetParams, taskId=handle) == f"$.taskId: {words}"


def test_the_longest_names_and_handles_are_taken() -> None:
    assert decode(p.WaitParams, **{"as": "a" * 64, "taskId": "T_" * 42}).task_id == "T_" * 42


@pytest.mark.case("C141")
@pytest.mark.parametrize("secs", [21, 2**31, 10**10, 10**15, 1e300, 10**300])
def test_a_huge_timeout_is_brought_down_to_the_documented_maximum(secs: float) -> None:
    assert decode(p.BashParams, timeout_secs=secs).timeout_secs == 20.0
    assert decode(p.ExecuteParams, timeout_secs=secs).timeout_secs == 20.0
    assert decode(p.WaitParams, timeout_secs=secs).timeout_secs == 20.0
    assert decode(p.ReadOutputParams, timeout_secs=secs).timeout_secs == 20.0
    assert decode(p.ListTasksParams, timeout_secs=secs).timeout_secs == min(secs, 55.0)
    assert decode(p.CancelParams, grace_secs=secs).grace_secs == min(secs, 300.0)
    assert decode(p.BashParams, deadline_secs=secs).deadline_secs == min(secs, 1e9)


@pytest.mark.parametrize("secs", [0, 0.001, 19.9, 20])
def test_a_timeout_within_the_budget_stays(secs: float) -> None:
    assert decode(p.BashParams, timeout_secs=secs).timeout_secs == secs


@pytest.mark.parametrize(
    ("type_", "members", "message"),
    [
        (p.BashParams, {"timeout_secs": -1}, "$.timeout_secs: expected number >= 0"),
        (p.BashParams, {"timeout_secs": True}, "$.timeout_secs: expected number >= 0"),
        (p.BashParams, {"timeout_secs": "1"}, "$.timeout_secs: expected number >= 0"),
        (p.BashParams, {"deadline_secs": 0}, "$.deadline_secs: expected number > 0"),
        (p.BashParams, {"session": 1}, "$.session: expected boolean"),
        (p.BashParams, {"command": ""}, "$.command: expected 1 to 1048576 bytes of UTF-8"),
        (
            p.BashParams,
            {"command": "é" * 524_288 + "x"},
            "$.command: expected 1 to 1048576 bytes of UTF-8",
        ),
        (p.BashParams, {"command": "a\0b"}, "$.command: expected string without NUL"),
        (p.BashParams, {"command": ["ls"]}, "$.command: expected string"),
        (p.BashParams, {"cwd": "src"}, "$.cwd: expected an absolute path"),
        (p.BashParams, {"cwd": "~/src"}, "$.cwd: expected an absolute path"),
        (p.BashParams, {"cwd": ""}, "$.cwd: expected an absolute path"),
        (p.BashParams, {"cwd": "/a\0"}, "$.cwd: expected string without NUL"),
        (p.BashParams, {"key": "k" * 201}, "$.key: expected string of at most 200 characters"),
        (p.BashParams, {"key": "k\0"}, "$.key: expected string without NUL"),
        (
            p.BashParams,
            {"max_output_bytes": 524_289},
            "$.max_output_bytes: expected integer between 0 and 524288",
        ),
        (
            p.BashParams,
            {"max_output_bytes": -1},
            "$.max_output_bytes: expected integer between 0 and 524288",
        ),
        (p.BashParams, {"streams": "both"}, '$.streams: expected "merged" or "split"'),
        (p.BashParams, {"on_disconnect": "x"}, '$.on_disconnect: expected "cancel" or "keep"'),
        (p.BashParams, {"logScope": "x"}, '$.logScope: expected "all" or "caller"'),
        (
            p.BashParams,
            {"logs": "loud"},
            "$.logs: expected debug, info, notice, warning, error, critical, alert, emergency "
            '(the least severe that is shown) or "none"',
        ),
        (p.BashParams, {"stdin": "x"}, '$.stdin: expected "null", "open" or {"text": string}'),
        (p.BashParams, {"stdin": {"text": 1}}, "$.stdin.text: expected string"),
        (p.BashParams, {"env": {"FOO": 1}}, "$.env.FOO: expected string"),
        *(
            (p.BashParams, {"ready_when": wanted}, f"$.ready_when{at}: expected {words}")
            for wanted, at, words in (
                ("up", "", '{"contains": string} or {"port": integer}'),
                ({}, "", "exactly one of contains and port"),
                ({"contains": "up", "port": 80}, "", "exactly one of contains and port"),
                ({"colour": "red"}, ".colour", '{"contains": string} or {"port": integer}'),
                ({"contains": ""}, ".contains", "string of 1 to 200 characters"),
                ({"contains": "x" * 201}, ".contains", "string of 1 to 200 characters"),
                ({"contains": "a\nb"}, ".contains", "text of one line"),
                ({"contains": "a\x1b[1m"}, ".contains", "text of one line"),
                ({"port": 0}, ".port", "integer between 1 and 65535"),
                ({"port": 65_536}, ".port", "integer between 1 and 65535"),
                ({"port": True}, ".port", "integer between 1 and 65535"),
                ({"port": "80"}, ".port", "integer between 1 and 65535"),
            )
        ),
        (p.ExecuteParams, {"argv": []}, "$.argv: expected array of 1 to 4096 strings"),
        (p.ExecuteParams, {"argv": ["a"] * 4097}, "$.argv: expected array of 1 to 4096 strings"),
        (p.ExecuteParams, {"argv": ["a", "b", "c", 3]}, "$.argv[3]: expected string"),
        (p.ExecuteParams, {"argv": ["a", "b\0"]}, "$.argv[1]: expected string without NUL"),
        (p.ExecuteParams, {"argv": None}, "$: expected exactly one of argv and code"),
        (p.ExecuteParams, {"code": "1"}, "$: expected exactly one of argv and code"),
        (p.WaitParams, {"taskId": None}, "$: expected exactly one of taskId and kickoffId"),
        (p.WaitParams, {"kickoffId": "k1"}, "$: expected exactly one of taskId and kickoffId"),
        (p.ReadTaskParams, {"taskId": None}, "$: expected exactly one of taskId and kickoffId"),
        (
            p.CancelParams,
            {"caller": "ci"},
            "$: expected exactly one of taskId, kickoffId and caller",
        ),
        (p.CancelParams, {"grace_secs": -1}, "$.grace_secs: expected number >= 0"),
        (
            p.ReadOutputParams,
            {"limit_bytes": 0},
            "$.limit_bytes: expected integer between 1 and 524288",
        ),
        (
            p.ReadOutputParams,
            {"offset": 2**53},
            "$.offset: expected integer between -2^53 and 2^53",
        ),
        (p.ReadOutputParams, {"taskId": None}, "$.taskId: expected handle of 1 to 84 characters "),
        (p.ListTasksParams, {"limit": 501}, "$.limit: expected integer between 1 and 500"),
        (p.ListTasksParams, {"limit": 0}, "$.limit: expected integer between 1 and 500"),
        (p.ListTasksParams, {"changed_after": -1}, "$.changed_after: expected integer between 0 "),
        (p.ListTasksParams, {"state": "running"}, "$.state: expected array"),
        (p.ListTasksParams, {"state": ["done"]}, '$.state[0]: expected "cancelled" or "denied" '),
        (p.ShutdownParams, {"mode": "now"}, '$.mode: expected "cancel" or "leave"'),
        (p.BashParams, {"lane": "G P U"}, "$.lane: expected name of a lane, 1 to 64 characters "),
        (p.BashParams, {"after": "t1"}, "$.after: expected array of at most 1000 handles"),
        (p.BashParams, {"after": ["t1"] * 1001}, "$.after: expected array of at most 1000 "),
        (p.BashParams, {"after": [""]}, "$.after[0]: expected handle of 1 to 84 characters "),
        (p.BashParams, {"after_when": "ended"}, "$.after_when: expected nothing without after"),
        (
            p.BashParams,
            {"after": ["t1"], "after_when": "lost"},
            '$.after_when: expected "ended" or "failed" or "succeeded"',
        ),
        (p.SetLaneParams, {"lane": "gpu", "limit": -1}, "$.limit: expected integer between 0 and "),
        (p.SetLaneParams, {"lane": "", "limit": 1}, "$.lane: expected name of a lane"),
        (p.SetModeParams, {"mode": "mine"}, '$.mode: expected "exclusive" or "shared"'),
        (
            p.SetModeParams,
            {"mode": "exclusive", "ttl_secs": 0},
            "$.ttl_secs: expected number > 0",
        ),
        (p.HelloParams, {"cwd": "x"}, "$.cwd: expected an absolute path"),
        (p.HelloParams, {"client": 1}, "$.client: expected string of at most 200 characters"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_bad_param_is_refused(type_: type[Any], members: dict[str, Any], message: str) -> None:
    assert refusal(type_, **members).startswith(message)


@pytest.mark.parametrize(
    ("members", "message"),
    [],
)
def test_what_is_not_offered_yet_is_refused_by_name(members: dict[str, Any], message: str) -> None:
    assert refusal(p.BashParams, **members) == message
    assert refusal(p.ExecuteParams, **members) == message


def test_a_limit_of_memory_is_a_positive_integer_and_no_matter_of_code() -> None:
    expected = "$.memory_bytes: expected integer between 1 and 2^53"
    for value in (0, -1, 1 << 54):
        assert refusal(p.BashParams, memory_bytes=value, command="x") == expected
    assert p.ExecuteParams(argv=["x"], memory_bytes=1).memory_bytes == 1
    with pytest.raises(InvalidParams) as raised:
        p.ExecuteParams(code="1", memory_bytes=1)
    refused = "$.memory_bytes: expected nothing beside code: it runs where others do"
    assert str(raised.value) == refused


@pytest.mark.parametrize("code", ["x", "x" * 1_048_576, "é" * 524_288])
def test_code_is_up_to_a_mebibyte_of_text(code: str) -> None:
    assert p.ExecuteParams(code=code).code == code


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"code": ""}, "$.code: expected 1 to 1048576 bytes of UTF-8"),
        ({"code": "x" * 1_048_577}, "$.code: expected 1 to 1048576 bytes of UTF-8"),
        ({"code": "é" * 524_289}, "$.code: expected 1 to 1048576 bytes of UTF-8"),
        ({"code": "1\0"}, "$.code: expected string without NUL"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_code_that_is_none_is_refused(members: dict[str, Any], message: str) -> None:
    assert refusal(p.ExecuteParams, argv=None, **members) == message


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        ("", '$.env[""]', "name that is not empty and has no = or NUL"),
        ("A=B", '$.env["A=B"]', "name that is not empty and has no = or NUL"),
        ("A\0", '$.env["A\\u0000"]', "name that is not empty and has no = or NUL"),
        ("ENGINE_HOME", "$.env.ENGINE_HOME", "name that does not begin with ENGINE_"),
    ],
)
def test_a_variable_that_no_process_or_no_job_may_have_is_refused(
    name: str, path: str, expected: str
) -> None:
    for type_ in (p.BashParams, p.ExecuteParams):
        assert refusal(type_, env={name: "v"}) == f"{path}: expected {expected}"


def test_a_variable_with_nul_in_its_value_is_refused() -> None:
    assert refusal(p.BashParams, env={"A": "\0"}) == "$.env.A: expected string without NUL"


def test_what_linux_does_not_pass_in_one_string_is_refused_by_name() -> None:
    words = "expected fewer than 131072 bytes (the system passes no more in one)"
    fits = {"env": {"A": "x" * 131_069}, "argv": ["true", "é" * 65_535 + "x"]}
    assert decode(p.ExecuteParams, **fits).argv[1] == "é" * 65_535 + "x"
    assert refusal(p.ExecuteParams, env={"A": "x" * 131_070}) == f"$.env.A: {words}"
    assert refusal(p.ExecuteParams, argv=["true", "é" * 65_536]) == f"$.argv[1]: {words}"


def test_the_largest_command_and_any_text_in_it_are_taken() -> None:
    assert decode(p.BashParams, command="é" * 524_288).command == "é" * 524_288
    assert decode(p.BashParams, command="a\r\n\x01\x7f\u2028b").command == "a\r\n\x01\x7f\u2028b"


def test_hello_leaves_out_what_is_the_engines() -> None:
    hello = decode(p.HelloParams, cwd="/src", env={"ENGINE_HOME": "/x", "A": "1"}, client="cli")
    assert (hello.cwd, hello.env, hello.client) == ("/src", {"A": "1"}, "cli")
    assert refusal(p.HelloParams, env={"": "x"}).startswith('$.env[""]: expected name ')


def test_any_json_id_can_be_cancelled() -> None:
    for id_ in (0, "", 1.5, "x", None):
        assert decode(p.CancelRequestParams, id=id_).id == id_
    assert refusal(p.CancelRequestParams, id=True).startswith("$.id: expected ")


def test_the_identity_of_a_job_leaves_out_what_is_about_the_call() -> None:
    plain = p.job_identity(decode(p.BashParams))
    about_the_call = {
        "as": "ci",
        "timeout_secs": 1,
        "max_output_bytes": 0,
        "logs": "none",
        "logScope": "all",
        "on_disconnect": "cancel",
        "tool_schema_fingerprint": "f",
        "key": "k",
    }
    defaults = {"session": True, "stdin": "null", "streams": "merged", "pty": False, "env": None}
    defaults |= {"lane": None, "after": [], "after_when": "succeeded"}
    assert p.job_identity(decode(p.BashParams, **about_the_call, **defaults)) == plain
    assert plain == b'{"command":"true"}'


@pytest.mark.parametrize(
    "members",
    [
        {"command": "false"},
        {"deadline_secs": 5},
        {"session": False},
        {"cwd": "/"},
        {"env": {"A": "1"}},
        {"stdin": {"text": ""}},
        {"streams": "split"},
        {"lane": "gpu"},
        {"after": ["t1"]},
    ],
)
def test_the_identity_of_a_job_tells_other_jobs_apart(members: dict[str, Any]) -> None:
    plain = p.job_identity(decode(p.BashParams))
    assert p.job_identity(decode(p.BashParams, **members)) != plain


def test_when_others_have_to_end_is_part_of_the_identity_of_a_job() -> None:
    plain = p.job_identity(decode(p.BashParams, after=["t1"]))
    assert p.job_identity(decode(p.BashParams, after=["t1"], after_when="succeeded")) == plain
    assert p.job_identity(decode(p.BashParams, after=["t1"], after_when="ended")) != plain
    assert p.job_identity(decode(p.BashParams, after=["t2"])) != plain


def test_the_identity_of_a_job_does_not_hang_on_the_order_of_members() -> None:
    one = decode(p.ExecuteParams, env={"A": "1", "B": "2"})
    other = decode(p.ExecuteParams, env={"B": "2", "A": "1"})
    assert (
        p.job_identity(one)
        == p.job_identity(other)
        == (b'{"argv":["true"],"env":{"A":"1","B":"2"}}')
    )


def test_a_terminal_is_one_stream() -> None:
    message = '$.pty: expected false beside "split": a terminal is one stream'
    assert refusal(p.BashParams, pty=True, streams="split") == message
    assert decode_params(b'{"command":"x","pty":true,"stdin":"open"}', p.BashParams).pty


def test_what_is_written_is_text_or_bytes_or_nothing_but_an_end() -> None:
    def data(members: str) -> bytes:
        return decode_params(b'{"taskId":"t1",' + members.encode() + b"}", p.WriteStdinParams).data

    assert data('"text":"\\u00e9\\u0003"') == b"\xc3\xa9\x03"
    assert data('"base64":"AP8="') == b"\x00\xff"
    assert data('"eof":true') == b""
    assert data('"text":""') == b""
    one = "$: expected exactly one of text and base64"
    assert refusal(p.WriteStdinParams, eof=False) == one
    assert refusal(p.WriteStdinParams, text="x", base64="eA==", eof=True) == one


def test_a_wait_for_many_takes_its_time_by_either_name_and_240_seconds_at_most() -> None:
    assert decode(p.WaitAnyParams).wait_seconds == 240
    assert decode(p.WaitAnyParams, wait_seconds=0).wait_seconds == 0
    assert decode(p.WaitAnyParams, timeout_secs=3).wait_seconds == 3
    assert decode(p.WaitAnyParams, wait_seconds=1e9).wait_seconds == 240
    assert decode(p.WaitAnyParams, timeout_secs=1e9).wait_seconds == 240
    both = refusal(p.WaitAnyParams, wait_seconds=1, timeout_secs=1)
    assert both == "$: expected at most one of wait_seconds and timeout_secs"


def test_a_wait_for_many_takes_1_to_10000_handles_or_none() -> None:
    assert decode(p.WaitAnyParams).ids is None
    assert len(decode(p.WaitAnyParams, ids=["t1"] * 10_000).ids) == 10_000
    for wrong in ([], ["t1"] * 10_001):
        assert refusal(p.WaitAnyParams, ids=wrong) == "$.ids: expected array of 1 to 10000 handles"
    assert refusal(p.WaitAnyParams, ids=["t 1"]).startswith("$.ids[0]: expected handle of 1 to 84")


def test_a_manager_session_id_is_as_for_the_inbox_and_nothing_beside_ids() -> None:
    assert decode(p.WaitAnyParams, manager_session_id="ann").as_ == "ann"
    assert decode(p.WaitAnyParams, manager_session_id="ann", **{"as": "ann"}).as_ == "ann"
    assert decode(p.WaitAnyParams, manager_session_id="No Name", ids=["t1"]).as_ is None
    other = refusal(p.WaitAnyParams, manager_session_id="ann", **{"as": "bob"})
    assert other == '$.manager_session_id: expected "bob", as in as'
    assert refusal(p.WaitAnyParams, manager_session_id="No Name").startswith(
        "$.manager_session_id: expected 1 to 64 characters"
    )
