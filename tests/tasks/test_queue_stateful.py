"""The queue, the turns and the slots, whatever happens to them in whatever order."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stateful import examples
from tasks.building import BASE, Built, FakeExecutor, FakeJob, built
from trio.testing import wait_all_tasks_blocked

from engine.jobs.directory import Asked
from engine.jobs.executor import JobListener, Outcome
from engine.tasks.pythons import PythonSessions
from engine.tasks.queue import FairQueue
from engine.tasks.task import Task

CALLERS = "abcd"
SLOTS = 2
Item = tuple[str, int]  # its caller, and its number in the order of coming


class QueueMachine(RuleBasedStateMachine):
    """A FairQueue beside a list for each caller, and for each who waits, who was served since."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[Item] = FairQueue()
        self.waiting: dict[str, list[Item]] = {}  # by their numbers
        self.served_since: dict[str, set[str]] = {}
        self.numbers = itertools.count()
        self.away: list[Item] = []  # popped

    def _put(self, item: Item) -> None:
        self.queue.push(item[0], item, item[1])
        self.waiting.setdefault(item[0], []).append(item)
        self.waiting[item[0]].sort()
        self.served_since.setdefault(item[0], set())

    def _drop(self, item: Item) -> None:
        self.waiting[item[0]].remove(item)
        if not self.waiting[item[0]]:
            del self.waiting[item[0]], self.served_since[item[0]]

    @rule(caller=st.sampled_from(CALLERS))
    def push(self, caller: str) -> None:
        self._put((caller, next(self.numbers)))

    @precondition(lambda self: self.away)
    @rule(data=st.data())
    def push_again(self, data: st.DataObject) -> None:
        """One that was begun, and was not, takes its old place among those of its caller."""
        item = data.draw(st.sampled_from(self.away))
        self.away.remove(item)
        self._put(item)

    @precondition(lambda self: self.waiting)
    @rule()
    def pop(self) -> None:
        item = self.queue.pop(is_open)
        assert item is not None
        caller = item[0]
        assert item == self.waiting[caller][0]
        for other, served in self.served_since.items():
            assert other == caller or caller not in served, f"{caller} twice while {other} waits"
            served.add(caller)
        self.served_since[caller] = set()
        self._drop(item)
        self.away.append(item)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from([i for items in self.waiting.values() for i in items]))
        assert self.queue.remove(item)
        assert not self.queue.remove(item)
        self._drop(item)

    @invariant()
    def all_are_there_and_where_they_are_said_to_be(self) -> None:
        order = list(self.queue.in_order(is_open))
        assert sorted(order) == sorted(i for items in self.waiting.values() for i in items)
        assert len(self.queue) == len(order)
        assert [self.queue.position(item, is_open) for item in order] == list(
            range(1, len(order) + 1)
        )

    def teardown(self) -> None:
        """What is left comes out in the order that was told."""
        order = list(self.queue.in_order(is_open))
        assert [self.queue.pop(is_open) for _ in order] == order
        assert len(self.queue) == 0


def is_open(_lane: str | None) -> bool:
    return True


TestQueue = QueueMachine.TestCase
TestQueue.settings = examples(60)


