"""Mirrors `engine/tasks/rounds.py` and `roundstart.py`: whole or not at all, whatever is killed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from tasks.building import Built, FakeExecutor, FakeJob, ask, built

from engine.errors import ExpiredHandle, InvalidState, Overloaded, UnknownHandle
from engine.jobs.directory import TaskDirectory
from engine.jobs.executor import JobListener, Outcome
from engine.model import Status
from engine.store.rounds import StoredRound
from engine.tasks.recovery import recover
from engine.tasks.rounds import id_of
from engine.tasks.roundstart import RoundStarter
from engine.tasks.task import Task

SEATS = ("lint", "types", "tests")


def starter(engine: Built) -> RoundStarter:
    return RoundStarter(engine.supervisor, engine.ledger)


async def start(engine: Built, *names: str, **more: Any) -> tuple[str, dict[str, Task]]:
    return await starter(engine).start("ci", {name: ask(**more) for name in names or SEATS})


async def end(engine: Built, *tasks: Task) -> None:
    """The jobs of building.py end when they are cancelled."""
    for task in tasks:
        await engine.canceller.cancel(task, 0, by="ci")


async def recovered(engine: Built) -> None:
    await recover(engine.home, engine.index, engine.ledger, engine.supervisor, engine.nursery)


def folders(engine: Built) -> set[str]:
    return {path.name for path in engine.home.tasks.iterdir() if path != engine.home.ahead}


def inbox(engine: Built) -> list[str]:
    return list(engine.supervisor.inbox.ready("ci"))


def receive(engine: Built, *handles: str) -> None:
    """A reply tells the caller of these ends, which acknowledges it."""
    delivery = engine.supervisor.inbox.claim("ci", handles, "a connection")
    engine.supervisor.inbox.keep(delivery, handles)
    engine.supervisor.inbox.acknowledge("ci", delivery.id)


def lose_ledger(home: Path) -> None:
    for path in home.glob("record.db*"):
        path.unlink()


class Killed(BaseException):
    """In place of the death of the engine."""


# -- what a round is -------------------------------------------------------------------------------


def test_its_end_is_received_under_another_handle_after_each_retry() -> None:
    row = StoredRound(id="r1", caller="ci", order=1, created_at=1, seats={"a": ("x", "y")})
    assert (row.handle, id_of(row.handle), row.tasks) == ("r1#1", "r1", {"a": "y"})


async def test_its_end_comes_into_the_inbox_with_that_of_the_last_seat(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        id_, tasks = await start(engine)
        rounds = engine.supervisor.rounds
        assert [(t.record.round_id, t.record.seat) for t in tasks.values()] == [
            (id_, name) for name in SEATS
        ]
        await end(engine, tasks["lint"], tasks["types"])
        assert (inbox(engine), list(rounds.live)) == ([], [id_])
        assert rounds.end_of(id_) is None
        await end(engine, tasks["tests"])
        assert (inbox(engine), list(rounds.live)) == ([f"{id_}#1"], [])
        assert rounds.end_of(id_) is Status.CANCELLED


async def test_a_seat_commits_no_session_state(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        _id, tasks = await start(engine)
        assert all(task.record.promoted for task in tasks.values())


async def test_a_retry_takes_the_old_end_out_of_the_inbox_and_brings_a_new_one(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        id_, tasks = await start(engine)
        await end(engine, *tasks.values())
        round_ = engine.supervisor.rounds.find(id_)
        again = await starter(engine).retry(round_, ["lint", "types"])
        left = [tasks[name].record.task_id for name in ("lint", "types")]
        # The round tells of them no more, so each does for itself.
        assert (inbox(engine), list(engine.supervisor.rounds.live)) == (left, [id_])
        await end(engine, *again.values())
        assert inbox(engine) == [*left, f"{id_}#2"]


async def test_what_was_received_of_a_retried_seat_does_not_come_again(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        id_, tasks = await start(engine)
        await end(engine, *tasks.values())
        receive(engine, f"{id_}#1", tasks["lint"].record.task_id)
        round_ = engine.supervisor.rounds.find(id_)
        await starter(engine).retry(round_, ["lint", "types"])
        assert inbox(engine) == [tasks["types"].record.task_id]


async def test_the_end_of_a_retried_seat_that_was_not_received_is_the_next_engines_to_tell(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        id_, tasks = await start(engine)
        await end(engine, tasks["lint"], tasks["types"])
        receive(engine, tasks["lint"].record.task_id)
        round_ = engine.supervisor.rounds.find(id_)
        await starter(engine).retry(round_, ["lint", "types"])
        await engine.index.flush()
    async with built(tmp_path, FakeExecutor()) as engine:
        await recovered(engine)
        ends, handles = engine.supervisor.rounds.known_ends(engine.index.ended())
        engine.supervisor.inbox.begin(ends, engine.index.kept_ids(), 99, handles)
        left = [handle for handle in inbox(engine) if not handle.startswith("r")]
        assert left == [tasks["types"].record.task_id]


async def test_seats_of_one_round_are_retried_one_call_after_the_other(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        id_, tasks = await start(engine)
        await end(engine, *tasks.values())
        rounds, refused = engine.supervisor.rounds, []

        async def retry(name: str) -> None:
            try:
                await starter(engine).retry(rounds.find(id_), [name])
            except InvalidState as exc:
                refused.append(exc.state)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(retry, "lint")
            nursery.start_soon(retry, "types")
        assert refused == ["starting"]
        assert sum(map(len, rounds.find(id_).row.seats.values())) == 4


async def test_while_a_retry_is_written_the_round_stands_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        id_, tasks = await start(engine)
        await end(engine, *tasks.values())
        rounds, add, seen = engine.supervisor.rounds, engine.ledger.add, []

        async def watched(row: Any) -> None:
            await add(row)
            seen.append(
                (rounds.end_of(id_), [r.generation for r in rounds.newest_first("ci", None)])
            )

        monkeypatch.setattr(engine.ledger, "add", watched)
        await starter(engine).retry(rounds.find(id_), ["lint"])
        assert seen == [(Status.CANCELLED, [1])]
        assert rounds.end_of(id_) is None
        await start(engine)
        assert [len(found) for _end, found in seen] == [1, 1]


async def test_with_the_last_of_its_tasks_it_is_forgotten(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        id_, tasks = await start(engine, "one", "two")
        await end(engine, *tasks.values())
        await engine.supervisor.forget(tasks["one"])
        assert engine.supervisor.rounds.find(id_).row.id == id_
        await engine.supervisor.forget(tasks["two"])
        assert inbox(engine) == []
        with pytest.raises(ExpiredHandle) as caught:
            engine.supervisor.rounds.find(id_)
        assert caught.value.status == "cancelled"
        assert not engine.supervisor.rounds.is_free(id_)
        assert list(engine.supervisor.rounds.newest_first(None, None)) == []


async def test_what_a_seat_was_to_run_is_gone_with_its_task(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        id_, tasks = await start(engine)
        await end(engine, *tasks.values())
        await engine.supervisor.forget(tasks["lint"])
        with pytest.raises(ExpiredHandle):
            await starter(engine).retry(engine.supervisor.rounds.find(id_), ["types", "lint"])
        assert len(folders(engine)) == 2


# -- refused, cancelled, no disk -------------------------------------------------------------------


async def test_without_room_for_all_nothing_is_made(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor(), slots=1, queue_limit=1) as engine:
        with pytest.raises(Overloaded):
            await start(engine)
        assert (folders(engine), engine.ledger.rounds.all()) == (set(), [])
        await start(engine, "one", "two")


@pytest.mark.parametrize("is_store", [True, False])
async def test_what_the_disk_does_not_take_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_store: bool
) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        if is_store:
            engine.ledger._writes.execute("PRAGMA query_only=1")
        else:
            write, left = TaskDirectory.write_spec, iter(range(2))

            def full(self: TaskDirectory, spec: Any) -> None:
                if next(left, None) is None:
                    raise OSError(28, "no space left on device")
                write(self, spec)

            monkeypatch.setattr(TaskDirectory, "write_spec", full)
        with pytest.raises(Overloaded):
            await start(engine)
        assert folders(engine) == set()
        assert not engine.supervisor.rounds.changing
        assert len(engine.supervisor.schedule.running) == len(engine.supervisor.schedule) == 0


async def test_cancelled_while_its_seats_are_made_it_leaves_nothing(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        with trio.CancelScope() as scope:
            scope.cancel()
            await start(engine)
        assert scope.cancelled_caught
        assert folders(engine) == set()


async def test_cancelled_while_it_is_written_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        add, scope = engine.ledger.add, trio.CancelScope()

        async def cancelled(row: Any) -> None:
            scope.cancel()
            await add(row)

        monkeypatch.setattr(engine.ledger, "add", cancelled)
        with scope:
            await start(engine)
        (row,) = engine.ledger.rounds.all()
        assert set(row.tasks.values()) == folders(engine) == set(engine.catalog.live)
        assert list(engine.supervisor.rounds.live) == [row.id]


# -- killed ----------------------------------------------------------------------------------------


async def killed_at(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str, *, is_retry: bool = False
) -> str:
    """An engine that dies at this step of a start, or of a retry; then the round's id."""
    ids = [""]
    with monkeypatch.context() as patch, pytest.raises(BaseExceptionGroup) as caught:
        await _live_until(step, path, patch, ids, is_retry=is_retry)
    assert caught.value.subgroup(Killed) is not None
    return ids[-1]


