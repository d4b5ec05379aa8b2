"""Mirrors `engine/tasks/pythons.py`, over real keepers and interpreters."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from engine.config import Home
from engine.jobs.channel import Channel
from engine.jobs.directory import Base, Spec, TaskDirectory
from engine.jobs.executor import LaunchRefused, Outcome
from engine.jobs.local import LocalExecutor
from engine.jobs.localjob import wait_dead
from engine.jobs.pythonlocal import InterpreterFailed, PythonSession, SessionOver
from engine.jobs.shellstate import ShellState, encode_state
from engine.keeper import processes
from engine.model import Kind, Status
from engine.tasks.infolder import record_of
from engine.tasks.pythons import OpeningCancelled, PythonSessions
from engine.tasks.sessions import ShellSessions
from engine.tasks.starting import Starter
from engine.tasks.task import Listener, Task

LIMIT = 20.0  # seconds for any wait in a test
ENV = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


class Built:
    """Sessions over a real executor; `pythons` may be made anew, as by another engine."""

    def __init__(self, path: Path, nursery: trio.Nursery) -> None:
        self.home, self.nursery = Home(path), nursery
        for folder in (self.home.tasks, self.home.sessions, self.home.keepers):
            folder.mkdir(parents=True)
        self.executor = LocalExecutor(self.home.keepers, self.home.keepers_log, umask=0o022)
        self.most = 64
        self.pythons = self.another()
        self._count = 0

    def another(self, nursery: trio.Nursery | None = None) -> PythonSessions:
        starter = Starter(str(self.home.path), 1 << 30)
        shells = ShellSessions(self.home.sessions)
        return PythonSessions(
            self.home, self.executor, starter, shells, nursery or self.nursery, most=self.most
        )

    def task(self, code: str, caller: str = "ci", **more: Any) -> tuple[Task, Spec]:
        self._count += 1
        facts: dict[str, Any] = {"base": Base(cwd="/", env=ENV), "session": True, **more}
        spec = Spec(
            id=f"a{self._count:05}",
            caller=caller,
            kind=Kind.CODE,
            title="x",
            order=self._count,
            created_at=1,
            code=code,
            **facts,
        )
        directory = TaskDirectory(self.home.tasks, spec.id)
        directory.path.mkdir()
        return Task(record_of(spec), directory, spec), spec

    async def run(self, code: str, caller: str = "ci", **more: Any) -> dict[str, Any]:
        """The record of the end of a call."""
        task, spec = self.task(code, caller, **more)
        return await self.watch(task, await self.pythons.launch(task, spec))

    async def watch(self, task: Task, job: Any) -> dict[str, Any]:
        ends: list[dict[str, Any]] = []

        def ignore(task: Task, news: object) -> None:
            return

        def ended(task: Task, record: dict[str, Any], state: bytes) -> None:
            ends.append(record)

        await job.watch(Listener(task, ignore, ignore, ignore, ended, lambda *_: None))
        (record,) = ends
        return record


@asynccontextmanager
async def built(path: Path) -> AsyncIterator[Built]:
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            built = Built(path / "home", nursery)
            try:
                yield built
            finally:
                await built.pythons.close_all()
                built.executor.close()
            nursery.cancel_scope.cancel()
    assert built.home.keepers_log.read_text() == ""


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """What a call reads a line from once the test writes it."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


async def interpreter_of(it: Built, caller: str) -> str:
    """Who runs the caller's calls."""
    return processes.identity(int((await it.run("import os; os.getpid()", caller))["value"]))


async def test_a_session_is_opened_once_and_used_from_then_on(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        assert (await it.run("x = 1"))["value"] is None
        assert (await it.run("x"))["value"] == "1"
        assert (await it.run("x", "other"))["error"]["type"] == "NameError"
        assert it.pythons.has("ci")
        assert not it.pythons.has("nobody")


async def test_another_engine_finds_it_by_its_link(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        await it.run("x = 1")
        it.pythons = it.another()
        assert it.pythons.has("ci")
        assert (await it.run("x"))["value"] == "1"


async def test_one_that_has_died_is_replaced_before_it_has_the_call(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        await it.run("x = 1; import os; os._exit(0)")
        assert (await it.run("'x' in globals()"))["value"] == "False"


async def test_calls_with_sessions_that_all_die_first_are_refused_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*_: Any) -> None:
        raise SessionOver

    async with built(tmp_path) as it:
        monkeypatch.setattr(PythonSession, "run", run)
        with pytest.raises(LaunchRefused, match="5 python sessions died"):
            await it.run("1")


@pytest.mark.parametrize("session", [True, False])
async def test_a_keeper_that_dies_before_its_session_is_ready_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: bool
) -> None:
    async with built(tmp_path) as it:
        fake = _DeadKeepers(it.executor, deaths=2)
        monkeypatch.setattr(it.executor, "ask_new_keeper", fake.ask)
        assert (await it.run("1 + 1", session=session))["value"] == "2"
        assert fake.asked == 3


@pytest.mark.parametrize("session", [True, False])
async def test_a_call_whose_keepers_all_die_before_they_are_ready_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: bool
) -> None:
    async with built(tmp_path) as it:
        fake = _DeadKeepers(it.executor, deaths=100)
        monkeypatch.setattr(it.executor, "ask_new_keeper", fake.ask)
        with pytest.raises(LaunchRefused, match="5 python sessions died"):
            await it.run("1 + 1", session=session)
        assert fake.asked == 5


