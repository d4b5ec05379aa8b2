"""The cgroup of one job, over a folder with the files that the kernel would make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keeper.harness import Nursery, bash, nursery, read_exit

from engine.keeper.memory import JobMemory

FILES = ("memory.max", "memory.swap.max", "memory.oom.group", "memory.events", "memory.peak")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job"
    path.mkdir()
    for name in FILES:
        (path / name).touch()
    return path


def made(job: Path, limit: int = 4096) -> JobMemory:
    return JobMemory({"cgroup": str(job.parent), "name": job.name, "bytes": limit})


def test_the_limit_holds_for_memory_and_swap_and_ends_the_job_whole(job: Path) -> None:
    memory = made(job, 1 << 30)
    written = [(job / name).read_text() for name in FILES[:3]]
    assert written == ["1073741824", "0", "1"]
    assert memory.entrance == f"{job}/cgroup.procs"


def test_a_kernel_that_does_not_count_swap_limits_memory_alone(job: Path) -> None:
    (job / "memory.swap.max").unlink()
    (job / "memory.oom.group").unlink()
    made(job)
    assert (job / "memory.max").read_text() == "4096"


def test_a_cgroup_without_the_controller_is_an_error_and_is_not_left(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        made(tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_kills_and_peak_are_what_the_kernel_counted(job: Path) -> None:
    memory = made(job)
    (job / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\n")
    (job / "memory.peak").write_text("4096\n")
    assert memory.measure() == {"oomKills": 3, "maxRssBytes": 4096}


def test_what_the_kernel_does_not_tell_is_not_known(job: Path) -> None:
    memory = made(job)
    (job / "memory.events").unlink()
    (job / "memory.peak").unlink()
    assert memory.measure() == {"oomKills": None, "maxRssBytes": None}


# -- of a job below a keeper -----------------------------------------------------------------------


@pytest.fixture
def mother(tmp_path: Path) -> Iterator[Nursery]:
    home = tmp_path / "home"
    home.mkdir()
    with nursery(home) as mother:
        yield mother


def ended(mother: Nursery, job: Path, text: str, **changes: Any) -> dict[str, Any]:
    """The record of a job in this cgroup; what the keeper was told by then is in its file."""
    (job / "cgroup.procs").touch()
    place = {"cgroup": str(job.parent), "name": job.name, "bytes": 4096}
    directory = mother.directory()
    keeper = mother.keeper()
    keeper.send(bash(directory, text, memory=place, **changes))
    record: dict[str, Any] = keeper.expect("ended")["record"]
    assert read_exit(directory) == record
    keeper.expect("gone")
    return record


@pytest.mark.parametrize(
    ("text", "kills", "cause", "code", "number"),
    [
        ("exit 0", 0, "exit", 0, None),
        ("exit 3", 0, "exit", 3, None),
        ("kill -9 $$", 0, "signal", None, 9),
        ("kill -9 $$", 1, "out_of_memory", None, 9),
        ("exit 137", 1, "out_of_memory", 137, None),
        ("exit 2", 1, "out_of_memory", 2, None),
        ("exit 0", 1, "exit", 0, None),
    ],
)
def test_a_kill_for_want_of_memory_is_the_cause_of_every_end_but_a_good_one(
    mother: Nursery, job: Path, text: str, kills: int, cause: str, code: int | None, number: int
) -> None:
    (job / "memory.events").write_text(f"oom_kill {kills}\n")
    (job / "memory.peak").write_text("4000\n")
    record = ended(mother, job, text)
    assert (record["cause"], record["exitCode"], record["signal"]) == (cause, code, number)
    assert (record["oomKills"], record["maxRssBytes"]) == (kills, 4000)
    assert (job / "cgroup.procs").read_text() == "0"


def test_a_job_that_is_killed_whole_leaves_nobody_though_one_may_still_be_dying(
    mother: Nursery, job: Path
) -> None:
    (job / "memory.events").write_text("oom_kill 2\n")
    (job / "cgroup.procs").touch()
    text = "sleep 600 & kill -9 $$"  # to be there is as far as the test can bring a dying one
    left = {}
    for name, is_whole in (("aaaaaa", True), ("bbbbbb", False)):
        if not is_whole:
            (job / "memory.oom.group").unlink()
        place = {"cgroup": str(job.parent), "name": job.name, "bytes": 4096}
        keeper = mother.keeper()
        keeper.send(bash(mother.directory(name), text, memory=place))
        left[name] = len(keeper.expect("ended")["record"]["survivors"])
        keeper.send({"op": "cancel", "grace": 0})
        keeper.expect("gone")
    assert left == {"aaaaaa": 0, "bbbbbb": 1}


def test_a_deadline_that_began_before_is_the_cause_all_the_same(mother: Nursery, job: Path) -> None:
    (job / "memory.events").write_text("oom_kill 1\n")
    record = ended(mother, job, "exec sleep 600", deadline=0.1)
    assert record["cause"] == "deadline"


def test_a_job_without_a_limit_says_nothing_of_memory(mother: Nursery) -> None:
    keeper = mother.keeper()
    keeper.send(bash(mother.directory(), "true"))
    assert not {"oomKills", "maxRssBytes"} & keeper.expect("ended")["record"].keys()


def test_a_cgroup_that_cannot_be_made_gives_the_job_back(mother: Nursery, tmp_path: Path) -> None:
    directory = mother.directory()
    place = {"cgroup": str(tmp_path / "none"), "name": "job", "bytes": 4096}
    keeper = mother.keeper()
    keeper.send(bash(directory, "true", memory=place))
    refused = keeper.expect("refused")
    assert refused["message"] == "memory_bytes: No such file or directory"
    assert list(directory.iterdir()) == []
