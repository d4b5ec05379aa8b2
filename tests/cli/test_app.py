"""Mirrors `engine/cli/app.py`."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import click
import pytest
from acceptance.running import Engine, Gate, wait_gone
from cli.fuller_engine import FullerEngine
from cli.program import LIMIT, start

from engine.cli.app import App, default_caller
from engine.cli.console import Console


def app(environ: dict[str, str] | None = None, **options: object) -> App:
    variables = environ or {}
    return App(options=options, environ=variables, console=Console(variables))


def test_the_caller_is_the_option_then_the_variable_then_the_login_name() -> None:
    assert app({"ENGINE_CALLER": "b"}, as_="a").caller == "a"
    assert app({"ENGINE_CALLER": "b"}).caller == "b"
    assert app().caller == default_caller()
    assert re.fullmatch(r"cli-[a-z0-9_-]{1,60}", default_caller())


@pytest.mark.parametrize("name", ["A", "a b", "a" * 65, "ü"])
def test_a_name_that_is_no_callers_is_wrong_usage(name: str) -> None:
    with pytest.raises(click.UsageError):
        _ = app(as_=name).caller


def test_the_greeting_has_no_engine_variable_and_nothing_that_is_not_utf8(
    capfd: pytest.CaptureFixture[str],
) -> None:
    greeting = app({"A": "1", "ENGINE_HOME": "/x", "BAD": "\udcff"}).greeting()
    assert greeting["env"] == {"A": "1"}
    assert greeting["cwd"] == os.getcwd()
    assert capfd.readouterr().err == "engine: the variable BAD is not UTF-8 and is left out\n"


def test_a_directory_that_is_gone_is_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert app({"PWD": str(gone)}).greeting()["cwd"] == str(gone)
    assert app().greeting()["cwd"] is None


def test_a_run_starts_an_engine_in_place_of_one_that_vanished(tmp_path: Path) -> None:
    with (
        Engine(tmp_path / "home", "--set", "min_free_bytes=0") as real,
        Gate(tmp_path / "gate") as gate,
    ):
        with start(real.home, "run", f"echo up; {gate.wait}; echo on; exit 9") as run:
            assert run.stdout is not None
            assert run.stdout.readline() == b"up\n"
            real.kill()
            gate.open()
            out, err = run.communicate(timeout=LIMIT)
        pid = real.facts()["pid"]
        os.kill(pid, signal.SIGTERM)
        wait_gone(pid)
    assert (run.returncode, out) == (9, b"on\n")
    lost, back, ended = err.decode().splitlines()
    assert lost == "engine: connection lost; trying again for up to 60 s"
    assert back.startswith("engine: connected again after ")
    assert " failed, exit 9, after " in ended


@pytest.mark.parametrize("verb", [["run", "--no-start", "sleep 60"], ["logs", "-f"]])
def test_who_may_not_start_an_engine_waits_for_one(fake: FullerEngine, verb: list[str]) -> None:
    facts = (fake.home / "engine.json").read_text()
    with start(fake.home, *verb, "--reconnect", "2.5") as process:  # at 1.8 s it would be started
        fake.wait_for(lambda: fake.calls and "timeout_secs" in fake.calls[-1][1])
        fake.stop()
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == (125 if verb[0] == "run" else 69)
    assert err.decode().splitlines()[-1] == "engine: gave up after 2.5 s (--reconnect)"
    assert (fake.home / "engine.json").read_text() == facts
    assert not (fake.home / "engine.log").exists()
