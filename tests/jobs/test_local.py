"""Mirrors `engine/jobs/local.py`: a real mother, real keepers, real jobs, under trio."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from engine.jobs.channel import memory_files
from engine.jobs.directory import TaskDirectory
from engine.jobs.executor import LaunchRefused, Order, Outcome
from engine.jobs.local import MAX_IDLE_KEEPERS, LocalExecutor
from engine.jobs.localjob import LocalJob, wait_dead
from engine.keeper import processes

LIMIT = 15.0  # seconds for anything here


class Home:
    """The folders of a home, and executors that serve it."""

    def __init__(self, path: Path) -> None:
        self.tasks, self.sockets = path / "tasks", path / "keepers"
        self.tasks.mkdir()
        self.sockets.mkdir()
        self.log = path / "keepers.log"
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


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(tmp_path)
    yield home
    for executor in home.executors:
        executor.close()


@pytest.fixture
async def executor(home: Home) -> LocalExecutor:
    return home.executor()


def order(*argv: str, **changes: Any) -> Order:
    known = {
        "argv": list(argv),
        "path": None,
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        "cwd": "/",
        "cwd_or_parent": False,
        "split": False,
        "deadline_secs": None,
        "output_cap_bytes": 1 << 30,
        "prologue": None,
        "call": b"",
        "stdin": None,
        "wants_state": False,
    }
    return Order(**{**known, **changes})


def bash(text: str, **changes: Any) -> Order:
    return order("bash", "-c", text, **changes)


class Listener:
    """Notes the news, and lets a test wait for some of it."""

    def __init__(self) -> None:
        self.started: list[dict[str, Any]] = []
        self.grew: list[dict[str, Any]] = []
        self.blocked: list[str | None] = []
        self.ended: list[dict[str, Any]] = []
        self.settled: list[dict[str, Any]] = []
        self.state = b""
        self.outcome: Outcome | None = None
        self._changed = trio.Event()

    def on_started(self, news: dict[str, Any]) -> None:
        self.started.append(news)
        self._tell()

    def on_grew(self, news: dict[str, Any]) -> None:
        self.grew.append(news)
        self._tell()

    def on_blocked(self, category: str | None) -> None:
        self.blocked.append(category)
        self._tell()

    def on_ended(self, record: dict[str, Any], state: bytes) -> None:
        self.ended.append(record)
        self.state = state
        self._tell()

    def on_settled(self, news: dict[str, Any], state: bytes) -> None:
        self.settled.append(news)
        self.state = state
        self._tell()

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


async def run(executor: LocalExecutor, directory: TaskDirectory, what: Order) -> Listener:
    listener = Listener()
    with trio.fail_after(LIMIT):
        await listener.watch(await executor.launch(directory, what))
    return listener


def keeper_of(directory: TaskDirectory) -> int:
    return int((directory.read_claim() or "").split()[0])


def is_stopped(pid: int) -> bool:
    return ") T " in Path(f"/proc/{pid}/stat").read_text()


async def wait_gone(pid: int) -> None:
    """Wait for the end of a process that is no child of ours."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with trio.fail_after(LIMIT):
            await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)


async def test_a_job_is_launched_and_watched_to_its_end(
    home: Home, executor: LocalExecutor
) -> None:
    directory = home.directory()
    seen = await run(executor, directory, bash("echo out; echo err >&2; exit 7"))
    assert seen.outcome is Outcome.GONE
    assert len(seen.started) == 1
    [record] = seen.ended
    assert (record["exitCode"], record["pid"]) == (7, seen.started[0]["pid"])
    assert (directory.path / "output").read_bytes() == b"out\nerr\n"
    assert seen.grew[-1]["sizes"] == [8]
    assert directory.read_exit() == record


async def test_split_stdin_directory_and_umask_reach_the_job(
    home: Home, executor: LocalExecutor
) -> None:
    directory = home.directory()
    what = bash("cat; pwd >&2; umask >&2", split=True, stdin=b"in\xff", cwd="/usr")
    await run(executor, directory, what)
    assert (directory.path / "stdout").read_bytes() == b"in\xff"
    assert (directory.path / "stderr").read_bytes() == b"/usr\n0022\n"


async def test_a_keeper_whose_job_has_ended_takes_the_next(
    home: Home, executor: LocalExecutor
) -> None:
    keepers = set()
    for _ in range(20):
        directory = home.directory()
        await run(executor, directory, order("true"))
        keepers.add(keeper_of(directory))
    assert len(keepers) == 1


