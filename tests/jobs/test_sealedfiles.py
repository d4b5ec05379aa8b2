"""Mirrors `engine/jobs/sealedfiles.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from engine.jobs.sealedfiles import SealedFiles


@pytest.fixture
def files() -> Iterator[SealedFiles]:
    files = SealedFiles(2, 1000)
    yield files
    files.close()


def content(fd: int) -> tuple[bytes, int]:
    """What is read from the file, from its start, and which file it is; closes `fd`."""
    try:
        return os.read(fd, 10_000), os.fstat(fd).st_ino
    finally:
        os.close(fd)


def test_a_text_that_is_wanted_again_has_the_same_file(files: SealedFiles) -> None:
    fd, again = files.open(b"abc"), files.open(b"abc")
    assert os.fstat(fd).st_ino == os.fstat(again).st_ino
    for each in (fd, again):
        assert content(os.open(f"/proc/self/fd/{each}", os.O_RDONLY))[0] == b"abc"
        os.close(each)


def test_what_was_not_wanted_for_longest_is_made_anew(files: SealedFiles) -> None:
    def inode(text: bytes) -> int:
        return content(files.open(text))[1]

    first, second = inode(b"a"), inode(b"b")
    assert inode(b"a") == first
    inode(b"c")
    assert inode(b"a") == first
    assert inode(b"b") != second


def test_nobody_can_change_a_file_not_even_by_its_name_in_proc(files: SealedFiles) -> None:
    fd = files.open(b"abc")
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    for each in (fd, again):
        with pytest.raises(PermissionError):
            os.pwrite(each, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(each, 0)
        os.close(each)


def test_a_large_text_is_not_kept_and_nothing_is_left_open(files: SealedFiles) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert content(files.open(b"x" * 1001))[0] == b"x" * 1001
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(files.open(b"x" * 1000))
    assert len(os.listdir("/proc/self/fd")) == before + 1
    files.close()
    assert len(os.listdir("/proc/self/fd")) == before
