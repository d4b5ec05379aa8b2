"""The example programs of the library, run as a user runs them."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from acceptance.running import LIMIT, Engine, Gate, new_name

from engine import client
from engine.client import connect
from engine.client import errors as client_errors

EXAMPLES = Path(__file__).parents[2] / "engine" / "client" / "examples"


def run_example(engine: Engine, name: str, *arguments: str, **more: str) -> tuple[int, list[str]]:
    """Exit code and lines of output of an example; nothing may stand on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", f"engine.client.examples.{name}", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "ENGINE_HOME": str(engine.home), **more},
        timeout=LIMIT,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_two_agents_keep_apart_on_one_connection(engine: Engine) -> None:
    code, lines = run_example(engine, "agent")
    docs = [line for line in lines if line.startswith("docs:")]
    build = [line for line in lines if line.startswith("build:")]
    assert (code, docs) == (
        0,
        ["docs: succeeded (exit 0): /tmp", "docs: succeeded (exit 0): /tmp: Guide"],
    )
    assert re.fullmatch("build: still running as t[0-9a-v]+; so far: compiling", build[0])
    assert build[1:] == [
        "build: succeeded (exit 0): compiling",  # and on a line of its own: linked
        "build: refused (invalid_params): $.command: expected 1 to 1048576 bytes of UTF-8",
    ]


@pytest.mark.parametrize(("ending", "code"), [("exit 0", 0), ("exit 7", 7)])
def test_a_ci_script_exits_as_its_build(
    engine: Engine, tmp_path: Path, gate: Gate, ending: str, code: int
) -> None:
    build = f"echo run >> {tmp_path}/runs; {gate.wait}; printf 'a\\nb\\n'; {ending}"
    lint = f"echo fine; echo > {gate.path}"
    found, lines = run_example(engine, "ci", build, lint, GITHUB_SHA=new_name("sha"))
    assert found == code
    assert lines[:3] == ["lint succeeded: fine", "a", "b"]
    status = "succeeded" if code == 0 else "failed"
    assert re.fullmatch(rf"build {status} after \d+ ms", lines[3])
    assert (tmp_path / "runs").read_text() == "run\n"
    if code:
        assert re.fullmatch(r"error: task t[0-9a-v]+ failed \(exit 7\)", lines[-1])


def test_a_ci_script_that_is_run_again_finds_its_build(
    engine: Engine, tmp_path: Path, gate: Gate
) -> None:
    build = f"echo run >> {tmp_path}/runs; {gate.wait}; echo built"
    sha = new_name("sha")
    first = subprocess.Popen(
        [sys.executable, "-m", "engine.client.examples.ci", build, "true"],
        stdout=subprocess.PIPE,
        env={**os.environ, "ENGINE_HOME": str(engine.home), "GITHUB_SHA": sha},
    )
    assert first.stdout is not None
    assert first.stdout.readline() == b"lint succeeded: \n"
    first.kill()
    first.communicate()
    code, lines = run_example(engine, "ci", build, f"echo > {gate.path}", GITHUB_SHA=sha)
    assert (code, lines[:2]) == (0, ["lint succeeded: ", "built"])
    assert (tmp_path / "runs").read_text() == "run\n"


PAGE = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M)
SAID = [
    ["succeeded 0 built", ""],
    ["GNU", "succeeded"],
    ["{'unit': 'succeeded', 'lint': 'failed'}", "succeeded built", ""],
]


@pytest.mark.parametrize(("block", "said"), list(zip(BLOCKS, SAID, strict=True)))
def test_the_programs_of_the_page_do_what_they_say(
    engine: Engine, block: str, said: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block],
        capture_output=True,
        text=True,
        env={**os.environ, "ENGINE_HOME": str(engine.home)},
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, said, "")


def test_the_page_names_every_argument_method_and_error() -> None:
    arguments = set(inspect.signature(connect).parameters)
    methods = {name for name in vars(client.Engine) if name[0] != "_"}
    kinds = {
        name
        for name, kind in vars(client_errors).items()
        if isinstance(kind, type) and issubclass(kind, client_errors.ClientError)
    } - {"Refused", "AmbiguousHandle", "RoundHandle", "CannotWrite"}  # of the command line
    missing = [
        word for word in arguments | methods | kinds if not re.search(rf"`[^`\n]*\b{word}\b", PAGE)
    ]
    assert missing == ["ask"]  # the way of all the others


def test_each_example_is_run_here() -> None:
    programs = {path.stem for path in EXAMPLES.glob("*.py")} - {"__init__"}
    assert programs == {"agent", "ci"}
