"""Mirrors `engine/cli/app.py`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest

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
