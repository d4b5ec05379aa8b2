"""A process started by fork and exec is as one started by posix_spawn(3); only where differs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.keeper.birth import NoEntrance, spawn_inside

SEEN = """
import json, os, signal, sys
ignored = [int(n) for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN]
print(json.dumps([os.getsid(0) == os.getpid(), sorted(os.listdir("/proc/self/fd")), ignored,
    sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))), sys.argv[1:], dict(os.environ)
    , sys.stdin.read()]))
"""
PROGRAM = os.path.realpath(sys.executable)


@pytest.fixture
def entrance(tmp_path: Path) -> str:
    path = tmp_path / "cgroup.procs"
    path.touch()
    return str(path)


def run(start: Callable[..., int], tmp_path: Path) -> tuple[str, int]:
    """What the program says of itself, and its status."""
    out, into = tmp_path / "out", tmp_path / "in"
    into.write_text("typed")
    with open(out, "wb") as file:
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_DUP2, file.fileno(), 1),
            (os.POSIX_SPAWN_DUP2, file.fileno(), 2),
            (os.POSIX_SPAWN_OPEN, 0, str(into), os.O_RDONLY, 0),
        ]
        argv = ["python", "-c", SEEN, "ü", "\udc80"]
        pid = start(PROGRAM, argv, {"A": "b\udc80", "LC_ALL": "C.UTF-8"}, actions)
    _pid, status = os.waitpid(pid, 0)
    return out.read_text(), status


def test_nothing_tells_a_process_how_it_was_started(tmp_path: Path, entrance: str) -> None:
    import signal

    def spawn(
        program: str, argv: list[str], env: dict[str, str], actions: list[tuple[Any, ...]]
    ) -> int:
        defaults = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=defaults,
        )

    def inside(*args: Any) -> int:
        return spawn_inside(entrance, *args)

    forked, spawned = run(inside, tmp_path), run(spawn, tmp_path)
    assert forked == spawned
    assert forked[1] == 0
    assert '"typed"' in forked[0]


def test_the_child_enters_before_it_is_the_program(entrance: str) -> None:
    pid = spawn_inside(entrance, "/bin/true", ["true"], {}, [])
    os.waitpid(pid, 0)
    assert Path(entrance).read_text() == "0"  # the kernel takes 0 for whoever writes it


def children() -> set[str]:
    """Those of this process, waited for or not: it may have some that are no business of ours."""
    return {
        pid
        for thread in os.listdir("/proc/self/task")
        for pid in Path(f"/proc/self/task/{thread}/children").read_text().split()
    }


def test_what_is_no_program_leaves_no_child(entrance: str) -> None:
    before = children()
    for program, error in (("/no/such", FileNotFoundError), ("/etc/passwd", PermissionError)):
        with pytest.raises(error):
            spawn_inside(entrance, program, ["x"], {}, [])
    assert children() == before


def test_a_cgroup_that_lets_nobody_in_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spawn_inside(str(tmp_path / "none"), "/bin/true", ["true"], {}, [])
    with pytest.raises(NoEntrance):
        spawn_inside("/dev/full", "/bin/true", ["true"], {}, [])


@pytest.mark.parametrize(
    ("argv", "env"),
    [(["a\0b"], {}), (["a"], {"A": "\0"}), (["a"], {"": "b"}), (["a"], {"a=b": "c"})],
)
def test_what_no_program_can_be_given_is_refused_before_the_fork(
    entrance: str, argv: list[str], env: dict[str, str]
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 # as os.posix_spawn raises it
        spawn_inside(entrance, "/bin/true", argv, env, [])
    assert Path(entrance).read_text() == ""
