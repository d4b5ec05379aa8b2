"""The words of the project: one spelling on the wire, and all of them in the documents.

Params are snake_case, reply members camelCase, handles are spelled the same in both, and how
long a call may wait has one name. What a user can say or be told stands in the README or in the
reference, engine/docs; and what these refer to is there.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from engine import errors
from engine.cli import exits
from engine.cli.main import ALIASES, VERBS
from engine.config import Settings
from engine.protocol import params
from engine.server.methods import SCHEMAS

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "engine" / "docs").glob("*.md"))]
SAME_IN_BOTH = {"taskId", "kickoffId", "roundId", "requestId", "reviewId", "findingId", "logScope"}
# Names in a client's environment, as they stand in its code.
VARIABLE = re.compile(r"ENGINE_[A-Z_]+|(?:NO|FORCE)_COLOR|CLICOLOR_FORCE|XDG_[A-Z_]+|LC_[A-Z]+")
WAIT_WORDS = re.compile("time_?out|wait_", re.IGNORECASE)

# Replies are written as dict literals: the keys in these modules are what goes over the wire.
REPLY_MODULES = sorted((ROOT / "engine" / "server").glob("methods*.py")) + [
    path for name in ("replies", "outputs") if (path := ROOT / f"engine/server/{name}.py").is_file()
]
# The calls that take an older system's place keep its names, in and out.
OLDER_WAITS = {"wait_any": ["wait_seconds", "timeout_secs"]}
OLDER_MEMBERS = {"pending_ids", "all_finished", "output_returned"}
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
    assert names in ([], ["timeout_secs"], OLDER_WAITS.get(method))


@pytest.mark.parametrize("method", SCHEMAS)
def test_every_method_takes_the_caller_and_the_fingerprint(method: str) -> None:
    assert {"as", "tool_schema_fingerprint"} <= set(members(SCHEMAS[method][0]))


@pytest.mark.parametrize("path", REPLY_MODULES, ids=lambda path: path.name)
def test_reply_members_are_camel_case(path: Path) -> None:
    odd = {key for key in reply_keys(path) if not re.fullmatch("[a-z]+[0-9]*([A-Z][a-z]+)*", key)}
    assert odd <= REPEATED | OLDER_MEMBERS


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


@pytest.mark.parametrize("verb", ALIASES)
def test_every_alias_is_documented(verb: str) -> None:
    assert is_documented(verb)


def variables() -> set[str]:
    """Names of environment variables in the code of clients and command line."""
    found = {"CI", "COLUMNS", "LANG", "TERM"}
    for part in ("cli", "client"):
        for path in sorted((ROOT / "engine" / part).glob("*.py")):
            text = path.read_text(encoding="utf-8")
            if not VARIABLE.search(text):  # most have none: parsing takes long
                continue
            texts = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
            found |= {t for t in texts if isinstance(t, str) and VARIABLE.fullmatch(t)}
    return found


@pytest.mark.parametrize("name", sorted(variables()))
def test_every_environment_variable_is_documented(name: str) -> None:
    assert is_documented(name)


def test_every_exit_code_has_a_row() -> None:
    page = (ROOT / "engine/docs/command-line.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| (\d+) \|", page.partition("## Exit codes")[2], re.M))
    codes = {str(code) for code in vars(exits).values() if isinstance(code, int)} - {"0"}
    assert rows == codes


def anchors(path: Path) -> set[str]:
    """By what the headings of a page are linked to."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-").lower() for heading in headings}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]*)\)", page.read_text(encoding="utf-8"))
    assert links
    for path, _, anchor in (link.partition("#") for link in links):
        target = page.parent / path if path else page
        assert target.is_file(), path
        assert not anchor or anchor in anchors(target), anchor


def test_every_test_and_script_that_is_named_is_there() -> None:
    named = re.findall(r"`((?:tests|scripts)/[\w/.]+)`", DOCUMENTS[0].read_text(encoding="utf-8"))
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_target_that_is_named_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = {
        word
        for path in DOCUMENTS
        for word in re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text(encoding="utf-8"), re.M)
    }
    assert {"demo", "reference"} <= named <= targets
