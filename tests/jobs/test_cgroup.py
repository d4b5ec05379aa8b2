"""Finding and dividing the engine's cgroup, over folders that look as cgroup v2 does.

What the kernel makes of it, `tests/acceptance/test_memory.py` asks the kernel.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.jobs.cgroup import JobCgroups, NoCgroup, own_cgroup, take_cgroup
from engine.jobs.executor import LaunchRefused

UNIFIED = "34 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "25 1 0:22 / /sys rw - sysfs sysfs rw\n"
    "34 25 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    "35 25 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
KEY_LENGTH = 8


@pytest.mark.parametrize(
    ("cgroup", "mounts", "path"),
    [
        ("0::/\n", UNIFIED, "/sys/fs/cgroup"),
        ("0::/a.slice/b.service\n", UNIFIED, "/sys/fs/cgroup/a.slice/b.service"),
        ("4:memory:/x\n0::/y\n", HYBRID, "/sys/fs/cgroup/unified/y"),
        ("0::/a/b\n", UNIFIED.replace(" / /sys", " /a /sys"), "/sys/fs/cgroup/b"),
        ("0::/a\n", UNIFIED.replace(" / /sys", " /a /sys"), "/sys/fs/cgroup"),
        ("0::/y\n", UNIFIED.replace("/fs/cgroup", "/fs/c\\040group"), "/sys/fs/c group/y"),
    ],
)
def test_the_cgroup_of_a_process_is_found_by_its_proc_files(
    cgroup: str, mounts: str, path: str
) -> None:
    assert own_cgroup(cgroup, mounts) == Path(path)


@pytest.mark.parametrize(
    ("cgroup", "mounts", "why"),
    [
        ("4:memory:/x\n", HYBRID, "no cgroup v2 here"),
        ("0::/../elsewhere\n", UNIFIED, "no cgroup v2 here"),
        ("0::/y\n", HYBRID.replace("cgroup2", "cgroup"), "no cgroup v2 is mounted"),
        ("0::/ab\n", UNIFIED.replace(" / /sys", " /a /sys"), "no cgroup v2 is mounted"),
    ],
)
def test_where_there_is_no_cgroup_v2_that_is_said(cgroup: str, mounts: str, why: str) -> None:
    with pytest.raises(NoCgroup) as raised:
        own_cgroup(cgroup, mounts)
    assert str(raised.value) == why


class Tree:
    """A cgroup below a mount point, and the /proc files of a process that is in it."""

    def __init__(self, folder: Path) -> None:
        self.mount, self.proc, self.tasks = folder / "mount", folder / "proc", folder / "tasks"
        self.path = self.mount / "engine.service"
        for made in (self.path, self.proc, self.tasks):
            made.mkdir(parents=True)
        (self.proc / "mountinfo").write_text(f"34 25 0:30 / {self.mount} rw - cgroup2 none rw\n")
        self.enter("/engine.service")
        self.write("cgroup.type", "domain\n")
        self.write("cgroup.controllers", "cpu memory pids\n")
        self.write("cgroup.subtree_control", "")
        self.write("cgroup.procs", f"{os.getpid()}\n")
        self.leaf = self.path / "engine.leaf"
        self.leaf.mkdir()
        (self.leaf / "cgroup.procs").touch()

    def enter(self, path: str) -> None:
        (self.proc / "cgroup").write_text(f"0::{path}\n")

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def control(self) -> str:
        """The last that was said of controllers."""
        return (self.path / "cgroup.subtree_control").read_text()

    def take(self) -> JobCgroups:
        return take_cgroup(self.tasks, str(self.proc))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_an_engine_alone_in_its_cgroup_goes_into_a_leaf_of_it(tree: Tree) -> None:
    cgroups = tree.take()
    assert cgroups.folder == tree.path
    assert (tree.leaf / "cgroup.procs").read_text() == str(os.getpid())
    assert tree.control() == "-memory"  # nobody needs it so far


def test_an_engine_that_was_started_in_the_leaf_divides_the_one_above(tree: Tree) -> None:
    tree.enter("/engine.service/engine.leaf")
    tree.write("cgroup.procs", "")
    assert tree.take().folder == tree.path
    assert (tree.leaf / "cgroup.procs").read_text() == ""
    assert tree.control() == "+memory"


def no_type(tree: Tree) -> None:
    (tree.path / "cgroup.type").unlink()


def no_memory(tree: Tree) -> None:
    tree.write("cgroup.controllers", "cpu pids\n")


def others(tree: Tree) -> None:
    tree.write("cgroup.procs", f"1\n{os.getpid()}\n")


def no_control(tree: Tree) -> None:
    (tree.path / "cgroup.subtree_control").unlink()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (no_type, "{} is the whole machine's"),
        (no_memory, "{} has no memory controller"),
        (others, "other processes are in {}"),
        (no_control, "{} is not delegated"),
    ],
)
def test_a_cgroup_that_is_not_ours_to_divide_is_left_alone(
    tree: Tree, spoil: object, why: str
) -> None:
    assert callable(spoil)
    spoil(tree)
    with pytest.raises(NoCgroup) as raised:
        tree.take()
    assert str(raised.value) == why.format(tree.path)
    assert (tree.leaf / "cgroup.procs").read_text() == ""


async def test_a_job_is_told_its_place_and_the_controller_is_handed_down_meanwhile(
    tree: Tree,
) -> None:
    cgroups = tree.take()
    told = await cgroups.begin("aaaaaa", 1000)
    assert tree.control() == "+memory"
    assert told["cgroup"] == str(tree.path)
    assert told["bytes"] == 1000
    prefix, key, id_ = told["name"].split("-")
    assert (prefix, len(key), id_) == ("job", KEY_LENGTH, "aaaaaa")
    await cgroups.begin("bbbbbb", 1000)
    await cgroups.end("aaaaaa")
    assert tree.control() == "+memory"
    await cgroups.end("bbbbbb")
    assert tree.control() == "-memory"


async def test_what_a_killed_keeper_left_goes_with_the_next_job_and_a_living_ones_stays(
    tree: Tree,
) -> None:
    cgroups = tree.take()
    names = [(await cgroups.begin(id_, 1))["name"] for id_ in ("aaaaaa", "bbbbbb")]
    for name in names:
        (tree.path / name / "made by the job").mkdir(parents=True)
    stranger = tree.path / "job-00000000-aaaaaa"  # of another home
    stranger.mkdir()
    await cgroups.end("aaaaaa")
    assert {path.name for path in tree.path.glob("job-*")} == {names[1], stranger.name}
    await cgroups.end("bbbbbb")
    assert [path.name for path in tree.path.glob("job-*")] == [stranger.name]
    assert tree.control() == "+memory"  # that one may need it


async def test_one_that_is_not_empty_stays_until_it_is(tree: Tree) -> None:
    cgroups = tree.take()
    left = tree.path / (await cgroups.begin("aaaaaa", 1))["name"]
    left.mkdir()
    process = left / "a folder with a file is as busy as a cgroup with a process"
    process.touch()
    await cgroups.end("aaaaaa")
    assert left.exists()
    process.unlink()
    tree.take()
    assert not left.exists()


async def test_a_job_that_is_attached_to_keeps_its_cgroup(tree: Tree) -> None:
    name = (await tree.take().begin("aaaaaa", 1))["name"]
    again = tree.take()
    (tree.path / name).mkdir()
    again.adopt("aaaaaa")
    await again.begin("bbbbbb", 1)
    assert (tree.path / name).exists()


async def test_a_controller_that_is_not_handed_down_refuses_the_job(tree: Tree) -> None:
    cgroups = tree.take()
    (tree.path / "cgroup.subtree_control").unlink()
    with pytest.raises(LaunchRefused) as raised:
        await cgroups.begin("aaaaaa", 1)
    assert str(raised.value) == f"memory_bytes: {tree.path}: No such file or directory"
