"""Mirrors `engine/journal/journal.py`."""

from __future__ import annotations

import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from engine.jobs.directory import TaskDirectory, make_directory
from engine.journal import journal as module
from engine.journal.journal import Journal
from engine.journal.levels import Level
from engine.model import Failure, Kind, Status, Survivor, TaskRecord, now_ms
from engine.store import lines
from engine.store.index import Committed, Index
from engine.tasks.waits import Waits

LIMIT = 10.0  # seconds for any wait here
LEFT = (Survivor(pid=1, command="x"),)


@asynccontextmanager
async def keeping(
    path: Path, after_commit: Callable[[Index], None] = lambda _index: None
) -> AsyncIterator[tuple[Journal, Index]]:
    waits, made = Waits(), list[Journal]()

    def on_change(done: Committed) -> None:
        # Readers are told of nothing that they cannot read.
        assert index.latest_seq == done.seq
        made[0].on_committed(done)
        after_commit(index)

    with closing(Index(path / "index.db", on_change)) as index, trio.fail_after(LIMIT):
        made.append(Journal(index, waits))
        async with trio.open_nursery() as nursery:
            await nursery.start(index.serve)
            yield made[0], index
            nursery.cancel_scope.cancel()


def written(directory: TaskDirectory, data: bytes, **facts: Any) -> TaskRecord:
    (directory.path / "output").write_bytes(data)
    record = TaskRecord(
        id=directory.id, caller="ci", kind=Kind.BASH, title="x", order=1, created_at=1
    )
    return msgspec.structs.replace(record, sizes=(len(data),), **facts)


def texts(index: Index) -> list[str]:
    everything = lines.Wanted(floor=Level.DEBUG)
    return [line.text for line in lines.after(index.reader, everything, 0, 1 << 40, 1000)]


async def test_the_lines_of_an_ended_task_are_in_before_settle_returns(tmp_path: Path) -> None:
    directory = make_directory(tmp_path)
    record = written(directory, b"one\ntwo", status=Status.FAILED, exit_code=3)
    async with keeping(tmp_path) as (journal, index):
        journal.ended(record, directory)
        index.put(record)
        assert await journal.settle(record.id)
        assert texts(index) == ["one", "two", f"task t{record.id} failed (exit 3)"]
        # News that come after the end begin nothing anew, and nothing is remembered.
        journal.grew(record, directory)
        journal.gone(record)
        await index.flush()
        assert len(texts(index)) == 3
        assert index.unread() == {}


async def test_a_task_that_ended_well_and_silently_costs_the_journal_nothing(
    tmp_path: Path,
) -> None:
    directory = make_directory(tmp_path)
    async with keeping(tmp_path) as (journal, index):
        journal.ended(written(directory, b"", status=Status.SUCCEEDED), directory)
        assert await journal.settle(directory.id)
        await index.flush()
        assert (texts(index), journal.head) == ([], 0)


async def test_what_a_job_says_of_itself_stays_one_line_without_controls(tmp_path: Path) -> None:
    directory = make_directory(tmp_path)
    said = Failure(type="E", message="a\nb\x1b[1m\u202e" + "x" * 5000)
    record = written(directory, b"", status=Status.FAILED, error=said)
    async with keeping(tmp_path) as (journal, index):
        journal.ended(record, directory)
        assert await journal.settle(record.id)
        (text,) = texts(index)
        assert text.startswith(f"task t{record.id} failed (E: a b [1m xx")
        assert (len(text), text.isprintable()) == (4096, True)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Failure(type="KeyError", message="'k'"), " (KeyError: 'k')"),
        (Failure(type="KeyboardInterrupt", message=""), " (KeyboardInterrupt)"),
        (Failure(errno=2, message="no such file"), " (no such file)"),
        (Failure(message=""), ""),
    ],
)
async def test_the_line_about_an_end_names_what_was_raised(
    tmp_path: Path, error: Failure, said: str
) -> None:
    directory = make_directory(tmp_path)
    record = written(directory, b"", status=Status.FAILED, error=error)
    async with keeping(tmp_path) as (journal, index):
        journal.ended(record, directory)
        assert await journal.settle(record.id)
        assert texts(index) == [f"task t{record.id} failed{said}"]


