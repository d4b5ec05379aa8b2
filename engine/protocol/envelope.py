"""JSON-RPC 2.0 without I/O: the text of one frame in, messages out, and replies encoded.

`params` stay raw: what they must be is the method's affair. msgspec is the judge of what is JSON;
the standard library's parser is asked only for what msgspec does not tell: whether a name stands
twice in one object, and what a message that msgspec refuses looks like.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from engine.errors import EngineError, ErrorData, InvalidParams, InvalidRequest, ParseError
from engine.protocol.decode import member_path

BATCH_MAX: Final = 64  # calls
VALUES_MAX: Final = 300_000  # in one frame: parsing more would hold up everybody else
REPLY_MAX_BYTES: Final = 1 << 20  # one reply, or all replies of a batch together
_ID_MAX_DIGITS: Final = 308  # what a double may have; longer integers are no ids

RequestId = int | float | str | None

# Possessive, and the closing quote may be missing: linear on any text.
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Call(NamedTuple):
    """A request, or a notification where `id` is UNSET. `params` is None where left out."""

    id: RequestId | UnsetType
    method: str
    params: Raw | None


class Invalid(NamedTuple):
    """What is no call, with the id under which that is answered."""

    id: RequestId
    error: EngineError


Message = Call | Invalid


class _Wire(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    method: str
    id: int | float | str | UnsetType | None = UNSET
    params: Raw = Raw()


_wire_decoder: Final = msgspec.json.Decoder(_Wire)
_batch_decoder: Final = msgspec.json.Decoder(list[Raw])


class _NameTwice(ValueError):
    """An object has two members of one name: which one counts is a matter of the parser."""


class _NoJson(ValueError):
    """A word that Python takes for a number and JSON does not know."""


def parse(text: str) -> Message | list[Message]:
    """The message or the batch of messages in one frame. Raises nothing: faults are `Invalid`."""
    if _has_too_many_values(text):
        return Invalid(None, InvalidRequest(f"a frame has at most {VALUES_MAX} values"))
    try:
        return _parse_batch(text) if _is_array(text) else _parse_one(text)
    except RecursionError:
        return Invalid(None, ParseError("the JSON is nested too deeply"))
    except _NameTwice as exc:
        return Invalid(None, ParseError(f"the name {json.dumps(str(exc)[:80])} stands twice"))
    except ValueError:  # all that the two parsers raise
        return Invalid(None, ParseError("the frame is no JSON text"))


def encode_result(request_id: RequestId, result: bytes) -> bytes:
    """A reply; `result` is JSON already."""
    head = msgspec.json.encode(request_id)
    return b'{"jsonrpc":"2.0","id":' + head + b',"result":' + result + b"}"


def encode_error(request_id: RequestId, error: ErrorData) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def encode_batch(replies: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(replies) + b"]"


def _has_too_many_values(text: str) -> bool:
    """Whether the frame has over `VALUES_MAX` of them, told without making any."""
    if len(text) <= VALUES_MAX or _count_marks(text, 0, len(text)) <= VALUES_MAX:
        return False
    count = at = 0
    for string in _STRING.finditer(text):  # the marks may all stand in strings
        count += _count_marks(text, at, string.start())
        at = string.end()
        if count > VALUES_MAX:
            return True
    return count + _count_marks(text, at, len(text)) > VALUES_MAX


def _count_marks(text: str, start: int, end: int) -> int:
    """How many values begin between `start` and `end`, give or take one for each structure."""
    return sum(text.count(mark, start, end) for mark in ",[{")


def _is_array(text: str) -> bool:
    return text.lstrip(" \t\r\n")[:1] == "["


def _parse_batch(text: str) -> Message | list[Message]:
    try:
        parts = _batch_decoder.decode(text)
    except msgspec.DecodeError:
        items = _tree(text)
        if fault := _batch_fault(len(items)):
            return fault
        return [_parse_item(item) for item in items]
    if fault := _batch_fault(len(parts)):
        return fault
    _refuse_names_twice(text)
    return [_parse_wire(part) for part in parts]


def _batch_fault(size: int) -> Invalid | None:
    if size == 0:
        return Invalid(None, InvalidRequest("the batch is empty"))
    if size > BATCH_MAX:
        return Invalid(None, InvalidRequest(f"a batch has at most {BATCH_MAX} calls"))
    return None


def _parse_one(text: str) -> Message:
    try:
        message = _parse_wire(text)
    except msgspec.DecodeError:  # no JSON, or JSON with a lone surrogate
        return _parse_item(_tree(text))
    _refuse_names_twice(text)
    return message


def _parse_wire(text: str | Raw) -> Message:
    """The message in `text`. Raises `DecodeError` where msgspec finds that it is no JSON."""
    try:
        wire = _wire_decoder.decode(text)
    except msgspec.ValidationError:
        tree = _tree(text if isinstance(text, str) else bytes(text).decode())
        return Invalid(_id_of(tree), InvalidRequest(_what_is_wrong(tree)))
    opening = bytes(memoryview(wire.params)[:1])
    if opening in (b"", b"n"):  # left out, or null
        return Call(wire.id, wire.method, None)
    if opening not in (b"{", b"["):
        known = None if wire.id is UNSET else wire.id
        return Invalid(known, InvalidRequest("params must be an object or an array"))
    return Call(wire.id, wire.method, wire.params)


def _parse_item(tree: Any) -> Message:
    """The message in `tree`, parsed by the standard library because msgspec refused the text."""
    path = _surrogate_path(tree, "$")
    if path is None:
        return _parse_wire(json.dumps(tree))
    if isinstance(tree, dict) and path.startswith("$.params"):
        rest = _parse_wire(json.dumps({**tree, "params": {}}))
        if isinstance(rest, Invalid):
            return rest
        error = InvalidParams("$" + path.removeprefix("$.params"), "text without a lone surrogate")
        return Invalid(_id_of(tree), error)
    return Invalid(_id_of(tree), InvalidRequest("the message holds a lone surrogate"))


def _tree(text: str) -> Any:
    """`text` as Python values. Raises `ValueError` and `RecursionError`."""
    return json.loads(
        text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer
    )


def _refuse_names_twice(text: str) -> None:
    """Raise `_NameTwice` where an object of `text`, which is JSON, has two members of one name."""
    try:
        json.loads(text, object_pairs_hook=_unique)
    except _NameTwice:
        raise
    except ValueError:  # an integer with more digits than Python converts: the method refuses it
        return


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NameTwice(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return members


def _no_constant(word: str) -> Any:
    raise _NoJson(word)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _ID_MAX_DIGITS else float("inf")


def _id_of(tree: Any) -> RequestId:
    """The id of a faulty message, null unless it is there and of a right type."""
    found = tree.get("id") if isinstance(tree, dict) else None
    if isinstance(found, bool) or found in (float("inf"), float("-inf")):
        return None
    if isinstance(found, str):
        return None if _SURROGATE.search(found) else found
    return found if isinstance(found, int | float) else None


def _what_is_wrong(tree: Any) -> str:
    if not isinstance(tree, dict):
        return "a message must be an object"
    if tree.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    if not isinstance(tree.get("method"), str):
        return "method must be a string"
    return "id must be a string, a number or null"


def _surrogate_path(value: Any, path: str) -> str | None:
    """Where in `value` a lone surrogate stands, in a name or in a string; None: nowhere."""
    if isinstance(value, str):
        return path if _SURROGATE.search(value) else None
    if isinstance(value, dict):
        for name, item in value.items():
            at = member_path(path, name)
            if _SURROGATE.search(name):
                return at
            if found := _surrogate_path(item, at):
                return found
    elif isinstance(value, list):
        for i, item in enumerate(value):
            if found := _surrogate_path(item, f"{path}[{i}]"):
                return found
    return None
