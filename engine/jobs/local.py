"""Jobs on this machine, below keepers: the default executor.

Keepers come from a mother (see `engine.keeper.mother`), which is started with the executor and
again should it die. A keeper whose job has ended and left nobody takes the next one.
"""

from __future__ import annotations

import array
import base64
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import structlog
import trio

from engine.jobs.channel import Channel, ChannelClosed, connect
from engine.jobs.directory import TaskDirectory
from engine.jobs.executor import JobListener, LaunchRefused, Order, Outcome, Written
from engine.keeper import mother, processes
from engine.keeper.feed import LIMIT
from engine.keeper.loop import socket_name

MAX_IDLE_KEEPERS: Final = 8  # kept for the next jobs; 1.2 MiB each
_ANSWER_SECS: Final = 10  # for a keeper's word on cancel and survey; it answers in milliseconds
_EXIT_SECS: Final = 10  # for a keeper that takes no link any more; its exit takes microseconds
_BIRTHS: Final = 3  # keepers asked for one job: mother may be killed while she bears one
_BREAK_SECS: Final = 1  # for a keeper that dropped our link to be gone
_MOTHER_LIMIT_SECS: Final = 5  # for a mother told to end

log = structlog.get_logger()


class Mother:
    """The fork server as a child process of the engine."""

    def __init__(self, sockets: Path, log_file: Path) -> None:
        self._sockets, self._log_file = sockets, log_file
        # Jobs get the limit that the user had, whatever the engine has raised for itself.
        self.nofile, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log_fd = -1
        try:
            log_fd = os.open(self._log_file, flags, 0o600)
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", mother.__file__),
                    *(str(theirs.fileno()), str(self._sockets), str(self.nofile)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                env={},
                pass_fds=[theirs.fileno()],
            )
        except OSError:
            ours.close()
            raise
        finally:
            if log_fd >= 0:
                os.close(log_fd)
            theirs.close()
        ours.setblocking(False)
        self._socket = ours

    def bear(self, kind: bytes = b"k") -> socket.socket:
        """The control link of a new keeper, at once: the keeper follows. Raises LaunchRefused.

        `kind`: see `mother`.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                self._ask_for_keeper(theirs, kind)
            except BaseException:
                ours.close()
                raise
        return ours

    def _ask_for_keeper(self, control: socket.socket, kind: bytes) -> None:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [control.fileno()]))
        self._process.send_signal(signal.SIGCONT)  # somebody may have stopped it
        try:
            self._socket.sendmsg([kind], [rights])
        except BlockingIOError as exc:
            raise LaunchRefused("the mother of keepers does not answer") from exc
        except OSError:
            log.error("mother_died", status=self._process.poll())
            self._end()
            try:
                self._start()
                self._socket.sendmsg([kind], [rights])
            except OSError as exc:
                raise LaunchRefused(f"the mother of keepers does not start: {exc}") from exc

    def _end(self) -> None:
        self._socket.close()
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(_MOTHER_LIMIT_SECS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End mother; keepers with a job stay."""
        self._end()


class LocalJob:
    """A job and the channel to its keeper."""

    def __init__(
        self, channel: Channel, executor: LocalExecutor, directory: TaskDirectory, *, is_own: bool
    ) -> None:
        self._channel, self._executor, self._directory = channel, executor, directory
        self._is_own = is_own  # our keeper: its control link is this channel
        self._unanswered = 0  # questions on their way: their answers may come after the end
        self._answers: list[tuple[str, trio.Event, list[Any]]] = []
        self._is_over = False

    async def watch(self, listener: JobListener) -> Outcome:
        outcome = Outcome.BROKEN
        try:
            outcome = await self._watch(listener)
        except ChannelClosed:
            if not self._is_own:  # whoever attaches again then finds it dead, or has waited
                await self._wait_keeper_dead()
        finally:
            self._is_over = True
            for _word, event, _answer in self._answers:
                event.set()
            is_free = outcome in (Outcome.GONE, Outcome.TAKEN) and self._is_own
            # A late answer would be taken for news of the next job, a late question for its.
            if is_free and not self._unanswered:
                self._executor.take_back(self._channel)
            else:
                self._channel.close()
        return outcome

    async def _watch(self, listener: JobListener) -> Outcome:
        while True:
            message, payload = await self._channel.receive()
            match message["ev"]:
                case "started":
                    listener.on_started(message)
                case "state":
                    listener.on_started(message)
                    listener.on_grew(message)
                    if message["record"] is not None:
                        listener.on_ended(message["record"], b"")
                case "grew":
                    listener.on_grew(message)
                case "ended":
                    listener.on_ended(message["record"], payload)
                case "gone":
                    if "sizes" in message:  # else it answers a question that came after the end
                        listener.on_grew(message)
                    return Outcome.GONE
                case "taken":
                    return Outcome.TAKEN
                case "absent":
                    return Outcome.ABSENT
                case "refused":
                    raise LaunchRefused(message["message"], message.get("errno", 0))
                case _:
                    self._answer(message)

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

    async def cancel(self, grace_secs: float) -> list[int]:
        answer = await self._ask({"op": "cancel", "grace": grace_secs}, "signalled")
        return list(answer.get("pids", []))

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

    async def survivors(self) -> list[dict[str, Any]]:
        answer = await self._ask({"op": "survey"}, "survivors")
        return list(answer.get("survivors", []))


