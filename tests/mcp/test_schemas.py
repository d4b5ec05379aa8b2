"""Mirrors `engine/mcp/schemas.py`: what clients and their models take."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from engine.mcp.schemas import input_schema, output_schema
from engine.mcp.tools import DESCRIPTION_MAX, INSTRUCTIONS, TOOLS


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for each in schema.values():
            yield from parts(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from parts(each)


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("make", [input_schema, output_schema])
def test_a_schema_is_one_that_every_client_takes(make: Any, name: str) -> None:
    schema = make(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    for part in parts(schema):
        assert not isinstance(part.get("type"), list)
        assert part.get("type") != "null"
        assert "$ref" not in part
        assert "(?" not in str(part.get("pattern"))


@pytest.mark.parametrize("name", TOOLS)
def test_every_argument_is_described(name: str) -> None:
    properties = input_schema(name)["properties"]
    assert all(part.get("description") for part in properties.values())
    assert "tool_schema_fingerprint" not in properties
    assert "as" in properties


def test_params_are_those_of_the_wire_with_the_tools_own_defaults() -> None:
    schema = input_schema("wait")
    assert set(schema["properties"]) == {
        *("as", "taskId", "kickoffId", "timeout_secs", "max_output_bytes", "logs", "logScope"),
    }
    assert schema["properties"]["timeout_secs"]["default"] == 20.0
    assert schema["properties"]["max_output_bytes"]["default"] == 16_384
    assert schema["additionalProperties"] is False
    assert input_schema("bash")["required"] == ["command"]
    many = input_schema("wait_any")["properties"]
    assert many["wait_seconds"]["default"] == 50.0
    assert many["waitSeconds"]["description"] == "the same as wait_seconds"
    assert "default" not in many["timeout_secs"]


def test_a_result_of_several_kinds_has_the_members_of_all() -> None:
    properties = output_schema("bash")["properties"]
    assert set(properties["status"]["enum"]) == {
        *("succeeded", "failed", "cancelled", "timed_out", "lost", "skipped", "denied"),
        "running",
    }
    assert properties["exitCode"]["type"] == "integer"
    assert properties["queueReason"]["type"] == "string"
    assert properties["textIn"]["enum"] == ["content"]


@pytest.mark.parametrize("name", TOOLS)
def test_a_description_fits_and_names_tools_that_there_are(name: str) -> None:
    text = TOOLS[name].description
    assert len(text) <= DESCRIPTION_MAX
    params = set(input_schema(name)["properties"]) | set(output_schema(name)["properties"])
    for word in re.findall(r"\b[a-z]+_[a-z_]+\b", text):
        assert word in TOOLS or word in params or word == "wait_elapsed", word


def test_names_are_what_clients_take_and_the_instructions_short() -> None:
    assert all(re.fullmatch(r"[a-z_]+", name) for name in TOOLS)
    assert len(INSTRUCTIONS.encode()) < 2_000
    assert len(json.dumps([input_schema(name) for name in TOOLS])) < 20_000
