"""Brings to the counts what happens: ends, starts, lines, and the beat of the samples."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import structlog

from engine.jobs.cgroup import JobCgroups
from engine.jobs.directory import TaskDirectory
from engine.jobs.executor import Order
from engine.jobs.local import LocalExecutor
from engine.jobs.localjob import LocalJob
from engine.model import TaskRecord, now_ms
from engine.server.services import Services
from engine.server.stats import HOUR_MS, STEP_MS, Stats, gauges, serve_ticks
from engine.store import past
from engine.tasks.supervisor import TaskLog
from engine.threads import in_thread

log = structlog.get_logger()


class TimedExecutor(LocalExecutor):
    """Knows of each job that has not been counted yet when it was handed over."""

    def __init__(
        self, sockets: Path, log_file: Path, *, umask: int, cgroups: JobCgroups | None = None
    ) -> None:
        self._launched_at: dict[str, int] = {}  # by the task's id
        super().__init__(sockets, log_file, umask=umask, cgroups=cgroups)

    async def launch(self, directory: TaskDirectory, order: Order) -> LocalJob:
        self._launched_at[directory.id] = now_ms()
        return await super().launch(directory, order)

    def count(self, record: TaskRecord, stats: Stats) -> None:
        """Count the launch of a task that has a process, or has ended; once."""
        if record.started_at is None and record.ended_at is None:
            return
        launched_at = self._launched_at.pop(record.id, None)
        if launched_at is not None and record.started_at is not None:
            stats.launched(record.started_at, record.started_at - launched_at)


class CountingLog:
    """A `TaskLog` that counts ends before it passes them on."""

    def __init__(self, inner: TaskLog, stats: Stats, executor: TimedExecutor) -> None:
        self._stats, self._executor = stats, executor
        self.grew, self.gone, self._ended = inner.grew, inner.gone, inner.ended
        self.remark = inner.remark

    def ended(self, record: TaskRecord, directory: TaskDirectory) -> None:
        self._executor.count(record, self._stats)
        self._stats.ended(record)
        self._ended(record, directory)


async def serve_counts(services: Services, executor: TimedExecutor, last_seq: int) -> None:
    """Take over the last hour of the engine before, whose last `seq` is told; then beat on."""
    await services.ready.wait()
    try:
        await _look_back(services, last_seq)
    except sqlite3.Error as exc:
        log.error("stats_not_taken_over", reason=str(exc))

    def tick(now: int) -> None:
        schedule = services.supervisor.schedule
        for task in schedule.running:
            executor.count(task.record, services.stats)
        services.stats.tick(now, len(schedule.running), len(schedule))
        services.roster.drop_older(now - HOUR_MS)

    await serve_ticks(tick)


async def _look_back(services: Services, last_seq: int) -> None:
    stats, index = services.stats, services.index
    since = stats.begin - HOUR_MS
    ended = await index.search(past.ends, since, last_seq)
    lines = await index.search(past.line_counts, since, last_seq, STEP_MS)
    tasks: list[TaskRecord | past.End] = [*ended, *stats.early]
    tasks += [task.record for task in services.catalog.unfinished()]
    await stats.remember(ended, lines, await in_thread(gauges, tasks, stats.begin))
    for each in tasks:
        services.roster.recall(each.caller, each.created_at)