class Job(FakeJob):
    """Ends when the test says so; or its keeper dies before it has claimed it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_dying = False

    async def watch(self, listener: JobListener) -> Outcome:
        outcome = Outcome.GONE
        await super().watch(_Unless(listener, lambda: self.is_dying))
        return Outcome.BROKEN if self.is_dying else outcome

    def end(self) -> None:
        self._cancelled.set()

    def die(self) -> None:
        self.is_dying = True
        self._cancelled.set()


class _Unless:
    """Tells of no end that is none."""

    def __init__(self, listener: JobListener, is_silent: Callable[[], bool]) -> None:
        self._listener, self._is_silent = listener, is_silent
        self.on_started, self.on_grew = listener.on_started, listener.on_grew
        self.on_blocked, self.on_settled = listener.on_blocked, listener.on_settled

    def on_ended(self, record: dict[str, Any], state: bytes) -> None:
        if not self._is_silent():
            self._listener.on_ended(record, state)


class Interpreters:
    """In place of the Python sessions: calls of code are jobs as any other."""

    def __init__(self, executor: FakeExecutor) -> None:
        self._executor = executor

    async def launch(self, task: Task, spec: object) -> FakeJob:
        self._executor.launched.append(task.id)
        return self._executor.make()


class Shop:
    """A supervisor with two slots, and what a test knows of its tasks."""

    def __init__(self, engine: Built, executor: FakeExecutor) -> None:
        self.engine, self.executor = engine, executor
        engine.supervisor.pythons = cast(PythonSessions, Interpreters(executor))
        self.tasks: list[Task] = []

    async def accept(self, caller: str, *, is_code: bool) -> None:
        what: dict[str, Any] = {"code": "1", "session": True} if is_code else {"argv": ["true"]}
        asked = Asked(caller=caller, base=BASE, **what)
        self.tasks.append(await self.engine.supervisor.accept(asked))

    @property
    def running(self) -> list[Task]:
        return [t for t in self.tasks if t in self.engine.supervisor.schedule.running]

    @property
    def waiting(self) -> list[Task]:
        return [t for t in self.tasks if not t.is_ended and t not in self.running]

    def positions(self) -> dict[str, int]:
        """Task -> what it is told to be in the order of starts."""
        found = {}
        for task in self.waiting:
            facts = self.engine.supervisor.schedule.place(task)
            assert facts is not None, "it neither runs nor waits"
            found[task.id] = facts[0]
        return found

    def job(self, task: Task) -> Job:
        assert isinstance(task.job, Job)
        return task.job

    def check(self) -> None:
        """No slot too many, none idle while somebody waits for one, nobody lost."""
        schedule = self.engine.supervisor.schedule
        assert len(schedule.running) <= SLOTS
        assert len(schedule.running) == SLOTS or len(schedule.queue) == 0
        assert sorted(t.id for t in schedule.waiting()) == sorted(t.id for t in self.waiting)
        code = defaultdict(list)
        for task in self.running:
            code[task.record.caller].extend([task] if task.record.kind == "code" else [])
        assert all(len(tasks) <= 1 for tasks in code.values()), "two calls in one Python session"
        self.positions()


async def step(shop: Shop, draw: Callable[[st.SearchStrategy[Any]], Any], *, code: bool) -> None:
    what = draw(st.sampled_from(["accept", "accept", "accept", "end", "end", "die", "cancel"]))
    told, launched = shop.positions(), len(shop.executor.launched)
    if not shop.running:
        what = "accept"
    if what == "accept":
        await shop.accept(draw(st.sampled_from(CALLERS)), is_code=code and draw(st.booleans()))
    elif what == "cancel":
        task = draw(st.sampled_from([*shop.running, *shop.waiting]))
        await shop.engine.canceller.cancel(task, 0, by="x")
        assert task.record.status == "cancelled"
    else:
        task = draw(st.sampled_from(shop.running))
        if what == "die" and task.launches < 5:
            shop.job(task).die()
        else:
            shop.job(task).end()
    await wait_all_tasks_blocked()
    shop.check()
    if what == "end" and not code:
        assert shop.executor.launched[launched:] == [id_ for id_, at in told.items() if at == 1]


async def drain(shop: Shop, *, code: bool) -> None:
    """End one after the other: they start in the order that was told, and all of them do."""
    told = shop.positions()
    first = len(shop.executor.launched)
    while shop.running:
        shop.job(shop.running[0]).end()
        await wait_all_tasks_blocked()
        shop.check()
    assert all(task.is_ended for task in shop.tasks)
    order = shop.executor.launched[first:]
    assert sorted(order) == sorted(told)
    if not code:
        assert [told[id_] for id_ in order] == list(range(1, len(order) + 1))


@pytest.mark.parametrize("code", [False, True], ids=["argv", "with code"])
def test_slots_are_given_in_the_order_that_was_told_and_nobody_is_lost(
    code: bool, tmp_path: Path
) -> None:
    numbers = itertools.count()

    @examples(25, shrinks=False)
    @given(st.data(), st.integers(5, 30))
    def run(data: st.DataObject, steps: int) -> None:
        async def scenario() -> None:
            executor = FakeExecutor(make=Job)
            async with built(tmp_path / str(next(numbers)), executor, slots=SLOTS) as engine:
                shop = Shop(engine, executor)
                for _ in range(steps):
                    await step(shop, data.draw, code=code)
                await drain(shop, code=code)

        trio.run(scenario)

    run()


def test_calls_of_one_caller_in_its_python_session_begin_in_the_order_of_coming(
    tmp_path: Path,
) -> None:
    numbers = itertools.count()

    @examples(15, shrinks=False)
    @given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), min_size=4, max_size=14))
    def run(calls: list[tuple[str, bool]]) -> None:
        async def scenario() -> None:
            executor = FakeExecutor(make=Job)
            async with built(tmp_path / str(next(numbers)), executor, slots=SLOTS) as engine:
                shop = Shop(engine, executor)
                for caller, is_code in calls:
                    await shop.accept(caller, is_code=is_code)
                    await wait_all_tasks_blocked()
                await drain(shop, code=True)
                order = [(id_, executor.launched.index(id_)) for id_ in (t.id for t in shop.tasks)]
                place = dict(order)
                for caller, kind in itertools.product("ab", ("code", "argv")):
                    mine = [
                        place[t.id]
                        for t in shop.tasks
                        if (t.record.caller, t.record.kind) == (caller, kind)
                    ]
                    assert mine == sorted(mine)

        trio.run(scenario)

    run()
