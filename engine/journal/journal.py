"""One journal, one order: the lines of all jobs and the engine's own, each tagged and levelled.

Knows which outputs are read and how far, and what the newest line of each kind is, so that a
reply that has nothing to tell asks the database nothing. Readers of the wire are the server's.
"""

from __future__ import annotations

from typing import Final

from engine.jobs.directory import TaskDirectory
from engine.journal.cutter import MAX_TEXT
from engine.journal.levels import Level
from engine.journal.pump import Pump
from engine.model import Kind, Status, TaskRecord, now_ms
from engine.store.index import Committed, Index
from engine.store.lines import NewLine
from engine.tasks.waits import Waits

SETTLE_SECS: Final = 1.0  # that a reply waits for the lines of its task
MOST_NOTED: Final = 10_000  # tasks of which is known that the engine has a word about them
LITTLE_LEFT: Final = 1 << 20  # bytes of a running job that wait for the next batch
_LEVELS: Final = len(Level)


class Journal:
    """Written through the index's one writer; lives in the engine's own thread."""

    def __init__(self, index: Index, waits: Waits) -> None:
        self._index, self._waits = index, waits
        self._pumps: dict[str, Pump] = {}
        self._unread = index.unread()
        # Level -> the last `seq` by which a line of it may have come: of anybody, and by caller.
        self._newest = [index.latest_seq] * _LEVELS
        # Tasks that a line of the engine's own is about; of older ones that is not known.
        self._noted: set[str] = set()
        self._noted_from = now_ms()
        self._unsettled: set[str] = set()  # of these, those whose line may not be committed

    @property
    def head(self) -> int:
        """The last `seq` that is committed."""
        return self._index.latest_seq

    # -- in ------------------------------------------------------------------------------------

    def note(
        self, level: Level, text: str, *, caller: str | None = None, task: str | None = None
    ) -> None:
        """Write a line of the engine's own; `task` is an id without its letter."""
        if task is not None:
            if len(self._noted) >= MOST_NOTED:
                self._noted.clear()
                self._unsettled.clear()
                self._noted_from = now_ms()
            self._noted.add(task)
            self._unsettled.add(task)
        self._index.note([_line(level, text, caller, task)])

    def grew(self, record: TaskRecord, directory: TaskDirectory) -> None:
        """The output of a task has grown, or what is kept of it has changed.

        Also after its end: whoever is left of it may write, until it is `gone`.
        """
        is_new = not self._is_read(record)
        pump = self._pump(record, directory)
        if record.status.is_final and is_new:
            pump.end(is_silent=True)  # or it would be here still
        if pump.is_ended and pump.sizes != record.sizes:
            pump.may_grow = True  # by somebody who may be in no list
        pump.sizes, pump.dropped = record.sizes, record.dropped
        if pump.is_behind:
            self._index.work(record.id, pump, is_urgent=False)

    def ended(self, record: TaskRecord, directory: TaskDirectory) -> None:
        """A task has ended: its last lines, and one that says so if it did not succeed.

        To be called in the turn in which the ended record is put: then one transaction has both,
        or it has how far the output was read.
        """
        is_silent = record.status is Status.SUCCEEDED and not record.output_bytes
        # An interpreter's threads are in no list of survivors. One whose session is to be settled
        # is ended once more by the next engine, which has to know that its lines are in.
        may_grow = bool(record.survivors) or record.kind is Kind.CODE
        may_grow = may_grow or (record.unsettled and not is_silent)
        if is_silent and not may_grow and not self._is_read(record):
            return
        pump = self._pump(record, directory)
        pump.sizes, pump.dropped = record.sizes, record.dropped
        pump.may_grow = may_grow
        if record.status is not Status.SUCCEEDED:
            text = f"task {record.task_id} {record.status.value}{_how(record)}"
            pump.closing = [_line(Level.ERROR, text, record.caller, record.id)]
        pump.end(is_silent=is_silent)
        self._index.work(record.id, pump, is_urgent=not pump.is_settled)

    def gone(self, record: TaskRecord) -> None:
        """Nobody of the task is left, so its output will not grow any more."""
        pump = self._pumps.get(record.id)
        if pump is None or not pump.is_ended:
            return
        pump.may_grow, pump.is_gone = False, True
        if pump.is_behind or pump.is_kept:
            self._index.work(record.id, pump, is_urgent=False)
        else:
            del self._pumps[record.id]

    def remark(self, record: TaskRecord, text: str) -> None:
        """Write down a word about a task."""
        self.note(Level.NOTICE, text, caller=record.caller, task=record.id)

    def _is_read(self, record: TaskRecord) -> bool:
        return record.id in self._pumps or record.id in self._unread

    def _pump(self, record: TaskRecord, directory: TaskDirectory) -> Pump:
        pump = self._pumps.get(record.id)
        if pump is None:
            state = self._unread.pop(record.id, None)
            pump = Pump(record.id, record.caller, record.files, directory, state=state)
            self._pumps[record.id] = pump
        return pump

    def unread(self) -> list[str]:
        """The tasks of whose output an earlier engine may have left something to read."""
        return list(self._unread)

    # -- what was committed ------------------------------------------------------------------------

    def on_committed(self, done: Committed) -> None:
        """Take note of a transaction: who is told, and whose output has more to read."""
        for level in done.levels:
            self._newest[level] = done.seq
        for _work, piece in done.pieces:
            pump = self._pumps.get(piece.task)
            if pump is None:
                continue
            if pump.is_behind:
                # Nobody tells when there is a descriptor to be had: the next batch tries. Nor is
                # the little that a job has written since worth a transaction of its own.
                is_urgent = pump.is_ended or pump.left_bytes > LITTLE_LEFT
                self._index.work(pump.id, pump, is_urgent=is_urgent and not pump.is_starved)
            elif pump.is_gone and piece.state is None:
                del self._pumps[piece.task]
            if pump.is_settled:
                self._waits.wake(("journal", piece.task))
        if done.line_count:
            self._waits.wake("lines")

    # -- out ---------------------------------------------------------------------------------------

    async def settle(self, task: str) -> bool:
        """Wait until the lines of an ended task are in, `SETTLE_SECS` at most; whether they are."""
        if task in self._unsettled:
            self._unsettled.discard(task)
            await self._index.flush(SETTLE_SECS)
        pump = self._pumps.get(task)
        if pump is None or pump.is_settled:
            return True
        if self._index.trouble is not None:
            return False  # a second would change nothing
        found = await self._waits.until(
            ("journal", task), lambda: True if pump.is_settled else None, SETTLE_SECS
        )
        return found is not None

    def has_lines(self, record: TaskRecord) -> bool:
        """Whether there may be lines about a task that has ended; False spares a look."""
        is_silent = record.status is Status.SUCCEEDED and not record.output_bytes
        is_noted = record.id in self._noted or record.created_at <= self._noted_from
        return is_noted or not is_silent

    def is_newer(self, level: int, mark: int) -> bool:
        """Whether a line of this level may have come after `mark`."""
        return self._newest[level] > mark


def _line(level: Level, text: str, caller: str | None, task: str | None) -> NewLine:
    """A line of the engine's own. What jobs and clients have put into its text forges nothing."""
    shown = "".join(c if c.isprintable() else " " for c in text[:MAX_TEXT])
    return NewLine(now_ms(), int(level), caller, task, "engine", shown)


def _how(record: TaskRecord) -> str:
    if record.skipped_for is not None:
        return f": {record.skipped_for}"
    if record.error is not None:
        said = [part for part in (record.error.type, record.error.message) if part]
        return f" ({': '.join(said)})" if said else ""
    if record.reason == "out_of_memory":
        return " (out of memory)"
    if record.signal is not None:
        return f" ({record.signal})"
    return f" (exit {record.exit_code})" if record.exit_code is not None else ""
