"""Runs calls of a shell session as a keeper does, without one: descriptors, directory, `wait4`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from engine.jobs.shellstate import CallPlan, ShellState, commit, plan_call
from engine.keeper import shell

RUN_LIMIT: Final = 20  # seconds; nothing here takes one


class Result(NamedTuple):
    """`status` as subprocess says it: minus the signal's number, where one ended the shell."""

    status: int
    stdout: bytes
    stderr: bytes


def put(data: bytes, number: int) -> None:
    fd = os.memfd_create("part")
    os.write(fd, data)
    os.dup2(fd, number, inheritable=False)
    os.close(fd)


@contextmanager
def descriptors(plan: CallPlan) -> Iterator[None]:
    """The keeper's descriptors, for one shell."""
    put(plan.prologue, shell.FD_PROLOGUE)
    put(plan.call, shell.FD_CALL)
    put(b"", shell.FD_SINK)
    put(b"", shell.FD_TELL)
    shell.open_scripts()
    try:
        yield
    finally:
        for number in shell.ALL_FDS:
            os.close(number)


@contextmanager
def started(
    argv: list[str], env: Mapping[str, str], cwd: bytes
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        argv,
        env={**env, "PWD": os.fsdecode(cwd)},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes]) -> Result:
    stdout, stderr = process.communicate(timeout=RUN_LIMIT)
    return Result(process.returncode, stdout, stderr)


def run(argv: list[str], env: Mapping[str, str], cwd: bytes) -> Result:
    with started(argv, env, cwd) as process:
        return ended(process)


def run_warm(plan: CallPlan, cwd: bytes) -> Result:
    """As a shell that is started ahead: the call comes while it waits for the word."""
    word, say = os.pipe()
    put(b"", shell.FD_CALL)
    os.dup2(word, shell.FD_WORD, inheritable=False)
    os.close(word)
    try:
        with started(plan.argv, plan.environ, cwd) as process:
            put(plan.call, shell.FD_CALL)
            os.write(say, shell.WORD)
            os.close(say)
            say = -1
            return ended(process)
    finally:
        if say >= 0:
            os.close(say)


class Session:
    """A caller's shell session; `state` is what the last call committed."""

    is_warm = False  # whether its shells are started ahead

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
        with descriptors(plan):
            result = run_warm(plan, cwd) if self.is_warm else run(plan.argv, plan.environ, cwd)
            raw = os.pread(shell.FD_SINK, os.fstat(shell.FD_SINK).st_size, 0)
        # A shell that a signal ended may have dumped on its way; that does not count.
        self.committed = commit(plan, raw) if result.status >= 0 else None
        self.state = self.committed or self.state
        return result
