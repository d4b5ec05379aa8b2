"""Ending tasks on request: every process of them, wherever it fled to."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import structlog
import trio

from engine.jobs import orphans
from engine.jobs.executor import RunningJob
from engine.model import Status, now_ms
from engine.tasks import ending
from engine.tasks.supervisor import Supervisor
from engine.tasks.task import Task

LAUNCH_SECS: Final = 10.0  # for a job under way to its keeper to get there
KILL_SECS: Final = 5.0  # after the grace, for what was sent KILL to be gone

log = structlog.get_logger()


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `survivors`: who is there all the same, {pid, command}."""

    task: Task
    was_ended: bool
    signalled: list[int]
    survivors: list[dict[str, Any]]

    @property
    def outcome(self) -> str:
        """`cancelled` unless it had ended by itself, before or in the same moment."""
        is_ours = not self.was_ended and self.task.record.status is Status.CANCELLED
        return "cancelled" if is_ours else "already_finished"


class Canceller:
    """Cancels through the supervisor's tasks and their keepers."""

    def __init__(self, supervisor: Supervisor, job_nursery: trio.Nursery) -> None:
        self._supervisor, self._job_nursery = supervisor, job_nursery

    async def cancel(self, task: Task, grace_secs: float, *, by: str) -> Cancelled:
        """End `task` for the caller `by`; returns when all its processes are gone.

        At the latest `grace_secs` + `KILL_SECS` later. Of a task that has ended, the processes
        that it left behind are ended. Being cancelled itself undoes nothing.
        """
        was_ended = task.is_ended
        log.info("cancel", taskId=task.record.task_id, caller=task.record.caller, by=by)
        if self._take_off_queue(task):
            return Cancelled(task=task, was_ended=False, signalled=[], survivors=[])
        if task.opening is not None:  # an interpreter may take a minute to be ready
            task.opening.cancel()
        await self._wait_launched(task)
        if task.record.status is Status.LOST:
            signalled, left = await orphans.end(task.record.task_id, grace_secs)
        else:
            signalled, left = await self._end_job(task, grace_secs)
        return Cancelled(task=task, was_ended=was_ended, signalled=signalled, survivors=left)

    def cancel_soon(self, task: Task, grace_secs: float, *, by: str) -> None:
        """Cancel without waiting for it: nobody is there to hear of it."""

        async def cancel() -> None:
            try:
                await self.cancel(task, grace_secs, by=by)
            except OSError as exc:
                log.error("not_cancelled", taskId=task.record.task_id, reason=str(exc))

        self._job_nursery.start_soon(cancel)

    async def cancel_all(
        self, caller: str | None, grace_secs: float, *, by: str
    ) -> list[Cancelled]:
        """End all that `caller` (None: anybody) has running or queued.

        The queue first, so that nothing starts.
        """
        done: list[Cancelled] = []
        tasks = [
            task
            for task in self._supervisor.catalog.unfinished()
            if caller is None or task.record.caller == caller
        ]

        async def cancel_one(task: Task) -> None:
            done.append(await self.cancel(task, grace_secs, by=by))

        for task in tasks:
            if self._take_off_queue(task):
                done.append(Cancelled(task=task, was_ended=False, signalled=[], survivors=[]))
        async with trio.open_nursery() as nursery:
            for task in tasks:
                if not task.is_ended:
                    nursery.start_soon(cancel_one, task)
        return sorted(done, key=lambda one: one.task.record.order)

    def _take_off_queue(self, task: Task) -> bool:
        if not self._supervisor.take_out(task):
            return False
        if self._supervisor.end_unstarted(task, ending.unstarted("cancelled", now_ms())):
            self._supervisor.let_go(task)
            return True
        # A keeper of an engine before us had it after all.
        self._supervisor.adopt(task)
        self._job_nursery.start_soon(self._supervisor.resolve, task)
        return False

    async def _wait_launched(self, task: Task) -> None:
        """Wait until a job on its way to a keeper is there: then it can be signalled."""
        await self._supervisor.waits.until(
            ("start", task.id),
            lambda: True if task.job is not None or task.is_ended else None,
            LAUNCH_SECS,
        )

    async def _end_job(
        self, task: Task, grace_secs: float
    ) -> tuple[list[int], list[dict[str, Any]]]:
        job = task.job or await self._find_again(task)
        if job is None:
            return [], []
        signalled = await job.cancel(grace_secs)
        if signalled or not task.is_ended:  # else threads alone are left, which nothing ends
            await self._supervisor.waits.until(
                ("gone", task.id),
                lambda: None if task.job is job else True,
                grace_secs + KILL_SECS,
            )
        return signalled, await job.survivors()

    async def _find_again(self, task: Task) -> RunningJob | None:
        """The job of a task that ended before this engine began, if it left processes behind."""
        try:
            claim = task.directory.read_claim()
        except FileNotFoundError:
            return None
        if not claim or not task.record.survivors:
            return None
        self._supervisor.catalog.add(task)
        self._job_nursery.start_soon(self._supervisor.resolve, task)
        await self._wait_attached(task)
        return task.job

    async def _wait_attached(self, task: Task) -> None:
        """Wait until the keeper is attached to, or the task is found to have nobody left."""
        live = self._supervisor.catalog.live
        await self._supervisor.waits.until(
            ("start", task.id),
            lambda: True if task.job is not None or task.id not in live else None,
            LAUNCH_SECS,
        )
