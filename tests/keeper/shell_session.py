"""Runs calls of a shell session as a keeper does, without one: descriptors, directory, `wait4`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from engine.jobs.shellstate import ShellState, commit, plan_call
from engine.keeper import shell

RUN_LIMIT: Final = 20  # seconds; nothing here takes one


class Result(NamedTuple):
    """`status` as subprocess says it: minus the signal's number, where one ended the shell."""

    status: int
    stdout: bytes
    stderr: bytes


@contextmanager
def descriptors(prologue: bytes) -> Iterator[None]:
    """The keeper's descriptors, for one shell."""
    for data, number in ((prologue, shell.FD_PROLOGUE), (b"", shell.FD_SINK)):
        fd = os.memfd_create("part")
        os.write(fd, data)
        os.dup2(fd, number, inheritable=False)
        os.close(fd)
    shell.open_scripts()
    try:
        yield
    finally:
        for number in (shell.FD_PROLOGUE, shell.FD_EXIT, shell.FD_SINK):
            os.close(number)


def run(argv: list[str], env: Mapping[str, str], cwd: bytes) -> Result:
    done = subprocess.run(
        argv,
        env={**env, "PWD": os.fsdecode(cwd)},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=RUN_LIMIT,
        start_new_session=True,
    )
    return Result(done.returncode, done.stdout, done.stderr)


class Session:
    """A caller's shell session; `state` is what the last call committed."""

    def __init__(self, cwd: Path, base: Mapping[str, str], **defaults: str) -> None:
        self.start, self.base, self.defaults = os.fsencode(cwd), base, defaults
        self.state: ShellState | None = None
        self.committed: ShellState | None = None  # of the last call; None: it left nothing

    def call(self, command: str | bytes, env: Mapping[str, str] | None = None) -> Result:
        plan = plan_call(
            self.state,
            command.encode() if isinstance(command, str) else command,
            session=True,
            base=self.base,
            env=env or {},
            defaults=self.defaults,
            identity={"ENGINE_TASK_ID": "t1"},
        )
        cwd = self.start if self.state is None else self.state.directory
        while not os.path.isdir(cwd):
            cwd = os.path.dirname(cwd)
        with descriptors(plan.prologue):
            result = run(plan.argv, plan.environ, cwd)
            raw = os.pread(shell.FD_SINK, os.fstat(shell.FD_SINK).st_size, 0)
        # A shell that a signal ended may have dumped on its way; that does not count.
        self.committed = commit(plan, raw) if result.status >= 0 else None
        self.state = self.committed or self.state
        return result
