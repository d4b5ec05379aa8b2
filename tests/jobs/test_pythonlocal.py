"""Mirrors `engine/jobs/pythonlocal.py`: real session keepers and interpreters, under trio."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from engine.jobs.directory import TaskDirectory
from engine.jobs.executor import LaunchRefused, Outcome
from engine.jobs.local import LocalExecutor
from engine.jobs.localjob import LocalJob, wait_dead
from engine.jobs.pythonlocal import (
    CodeOrder,
    InterpreterFailed,
    PythonOrder,
    PythonSession,
    SessionBusy,
    SessionOver,
    find_session,
    forget_lost,
    is_lost_at,
    open_session,
)
from engine.keeper import processes

LIMIT = 20.0  # seconds for anything here
STUBBORN = (
    "import signal, time\n"
    "for n in signal.valid_signals() - {9, 19}: signal.signal(n, signal.SIG_IGN)\n"
    "time.sleep(600)"
)
ENV = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


class Listener:
    """Notes the news, and lets a test wait for some of it."""

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.blocked: list[str | None] = []
        self.ended: list[dict[str, Any]] = []
        self.outcome: Outcome | None = None
        self._changed = trio.Event()

    def on_started(self, news: dict[str, Any]) -> None:
        self.started.append(news)
        self._tell()

    def on_grew(self, news: dict[str, Any]) -> None:
        self.sizes = news["sizes"]
        self._tell()

    def on_blocked(self, category: str | None) -> None:
        self.blocked.append(category)
        self._tell()

    def on_ended(self, record: dict[str, Any], state: bytes) -> None:
        assert state == b""
        self.ended.append(record)
        self._tell()

    def on_settled(self, news: dict[str, Any], state: bytes) -> None:
        raise AssertionError("code has no shell")

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(LIMIT):
            while not condition():
                await self._changed.wait()

    async def watch(self, job: LocalJob) -> None:
        self.outcome = await job.watch(self)
        self._tell()


class Home:
    """The folders of a home, and what serves it."""

    def __init__(self, path: Path) -> None:
        self.tasks, self.sockets, self.log = path / "tasks", path / "keepers", path / "log"
        self.tasks.mkdir()
        self.sockets.mkdir()
        self.link = path / "python"
        self.executors: list[LocalExecutor] = []
        self._count = 0

    def executor(self) -> LocalExecutor:
        executor = LocalExecutor(self.sockets, self.log, umask=0o022)
        self.executors.append(executor)
        return executor

    def directory(self) -> TaskDirectory:
        self._count += 1
        directory = TaskDirectory(self.tasks, f"a{self._count:05}")
        directory.path.mkdir()
        return directory


def call(code: str, **changes: Any) -> CodeOrder:
    known: dict[str, Any] = {
        "code": code.encode(),
        "cwd": None,
        "env": {},
        "stdin": None,
        "split": False,
        "deadline_secs": None,
        "output_cap_bytes": 1 << 30,
    }
    return CodeOrder(**{**known, **changes})


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(tmp_path)
    yield home
    if home.link.is_symlink() and (left := await find_session(home.executors[0], home.link)):
        await left.close(0)
    for executor in home.executors:
        executor.close()
    assert home.log.read_text() == ""


@pytest.fixture
async def session(home: Home) -> PythonSession:
    with trio.fail_after(LIMIT):
        return await open_session(home.executor(), PythonOrder(env=ENV, cwd="/"), home.link)


async def run(session: PythonSession, directory: TaskDirectory, order: CodeOrder) -> Listener:
    listener = Listener()
    with trio.fail_after(LIMIT):
        await listener.watch(await session.run(directory, order))
    return listener


async def test_a_call_is_run_and_watched_to_its_end(home: Home, session: PythonSession) -> None:
    directory = home.directory()
    code = "import os\nprint(os.environ['ENGINE_TASK_ID'], os.environ['MORE'], input())\n[1]"
    seen = await run(session, directory, call(code, env={"MORE": "more"}, stdin=b"in\n"))
    [record] = seen.ended
    assert (record["value"], record["exitCode"], record["error"]) == ("[1]", 0, None)
    assert seen.outcome is Outcome.GONE
    assert (seen.started[0]["pid"], seen.started[0]["cwd"]) == (session.pid, "/")
    assert seen.sizes == [len("ta00001 more in\n")]
    assert (directory.path / "output").read_text() == "ta00001 more in\n"
    assert directory.read_exit() == record


async def test_an_error_of_the_code_is_in_the_record(home: Home, session: PythonSession) -> None:
    directory = home.directory()
    seen = await run(session, directory, call("{}['k']"))
    assert seen.ended[0]["error"] == {"type": "KeyError", "message": "'k'"}
    assert directory.read_exit() == seen.ended[0]


async def test_a_session_and_its_running_call_are_found_again(
    home: Home, session: PythonSession
) -> None:
    directory = home.directory()
    await run(session, home.directory(), call("kept = 5"))
    seen = Listener()
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            job = await session.run(directory, call("import time; print(1); time.sleep(600)"))
            nursery.start_soon(seen.watch, job)
            await seen.until(lambda: seen.sizes == [2])
            nursery.cancel_scope.cancel()
        home.executors[0].close()
        second = home.executors[0] = home.executor()
        home.executors.pop()
        found = await find_session(second, home.link)
        assert found is not None
        assert (found.pid, found.busy) == (session.pid, directory.id)
        with pytest.raises(SessionBusy, match=f"python session busy with t{directory.id}"):
            await found.run(home.directory(), call("1"))
        again = await second.attach(directory, directory.read_claim() or "")
        assert again is not None
        seen = Listener()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(seen.watch, again)
            await seen.until(lambda: seen.started != [])
            assert await again.cancel(10) == [session.pid]
    assert (seen.ended[0]["cause"], seen.ended[0]["sessionReset"]) == ("cancelled", False)
    assert (await run(found, home.directory(), call("kept"))).ended[0]["value"] == "5"


async def test_a_session_that_has_died_is_over_and_is_not_found(
    home: Home, session: PythonSession
) -> None:
    seen = await run(session, home.directory(), call("import os; os._exit(3)"))
    assert (seen.ended[0]["exitCode"], seen.ended[0]["sessionReset"]) == (3, True)
    directory = home.directory()
    with pytest.raises(SessionOver):
        await session.run(directory, call("1"))
    assert directory.read_claim() is None
    assert await find_session(home.executors[0], home.link) is None


async def test_survivors_of_a_call_are_listed_and_ended(home: Home, session: PythonSession) -> None:
    seen = Listener()
    code = "import subprocess; child = subprocess.Popen(['sleep', '600'])"
    # In the middle of exec(2) a process has a name and no command line yet.
    code += "; command = f'/proc/{child.pid}/cmdline'\nwhile not open(command).read(): pass"
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            job = await session.run(home.directory(), call(code))
            nursery.start_soon(seen.watch, job)
            await seen.until(lambda: seen.ended != [])
            [survivor] = await job.survivors()
            assert survivor["command"] == "sleep 600"
            assert await job.cancel(5) == [survivor["pid"]]
    assert seen.outcome is Outcome.GONE
    assert (await run(session, home.directory(), call("1"))).ended[0]["value"] == "1"


async def test_a_call_that_is_claimed_is_taken(home: Home, session: PythonSession) -> None:
    directory = home.directory()
    (directory.path / "claim").symlink_to("engine")
    assert (await run(session, directory, call("1"))).outcome is Outcome.TAKEN


async def test_a_session_for_one_call_ends_with_it(home: Home) -> None:
    with trio.fail_after(LIMIT):
        once = await open_session(home.executor(), PythonOrder(env=ENV, cwd="/"), None)
    seen = await run(once, home.directory(), call("6 * 7"))
    assert (seen.ended[0]["value"], seen.ended[0]["sessionReset"]) == ("42", False)
    with pytest.raises(SessionOver):
        await once.run(home.directory(), call("1"))


async def test_an_interpreter_that_is_not_there_says_so(home: Home) -> None:
    executor = home.executor()
    with pytest.raises(InterpreterFailed, match="python3: No such file") as caught:
        await open_session(executor, PythonOrder(env={"PATH": "/nowhere"}, cwd="/"), home.link)
    assert (caught.value.errno, caught.value.exit_code) == (2, 127)
    assert await find_session(executor, home.link) is None


async def test_a_directory_that_is_gone_gives_way_to_its_parent(home: Home) -> None:
    order = PythonOrder(env=ENV, cwd=f"{home.tasks}/a/b")
    session = await open_session(home.executor(), order, home.link)
    seen = await run(session, home.directory(), call("1"))
    assert seen.started[0]["cwd"] == str(home.tasks)


async def test_closing_cancels_and_leaves_nothing_to_find(
    home: Home, session: PythonSession
) -> None:
    seen = Listener()
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            job = await session.run(home.directory(), call("import time; time.sleep(600)"))
            nursery.start_soon(seen.watch, job)
            assert await session.close(5)
    assert seen.ended[0]["cause"] == "cancelled"
    assert not home.link.is_symlink()
    assert await session.close(5)


async def test_a_session_keeper_that_is_stopped_is_continued(
    home: Home, session: PythonSession
) -> None:
    os.kill(int(session.identity.split()[0]), signal.SIGSTOP)
    assert (await run(session, home.directory(), call("2"))).ended[0]["value"] == "2"


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(600)", STUBBORN])
async def test_a_session_keeper_killed_in_a_call_takes_the_interpreter_along(
    home: Home, session: PythonSession, code: str
) -> None:
    seen = Listener()
    who = processes.identity(session.pid)
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            job = await session.run(home.directory(), call(code))
            nursery.start_soon(seen.watch, job)
            await seen.until(lambda: seen.started != [])
            os.kill(int(session.identity.split()[0]), signal.SIGKILL)
    assert await wait_dead(who, LIMIT)
    assert seen.outcome is Outcome.BROKEN
    assert await find_session(home.executors[0], home.link) is None
    with pytest.raises(SessionOver):
        await session.run(home.directory(), call("1"))


async def test_a_directory_that_is_not_there_refuses_the_call(
    home: Home, session: PythonSession
) -> None:
    with pytest.raises(LaunchRefused, match="task directory: No such file or directory"):
        await session.run(TaskDirectory(home.tasks, "nothere"), call("1"))


async def test_a_session_that_dies_idle_leaves_a_mark_that_can_be_forgotten(
    home: Home, session: PythonSession
) -> None:
    assert not is_lost_at(home.link)
    forget_lost(home.link)
    assert home.link.is_symlink()
    keeper = session.identity
    os.kill(session.pid, signal.SIGKILL)
    assert await wait_dead(keeper, LIMIT)
    assert is_lost_at(home.link)
    assert await find_session(home.executors[0], home.link) is None
    forget_lost(home.link)
    assert not home.link.is_symlink()
    assert not is_lost_at(home.link)


async def test_only_an_idle_session_is_closed_for_being_idle(
    home: Home, session: PythonSession
) -> None:
    seen = Listener()
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            job = await session.run(home.directory(), call("import time; time.sleep(600)"))
            nursery.start_soon(seen.watch, job)
            await seen.until(lambda: seen.started != [])
            assert not await session.close(5, only_idle=True, is_lost=True)
            await job.cancel(5)
    assert seen.ended[0]["sessionReset"] is False
    assert await session.close(5, only_idle=True, is_lost=True)
    assert is_lost_at(home.link)


async def test_an_interpreter_is_looked_for_where_the_order_says(
    home: Home, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    nowhere = {**ENV, "PATH": "/nowhere"}
    order = PythonOrder(env=nowhere, cwd=str(tmp_path), search="bin")
    session = await open_session(home.executor(), order, home.link)
    seen = await run(session, home.directory(), call("import os; os.environ['PATH']"))
    assert (session.executable, seen.ended[0]["value"]) == (f"{folder}/python3", "'/nowhere'")