async def test_no_more_idle_keepers_are_kept_than_the_limit(
    home: Home, executor: LocalExecutor
) -> None:
    directories = [home.directory() for _ in range(MAX_IDLE_KEEPERS + 4)]
    async with trio.open_nursery() as nursery:
        listeners = [Listener() for _ in directories]
        for directory, listener in zip(directories, listeners, strict=True):
            job = await executor.launch(directory, bash("read -t 0.3 < <(exec sleep 0.3); true"))
            nursery.start_soon(listener.watch, job)
    assert [listener.outcome for listener in listeners] == [Outcome.GONE] * len(listeners)
    pids = {keeper_of(directory) for directory in directories}
    assert len(pids) == MAX_IDLE_KEEPERS + 4
    executor.close()
    for pid in pids:
        await wait_gone(pid)


async def test_a_job_is_cancelled(home: Home, executor: LocalExecutor) -> None:
    directory, seen = home.directory(), Listener()
    async with trio.open_nursery() as nursery:
        job = await executor.launch(directory, bash("setsid sleep 600 & (echo; exec sleep 600)"))
        nursery.start_soon(seen.watch, job)
        await seen.until(lambda: bool(seen.grew))
        with trio.fail_after(LIMIT):
            signalled = await job.cancel(5)
    assert signalled is not None
    assert len(signalled) == 3
    assert seen.outcome is Outcome.GONE
    assert (seen.ended[0]["cause"], seen.ended[0]["signal"]) == ("cancelled", 15)
    assert [pid for pid in signalled if processes.is_running(pid)] == []
    with trio.fail_after(LIMIT):
        assert await job.cancel(5) == []  # over is over
        assert await job.survivors() == []


async def test_survivors_are_told_and_watched_until_they_are_gone(
    home: Home, executor: LocalExecutor
) -> None:
    directory, seen = home.directory(), Listener()
    async with trio.open_nursery() as nursery:
        job = await executor.launch(directory, bash("sleep 600 & echo done"))
        nursery.start_soon(seen.watch, job)
        await seen.until(lambda: bool(seen.ended))
        with trio.fail_after(LIMIT):
            [survivor] = await job.survivors()
        assert "sleep 600" in survivor["command"]  # its shell's words until it is sleep
        assert seen.outcome is None
        os.kill(survivor["pid"], signal.SIGKILL)
    assert seen.outcome is Outcome.GONE
    assert len(seen.ended) == 1


async def test_a_question_that_meets_the_end_is_not_answered_to_the_next_job(
    home: Home, executor: LocalExecutor
) -> None:
    """The keeper's late answer, or our late cancel, must not reach whoever has the keeper next."""
    for _ in range(30):
        directory, seen = home.directory(), Listener()
        async with trio.open_nursery() as nursery:
            job = await executor.launch(directory, order("true"))
            nursery.start_soon(seen.watch, job)
            await seen.until(lambda seen=seen: bool(seen.ended))  # type: ignore[misc]
            nursery.start_soon(job.cancel, 0)
        assert seen.outcome is Outcome.GONE
        after = await run(executor, home.directory(), bash("exit 3"))
        assert after.outcome is Outcome.GONE
        assert [end["exitCode"] for end in after.ended] == [3]
        assert after.ended[0]["cause"] == "exit"


async def test_watching_given_up_leaves_the_job_and_another_executor_finds_it(
    home: Home, executor: LocalExecutor
) -> None:
    directory, seen = home.directory(), Listener()
    async with trio.open_nursery() as nursery:
        job = await executor.launch(directory, bash("echo one; exec sleep 600"))
        nursery.start_soon(seen.watch, job)
        await seen.until(lambda: bool(seen.grew))
        nursery.cancel_scope.cancel()
    executor.close()
    second, again = home.executor(), Listener()
    with trio.fail_after(LIMIT):
        found = await second.attach(directory, directory.read_claim() or "")
    assert found is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(again.watch, found)
        await again.until(lambda: bool(again.grew))
        assert again.started[0]["pid"] == seen.started[0]["pid"]
        assert again.grew[0]["sizes"] == [4]
        with trio.fail_after(LIMIT):
            assert await found.cancel(5) == [seen.started[0]["pid"]]
    assert again.outcome is Outcome.GONE
    assert again.ended[0]["signal"] == 15