class LocalExecutor:
    """`sockets` is the folder of the keepers' sockets, `log_file` where a dying keeper says why."""

    def __init__(self, sockets: Path, log_file: Path, *, umask: int) -> None:
        self._sockets, self._umask = sockets, umask
        self._idle: list[Channel] = []
        self._mother = Mother(sockets, log_file)
        self._remove_dead_sockets()

    def _remove_dead_sockets(self) -> None:
        """Remove the sockets of keepers that were killed; a living one removes its own."""
        for entry in os.scandir(self._sockets):
            pid, _, started = entry.name.removesuffix(".sock").partition("-")
            if pid.isdigit() and str(processes.start_time(int(pid))) != started:
                os.unlink(entry.path)

    async def launch(self, directory: TaskDirectory, order: Order) -> LocalJob:
        """See `Executor`. Which keeper takes the job shows when it is watched."""
        fds: list[int] = []
        try:
            for data in (order.prologue, order.stdin):
                if data is not None:
                    fds.append(memory_file(data))
            message = {
                "op": "launch",
                "dir": str(directory.path),
                "argv": order.argv,
                "path": order.path,
                "env": order.env,
                "cwd": order.cwd,
                "cwd_or_parent": order.cwd_or_parent,
                "umask": self._umask,
                "streams": "split" if order.split else "merged",
                "deadline": order.deadline_secs,
                "cap": order.output_cap_bytes,
                "prologue": order.prologue is not None,
                "stdin": _stdin_word(order),
                "pty": order.pty,
                "session": order.wants_state,
                "fds": len(fds),
                "nofile": self._mother.nofile,
            }
            return LocalJob(await self._hand_over(message, fds), self, directory, is_own=True)
        except OSError as exc:  # no descriptor or memory to be had
            raise LaunchRefused(f"no keeper: {exc.strerror}", exc.errno or 0) from exc
        finally:
            for fd in fds:
                os.close(fd)

    async def _hand_over(self, message: dict[str, Any], fds: list[int]) -> Channel:
        while self._idle:
            channel = self._idle.pop()
            try:
                await channel.send(message, fds)
            except ChannelClosed:  # killed while idle
                channel.close()
            except BaseException:
                channel.close()
                raise
            else:
                return channel
        for _ in range(_BIRTHS):
            channel = Channel(trio.socket.from_stdlib_socket(self._mother.bear()))
            try:
                await channel.send(message, fds)
            except ChannelClosed as exc:
                if refusal := await self._last_words(channel):
                    raise refusal from exc
            except BaseException:
                channel.close()
                raise
            else:
                return channel
        raise LaunchRefused("keepers die before they have their job")

    async def _last_words(self, channel: Channel) -> LaunchRefused | None:
        """Why a keeper that took no message could not be, if it has said so."""
        try:
            message, _payload = await channel.receive()
        except ChannelClosed:
            return None
        finally:
            channel.close()
        return LaunchRefused(str(message.get("message", "")), message.get("errno", 0))

    async def attach(self, directory: TaskDirectory, claim: str) -> LocalJob | None:
        """See `Executor`. A keeper that is stopped answers when it goes on."""
        if not processes.is_alive(claim):
            return None
        try:
            channel = await connect(self._sockets, socket_name(claim))
            try:
                await channel.send({"op": "attach", "dir": str(directory.path)})
            except BaseException:
                channel.close()
                raise
        except ChannelClosed:
            # Taking its socket away is the last thing that a keeper does.
            await wait_dead(claim, _EXIT_SECS)
            return None
        return LocalJob(channel, self, directory, is_own=False)

    async def ask_new_keeper(self, kind: bytes, message: dict[str, Any]) -> Channel:
        """A channel to a new keeper that has been sent `message`. Raises LaunchRefused.

        `message` is completed with what holds for all that this executor starts.
        """
        message = {**message, "umask": self._umask, "nofile": self._mother.nofile}
        try:
            channel = Channel(trio.socket.from_stdlib_socket(self._mother.bear(kind)))
        except OSError as exc:
            raise LaunchRefused(f"no keeper: {exc.strerror}", exc.errno or 0) from exc
        try:
            await channel.send(message)
        except ChannelClosed as exc:
            refusal = await self._last_words(channel)
            raise refusal or LaunchRefused("the keeper died") from exc
        except BaseException:
            channel.close()
            raise
        return channel

    async def connect(self, who: str) -> Channel:
        """A channel to the keeper of this identity, continued if stopped. Raises ChannelClosed."""
        if not processes.is_alive(who):
            raise ChannelClosed
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(who.split(" ")[0]), signal.SIGCONT)
        return await connect(self._sockets, socket_name(who))

    def take_back(self, channel: Channel) -> None:
        """Keep a free keeper for the next job, or let it go."""
        if len(self._idle) < MAX_IDLE_KEEPERS:
            self._idle.append(channel)
        else:
            channel.close()

    def close(self) -> None:
        """Let idle keepers and mother go. Jobs run on."""
        for channel in self._idle:
            channel.close()
        self._idle.clear()
        self._mother.close()


def _stdin_word(order: Order) -> str:
    if order.stdin is not None:
        return "fd"
    return "open" if order.stdin_open else "null"


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


def memory_file(data: bytes) -> int:
    """A descriptor, for reading alone, of a file in memory that holds `data`."""
    fd = os.memfd_create("engine", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(fd)
