"""Mirrors `engine/cli/verbs.py`: every verb as click sees it, and the page that explains it."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from engine.cli.main import ALIASES, VERBS, cli
from engine.cli.verbs import common_options

PAGE = Path(__file__).parents[2] / "engine/docs/command-line.md"
REFERENCE = PAGE.read_text(encoding="utf-8")
CODE = " ".join(re.findall(r"`([^`\n]+)`", REFERENCE))


def options(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden]


def is_there(word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", CODE) is not None


def commands(name: str) -> dict[str, click.Command]:
    """A verb by its name; of one that has verbs of its own, these: `round start`."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    if not isinstance(command, click.Group):
        return {name: command}
    return {f"{name} {each}": found for each, found in command.commands.items()}


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_and_option_is_in_the_reference(name: str) -> None:
    for words, command in commands(name).items():
        assert is_there(f"engine {words}")
        missing = [word for o in options(command) for word in o.opts if not is_there(word)]
        assert missing == []


def test_the_reference_has_no_option_that_is_none() -> None:
    found = [cli, *(command for name in VERBS for command in commands(name).values())]
    known = {word for command in found for o in options(command) for word in o.opts}
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", CODE))
    assert named - known - {"--help"} == set()
    assert all(is_there(alias) for alias in ALIASES)


@pytest.mark.parametrize("name", VERBS)
def test_every_option_says_what_it_does(name: str) -> None:
    for command in commands(name).values():
        silent = [o.opts for o in options(command) if not o.help]
        assert silent == []
        assert {o.name for o in common_options()} <= {o.name for o in options(command)}
