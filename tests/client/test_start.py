"""Mirrors `engine/client/start.py`, with the real engine."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import wait_gone
from cli import program
from cli.program import LIMIT, PROGRAM

from engine.client.errors import CannotStart
from engine.client.start import last_line, start_engine

# What is started by the program itself: so with nothing loaded or open but what that has.
engine = functools.partial(program.engine, fresh=True)
start = functools.partial(program.start, fresh=True)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home; the engine that was started in it is stopped in the end."""
    home = tmp_path / "home"
    yield home
    facts = home / "engine.json"
    if facts.exists():
        pid = json.loads(facts.read_text())["pid"]
        os.kill(pid, signal.SIGTERM)
        wait_gone(pid)


def test_run_starts_an_engine_where_none_is(home: Path) -> None:
    assert engine(home, "run", "echo hi", ENGINE_CALLER="x") == (0, b"hi\n", "")
    pid = json.loads((home / "engine.json").read_text())["pid"]
    assert os.getsid(pid) == pid  # no key of our terminal reaches it
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"ENGINE_" not in environ
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "engine.log").stat().st_mode & 0o777 == 0o600
    assert engine(home, "tasks", "-a", "--no-header").out.split()[0] == b"succeeded"


@pytest.mark.case("C116")
def test_of_several_started_at_once_one_runs_and_all_use_it(home: Path) -> None:
    runs = [start(home, "run", f"echo {i}") for i in range(4)]
    for i, run in enumerate(runs):
        out, err = run.communicate(timeout=LIMIT)
        assert (run.returncode, out, err) == (0, f"{i}\n".encode(), b"")
    started = (home / "engine.log").read_text().count("engine_started")
    second = subprocess.run(
        [*PROGRAM, "serve", "--home", home], capture_output=True, timeout=LIMIT, check=False
    )
    assert started == 1
    assert second.returncode == 3
    assert b"another engine" in second.stderr


def test_a_stale_socket_and_file_never_block_a_start(home: Path) -> None:
    engine(home, "run", "true")
    pid = json.loads((home / "engine.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    assert (home / "engine.sock").exists()
    assert engine(home, "run", "echo again") == (0, b"again\n", "")


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "engine.toml").write_text("no_such_setting = 1\n")
    with pytest.raises(CannotStart, match="no_such_setting"):
        start_engine(str(home), dict(os.environ))
    done = engine(home, "run", "true")
    assert (done.code, done.out) == (125, b"")
    assert "no_such_setting" in done.err
    assert done.err.startswith("engine: the engine ended at once, exit ")


def test_the_last_line_of_a_log_is_of_this_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old\n" + b"new\n\n")
    assert last_line(str(log), 4) == "new"
    assert last_line(str(log), 8) == "it said nothing"


@pytest.mark.case("C148")
def test_no_token_stands_in_an_argument_or_an_environment(home: Path) -> None:
    engine(home, "run", "true")
    look = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' ' '"
    seen = engine(home, "run", look).out.decode(errors="replace")
    facts = json.loads((home / "engine.json").read_text())
    tokens = [*facts["tokens"].values(), (home / "human.token").read_text().strip()]
    assert "ENGINE_TASK_ID=" in seen  # it did see the environments
    assert [token for token in tokens if token in seen] == []
