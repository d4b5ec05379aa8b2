"""The life of every task: accepted, queued, started, promoted, ended.

One way in: whatever starts something is `accept`ed, waits in the queue for a slot, and runs below
a keeper. The supervisor knows callers by name; of sockets and replies it knows nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Collection
from typing import Any, Final, Protocol

import msgspec
import structlog
import trio

from engine.errors import InvalidState, Overloaded
from engine.jobs.directory import Asked, TaskDirectory
from engine.jobs.executor import Executor, LaunchRefused, Outcome, RunningJob
from engine.jobs.pythonlocal import InterpreterFailed
from engine.model import Kind, Status, TaskRecord, as_text, now_ms
from engine.store.index import Index
from engine.store.ledger import Ledger, Tomb
from engine.tasks import ending, infolder
from engine.tasks.accepting import Acceptor
from engine.tasks.ahead import DirectoriesAhead
from engine.tasks.catalog import Catalog
from engine.tasks.dependencies import Decision
from engine.tasks.inbox import Inbox
from engine.tasks.keys import keys_in, wait_known
from engine.tasks.pythons import OpeningCancelled, PythonSessions
from engine.tasks.readiness import Readiness
from engine.tasks.room import lack_of_room, takes_files
from engine.tasks.rounds import Rounds
from engine.tasks.schedule import Schedule
from engine.tasks.sessions import ShellSessions
from engine.tasks.settling import Settling
from engine.tasks.starting import Starter
from engine.tasks.storing import store_needed
from engine.tasks.task import Listener, Task
from engine.tasks.waits import Waits
from engine.tasks.warming import WarmShells

START_SECS: Final = 5.0  # that a call waits for the start of a job that has its slot; usually 3 ms
NO_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
MAX_LAUNCHES: Final = 5  # of one job, by keepers that die before they claim it
RETRY_SECS: Final = 1.0  # until a task's directory is tried again that could not be read

log = structlog.get_logger()


class TaskLog(Protocol):
    """Who writes down the lines of tasks. None of these may block or raise."""

    def grew(self, record: TaskRecord, directory: TaskDirectory) -> None:
        """The output of a task has grown."""

    def ended(self, record: TaskRecord, directory: TaskDirectory) -> None:
        """A task has ended; its record is put in the same turn."""

    def gone(self, record: TaskRecord) -> None:
        """Nobody of an ended task is left."""

    def remark(self, record: TaskRecord, text: str) -> None:
        """There is a word to say about a task."""


class Supervisor:
    """Owns the live tasks; who of them may start, the schedule knows."""

    def __init__(
        self,
        *,
        acceptor: Acceptor,
        schedule: Schedule,
        executor: Executor,
        starter: Starter,
        sessions: ShellSessions,
        warm: WarmShells,
        directories: DirectoriesAhead,
        pythons: PythonSessions,
        index: Index,
        ledger: Ledger,
        catalog: Catalog,
        waits: Waits,
        inbox: Inbox,
        rounds: Rounds,
        task_log: TaskLog,
        job_nursery: trio.Nursery,
    ) -> None:
        self.acceptor = acceptor
        self._executor, self._starter = executor, starter
        self.sessions, self.pythons = sessions, pythons
        self._warm, self._directories = warm, directories
        self._settling = Settling(sessions, waits)
        self._index, self._ledger, self.catalog, self.waits = index, ledger, catalog, waits
        self.inbox, self.rounds = inbox, rounds
        self._task_log = task_log
        self._job_nursery = job_nursery
        self.schedule = schedule
        self._readiness = Readiness(index, task_log, self.stir, job_nursery)
        self._ends: deque[tuple[str, Status]] = deque()  # of which dependents are to be told
        self._gone: set[str] = set()  # callers of whom only tasks are left
        self._told_lack: str | None = None  # the log has it, and no job has begun since
        self.is_stopping = False

    # -- in ------------------------------------------------------------------------------------

    async def accept(self, asked: Asked) -> Task:
        """The task for this call: a new one, queued or about to start, or that of its key.

        Raises what `Acceptor.accept` raises. Once a new task is there, cancelling does not
        undo it.
        """
        if not await wait_known(self._ledger, self.waits, asked) and not self.is_stopping:
            what = "the keys of earlier calls are still being read; ask again with the same key"
            raise Overloaded(what, "store")
        task, is_new = await self.acceptor.accept(asked, len(self.schedule))
        if is_new:
            self.take_in(task)
        return task

    # -- queue and slots -------------------------------------------------------------------------

    def take_in(self, task: Task) -> None:
        """Have a task wait for those that it depends on, or give it its place in the queue.

        One that can never start is skipped at once.
        """
        decision = self.schedule.depend(task)
        if decision is not None:
            self._decided(task, decision)
            return
        task.spec = None
        self._index.put(task.record)

    def enqueue(self, task: Task) -> None:
        """Give a task its place, by its acceptance; it starts as soon as a slot is free.

        One for a Python session first waits, without a slot, for its turn in that.
        """
        self.schedule.enqueue(task)
        self.pump()
        if not task.is_launching:
            task.spec = None  # read again when its turn comes: ten thousand may wait
            self.stir(task)  # its lane may be full
        if not task.is_launching or task.record.kind is Kind.CODE:
            self._index.put(task.record)  # an interpreter may take long to start

    def pump(self) -> None:
        """Start what there are slots for, and room on the disk."""
        while not self.is_stopping and self.schedule.has_next and self._has_room():
            task = self.schedule.start_next()
            if task is None:
                break
            task.is_launching = True
            self._job_nursery.start_soon(self._run, task)
        for task in self.schedule.newly_blocked():
            self.stir(task)

    def _has_room(self) -> bool:
        lack = lack_of_room(self.catalog.home.tasks) if self.schedule.lack is None else None
        if lack is not None:
            self._hold(lack)
        return self.schedule.lack is None

    def _hold(self, lack: str) -> None:
        """Have the queue wait for room: what a job writes on a full disk is lost."""
        if self._told_lack is None:
            log.error("queue_held", reason=lack)
        if self.schedule.lack is None:
            self._job_nursery.start_soon(self._wait_for_room)
        self.schedule.lack = self._told_lack = lack

    async def _wait_for_room(self) -> None:
        while self.schedule.lack is not None:
            await trio.sleep(RETRY_SECS)  # nobody tells when there is some
            self.schedule.lack = lack_of_room(self.catalog.home.tasks)
        self.pump()

    def adopt(self, task: Task) -> None:
        """Count a task that an engine before us began as one that runs."""
        self.schedule.adopt(task)

    def expect_state(self, task: Task) -> None:
        """Expect the state of a call that an engine before us may have answered without it."""
        try:
            spec, end = task.directory.read_spec(), task.directory.read_exit()
            if spec is None or not spec.session or not (end and end.get("unsettled")):
                return
            _order, plan = self._starter.order(spec, self.sessions.state(spec.caller))
        except OSError as exc:
            log.error("session_not_read", taskId=task.record.task_id, reason=str(exc))
            return
        if plan is not None:
            self._settling.expect(spec, plan)

    def end_waiting(self, task: Task, end: dict[str, Any]) -> bool:
        """End a task that was taken out of where it waited; False if it runs after all."""
        if self.end_unstarted(task, end):
            self.let_go(task)
            return True
        # A keeper of an engine before us had it.
        self.adopt(task)
        self._job_nursery.start_soon(self.resolve, task)
        return False

    def _decided(self, task: Task, decision: Decision) -> None:
        """Nothing is left that a task waits for, or one of them has ended in the wrong way."""
        if decision.skipped_for is None:
            self.enqueue(task)
        else:
            self.end_waiting(task, ending.skipped(now_ms(), decision.skipped_for))

    def _tell_dependents(self, key: str, status: Status) -> None:
        """Have those who wait for this end started or skipped, in a child of its own: there may be
        ten thousand, one waiting for the other."""
        if not self.schedule.dependencies.has_dependents(key):
            return
        self._ends.append((key, status))
        if len(self._ends) == 1:
            self._job_nursery.start_soon(self._serve_ends)

    async def _serve_ends(self) -> None:
        dependencies = self.schedule.dependencies
        while self._ends:
            key, status = self._ends[0]
            for task in dependencies.dependents(key):
                decision = dependencies.hear(task, key, status)
                if decision is not None:
                    self._decided(task, decision)
                await trio.lowlevel.checkpoint()
            self._ends.popleft()

    def stir(self, task: Task) -> None:
        """A task is ready, or blocked on something else than before: whoever waits for that
        looks, also those who wait for all of its caller's."""
        self.waits.wake(("state", task.id))
        self.rounds.stirred(task.record)
        self.inbox.stirred(task.record)

    def _end_turn(self, task: Task) -> None:
        """Let the next of its caller into the Python session, in the order of acceptance."""
        following = self.schedule.end_turn(task)
        if following is not None:
            self.stir(following)  # its lane may be full
        self._forget_if_gone(task.record.caller)

    def _free_slot(self, task: Task) -> None:
        self.schedule.free_slot(task)
        self.pump()

    async def set_lane(self, lane: str, limit: int) -> None:
        """Give a lane its limit; what runs in it goes on. Raises Overloaded."""
        with store_needed():
            await self.schedule.lanes.set_limit(lane, limit)
        self.pump()

    async def set_mode(self, caller: str, ttl_secs: float | None, *, is_human: bool) -> None:
        """Have `caller` alone start things for so long; None: everybody again.

        Raises InvalidState where another has the engine, Overloaded.
        """
        mode = self.schedule.mode
        with store_needed():
            if ttl_secs is None:
                await mode.share(caller, is_human=is_human)
            else:
                await mode.take(caller, ttl_secs)
        self.pump()

    async def serve_mode(self) -> None:
        """End the exclusive mode when its time is over."""
        await self.schedule.mode.serve(self.pump)

    # -- running -----------------------------------------------------------------------------------

    async def _run(self, task: Task) -> None:
        """Launch the job and watch it until nobody of it is left."""
        try:
            job = await self._launch(task)
            outcome = await self._watch(task, job)
        except LaunchRefused as exc:
            if self._is_keepers_own(task, exc):
                self._requeue(task)
                return
            if exc.errno in NO_DISK:  # its files could not be made: it waits as the others do
                self._hold(f"the disk takes no files: {os.strerror(exc.errno)}")
                task.launches -= 1
                self._requeue(task)
                return
            self._refuse(task, exc)
            outcome = Outcome.GONE
        except InterpreterFailed as exc:
            self._refuse(task, exc, exc.exit_code)
            outcome = Outcome.GONE
        except OpeningCancelled:
            is_ours = self.end_unstarted(task, ending.unstarted("cancelled", now_ms()))
            outcome = Outcome.GONE if is_ours else Outcome.TAKEN
        if outcome is Outcome.GONE:
            self.let_go(task)
        else:
            await self.resolve(task)

    def _is_keepers_own(self, task: Task, refusal: LaunchRefused) -> bool:
        """Whether another keeper may do what one could not: of the disk each says what it is let
        write, and a job can limit its keeper.
        """
        if refusal.errno not in NO_DISK | {errno.EFBIG} or task.launches >= MAX_LAUNCHES:
            return False
        tasks = self.catalog.home.tasks
        if lack_of_room(tasks) is not None or not takes_files(tasks):
            return False
        log.warning("keeper_passed_over", taskId=task.record.task_id, reason=str(refusal))
        return True

    def let_go(self, task: Task) -> None:
        """Nobody of the task is left: the index and the journal know it from here on."""
        self.catalog.retire(task)
        self._task_log.gone(task.record)

    def _refuse(
        self, task: Task, refusal: LaunchRefused | InterpreterFailed, exit_code: int = 126
    ) -> None:
        """End a task whose job could not be handed to a keeper."""
        log.error("launch_refused", taskId=task.record.task_id, reason=str(refusal))
        failure = {"errno": refusal.errno, "message": str(refusal)}
        end = ending.unstarted("spawn_error", now_ms(), error=failure, exit_code=exit_code)
        self.end_unstarted(task, end)

    async def _launch(self, task: Task) -> RunningJob:
        task.launches += 1
        try:
            spec = task.spec or task.directory.read_spec()
            if spec is None:
                raise LaunchRefused("spec.json cannot be read")
            is_shell = spec.session and spec.kind is Kind.BASH
            if is_shell:
                await self._settling.wait(spec.caller)
            state = self.sessions.state(spec.caller) if is_shell else None
        except OSError as exc:
            raise LaunchRefused(f"not read: {exc.strerror}") from exc
        if spec.kind is Kind.CODE:
            return await self.pythons.launch(task, spec)
        self._warm.take(spec, state)
        is_quiet = not self.waits.is_anybody(("start", task.id))
        order, task.plan = self._starter.order(spec, state, is_quiet=is_quiet)
        task.spec = spec
        task.change(cwd=as_text(order.cwd))
        job = await self._executor.launch(task.directory, order)
        if is_shell and self._warm.is_hurried(spec.caller):
            self._job_nursery.start_soon(self._warm.renew, spec.caller)
        return job

    async def _watch(self, task: Task, job: RunningJob) -> Outcome:
        task.job = job
        self.waits.wake(("start", task.id))
        try:
            blocked = self._readiness.blocked
            return await job.watch(
                Listener(
                    task, self._on_started, self._on_grew, blocked, self.on_ended, self._on_settled
                )
            )
        finally:
            task.job = None
            self.waits.wake(("gone", task.id))

    async def resolve(self, task: Task) -> None:
        """Find out from its directory how a job stands, and go on from there.

        For a job that an earlier engine began, and for one whose keeper died under us.
        """
        is_resolved = False
        while not is_resolved:
            try:
                is_resolved = await self._resolve_once(task)
            except OSError as exc:
                log.error("task_not_read", taskId=task.record.task_id, reason=str(exc))
                await trio.sleep(RETRY_SECS)  # nobody tells when there is a descriptor to be had

    async def _resolve_once(self, task: Task) -> bool:
        """False: ask again. Raises OSError."""
        self._take_end(task)
        claim = _claim_of(task)
        if claim is None and task.is_ended:
            claim = ""  # the disk was full when it was ended unstarted
        if claim is None and task.launches < MAX_LAUNCHES:
            self._requeue(task)
            return True
        if claim is None:
            self._refuse(task, LaunchRefused(f"{MAX_LAUNCHES} keepers died before they began it"))
            self.let_go(task)
            return True
        job = await self._executor.attach(task.directory, claim) if claim else None
        outcome = Outcome.ABSENT if job is None else await self._watch(task, job)
        self._take_end(task)
        if outcome is Outcome.BROKEN:
            return False  # if that keeper is dead, the next attach says so
        self._settling.lose(task.id)
        self._note_settled(task)
        if not task.is_ended:
            self._lose(task)
        elif outcome is Outcome.ABSENT:
            self._take_rest(task)
        self.let_go(task)
        self.waits.wake(("start", task.id))  # whoever waits for its keeper: there is none
        return True

    def _take_end(self, task: Task) -> None:
        """Take over the end that stands in the directory, if there is one."""
        if task.is_ended:
            return
        try:
            end = task.directory.read_exit()
        except FileNotFoundError:  # the job has removed its own directory
            return
        if end is None:
            return
        record = task.record
        if task.plan is not None and record.session and end["cause"] == "exit":
            # Its keeper died between writing down the end and sending the state.
            log.warning("session_state_lost", taskId=record.task_id, caller=record.caller)
        self.on_ended(task, end, b"")

    def _take_rest(self, task: Task) -> None:
        """What processes wrote after the end of their job, and nobody told us of."""
        with contextlib.suppress(FileNotFoundError):
            sizes, dropped = task.directory.written(task.record.files)
            if sum(sizes) > task.record.output_bytes:
                known = task.record.dropped
                news = {"sizes": sizes, "dropped": known if any(known) else dropped}
                self._on_grew(task, news)

    def _requeue(self, task: Task) -> None:
        task.is_launching = False
        self.schedule.free_slot(task)
        if task.record.status is not Status.QUEUED:
            task.change(status=Status.QUEUED, started_at=None)
        self.waits.wake(("start", task.id))
        self.enqueue(task)

    def _lose(self, task: Task) -> None:
        try:
            sizes, dropped = task.directory.written(task.record.files)
            started_at = task.record.started_at or task.directory.claimed_at()
        except FileNotFoundError:
            sizes, dropped, started_at = task.record.sizes, (), None
        end = ending.lost(task.record, now_ms(), sizes, dropped, started_at)
        try:
            task.directory.end_lost(end)
        except OSError as exc:
            log.error("end_not_written", taskId=task.record.task_id, reason=str(exc))
        self.on_ended(task, end, b"")

    # -- news ------------------------------------------------------------------------------------

    def _on_started(self, task: Task, news: dict[str, Any]) -> None:
        task.is_launching = False
        if self._told_lack is not None:
            log.info("queue_goes_on")
            self._told_lack = None
        task.spec = task.spec if task.plan is not None else None
        if not task.is_ended:
            # Also of one that was known to run: the index may be a new one.
            wanted, cwd = task.record.cwd, as_text(news["cwd"]) or None
            is_elsewhere = wanted is not None and cwd is not None and cwd != wanted
            task.change(
                status=Status.RUNNING,
                started_at=news["startedAt"],
                cwd=cwd,
                cwd_missing=wanted if is_elsewhere else None,
            )
            self._index.put(task.record)
            self._readiness.started(task)
        self.waits.wake(("start", task.id))

    def _on_grew(self, task: Task, news: dict[str, Any]) -> None:
        before = task.record.output_bytes
        task.record = ending.grown(task.record, news)
        if task.record.output_bytes:  # of an adopted one the size may be known, and not one line
            self._task_log.grew(task.record, task.directory)
            self._readiness.grew(task)
        if task.record.output_bytes == before:
            return
        task.change(last_output_at=now_ms())
        if task.is_ended:
            self._index.put(task.record)
        self.waits.wake(("output", task.id))

    def on_ended(self, task: Task, end: dict[str, Any], dump: bytes) -> None:
        """The job has ended: the session, the record, the index, the slot, those who wait."""
        if task.is_ended:
            return
        record = ending.ended(task.record, end)
        if record.output_bytes and record.last_output_at is None:
            record = msgspec.structs.replace(record, last_output_at=record.ended_at)
        if task.plan and task.spec and end["cause"] == "exit" and not record.promoted:
            if "stateLeft" in end:
                self.sessions.leave_out(task.spec, end["stateLeft"])
            if "settling" in end:
                self._settling.expect(task.spec, task.plan)
                cwd: str | None = end["settling"]
                record = msgspec.structs.replace(record, unsettled=True)
            else:
                cwd = self.sessions.commit(task.spec, task.plan, dump) if dump else None
            record = msgspec.structs.replace(record, cwd=as_text(cwd) if cwd else record.cwd)
        task.record, task.plan, task.spec, task.is_launching = record, None, None, False
        self.catalog.ended(task)
        self._readiness.ended(task)
        self._task_log.ended(record, task.directory)
        self._index.put(record)
        self._ledger.drop_told(record.id)
        log.debug(
            "task_ended",
            taskId=record.task_id,
            caller=record.caller,
            status=record.status.value,
            exitCode=record.exit_code,
            durationMs=record.duration_ms,
        )
        self.inbox.ended(record)
        round_status = self.rounds.ended(record)
        for what in ("end", "start", "output", "state"):
            self.waits.wake((what, task.id))
        self._tell_dependents(task.id, record.status)
        if round_status is not None:
            self._tell_dependents(record.round_id or "", round_status)
        self._end_turn(task)
        self._free_slot(task)

    def _on_settled(self, task: Task, news: dict[str, Any], dump: bytes) -> None:
        """The state of a call's shell has come, whose end was told before."""
        self._settling.take(task.id, news, dump)
        self._note_settled(task)

    def _note_settled(self, task: Task) -> None:
        if task.record.unsettled and task.id in self.catalog.live:  # else it is forgotten
            task.change(unsettled=False)
            self._index.put(task.record)

    def end_unstarted(self, task: Task, end: dict[str, Any]) -> bool:
        """End a task that no process came of; False if a keeper has its claim after all."""
        try:
            is_ours = task.directory.end_unstarted(end)
        except OSError as exc:
            # The disk is full: the index and the claim must do.
            log.error("end_not_written", taskId=task.record.task_id, reason=str(exc))
            is_ours = True
        if is_ours or end["cause"] == "spawn_error":
            self.on_ended(task, end, b"")
        return is_ours

    def end_launching(self, task: Task, end: dict[str, Any]) -> bool:
        """End a task that its keeper has not begun; False if it has: then it goes on."""
        try:
            is_ours = task.is_launching and task.directory.claim()
        except OSError:
            return False
        if not is_ours:
            return False
        try:
            task.directory.end_lost(end)
        except OSError as exc:  # the index and the claim must do
            log.error("end_not_written", taskId=task.record.task_id, reason=str(exc))
        self.on_ended(task, end, b"")
        return True

    # -- waiting -----------------------------------------------------------------------------------

    async def wait_inline(self, task: Task, budget_secs: float) -> None:
        """Wait for the end within the call's budget; what outlives it is promoted.

        One that has a slot is waited for until it runs, so that its task id can be told.
        Cancelling promotes too: the call is gone, the job is not.
        """
        task.inline_calls += 1
        try:
            await self.wait_ended(task, budget_secs)
            if task.is_launching:
                self._index.put(task.record)  # seen in lists, should no keeper take it
            # Not yet promoted: what ends meanwhile is answered as ended, so it is in the session.
            await self._wait_started(task)
        finally:
            task.inline_calls -= 1
            # A repeat under the same key may be answered first: the other call goes on.
            if not task.is_ended and not task.inline_calls:
                self._promote(task)

    async def wait_ended(self, task: Task, timeout_secs: float) -> None:
        """Wait for the end, `timeout_secs` at most."""
        await self.waits.until(
            ("end", task.id), lambda: True if task.is_ended else None, timeout_secs
        )

    async def wait_started(self, tasks: Collection[Task]) -> None:
        """Wait until those run that have a slot, so that their task ids can be told."""
        with trio.move_on_after(START_SECS):
            for task in tasks:
                await self._wait_started(task)

    async def _wait_started(self, task: Task) -> None:
        if task.is_launching:
            await self.waits.until(
                ("start", task.id), lambda: None if task.is_launching else True, START_SECS
            )

    def reset_session(self, caller: str) -> None:
        """Forget the caller's shell session: the next call has a new one.

        What runs now leaves it, or its end would bring the old one back.
        """
        self.sessions.reset(caller)
        self._settling.drop(caller)
        self._warm.discard(caller)
        for task in self.catalog.unfinished():
            if task.record.caller == caller:
                task.plan = None

    def leave(self, caller: str) -> None:
        """The caller is gone: drop its sessions, the Python one once no call of it is left."""
        self.sessions.reset(caller)
        self._settling.drop(caller)
        self._warm.discard(caller)
        if self.schedule.mode.leave(caller):
            self.pump()
        self._gone.add(caller)
        self._forget_if_gone(caller)

    def _forget_if_gone(self, caller: str) -> None:
        if caller in self._gone and self.schedule.turns.holder(caller) is None:
            self._gone.discard(caller)
            self._job_nursery.start_soon(self.pythons.forget, caller)

    def prepare_next(self, task: Task) -> None:
        """Have files, and if this call ended inline a shell, ready for one that may follow."""
        record = task.record
        if record.kind is Kind.BASH and record.session and task.is_ended and not record.promoted:
            self._job_nursery.start_soon(self._have_next, record.caller)
        if self._directories.is_low:
            self._job_nursery.start_soon(self._directories.refill)

    async def _have_next(self, caller: str) -> None:
        """Have a shell ready from the state that the caller's session has come to."""
        self._warm.replied(caller)
        await self._settling.wait(caller)
        await self._warm.renew(caller)

    def _promote(self, task: Task) -> None:
        if not task.record.promoted:
            task.change(promoted=True)
            task.plan = None  # it has left the session
            self._index.put(task.record)

    # -- out ---------------------------------------------------------------------------------------

    async def forget(self, task: Task) -> None:
        """Drop an ended task and its files. Raises InvalidState, Overloaded."""
        record = task.record
        if not task.is_ended:
            raise InvalidState(f"{record.task_id} has not ended", state=record.status)
        # A key that has not been read yet cannot be once the folder is gone.
        is_known = self._ledger.is_complete
        keys = [] if is_known else keys_in(self.catalog.home.tasks, [record.id])
        with store_needed():
            tomb = Tomb(id=record.id, ended_at=record.ended_at, status=record.status)
            await self._ledger.add(*keys, tomb)
        self.catalog.retire(task)
        self._index.forget(record)
        self.inbox.forget(record.task_id)
        self.rounds.forgotten(record.round_id)
        infolder.remove(task.directory)

    def start_nothing(self) -> None:
        """Refuse new calls, and leave those that wait in the queue there."""
        self.is_stopping = self.acceptor.is_closed = True

    def stop(self) -> None:
        """Start nothing more and answer all who wait with how things stand. Jobs run on."""
        self.start_nothing()
        self.waits.stop()


def _claim_of(task: Task) -> str | None:
    """The claim on the task's directory; of a directory that is gone, one that nobody holds."""
    try:
        return task.directory.read_claim()
    except FileNotFoundError:
        return ""
