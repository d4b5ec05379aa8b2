"""Mirrors `engine/client/wire.py`."""

from __future__ import annotations

import json

import pytest

from engine.client.errors import ProtocolFailure, Refused
from engine.client.wire import decode_answer, encode_call, to_json


def test_a_call_leaves_out_what_is_none() -> None:
    text = encode_call(3, "bash", {"command": "é", "key": None, "session": False})
    assert json.loads(text) == {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "bash",
        "params": {"command": "é", "session": False},
    }


def test_what_nobody_answers_has_no_id() -> None:
    text = encode_call(None, "read_task", {"as": "ci", "taskId": "t1", "kickoffId": None})
    assert json.loads(text) == {
        "jsonrpc": "2.0",
        "method": "read_task",
        "params": {"as": "ci", "taskId": "t1"},
    }


def test_a_result_and_an_error_are_told_apart() -> None:
    assert decode_answer('{"jsonrpc":"2.0","id":3,"result":null}') == (3, None, None)
    answer = decode_answer(
        '{"jsonrpc":"2.0","id":4,"error":{"code":-32003,"message":"no","data":{"kind":"x"}}}'
    )
    assert answer.id == 4
    assert answer.error is not None
    assert (answer.error.code, answer.error.kind, str(answer.error)) == (-32003, "x", "no")


def test_an_error_without_an_id_is_raised() -> None:
    with pytest.raises(Refused, match="parse error"):
        decode_answer('{"id":null,"error":{"code":-32700,"message":"parse error"}}')


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"id":1}', '{"id":"a","result":1}', '{"id":1,"error":3}', "[" * 100_000],
)
def test_what_is_no_reply_is_a_protocol_failure(text: str) -> None:
    with pytest.raises(ProtocolFailure):
        decode_answer(text)


def test_json_is_one_short_line_and_has_no_nan() -> None:
    assert to_json({"a": [1, "ü\n"]}) == '{"a":[1,"ü\\n"]}'
    with pytest.raises(ValueError, match="Out of range"):
        to_json(float("nan"))
