"""What clients send, without a socket: envelopes, and the params of every method."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from engine.errors import InvalidParams, to_error_data
from engine.protocol.decode import decode_params
from engine.protocol.envelope import BATCH_MAX, Call, Invalid, Message, encode_error, parse
from engine.protocol.params import CancelRequestParams, Params
from engine.server.methods import SCHEMAS, document
from scripts.fuzzing import Fault, Target
from scripts.mutating import vary_members

TYPES: Final[dict[str, type[Params]]] = {
    **{name: type_ for name, (type_, _roles) in SCHEMAS.items()},
    "$/cancelRequest": CancelRequestParams,
}
_MESSAGES: Final = (
    b'{"jsonrpc":"2.0","id":1,"method":"bash","params":{"as":"ci","command":"echo hi"}}',
    b'{"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 7.5}}',
    b' [{"jsonrpc":"2.0","id":"a","method":"wait","params":{"taskId":"t8f3kr9"}},'
    b'{"jsonrpc":"2.0","id":null,"method":"roster"}] ',
    b'{"params":[1,{"a":[true,false,null]}],"id":-1.5e-3,"method":"x\\u00e9\\ud83d\\ude00",'
    b'"jsonrpc":"2.0","result":{}}',
    b"[]",
    b"[1]",
    b"{}",
    b"[" + b",".join([b'{"jsonrpc":"2.0","method":"a"}'] * 66) + b"]",
    b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"\\ud800"}}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}',
)
WORDS: Final = (
    *(b'"jsonrpc":"2.0",', b'"id":', b'"method":', b'"params":', b"null", b"true", b"false"),
    *(b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"-0", b'"\\ud800"', b'"\\udc00\\ud800"'),
    *(b"[" * 1200, b'{"a":' * 1200, b"]", b"}", b",", b'""', b"\\u0000", b"\\", b"\xef\xbb\xbf"),
    *(b'{"jsonrpc":"2.0","id":3,"method":"m"}', b"1E400", b"0.1", b"\\/", b"\x00", b"/**/"),
)
_CODES: Final = {-32700, -32600, -32602}


def text_of(data: bytes) -> str:
    """A text frame's: the websocket layer lets through what is UTF-8."""
    return data.decode("utf-8", "replace")


def check_envelope(data: bytes) -> Hashable:
    """What `parse` makes of a frame is what the rules of ids, batches and texts allow."""
    text = text_of(data)
    parsed = parse(text)
    messages = parsed if isinstance(parsed, list) else [parsed]
    if not 1 <= len(messages) <= BATCH_MAX:
        raise Fault(f"a batch of {len(messages)}")
    is_json = _is_json(text)
    if not is_json and any(isinstance(message, Call) for message in messages):
        raise Fault("a call in what is no JSON")
    return isinstance(parsed, list), is_json, *{_look_at(message) for message in messages}


def _is_json(text: str) -> bool:
    """As the standard library has it; what it does not say (an integer too long) counts as JSON."""

    def refuse(_word: str) -> None:
        raise json.JSONDecodeError("no JSON", "", 0)

    try:
        json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError:
        return False
    except (ValueError, RecursionError):
        return True
    return True


def _look_at(message: Message) -> Hashable:
    if isinstance(message, Invalid):
        _check_id(message.id)
        error = to_error_data(message.error)
        if error.code not in _CODES or error.data["kind"] == "internal_error":
            raise Fault(f"refused with {error}")
        reply = json.loads(encode_error(message.id, error))
        if reply["id"] != message.id or reply["error"]["code"] != error.code:
            raise Fault(f"the reply is {reply}")
        return error.code, type(message.id).__name__, re.sub(r"\d+", "n", str(message.error))[:30]
    if message.id is not UNSET:
        _check_id(message.id)
    message.method.encode()
    again: dict[str, Any] = {"jsonrpc": "2.0", "method": message.method}
    again |= {} if message.id is UNSET else {"id": message.id}
    again |= {} if message.params is None else {"params": message.params}
    if (found := parse(msgspec.json.encode(again).decode())) != message:
        raise Fault(f"{message} comes back as {found}")
    return type(message.id).__name__, message.params is not None


def _check_id(id_: Any) -> None:
    if isinstance(id_, bool) or not isinstance(id_, int | float | str | None):
        raise Fault(f"the id {id_!r}")
    if isinstance(id_, float) and not math.isfinite(id_):
        raise Fault(f"the id {id_!r}")
    if isinstance(id_, str):
        id_.encode()


