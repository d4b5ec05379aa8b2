"""Mirrors `engine/store/slots.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.store import slots


def test_what_was_written_last_is_read(tmp_path: Path) -> None:
    assert slots.read(tmp_path, "shell") is None
    for number, data in enumerate([b"a" * 100, b"", b"ccc", b"d"], 1):
        slots.write(tmp_path, "shell", data, number)
        assert slots.read(tmp_path, "shell") == (data, number)
    assert sorted(os.listdir(tmp_path)) == ["shell", "shell.2"]


def test_no_file_is_made_anew_once_both_are_there(tmp_path: Path) -> None:
    slots.write(tmp_path, "shell", b"a" * 9000, 1)
    slots.write(tmp_path, "shell", b"b", 2)
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    slots.write(tmp_path, "shell", b"c", 3)
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == before
    assert (tmp_path / "shell.2").stat().st_size < 100
    assert slots.read(tmp_path, "shell") == (b"c", 3)


@pytest.mark.parametrize("size", range(0, 60, 3))
def test_a_write_that_did_not_come_to_its_end_leaves_what_was_before(
    tmp_path: Path, size: int
) -> None:
    slots.write(tmp_path, "shell", b"first and long", 1)
    slots.write(tmp_path, "shell", b"second", 2)
    whole = tmp_path / "whole"
    whole.mkdir()
    slots.write(whole, "shell", b"third, longer", 3)
    new = (whole / "shell.2").read_bytes()
    assert len(new) == 59
    fd = os.open(tmp_path / "shell.2", os.O_WRONLY)
    os.pwrite(fd, new[:size], 0)
    os.close(fd)
    assert slots.read(tmp_path, "shell") == (b"second", 2)


def test_one_that_was_longer_and_is_not_cut_yet_is_whole(tmp_path: Path) -> None:
    slots.write(tmp_path, "shell", b"short", 1)
    with (tmp_path / "shell.2").open("ab") as file:
        file.write(b"rest of what was longer")
    assert slots.read(tmp_path, "shell") == (b"short", 1)


def test_the_file_of_an_engine_before_these_is_the_first(tmp_path: Path) -> None:
    (tmp_path / "shell").write_bytes(b"engine shell state 1\nxyz")
    assert slots.read(tmp_path, "shell") == (b"engine shell state 1\nxyz", 0)
    slots.write(tmp_path, "shell", b"new", 1)
    assert slots.read(tmp_path, "shell") == (b"new", 1)


def test_a_link_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "shell.2").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        slots.write(tmp_path, "shell", b"x", 1)
    assert not (tmp_path / "other").exists()


def test_removed_is_removed_also_twice(tmp_path: Path) -> None:
    slots.write(tmp_path, "shell", b"a", 1)
    slots.write(tmp_path, "shell", b"b", 2)
    slots.remove(tmp_path, "shell")
    slots.remove(tmp_path, "shell")
    assert os.listdir(tmp_path) == []
