"""The schemas of the tools, made from the Structs that decode params and hold results.

JSON Schema of 2020-12, without references and without null: what is null is left out, in and out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from engine.mcp.tools import TOOLS, Tool
from engine.protocol import params as p
from engine.protocol.meanings import member_meaning, param_meaning
from engine.protocol.results import RESULTS

PARAMS: Final[dict[str, type[p.Params]]] = {
    "bash": p.BashParams,
    "execute": p.ExecuteParams,
    "wait": p.WaitParams,
    "wait_any": p.WaitAnyParams,
    "cancel": p.CancelParams,
    "write_stdin": p.WriteStdinParams,
    "read_output": p.ReadOutputParams,
    "list_tasks": p.ListTasksParams,
    "read_logs": p.ReadLogsParams,
    "run_round": p.RunRoundParams,
    "reset_session": p.ResetSessionParams,
    "roster": p.RosterParams,
}
HIDDEN: Final = ("tool_schema_fingerprint", *p.NOT_YET)
WORDS: Final = {"as": "your own name (a-z 0-9 _ -), where several agents share this connection"}
SPELLINGS: Final = {"wait_seconds": "waitSeconds"}  # a second one that is taken too
_END: Final = r"(?!\n)"  # of a pattern: more than some clients' engines take
_LINK: Final = re.compile(r"\[([^]]*)\]\(#[^)]*\)")  # into the project's own reference

Schema = dict[str, Any]


def input_schema(name: str) -> Schema:
    """What the tool takes: the params of the method, with the tool's own defaults."""
    tool = TOOLS[name]
    (schema,), parts = msgspec.json.schema_components([PARAMS[name]], ref_template="{name}")
    own = parts[schema["$ref"]]
    properties = {}
    for param, given in own["properties"].items():
        if param in HIDDEN:
            continue
        words = WORDS.get(param) or param_meaning(name, param) or ""
        properties[param] = _described(_plain(given, parts), words)
        properties[param] |= _default(tool, param, given)
        if param in SPELLINGS:
            properties[SPELLINGS[param]] = {"type": "number", "description": f"the same as {param}"}
    return {
        "type": "object",
        "properties": properties,
        "required": [each for each in own.get("required", []) if each in properties],
        "additionalProperties": False,
    }


def _default(tool: Tool, param: str, given: Schema) -> Schema:
    """Where a default is to be told: the tool's own, else the method's unless it is null."""
    if param in tool.waits[:1]:
        return {"default": tool.wait_secs}
    default = tool.defaults.get(param, given.get("default"))
    return {} if default is None or param in tool.waits else {"default": default}


def output_schema(name: str) -> Schema:
    """What `structuredContent` holds: the members of all results that the method may have."""
    types = RESULTS[name]
    _refs, parts = msgspec.json.schema_components(types, ref_template="{name}")
    properties: Schema = {}
    for type_ in types:
        for member, given in parts[type_.__name__]["properties"].items():
            plain = _described(_plain(given, parts), member_meaning(type_.__name__, member) or "")
            properties[member] = _either(properties.get(member), plain)
    properties["textIn"] = {
        "type": "string",
        "enum": ["content"],
        "description": "there where the long texts stand in the content instead",
    }
    return {"type": "object", "properties": _without_required(properties)}


def _without_required(schema: Any) -> Any:
    """`schema` in which every member may be missing: what is null or dull is left out."""
    if not isinstance(schema, dict):
        return schema
    return {k: _without_required(v) for k, v in schema.items() if not _requires(k, v)}


def _requires(name: str, value: Any) -> bool:
    return name == "required" and isinstance(value, list)


def _either(one: Schema | None, other: Schema) -> Schema:
    """The schema of a member that several results have."""
    if one is None or one == other:
        return other
    if "enum" in one and "enum" in other:
        return {**one, "enum": list(dict.fromkeys([*one["enum"], *other["enum"]]))}
    return one if one.get("type") == other.get("type") else {"description": one["description"]}


def _described(schema: Schema, words: str) -> Schema:
    return {**schema, "description": _LINK.sub(r"\1", words)} if words else schema


def _plain(schema: Any, parts: Mapping[str, Schema]) -> Schema:
    """`schema` with what it refers to in its place, and without null."""
    if "$ref" in schema:
        return _plain(parts[schema["$ref"]], parts)
    kept = {k: v for k, v in schema.items() if k not in ("default", "title", "description")}
    if "pattern" in kept:
        kept["pattern"] = kept["pattern"].removesuffix(_END)
    if "anyOf" in kept:
        kinds = [_plain(each, parts) for each in kept["anyOf"] if each != {"type": "null"}]
        if len(kinds) == 1:
            return kinds[0]
        kept["anyOf"] = kinds
    if isinstance(kept.get("enum"), list) and "type" not in kept:
        kept["type"] = _type_of(kept["enum"])
    if "properties" in kept:
        kept["properties"] = {k: _plain(v, parts) for k, v in kept["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(kept.get(inner), dict):
            kept[inner] = _plain(kept[inner], parts)
    return kept


def _type_of(values: list[Any]) -> str:
    return "boolean" if all(isinstance(value, bool) for value in values) else "string"
