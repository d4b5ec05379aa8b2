"""Mirrors `engine/store/told.py`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.store.told import Entry, Position, Receipt, Told, ToldFile

ONE = Position(caller="ci", marks=[1, 2, 3, 4, 5, 6, 7, 8], read_to=9)
TOLD = Told(task="aaaaaa", caller="ci", output=(3, 0), lines=[0, 0, 0, 4, 4, 4, 4, 4])
RECEIPT = Receipt(caller="ci", handle="taaaaaa", state="delivered", delivery="d-1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.told"


@pytest.fixture
def file(path: Path) -> Iterator[ToldFile]:
    file = ToldFile(path)
    yield file
    file.close()


def read(path: Path) -> list[Entry]:
    file = ToldFile(path)
    try:
        return file.read()
    finally:
        file.close()


def test_what_was_appended_is_there_at_once_for_whoever_opens_it(
    path: Path, file: ToldFile
) -> None:
    file.append(ONE)
    file.append(TOLD)
    assert read(path) == [ONE, TOLD]


def test_several_are_appended_in_one_write(
    path: Path, file: ToldFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    write = os.write

    def note(fd: int, data: bytes) -> int:
        writes.append(data)
        return write(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", note)
        file.append(RECEIPT, TOLD, ONE)
    assert len(writes) == 1
    assert read(path) == [RECEIPT, TOLD, ONE]
    assert file.size == path.stat().st_size


def test_a_line_that_was_written_in_part_spoils_no_other(path: Path, file: ToldFile) -> None:
    file.append(ONE)
    os.truncate(path, path.stat().st_size - 5)
    file.append(TOLD)
    assert read(path) == [TOLD]
    nested = b'\n{"type":"told","x":' + b"[" * 100_000
    too_great = b'\n{"type":"position","caller":"a","marks":[1,1,1,1,1,1,1,1],"read_to":1%s}' % (
        b"0" * 30
    )
    path.write_bytes(b"\xff\0\n{}\n" + nested + too_great + path.read_bytes())
    assert read(path) == [TOLD]


def test_written_anew_it_holds_what_it_was_given_and_goes_on(path: Path, file: ToldFile) -> None:
    for _ in range(9):
        file.append(ONE)
    file.rewrite([TOLD])
    file.append(ONE)
    assert read(path) == [TOLD, ONE]
    assert file.size == path.stat().st_size
    assert [entry.name for entry in path.parent.iterdir()] == ["record.told"]


def test_on_a_full_disk_what_was_there_stays(
    path: Path, file: ToldFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append(ONE)

    def refuse(_fd: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        file.append(TOLD)
        file.rewrite([TOLD])
    assert read(path) == [ONE]
    file.append(TOLD)
    assert read(path) == [ONE, TOLD]


def test_joined_nothing_moves_back() -> None:
    other = Position(caller="ci", marks=[8, 7, 6, 5, 4, 3, 2, 1], read_to=2)
    both = Position(caller="ci", marks=[8, 7, 6, 5, 5, 6, 7, 8], read_to=9)
    assert ONE.joined(other) == other.joined(ONE) == both
