"""Mirrors `engine/protocol/meanings.py`: a meaning for all that is told, and for nothing else."""

from __future__ import annotations

import json
from typing import Any

from engine.protocol.meanings import MEMBERS, PARAMS, member_meaning, param_meaning
from engine.server.methods import document

DOCUMENT: dict[str, Any] = json.loads(bytes(document()))


def told_params() -> set[tuple[str, str]]:
    methods = DOCUMENT["methods"]
    return {(method["name"], param["name"]) for method in methods for param in method["params"]}


def told_members() -> set[tuple[str, str]]:
    """Type and member of all results, also where a row may be of one kind or another."""
    found = set()
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for kind in (schema, *schema.get("anyOf", ())):
            found |= {(name, member) for member in kind.get("properties", ())}
    return found


def test_every_param_and_every_member_has_a_meaning() -> None:
    assert [pair for pair in told_params() if not param_meaning(*pair)] == []
    assert [pair for pair in told_members() if not member_meaning(*pair)] == []


def test_no_meaning_is_of_something_that_is_not_there() -> None:
    params, members = told_params(), told_members()
    words = {word for pair in params for word in (pair[1], ".".join(pair))}
    assert PARAMS.keys() - words == set()
    words = {word for pair in members for word in (pair[1], ".".join(pair))}
    assert MEMBERS.keys() - words == set()


def test_the_meaning_of_one_method_or_type_stands_before_that_of_the_name() -> None:
    assert param_meaning("cancel", "caller") == (
        "all that this caller has running or queued, in place of a handle"
    )
    assert param_meaning("nowhere", "caller") == "of this caller"
    assert member_meaning("Hello", "name") == "`engine`"
    assert member_meaning("Finished", "none") is None
