"""Mirrors `engine/protocol/decode.py`, with Structs of its own."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from engine.errors import InvalidParams
from engine.protocol.decode import decode_params, member_path


class Inner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: str


class Sample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    secs: Annotated[float, Meta(ge=0, extra={"expected": "number >= 0"})] = 20.0
    count: int = 1
    flag: bool = False
    words: list[str] | None = None
    states: list[Literal["on", "off"]] | None = None
    env: dict[str, str] | None = None
    mode: Literal["a", "b"] = "a"
    given: Literal["null"] | Inner | None = None

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise InvalidParams("$.name", "another name")


def refusal(text: str) -> str:
    with pytest.raises(InvalidParams) as caught:
        decode_params(text.encode(), Sample)
    return str(caught.value)


def test_params_that_fit_become_the_struct() -> None:
    text = b'{"name":"n","secs":5,"words":["x"],"env":{"A":"b"},"given":{"text":"t"}}'
    assert decode_params(text, Sample) == Sample(
        name="n", secs=5.0, words=["x"], env={"A": "b"}, given=Inner(text="t")
    )


def test_null_is_left_out_for_an_optional_param() -> None:
    text = b'{"name":"n","secs":null,"count":null,"flag":null,"mode":null,"given":null}'
    assert decode_params(text, Sample) == Sample(name="n")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ('"secs":true', "$.secs: expected number >= 0"),
        ('"secs":-1', "$.secs: expected number >= 0"),
        ('"secs":"5"', "$.secs: expected number >= 0"),
        ('"secs":1e999', "$.secs: expected number that a double can hold"),
        ('"secs":' + "1" * 5000, "$.secs: expected number that a double can hold"),
        ('"count":1.5', "$.count: expected integer"),
        ('"count":true', "$.count: expected integer"),
        ('"flag":1', "$.flag: expected boolean"),
        ('"words":"x"', "$.words: expected array"),
        ('"words":["x",3]', "$.words[1]: expected string"),
        ('"words":["x",null]', "$.words[1]: expected string"),
        ('"states":["on","x"]', '$.states[1]: expected "off" or "on"'),
        ('"env":[]', "$.env: expected object"),
        ('"env":{"A":"b","FOO":1}', "$.env.FOO: expected string"),
        ('"env":{"A":"b","F O":null}', '$.env["F O"]: expected string'),
        ('"mode":"c"', '$.mode: expected "a" or "b"'),
        ('"mode":1', '$.mode: expected "a" or "b"'),
        ('"given":{"text":1}', "$.given.text: expected string"),
        ('"given":{}', "$.given.text: expected string; it is missing"),
        ('"given":"open"', '$.given: expected "null" or object'),
        ('"given":{"text":"t","x` - at `$.y":1}', '$.given["x` - at `$.y"]: expected'),
        ('"x":1', "$.x: expected one of the known params: count, env, flag, given, mode, name, "),
        ('"x":null', "$.x: expected one of the known params: "),
        ('"a` - at `$.b`":1', '$["a` - at `$.b`"]: expected one of the known params: '),
    ],
    ids=lambda value: value[:30],
)
def test_what_does_not_fit_is_refused_by_path_and_expectation(members: str, message: str) -> None:
    assert refusal('{"name":"n",' + members + "}").startswith(message)


@pytest.mark.parametrize("text", ["{}", '{"name":null}', "null"])
def test_what_is_missing_is_named(text: str) -> None:
    assert refusal(text) == "$.name: expected string; it is missing"


def test_no_params_are_empty_params() -> None:
    with pytest.raises(InvalidParams) as caught:
        decode_params(None, Sample)
    assert caught.value.path == "$.name"


@pytest.mark.parametrize("text", ["[]", '["n"]'])
def test_params_by_position_are_refused(text: str) -> None:
    assert refusal(text) == "$: expected object (params go by name)"


def test_a_refusal_of_the_struct_itself_goes_out_as_it_is() -> None:
    assert refusal('{"name":"bad"}') == "$.name: expected another name"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("FOO", "$.FOO"),
        ("a-b", '$["a-b"]'),
        ("", '$[""]'),
        ("a\nb", '$["a\\nb"]'),
        ("\u202e", '$["\\u202e"]'),
        ("x" * 1000, '$["' + "x" * 80 + '"]'),
    ],
)
def test_a_path_shows_any_name_in_one_line(name: str, path: str) -> None:
    assert member_path("$", name) == path
