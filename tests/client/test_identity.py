"""Mirrors `engine/client/identity.py`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.client.identity import greeting, name_of


def test_the_caller_is_who_is_named_then_the_environments_then_one_of_its_own() -> None:
    assert name_of("ci", {"ENGINE_CALLER": "dev"}) == "ci"
    assert name_of(None, {"ENGINE_CALLER": "dev"}) == "dev"
    first, second = name_of(None, {}), name_of(None, {})
    assert re.fullmatch("lib-[0-9a-f]{10}", first)
    assert first != second


def test_hello_tells_where_we_are_and_our_variables_but_for_the_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"PATH": "/bin", "ENGINE_HOME": "/h", "ODD": "\udcff", "\udcff": "odd"}
    assert greeting("test", environ) == {
        "cwd": str(tmp_path),
        "env": {"PATH": "/bin"},
        "client": "test",
    }


def test_a_directory_that_is_gone_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert greeting("test", {}) == {"env": {}, "client": "test"}


def test_a_locale_that_python_gave_itself_is_not_the_users() -> None:
    code = (
        "import os, json; from engine.client.identity import greeting; "
        "print(os.environ['LC_CTYPE'], 'LC_CTYPE' in greeting('test', os.environ)['env'])"
    )
    for given, expected in (({}, "False"), ({"LC_CTYPE": "C.UTF-8"}, "True")):
        told = subprocess.run(
            [sys.executable, "-c", code],
            env={"LANG": "C", **given},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert told.stdout.split() == ["C.UTF-8", expected]
