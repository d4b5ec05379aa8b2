"""Mirrors `engine/errors.py`."""

from __future__ import annotations

import msgspec
import pytest

from engine import errors
from engine.errors import EngineError, ErrorData, to_error_data

# Written out again, on purpose: kind by code, as the wire protocol has them.
KINDS = {
    -32700: "parse_error",
    -32600: "invalid_request",
    -32601: "method_not_found",
    -32602: "invalid_params",
    -32603: "internal_error",
    -32003: "unknown_handle",
    -32004: "expired_handle",
    -32006: "shutting_down",
    -32007: "overloaded",
    -32008: "request_cancelled",
    -32009: "forbidden",
    -32010: "output_gone",
    -32011: "invalid_state",
    -32012: "duplicate_handle",
    -32013: "key_conflict",
}


def test_there_is_one_class_for_each_code() -> None:
    classes = EngineError.__subclasses__()
    assert {cls.code: cls.kind for cls in classes} == KINDS
    assert len(classes) == len(KINDS)


@pytest.mark.parametrize(
    ("error", "code", "message", "data"),
    [
        (
            errors.InvalidParams("$.timeout_secs", "number >= 0"),
            -32602,
            "$.timeout_secs: expected number >= 0",
            {"kind": "invalid_params", "path": "$.timeout_secs", "expected": "number >= 0"},
        ),
        (
            errors.UnknownHandle("t1"),
            -32003,
            "no such handle: t1",
            {"kind": "unknown_handle", "handle": "t1"},
        ),
        (
            errors.ExpiredHandle("t1", ended_at="2026-01-02T03:04:05.678Z", status="failed"),
            -32004,
            "t1 has expired",
            {
                "kind": "expired_handle",
                "handle": "t1",
                "endedAt": "2026-01-02T03:04:05.678Z",
                "status": "failed",
            },
        ),
        (
            errors.Overloaded("the queue is full", 10_000),
            -32007,
            "the queue is full",
            {"kind": "overloaded", "limit": 10_000},
        ),
        (
            errors.OutputGone(4096),
            -32010,
            "that output is gone; the oldest kept byte is at 4096",
            {"kind": "output_gone", "oldestOffset": 4096},
        ),
        (
            errors.InvalidState("t1 is running", state="running"),
            -32011,
            "t1 is running",
            {"kind": "invalid_state", "state": "running"},
        ),
        (
            errors.KeyConflict("k", task_id="t1"),
            -32013,
            "this key was used for a call with other params",
            {"kind": "key_conflict", "key": "k", "taskId": "t1"},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_carries_its_facts(
    error: EngineError, code: int, message: str, data: dict[str, object]
) -> None:
    assert to_error_data(error) == ErrorData(code=code, message=message, data=data)


def test_a_stranger_does_not_leak_its_text() -> None:
    assert msgspec.to_builtins(to_error_data(KeyError("secret"))) == {
        "code": -32603,
        "message": "internal error",
        "data": {"kind": "internal_error"},
    }


def test_the_name_of_a_method_that_is_not_there_is_cut() -> None:
    assert str(errors.MethodNotFound("m" * 1000)) == "no such method: " + "m" * 80
