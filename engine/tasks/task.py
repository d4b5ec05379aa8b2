"""The live handle of one task: its record, and the job while there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import trio

from engine.jobs.directory import Spec, TaskDirectory
from engine.jobs.executor import RunningJob
from engine.jobs.shellstate import CallPlan
from engine.model import NEXT, TaskRecord
from engine.tasks.alerts import Once


class Task:
    """`record` is immutable and swapped; whoever swaps it wakes those who wait."""

    __slots__ = (
        "directory",
        "inline_calls",
        "is_launching",
        "job",
        "launches",
        "lines_told",
        "opening",
        "plan",
        "record",
        "shown",
        "spec",
        "told",
        "was_promoted",
    )

    def __init__(
        self, record: TaskRecord, directory: TaskDirectory, spec: Spec | None = None
    ) -> None:
        self.record = record
        self.directory = directory
        self.spec = spec  # until the job is started; None also for one read back
        self.plan: CallPlan | None = None  # while its shell may commit a state
        self.job: RunningJob | None = None  # until nobody of it is left
        self.inline_calls = 0  # calls within their budget that wait for it
        self.is_launching = False  # off the queue, not yet known to run
        self.opening: trio.CancelScope | None = None  # while its interpreter is not ready
        self.launches = 0  # keepers it was handed to; one that dies first has not begun it
        # Caller -> for each output file, the offset up to which a reply has shown it.
        self.told: dict[str, tuple[int, ...]] = {}
        # Likewise for each level the last line of its log that was examined, by `seq`.
        self.lines_told: dict[str, list[int]] = {}
        # Likewise what is told once of it while it runs: that it is ready, or blocked so.
        self.shown: dict[str, Once] = {}
        self.was_promoted = True  # of one read back: before the engine ended that had it

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def is_ended(self) -> bool:
        return self.record.status.is_final

    @property
    def is_started(self) -> bool:
        """Whether its start is known; until then it is a kickoff."""
        return self.record.started_at is not None and not self.is_launching

    def change(self, **changes: Any) -> None:
        """Swap in a record with `changes`. A step that `NEXT` lacks is a bug of ours."""
        status = changes.get("status", self.record.status)
        if status != self.record.status and status not in NEXT[self.record.status]:
            raise AssertionError(f"{self.record.status} -> {status}")
        self.record = msgspec.structs.replace(self.record, **changes)


class Listener:
    """Passes a job's news on to the supervisor, with the task that they are about."""

    def __init__(
        self,
        task: Task,
        started: Callable[[Task, dict[str, Any]], None],
        grew: Callable[[Task, dict[str, Any]], None],
        blocked: Callable[[Task, str | None], None],
        ended: Callable[[Task, dict[str, Any], bytes], None],
        settled: Callable[[Task, dict[str, Any], bytes], None],
    ) -> None:
        self._task, self._started, self._grew = task, started, grew
        self._blocked, self._ended, self._settled = blocked, ended, settled

    def on_started(self, news: dict[str, Any]) -> None:
        self._started(self._task, news)

    def on_grew(self, news: dict[str, Any]) -> None:
        self._grew(self._task, news)

    def on_blocked(self, category: str | None) -> None:
        self._blocked(self._task, category)

    def on_ended(self, record: dict[str, Any], state: bytes) -> None:
        self._ended(self._task, record, state)

    def on_settled(self, news: dict[str, Any], state: bytes) -> None:
        self._settled(self._task, news, state)
