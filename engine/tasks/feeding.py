"""Writing to the standard input of a task that was started with it open."""

from __future__ import annotations

from typing import Final

from engine.errors import InvalidState, Overloaded
from engine.jobs.executor import INPUT_LIMIT
from engine.model import Status
from engine.tasks.supervisor import Supervisor
from engine.tasks.task import Task

LAUNCH_SECS: Final = 10.0  # for a job under way to its keeper to get there


async def feed(supervisor: Supervisor, task: Task, data: bytes, *, eof: bool) -> None:
    """Write all of `data`, and end the input there with `eof`. Waits for no reader.

    Raises InvalidState where the input is not open; Overloaded where the job has not read enough
    of what came before, with what was taken (`written`); then `eof` is not done.
    """
    name = task.record.task_id
    if supervisor.schedule.place(task) is not None:
        raise InvalidState(f"{name} has not started", state=Status.QUEUED)
    await supervisor.waits.until(
        ("start", task.id),
        lambda: True if task.job is not None or task.is_ended else None,
        LAUNCH_SECS,
    )
    written = None
    if not task.is_ended and task.job is not None:
        written = await task.job.write(data, eof=eof)
    if written is not None and written.is_open:
        if written.taken < len(data):
            raise Overloaded(
                "more than 1 MiB that the job has not read", INPUT_LIMIT, written=written.taken
            )
        return
    record = task.record
    if task.is_ended:
        raise InvalidState(f"{name} has ended", state=record.status, exitCode=record.exit_code)
    if written is not None:
        raise InvalidState(f"the standard input of {name} is not open", state=record.status)
    raise Overloaded("the job's keeper does not answer; what it took is not known", "keeper")
