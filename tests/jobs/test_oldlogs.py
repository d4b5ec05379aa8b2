"""Mirrors `engine/jobs/oldlogs.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from engine.jobs import oldlogs
from engine.jobs.oldlogs import make_room, move_content, numbered, serve_moves

LINE = b"x" * 99 + b"\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "keepers.log"


@pytest.fixture
def writer(log: Path) -> Iterator[int]:
    """The descriptor of somebody who appends, and will not open the file again."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    yield fd
    os.close(fd)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_room_is_made_by_moving_each_up_and_dropping_what_is_too_much(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for number in (1, 2, 3, 4):
        numbered(path, number).write_text(str(number))
    make_room(path, 3)
    assert {name: (tmp_path / name).read_text() for name in names(tmp_path)} == {
        "log.2": "1",
        "log.3": "2",
    }
    make_room(path, 0)
    assert names(tmp_path) == ["log.2", "log.3"]  # none has the first place


def test_a_gap_among_the_older_ones_is_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "log"
    numbered(path, 2).write_text("2")
    make_room(path, 3)
    assert names(tmp_path) == ["log.3"]


def test_what_is_moved_is_gone_and_what_is_appended_stays(log: Path, writer: int) -> None:
    os.write(writer, LINE * 3_000)
    assert move_content(log, 200_000, 2) is True
    assert numbered(log, 1).read_bytes() == LINE * 3_000
    assert numbered(log, 1).stat().st_mode & 0o777 == 0o600
    os.write(writer, b"after\n")
    assert log.read_bytes().lstrip(b"\0") == b"after\n"
    assert disk_bytes(log) <= 65_536  # the last block

    os.write(writer, LINE * 4_000)
    assert move_content(log, 200_000, 2) is True
    moved = numbered(log, 1).read_bytes()
    assert moved.lstrip(b"\0") == b"after\n" + LINE * 4_000
    assert len(moved) < len(b"after\n" + LINE * 4_000) + 65_536  # the hole was left out
    assert numbered(log, 2).read_bytes() == LINE * 3_000


def test_a_small_log_and_none_at_all_are_left_alone(log: Path, writer: int) -> None:
    os.write(writer, LINE)
    assert move_content(log, 200_000, 2) is False
    assert log.read_bytes() == LINE
    assert move_content(log.with_name("none"), 200_000, 2) is False
    assert names(log.parent) == ["keepers.log"]


def test_where_none_is_kept_the_content_goes(log: Path, writer: int) -> None:
    os.write(writer, LINE * 3_000)
    assert move_content(log, 200_000, 0) is True
    assert names(log.parent) == ["keepers.log"]
    assert disk_bytes(log) <= 65_536  # a part of the last block


def test_where_there_are_no_holes_the_log_is_cut(
    log: Path, writer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_fd: int, _offset: int, _length: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(oldlogs, "punch_hole", refuse)
    os.write(writer, LINE * 3_000)
    assert move_content(log, 200_000, 1) is True
    assert numbered(log, 1).read_bytes() == LINE * 3_000
    os.write(writer, b"after\n")
    assert log.read_bytes() == b"after\n"


def test_a_disk_that_is_full_loses_nothing(
    log: Path, writer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(oldlogs, "_copy", fail)
    numbered(log, 1).write_text("older")
    os.write(writer, LINE * 3_000)
    with pytest.raises(OSError, match="No space"):
        move_content(log, 200_000, 1)
    assert log.read_bytes() == LINE * 3_000
    assert numbered(log, 1).read_text() == "older"


async def test_it_is_looked_at_again_and_a_failure_is_told(
    log: Path, writer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = trio.Event()
    tries = []

    def move(*_args: object) -> bool:
        tries.append(1)
        if len(tries) == 1:
            raise OSError(28, "No space left on device")
        trio.from_thread.run_sync(looked.set)
        return True

    monkeypatch.setattr(oldlogs, "LOOK_SECS", 0.01)
    monkeypatch.setattr(oldlogs, "move_content", move)
    with capture_logs() as told, trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_moves, log, 1, 1)
            await looked.wait()
            nursery.cancel_scope.cancel()
    assert told[0]["event"] == "log_not_turned"
    assert told[0]["reason"] == "[Errno 28] No space left on device"
