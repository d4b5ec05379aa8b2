"""Mirrors `engine/protocol/openrpc.py`; what a real engine says is in the acceptance tests."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from openrpc_rules import check_document
from schemas import faults

from engine import errors
from engine.errors import InvalidParams
from engine.protocol import params as p
from engine.protocol.decode import decode_params
from engine.protocol.openrpc import MethodFacts, make_body, make_document

AGENT = frozenset({"agent"})


def facts(
    params: type[msgspec.Struct], *kinds: type[errors.EngineError], summary: str = "Does it."
) -> MethodFacts:
    return MethodFacts(params=params, roles={"human", *AGENT}, errors=kinds, summary=summary)


METHODS = {
    "bash": facts(p.BashParams, errors.KeyConflict, errors.InvalidParams),
    "wait": facts(p.WaitParams, errors.UnknownHandle, errors.InvalidParams),
    "list_tasks": facts(p.ListTasksParams),
    "read_logs": facts(p.ReadLogsParams),
    "read_task": facts(p.ReadTaskParams),
    "write_stdin": facts(p.WriteStdinParams),
    "roster": facts(p.RosterParams),
}


@pytest.fixture
def document() -> dict[str, Any]:
    whole = make_document(make_body(METHODS), version="0.9", fingerprint="f00d")
    document: dict[str, Any] = json.loads(msgspec.json.encode(whole))
    return document


def method(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in document["methods"] if each["name"] == name]
    assert isinstance(found, dict)
    return found


def param(document: dict[str, Any], of: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in method(document, of)["params"] if each["name"] == name]
    assert isinstance(found, dict)
    return found


def test_a_document_keeps_the_rules_of_openrpc(document: dict[str, Any]) -> None:
    check_document(document)
    assert document["info"]["version"] == "0.9"
    assert document["info"]["x-schemaFingerprint"] == "f00d"


def spoil_by_lack(document: dict[str, Any]) -> None:
    del document["methods"][0]["name"]


def spoil_by_a_member(document: dict[str, Any]) -> None:
    document["methods"][0]["roles"] = []


def spoil_a_schema(document: dict[str, Any]) -> None:
    document["methods"][0]["params"][0]["schema"] = {"type": "text"}


def spoil_a_reference(document: dict[str, Any]) -> None:
    del document["components"]["schemas"]["Notice"]


def spoil_by_a_twin(document: dict[str, Any]) -> None:
    document["methods"].append(document["methods"][0])


def spoil_the_order(document: dict[str, Any]) -> None:
    method(document, "bash")["params"].reverse()


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_by_lack,
        spoil_by_a_member,
        spoil_a_schema,
        spoil_a_reference,
        spoil_by_a_twin,
        spoil_the_order,
    ],
)
def test_the_rules_find_what_is_wrong(
    document: dict[str, Any], spoil: Callable[[dict[str, Any]], None]
) -> None:
    spoiled = copy.deepcopy(document)
    spoil(spoiled)
    with pytest.raises((AssertionError, KeyError)):
        check_document(spoiled)


def test_a_method_says_who_may_call_it_what_it_does_and_how_it_fails(
    document: dict[str, Any],
) -> None:
    bash = method(document, "bash")
    assert bash["summary"] == "Does it."
    assert bash["paramStructure"] == "by-name"
    assert bash["x-roles"] == ["agent", "human"]
    assert bash["errors"] == [
        {"$ref": "#/components/errors/key_conflict"},
        {"$ref": "#/components/errors/invalid_params"},
    ]
    assert document["components"]["errors"] == {
        "unknown_handle": {
            "code": -32003,
            "message": "No such task, kickoff, round, request or room, now or before.",
            "data": {"kind": "unknown_handle"},
        },
        "key_conflict": {
            "code": -32013,
            "message": "The caller used this idempotency key for a call with other params.",
            "data": {"kind": "key_conflict"},
        },
        "invalid_params": {
            "code": -32602,
            "message": "A param is not what the method takes.",
            "data": {"kind": "invalid_params"},
        },
    }


def test_a_param_has_its_type_bounds_and_default(document: dict[str, Any]) -> None:
    assert param(document, "bash", "command") == {
        "name": "command",
        "summary": "bash text of 1 byte to 1 MiB, passed on byte for byte",
        "description": "string",
        "required": True,
        "schema": {"type": "string"},
    }
    assert param(document, "bash", "max_output_bytes") == {
        "name": "max_output_bytes",
        "summary": "how much output the reply may carry, both streams together",
        "description": "integer between 0 and 524288",
        "required": False,
        "schema": {"type": "integer", "minimum": 0, "maximum": 524_288, "default": 32_768},
    }
    assert param(document, "bash", "timeout_secs")["schema"] == {
        "type": "number",
        "minimum": 0,
        "default": 20.0,
    }
    assert param(document, "bash", "deadline_secs")["schema"] == {
        "type": "number",
        "exclusiveMinimum": 0,
    }
    assert param(document, "bash", "stdin")["schema"] == {
        "anyOf": [{"enum": ["null", "open"]}, {"$ref": "#/components/schemas/TextInput"}],
        "default": "null",
    }
    assert param(document, "read_logs", "limit")["schema"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 1000,
        "default": 200,
    }


def test_what_is_not_offered_yet_is_not_told(document: dict[str, Any]) -> None:
    names = {each["name"] for each in method(document, "bash")["params"]}
    assert names == {
        *("as", "tool_schema_fingerprint", "command", "timeout_secs", "deadline_secs", "session"),
        *("cwd", "env", "stdin", "pty", "streams", "on_disconnect", "key", "max_output_bytes"),
        *("logs", "logScope", "lane", "after", "after_when", "ready_when", "memory_bytes"),
    }


def test_a_param_that_elsewhere_is_not_offered_is_told_where_it_is(
    document: dict[str, Any],
) -> None:
    assert param(document, "roster", "after")["required"] is False


def test_no_param_takes_null_but_the_id_of_a_call(document: dict[str, Any]) -> None:
    taking = [
        (each["name"], one["name"])
        for each in document["methods"]
        for one in each["params"]
        if not faults(None, one["schema"], document)
    ]
    assert taking == [("$/cancelRequest", "id")]


def test_cancelling_a_call_is_a_notification_that_is_told_too(document: dict[str, Any]) -> None:
    cancel = method(document, "$/cancelRequest")
    assert cancel["x-notification"] is True
    names = [each["name"] for each in cancel["params"]]
    assert names == ["as", "tool_schema_fingerprint", "id"]
    assert cancel["result"]["schema"] == {"type": "null"}


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("bash", {"command": "x", "timeout_secs": 0, "stdin": {"text": "y"}}),
        ("bash", {"command": "x", "timeout_secs": -1}),
        ("bash", {"command": "x", "pty": 1}),
        ("bash", {"command": "x", "max_output_bytes": 524_289}),
        ("bash", {"command": "x", "logs": "loud"}),
        ("bash", {"command": "x", "as": "No"}),
        ("bash", {"command": "x", "env": {"A": 1}}),
        ("bash", {}),
        ("list_tasks", {"caller": "*", "state": ["running"], "limit": 500}),
        ("list_tasks", {"limit": 501}),
        ("list_tasks", {"state": ["ran"]}),
        ("list_tasks", {"caller": "*x"}),
        ("read_logs", {"since": "2026-11-30T12:04:31.208Z", "wake_on": ["error"]}),
        ("read_logs", {"since": "yesterday"}),
        ("read_logs", {"logs": "none"}),
        ("write_stdin", {"taskId": "t1", "text": "x"}),
        ("write_stdin", {"taskId": "t1 ", "text": "x"}),
    ],
)
def test_what_the_document_takes_is_what_is_decoded(
    document: dict[str, Any], of: str, value: dict[str, Any]
) -> None:
    schemas = {each["name"]: each for each in method(document, of)["params"]}
    is_told = all(each["name"] in value for each in schemas.values() if each["required"])
    is_told &= not any(faults(v, schemas[n]["schema"], document) for n, v in value.items())
    types: dict[str, type[p.Params]] = {"bash": p.BashParams, "list_tasks": p.ListTasksParams}
    types |= {"read_logs": p.ReadLogsParams, "write_stdin": p.WriteStdinParams}
    try:
        decode_params(json.dumps(value).encode(), types[of])
    except InvalidParams:
        is_taken = False
    else:
        is_taken = True
    assert is_told == is_taken


def test_a_result_of_several_kinds_is_any_of_them(document: dict[str, Any]) -> None:
    assert method(document, "wait")["result"] == {
        "name": "result",
        "schema": {
            "anyOf": [
                {"$ref": "#/components/schemas/Finished"},
                {"$ref": "#/components/schemas/Running"},
                {"$ref": "#/components/schemas/Kickoff"},
            ]
        },
    }


def test_a_row_is_whole_or_forgotten(document: dict[str, Any]) -> None:
    row = document["components"]["schemas"]["TaskRow"]
    assert faults({"taskId": "t1", "status": "forgotten"}, row, document) == []
    assert faults({"taskId": "t1", "status": "running"}, row, document)


def test_a_line_of_a_reply_is_a_record_or_the_marker(document: dict[str, Any]) -> None:
    entry = document["components"]["schemas"]["LogEntry"]
    line = {"seq": 1, "time": "", "level": "info", "caller": None, "taskId": None, "text": ""}
    assert faults({**line, "source": "engine"}, entry, document) == []
    assert faults({"marker": True, "leftOut": 3, "text": "x"}, entry, document) == []
    assert faults({"marker": False, "leftOut": 3, "text": "x"}, entry, document)
    assert faults(line, entry, document)


def test_the_body_changes_with_a_param_and_not_by_itself() -> None:
    class Other(p.WaitParams, frozen=True, kw_only=True):
        more: int = 0

    same = make_body(METHODS)
    other = make_body({**METHODS, "wait": facts(Other, errors.UnknownHandle)})
    assert msgspec.json.encode(make_body(METHODS)) == msgspec.json.encode(same)
    assert msgspec.json.encode(other) != msgspec.json.encode(same)
