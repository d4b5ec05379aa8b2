"""Tables of the wire in Markdown, from its OpenRPC document. Used by `scripts/reference.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from engine import errors
from engine.server.methods import document

Schema = dict[str, Any]

OF_ALL_CALLS: Final = {"as", "tool_schema_fingerprint"}
OF_ALL_RESULTS: Final = {"schemaChanged", "notices"}
BASE: Final = "bash"  # the method whose params another one repeats
ROW: Final = "TaskRow"  # the object whose members another one repeats
LEVELS: Final = {"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
ENDED: Final = {"succeeded", "failed", "lost"}  # what all lists of statuses have
PLAIN: Final = {"string", "boolean", "integer", "number", "array", "object", "value"}
WIRE: Final[Schema] = json.loads(bytes(document()))
SCHEMAS: Final[dict[str, Schema]] = WIRE["components"]["schemas"]
METHODS: Final[dict[str, Schema]] = {method["name"]: method for method in WIRE["methods"]}

# One of each, as it is raised: its `data` has the members that a client may find.
RAISED: Final[tuple[errors.EngineError, ...]] = (
    errors.ParseError(""),
    errors.InvalidRequest(""),
    errors.MethodNotFound(""),
    errors.InvalidParams("", ""),
    errors.InternalError(),
    errors.UnknownHandle(""),
    errors.ExpiredHandle("", ended_at=None, status=None),
    errors.ShuttingDown(),
    errors.Overloaded("", 0),
    errors.RequestCancelled(),
    errors.Forbidden(""),
    errors.OutputGone(0),
    errors.InvalidState("", state=""),
    errors.DuplicateHandle(""),
    errors.KeyConflict("", task_id=""),
)


def table(head: str, rows: Iterable[Iterable[str]]) -> str:
    """A table; `head` is its first line without the outer bars."""
    lines = [f"| {head} |", "|" + "---|" * (head.count(" | ") + 1)]
    return "\n".join([*lines, *(f"| {' | '.join(cell or ' ' for cell in row)} |" for row in rows)])


def code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`" if text else ""


def link(name: str) -> str:
    """A reference to the table of an object, or to the section of a method."""
    return f"[{name}](#{name.lower().replace('.', '').replace('$/', '')})"


def kinds(name: str) -> list[str]:
    """The objects of which one stands where a result has `name`."""
    return {"LogEntry": ["LogLine", "LogMarker"], ROW: [ROW, "ForgottenRow"]}.get(name, [name])


def type_words(schema: Schema) -> str:
    """What a value of this schema is, in words."""
    match schema:
        case {"$ref": str(ref)}:
            return " or ".join(map(link, kinds(ref.rpartition("/")[2])))
        case {"anyOf": list(parts)}:
            return " or ".join(map(type_words, parts))
        case {"enum": list(values)}:
            return _enum_words(values)
        case {"type": "array", "items": items}:
            return f"array of {type_words(items)}"
        case {"type": "object", "additionalProperties": dict(items)} if items:
            return f"map to {type_words(items)}"
        case {"contentEncoding": "base64"}:
            return "base64"
    return str(schema.get("type", "any"))


def _enum_words(values: list[Any]) -> str:
    if set(values) >= LEVELS:
        return "[level](#logs)" + (' or `"none"`' if "none" in values else "")
    if set(values) >= ENDED:
        return "[status](#statuses)"
    return " or ".join(code(json.dumps(value)) for value in values)


def methods_table() -> str:
    """All methods, for whom they are, and what they do."""
    rows = (
        [
            link(name).replace(f"[{name}]", f"[`{name}`]"),
            ", ".join(method.get("x-roles", ["all"])).replace("agent, human, observer", "all"),
            method["summary"],
        ]
        for name, method in METHODS.items()
    )
    return table("method | roles | does", rows)


def general_params() -> str:
    return _params(BASE, OF_ALL_CALLS.__contains__)


def method_block(name: str) -> str:
    """Params, result and errors of one method; the objects that are its alone."""
    return "\n\n".join(filter(None, [_params_of(name), _result_of(name), _errors_of(name)]))


def _params_of(name: str) -> str:
    base = {param["name"] for param in METHODS[BASE]["params"]} - {"command"}
    own = {param["name"] for param in METHODS[name]["params"]}
    if name == BASE or not base <= own:
        return _params(name, lambda each: each not in OF_ALL_CALLS)
    return f"{_params(name, lambda each: each not in base)}\n\nAnd those of {link(BASE)}."


def _params(name: str, is_shown: Callable[[str], bool]) -> str:
    rows = [_param_row(each) for each in METHODS[name]["params"] if is_shown(each["name"])]
    return table("param | takes | default | meaning", rows) if rows else ""


def _param_row(param: Schema) -> list[str]:
    schema, phrase = param["schema"], param["description"].replace("|", "\\|")
    is_handle = phrase.startswith("handle ")
    takes = type_words(schema) if phrase in PLAIN or "enum" in schema else phrase
    takes = "[handle](#handles)" if is_handle else takes
    default = "required" if param["required"] else code(_default(schema))
    return [code(param["name"]), takes, default, param["summary"]]


def _default(schema: Schema) -> str:
    return json.dumps(schema["default"]).removesuffix(".0") if "default" in schema else ""


def _refs(schema: Any) -> Iterator[str]:
    """Names of the objects to which a schema refers, itself or within."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield from kinds(schema["$ref"].rpartition("/")[2])
        for part in schema.values():
            yield from _refs(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _refs(part)


def _shared() -> set[str]:
    """Objects that stand in results of several methods, or within another object."""
    direct = [name for each in METHODS.values() for name in _refs(each["result"])]
    within = {name for each in SCHEMAS.values() for name in _refs(each)}
    within |= {name for each in METHODS.values() for name in _refs(each["params"])}
    return within | {name for name in direct if direct.count(name) > 1}


def _result_of(name: str) -> str:
    found = list(dict.fromkeys(_refs(METHODS[name]["result"])))
    if not found:
        return ""
    own = [each for each in found if each not in _shared()]
    if not own:
        return f"Answers with {_listed([link(each) for each in found])}."
    words = ("Answers with", *("or with" for _ in own))
    return "\n\n".join(
        f"{word} {_title(each, is_alone=len(own) == 1)}:\n\n{object_table(each)}"
        for word, each in zip(words, own, strict=False)
    )


def _title(name: str, *, is_alone: bool) -> str:
    if _repeats_row(name):
        return f"all of {link(ROW)}, and"
    return "an object" if is_alone else code(name)


def _repeats_row(name: str) -> bool:
    row = SCHEMAS[ROW]["anyOf"][0]
    return name != ROW and row["properties"].keys() <= SCHEMAS[name]["properties"].keys()


def object_table(name: str) -> str:
    """The members of an object, less those that it repeats; `?` after one that may be absent."""
    row = SCHEMAS[ROW]["anyOf"][0]
    schema = row if name == ROW else SCHEMAS[name]
    left_out = OF_ALL_RESULTS | (row["properties"].keys() if _repeats_row(name) else set())
    rows = [
        [
            code(member) + ("" if member in schema["required"] else " ?"),
            type_words(part),
            part["description"],
        ]
        for member, part in schema["properties"].items()
        if member not in left_out
    ]
    return table("member | type | meaning", rows)


def objects() -> str:
    """The objects that several methods have, each under a heading of its own."""
    shared = sorted(name for name in _shared() if "properties" in SCHEMAS[name] or name == ROW)
    return "\n\n".join(f"### {name}\n\n{object_table(name)}" for name in shared)


def _errors_of(name: str) -> str:
    found = [error["$ref"].rpartition("/")[2] for error in METHODS[name].get("errors", ())]
    own = [kind for kind in found if kind not in _general_errors()]
    return (
        f"Errors besides [those of all](#errors): {_listed([code(kind) for kind in own])}."
        if own
        else ""
    )


def _general_errors() -> set[str]:
    every = [
        {error["$ref"].rpartition("/")[2] for error in method["errors"]}
        for method in METHODS.values()
        if "errors" in method
    ]
    return set.intersection(*every)


def general_errors() -> str:
    kinds_of_all = [code(error.kind) for error in RAISED if error.kind in _general_errors()]
    return f"Any method may answer {_listed(kinds_of_all)}."


def error_table() -> str:
    """Every code, its kind, when it comes, and what `data` has besides the kind."""
    rows = []
    for error in RAISED:
        meaning = re.split(r"\. (?:See `|Raised )", " ".join((type(error).__doc__ or "").split()))[
            0
        ]
        facts = [code(member) for member in error.data() if member != "kind"]
        rows.append(
            [str(error.code), code(error.kind), meaning.rstrip(".") + ".", ", ".join(facts)]
        )
    return table("code | kind | when | in `data`", rows)


def _listed(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
