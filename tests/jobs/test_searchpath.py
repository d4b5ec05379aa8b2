"""Mirrors `engine/jobs/searchpath.py`, with sessions of a real bash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from keeper.shell_session import Session

from engine.jobs.searchpath import search_path

USUAL = "/usr/local/bin:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (":", USUAL),
        ('PATH="/venv/bin:$PATH"', f"/venv/bin:{USUAL}"),
        ("""PATH='/a b/"q"/$x/`y`/\\z:/bin'""", '/a b/"q"/$x/`y`/\\z:/bin'),
        ("PATH=$'/tab\\there/it\\'s:/bin'", "/tab\there/it's:/bin"),
        ("PATH=$'/\\xff:/bin'", "/\udcff:/bin"),
        ("PATH=/bin; export -n PATH", "/bin"),
        ("PATH=/bin; readonly PATH", "/bin"),
        ("declare -l PATH=/BIN", "/bin"),
        ("PATH=", ""),
        ("unset PATH", None),
        ("unset PATH; PATH=(/a /b)", None),
    ],
)
def test_it_is_what_the_session_has_as_path(tmp_path: Path, command: str, path: str | None) -> None:
    session = Session(tmp_path, {"PATH": USUAL, "HOME": os.fspath(tmp_path)})
    session.call(command)
    assert session.state is not None
    assert search_path(session.state) == path


def test_without_a_session_there_is_none() -> None:
    assert search_path(None) is None