class UnbornJob(FakeJob):
    """Its keeper is killed with the engine, before it says or claims anything."""

    async def watch(self, listener: JobListener) -> Outcome:
        await trio.sleep_forever()
        raise AssertionError


async def _live_until(
    step: str, path: Path, patch: pytest.MonkeyPatch, ids: list[str], *, is_retry: bool
) -> None:
    executor = FakeExecutor()
    async with built(path, executor) as engine:
        if not is_retry:
            executor.make = UnbornJob
            _die_at(engine, patch, step)
            await start(engine)
            return
        id_, tasks = await start(engine)
        ids.append(id_)
        await end(engine, *tasks.values())
        await engine.index.flush()
        executor.make = UnbornJob
        _die_at(engine, patch, step)
        await starter(engine).retry(engine.supervisor.rounds.find(id_), ["lint", "types"])


def _die_at(engine: Built, patch: pytest.MonkeyPatch, step: str) -> None:
    acceptor, make = engine.supervisor.acceptor, engine.supervisor.acceptor._make
    # What is dead removes nothing.
    patch.setattr(acceptor, "unmake", lambda _made: None)
    if step == "the second directory is not made":
        made = iter(range(1))

        def make_one(asked: Any) -> Task:
            if next(made, None) is None:
                raise Killed
            return make(asked)

        patch.setattr(acceptor, "_make", make_one)
        return
    add = engine.ledger.add

    async def add_and_die(fact: Any) -> None:
        if step == "the row is written":
            await add(fact)
        raise Killed

    if step == "the first seat is taken in":
        take_in, taken = engine.supervisor.take_in, iter(range(1))

        def take_one(task: Task) -> None:
            if next(taken, None) is None:
                raise Killed
            take_in(task)

        patch.setattr(engine.supervisor, "take_in", take_one)
        return
    patch.setattr(engine.ledger, "add", add_and_die)
    patch.setattr(engine.ledger.rounds, "put", lambda _row: None)


