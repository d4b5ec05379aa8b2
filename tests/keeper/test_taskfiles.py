"""Mirrors `engine/keeper/taskfiles.py`."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.keeper import taskfiles


@pytest.fixture
def dir_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_DIRECTORY)
    yield fd
    os.close(fd)


def record(**changes: Any) -> dict[str, Any]:
    return {"exitCode": 0, "cwd": "/", "survivors": [], "error": None, **changes}


def write(dir_fd: int, end: dict[str, Any]) -> None:
    fd = taskfiles.reserve_exit(dir_fd)
    try:
        taskfiles.write_exit(fd, end)
    finally:
        os.close(fd)


def test_a_claim_is_taken_once_and_tells_by_whom(dir_fd: int) -> None:
    assert taskfiles.read_claim(dir_fd) is None
    assert taskfiles.take_claim(dir_fd, "12 345 boot")
    assert not taskfiles.take_claim(dir_fd, "99 999 boot")
    assert not taskfiles.take_claim(dir_fd)
    assert taskfiles.read_claim(dir_fd) == "12 345 boot"


def test_a_claim_of_an_engine_reads_as_nobody(dir_fd: int) -> None:
    assert taskfiles.take_claim(dir_fd)
    assert taskfiles.read_claim(dir_fd) == ""


@pytest.mark.parametrize("kind", ["file", "folder", "fifo"])
def test_what_a_job_puts_in_the_claims_place_is_a_claim_of_nobody(
    tmp_path: Path, dir_fd: int, kind: str
) -> None:
    path = tmp_path / "claim"
    match kind:
        case "file":
            path.touch()
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
    assert taskfiles.read_claim(dir_fd) == ""
    assert not taskfiles.take_claim(dir_fd, "12 345 boot")


def test_a_job_that_could_not_begin_can_be_claimed_again(tmp_path: Path, dir_fd: int) -> None:
    taskfiles.take_claim(dir_fd, "12 345 boot")
    os.close(taskfiles.reserve_exit(dir_fd))
    (tmp_path / "spec.json").touch()
    taskfiles.undo_claim(dir_fd, ["exit"])
    assert os.listdir(tmp_path) == ["spec.json"]
    assert taskfiles.take_claim(dir_fd, "99 999 boot")


def test_exit_is_full_sized_and_private_from_the_start_and_not_valid_yet(
    tmp_path: Path, dir_fd: int
) -> None:
    os.close(taskfiles.reserve_exit(dir_fd))
    status = (tmp_path / "exit").stat()
    assert (status.st_size, status.st_mode & 0o777) == (4096, 0o600)
    assert taskfiles.read_exit(dir_fd) is None


def test_an_exit_that_its_job_has_cut_is_written_all_the_same(dir_fd: int) -> None:
    fd = taskfiles.reserve_exit(dir_fd)
    os.truncate(fd, 7)
    taskfiles.write_exit(fd, record(exitCode=9))
    os.close(fd)
    assert taskfiles.read_exit(dir_fd) == record(exitCode=9)


def test_exit_is_reserved_ahead_or_now_and_never_once_it_was_written(dir_fd: int) -> None:
    os.close(taskfiles.reserve_exit(dir_fd))
    fd = taskfiles.reserve_exit(dir_fd, 8192)
    assert os.pread(fd, 9000, 0) == b" " * 8192
    taskfiles.write_exit(fd, record())
    os.close(fd)
    with pytest.raises(FileExistsError):
        taskfiles.reserve_exit(dir_fd, 8192)


@pytest.mark.parametrize("what", ["link", "second name", "fifo", "folder", "written"])
def test_a_file_made_ahead_that_is_not_as_it_was_made_is_not_taken(
    tmp_path: Path, dir_fd: int, what: str
) -> None:
    os.close(taskfiles.open_fresh(dir_fd, "output"))
    os.close(taskfiles.open_fresh(dir_fd, "output"))  # as it was
    path = tmp_path / "output"
    if what == "written":
        path.write_bytes(b"x")
    elif what == "second name":
        os.link(path, tmp_path / "other")
    else:
        path.unlink()
        made = {"link": lambda: path.symlink_to("/dev/null"), "fifo": lambda: os.mkfifo(path)}
        made.get(what, path.mkdir)()
    with pytest.raises(OSError, match=r"output|exist|loop|No such device"):
        taskfiles.open_fresh(dir_fd, "output")


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[taskfiles.Mark]:
    (tmp_path / "keepers").mkdir()
    fd = os.open(tmp_path / "keepers", os.O_DIRECTORY)
    yield taskfiles.Mark("1 2 boot", fd, "1-2.who")
    os.close(fd)


def test_a_keeper_that_waits_for_a_job_has_not_claimed_it(
    tmp_path: Path, dir_fd: int, mark: taskfiles.Mark
) -> None:
    taskfiles.prepare_claim(dir_fd, mark)
    assert taskfiles.read_ready(dir_fd) == "1 2 boot"
    assert taskfiles.read_claim(dir_fd) is None
    assert taskfiles.take_claim(dir_fd, "3 4 boot")
    assert taskfiles.read_claim(dir_fd) == "3 4 boot"
    assert not taskfiles.take_claim(dir_fd, mark)
    (tmp_path / "claim").unlink()
    assert taskfiles.take_claim(dir_fd, mark)
    assert taskfiles.read_claim(dir_fd) == "1 2 boot"
    assert not taskfiles.take_claim(dir_fd, mark)


def test_a_keepers_claims_are_names_of_one_file_and_outlive_it(
    tmp_path: Path, dir_fd: int, mark: taskfiles.Mark
) -> None:
    taskfiles.prepare_claim(dir_fd, mark)
    assert taskfiles.take_claim(dir_fd, mark)
    paths = (tmp_path / "keepers" / "1-2.who", tmp_path / "ready", tmp_path / "claim")
    assert len({path.lstat().st_ino for path in paths}) == 1
    mark.remove()
    mark.remove()  # gone already is as good
    assert not paths[0].is_symlink()
    assert taskfiles.read_claim(dir_fd) == "1 2 boot"


def test_a_keeper_whose_file_was_removed_claims_all_the_same(
    dir_fd: int, mark: taskfiles.Mark
) -> None:
    mark.remove()
    assert taskfiles.take_claim(dir_fd, mark)
    assert taskfiles.read_claim(dir_fd) == "1 2 boot"
    assert not taskfiles.take_claim(dir_fd, mark)


def test_no_exit_reads_as_none(dir_fd: int) -> None:
    assert taskfiles.read_exit(dir_fd) is None


def test_exit_is_read_back_as_it_was_written(tmp_path: Path, dir_fd: int) -> None:
    end = record(exitCode=7, cwd="/tmp/\udcff é", survivors=[{"pid": 1, "command": "\x1b"}])
    write(dir_fd, end)
    assert taskfiles.read_exit(dir_fd) == end
    assert (tmp_path / "exit").stat().st_size == 4096


def test_the_last_exit_counts_also_where_it_is_shorter(dir_fd: int) -> None:
    fd = taskfiles.reserve_exit(dir_fd)
    taskfiles.write_exit(fd, record(cwd="/" + "x" * 500))
    taskfiles.write_exit(fd, record(exitCode=9))
    os.close(fd)
    assert taskfiles.read_exit(dir_fd) == record(exitCode=9)


@pytest.mark.parametrize("text", ["x" * 200, "\N{GRINNING FACE}" * 200, "\udcff" * 200])
def test_survivors_are_left_out_until_exit_fits(tmp_path: Path, dir_fd: int, text: str) -> None:
    write(dir_fd, record(exitCode=3, survivors=[{"pid": i, "command": text} for i in range(32)]))
    end = taskfiles.read_exit(dir_fd)
    assert end is not None
    assert end["exitCode"] == 3
    assert 0 < len(end["survivors"]) < 32
    assert (tmp_path / "exit").stat().st_size == 4096


def test_a_long_error_is_cut_so_that_the_end_stays_readable(tmp_path: Path, dir_fd: int) -> None:
    message = "\N{GRINNING FACE}" * 100_000
    write(dir_fd, record(exitCode=126, error={"errno": 36, "message": message}))
    end = taskfiles.read_exit(dir_fd)
    assert end is not None
    assert (end["exitCode"], end["error"]["errno"]) == (126, 36)
    assert message.startswith(end["error"]["message"])
    assert len(end["error"]["message"]) == 150
    assert (tmp_path / "exit").stat().st_size == 4096


def test_a_directory_too_long_for_exit_is_left_out(dir_fd: int) -> None:
    write(dir_fd, record(exitCode=5, cwd="/" + "é" * 2000))
    assert taskfiles.read_exit(dir_fd) == record(exitCode=5, cwd="")


def test_the_longest_of_everything_fits(tmp_path: Path, dir_fd: int) -> None:
    ranges = [[i << 50, (i << 50) + 1] for i in range(16)]
    end = record(
        cwd="\udcff" * 4095,
        survivors=[{"pid": 4194304, "command": "\N{GRINNING FACE}" * 200}] * 32,
        error={"errno": 36, "message": "\N{GRINNING FACE}" * 131072},
        sizes=[1 << 60, 1 << 60],
        dropped=[ranges, ranges],
        **dict.fromkeys(("pid", "startedAt", "endedAt", "durationMs", "cpuMs"), 1 << 62),
    )
    write(dir_fd, end)
    assert (tmp_path / "exit").stat().st_size == 4096
    kept = taskfiles.read_exit(dir_fd)
    assert kept is not None
    assert kept["dropped"] == [ranges, ranges]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"exitCode": 0}',
        b'{"exitCode": 0}\ncomplet',
        b"\ncomplete\n",
        b"[1]\ncomplete\n",
        b"nonsense\ncomplete\n",
        b"\xff\ncomplete\n",
        b"[" * 4000 + b"\ncomplete\n",
    ],
)
def test_what_is_no_whole_exit_reads_as_none(tmp_path: Path, dir_fd: int, content: bytes) -> None:
    (tmp_path / "exit").write_bytes(content)
    assert taskfiles.read_exit(dir_fd) is None


@pytest.mark.parametrize("kind", ["link", "folder", "fifo", "socket"])
def test_what_a_job_puts_in_the_place_of_exit_is_none_and_hangs_nobody(
    tmp_path: Path, dir_fd: int, kind: str
) -> None:
    path = tmp_path / "exit"
    (tmp_path / "elsewhere").write_bytes(json.dumps(record()).encode() + b"\ncomplete\n")
    match kind:
        case "link":
            path.symlink_to("elsewhere")
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, 0o140600)
    assert taskfiles.read_exit(dir_fd) is None
    assert taskfiles.open_reserved(dir_fd) is None


def test_a_reserved_exit_can_be_written_by_who_comes_later(dir_fd: int) -> None:
    assert taskfiles.open_reserved(dir_fd) is None
    os.close(taskfiles.reserve_exit(dir_fd))
    fd = taskfiles.open_reserved(dir_fd)
    assert fd is not None
    taskfiles.write_exit(fd, record(exitCode=4))
    os.close(fd)
    assert taskfiles.read_exit(dir_fd) == record(exitCode=4)


def test_a_reserved_exit_with_a_second_name_is_not_written_to(tmp_path: Path, dir_fd: int) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"p" * 4096)
    os.link(precious, tmp_path / "exit")
    assert taskfiles.open_reserved(dir_fd) is None


def test_a_disk_that_takes_a_part_of_exit_takes_none(
    tmp_path: Path, dir_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.pwrite

    def write(fd: int, data: bytes, at: int) -> int:
        if at:  # the first write was short, the second says why
            raise OSError(errno.EFBIG, "why")
        return real_write(fd, data[:100], at)

    monkeypatch.setattr(os, "pwrite", write)
    with pytest.raises(OSError, match="why") as caught:
        taskfiles.reserve_exit(dir_fd)
    assert caught.value.errno == errno.EFBIG
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("pieces", "length", "found"),
    [
        ([], 0, (0, [])),
        ([], 3 << 40, (0, [])),
        ([(0, 100)], 100, (100, [])),
        ([(0, 8192)], 3 << 40, (8192, [])),
        ([(0, 8192), (1 << 30, 4096)], 3 << 40, ((1 << 30) + 4096, [[8192, 1 << 30]])),
        ([(i << 20, 4096) for i in range(1000)], 3 << 40, ((63 << 20) + 4096, None)),
    ],
)
def test_what_was_written_is_told_from_the_length_that_a_job_has_made(
    tmp_path: Path, pieces: list[tuple[int, int]], length: int, found: tuple[int, Any]
) -> None:
    fd = os.open(tmp_path / "output", os.O_RDWR | os.O_CREAT)
    try:
        for at, size in pieces:
            os.pwrite(fd, b"x" * size, at)
        os.ftruncate(fd, length)
        end, holes = taskfiles.written(fd)
    finally:
        os.close(fd)
    assert end == found[0]
    assert found[1] is None or holes == found[1]
