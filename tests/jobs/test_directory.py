"""Mirrors `engine/jobs/directory.py`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from engine.jobs.directory import Base, Spec, TaskDirectory, make_directory
from engine.model import Kind


def spec(**changes: Any) -> Spec:
    known = {
        "id": "aaaaaa",
        "caller": "anna",
        "kind": Kind.BASH,
        "title": "make",
        "order": 7,
        "created_at": 1_796_043_871_208,
        "base": Base(cwd="/", env={"PATH": "/bin"}),
        "command": "make\n",
    }
    return Spec(**{**known, **changes})


def record(**changes: Any) -> dict[str, Any]:
    known = {
        "pid": 0,
        "cause": "lost",
        "exitCode": None,
        "signal": None,
        "error": None,
        "startedAt": None,
        "endedAt": 1_796_043_871_208,
        "durationMs": None,
        "cpuMs": None,
        "cwd": "",
        "survivors": [],
        "sizes": [0],
        "dropped": [[]],
    }
    return {**known, **changes}


@pytest.fixture
def directory(tmp_path: Path) -> TaskDirectory:
    return make_directory(tmp_path)


def test_a_new_directory_is_private_empty_and_named_by_a_short_id(
    directory: TaskDirectory, tmp_path: Path
) -> None:
    assert re.fullmatch(r"[0-9a-v]{6}", directory.id)
    assert directory.path == tmp_path / directory.id
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert os.listdir(directory.path) == []


def test_an_id_that_is_there_is_not_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter([0, 0, 1, 2**30 - 1])
    monkeypatch.setattr("secrets.randbits", lambda _bits: next(numbers))
    assert [make_directory(tmp_path).id for _ in range(3)] == ["000000", "100000", "vvvvvv"]


def test_a_spec_is_read_back_as_it_was_written(directory: TaskDirectory) -> None:
    asked = spec(env={"A": "é\n\N{GRINNING FACE}"}, stdin="x" * 100_000, deadline_secs=1.5)
    directory.write_spec(asked)
    assert directory.read_spec() == asked
    assert (directory.path / "spec.json").stat().st_mode & 0o777 == 0o600


def test_a_spec_is_written_once(directory: TaskDirectory) -> None:
    directory.write_spec(spec())
    with pytest.raises(FileExistsError):
        directory.write_spec(spec(title="other"))


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"id": "aaaaaa"}', b"\xff"])
def test_a_spec_that_was_never_written_whole_is_none(
    directory: TaskDirectory, content: bytes | None
) -> None:
    if content is not None:
        (directory.path / "spec.json").write_bytes(content)
    assert directory.read_spec() is None


@pytest.mark.parametrize(
    "changes",
    [
        {"command": None},
        {"command": ""},
        {"command": "a\0b"},
        {"kind": Kind.ARGV},
        {"kind": Kind.ARGV, "argv": []},
        {"kind": Kind.CODE},
        {"order": 1 << 60},
        {"created_at": 1 << 60},
        {"created_at": -1},
    ],
    ids=repr,
)
def test_a_spec_that_no_call_can_have_asked_is_none(
    directory: TaskDirectory, changes: dict[str, Any]
) -> None:
    directory.write_spec(spec(**changes))
    assert directory.read_spec() is None


def test_a_spec_that_is_nested_without_end_is_none(directory: TaskDirectory) -> None:
    (directory.path / "spec.json").write_bytes(b'{"x":' + b"[" * 100_000)
    assert directory.read_spec() is None


@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
def test_what_a_job_puts_in_the_place_of_the_spec_is_none_and_hangs_nobody(
    directory: TaskDirectory, tmp_path: Path, kind: str
) -> None:
    path = directory.path / "spec.json"
    match kind:
        case "link":
            directory.write_spec(spec())
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
    assert directory.read_spec() is None


def test_a_directory_behind_a_link_is_not_entered(directory: TaskDirectory, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(directory.path)
    with pytest.raises(FileNotFoundError), TaskDirectory(tmp_path, "linked").opened():
        pass


def test_an_end_is_declared_once_and_not_where_a_keeper_has_the_claim(
    directory: TaskDirectory, tmp_path: Path
) -> None:
    assert directory.end_unstarted(record(cause="cancelled"))
    assert not directory.end_unstarted(record(cause="spawn_error"))
    assert directory.read_exit() == record(cause="cancelled")
    assert directory.read_claim() == ""
    other = make_directory(tmp_path)
    (other.path / "claim").symlink_to("1 2 boot")
    assert not other.end_unstarted(record())
    assert (other.read_claim(), other.read_exit()) == ("1 2 boot", None)


@pytest.mark.parametrize("what", ["nothing", "reserved", "link", "fifo", "other file"])
def test_a_lost_end_is_written_whatever_stands_in_its_place(
    directory: TaskDirectory, tmp_path: Path, what: str
) -> None:
    precious, path = tmp_path / "precious", directory.path / "exit"
    precious.write_bytes(b"p" * 4096)
    match what:
        case "reserved":
            path.write_bytes(b" " * 4096)
        case "link":
            path.symlink_to(precious)
        case "fifo":
            os.mkfifo(path)
        case "other file":
            os.link(precious, path)
    directory.end_lost(record(exitCode=None))
    assert directory.read_exit() == record(exitCode=None)
    assert precious.read_bytes() == b"p" * 4096


def test_a_lost_end_takes_the_room_that_was_reserved_for_it(directory: TaskDirectory) -> None:
    path = directory.path / "exit"
    path.write_bytes(b" " * 4096)
    before = path.stat().st_ino
    directory.end_lost(record())
    assert path.stat().st_ino == before


@pytest.mark.parametrize(
    "changes",
    [
        {"cause": "because"},
        {"cause": "\ud800"},
        {"sizes": [-1]},
        {"sizes": [1 << 53]},
        {"sizes": "5"},
        {"dropped": [[[0, 1 << 53]]]},
        {"pid": "1"},
        {"survivors": [1]},
        {"exitCode": 256},
        {"startedAt": -1},
        {"endedAt": 253_402_300_800_000},
    ],
    ids=repr,
)
def test_an_end_that_no_keeper_wrote_is_none(
    directory: TaskDirectory, changes: dict[str, Any]
) -> None:
    directory.end_lost(record(**changes))
    assert directory.read_exit() is None


def test_output_sizes_are_those_of_the_files_and_zero_without_one(directory: TaskDirectory) -> None:
    (directory.path / "stdout").write_bytes(b"12345")
    assert directory.output_sizes(("stdout", "stderr")) == (5, 0)


def test_removing_takes_what_belongs_there_and_follows_no_link(
    directory: TaskDirectory, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"p")
    directory.write_spec(spec())
    directory.end_unstarted(record())
    (directory.path / "output").symlink_to(precious)
    directory.remove()
    assert not directory.path.exists()
    assert precious.read_bytes() == b"p"
    directory.remove()  # gone already is as good


@pytest.mark.parametrize("name", ["report.txt", "stdout"])
def test_removing_leaves_what_a_stranger_put_there(directory: TaskDirectory, name: str) -> None:
    directory.write_spec(spec())
    path = directory.path / name
    if name == "stdout":
        path.mkdir()  # in the place of a file of ours
    else:
        path.touch()
    with pytest.raises(OSError, match="not empty"):
        directory.remove()
    assert os.listdir(directory.path) == [name]
