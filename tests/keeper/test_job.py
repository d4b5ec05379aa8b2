"""Mirrors `engine/keeper/job.py`, as far as it needs no keeper; the rest is in `test_keeper`."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keeper.harness import order, read_exit

from engine.keeper import kept as kept_module
from engine.keeper.job import Job
from engine.keeper.kept import Refused
from engine.keeper.spawning import SpawnFailed, enter_directory, find_program


@pytest.fixture(autouse=True)
def here() -> Iterator[None]:
    before = os.getcwd()
    yield
    os.chdir(before)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "aaaaaa"
    path.mkdir()
    return path


def run(directory: Path, *argv: str, **changes: Any) -> dict[str, Any]:
    """The record of a job that ran to its end."""
    job = Job(order(directory, *argv, **changes), "1 2 boot")
    job.start(None)
    if job.record is None:
        _pid, status, usage = os.wait4(job.pid, 0)
        job.end(status, usage.ru_utime + usage.ru_stime)
    job.close()
    assert job.record is not None
    return job.record


def test_a_directory_is_entered(tmp_path: Path) -> None:
    assert enter_directory(str(tmp_path), or_parent=False) == str(tmp_path)
    assert os.getcwd() == str(tmp_path)


@pytest.mark.parametrize(("name", "code"), [("gone", 127), ("file", 127), ("locked", 126)])
def test_a_directory_that_cannot_be_entered_is_named(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "file").touch()
    if name == "locked":
        if os.getuid() == 0:
            pytest.skip("root enters every directory")
        (tmp_path / "locked").mkdir(mode=0)
    with pytest.raises(SpawnFailed, match=name) as caught:
        enter_directory(str(tmp_path / name), or_parent=False)
    assert caught.value.exit_code == code


def test_the_nearest_parent_that_exists_is_entered_where_asked(tmp_path: Path) -> None:
    assert enter_directory(f"{tmp_path}/a/b/c/", or_parent=True) == str(tmp_path)
    assert enter_directory("/no/such/place", or_parent=True) == "/"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    for name, mode in (("one/run", 0o600), ("two/run", 0o700), ("one/data", 0o600)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        path.chmod(mode)
    (tmp_path / "one" / "folder").mkdir()
    return tmp_path


def test_a_program_is_looked_for_along_the_jobs_own_path(programs: Path) -> None:
    path = f"{programs}/none:{programs}/one:{programs}/two"
    assert find_program("run", {"PATH": path}) == f"{programs}/two/run"


def test_a_program_with_a_slash_is_taken_as_it_is() -> None:
    assert find_program("./x/y", {"PATH": "/usr/bin"}) == "./x/y"


def test_an_empty_place_in_the_path_is_the_working_directory(programs: Path) -> None:
    os.chdir(programs / "two")
    assert find_program("run", {"PATH": ":/usr/bin"}) == "./run"


@pytest.mark.parametrize(
    ("name", "code", "exit_code"),
    [("data", errno.EACCES, 126), ("none", errno.ENOENT, 127), ("folder", errno.ENOENT, 127)],
)
def test_what_is_no_program_is_not_found_or_not_executable(
    programs: Path, name: str, code: int, exit_code: int
) -> None:
    with pytest.raises(SpawnFailed) as caught:
        find_program(name, {"PATH": f"{programs}/one"})
    assert (caught.value.errno, caught.value.exit_code) == (code, exit_code)


def test_without_a_path_the_usual_places_are_looked_into() -> None:
    assert find_program("sh", {}) in ("/bin/sh", "/usr/bin/sh")


def test_a_job_that_was_claimed_is_not_ours_and_leaves_nothing_open(directory: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert run(directory, "true")["exitCode"] == 0
    assert not Job(order(directory, "true"), "3 4 boot").is_ours
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_job_leaves_no_descriptor_no_directory_and_no_umask_behind(directory: Path) -> None:
    mask = os.umask(0o027)
    before = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        run(directory, "true", umask=0o077, cwd="/tmp", nofile=64, streams="split")
        assert os.umask(0o027) == 0o027
        assert os.getcwd() == "/"
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        os.umask(mask)


def test_a_job_has_its_own_umask_directory_and_limit(directory: Path) -> None:
    run(directory, "sh", "-c", "umask; pwd; ulimit -Sn", umask=0o057, cwd="/usr", nofile=99)
    assert (directory / "output").read_text().split() == ["0057", "/usr", "99"]


@pytest.mark.case("C102")
def test_the_longest_variable_that_the_kernel_takes_works_and_one_more_is_named_by_errno(
    directory: Path,
) -> None:
    env = {"PATH": "/usr/bin:/bin"}
    assert run(directory, "true", env={**env, "A": "x" * 131069})["exitCode"] == 0
    other = directory.with_name("bbbbbb")
    other.mkdir()
    record = run(other, "true", env={**env, "A": "x" * 131070})
    assert (record["cause"], record["exitCode"], record["error"]["errno"]) == (
        "spawn_error",
        126,
        7,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {"PATH": "/bin", "A=B": "x"}},
        {"env": {"PATH": "/bin", "A": "a\0b"}},
        {"env": {"PATH": "/bin", "A": "\ud800"}},
        {"cwd": "/tmp\0x"},
        {"argv": ["echo", "a\0b"]},
    ],
)
def test_what_no_program_can_be_given_is_a_record_and_no_crash(
    directory: Path, changes: dict[str, Any]
) -> None:
    record = run(directory, "true", **changes)
    assert (record["cause"], record["exitCode"], record["error"]["errno"]) == (
        "spawn_error",
        126,
        22,
    )
    assert read_exit(directory) == record


def test_a_name_longer_than_exit_still_leaves_a_readable_end(directory: Path) -> None:
    record = run(directory, "x" * 100_000)
    assert (record["cause"], record["exitCode"]) == ("spawn_error", 127)
    assert read_exit(directory)["error"] == {
        "errno": 2,
        "message": f"{'x' * 200} … {'x' * 173}: No such file or directory",
    }


def test_arguments_that_are_no_utf8_arrive_byte_for_byte(directory: Path) -> None:
    run(directory, "printf", "%s", "\udcff\N{GRINNING FACE}\udc80")
    assert (directory / "output").read_bytes() == b"\xff\xf0\x9f\x98\x80\x80"


def test_a_directory_that_cannot_hold_the_job_gives_the_claim_back(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(kept_module, "Output", refuse)
        job = Job(order(directory, "true"), "1 2 boot")
        with pytest.raises(Refused, match="No space left"):
            job.start(None)
        job.close()
    assert os.listdir(directory) == []
    assert len(os.listdir("/proc/self/fd")) == before
    assert run(directory, "true")["exitCode"] == 0


def test_a_claim_that_the_disk_refuses_leaves_nothing_open(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "symlink", refuse)
    with pytest.raises(OSError, match="No space left"):
        Job(order(directory, "true"), "1 2 boot")
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_end_that_cannot_be_written_is_still_told(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("engine.keeper.taskfiles.write_exit", refuse)
    assert run(directory, "sh", "-c", "exit 3")["exitCode"] == 3
    assert "not written" in capfd.readouterr().err


def test_no_descriptor_to_look_with_ends_no_keeper(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(_job: Job) -> list[int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Job, "processes", refuse)
    monkeypatch.setattr("engine.keeper.processes.walk", refuse)
    job = Job(order(directory, "sh", "-c", "exit 3"), "1 2 boot")
    job.start(None)
    assert job.begin_kill("cancelled", 0) == []
    job.on_timer()  # KILL, to nobody
    _pid, status, _usage = os.wait4(job.pid, 0)
    job.end(status, 0.0)
    job.close()
    assert job.record is not None
    assert (job.record["exitCode"], job.record["survivors"]) == (3, [])
    assert "Too many open files" in capfd.readouterr().err