BEFORE = ["the second directory is not made", "the row is not written"]
AFTER = ["the row is written", "the first seat is taken in"]


@pytest.mark.parametrize("step", BEFORE)
async def test_killed_before_its_row_is_written_there_is_no_round_and_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await killed_at(tmp_path, monkeypatch, step)
    executor = FakeExecutor()
    async with built(tmp_path, executor) as engine:
        await recovered(engine)
        assert engine.ledger.rounds.all() == []
        assert (folders(engine), executor.launched) == (set(), [])
        assert list(engine.catalog.unfinished()) == []


@pytest.mark.parametrize("step", AFTER)
async def test_killed_after_that_it_is_whole_and_begun_by_the_next_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await killed_at(tmp_path, monkeypatch, step)
    async with built(tmp_path, FakeExecutor()) as engine:
        await recovered(engine)
        (row,) = engine.ledger.rounds.all()
        assert set(row.tasks.values()) == folders(engine)
        tasks = [engine.catalog.find("t" + id_) for id_ in row.tasks.values()]
        await engine.supervisor.wait_started(tasks)
        await end(engine, *tasks)
        assert inbox(engine) == [row.handle]


@pytest.mark.parametrize("step", BEFORE)
async def test_killed_in_a_retry_before_its_row_is_written_the_round_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    id_ = await killed_at(tmp_path, monkeypatch, step, is_retry=True)
    async with built(tmp_path, FakeExecutor()) as engine:
        await recovered(engine)
        assert engine.supervisor.rounds.end_of(id_) is Status.CANCELLED
        assert len(folders(engine)) == 3
        assert engine.supervisor.rounds.find(id_).row.generation == 1


