"""Every example of the documents, run as a reader would run it, against a real engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from acceptance.documents import PAGES, Example, Likeness, commands, examples, messages
from acceptance.running import LIMIT, PROGRAM, Client, Engine
from acceptance.terminal import typed

from engine.cli.main import VERBS
from engine.config import Settings
from engine.server.methods import SCHEMAS

# The reader's project, as the examples use it; BROKEN=1 is a day on which it does not build.
MAKEFILE: Final = """\
.PHONY: test lint dist

test:
\t@echo '212 passed'

lint:
\t@echo "src/run.py:88:5: error: undefined name 'taks'"; exit 1

dist:
\t@echo compiling
\t@test -z "$$BROKEN" || { echo "src/tokens.c:3:1: error: expected ';'"; exit 1; }
\t@sleep $${PAUSE:-3}
\t@echo linked
"""
# Languages of blocks that are no examples: a drawing, and what is typed once in a clone.
NO_EXAMPLES: Final = {"text", "sh"}
RUN: Final = {"bash", "console", "python", "rpc", "toml", "yaml"}


def pages_with(language: str) -> list[Path]:
    return sorted({block.page for block in examples(language)})


class Reader:
    """Who does what the documents say. Her home, her project and her name are as there."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "proj"
        (self.project / "docs").mkdir(parents=True)
        (self.project / "docs" / "index.md").write_text("# Guide\n")
        (self.project / "Makefile").write_text(MAKEFILE)
        self.engine = Engine(folder / ".local" / "share" / "engine")
        self.engine.home.mkdir(parents=True, mode=0o700)
        (self.engine.home / "engine.toml").write_text("slots = 32\nmin_free_bytes = 0\n")
        path = f"{PROGRAM.parent}:{os.environ['PATH']}"
        self.environ = {"HOME": str(folder), "PATH": path, "LANG": "C.UTF-8"}
        self.environ |= {"ENGINE_CALLER": "cli-anna"}  # as if she had logged in
        self.likeness = Likeness({"/usr/local/bin:/usr/bin:/bin": path, "/home/anna": str(folder)})

    def type(self, command: str) -> list[str]:
        """What her terminal shows of a command."""
        return typed(command, self.project, self.environ)

    def run(self, argv: list[str], **more: str) -> tuple[int, list[str], list[str]]:
        """Exit code, and the lines of both streams, of a program without a terminal."""
        done = subprocess.run(
            argv,
            cwd=self.project,
            env={**self.environ, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


@pytest.fixture
def reader() -> Iterator[Reader]:
    """Anna, with a project and no engine so far; what she leaves running is ended."""
    # Not below tmp_path: other clients than ours take no path of a socket over 107 bytes.
    with tempfile.TemporaryDirectory(prefix="anna-") as folder:
        anna = Reader(Path(folder))
        try:
            yield anna
        finally:
            anna.type("engine stop -q")
            anna.engine.end_leftovers()


def talk(client: Client, likeness: Likeness, text: str) -> None:
    """Send what a block sends and hold the replies against those that it shows."""
    for arrow, told in messages(text):
        if arrow == "-->":
            client.send_text(likeness.here(json.dumps({"jsonrpc": "2.0", **told})))
        else:
            reply = client.wait_reply(told["id"])
            assert reply.pop("jsonrpc") == "2.0"
            if "notices" not in told.get("result", {}):  # a job may end sooner than told
                reply.get("result", {}).pop("notices", None)
            assert likeness.faults(told, reply) == [], json.dumps(reply, indent=1)[:4000]


@pytest.mark.parametrize("page", pages_with("rpc"), ids=lambda page: page.name)
def test_messages_are_answered_as_they_tell(reader: Reader, page: Path) -> None:
    reader.type("engine run true")
    blocks = examples("rpc", pages=[page])
    for role in ("agent", "human"):  # who may end the engine speaks last
        with reader.engine.connect(role) as client:
            for block in blocks:
                if (block.more or "agent") == role:
                    talk(client, reader.likeness, block.text)


@pytest.mark.parametrize("page", pages_with("console"), ids=lambda page: page.name)
def test_commands_show_what_they_tell(reader: Reader, page: Path) -> None:
    for block in examples("console", pages=[page]):
        for command, told in commands(block.text):
            shown = reader.type(reader.likeness.here(command))
            assert reader.likeness.are_like(told, shown), f"{block.name}: {command}\n{shown}"


def comments(text: str) -> list[str]:
    """What a program is told to print: the comment after each `print`."""
    return re.findall(r"^ *print\(.*\)  # (.*)$", text, re.M)


@pytest.mark.parametrize("block", examples("python"), ids=lambda block: block.name)
def test_programs_print_what_they_tell(reader: Reader, block: Example) -> None:
    reader.type("engine run true")
    code, lines, _ = reader.run([sys.executable, "-c", block.text])
    assert (code, lines) == (0, comments(block.text))
    assert lines


@pytest.mark.parametrize("block", examples("bash"), ids=lambda block: block.name)
@pytest.mark.parametrize(
    ("broken", "code", "log", "told"),
    [
        ("", 0, "compiling\nlinked\n", []),
        (
            "1",
            2,
            None,
            [
                "src/tokens.c:3:1: error: expected ';'",
                "make: *** [Makefile:11: dist] Error 1",
                "task t8f3kr9 failed (exit 2)",
            ],
        ),
    ],
)
def test_a_script_ends_as_the_build_and_says_why(
    reader: Reader, block: Example, broken: str, code: int, log: str | None, told: list[str]
) -> None:
    found, _, errors = reader.run(
        ["bash", "-c", block.text], REVISION="9768b48", BROKEN=broken, PAUSE="0"
    )
    assert found == code
    assert reader.likeness.are_like([f"… error … {line}" for line in told], errors)
    written = reader.project / "dist.log"
    assert (written.read_text() if written.exists() else None) == log


@pytest.mark.parametrize("block", examples("yaml"), ids=lambda block: block.name)
@pytest.mark.parametrize(
    ("broken", "codes"), [("", [0, 0, 0, None]), ("1", [0, 0, 2, 0])], ids=["builds", "broken"]
)
def test_a_workflow_is_as_its_build(
    reader: Reader, block: Example, broken: str, codes: list[int | None]
) -> None:
    """Its steps as a runner does them: None is one that is not done."""
    install, *steps = [step for step in workflow_steps(block.text) if "run" in step]
    assert install["run"].startswith("pipx install ")
    environ = {"ENGINE_CALLER": "ci", "BROKEN": broken, "PAUSE": "0"}
    found: list[int | None] = []
    has_failed = False
    later = reader.project / "github.env"
    for step in steps:
        if has_failed != (step.get("if") == "failure()"):
            found.append(None)
            continue
        later.touch()
        code, lines, _ = reader.run(
            ["bash", "-e", "-c", step["run"]], **environ, GITHUB_ENV=str(later)
        )
        environ |= dict(line.split("=", 1) for line in later.read_text().splitlines())
        found.append(code)
        has_failed = has_failed or code != 0
    assert found == codes
    if has_failed:
        assert any("src/tokens.c:3:1: error: expected ';'" in line for line in lines)
    else:
        assert (reader.project / "dist.log").read_text() == "compiling\nlinked\n"


def workflow_steps(text: str) -> list[dict[str, str]]:
    """The steps of a workflow whose YAML is as plain as ours: names, conditions, commands."""
    found: list[dict[str, str]] = []
    for item in re.split(r"^      - ", text.partition("    steps:\n")[2], flags=re.M)[1:]:
        pairs = re.findall(r"^(?:        )?(\w+): (?:\|\n((?: {10}.*\n)+)|(.*)$)", item, re.M)
        found.append({name: textwrap.dedent(block) or line for name, block, line in pairs})
    return found


@pytest.mark.parametrize("block", examples("toml"), ids=lambda block: block.name)
def test_an_engine_starts_with_the_settings(reader: Reader, block: Example) -> None:
    told = tomllib.loads(block.text)
    assert list(told) == list(Settings.__struct_fields__)
    here = reader.likeness.here(block.text).replace("127.0.0.1:8420", "127.0.0.1:0")
    (reader.engine.home / "engine.toml").write_text(here)
    with Engine(reader.engine.home, "--set", "min_free_bytes=0") as engine, engine.connect() as one:
        info = one.call("engine_info")
        assert (info["slots"], info["limits"]["queue_limit"]) == (16, 2000)
        assert (reader.project.parent / ".engine-human.token").is_file()


def sent_methods() -> set[str]:
    sent = [
        told["method"]
        for block in examples("rpc")
        for arrow, told in messages(block.text)
        if arrow == "-->"
    ]
    return set(sent)


def test_every_method_has_an_example() -> None:
    assert sent_methods() == {*SCHEMAS, "$/cancelRequest"}


def test_every_verb_has_an_example() -> None:
    typed_words = {
        word
        for block in examples("console")
        for command, _ in commands(block.text)
        for word in re.findall(r"engine ([a-z-]+)", command)
    }
    assert VERBS.keys() - typed_words == set()


def test_every_block_is_an_example_that_is_run_or_says_that_it_is_none() -> None:
    fences = re.findall(r"^```(\S*)", "".join(page.read_text() for page in PAGES), re.M)
    assert set(fences[::2]) - RUN - NO_EXAMPLES == set()
    assert set(fences[1::2]) == {""}