async def test_that_there_is_nothing_about_a_silent_task_is_known_without_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_NOTED", 2)
    async with keeping(tmp_path) as (journal, _index):
        silent = written(make_directory(tmp_path), b"", status=Status.SUCCEEDED)
        assert journal.has_lines(silent)  # older than the engine
        silent = msgspec.structs.replace(silent, created_at=now_ms() + 1000)
        assert not journal.has_lines(silent)
        for status, size in ((Status.FAILED, 0), (Status.SUCCEEDED, 1)):
            assert journal.has_lines(msgspec.structs.replace(silent, status=status, sizes=(size,)))
        journal.note(Level.INFO, "noted", task=silent.id)
        assert journal.has_lines(silent)
        for other in ("aaaaaa", "bbbbbb"):
            journal.note(Level.INFO, "noted", task=other)
        silent = msgspec.structs.replace(silent, created_at=now_ms() - 1)
        assert journal.has_lines(silent)  # forgotten, and so is that it was


async def test_an_engine_that_follows_reads_on_and_says_the_end_once(tmp_path: Path) -> None:
    directory = make_directory(tmp_path)
    facts = {"status": Status.FAILED, "signal": "SIGKILL", "survivors": LEFT}
    record = written(directory, b"one\n", **facts)
    async with keeping(tmp_path) as (journal, index):
        journal.ended(record, directory)
        assert await journal.settle(record.id)
    record = written(directory, b"one\ntwo\nlast", **facts)
    async with keeping(tmp_path) as (journal, index):
        assert journal.unread() == [record.id]
        journal.ended(record, directory)
        await index.flush()
        said = f"task t{record.id} failed (SIGKILL)"
        assert texts(index) == ["one", said, "two"]
        journal.gone(record)
        await index.flush()
        assert texts(index) == ["one", said, "two", "last"]
        assert index.unread() == {}


@pytest.mark.parametrize("facts", [{"survivors": LEFT}, {"kind": Kind.CODE}])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_what_is_written_after_a_silent_end_is_read_whoever_writes_it(
    tmp_path: Path, facts: dict[str, Any], is_killed: bool
) -> None:
    directory = make_directory(tmp_path)
    facts = {"status": Status.SUCCEEDED} | facts
    async with keeping(tmp_path) as (journal, index):
        journal.ended(written(directory, b"", **facts), directory)
        assert await journal.settle(directory.id)
        await index.flush()
        if not is_killed:
            record = written(directory, b"late\npart", **facts)
            journal.grew(record, directory)
            journal.gone(record)
            await index.flush()
            assert (texts(index), index.unread()) == (["late", "part"], {})
            return
    async with keeping(tmp_path) as (journal, index):
        assert journal.unread() == [directory.id]
        record = written(directory, b"late\npart", **facts)
        journal.ended(record, directory)
        assert await journal.settle(directory.id)
        await index.flush()
        assert texts(index) == ["late"]
        journal.gone(record)
        await index.flush()
        assert (texts(index), index.unread()) == (["late", "part"], {})


async def test_a_writer_who_is_in_no_list_is_heard_until_all_are_gone(tmp_path: Path) -> None:
    directory, silent = make_directory(tmp_path), make_directory(tmp_path)
    async with keeping(tmp_path) as (journal, index):
        journal.ended(written(directory, b"one\n", status=Status.SUCCEEDED), directory)
        journal.ended(written(silent, b"", status=Status.SUCCEEDED), silent)
        assert await journal.settle(directory.id)
        assert index.unread() == {}
        journal.grew(written(directory, b"one\ntwo\n", status=Status.SUCCEEDED), directory)
        journal.grew(written(silent, b"three\n", status=Status.SUCCEEDED), silent)
        await index.flush()
    async with keeping(tmp_path) as (journal, index):
        assert sorted(texts(index)) == ["one", "three", "two"]
        assert sorted(journal.unread()) == sorted([directory.id, silent.id])