async def test_a_hundred_attaches_at_once_all_hear_the_end(
    home: Home, executor: LocalExecutor, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    directories = [home.directory() for _ in range(25)]
    for directory in directories:
        with trio.fail_after(LIMIT):
            job = await executor.launch(directory, bash(f"read < {tmp_path}/go; exit 5"))
        async with trio.open_nursery() as nursery:
            started = Listener()
            nursery.start_soon(started.watch, job)
            await started.until(lambda started=started: bool(started.started))  # type: ignore[misc]
            nursery.cancel_scope.cancel()
    listeners = [Listener() for _ in range(100)]
    async with trio.open_nursery() as nursery:
        for i, listener in enumerate(listeners):
            directory = directories[i % 25]
            with trio.fail_after(LIMIT):
                found = await executor.attach(directory, directory.read_claim() or "")
            assert found is not None
            nursery.start_soon(listener.watch, found)
        for listener in listeners:
            await listener.until(lambda listener=listener: bool(listener.started))  # type: ignore[misc]
        with trio.fail_after(LIMIT):
            go = await trio.to_thread.run_sync(os.open, tmp_path / "go", os.O_WRONLY)
        os.close(go)  # every reader of it sees its end
    assert {listener.outcome for listener in listeners} == {Outcome.GONE}
    assert [listener.ended[0]["exitCode"] for listener in listeners] == [5 - 0] * 100


async def test_a_keeper_that_has_another_job_by_now_is_absent(
    home: Home, executor: LocalExecutor
) -> None:
    directory = home.directory()
    await run(executor, directory, order("true"))
    with trio.fail_after(LIMIT):
        found = await executor.attach(directory, directory.read_claim() or "")
        assert found is not None
        assert await found.watch(Listener()) is Outcome.ABSENT


async def test_a_claim_of_somebody_else_sends_no_signal_and_finds_no_job(
    home: Home, executor: LocalExecutor
) -> None:
    pid, started, boot = processes.identity(os.getpid()).split()
    directory = home.directory()
    with trio.fail_after(LIMIT):
        assert await executor.attach(directory, f"{pid} {int(started) - 1} {boot}") is None
        assert await executor.attach(directory, f"{pid} {started} another-boot") is None
        assert await executor.attach(directory, "no identity at all") is None
        assert await wait_dead("no identity at all", 5)


async def test_a_taken_directory_is_left_alone(home: Home, executor: LocalExecutor) -> None:
    directory = home.directory()
    await run(executor, directory, bash("echo once"))
    seen = await run(executor, directory, bash("echo twice"))
    assert seen.outcome is Outcome.TAKEN
    assert (seen.started, seen.ended) == ([], [])
    assert (directory.path / "output").read_bytes() == b"once\n"


async def test_a_directory_that_is_gone_is_a_refusal(home: Home, executor: LocalExecutor) -> None:
    directory = home.directory()
    directory.path.rmdir()
    with trio.fail_after(LIMIT):
        job = await executor.launch(directory, order("true"))
        with pytest.raises(LaunchRefused, match="No such file"):
            await job.watch(Listener())
    # And the next one is not refused.
    assert (await run(executor, home.directory(), order("true"))).outcome is Outcome.GONE


async def test_a_killed_mother_is_followed_by_another(home: Home, executor: LocalExecutor) -> None:
    directory, seen = home.directory(), Listener()
    async with trio.open_nursery() as nursery:
        job = await executor.launch(directory, bash("echo; exec sleep 600"))
        nursery.start_soon(seen.watch, job)
        await seen.until(lambda: bool(seen.grew))
        executor._mother._process.kill()
        executor._mother._process.wait(10)
        other = await run(executor, home.directory(), bash("exit 3"))
        assert other.ended[0]["exitCode"] == 3
        with trio.fail_after(LIMIT):
            await job.cancel(0)
    assert seen.outcome is Outcome.GONE  # the job of the first mother was never touched


async def test_a_stopped_mother_goes_on_when_she_is_needed(
    home: Home, executor: LocalExecutor
) -> None:
    os.kill(executor._mother._process.pid, signal.SIGSTOP)
    seen = await run(executor, home.directory(), bash("exit 3"))
    assert seen.ended[0]["exitCode"] == 3
    os.kill(executor._mother._process.pid, signal.SIGSTOP)
    before = trio.current_time()
    executor.close()
    assert trio.current_time() - before < 3  # seconds; it does not wait for her in vain


async def test_an_idle_keeper_that_was_killed_is_passed_over(
    home: Home, executor: LocalExecutor
) -> None:
    directory = home.directory()
    await run(executor, directory, order("true"))
    pid = keeper_of(directory)
    os.kill(pid, signal.SIGKILL)
    await wait_gone(pid)
    second = home.directory()
    seen = await run(executor, second, bash("exit 3"))
    assert seen.ended[0]["exitCode"] == 3
    assert keeper_of(second) != pid


async def test_a_keeper_killed_in_the_middle_of_its_job_breaks_the_watch(
    home: Home, executor: LocalExecutor
) -> None:
    directory, seen = home.directory(), Listener()
    async with trio.open_nursery() as nursery:
        job = await executor.launch(directory, bash("echo; exec sleep 600"))
        nursery.start_soon(seen.watch, job)
        await seen.until(lambda: bool(seen.grew))
        os.kill(keeper_of(directory), signal.SIGKILL)
        await seen.until(lambda: seen.outcome is not None)
    assert seen.outcome is Outcome.BROKEN
    assert seen.ended == []
    assert directory.read_exit() is None
    claim = directory.read_claim() or ""
    with trio.fail_after(LIMIT):
        assert await wait_dead(claim, LIMIT)
        assert await executor.attach(directory, claim) is None
        assert await job.cancel(0) == []
    os.kill(seen.started[0]["pid"], signal.SIGKILL)


async def test_a_keeper_that_its_job_has_stopped_is_woken_by_cancel(
    home: Home, executor: LocalExecutor, tmp_path: Path
) -> None:
    directory, seen = home.directory(), Listener()
    os.mkfifo(tmp_path / "go")
    go = os.open(tmp_path / "go", os.O_RDWR)
    async with trio.open_nursery() as nursery:
        what = bash(f"echo; read < {tmp_path}/go; kill -STOP $PPID; exec sleep 600")
        job = await executor.launch(directory, what)
        nursery.start_soon(seen.watch, job)
        await seen.until(lambda: bool(seen.grew))
        os.write(go, b"\n")
        os.close(go)
        pid = keeper_of(directory)
        with trio.fail_after(LIMIT):
            while not is_stopped(pid):
                await trio.lowlevel.checkpoint()
            assert seen.started[0]["pid"] in (await job.cancel(5) or [])
    assert seen.outcome is Outcome.GONE


@pytest.mark.parametrize("megabytes", [0, 1, 7])
async def test_the_dump_of_the_state_comes_with_the_end(
    home: Home, executor: LocalExecutor, megabytes: int
) -> None:
    script = f"import os; os.write(1, bytes(range(256)) * {4096 * megabytes})"
    what = bash(f"python3 -I -S -c '{script}' > /proc/$PPID/fd/102", wants_state=True)
    seen = await run(executor, home.directory(), what)
    assert seen.ended[0]["exitCode"] == 0
    assert seen.state == bytes(range(256)) * 4096 * megabytes


async def test_the_prologue_is_read_by_descriptor_and_may_be_long(
    home: Home, executor: LocalExecutor
) -> None:
    directory = home.directory()
    text = b"#" * (1 << 20) + b"\necho long\n"
    await run(executor, directory, bash(". /proc/$PPID/fd/100", prologue=text))
    assert (directory.path / "output").read_bytes() == b"long\n"


async def test_an_order_larger_than_a_socket_holds_arrives(
    home: Home, executor: LocalExecutor
) -> None:
    directory = home.directory()
    argv = ["printf", "%s", *["x" * 100_000] * 15]
    assert (await run(executor, directory, order(*argv))).ended[0]["exitCode"] == 0
    assert (directory.path / "output").stat().st_size == 1_500_000


async def test_a_launch_given_up_half_way_leaves_no_keeper(
    home: Home, executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    os.kill(executor._mother._process.pid, signal.SIGSTOP)
    monkeypatch.setattr(executor._mother._process, "send_signal", lambda _number: None)
    with trio.move_on_after(0.2) as scope:
        await executor.launch(home.directory(), order("true", "x" * 2_000_000))
    assert scope.cancelled_caught
    assert set(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    os.kill(executor._mother._process.pid, signal.SIGCONT)
    assert (await run(executor, home.directory(), order("true"))).outcome is Outcome.GONE


async def test_no_descriptor_left_is_a_refusal_and_a_later_try_works(
    home: Home, executor: LocalExecutor
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1, limits[1]))
    try:
        with trio.fail_after(LIMIT), pytest.raises(LaunchRefused, match="Too many open files"):
            await executor.launch(home.directory(), order("true", stdin=b"x"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (await run(executor, home.directory(), order("true"))).outcome is Outcome.GONE


async def test_sockets_of_dead_keepers_are_removed_at_the_start(home: Home) -> None:
    pid, started, _boot = processes.identity(os.getpid()).split()
    (home.sockets / f"{pid}-{int(started) - 1}.sock").touch()
    (home.sockets / f"{pid}-{started}.sock").touch()
    home.executor()
    assert [entry.name for entry in home.sockets.iterdir()] == [f"{pid}-{started}.sock"]


def test_a_memory_file_is_read_from_its_start_and_cannot_be_written() -> None:
    with memory_files([b"x" * 3_000_000]) as (fd,):
        assert os.read(fd, 5) == b"xxxxx"
        assert os.fstat(fd).st_size == 3_000_000
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(fd, b"y")
