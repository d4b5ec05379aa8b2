"""Raw params in, a typed Struct out, or `InvalidParams` that names the path and the expectation.

msgspec decides whether params fit; where they do not, its path is kept and its wording replaced
by the protocol's own. Knows no method; the Structs are in `params`.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from engine.errors import InvalidParams

T = TypeVar("T", bound=msgspec.Struct)

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SHOWN_CHARS: Final = 80  # of a member's name that a message repeats
_DOUBLE: Final = "number that a double can hold"

# msgspec's messages; `tests/protocol/test_decode.py` holds them to it.
_MISSING: Final = re.compile(r"Object missing required field `(.*?)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_STEP: Final = re.compile(r"\.([A-Za-z_$][A-Za-z0-9_]*)|\[(\d+)\]|(\[\.\.\.\])")

_WORDS: Final[dict[type[inspect.Type], str]] = {
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.ListType: "array",
    inspect.DictType: "object",
    inspect.StructType: "object",
}


def decode_params(raw: msgspec.Raw | bytes | None, type_: type[T]) -> T:
    """`raw` as a `type_`; a member that is null is taken as left out, at the top level only.

    Raises `InvalidParams`, also from the Struct's own `__post_init__`.
    """
    try:
        value = {} if raw is None else msgspec.json.decode(raw)
    except msgspec.ValidationError as exc:  # JSON, but with a number beyond every double
        raise InvalidParams(_out_of_range_path(raw), _DOUBLE) from exc
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise InvalidParams("$", "object (params go by name)")
    return convert_params(value, type_)


def convert_params(value: dict[str, Any], type_: type[T]) -> T:
    """As `decode_params`, of params that are decoded JSON."""
    value = _without_null(value, type_)
    if unknown := value.keys() - set(type_.__struct_encode_fields__):
        known = ", ".join(sorted(type_.__struct_encode_fields__))
        raise InvalidParams(member_path("$", min(unknown)), f"one of the known params: {known}")
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as exc:
        raise explain(str(exc), value, type_) from exc


def member_path(path: str, name: str) -> str:
    """`path` one member deeper: `$.env.FOO`, or quoted where the name is no plain word."""
    if len(name) <= _SHOWN_CHARS and _PLAIN_NAME.match(name):
        return f"{path}.{name}"
    return f"{path}[{json.dumps(name[:_SHOWN_CHARS])}]"


def explain(message: str, value: dict[str, Any], type_: type[msgspec.Struct]) -> InvalidParams:
    """The refusal for `value`, of which msgspec said `message` when it was to be a `type_`.

    The path is what stands last in the message: what comes before may be the client's own text.
    """
    what, _, at = message.rpartition(" - at `") if " - at `" in message else (message, "", "$`")
    path, field = _resolve(at[:-1], value)
    words = phrases(type_)
    if missing := _MISSING.match(what):
        wanted = words[missing[1]] if field is None else "string"
        return InvalidParams(member_path(path, missing[1]), f"{wanted}; it is missing")
    if field is not None and (unknown := _UNKNOWN.match(what)):
        return InvalidParams(member_path(path, unknown[1]), words[field])
    if field is not None and path == f"$.{field}":
        return InvalidParams(path, words[field])
    return InvalidParams(path, words.get(path[2:]) or words.get(f"{field}[]", "string"))


def _without_null(value: dict[str, Any], type_: type[msgspec.Struct]) -> dict[str, Any]:
    """`value` less its nulls; a null under an unknown name stays, to be refused by that name."""
    if None not in value.values():
        return value
    known = type_.__struct_encode_fields__
    return {name: item for name, item in value.items() if item is not None or name not in known}


def _resolve(path: str, value: Any) -> tuple[str, str | None]:
    """The path with msgspec's `[...]` (some key) made the key itself, and the field it is in."""
    out, field = "$", None
    for step in _STEP.finditer(path, 1):
        name, index, _ = step.groups()
        if index is not None:
            out, value = f"{out}[{index}]", value[int(index)]
            continue
        if name is None:
            name = next(key for key, item in value.items() if not isinstance(item, str))
        out, value = member_path(out, name), value[name]
        field = field or name
    return out, field


def _out_of_range_path(raw: msgspec.Raw | bytes | None) -> str:
    """Where in `raw` the first number stands that no double holds: the top member, no deeper."""
    try:
        members = msgspec.json.decode(raw or b"", type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return "$"
    for name, item in members.items():
        try:
            msgspec.json.decode(item)
        except msgspec.ValidationError:
            return member_path("$", name)
    return "$"


@functools.cache
def phrases(type_: type[msgspec.Struct]) -> dict[str, str]:
    """Param name -> what it takes, in words; `name[]` -> what each of its items is, `name.member`
    -> what that member of an object is."""
    info = inspect.type_info(type_)
    assert isinstance(info, inspect.StructType)
    found = {field.encode_name: _phrase(field.type) for field in info.fields}
    for field in info.fields:
        if words := _item_phrase(field.type):
            found[f"{field.encode_name}[]"] = words
        for member in _members(field.type):
            found[f"{field.encode_name}.{member.encode_name}"] = _phrase(member.type)
    return found


def _members(info: inspect.Type) -> tuple[inspect.Field, ...]:
    """The members of an object, of a choice those of the first that is one."""
    match info:
        case inspect.Metadata(type=inner):
            return _members(inner)
        case inspect.StructType(fields=fields):
            return fields
        case inspect.UnionType(types=types):
            return next(filter(None, map(_members, types)), ())
    return ()


def _item_phrase(info: inspect.Type) -> str | None:
    match info:
        case inspect.Metadata(type=inner):
            return _item_phrase(inner)
        case inspect.ListType(item_type=item):
            return _phrase(item)
        case inspect.UnionType(types=types):
            return next(filter(None, map(_item_phrase, types)), None)
    return None


def _phrase(info: inspect.Type) -> str:
    """What the type takes, in words: its own `expected`, where the annotation brings one."""
    match info:
        case inspect.Metadata(extra={"expected": str(words)}):
            return words
        case inspect.Metadata(type=inner):
            return _phrase(inner)
        case inspect.LiteralType(values=values):
            return " or ".join(json.dumps(value) for value in values)
        case inspect.UnionType(types=types):
            each = [_phrase(t) for t in types if not isinstance(t, inspect.NoneType)]
            return " or ".join(dict.fromkeys(each))
    return _WORDS.get(type(info), "value")
