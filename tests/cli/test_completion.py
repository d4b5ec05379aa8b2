"""Mirrors `engine/cli/completion.py`: real bash asks, where bash can."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.program import LIMIT, engine, environment
from client.fake_engine import FakeEngine


def offered(home: Path, line: str) -> list[str]:
    """What bash would be offered for `line`, whose last word is being typed."""
    words = line.split(" ")
    done = engine(
        home,
        _ENGINE_COMPLETE="bash_complete",
        COMP_WORDS="\n".join(words),
        COMP_CWORD=str(len(words) - 1),
    )
    assert (done.code, done.err) == (0, "")
    return [text.partition(",")[2] for text in done.out.decode().split()]


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("bash", "complete -o nosort -F _engine_completion engine"),
        ("zsh", "#compdef engine"),
        ("fish", "complete --no-files --command engine"),
    ],
)
def test_the_script_of_each_shell_is_printed(tmp_path: Path, shell: str, words: str) -> None:
    done = engine(tmp_path / "home", "completion", shell)
    assert (done.code, done.err) == (0, "")
    assert words in done.out.decode()
    assert not (tmp_path / "home").exists()
    assert engine(tmp_path, "completion", "ksh").code == 2


def test_bash_completes_with_it(tmp_path: Path) -> None:
    (tmp_path / "engine").write_text(f'#!/bin/sh\nexec {sys.executable} -m engine "$@"\n')
    (tmp_path / "engine").chmod(0o700)
    script = (
        'eval "$(engine completion bash)"; COMP_WORDS=(engine ta); COMP_CWORD=1; '
        "_engine_completion engine; echo ${COMPREPLY[@]}"
    )
    env = environment(tmp_path / "home")
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=env, capture_output=True, timeout=LIMIT
    )
    assert (done.stdout, done.stderr) == (b"tasks\n", b"")


def test_verbs_and_options_are_offered_without_an_engine(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert offered(home, "engine st") == ["stdin", "status", "stop"]
    assert offered(home, "engine install") == ["install-service"]
    assert offered(home, "engine tasks --fa") == ["--failed"]
    assert offered(home, "engine tasks --no-s") == ["--no-start"]
    assert offered(home, "engine logs -p e") == ["error", "emergency"]
    assert offered(home, "engine wait t") == []
    assert not home.exists()


def test_the_callers_tasks_are_offered_newest_first(fake: FakeEngine) -> None:
    for command in ("true", "sleep 60"):
        engine(fake.home, "run", "-d", "--as", "ci", command)
    engine(fake.home, "wait", "t8f3000")
    engine(fake.home, "run", "-d", "--as", "anna", "true")
    assert offered(fake.home, "engine show --as ci t8") == ["t8f3001", "t8f3000"]
    assert offered(fake.home, "engine --as ci show t8f3000") == ["t8f3000"]
    assert offered(fake.home, "engine cancel --as ci ") == ["t8f3001"]
    assert offered(fake.home, "engine forget --as ci ") == ["t8f3000"]
    assert offered(fake.home, "engine wait --as ci t8f3001 t") == ["t8f3000"]
    assert offered(fake.home, "engine show --as ci x") == []


def test_who_has_no_task_is_offered_those_of_all(fake: FakeEngine) -> None:
    engine(fake.home, "run", "--as", "anna", "true")
    assert offered(fake.home, "engine output --as ci ") == ["t8f3000"]


def test_an_engine_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "engine.json").write_text('{"tokens": {"observer": "o"}, "socket": "engine.sock"}')
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(home / "engine.sock"))
        silent.listen()
        began = time.monotonic()
        assert offered(home, "engine wait ") == []
    assert time.monotonic() - began < 5  # the front door has ten seconds


def test_help_names_where_the_script_goes(tmp_path: Path) -> None:
    text = engine(tmp_path, "completion", "--help", COLUMNS="200").out.decode()
    assert "engine completion fish > ~/.config/fish/completions/engine.fish" in text