@pytest.mark.parametrize("step", AFTER)
async def test_killed_in_a_retry_after_that_its_seats_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    id_ = await killed_at(tmp_path, monkeypatch, step, is_retry=True)
    async with built(tmp_path, FakeExecutor()) as engine:
        await recovered(engine)
        round_ = engine.supervisor.rounds.live[id_]
        assert len(round_.running) == 2
        assert (len(folders(engine)), round_.row.generation) == (5, 2)


async def test_a_round_whose_end_was_not_received_is_in_the_next_engines_inbox_in_its_place(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        first = await engine.supervisor.accept(ask())
        await end(engine, first)
        id_, tasks = await start(engine, "one", "two")
        await end(engine, *tasks.values())
        last = await engine.supervisor.accept(ask())
        await end(engine, last)
        await engine.index.flush()
    async with built(tmp_path, FakeExecutor()) as engine:
        await recovered(engine)
        ends, handles = engine.supervisor.rounds.known_ends(engine.index.ended())
        engine.supervisor.inbox.begin(ends, engine.index.kept_ids(), 99, handles)
        expected = [first.record.task_id, f"{id_}#1", last.record.task_id]
        assert inbox(engine) == expected
        assert handles == {f"{id_}#1"}


async def test_a_ledger_that_was_lost_is_given_the_rounds_by_their_seats(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        id_, tasks = await start(engine)
        await end(engine, *tasks.values())
        await starter(engine).retry(engine.supervisor.rounds.find(id_), ["lint"])
        row = engine.supervisor.rounds.find(id_).row
        await engine.index.flush()
    lose_ledger(tmp_path)
    async with built(tmp_path, FakeExecutor()) as engine:
        await recovered(engine)
        found = engine.supervisor.rounds.find(id_).row
        assert (found.seats, found.generation, found.caller) == (row.seats, 2, "ci")
        assert len(engine.supervisor.rounds.live[id_].running) == 1


async def test_a_seat_whose_folder_somebody_removed_is_lost_and_the_round_ends(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor(), slots=1) as engine:
        id_, tasks = await start(engine, "one", "two")
        gone = tasks["two"]
        await engine.index.flush()
    with closing(sqlite3.connect(tmp_path / "index.db", isolation_level=None)) as index:
        index.execute("DELETE FROM task WHERE id = ?", (gone.id,))
    gone.directory.remove()
    async with built(tmp_path, FakeExecutor(), slots=1) as engine:
        await recovered(engine)
        rounds = engine.supervisor.rounds
        assert rounds.seats(rounds.find(id_).row)["two"].status is Status.LOST
        left = engine.catalog.find("t" + tasks["one"].id)
        await engine.supervisor.wait_started([left])
        await end(engine, left)
        assert (inbox(engine), rounds.end_of(id_)) == ([f"{id_}#1"], Status.FAILED)


async def test_what_was_told_of_a_lost_seat_is_known_to_the_next_engine(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        id_, _tasks = await start(engine, "one", "two")
        rounds = engine.supervisor.rounds
        once = rounds.shown(rounds.find(id_), "ci")
        once.receive(["abc"])
        once.carried["def"] = "d1"  # in a reply that is not acknowledged
        rounds.keep_shown(rounds.find(id_), "ci")
    async with built(tmp_path, FakeExecutor()) as engine:
        await recovered(engine)
        rounds = engine.supervisor.rounds
        once = rounds.shown(rounds.live[id_], "ci")
        assert (set(once.shown), once.doubtful) == ({"abc"}, {"def": "d1"})
        assert rounds.shown(rounds.live[id_], "other").shown == set()


async def test_an_id_that_no_round_had_is_unknown(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        for id_ in ("r000000", "r"):
            with pytest.raises(UnknownHandle):
                engine.supervisor.rounds.find(id_)
        assert engine.supervisor.rounds.end_of("r000000") is Status.LOST
