"""Mirrors `engine/cli/checks.py`."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from engine.cli import checks
from engine.cli.checks import Finding

MOUNTS = (
    "22 1 0:21 / /proc rw - proc proc rw\n"
    "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "30 27 0:40 / {}/far rw - nfs4 server:/x rw\n"
    "31 27 0:41 / {}/ram\\040disk rw - tmpfs tmpfs rw\n"
)


@pytest.fixture
def mounts(tmp_path: Path) -> str:
    for name in ("far", "ram disk", "farther"):
        (tmp_path / name).mkdir()
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS.format(tmp_path, tmp_path))
    return str(path)


def test_a_home_that_is_ours_and_closed_is_well(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "engine.json").touch(0o600)
    right = Finding("home", "ok", f"{home}, yours, closed to other users")
    assert list(checks.look_at_home(str(home))) == [right]


def test_what_other_users_may_look_into_is_named_with_its_mend(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    for name in ("engine.json", "human.token"):
        (home / name).touch()
        (home / name).chmod(0o640)
    assert list(checks.look_at_home(str(home))) == [
        Finding("home", "bad", f"{home} is open to other users (mode 755)", f"chmod 700 {home}"),
        *(
            Finding(
                "home",
                "bad",
                f"{home}/{name} is open to other users (mode 640)",
                f"chmod 600 {home}/{name}",
            )
            for name in ("engine.json", "human.token")
        ),
    ]


def test_a_home_that_is_missing_is_a_note_and_a_file_is_no_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    [finding] = checks.look_at_home(str(home))
    assert finding == Finding("home", "note", f"{home} is not made yet", "engine run TEXT makes it")
    home.touch()
    [finding] = checks.look_at_home(str(home))
    assert (finding.state, finding.text) == ("bad", f"{home} is no folder")


def test_another_users_home_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    [finding] = checks.look_at_home(str(tmp_path))
    assert (finding.state, finding.text) == (
        "bad",
        f"{tmp_path} belongs to uid {owner}, you are {owner + 1}",
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [("far", "nfs4"), ("farther", "ext4"), ("ram disk", "tmpfs"), ("far/home", "nfs4")],
)
def test_the_file_system_is_that_of_the_nearest_mount(
    tmp_path: Path, mounts: str, name: str, kind: str
) -> None:
    assert checks.file_system(str(tmp_path / name), mounts) == kind
    assert checks.file_system(str(tmp_path / name), mounts + "-none") is None


def test_a_network_file_system_is_bad_and_one_in_memory_worth_a_note(
    tmp_path: Path, mounts: str
) -> None:
    for name, state in (("far", "bad"), ("ram disk", "note"), ("farther", "ok")):
        home = str(tmp_path / name / "not made yet")
        files, disk = checks.look_at_disk(home, 0, mounts)
        assert (files.check, files.state, disk.state) == ("files", state, "ok")


def test_a_disk_with_less_than_new_jobs_need_is_bad(tmp_path: Path, mounts: str) -> None:
    _, disk = checks.look_at_disk(str(tmp_path), 1 << 60, mounts)
    assert disk.state == "bad"
    assert disk.text.endswith(": under 1048576 TiB new jobs are refused")
    assert disk.mend == "free some space, or lower min_free_bytes in engine.toml"


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text("#!/bin/sh\n" + text)
    (folder / name).chmod(0o700)


def test_bash_has_to_be_there_and_new_enough(tmp_path: Path) -> None:
    program(tmp_path, "python3", "")
    found = {f.check: f for f in checks.look_at_programs(str(tmp_path))}
    assert found["bash"] == Finding("bash", "bad", "no bash on PATH", "install it")
    program(tmp_path, "bash", "echo '3.2.57(1)-release 3 2'")
    found = {f.check: f for f in checks.look_at_programs(str(tmp_path))}
    assert found["bash"].state == "bad"
    assert found["bash"].mend == "install 4.4 or newer"
    program(tmp_path, "bash", "exit 1")
    assert checks.bash_version(str(tmp_path / "bash")) == ("does not say its version", (0, 0))
    states = [f.state for f in checks.look_at_programs(os.environ["PATH"])]
    assert states[0] == states[-1] == "ok"


def test_no_python3_on_the_path_is_a_note(tmp_path: Path) -> None:
    notes = [f for f in checks.look_at_programs(str(tmp_path)) if f.state == "note"]
    assert [f.text for f in notes] == ["no python3 on PATH"]


@pytest.mark.parametrize(
    ("hard", "state"), [(100, "bad"), (1_024, "note"), (4_096, "ok"), (-1, "ok")]
)
def test_few_open_files_are_noted_and_too_few_are_bad(
    monkeypatch: pytest.MonkeyPatch, hard: int, state: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (hard, hard))
    files, processes = checks.look_at_limits()
    assert files.state == state
    assert processes.state == ("note" if 0 <= hard < 1_024 else "ok")


def test_a_cgroup_counts_where_it_is_ours_to_divide(tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    own = root / "user.slice" / "engine.service"
    own.mkdir(parents=True)
    (proc / "41").mkdir(parents=True)

    def look() -> Finding:
        return checks.look_at_cgroup(41, str(root), str(proc))

    assert look().text.startswith("no cgroup v2: ")
    (proc / "41" / "cgroup").write_text("1:name=systemd:/\n0::/user.slice/engine.service\n")
    (own / "cgroup.controllers").write_text("cpu memory pids\n")
    assert look().state == "note"
    assert look().text.startswith("/user.slice/engine.service is not delegated: ")
    (own / "cgroup.subtree_control").touch()
    assert look().state == "note"  # as root may write that of the kernel's own root
    (own / "cgroup.type").touch()
    text = "/user.slice/engine.service, delegated (cpu memory pids)"
    assert look() == Finding("cgroup", "ok", text)
    inside = "0::/user.slice/engine.service/engine.leaf\n"  # where one is that divides it
    (proc / "41" / "cgroup").write_text(inside)
    assert look() == Finding("cgroup", "ok", text)
    (own / "cgroup.controllers").write_text("cpu\n")
    assert look().text == "/user.slice/engine.service has no memory controller"


def test_only_what_is_bad_is_to_be_mended() -> None:
    note, bad = Finding("a", "note", "x"), Finding("a", "bad", "x")
    assert checks.summary([note]) == "all is well"
    assert checks.summary([note, bad]) == "1 thing to mend"
    assert checks.summary([bad, bad]) == "2 things to mend"
