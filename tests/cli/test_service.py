"""Mirrors `engine/cli/service.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli.program import LIMIT, engine
from client.fake_engine import FakeEngine

from engine.cli.service import config_folder, quoted, unit_text

COMMANDS = (
    "systemctl --user enable --now engine.service\n"
    "loginctl enable-linger    # so that it runs on when you log out\n"
)


def test_the_unit_is_printed_and_nothing_is_written(tmp_path: Path) -> None:
    done = engine(tmp_path / "home", "install-service", XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert (done.code, done.err) == (0, "")
    lines = done.out.decode().splitlines()
    assert "KillMode=process" in lines
    assert "RestartPreventExitStatus=2 3" in lines
    assert f"ExecStart={sys.executable} -m engine serve --home {tmp_path}/home" in lines
    assert list(tmp_path.iterdir()) == []


def test_without_a_home_given_the_engine_finds_its_own() -> None:
    assert "ExecStart=/x/python -m engine serve\n" in unit_text(None, "/home/a", "/x/python")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "engine.service"
    unit.write_text(unit_text("x", f'{tmp_path}/a "b" $c %d;e'))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        timeout=LIMIT,
    )
    # One setting is newer than some systemd, which says so and goes on.
    said = [line for line in done.stderr.splitlines() if b"'DelegateSubgroup'" not in line]
    assert (done.returncode, said) == (0, [])


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("/usr/bin/python3", "/usr/bin/python3"),
        ("a b", '"a b"'),
        ("50%$x", "50%%$$x"),
        ('a"b\\', '"a\\"b\\\\"'),
        ("", '""'),
    ],
)
def test_a_word_is_written_as_systemd_reads_it(word: str, written: str) -> None:
    assert quoted(word) == written


def test_a_word_with_a_control_character_cannot_be_written() -> None:
    with pytest.raises(click.UsageError):
        quoted("a\nExecStartPre=evil")


def test_write_puts_it_into_the_users_place_and_names_what_to_type(tmp_path: Path) -> None:
    config = tmp_path / "config"
    unit = config / "systemd" / "user" / "engine.service"
    home = tmp_path / "home"
    for said in ("written", "is as it should be"):
        done = engine(home, "install-service", "--write", XDG_CONFIG_HOME=str(config))
        assert done == (0, COMMANDS.encode(), f"engine: {unit} {said}. Now type:\n")
    assert unit.read_bytes() == engine(home, "install-service").out
    assert list(unit.parent.iterdir()) == [unit]


def test_an_older_unit_of_ours_is_replaced_and_another_only_by_force(tmp_path: Path) -> None:
    config = tmp_path / "config"
    unit = config / "systemd" / "user" / "engine.service"
    engine(tmp_path, "install-service", "--write", XDG_CONFIG_HOME=str(config))
    assert (
        engine(tmp_path / "x", "install-service", "--write", XDG_CONFIG_HOME=str(config)).code == 0
    )
    assert f"--home {tmp_path}/x\n" in unit.read_text()
    unit.write_text("[Service]\nExecStart=/usr/bin/steam-engine\n")
    done = engine(tmp_path, "install-service", "--write", XDG_CONFIG_HOME=str(config))
    assert done == (1, b"", f"engine: {unit} is another unit; --force writes over it\n")
    assert "steam-engine" in unit.read_text()
    forced = ("install-service", "--write", "--force")
    assert engine(tmp_path, *forced, XDG_CONFIG_HOME=str(config)).code == 0
    assert "steam-engine" not in unit.read_text()


def test_an_engine_that_runs_is_to_be_stopped_first(fake: FakeEngine, tmp_path: Path) -> None:
    done = engine(fake.home, "install-service", "--write", XDG_CONFIG_HOME=str(tmp_path / "c"))
    assert fake.process is not None
    first = done.out.decode().partition("\n")[0]
    assert first == f"engine stop    # the one that runs (pid {fake.process.pid}); its jobs run on"


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config").touch()
    done = engine(tmp_path, "install-service", "--write", XDG_CONFIG_HOME=str(tmp_path / "config"))
    unit = tmp_path / "config" / "systemd" / "user" / "engine.service"
    assert done == (1, b"", f"engine: {unit} cannot be written: Not a directory\n")
    assert engine(tmp_path, "install-service", "--force").code == 2


def test_a_place_that_is_not_absolute_does_not_count() -> None:
    usual = os.path.expanduser("~/.config")
    assert config_folder({"XDG_CONFIG_HOME": "x"}) == usual
    assert config_folder({}) == usual
    assert config_folder({"XDG_CONFIG_HOME": "/x"}) == "/x"
