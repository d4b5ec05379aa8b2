"""Mirrors `engine/tasks/ahead.py`: task directories made before their calls are accepted."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest
import trio
from tasks.building import BASE

from engine.config import Home
from engine.jobs.directory import Spec
from engine.model import Kind
from engine.tasks.ahead import SPARE, DirectoriesAhead


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.tasks.mkdir()
    return home


def ahead_of(home: Home, *used: str) -> DirectoriesAhead:
    return DirectoriesAhead(home, lambda ids: set(ids) & set(used))


def spec(id_: str) -> Spec:
    return Spec(
        id=id_, caller="ci", kind=Kind.BASH, title="true", order=1, created_at=1, base=BASE,
        command="true",
    )  # fmt: skip


async def test_a_spare_directory_has_its_files_and_a_call_that_takes_it_makes_none(
    home: Home,
) -> None:
    ahead = ahead_of(home)
    with trio.fail_after(5):
        await ahead.refill()
    assert len(os.listdir(home.ahead)) == SPARE == 16
    directory = ahead.take(None, split=False)
    assert {path.name: path.stat().st_size for path in directory.path.iterdir()} == {
        "spec.json": 0, "exit": 4096, "output": 0,
    }  # fmt: skip
    before = {path.stat().st_ino for path in directory.path.iterdir()}
    accepted = ahead.accept(directory, spec(directory.id))
    assert accepted is not None
    assert accepted.path == home.tasks / directory.id
    assert {path.stat().st_ino for path in accepted.path.iterdir()} == before
    assert accepted.read_spec() == spec(directory.id)
    assert accepted.read_exit() is None
    assert accepted.read_claim() is None


async def test_a_call_with_two_outputs_or_no_spare_gets_an_empty_directory(home: Home) -> None:
    ahead = ahead_of(home)
    assert os.listdir(ahead.take(None, split=False).path) == []
    with trio.fail_after(5):
        await ahead.refill()
    assert os.listdir(ahead.take(None, split=True).path) == []


def test_a_reserved_directory_is_for_its_call_alone(home: Home) -> None:
    ahead = ahead_of(home)
    reserved = ahead.reserve()
    assert ahead.take(None, split=False).id != reserved.id
    assert ahead.take("000000", split=False).id != reserved.id
    assert ahead.take(reserved.id, split=False).path == reserved.path
    ahead.give_back(reserved.id)  # it is the call's
    assert reserved.path.is_dir()
    unused = ahead.reserve()
    ahead.give_back(unused.id)
    assert not unused.path.exists()


def test_an_id_that_the_tasks_have_is_not_given_again(home: Home) -> None:
    ahead = ahead_of(home)
    first = ahead.take(None, split=False)
    (home.tasks / first.id).mkdir()
    (home.tasks / first.id / "spec.json").write_text("another's")
    assert ahead.accept(first, spec(first.id)) is None
    assert (home.tasks / first.id / "spec.json").read_text() == "another's"
    assert os.listdir(home.ahead) == []


async def test_an_id_of_a_task_that_is_gone_is_not_given_again(home: Home) -> None:
    asked: list[str] = []

    def which_had(ids: Collection[str]) -> set[str]:
        asked.extend(ids)
        return set(ids) & {asked[0]}

    ahead = DirectoriesAhead(home, which_had)
    with trio.fail_after(5):
        await ahead.refill()
    assert sorted(os.listdir(home.ahead)) == sorted(asked[1:])
    assert len(asked) == SPARE
    taken = {ahead.take(None, split=False).id for _ in range(SPARE)}
    assert taken == set(asked[1:])


def test_what_an_earlier_engine_left_is_cleared_away_at_the_start(home: Home) -> None:
    left = ahead_of(home).reserve()
    (home.ahead / "stranger").write_text("x")
    (home.ahead / "link").symlink_to(home.path)
    ahead_of(home)
    assert os.listdir(home.ahead) == []
    assert not left.path.exists()
    assert home.tasks.is_dir()


def test_a_spec_that_cannot_be_written_leaves_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = ahead_of(home)
    directory = ahead.take(None, split=False)

    def refuse(_spec: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(msgspec.json, "encode", refuse)
    with pytest.raises(OSError, match="No space left"):
        ahead.accept(directory, spec(directory.id))
    assert os.listdir(home.ahead) == []
    assert os.listdir(home.tasks) == [".ahead"]


async def test_a_disk_that_takes_no_spare_leaves_calls_to_make_their_own(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = ahead_of(home)

    def refuse(_folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.tasks.ahead.make_spare", refuse)
    with trio.fail_after(5):
        await ahead.refill()
    assert ahead.take(None, split=False).path.is_dir()


async def test_a_disk_without_room_has_no_spare_directories_made(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = ahead_of(home)
    monkeypatch.setattr("engine.tasks.ahead.lack_of_room", lambda _path: "the disk is full")
    with trio.fail_after(5):
        await ahead.refill()
    assert os.listdir(home.ahead) == []
