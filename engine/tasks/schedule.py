"""Who waits for what, and who starts next: dependencies, then turns, then the queue for the slots.

Knows how many run, and in which lanes. Starts nothing, ends nothing, wakes nobody: that is the
supervisor's.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from engine.model import Kind, Status
from engine.tasks.dependencies import START, Decision, Dependencies
from engine.tasks.lanes import Lanes
from engine.tasks.mode import Mode
from engine.tasks.queue import FairQueue
from engine.tasks.task import Task
from engine.tasks.turns import Turns

SHOWN_IDS: Final = 20  # of those that a call waits for; `read_task` has them all


class Place(NamedTuple):
    """Where one that waits stands. `blocked_on`: in wire form, where it is no slot."""

    position: int
    reason: str
    blocked_on: dict[str, Any] | None = None


class Schedule:
    """All that wait, and those that hold a slot."""

    def __init__(
        self, *, slots: int, lanes: Lanes, mode: Mode, standing: Callable[[str], Status | None]
    ) -> None:
        """`standing`: how what a handle names has ended; None while it has not."""
        self.slots, self.lanes, self.mode = slots, lanes, mode
        self.queue: FairQueue[Task] = FairQueue()
        self.turns: Turns[Task] = Turns()  # in the callers' Python sessions
        self.dependencies: Dependencies[Task] = Dependencies(standing)
        self.running: set[Task] = set()  # those that hold a slot
        self.lack: str | None = None  # why the queue is held, while it is
        self._shut: set[str | None] = set()  # lanes that were full when last looked at

    def __len__(self) -> int:
        """How many wait."""
        return len(self.queue) + len(self.turns) + len(self.dependencies)

    def waiting(self) -> Iterator[Task]:
        """All that wait."""
        return itertools.chain(self.queue, self.turns, self.dependencies)

    @property
    def waiting_since(self) -> int | None:
        """When the oldest of them was accepted, in ms; None where nobody waits."""
        heads = itertools.chain(self.queue.heads(), self.turns.heads(), self.dependencies.heads())
        return min((task.record.created_at for task in heads), default=None)

    def waiting_by_lane(self) -> Counter[str]:
        """How many wait for each lane; of those in none nothing is told."""
        others = itertools.chain(self.turns, self.dependencies)
        lanes = (task.record.lane for task in others)
        return self.queue.by_lane() + Counter(lane for lane in lanes if lane is not None)

    # -- in and out ----------------------------------------------------------------------------

    def depend(self, task: Task) -> Decision | None:
        """Have a task wait for others if it is to; None: it waits, else what is decided."""
        record = task.record
        if not record.after:
            return START
        return self.dependencies.add(task, record.order, record.after, record.after_when)

    def enqueue(self, task: Task) -> None:
        """Put a task in by its acceptance; one for a Python session when it has its turn there."""
        if not in_python_session(task) or self.turns.take(task.record.caller, task):
            self._push(task)

    def _push(self, task: Task) -> None:
        record = task.record
        self.queue.push(record.caller, task, record.order, record.lane)

    def take_out(self, task: Task) -> bool:
        """Take a task out of where it waits; False if it does not."""
        return (
            self.queue.remove(task)
            or self.turns.remove(task.record.caller, task)
            or self.dependencies.remove(task)
        )

    def take_all_out(self, tasks: Sequence[Task]) -> list[Task]:
        """Take those of them that wait out of where they do, all in one turn."""
        # From the end: what is taken out of the middle of a line moves all behind it.
        return [task for task in reversed(tasks) if self.take_out(task)][::-1]

    @property
    def has_next(self) -> bool:
        """Whether somebody waits in the queue, and there is a slot."""
        return bool(self.queue) and len(self.running) < self.slots

    def start_next(self) -> Task | None:
        """The next that may start now, with a slot; None if none may."""
        if len(self.running) >= self.slots:
            return None
        task = self.queue.pop(self.lanes.is_open, self.mode.owner)
        if task is not None:
            self._hold(task)
        return task

    def _hold(self, task: Task) -> None:
        if task not in self.running:
            self.running.add(task)
            self.lanes.take(task.record.lane)

    def adopt(self, task: Task) -> None:
        """Count a task that an engine before us began as one that runs."""
        self._hold(task)
        if in_python_session(task):
            self.turns.join(task.record.caller, task)

    def free_slot(self, task: Task) -> None:
        """Take its slot from a task, if it has one."""
        if task in self.running:
            self.running.discard(task)
            self.lanes.give_back(task.record.lane)

    def end_turn(self, task: Task) -> Task | None:
        """Let the next of its caller into the Python session, in the order of acceptance."""
        following = self.turns.end(task.record.caller, task)
        if following is not None:
            self._push(following)
        return following

    # -- what is told --------------------------------------------------------------------------

    def in_order(self) -> Iterator[Task]:
        """Those in the queue, in the order in which they would start now."""
        return self.queue.in_order(self.lanes.is_open, self.mode.owner)

    def place(self, task: Task) -> Place | None:
        """Of one that waits; None for one that has its slot or has ended."""
        if task.record.status is not Status.QUEUED:
            return None
        if task in self.queue:
            return self._place_in_queue(task)
        number = self.dependencies.place(task)
        if number is not None:
            return self._place_after(task, len(self.queue) + len(self.turns) + number)
        number = self.turns.place(task.record.caller, task)
        holder = self.turns.holder(task.record.caller)
        if number is None or holder is None:
            return None
        if holder in self.queue:  # whose turn comes first
            place = self._place_in_queue(holder)
            return Place(place.position + number, place.reason)
        return Place(number, f"python session busy with {holder.record.task_id}")

    def _place_in_queue(self, task: Task) -> Place:
        record, owner = task.record, self.mode.owner
        position = self.queue.position(task, self.lanes.is_open, owner)
        assert position is not None
        blocked_on, reason = None, self.lack or f"all {self.slots} slots are busy"
        if record.lane is not None and not self.lanes.is_open(record.lane):
            blocked_on = {"category": "lane", "lane": record.lane}
            reason = self.lanes.reason(record.lane)
        if owner is not None and owner != record.caller:
            reason = f"the engine is exclusive to {owner}"
        return Place(position, reason, blocked_on)

    def _place_after(self, task: Task, position: int) -> Place:
        handles = self.dependencies.open(task)
        more = f" and {len(handles) - 1} more" if len(handles) > 1 else ""
        ids = {"category": "after", "ids": handles[:SHOWN_IDS]}
        return Place(position, f"after {handles[0]}{more}", ids)

    def is_lane_full(self, task: Task) -> bool:
        """Whether one that waits for its slot waits for its lane too."""
        lane = task.record.lane
        return lane is not None and task in self.queue and not self.lanes.is_open(lane)

    def newly_blocked(self) -> list[Task]:
        """Those that wait in a lane which has become full since this was asked last."""
        shut = self.queue.shut(self.lanes.is_open)
        blocked = [task for lane in shut - self._shut for task in self.queue.waiting_in(lane)]
        self._shut = shut
        return blocked


def in_python_session(task: Task) -> bool:
    return task.record.kind is Kind.CODE and task.record.session
