"""The folder of a task: the record that it alone tells of, at its beginning and after its end; and
its removal.
"""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from engine.jobs.directory import Spec, TaskDirectory
from engine.model import TaskRecord
from engine.tasks.ending import ended

log = structlog.get_logger()

SMALL_BYTES: Final = 4096  # of a `spec.json` that counts for nothing: a block of the disk


def record_in(directory: TaskDirectory) -> TaskRecord | None:
    """The record of a task that has ended; None where its folder does not tell of one."""
    try:
        spec, end = directory.read_spec(), directory.read_exit()
    except FileNotFoundError:
        return None
    if spec is None or end is None or spec.id != directory.id:
        return None
    return ended(record_of(spec), end)


def record_of(spec: Spec) -> TaskRecord:
    """The first record of a task, as its spec has it."""
    return TaskRecord(
        id=spec.id,
        caller=spec.caller,
        kind=spec.kind,
        title=spec.title,
        order=spec.order,
        created_at=spec.created_at,
        split=spec.split,
        session=spec.session,
        deadline_secs=spec.deadline_secs,
        lane=spec.lane,
        after=tuple(spec.after),
        after_when=spec.after_when,
        ready_when=spec.ready_when,
        # No call waits for a seat: it has left the session before it begins.
        promoted=spec.round_id is not None,
        round_id=spec.round_id,
        seat=spec.seat,
        asked_bytes=_large(len(msgspec.json.encode(spec))),
    )


def remove(directory: TaskDirectory) -> None:
    """Remove it, files and all; what cannot be is said in the log, and tried by the next start."""
    try:
        directory.remove()
    except OSError as exc:
        log.warning("task_files_left", taskId="t" + directory.id, reason=str(exc))


def _large(size: int) -> int:
    return size if size > SMALL_BYTES else 0
