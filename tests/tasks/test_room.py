from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.tasks.room import lack_of_room, look


def disk(**facts: int) -> os.statvfs_result:
    """One with a GiB and a thousand files to give, but for `facts`."""
    known = {"f_bsize": 4096, "f_frsize": 4096, "f_bavail": 1 << 18, "f_favail": 1000}
    known |= {"f_files": 5000, "f_flag": 0, **facts}
    names = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree")
    values = [known.get(name, 0) for name in (*names, "f_favail", "f_flag", "f_namemax")]
    return os.statvfs_result(values)


@pytest.mark.parametrize(
    ("facts", "lack"),
    [
        ({}, None),
        ({"f_bavail": 256}, None),
        ({"f_bavail": 255}, "the disk is full"),
        ({"f_favail": 32}, None),
        ({"f_favail": 31}, "the disk takes no more files"),
        ({"f_favail": 0, "f_files": 0}, None),  # it does not count them
        ({"f_flag": os.ST_RDONLY}, "the disk is read-only"),
    ],
)
def test_what_the_disk_lacks_for_another_job_is_said(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, int], lack: str | None
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: disk(**facts))
    assert lack_of_room(Path("tasks")) == lack


def test_a_home_that_is_gone_has_no_room(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert lack_of_room(gone) == "the home cannot be used: No such file or directory"
    assert look(gone).free_bytes == 0
    assert look(tmp_path).free_bytes > 0