# -- params --------------------------------------------------------------------------------------

_PLAIN: Final = {
    "taskId": "t8f3kr9",
    "kickoffId": "k8f3kr9",
    "as": "ci",
    "caller": "ci",
    "cwd": "/tmp",
    "since": "2026-11-30T12:04:31.208Z",
    "after": "ci",
    "base64": "aGk=",
    "env": {"A": "b", "C": "é"},
    "argv": ["true", "a b"],
}


def examples() -> Iterator[bytes]:
    """For each method params that fit, made from the schemas: one that has all, one by one."""
    whole = json.loads(bytes(document()))
    shared = whole["components"]["schemas"]
    for method in whole["methods"]:
        members = {p["name"]: _example(p["name"], p["schema"], shared) for p in method["params"]}
        needed = {p["name"]: members[p["name"]] for p in method["params"] if p.get("required")}
        for some in (members, needed, *({**needed, name: members[name]} for name in members)):
            yield method["name"].encode() + b"\n" + json.dumps(some).encode()


def _example(name: str, schema: dict[str, Any], shared: dict[str, Any]) -> Any:
    if name in _PLAIN:
        return _PLAIN[name]
    if "$ref" in schema:
        return _example(name, shared[schema["$ref"].rpartition("/")[2]], shared)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _example(name, schema[word][0], shared)
    if "enum" in schema:
        return schema["enum"][-1]
    match schema.get("type"):
        case "object":
            inner = schema.get("properties", {})
            return {each: _example(each, inner[each], shared) for each in inner}
        case "array":
            return [_example(name, schema.get("items", {}), shared)]
        case "string":
            return "t8f3kr9"
        case "boolean":
            return True
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
    return None


def vary_params(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Other members, or other values of them; the method stays."""
    method, _, body = data.partition(b"\n")
    type_ = TYPES.get(method.decode())
    names = () if type_ is None else [name.encode() for name in type_.__struct_encode_fields__]
    return method + b"\n" + vary_members(rng, body, words, names)


def check_params(data: bytes) -> Hashable:
    """Params are refused by name and expectation, or are what the rules of their method allow."""
    name, _, body = data.partition(b"\n")
    type_ = TYPES.get(name.decode("latin-1"))
    if type_ is None:
        return "no method"
    call = parse(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{text_of(body)}}}')
    if not isinstance(call, Call):
        return "no call"
    try:
        params = decode_params(call.params, type_)
    except InvalidParams as exc:
        error = msgspec.json.decode(msgspec.json.encode(to_error_data(exc)))
        if not error["data"]["path"].startswith("$") or not error["data"]["expected"]:
            raise Fault(f"refused with {error}") from exc
        path = re.sub(r"\[.*|\d+", "[]", error["data"]["path"])[:40]
        return name, path, error["data"]["expected"][:40]
    _check_values(params)
    again = decode_params(msgspec.json.encode(params), type_)
    if again != params:
        raise Fault(f"{params} comes back as {again}")
    return name, tuple(
        msgspec.structs.asdict(params)[f.name] == f.default for f in msgspec.structs.fields(params)
    )


def _check_values(params: Params) -> None:
    """What holds for all that is accepted: see the errors' page of the wire's reference."""
    for name, value in msgspec.structs.asdict(params).items():
        for each in _leaves(value):
            if isinstance(each, float) and not math.isfinite(each):
                raise Fault(f"{name} is {each}")
            if isinstance(each, str):
                each.encode()
        if name in ("command", "code", "cwd", "key", "argv", "env") and any(
            isinstance(each, str) and "\0" in each for each in _leaves(value)
        ):
            raise Fault(f"{name} has a NUL")
        if name == "env" and any(n[:7] == "ENGINE_" or not n or "=" in n for n in value or ()):
            raise Fault(f"env is {value}")
        if name == "timeout_secs" and value is not None and not 0 <= value <= 55:
            raise Fault(f"timeout_secs is {value}")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, msgspec.Struct):
        yield from _leaves(msgspec.structs.asdict(value))
    else:
        yield value


def _envelopes() -> Target:
    return Target(name="envelopes", seeds=_MESSAGES, check=check_envelope, words=WORDS)


def _params() -> Target:
    return Target(
        name="params", seeds=[*examples()], check=check_params, words=WORDS, vary=vary_params
    )


MAKERS: Final = {"envelopes": _envelopes, "params": _params}
