"""A judge of JSON Schema, draft 7: as much of it as the wire's document and OpenRPC's rules use.

It refuses a keyword that it does not know, so that no rule is passed over in silence. `closed`: an
object may have no member that its schema does not name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

SAYS_NOTHING = {"title", "description", "default", "format", "contentEncoding"}
KINDS: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
NUMBERS: dict[str, Callable[[float, float], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "maximum": lambda value, bound: value <= bound,
}
LENGTHS: dict[str, tuple[type, Callable[[int, int], bool]]] = {
    "minLength": (str, lambda size, bound: size >= bound),
    "maxLength": (str, lambda size, bound: size <= bound),
    "minItems": (list, lambda size, bound: size >= bound),
    "maxItems": (list, lambda size, bound: size <= bound),
}
OF_OBJECTS = {
    *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
}
KEYWORDS = {
    *("$ref", "type", "enum", "const", "anyOf", "oneOf", "items", "pattern"),
    *SAYS_NOTHING,
    *NUMBERS,
    *LENGTHS,
    *OF_OBJECTS,
}


def resolve(ref: str, root: Schema) -> Schema:
    """The schema to which a `#/…` points. Raises KeyError."""
    assert ref.startswith("#/"), ref
    found: Any = root
    for name in ref[2:].split("/"):
        found = found[name]
    assert isinstance(found, dict)
    return found


def faults(
    value: Any, schema: Schema, root: Schema, *, closed: bool = False, path: str = "$"
) -> list[str]:
    """What is wrong with `value`; nothing where it is as the schema says."""
    assert schema.keys() <= KEYWORDS, schema.keys() - KEYWORDS
    if "$ref" in schema:  # what stands beside it counts for nothing
        return faults(value, resolve(schema["$ref"], root), root, closed=closed, path=path)
    found = _of_the_value(value, schema, path)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            each = [faults(value, s, root, closed=closed, path=path) for s in schema[word]]
            fitting = sum(not one for one in each)
            if not fitting or (word == "oneOf" and fitting > 1):
                found.append(f"{path}: fits {fitting} of {word}: {each}")
    if isinstance(value, dict):
        found += _of_an_object(value, schema, root, closed=closed, path=path)
    if isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            found += faults(item, schema["items"], root, closed=closed, path=f"{path}[{place}]")
    return found


def _of_the_value(value: Any, schema: Schema, path: str) -> list[str]:
    found = []
    kind = schema.get("type")
    if kind is not None and not KINDS[kind](value):
        found.append(f"{path}: {value!r} is no {kind}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r} is none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: {value!r} is not {schema['const']!r}")
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        found.append(f"{path}: {value!r} is not like {schema['pattern']}")
    if KINDS["number"](value):
        found += [
            f"{path}: {value} is not {word} {schema[word]}"
            for word, holds in NUMBERS.items()
            if word in schema and not holds(value, schema[word])
        ]
    for word, (kind_, holds) in LENGTHS.items():
        if word not in schema or not isinstance(value, str | list) or not isinstance(value, kind_):
            continue
        if not holds(len(value), schema[word]):
            found.append(f"{path}: its length is not {word} {schema[word]}")
    return found


def _of_an_object(
    value: dict[str, Any], schema: Schema, root: Schema, *, closed: bool, path: str
) -> list[str]:
    found = [f"{path}: lacks {name}" for name in schema.get("required", ()) if name not in value]
    named = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    rest = schema.get("additionalProperties", not (closed and named))
    for name, item in value.items():
        at = f"{path}.{name}"
        found += faults(name, schema.get("propertyNames", {}), root, path=f"the name {at}")
        inner = [named[name]] if name in named else []
        inner += [each for pattern, each in patterns.items() if re.search(pattern, name)]
        if not inner and isinstance(rest, dict):
            inner = [rest]
        elif not inner and not rest:
            found.append(f"{at}: is not to be there")
        for each in inner:
            found += faults(item, each, root, closed=closed, path=at)
    return found


def check_schema(schema: Schema, root: Schema) -> None:
    """Fail unless `schema` is one, and all that it refers to is there."""
    assert isinstance(schema, dict)
    assert schema.keys() <= KEYWORDS, schema.keys() - KEYWORDS
    if "$ref" in schema:
        resolve(schema["$ref"], root)
    assert schema.get("type", "object") in KINDS
    assert isinstance(schema.get("enum", [0]), list)
    assert set(schema.get("required", ())) <= schema.get("properties", {}).keys()
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    for word in ("items", "additionalProperties", "propertyNames"):
        inner += [schema[word]] if isinstance(schema.get(word), dict) else []
    for word in ("properties", "patternProperties"):
        inner += schema.get(word, {}).values()
    for each in inner:
        check_schema(each, root)
