"""A job below a keeper of this machine, and the questions that can be put to that keeper."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
import trio

from engine.jobs.channel import Channel, ChannelClosed
from engine.jobs.directory import TaskDirectory
from engine.jobs.executor import JobListener, LaunchRefused, Outcome, Written
from engine.keeper import processes
from engine.keeper.feed import LIMIT

_WITH_END: Final = ("stateLeft", "settling")  # of an end, beside its record
_ANSWER_SECS: Final = 5  # for a keeper's word on cancel and survey; it answers in milliseconds
_CLAIM_SECS: Final = 1.0  # for a keeper to begin its job; usually 3 ms, with its birth 15
_LONGEST_CLAIM_SECS: Final = 4.0  # likewise where many did not: the machine may be a slow one
_WAKE_SECS: Final = 0.5  # likewise once it was told to go on
_BREAK_SECS: Final = 1  # for a keeper that dropped our link to be gone

log = structlog.get_logger()


class LocalJob:
    """A job and the channel to its keeper."""

    def __init__(
        self,
        channel: Channel,
        directory: TaskDirectory,
        give_back: Callable[[Channel], None] | None = None,
        let_go: Callable[[str], Awaitable[None]] | None = None,
        ask_another: Callable[[], Awaitable[Channel]] | None = None,
    ) -> None:
        """`give_back`: takes `channel` back for a next job, if it is the keeper's control link.

        `let_go`: is told the task's id when there is nothing more to watch. `ask_another`: hands
        the job to another keeper, where this one does not begin it. Raises LaunchRefused.
        """
        self._channel, self._directory, self._give_back = channel, directory, give_back
        self._let_go, self._ask_another = let_go, ask_another
        self._unanswered = 0  # questions on their way: their answers may come after the end
        self._answers: list[tuple[str, trio.Event, list[Any]]] = []
        self._is_over = False

    async def watch(self, listener: JobListener) -> Outcome:
        outcome = Outcome.BROKEN
        try:
            outcome = await self._watch(listener)
        except ChannelClosed:
            if self._give_back is None:  # whoever attaches again then finds it dead, or has waited
                await self._wait_keeper_dead()
        finally:
            self._is_over = True
            for _word, event, _answer in self._answers:
                event.set()
            is_free = outcome in (Outcome.GONE, Outcome.TAKEN)
            # A late answer would be taken for news of the next job, a late question for its.
            if is_free and self._give_back is not None and not self._unanswered:
                self._channel.known_by = self._directory if outcome is Outcome.GONE else None
                self._give_back(self._channel)
            else:
                self._channel.close()
        if self._let_go is not None:
            await self._let_go(self._directory.id)
        return outcome

    async def _first_word(self) -> tuple[dict[str, Any], bytes]:
        """What the keeper says first. One that begins nothing is told to go on, then another is
        asked: whichever claims the job first has it. Raises ChannelClosed.
        """
        wait_secs, is_woken = _CLAIM_SECS, False
        while self._ask_another is not None:
            with trio.move_on_after(wait_secs):
                return await self._channel.receive()
            claim = self._claim()
            if claim == "":  # the engine's: it was cancelled
                raise ChannelClosed
            if claim is not None:
                break
            if not is_woken and self._continue_keeper():
                is_woken, wait_secs = True, _WAKE_SECS
                continue
            try:
                channel = await self._ask_another()
            except LaunchRefused as exc:  # then this one has to do
                log.warning("no_other_keeper", taskId="t" + self._directory.id, reason=str(exc))
            else:
                self._channel.close()
                self._channel = channel
            is_woken, wait_secs = False, min(2 * wait_secs, _LONGEST_CLAIM_SECS)
        return await self._channel.receive()

    def _claim(self) -> str | None:
        try:
            return self._directory.read_claim()
        except OSError:  # not to be told: then it is left as it is
            return "unknown"

    def _continue_keeper(self) -> bool:
        """Let a keeper that has not begun its job go on; False where it is not known."""
        known_by, self._channel.known_by = self._channel.known_by, None
        if known_by is None:
            return False
        with contextlib.suppress(OSError):
            who = known_by.read_keeper()
            if who and processes.is_alive(who):
                os.kill(int(who.split(" ")[0]), signal.SIGCONT)
                return True
        return False

    async def _watch(self, listener: JobListener) -> Outcome:
        message, payload = await self._first_word()
        while True:
            match message["ev"]:
                case "started":
                    listener.on_started(message)
                case "state":
                    listener.on_started(message)
                    listener.on_grew(message)
                    listener.on_blocked(message.get("blocked"))
                    if message["record"] is not None:
                        listener.on_ended(_end_in(message), b"")
                case "grew":
                    listener.on_grew(message)
                case "blocked":
                    listener.on_grew(message)
                    listener.on_blocked(message["category"])
                case "unblocked":
                    listener.on_blocked(None)
                case "ended":
                    listener.on_ended(_end_in(message), payload)
                case "settled":
                    listener.on_settled(message, payload)
                    await self._channel.send({"op": "kept", "dir": str(self._directory.path)})
                case "gone":
                    if "sizes" in message:  # else it answers a question that came after the end
                        listener.on_grew(message)
                    if message.get("leaves"):
                        self._give_back = None
                    return Outcome.GONE
                case "taken":
                    return Outcome.TAKEN
                case "absent":
                    return Outcome.ABSENT
                case "refused":
                    raise LaunchRefused(message["message"], message.get("errno", 0))
                case _:
                    self._answer(message)
            message, payload = await self._channel.receive()

    def _answer(self, message: dict[str, Any]) -> None:
        """Hand an answer to the first who waits for one of its kind."""
        self._unanswered -= 1
        for waiting in self._answers:
            if waiting[0] == message["ev"]:
                self._answers.remove(waiting)
                waiting[2].append(message)
                waiting[1].set()
                return

    async def _ask(self, message: dict[str, Any], word: str) -> dict[str, Any]:
        """The keeper's answer; empty if the job is over or its keeper says nothing in time."""
        if self._is_over:
            return {}
        waiting: tuple[str, trio.Event, list[Any]] = (word, trio.Event(), [])
        self._answers.append(waiting)
        self._unanswered += 1
        message["dir"] = str(self._directory.path)
        self._wake_keeper()
        try:
            with trio.move_on_after(_ANSWER_SECS):
                await self._channel.send(message)
                await waiting[1].wait()
        except ChannelClosed:
            pass
        finally:
            if waiting in self._answers:
                self._answers.remove(waiting)
        return waiting[2][0] if waiting[2] else {}

    async def _wait_keeper_dead(self) -> None:
        with contextlib.suppress(OSError):
            await wait_dead(self._directory.read_claim() or "", _BREAK_SECS)

    def _wake_keeper(self) -> None:
        """Let the keeper go on, should somebody have stopped it: a job can do that."""
        with contextlib.suppress(OSError):
            claim = self._directory.read_claim()
            if claim and processes.is_alive(claim):
                os.kill(int(claim.split(" ")[0]), signal.SIGCONT)

    async def cancel(self, grace_secs: float) -> list[int] | None:
        answer = await self._ask({"op": "cancel", "grace": grace_secs}, "signalled")
        return list(answer.get("pids", [])) if answer or self._is_over else None

    async def write(self, data: bytes, *, eof: bool) -> Written | None:
        fits = data[:LIMIT]
        text = base64.b64encode(fits).decode("ascii")
        message = {"op": "write", "data": text, "eof": eof and len(fits) == len(data)}
        # Half a message would be the end of the channel, a late answer that of another write.
        with trio.CancelScope(shield=True):
            answer = await self._ask(message, "written")
        if answer:
            return Written(taken=answer["taken"], is_open=answer["isOpen"])
        if not self._is_over:
            self._channel.close()  # whoever watches attaches anew
        return None

    async def listener(self) -> str:
        answer = await self._ask({"op": "listener"}, "listener")
        return str(answer.get("whose", "unknown"))

    async def survivors(self) -> list[dict[str, Any]]:
        answer = await self._ask({"op": "survey"}, "survivors")
        return list(answer.get("survivors", []))


def _end_in(message: dict[str, Any]) -> dict[str, Any]:
    """The record of the end, with what else the message says of that."""
    record: dict[str, Any] = message["record"]
    return record | {name: message[name] for name in _WITH_END if name in message}


async def wait_dead(who: str, limit_secs: float) -> bool:
    """Wait until the process with this identity is gone; False if it still is there after that."""
    if not processes.is_alive(who):
        return True  # also where it is no identity
    try:
        fd = os.pidfd_open(int(who.split(" ")[0]))
    except ProcessLookupError:
        return True
    try:
        # Asked only now: the descriptor holds whoever has the pid, which may be another by then.
        if not processes.is_alive(who):
            return True
        with trio.move_on_after(limit_secs):
            await trio.lowlevel.wait_readable(fd)
            return True
        return False
    finally:
        os.close(fd)