async def test_what_a_keeper_left_that_was_killed_while_it_made_its_link_goes_with_the_next(
    tmp_path: Path,
) -> None:
    async with built(tmp_path) as it:
        folder = it.home.sessions / "ci"
        folder.mkdir()
        (folder / "python.0123abcd").symlink_to("1 2 3")
        await it.run("1")
        assert [path.name for path in folder.iterdir()] == ["python"]


class _DeadKeepers:
    """The first `deaths` keepers are killed, or their mother, as soon as they are asked for."""

    def __init__(self, executor: LocalExecutor, deaths: int) -> None:
        self._ask, self._deaths, self.asked = executor.ask_new_keeper, deaths, 0

    async def ask(self, kind: bytes, message: dict[str, Any]) -> Channel:
        self.asked += 1
        if self.asked > self._deaths:
            return await self._ask(kind, message)
        ours, theirs = socket.socketpair()
        theirs.close()
        return Channel(ours)


async def test_a_failed_start_is_told_and_tried_again_by_the_next_call(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        nowhere = Base(cwd="/", env={"PATH": "/nowhere"})
        with pytest.raises(InterpreterFailed) as failed:
            await it.run("1", base=nowhere)
        assert failed.value.exit_code == 127
        assert (await it.run("1"))["value"] == "1"


async def test_a_folder_that_cannot_be_made_refuses_the_call(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        (it.home.sessions / "ci").write_text("in the way")
        with pytest.raises(LaunchRefused):
            await it.run("1")
        (it.home.sessions / "ci").unlink()


async def test_a_call_to_a_session_that_runs_one_unknown_to_us_waits_for_its_end(
    tmp_path: Path,
) -> None:
    async with built(tmp_path) as it:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        task, spec = it.task(f"open({str(fifo)!r}).readline()")
        job = await it.pythons.launch(task, spec)
        it.nursery.start_soon(it.watch, task, job)
        it.pythons = it.another()
        waiting, its_spec = it.task("2")
        with trio.move_on_after(0.2) as scope:
            await it.pythons.launch(waiting, its_spec)
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                while waiting.opening is None:
                    await trio.lowlevel.checkpoint()
                waiting.opening.cancel()

            nursery.start_soon(cancel)
            with pytest.raises(OpeningCancelled):
                await it.pythons.launch(waiting, its_spec)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, lambda: fifo.write_text("\n"))
            assert (await it.run("3"))["value"] == "3"


async def test_a_start_goes_on_when_the_call_that_began_it_is_cancelled(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        task, spec = it.task("1")
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                while task.opening is None:
                    await trio.lowlevel.checkpoint()
                task.opening.cancel()

            nursery.start_soon(cancel)
            with pytest.raises(OpeningCancelled):
                await it.pythons.launch(task, spec)
        assert task.opening is None
        assert task.directory.read_claim() is None
        assert it.pythons.has("ci")
        assert (await it.run("2"))["value"] == "2"


async def test_a_reset_while_it_starts_has_it_closed_and_the_call_gets_another(
    tmp_path: Path,
) -> None:
    async with built(tmp_path) as it:
        records: list[dict[str, Any]] = []

        async def call() -> None:
            records.append(await it.run("import os; os.getpid()"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            while not it.pythons.has("ci"):
                await trio.lowlevel.checkpoint()
            await it.pythons.reset("ci")
        (pids,) = [record["value"] for record in records]
        assert (await it.run("import os; os.getpid()"))["value"] == pids
        sockets = [name for name in os.listdir(it.home.keepers) if name.endswith(".sock")]
        assert len(sockets) == 1


async def test_a_caller_that_is_gone_leaves_nothing(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        await it.run("1", "anon-1")
        await it.run("1", "ci")
        assert it.pythons.strangers() == ["anon-1"]
        await it.pythons.forget("anon-1")
        await it.pythons.forget("anon-2")
        assert os.listdir(it.home.sessions) == ["ci"]


async def test_a_directory_that_is_gone_is_noted_for_the_reply(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        task, spec = it.task("1", base=Base(cwd="/nowhere/at/all", env=ENV))
        record = await it.watch(task, await it.pythons.launch(task, spec))
        assert (task.record.cwd, record["cwd"]) == ("/nowhere/at/all", "/")
        task, spec = it.task("1", base=Base(cwd="/nowhere/at/all", env=ENV))
        await it.watch(task, await it.pythons.launch(task, spec))
        assert (task.record.cwd, task.record.status) == (None, Status.QUEUED)  # an old session


async def test_the_call_that_follows_a_session_that_died_idle_is_told_once(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        interpreter = await interpreter_of(it, "ci")
        os.kill(int(interpreter.split()[0]), signal.SIGKILL)
        assert await wait_dead(interpreter, LIMIT)
        told = []
        for _ in range(2):
            task, spec = it.task("1")
            await it.watch(task, await it.pythons.launch(task, spec))
            told.append(task.record.session_reset)
        assert told == [True, False]


async def test_nobody_is_told_of_a_session_that_was_reset_or_died_in_a_call(
    tmp_path: Path,
) -> None:
    async with built(tmp_path) as it:
        await it.run("1")
        await it.pythons.reset("ci")
        task, spec = it.task("import os; os._exit(1)")
        record = await it.watch(task, await it.pythons.launch(task, spec))
        assert (task.record.session_reset, record["sessionReset"]) == (False, True)
        task, spec = it.task("1")
        await it.watch(task, await it.pythons.launch(task, spec))
        assert not task.record.session_reset


async def test_a_reset_after_a_session_died_idle_leaves_nothing_to_tell(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        pid = int((await it.run("import os; os.getpid()"))["value"])
        os.kill(pid, signal.SIGKILL)
        while os.readlink(it.home.sessions / "ci" / "python") != "lost":
            await trio.lowlevel.checkpoint()
        await it.pythons.forget("ci")
        assert os.listdir(it.home.sessions) == []


async def test_a_keeper_that_is_killed_in_a_call_is_told_of_by_that_alone(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        task, spec = it.task("import time; time.sleep(600)")
        job = await it.pythons.launch(task, spec)
        claim = task.directory.read_claim()
        assert claim is not None
        os.kill(int(claim.split()[0]), signal.SIGKILL)
        assert await job.watch(Listener(task, *[lambda *_: None] * 5)) is Outcome.BROKEN
        task, spec = it.task("1")
        await it.watch(task, await it.pythons.launch(task, spec))
        assert not task.record.session_reset


async def test_of_more_sessions_than_may_be_the_longest_idle_goes(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        it.most = 2
        it.pythons = it.another()
        known = {name: await interpreter_of(it, name) for name in ("a", "b")}
        await it.run("1", "a")
        known["c"] = await interpreter_of(it, "c")
        assert await wait_dead(known["b"], LIMIT)
        assert [await interpreter_of(it, name) for name in ("a", "c")] == [known["a"], known["c"]]


async def test_sessions_that_an_engine_before_us_had_count_and_go_first(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        known = {name: await interpreter_of(it, name) for name in ("a", "b")}
        it.most = 2
        it.pythons = it.another()
        assert await interpreter_of(it, "a") == known["a"]
        await interpreter_of(it, "c")
        assert await wait_dead(known["b"], LIMIT)
        assert await interpreter_of(it, "a") == known["a"]


async def test_a_session_in_use_is_not_closed_for_another(tmp_path: Path, fifo: Path) -> None:
    async with built(tmp_path) as it:
        it.most = 1
        it.pythons = it.another()
        task, spec = it.task(f"x = open({str(fifo)!r}).readline()", "a")
        job = await it.pythons.launch(task, spec)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(it.watch, task, job)
            other = await interpreter_of(it, "b")
            await trio.to_thread.run_sync(lambda: fifo.write_text("in\n"))
        assert await wait_dead(other, LIMIT)  # there is one too many once both are idle
        assert (await it.run("x", "a"))["value"] == "'in\\n'"


async def test_a_session_used_by_a_call_of_an_engine_before_us_is_not_closed(
    tmp_path: Path, fifo: Path
) -> None:
    async with built(tmp_path) as it:
        task, spec = it.task(f"x = open({str(fifo)!r}).readline()", "a")
        job = await it.pythons.launch(task, spec)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(it.watch, task, job)
            it.most = 1
            async with trio.open_nursery() as closing:  # left when nothing is being closed
                it.pythons = it.another(closing)
                await it.run("1", "b")
            it.most = 64
            it.pythons = it.another()
            await trio.to_thread.run_sync(lambda: fifo.write_text("in\n"))
        assert (await it.run("x", "a"))["value"] == "'in\\n'"


async def test_a_new_interpreter_is_that_of_the_callers_shell(tmp_path: Path) -> None:
    async with built(tmp_path) as it:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "python3").write_text(f'#!/bin/sh\nexport OWN=1\nexec {sys.executable} "$@"\n')
        (folder / "python3").chmod(0o755)
        path = f"{folder}:{ENV['PATH']}"
        state = ShellState(
            directory=b"/",
            umask=b"0022",
            options=(),
            shell_options=(),
            posix=None,
            aliases=b"",
            variables={b"PATH": f'declare -x PATH="{path}"'.encode()},
            functions=(),
            foreign=(),
            digest=b"",
        )
        (it.home.sessions / "ci").mkdir()
        (it.home.sessions / "ci" / "shell").write_bytes(encode_state(state))
        show = "import os; os.environ.get('OWN'), os.environ['PATH']"
        assert (await it.run(show))["value"] == repr(("1", path))
        assert (await it.run("import os; os.environ.get('OWN')", "other"))["value"] is None
