"""Mirrors `engine/protocol/envelope.py`: text in, messages out; no socket."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidParams, InvalidRequest, ParseError, to_error_data
from engine.protocol.envelope import (
    Call,
    Invalid,
    encode_batch,
    encode_error,
    encode_result,
    parse,
)


def call_text(**members: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": "m", **members})


def params_of(text: str) -> Any:
    message = parse(text)
    assert isinstance(message, Call)
    return None if message.params is None else json.loads(bytes(message.params))


def fault_of(text: str) -> tuple[Any, int]:
    message = parse(text)
    assert isinstance(message, Invalid), message
    return message.id, message.error.code


@pytest.mark.parametrize("id_", [0, "", None, 1.5, -7, "é", 2**53, 10**25])
def test_an_id_comes_back_as_it_was_sent(id_: Any) -> None:
    message = parse(call_text(id=id_))
    assert isinstance(message, Call)
    assert message.id is not msgspec.UNSET
    reply = json.loads(encode_result(message.id, b"[1]"))
    assert reply == {"jsonrpc": "2.0", "id": id_, "result": [1]}
    assert type(reply["id"]) is type(id_)


@pytest.mark.parametrize("id_", ["true", "[1]", "{}", "1e999", "-1e999", "1" * 5000, '"\\ud800"'])
def test_what_is_no_id_is_an_invalid_request_without_one(id_: str) -> None:
    assert fault_of('{"jsonrpc":"2.0","method":"m","id":' + id_ + "}") == (None, -32600)


def test_without_an_id_it_is_a_notification() -> None:
    message = parse(call_text())
    assert isinstance(message, Call)
    assert message.id is msgspec.UNSET


@pytest.mark.parametrize(
    ("text", "params"),
    [
        (call_text(), None),
        (call_text(params=None), None),
        (call_text(params={}), {}),
        (call_text(params=[1, {"a": None}]), [1, {"a": None}]),
        ('{"jsonrpc":"2.0","method":"m","params":\n {"a":1}}', {"a": 1}),
    ],
)
def test_params_are_handed_on_undecoded(text: str, params: Any) -> None:
    assert params_of(text) == params


@pytest.mark.parametrize("params", ["x", 1, True, 1.5])
def test_params_that_are_no_structure_are_an_invalid_request_under_its_id(params: Any) -> None:
    assert fault_of(call_text(id=6, params=params)) == (6, -32600)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "nonsense",
        "[" * 200_000,
        "[" * 5_000 + "]" * 5_000,
        '{"jsonrpc":"2.0","method":"m","id":1,"params":' + "[" * 5_000 + "]" * 5_000 + "}",
        '{"jsonrpc":"2.0","method":"m","id":1,"params":{"timeout_secs":NaN}}',
        '{"jsonrpc":"2.0","method":"m","id":1,"params":[Infinity]}',
        '{"jsonrpc":"2.0","method":"m","id":1,"params":[-Infinity]}',
        '{"jsonrpc":"2.0","method":"m","id":1} x',
        '{"jsonrpc":"2.0","method":1,"id":1,"params":[01]}',
        '{"jsonrpc":"2.0","method":1,"id":1',
        '{"jsonrpc":"2.0","method":"m\n","id":1}',
        '{"jsonrpc":"2.0","method":"m","id":1,"params":{"a":1,"a":2}}',
        '{"jsonrpc":"2.0","method":"m","id":1,"params":{"a":1,"\\u0061":2}}',
        '{"jsonrpc":"2.0","method":"m","id":1,"id":2}',
        '[{"jsonrpc":"2.0","method":"m","id":1,"id":2}]',
        "\ufeff{}",
    ],
    ids=lambda text: text[:60],
)
def test_what_is_no_json_is_a_parse_error(text: str) -> None:
    assert fault_of(text) == (None, -32700)


@pytest.mark.parametrize(
    ("text", "id_", "what"),
    [
        ("1", None, "a message must be an object"),
        ('{"method":"m","id":1}', 1, 'jsonrpc must be "2.0"'),
        ('{"jsonrpc":"1.0","method":"m","id":"x"}', "x", 'jsonrpc must be "2.0"'),
        ('{"jsonrpc":"2.0","id":0}', 0, "method must be a string"),
        ('{"jsonrpc":"2.0","id":0,"result":1}', 0, "method must be a string"),
        (
            '{"jsonrpc":"2.0","method":"m","id":true}',
            None,
            "id must be a string, a number or null",
        ),
    ],
)
def test_an_invalid_request_says_what_is_wrong(text: str, id_: Any, what: str) -> None:
    message = parse(text)
    assert isinstance(message, Invalid)
    assert isinstance(message.error, InvalidRequest)
    assert (message.id, str(message.error)) == (id_, what)


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ('{"command":"\\ud800"}', "$.command"),
        ('{"command":"x\\udfffy"}', "$.command"),
        ('{"command":"\\ud800\\u0041"}', "$.command"),
        ('{"env":{"FOO":"\\udc80"}}', "$.env.FOO"),
        ('{"argv":["a","b","c","\\udc80"]}', "$.argv[3]"),
        ('["\\udc80"]', "$[0]"),
        ('{"\\ud800":1}', '$["\\ud800"]'),
    ],
)
def test_a_lone_surrogate_in_params_is_refused_by_its_path(params: str, path: str) -> None:
    message = parse('{"jsonrpc":"2.0","id":"s","method":"m","params":' + params + "}")
    assert isinstance(message, Invalid)
    assert isinstance(message.error, InvalidParams)
    assert (message.id, message.error.path) == ("s", path)
    encode_error(message.id, to_error_data(message.error)).decode()  # holds none itself


def test_a_pair_of_surrogates_is_one_character() -> None:
    text = '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\ud83d\\ude00"}}'
    assert params_of(text) == {"a": "😀"}


@pytest.mark.parametrize("text", ['"\\ud800"', '{"jsonrpc":"2.0","id":7,"method":"\\ud800"}'])
def test_a_lone_surrogate_elsewhere_is_an_invalid_request(text: str) -> None:
    assert fault_of(text) == (7 if "id" in text else None, -32600)


def test_a_batch_is_a_list_of_messages_of_which_one_may_be_bad() -> None:
    batch = parse(f"[{call_text(id=1)}, 1, {call_text()}, {call_text(id=2, params='x')}]")
    assert isinstance(batch, list)
    kinds = [(type(message), message.id) for message in batch]
    assert kinds == [(Call, 1), (Invalid, None), (Call, msgspec.UNSET), (Invalid, 2)]


def test_a_lone_surrogate_spoils_only_its_own_call_of_a_batch() -> None:
    bad = '{"jsonrpc":"2.0","id":2,"method":"m","params":{"a":"\\ud800"}}'
    batch = parse(f"[{call_text(id=1)}, {bad}]")
    assert isinstance(batch, list)
    assert isinstance(batch[0], Call)
    assert isinstance(batch[1], Invalid)
    assert (batch[1].id, batch[1].error.code) == (2, -32602)


@pytest.mark.parametrize(
    "values",
    ["[]," * 300_000, "1," * (8 << 20), '"",' * (5 << 20), '{"a":1},' * 150_001],
    ids=["lists", "numbers", "strings", "objects"],
)
def test_a_frame_of_more_values_than_can_be_parsed_in_a_moment_is_refused(values: str) -> None:
    start = time.process_time()
    call = '{"jsonrpc":"2.0","id":1,"method":"m","params":[' + values + "1]}"
    assert fault_of(call) == (None, -32600)
    assert time.process_time() - start < 2


def test_marks_in_a_string_are_no_values() -> None:
    text = '[{",' * 1_000_000
    assert params_of(call_text(params={"command": text})) == {"command": text}


@pytest.mark.parametrize("size", [0, 65, 1000])
def test_a_batch_is_refused_as_a_whole_outside_1_to_64_calls(size: int) -> None:
    assert fault_of("[" + ",".join([call_text(id=1)] * size) + "]") == (None, -32600)


def test_replies_of_a_batch_are_one_array() -> None:
    replies = [encode_result(1, b"2"), encode_error(None, to_error_data(ParseError("no JSON")))]
    assert json.loads(encode_batch(replies)) == [
        {"jsonrpc": "2.0", "id": 1, "result": 2},
        {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": -32700, "message": "no JSON", "data": {"kind": "parse_error"}},
        },
    ]


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn\\ud8cjsonpcmethi ', max_size=80))
def test_no_text_makes_the_parser_raise(text: str) -> None:
    assert isinstance(parse(text), Call | Invalid | list)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _VALUES, max_size=4) | st.lists(_VALUES, max_size=4))
def test_whatever_params_go_in_come_out(params: Any) -> None:
    assert params_of(json.dumps({"jsonrpc": "2.0", "method": "m", "params": params})) == params
