"""What the specification of OpenRPC 1.3 (spec.open-rpc.org) asks of a document, as a JSON Schema.

Written from its sections on the OpenRPC, Info, Method, Content Descriptor, Error, Reference and
Components Objects. A schema inside of a document is checked by `schemas.check_schema`.
"""

from __future__ import annotations

from typing import Any

from schemas import check_schema, faults

TEXT = {"type": "string"}
TRUTH = {"type": "boolean"}
ANYTHING: dict[str, Any] = {}


def an_object(required: str, /, **members: Any) -> dict[str, Any]:
    """An object of these members; it may be extended by what begins with x-."""
    return {
        "type": "object",
        "required": required.split(),
        "properties": members,
        "patternProperties": {"^x-": ANYTHING},
        "additionalProperties": False,
    }


def list_of(name: str) -> dict[str, Any]:
    """An array of these, or of references to them."""
    return {"type": "array", "items": one_of(name)}


def one_of(name: str) -> dict[str, Any]:
    return {"oneOf": [{"$ref": f"#/{name}"}, {"$ref": "#/reference"}]}


RULES: dict[str, Any] = {
    "document": an_object(
        "openrpc info methods",
        openrpc={"type": "string", "pattern": r"^1\.3\.\d+$"},
        info=an_object("title version", title=TEXT, version=TEXT, description=TEXT),
        methods=list_of("method"),
        components={
            "type": "object",
            "properties": {
                "schemas": {"type": "object", "additionalProperties": {"type": "object"}},
                "errors": {"type": "object", "additionalProperties": {"$ref": "#/error"}},
            },
            "additionalProperties": False,
        },
    ),
    "reference": {
        "type": "object",
        "required": ["$ref"],
        "properties": {"$ref": TEXT},
        "additionalProperties": False,
    },
    "method": an_object(
        "name params",
        name={"type": "string", "minLength": 1},
        summary=TEXT,
        description=TEXT,
        deprecated=TRUTH,
        paramStructure={"enum": ["by-name", "by-position", "either"]},
        params=list_of("descriptor"),
        result=one_of("descriptor"),
        errors=list_of("error"),
    ),
    "descriptor": an_object(
        "name schema",
        name={"type": "string", "minLength": 1},
        summary=TEXT,
        description=TEXT,
        required=TRUTH,
        deprecated=TRUTH,
        schema={"type": "object"},
    ),
    "error": {
        "type": "object",
        "required": ["code", "message"],
        "properties": {"code": {"type": "integer"}, "message": TEXT, "data": ANYTHING},
        "additionalProperties": False,
    },
}


def check_document(document: dict[str, Any]) -> None:
    """Fail unless `document` is one of OpenRPC."""
    assert faults(document, RULES["document"], RULES) == []
    names = [method["name"] for method in document["methods"]]
    assert len(names) == len(set(names))
    for schema in document["components"]["schemas"].values():
        check_schema(schema, document)
    for method in document["methods"]:
        params = method["params"]
        assert len({param["name"] for param in params}) == len(params)
        # What is required stands before what is not.
        assert params == sorted(params, key=lambda param: not param.get("required", False))
        for descriptor in (*params, method["result"]):
            check_schema(descriptor["schema"], document)
        for error in method.get("errors", ()):
            assert (
                error["$ref"].removeprefix("#/components/errors/")
                in (document["components"]["errors"])
            )
