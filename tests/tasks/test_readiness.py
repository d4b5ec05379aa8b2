"""Mirrors `engine/tasks/readiness.py`: over real files and ports, without an engine."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from tasks.building import FakeJob

from engine.jobs.directory import TaskDirectory, make_directory
from engine.model import Kind, ReadyWhen, Status, TaskRecord
from engine.store.index import Index
from engine.tasks import readiness
from engine.tasks.ending import ended, unstarted
from engine.tasks.readiness import Readiness
from engine.tasks.task import Task

LIMIT = 10.0  # seconds for any wait in a test
MIB = 1 << 20


class Job(FakeJob):
    """Says in turn whose its listener is; the last answer stays."""

    def __init__(self, *whose: str) -> None:
        super().__init__()
        self.whose = list(whose)
        self.asked = 0

    async def listener(self) -> str:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        return self.whose.pop(0) if len(self.whose) > 1 else self.whose[0]


@dataclass
class Built:
    """One task and all that its readiness says."""

    task: Task
    path: Path
    readiness: Readiness
    rows: list[TaskRecord] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    stirred: int = 0
    changed: trio.Event = field(default_factory=trio.Event)

    def put(self, record: TaskRecord) -> None:
        self.rows.append(record)

    def remark(self, record: TaskRecord, text: str) -> None:
        self.remarks.append(text.replace(record.task_id, "TASK"))
        self._tell()

    def stir(self, _task: Task) -> None:
        self.stirred += 1
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def write(self, data: bytes, name: str = "output", at: int | None = None) -> None:
        """Have the job write, and its keeper tell of it."""
        with open(self.path / name, "r+b" if at is not None else "ab") as file:
            file.seek(at or 0, 0 if at is not None else 2)
            file.write(data)
        names = self.task.record.files
        sizes = tuple(
            (self.path / name).stat().st_size if (self.path / name).exists() else 0
            for name in names
        )
        self.task.change(sizes=sizes)
        self.readiness.grew(self.task)

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(LIMIT):
            while not condition():
                await self.changed.wait()

    async def until_ready(self) -> None:
        await self.until(lambda: self.task.record.ready)


@asynccontextmanager
async def built(
    tmp_path: Path, wanted: ReadyWhen | None, *, split: bool = False, job: Job | None = None
) -> AsyncIterator[Built]:
    directory: TaskDirectory = make_directory(tmp_path)
    record = TaskRecord(
        id=directory.id,
        caller="ci",
        kind=Kind.BASH,
        title="x",
        order=1,
        created_at=1,
        started_at=2,
        status=Status.RUNNING,
        split=split,
        ready_when=wanted,
    )
    task = Task(record, directory)
    task.job = job
    async with trio.open_nursery() as nursery:
        one = Built(task, directory.path, cast(Readiness, None))
        one.readiness = Readiness(cast(Index, one), one, one.stir, nursery)
        yield one
        nursery.cancel_scope.cancel()


UP = ReadyWhen(contains="Listening on 8080")


async def test_a_task_is_ready_once_a_line_of_its_output_holds_the_text(tmp_path: Path) -> None:
    async with built(tmp_path, UP) as one:
        one.readiness.started(one.task)
        one.write(b"starting\n")
        await trio.testing.wait_all_tasks_blocked()
        assert not one.task.record.ready
        one.write(b"\x1b[32mListen")
        one.write(b"ing\x1b[0m on 8080")
        await one.until_ready()
        assert one.remarks == ["TASK is ready: a line of its output says so"]
        assert (one.stirred, one.rows[-1].ready, one.task.record.warnings) == (1, True, ())


async def test_what_was_written_before_it_is_watched_counts(tmp_path: Path) -> None:
    async with built(tmp_path, UP) as one:
        one.write(b"Listening on 8080\n")
        one.readiness.started(one.task)
        await one.until_ready()


@pytest.mark.parametrize("name", ["stdout", "stderr"])
async def test_either_stream_of_a_split_task_makes_it_ready(tmp_path: Path, name: str) -> None:
    async with built(tmp_path, UP, split=True) as one:
        one.readiness.started(one.task)
        one.write(b"Listening on", "stdout")
        one.write(b" 8080\n", "stderr")
        await trio.testing.wait_all_tasks_blocked()
        assert not one.task.record.ready
        one.write(b"\nListening on 8080\n", name)
        await one.until_ready()


async def test_a_flood_is_searched_in_turns_between_which_others_go_on(tmp_path: Path) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while not one.task.record.ready:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with built(tmp_path, UP) as one, trio.open_nursery() as nursery:
        one.write(b"x" * 79 + b"\n")
        one.write(b"y\n" * (20 * MIB) + b"Listening on 8080\n" + b"y\n" * MIB)
        one.readiness.started(one.task)
        nursery.start_soon(others)
        await one.until_ready()
    assert turns >= 40  # at least one for each MiB


async def test_a_text_across_two_turns_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "TURN_BYTES", 64)
    monkeypatch.setattr(readiness, "INLINE_BYTES", 32)
    async with built(tmp_path, UP) as one:
        one.write(b"." * 60 + b"Listening on 8080" + b"." * 300)
        one.readiness.started(one.task)
        await one.until_ready()


async def test_bytes_that_are_not_kept_are_passed_over(tmp_path: Path) -> None:
    async with built(tmp_path, UP) as one:
        one.write(b"Listening" + bytes(100 * MIB - 9))
        one.task.change(dropped=(((9, 100 * MIB),),))
        one.readiness.started(one.task)
        one.write(b" on 8080\n")
        await trio.testing.wait_all_tasks_blocked()
        assert not one.task.record.ready
        one.write(b"Listening on 8080\n")
        await one.until_ready()


async def test_an_output_that_somebody_removed_ends_nothing(tmp_path: Path) -> None:
    async with built(tmp_path, UP) as one:
        one.write(b"x\n")
        (one.path / "output").unlink()
        one.readiness.started(one.task)
        await trio.testing.wait_all_tasks_blocked()
        one.write(b"..Listening on 8080\n")
        await one.until_ready()


async def test_a_task_that_ends_before_it_is_ready_never_is(tmp_path: Path) -> None:
    async with built(tmp_path, UP) as one:
        one.readiness.started(one.task)
        await trio.testing.wait_all_tasks_blocked()
        one.task.change(status=Status.SUCCEEDED)
        one.readiness.ended(one.task)
        one.write(b"Listening on 8080\n")
        await trio.testing.wait_all_tasks_blocked()
        assert (one.task.record.ready, one.remarks, one.stirred) == (False, [], 0)


async def test_a_task_that_is_ready_is_watched_no_more(tmp_path: Path) -> None:
    async with built(tmp_path, UP) as one:
        one.readiness.started(one.task)
        one.write(b"Listening on 8080\n")
        await one.until_ready()
        one.readiness.started(one.task)  # as after a restart
        one.write(b"Listening on 8080\n")
        await trio.testing.wait_all_tasks_blocked()
        assert (len(one.remarks), one.stirred) == (1, 1)


# -- by port -------------------------------------------------------------------------------------


async def test_a_task_is_ready_once_its_port_accepts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    job = Job("job")
    async with built(tmp_path, ReadyWhen(port=port), job=job) as one:
        one.readiness.started(one.task)
        await trio.sleep(0.1)  # some tries
        assert (one.task.record.ready, job.asked) == (False, 0)
        with socket.create_server(("127.0.0.1", port)):
            await one.until_ready()
        assert one.remarks == [f"TASK is ready: port {port} accepts"]
        assert one.task.record.warnings == ()


@pytest.mark.parametrize("whose", ["new", "unknown"])
async def test_where_it_is_not_known_whose_the_port_is_there_is_a_warning(
    tmp_path: Path, whose: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        async with built(tmp_path, ReadyWhen(port=port), job=Job(whose)) as one:
            one.readiness.started(one.task)
            await one.until_ready()
            warning = f"whether port {port} is the task's own is not known"
            assert one.task.record.warnings == (warning,)
            assert one.remarks == [f"TASK is ready: port {port} accepts", f"TASK: {warning}"]


async def test_a_port_that_was_taken_before_is_not_the_tasks_and_left_alone(tmp_path: Path) -> None:
    job = Job("before", "before", "before", "none", "job")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        async with built(tmp_path, ReadyWhen(port=port), job=job) as one:
            one.readiness.started(one.task)
            await one.until_ready()
            warning = f"port {port} was taken before the task began"
            assert one.task.record.warnings == (warning,)
            assert one.remarks == [f"TASK: {warning}", f"TASK is ready: port {port} accepts"]
        server.settimeout(0)
        for _ in range(2):  # when it was tried first, and when it was not known as another's
            server.accept()[0].close()
        with pytest.raises(BlockingIOError):
            server.accept()


async def test_the_port_of_a_task_that_has_ended_is_tried_no_more(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    async with built(tmp_path, ReadyWhen(port=port), job=Job("job")) as one:
        one.readiness.started(one.task)
        await trio.testing.wait_all_tasks_blocked()
        one.task.change(status=Status.FAILED)
        one.readiness.ended(one.task)
        with socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(1)
            with pytest.raises(TimeoutError):
                await trio.to_thread.run_sync(server.accept)
        assert not one.task.record.ready


# -- blocked ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "prompt"),
    [
        (b"one\nname? ", "name? "),
        (b"one\n", ""),
        (b"", ""),
        (b"\x1b[?2004h\x1b[1m>>>\x1b[0m ", ">>> "),
        (b"progress 10%\rprogress 99%\rgo on? [y/n] ", "go on? [y/n] "),
        ("§ Größe? \x07".encode(), "§ Größe? "),
        (b"x" * 5000, "x" * 200),
        (b"a" * 100 + b"b" * 200, "b" * 200),
        (b"\xff? ", "\N{REPLACEMENT CHARACTER}? "),
    ],
)
async def test_the_prompt_is_the_unfinished_last_line_as_it_shows(
    tmp_path: Path, output: bytes, prompt: str
) -> None:
    async with built(tmp_path, None) as one:
        one.write(output)
        one.readiness.blocked(one.task, "input")
        assert (one.task.record.blocked, one.task.record.prompt) == ("input", prompt)
        assert (one.stirred, one.rows[-1].blocked) == (1, "input")


async def test_of_two_streams_the_one_with_an_unfinished_line_has_the_prompt(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, None, split=True) as one:
        one.write(b"done\n", "stdout")
        one.write(b"password: ", "stderr")
        one.readiness.blocked(one.task, "input")
        assert one.task.record.prompt == "password: "


async def test_each_change_is_told_once_and_none_of_a_task_that_has_ended(tmp_path: Path) -> None:
    async with built(tmp_path, None) as one:
        one.readiness.blocked(one.task, None)
        assert one.stirred == 0
        for _ in range(2):
            one.readiness.blocked(one.task, "idle")
        assert (one.stirred, one.task.record.blocked, one.task.record.prompt) == (1, "idle", None)
        one.readiness.blocked(one.task, None)
        assert (one.stirred, one.task.record.blocked) == (2, None)
        one.task.change(status=Status.SUCCEEDED)
        one.readiness.blocked(one.task, "idle")
        assert (one.stirred, one.task.record.blocked) == (2, None)


def test_nothing_of_it_is_left_in_a_record_that_has_ended() -> None:
    facts: dict[str, Any] = {"blocked": "input", "prompt": "? ", "ready": True}
    record = TaskRecord(
        id="a", caller="c", kind=Kind.BASH, title="", order=1, created_at=1, **facts
    )
    done = ended(record, unstarted("cancelled", 5))
    assert (done.blocked, done.prompt, done.ready) == (None, None, True)
