"""The words of the project: one spelling on the wire, and all of them in the README.

Params are snake_case, reply members camelCase, handles are spelled the same in both, and how
long a call may wait has one name. What a user can say or be told stands in the README or in a
page under docs/.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from engine import errors
from engine.cli.main import ALIASES, VERBS
from engine.config import Settings
from engine.protocol import params
from engine.server.methods import SCHEMAS

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
SAME_IN_BOTH = {"taskId", "kickoffId", "roundId", "requestId", "reviewId", "findingId", "logScope"}
WAIT_WORDS = re.compile("time_?out|wait_", re.IGNORECASE)

# Replies are written as dict literals: the keys in these modules are what goes over the wire.
REPLY_MODULES = sorted((ROOT / "engine" / "server").glob("methods*.py")) + [
    path for name in ("replies", "outputs") if (path := ROOT / f"engine/server/{name}.py").is_file()
]
# A member that repeats a param as it was given keeps the param's name; limits are settings.
REPEATED = {"deadline_secs", *Settings.__struct_fields__}


def members(struct: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(struct)]


def subclasses(kind: type[T]) -> list[type[T]]:
    return [sub for child in kind.__subclasses__() for sub in (child, *subclasses(child))]


def reply_keys(path: Path) -> set[str]:
    """The literal keys of all dicts in a module, but for those of its constants."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    dicts = [node for top in functions for node in ast.walk(top) if isinstance(node, ast.Dict)]
    return {
        key.value
        for node in dicts
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def is_documented(word: str) -> bool:
    """`word` stands in a document as code: in backticks or in an indented or fenced block."""
    whole = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
    return any(
        whole.search(code)
        for path in DOCUMENTS
        for code in re.findall(
            r"```.*?```|`[^`\n]+`|^ {4}[^\n]*$", path.read_text(encoding="utf-8"), re.S | re.M
        )
    )


@pytest.mark.parametrize("struct", subclasses(params.Params), ids=lambda struct: struct.__name__)
def test_params_are_snake_case(struct: type[msgspec.Struct]) -> None:
    odd = [name for name in members(struct) if not re.fullmatch("[a-z]+[0-9]*(_[a-z]+)*", name)]
    assert set(odd) <= SAME_IN_BOTH


@pytest.mark.parametrize("method", SCHEMAS)
def test_how_long_a_call_may_wait_is_timeout_secs(method: str) -> None:
    names = [name for name in members(SCHEMAS[method][0]) if WAIT_WORDS.search(name)]
    assert names in ([], ["timeout_secs"])


@pytest.mark.parametrize("method", SCHEMAS)
def test_every_method_takes_the_caller_and_the_fingerprint(method: str) -> None:
    assert {"as", "tool_schema_fingerprint"} <= set(members(SCHEMAS[method][0]))


@pytest.mark.parametrize("path", REPLY_MODULES, ids=lambda path: path.name)
def test_reply_members_are_camel_case(path: Path) -> None:
    odd = {key for key in reply_keys(path) if not re.fullmatch("[a-z]+[0-9]*([A-Z][a-z]+)*", key)}
    assert odd <= REPEATED


def test_every_error_has_a_code_and_a_kind_of_its_own() -> None:
    kinds = subclasses(errors.EngineError)
    assert len({kind.kind for kind in kinds}) == len({kind.code for kind in kinds}) == len(kinds)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", kind.kind) for kind in kinds)


@pytest.mark.parametrize("method", [*SCHEMAS, "$/cancelRequest"])
def test_every_method_is_documented(method: str) -> None:
    assert is_documented(method)


@pytest.mark.parametrize(
    "kind", subclasses(errors.EngineError), ids=lambda kind: getattr(kind, "kind", kind.__name__)
)
def test_every_error_is_documented_with_its_code(kind: type[errors.EngineError]) -> None:
    assert is_documented(kind.kind)
    assert any(str(kind.code) in path.read_text(encoding="utf-8") for path in DOCUMENTS)


@pytest.mark.parametrize("setting", Settings.__struct_fields__)
def test_every_setting_is_documented(setting: str) -> None:
    assert is_documented(setting)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ALIASES])
def test_every_verb_is_documented(verb: str) -> None:
    assert is_documented(f"engine {verb}")
