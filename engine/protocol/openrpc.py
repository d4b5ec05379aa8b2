"""The document of the wire in the words of OpenRPC (spec.open-rpc.org, 1.3), made from the Structs.

What decodes the params and what the results are held to is what it is made of. JSON Schema of
draft 7. Which methods there are, and for whom, is told by the caller.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from engine.errors import EngineError
from engine.protocol.decode import phrases
from engine.protocol.meanings import member_meaning, param_meaning
from engine.protocol.params import NOT_YET, CancelRequestParams, RunRoundParams, StartParams
from engine.protocol.parts import ForgottenRow, LogEntry, LogLine, LogMarker, TaskRow
from engine.protocol.results import RESULTS, TaskDetails

OPENRPC: Final = "1.3.2"
CANCEL_METHOD: Final = "$/cancelRequest"
_ID: Final = "id"  # of a call: null is one like any other
_SCHEMAS: Final = "#/components/schemas/"
_ABOUT: Final = (
    "JSON-RPC 2.0 over a WebSocket, path /rpc. Params go by name, and null means left out; replies"
    " come in the order in which they are ready."
)


class MethodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the document says of a method besides its types."""

    params: type[msgspec.Struct]
    roles: Collection[str]
    errors: Collection[type[EngineError]]
    summary: str


def make_document(body: dict[str, Any], *, version: str, fingerprint: str) -> dict[str, Any]:
    """The whole document, with what `make_body` made, ready to be encoded."""
    return {
        "openrpc": OPENRPC,
        "info": {
            "title": "engine",
            "version": version,
            "description": _ABOUT,
            "x-schemaFingerprint": fingerprint,
        },
        **body,
    }


def make_body(methods: Mapping[str, MethodFacts]) -> dict[str, Any]:
    """The methods and what they refer to: all in which releases differ for a client."""
    params = {name: _schema_of(facts.params) for name, facts in methods.items()}
    params[CANCEL_METHOD] = _schema_of(CancelRequestParams)
    results, components = _result_schemas()
    for _schema, parts in params.values():
        for type_name, part in parts.items():
            _explain_members(type_name, part)
        components |= parts
    errors = {kind for facts in methods.values() for kind in facts.errors}
    return {
        "methods": [
            *(_method(name, facts, params[name][0], results) for name, facts in methods.items()),
            _cancel_method(params[CANCEL_METHOD][0]),
        ],
        "components": {
            "schemas": dict(sorted(components.items())),
            "errors": {each.kind: _error(each) for each in sorted(errors, key=lambda e: -e.code)},
        },
    }


def _method(
    name: str, facts: MethodFacts, schema: dict[str, Any], results: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "summary": facts.summary,
        "paramStructure": "by-name",
        "params": _params(name, facts.params, schema),
        "result": {"name": "result", "schema": results[name]},
        "errors": [
            {"$ref": f"#/components/errors/{error.kind}"}
            for error in sorted(facts.errors, key=lambda error: -error.code)
        ],
        "x-roles": sorted(facts.roles),
    }


def _cancel_method(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": CANCEL_METHOD,
        "summary": "Ends a pending call of this connection, never a job. A notification.",
        "paramStructure": "by-name",
        "params": _params(CANCEL_METHOD, CancelRequestParams, schema),
        "result": {"name": "result", "schema": {"type": "null"}},
        "x-notification": True,
    }


def _params(
    method: str, type_: type[msgspec.Struct], schema: dict[str, Any]
) -> list[dict[str, Any]]:
    words, required = phrases(type_), schema.get("required", [])
    not_offered = NOT_YET if issubclass(type_, StartParams | RunRoundParams) else ()
    descriptors = [
        {
            "name": name,
            "summary": param_meaning(method, name) or "",
            "description": words[name],
            "required": name in required,
            "schema": part if name == _ID else _without_null(part),
        }
        for name, part in schema["properties"].items()
        if name not in not_offered
    ]
    return sorted(descriptors, key=lambda each: not each["required"])


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an optional param: that null is taken as left out holds for all of them."""
    if schema.get("default", 0) is None:
        kinds = [each for each in schema["anyOf"] if each != {"type": "null"}]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return schema


def _schema_of(type_: type[msgspec.Struct]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a Struct, and by name those of what is in it."""
    found = _schemas([type_])
    return found.pop(type_.__name__), found


def _schemas(types: Iterable[type]) -> dict[str, dict[str, Any]]:
    _refs, found = msgspec.json.schema_components(types, ref_template=_SCHEMAS + "{name}")
    return found


def _result_schemas() -> tuple[dict[str, Any], dict[str, Any]]:
    """Method -> the schema of its result; and by name those that these refer to."""
    types = {type_ for each in RESULTS.values() for type_ in each}
    found = _schemas([*sorted(types, key=lambda type_: type_.__name__), LogMarker, ForgottenRow])
    for type_name, schema in found.items():
        _explain_members(type_name, schema)
    # Two kinds of objects stand in one list, for which a client's Struct has the members of both.
    found[LogEntry.__name__] = _any_of([LogLine, LogMarker])
    row = found.pop(TaskRow.__name__)
    found[TaskRow.__name__] = {"anyOf": [_whole(row), _any_of([ForgottenRow])]}
    details = found[TaskDetails.__name__]
    details["required"] = [*dict.fromkeys([*row["properties"], *details["required"]])]
    return {name: _any_of(types) for name, types in RESULTS.items()}, found


def _explain_members(type_name: str, schema: dict[str, Any]) -> None:
    """Give each member its meaning; beside a `$ref` nothing else would count."""
    for name, part in schema["properties"].items():
        if meaning := member_meaning(type_name, name):
            inner = {"anyOf": [dict(part)]} if "$ref" in part else dict(part)
            part.clear()
            part.update(inner, description=meaning)


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    """The schema of a row that is not forgotten: all members, always."""
    status, _forgotten = row["properties"]["status"]["anyOf"]
    status = {**status, "description": row["properties"]["status"]["description"]}
    properties = {**row["properties"], "status": status}
    return {**row, "properties": properties, "required": list(properties)}


def _any_of(types: Iterable[type]) -> dict[str, Any]:
    refs = [{"$ref": _SCHEMAS + type_.__name__} for type_ in types]
    return refs[0] if len(refs) == 1 else {"anyOf": refs}


def _error(kind: type[EngineError]) -> dict[str, Any]:
    meaning = re.split(r"(?<=\.)\s", (kind.__doc__ or "").strip(), maxsplit=1)[0]
    return {"code": kind.code, "message": " ".join(meaning.split()), "data": {"kind": kind.kind}}