async def test_a_flood_does_not_hold_up_the_lines_of_others(tmp_path: Path) -> None:
    flood, other = make_directory(tmp_path), make_directory(tmp_path)
    loud = written(flood, (b"x" * 99 + b"\n") * 70_000, status=Status.RUNNING)
    quiet = written(other, b"hello\n", status=Status.SUCCEEDED)
    async with keeping(tmp_path) as (journal, index):
        journal.grew(loud, flood)
        await index.flush()
        journal.ended(quiet, other)
        assert await journal.settle(quiet.id)
        assert lines.count(index.reader, lines.Wanted(floor=0), 0, 1 << 40) < 70_000


async def test_the_little_that_a_running_job_has_written_since_waits_for_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_directory(tmp_path)
    first = written(directory, b"one\n" * 10, status=Status.RUNNING)
    more = written(directory, b"one\n" * 20, status=Status.RUNNING)
    asked: list[bool] = []
    async with keeping(tmp_path) as (journal, index):
        work = index.work

        def work_and_note(key: str, work_: lines.Work, *, is_urgent: bool) -> None:
            asked.append(is_urgent)
            work(key, work_, is_urgent=is_urgent)

        monkeypatch.setattr(index, "work", work_and_note)
        held = Held()
        journal.grew(first, directory)
        index.work("held", held, is_urgent=True)  # in the same transaction, behind it
        await trio.to_thread.run_sync(held.come.wait, LIMIT)
        journal.grew(more, directory)
        held.go.set()
        while len(texts(index)) < 20:
            await index.flush()
        # Told of, held, told of more, and what its first commit found to be left.
        assert asked == [False, True, False, False]


async def test_levels_of_which_nothing_came_are_known_without_the_database(
    tmp_path: Path,
) -> None:
    async with keeping(tmp_path) as (journal, index):
        journal.note(Level.WARNING, "careful")
        await index.flush()
        assert journal.is_newer(Level.WARNING, 0)
        assert not journal.is_newer(Level.ERROR, 0)
        assert not journal.is_newer(Level.WARNING, journal.head)


class Held:
    """Work that holds the writer's thread up until `go` is set."""

    id = "held"
    left_bytes = 1 << 20

    def __init__(self) -> None:
        self.come, self.go = threading.Event(), threading.Event()

    def begin(self) -> None:
        pass

    def read(self) -> lines.Piece:
        self.come.set()
        assert self.go.wait(LIMIT)
        return lines.Piece(task="held", lines=[], state=None, is_finished=True, read_bytes=0)

    def committed(self, piece: lines.Piece) -> None:
        pass


async def test_a_task_that_ends_while_its_lines_are_written_has_each_once_after_a_kill(
    tmp_path: Path,
) -> None:
    directory = make_directory(tmp_path)
    running = written(directory, b"one\ntwo\n", status=Status.RUNNING)
    ended = msgspec.structs.replace(running, status=Status.FAILED, exit_code=3)
    killed = tmp_path / "killed"
    killed.mkdir()
    held = Held()

    def keep_first(index: Index) -> None:
        """What a kill behind the first commit leaves."""
        if not list(killed.iterdir()):
            for name in ("index.db", "index.db-wal"):
                shutil.copy(tmp_path / name, killed / name)

    async with keeping(tmp_path, keep_first) as (journal, index):
        index.put(running)
        index.work("held", held, is_urgent=True)
        journal.grew(running, directory)
        await trio.to_thread.run_sync(held.come.wait, LIMIT)
        journal.ended(ended, directory)
        index.put(ended)
        held.go.set()
        await index.flush()
    async with keeping(killed) as (journal, index):
        for record in index.active():  # as a restart does
            assert record == running
            journal.ended(ended, directory)
            index.put(ended)
        await index.flush()
        assert texts(index) == ["one", "two", f"task t{ended.id} failed (exit 3)"]
        assert index.unread() == {}
