"""The import rules of the package, kept true by a test and not by a drawing."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ENGINE = ROOT / "engine"
TESTS = ROOT / "tests"

# Part of `engine` -> the other parts it may import. Imports point downwards; a part may always
# import itself. Whoever adds a part says here where it stands.
SHARED = {"model", "errors", "config"}
MAY_IMPORT: dict[str, set[str]] = {
    "model": SHARED,
    "errors": SHARED,
    "config": SHARED,
    "threads": set(),
    "startup": {"config", "model"},
    "protocol": {"errors", "model"},
    "keeper": set(),
    "jobs": SHARED | {"threads", "keeper"},
    "store": {"errors", "model", "threads"},
    "tasks": SHARED | {"threads", "jobs", "store"},
    "journal": SHARED | {"jobs", "store", "tasks"},
    "server": SHARED | {"threads", "protocol", "jobs", "store", "journal", "tasks"},
    "client": {"protocol", "errors", "model"},
    "cli": SHARED | {"client", "protocol"},
    "mcp": {"client", "protocol"},
    "daemon": SHARED
    | {"startup", "protocol", "jobs", "store", "journal", "tasks", "server", "mcp"},
    "__main__": {"cli"},
    "__init__": set(),
}

# These may do what their part may not. The program has its ways to the daemon and to the pipe;
# the daemon needs of mcp only what loads no SDK: tests/mcp sees to that.
# The MCP helper checks each request at the engine's own doors.
EXCEPTIONS = {
    "cli/serve.py": {"daemon"},
    "cli/mcp.py": {"mcp"},
    "mcp/http.py": {"server"},
    "mcp/helper.py": {"server"},
    "mcp/forward.py": {"server"},
}

# Foreign module -> the parts that may import it. What is not named here is free.
ONLY_IN: dict[str, set[str]] = {
    "rich": {"cli"},
    "click": {"cli"},
    "sqlite3": {"store", "server", "daemon"},  # the daemon knows the store's errors by name
    "h11": {"server", "mcp"},
    "trio_websocket": {"server", "client", "mcp"},
    "wsproto": {"server", "client"},
    "socket": {"keeper", "jobs", "server", "client", "daemon", "mcp"},  # tasks know no socket
    "subprocess": {"keeper", "jobs", "client", "cli", "mcp"},  # the server starts no process
    "multiprocessing": set(),
    "trio": {"threads", "jobs", "store", "tasks", "server", "client", "daemon", "mcp"},
    "mcp": {"mcp"},
    "hypercorn": {"mcp"},
    "asyncio": set(),
}

# Tests of several modules together, which mirror none.
OF_A_WHOLE_PART = {
    "keeper/test_hostile.py",  # jobs that try to escape, over mother and keeper
    "tasks/test_receipts_stateful.py",  # inbox and ledger against a client's account
    "keeper/test_session_shell.py",  # the scripts of bash, and what makes them up
    "tasks/test_keys_stateful.py",  # acceptor, ledger and recovery
    "tasks/test_queue_stateful.py",  # queue, turns and slots in any order of events
    "tasks/test_sessions_stateful.py",  # sessions beside one plain bash
}

MODULES = sorted(ENGINE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The part of `engine` to which a module belongs."""
    first = path.relative_to(ENGINE).parts[0]
    return first.removesuffix(".py")


@functools.cache
def imported(path: Path) -> set[str]:
    """Dotted names of all that a module imports, also inside functions; relative ones resolved."""
    package = ("engine", *path.relative_to(ENGINE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, node.module or "")).strip(".")
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def engine_parts(names: set[str]) -> set[str]:
    """The parts of `engine` among dotted names; `engine` alone is its `__init__`."""
    split = [name.split(".") for name in names]
    return {
        name[1] if len(name) > 1 and name[1].islower() else "__init__"  # VERSION is no part
        for name in split
        if name[0] == "engine"
    }


def relative(path: Path) -> str:
    return path.relative_to(ENGINE).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_module_imports_only_what_is_below_it(path: Path) -> None:
    part = part_of(path)
    allowed = MAY_IMPORT[part] | {part, "__init__"} | EXCEPTIONS.get(relative(path), set())
    assert engine_parts(imported(path)) <= allowed


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_foreign_module_is_imported_only_where_it_belongs(path: Path) -> None:
    tops = {name.split(".")[0] for name in imported(path)}
    misplaced = {name for name in tops & ONLY_IN.keys() if part_of(path) not in ONLY_IN[name]}
    assert misplaced == set()


@pytest.mark.parametrize(
    "path", [path for path in MODULES if part_of(path) == "keeper"], ids=relative
)
def test_the_keeper_needs_the_standard_library_alone(path: Path) -> None:
    tops = {name.split(".")[0] for name in imported(path)}
    assert tops <= sys.stdlib_module_names | {"engine"}


def test_the_rules_name_no_part_that_is_not_there() -> None:
    parts = {part_of(path) for path in MODULES}
    assert parts <= MAY_IMPORT.keys()
    assert all(part in MAY_IMPORT for allowed in MAY_IMPORT.values() for part in allowed)
    assert all((ENGINE / name).is_file() for name in EXCEPTIONS)


def test_imports_are_found_wherever_they_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ENGINE", tmp_path)
    (tmp_path / "cli").mkdir()
    module = tmp_path / "cli" / "x.py"
    module.write_text(
        "import engine.server.doors as d\nfrom engine import store\nfrom ..tasks import queue\n"
        "from . import view\nfrom .. import jobs\n"
        "def f():\n    if 1:\n        from engine.daemon import run\n        import trio.abc\n"
    )
    assert engine_parts(imported(module)) == {"server", "store", "tasks", "jobs", "cli", "daemon"}
    assert "trio.abc" in imported(module)


@pytest.mark.parametrize(
    "name",
    sorted(
        path.relative_to(TESTS).as_posix()
        for part in MAY_IMPORT
        for path in (TESTS / part).rglob("test_*.py")
    ),
)
def test_a_test_file_mirrors_a_module(name: str) -> None:
    mirrored = ENGINE / name.replace("/test_", "/")
    assert mirrored.is_file() or name in OF_A_WHOLE_PART
