"""Mirrors `engine/server/homewatch.py`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.config import Home
from engine.server.homewatch import HomeWatch
from engine.startup import prepare_home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    prepare_home(home)
    home.ahead.mkdir()
    return home


def make(home: Home, told: list[str], **remake: str) -> HomeWatch:
    files = {name: lambda n=name: (home.path / n).write_text(remake[n]) for name in remake}
    return HomeWatch(home, files, lambda: told.append("sessions"), lambda: None)  # type: ignore[arg-type]


def test_what_is_gone_is_made_again_and_what_is_there_left_alone(home: Home) -> None:
    told: list[str] = []
    watch = make(home, told, facts="new")
    (home.path / "facts").write_text("old")
    watch.look()
    assert ((home.path / "facts").read_text(), told) == ("old", [])
    (home.path / "facts").unlink()
    shutil.rmtree(home.tasks)
    shutil.rmtree(home.sessions)
    watch.look()
    assert (home.path / "facts").read_text() == "new"
    assert home.ahead.stat().st_mode & 0o777 == 0o700
    assert (told, watch.missing) == (["sessions"], {})


def test_what_cannot_be_made_again_is_told_until_it_is_there(home: Home) -> None:
    watch = make(home, [], **{"no/where": ""})
    watch.look()
    assert watch.missing == {"no/where": "No such file or directory"}
    (home.path / "no").mkdir()
    watch.look()
    assert watch.missing == {}


def test_in_another_home_under_the_same_path_nothing_is_made(home: Home, tmp_path: Path) -> None:
    watch = make(home, [], facts="new")
    home.path.rename(tmp_path / "moved")
    watch.look()
    home.path.mkdir()
    watch.look()
    assert list(home.path.iterdir()) == []
