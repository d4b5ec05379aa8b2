"""Ending tasks on request: every process of them, wherever it fled to."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import structlog
import trio

from engine.errors import InvalidState
from engine.jobs import orphans
from engine.jobs.executor import RunningJob
from engine.model import Status, now_ms
from engine.tasks import ending
from engine.tasks.supervisor import Supervisor
from engine.tasks.task import Task

LAUNCH_SECS: Final = 10.0  # for a job under way to its keeper to get there
AT_ONCE: Final = 5  # taken off the queue in one turn; takes 1 ms
KILL_SECS: Final = 5.0  # after the grace, for what was sent KILL to be gone

log = structlog.get_logger()


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `survivors`: who is there all the same, {pid, command}.

    `is_forced`: its keeper did not answer, and whoever its processes were got the signals from us.
    """

    task: Task
    was_ended: bool
    signalled: list[int]
    survivors: list[dict[str, Any]]
    is_forced: bool = False

    @property
    def outcome(self) -> str:
        """`cancelled` unless it had ended by itself, before or in the same moment."""
        is_cancelled = self.is_forced or self.task.record.status is Status.CANCELLED
        return "cancelled" if is_cancelled and not self.was_ended else "already_finished"


class Canceller:
    """Cancels through the supervisor's tasks and their keepers."""

    def __init__(self, supervisor: Supervisor, job_nursery: trio.Nursery) -> None:
        self._supervisor, self._job_nursery = supervisor, job_nursery

    async def cancel(self, task: Task, grace_secs: float, *, by: str) -> Cancelled:
        """End `task` for the caller `by`; returns when all its processes are gone.

        At the latest `grace_secs` + `KILL_SECS` later. Of a task that has ended, the processes
        that it left behind are ended. Being cancelled itself undoes nothing. Raises InvalidState
        where it has not ended: its keeper does not answer, or the kernel keeps its processes.
        """
        was_ended = task.is_ended
        log.info("cancel", taskId=task.record.task_id, caller=task.record.caller, by=by)
        if self._take_off_queue(task):
            return _unstarted(task)
        if task.opening is not None:  # an interpreter may take a minute to be ready
            task.opening.cancel()
        await self._wait_launched(task)
        # Its keeper may have died meanwhile, and it waits again; or takes no job: it never will.
        cancelled = ending.unstarted("cancelled", now_ms())
        if self._take_off_queue(task) or self._supervisor.end_launching(task, cancelled):
            return _unstarted(task)
        if task.record.status is Status.LOST:
            signalled, left = await orphans.end(task.record.task_id, grace_secs)
            return Cancelled(task=task, was_ended=was_ended, signalled=signalled, survivors=left)
        return await self._end_job(task, grace_secs, was_ended=was_ended)

    def cancel_soon(self, task: Task, grace_secs: float, *, by: str) -> None:
        """Cancel without waiting for it: nobody is there to hear of it."""

        async def cancel() -> None:
            try:
                await self.cancel(task, grace_secs, by=by)
            except (OSError, InvalidState) as exc:
                log.error("not_cancelled", taskId=task.record.task_id, reason=str(exc))

        self._job_nursery.start_soon(cancel)

    async def cancel_all(
        self, caller: str | None, grace_secs: float, *, by: str
    ) -> list[Cancelled]:
        """End all that `caller` (None: anybody) has running or queued.

        The queue first, so that nothing starts. Raises InvalidState for the first that could not
        be, once all others are.
        """
        done: list[Cancelled] = []
        failed: list[InvalidState] = []
        tasks = [
            task
            for task in self._supervisor.catalog.unfinished()
            if caller is None or task.record.caller == caller
        ]

        async def cancel_one(task: Task) -> None:
            try:
                done.append(await self.cancel(task, grace_secs, by=by))
            except InvalidState as exc:
                failed.append(exc)

        done += await self._empty_queue(tasks)
        async with trio.open_nursery() as nursery:
            for task in tasks:
                if not task.is_ended:
                    nursery.start_soon(cancel_one, task)
        if failed:
            raise failed[0]
        return sorted(done, key=lambda one: one.task.record.order)

    async def _empty_queue(self, tasks: list[Task]) -> list[Cancelled]:
        """End those that wait, however many: all off the queue at once, then a few a turn.

        Being cancelled itself, it leaves them to be ended all the same.
        """
        taken = self._supervisor.schedule.take_all_out(tasks)
        ended: list[Task] = []
        is_done = trio.Event()

        async def end_all() -> None:
            for count, task in enumerate(taken, 1):
                if self._end_taken_out(task):
                    ended.append(task)
                if count % AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
            is_done.set()

        self._job_nursery.start_soon(end_all)
        await is_done.wait()
        return [_unstarted(task) for task in ended]

    def _take_off_queue(self, task: Task) -> bool:
        is_waiting = self._supervisor.schedule.take_out(task)
        return is_waiting and self._end_taken_out(task)

    def _end_taken_out(self, task: Task) -> bool:
        return self._supervisor.end_waiting(task, ending.unstarted("cancelled", now_ms()))

    async def _wait_launched(self, task: Task) -> None:
        """Wait until a job on its way to a keeper is there: then it can be signalled."""
        await self._supervisor.waits.until(
            ("start", task.id),
            lambda: True if task.job is not None or task.is_ended else None,
            LAUNCH_SECS,
        )

    async def _end_job(self, task: Task, grace_secs: float, *, was_ended: bool) -> Cancelled:
        job = task.job or await self._find_again(task)
        answer = [] if job is None else await job.cancel(grace_secs)
        signalled = answer or []
        left: list[dict[str, Any]] = []
        if answer is None:  # a debugger holds its keeper, which may be its own job: as if it died
            signalled, left = await orphans.end(task.record.task_id, grace_secs)
            await self._wait_gone(task, job, KILL_SECS)
        elif job is not None:
            if signalled or not task.is_ended:  # else threads alone are left, which nothing ends
                await self._wait_gone(task, job, grace_secs + KILL_SECS)
            left = await job.survivors()
        if not task.is_ended:
            raise _not_cancelled(task, signalled, left)
        return Cancelled(
            task=task,
            was_ended=was_ended,
            signalled=signalled,
            survivors=left,
            is_forced=answer is None and bool(signalled),
        )

    async def _wait_gone(self, task: Task, job: RunningJob | None, limit_secs: float) -> None:
        await self._supervisor.waits.until(
            ("gone", task.id), lambda: None if task.job is job else True, limit_secs
        )

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


def _unstarted(task: Task) -> Cancelled:
    return Cancelled(task=task, was_ended=False, signalled=[], survivors=[])


def _not_cancelled(
    task: Task, signalled: list[int], survivors: list[dict[str, Any]]
) -> InvalidState:
    record = task.record
    why = "processes of it are still there" if survivors else "its keeper does not answer"
    facts = {"taskId": record.task_id, "signalled": signalled, "survivors": survivors}
    return InvalidState(f"{record.task_id} is not cancelled: {why}", state=record.status, **facts)
