"""When a running task is ready, as its `ready_when` has it, and what it is blocked on.

Looks at outputs as they grow, in bounded turns; at ports by trying, since no kernel tells. What is
found goes into the record, once and for all. What is told to whom, the inbox and replies know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import structlog
import trio

from engine.errors import NO_ROOM
from engine.jobs.linesearch import LineSearch
from engine.jobs.pages import OutputFile
from engine.jobs.plaintext import render
from engine.jobs.ports import accepts
from engine.model import TaskRecord
from engine.store.index import Index
from engine.tasks.task import Task
from engine.threads import in_thread

TURN_BYTES: Final = 1 << 20  # searched at a time
INLINE_BYTES: Final = 64 << 10  # of these a thread would cost more than the search
FIRST_PAUSE_SECS: Final = 0.02  # between two tries of a port,
LAST_PAUSE_SECS: Final = 0.5  # growing to this
PAUSE_GROWTH: Final = 1.25
STARVED_SECS: Final = 1.0  # until an output is read again that there was no descriptor for
PROMPT_LENGTH: Final = 200  # characters
_TAIL_BYTES: Final = 4096  # of an output, in which its last line is looked for

# Outputs are searched one turn after the other, whosever they are: beside many threads the engine's
# own would have few turns at the interpreter.
_SEARCHERS: Final = trio.CapacityLimiter(1)

log = structlog.get_logger()


class Remarks(Protocol):
    def remark(self, record: TaskRecord, text: str) -> None:
        """Write down a word about a task. May not block or raise."""


class _Watch:
    """One task that is not ready yet."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.grown = trio.Event()


class Readiness:
    """`stir` has those look who wait for a task's state."""

    def __init__(
        self, index: Index, remarks: Remarks, stir: Callable[[Task], None], nursery: trio.Nursery
    ) -> None:
        self._index, self._remarks, self._stir, self._nursery = index, remarks, stir, nursery
        self._watches: dict[str, _Watch] = {}

    # -- blocked ---------------------------------------------------------------------------------

    def blocked(self, task: Task, category: str | None) -> None:
        """A task's keeper says on what it is blocked; None: on nothing."""
        if task.is_ended:
            return
        prompt = _prompt(task) if category == "input" else None
        if (task.record.blocked, task.record.prompt) == (category, prompt):
            return
        task.change(blocked=category, prompt=prompt)
        self._index.put(task.record)
        self._stir(task)

    # -- ready -----------------------------------------------------------------------------------

    def started(self, task: Task) -> None:
        """A task runs, also one of an engine before us: watch until it is ready."""
        record = task.record
        if record.ready_when is not None and not record.ready and task.id not in self._watches:
            self._watches[task.id] = watch = _Watch()
            self._nursery.start_soon(self._serve, task, watch)

    def grew(self, task: Task) -> None:
        """The output of a task has grown."""
        watch = self._watches.get(task.id)
        if watch is not None:
            watch.grown.set()

    def ended(self, task: Task) -> None:
        """A task has ended: if it is not ready by now, it never is."""
        watch = self._watches.pop(task.id, None)
        if watch is not None:
            watch.scope.cancel()

    async def _serve(self, task: Task, watch: _Watch) -> None:
        wanted = task.record.ready_when
        assert wanted is not None
        how, warning, line = "", None, None
        with watch.scope:
            if wanted.contains is not None:
                line = await self._wait_line(task, watch, wanted.contains)
                how = "a line of its output says so"
            elif wanted.port is not None:
                warning = await self._wait_port(task, wanted.port)
                how = f"port {wanted.port} accepts"
        if how and not task.is_ended:
            del self._watches[task.id]
            self._set_ready(task, how, warning, line)

    def _set_ready(self, task: Task, how: str, warning: str | None, line: str | None) -> None:
        self._remarks.remark(task.record, f"{task.record.task_id} is ready: {how}")
        if warning is not None:
            self._warn(task, warning)
        task.change(ready=True, ready_line=line)
        self._index.put(task.record)
        self._stir(task)

    def _warn(self, task: Task, warning: str) -> None:
        if warning not in task.record.warnings:
            self._remarks.remark(task.record, f"{task.record.task_id}: {warning}")
            task.change(warnings=(*task.record.warnings, warning))

    # -- by line -----------------------------------------------------------------------------------

    async def _wait_line(self, task: Task, watch: _Watch, text: str) -> str:
        """Wait until one of the outputs shows the text; the line in which it does."""
        searches = [LineSearch(text) for _ in task.record.files]
        while True:
            watch.grown = trio.Event()
            for which, search in enumerate(searches):
                if await _search_on(task, which, search):
                    return search.line
            await watch.grown.wait()

    # -- by port -----------------------------------------------------------------------------------

    async def _wait_port(self, task: Task, port: int) -> str | None:
        """Wait until `port` accepts for this task; a warning where that is not sure.

        What was there before the task is not its own, and is not connected to again.
        """
        pause, is_others = FIRST_PAUSE_SECS, False
        while True:
            job = task.job
            if job is not None and (is_others or await accepts(port)):
                whose = await job.listener()
                if whose == "job":
                    return None
                if not is_others and whose in ("new", "unknown"):
                    return f"whether port {port} is the task's own is not known"
                if whose == "before":
                    self._warn(task, f"port {port} was taken before the task began")
                is_others = whose == "before"
            await trio.sleep(pause)
            pause = min(pause * PAUSE_GROWTH, LAST_PAUSE_SECS)


async def _search_on(task: Task, which: int, search: LineSearch) -> bool:
    """Search one of the outputs up to its end as known now; whether the text is there."""
    while True:
        record = task.record
        size = record.sizes[which] if which < len(record.sizes) else 0
        dropped = record.dropped[which] if which < len(record.dropped) else ()
        for start, end in dropped:
            if start <= search.position < end:
                search.skip(end)
        if search.position >= size:
            return False
        if size - search.position <= INLINE_BYTES:
            found = _search_turn(task, which, search, size)
        else:
            found = await in_thread(_search_turn, task, which, search, size, limiter=_SEARCHERS)
        if found is None:
            await trio.sleep(STARVED_SECS)  # nobody tells when there is a descriptor to be had
        elif found:
            return True


def _search_turn(task: Task, which: int, search: LineSearch, size: int) -> bool | None:
    """One turn of it; None where there was no descriptor or memory to read with."""
    try:
        with (
            task.directory.opened() as dir_fd,
            OutputFile(task.record.files[which], dir_fd=dir_fd) as file,
        ):
            data = file.read_at(search.position, min(TURN_BYTES, size - search.position))
    except OSError as exc:
        if exc.errno in NO_ROOM:
            return None
        data = b""
    if not data:  # somebody has removed it, or cut it short
        search.skip(size)
    return search.feed(data)


def _prompt(task: Task) -> str:
    """The unfinished last line of a task's output, of two the first that is not empty; its end."""
    record = task.record
    for which, name in enumerate(record.files):
        size = record.sizes[which] if which < len(record.sizes) else 0
        try:
            with task.directory.opened() as dir_fd, OutputFile(name, dir_fd=dir_fd) as file:
                data = file.read_at(max(size - _TAIL_BYTES, 0), min(size, _TAIL_BYTES))
        except OSError as exc:
            log.warning("prompt_not_read", taskId=record.task_id, reason=str(exc))
            continue
        line = render(data.decode("utf-8", "replace").rpartition("\n")[2])
        shown = "".join(c for c in line if c.isprintable())[-PROMPT_LENGTH:]
        if shown.strip():
            return shown
    return ""
