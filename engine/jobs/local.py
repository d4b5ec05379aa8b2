"""Jobs on this machine, below keepers: the default executor.

Keepers come from a mother (see `engine.keeper.mother`), which is started with the executor and
again should it die. A keeper whose job has ended and left nobody takes the next one.
"""

from __future__ import annotations

import contextlib
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from engine.jobs.cgroup import JobCgroups
from engine.jobs.channel import Channel, ChannelClosed, connect, memory_files
from engine.jobs.directory import TaskDirectory
from engine.jobs.executor import LaunchRefused, Order
from engine.jobs.localjob import LocalJob, wait_dead
from engine.jobs.mother import Mother
from engine.jobs.sealedfiles import SealedFiles
from engine.keeper import processes
from engine.keeper.loop import socket_name

MAX_IDLE_KEEPERS: Final = 8  # kept for the next jobs; 1.2 MiB each
MOST_PROLOGUES: Final = 16  # at hand: of callers who call now
MOST_PROLOGUE_BYTES: Final = 1 << 20  # of one that is kept
_EXIT_SECS: Final = 10  # for a keeper that takes no link any more; its exit takes microseconds
_BIRTHS: Final = 3  # keepers asked for one job: mother may be killed while she bears one


class LocalExecutor:
    """`sockets` is the folder of the keepers' sockets, `log_file` where a dying keeper says why."""

    def __init__(
        self, sockets: Path, log_file: Path, *, umask: int, cgroups: JobCgroups | None = None
    ) -> None:
        """`cgroups`: for jobs with a limit of memory; without them these are refused."""
        self._sockets, self._umask, self._cgroups = sockets, umask, cgroups
        self._idle: list[Channel] = []
        self._prepared: dict[str, Channel] = {}  # task id -> a keeper with its shell
        self._mother = Mother(sockets, log_file)
        self._prologues = SealedFiles(MOST_PROLOGUES, MOST_PROLOGUE_BYTES)
        self._remove_dead_sockets()

    def _remove_dead_sockets(self) -> None:
        """Remove what keepers that were killed have here; a living one removes its own."""
        for entry in os.scandir(self._sockets):
            pid, _, started = entry.name.partition(".")[0].partition("-")
            if pid.isdigit() and str(processes.start_time(int(pid))) != started:
                os.unlink(entry.path)

    async def launch(self, directory: TaskDirectory, order: Order) -> LocalJob:
        """See `Executor`. Which keeper takes the job shows when it is watched."""
        message = self._message(order) | {
            "op": "launch",
            "dir": str(directory.path),
            "streams": "split" if order.split else "merged",
            "deadline": order.deadline_secs,
            "cap": order.output_cap_bytes,
            "prologue": order.prologue is not None,
            "call": os.fsdecode(order.call),
            "stdin": _stdin_word(order),
            "pty": order.pty,
            "fds": (order.prologue is not None) + (order.stdin is not None),
            "quiet": order.is_quiet,
        }
        if order.memory_bytes is not None:
            message["memory"] = await self._limit(directory.id, order.memory_bytes)
        prepared = self._prepared.pop(directory.id, None)
        if prepared is not None:
            self._idle.append(prepared)  # the next to be asked
        try:
            channel = await self._send_texts(message, order.prologue, order.stdin)
        except LaunchRefused:
            await self._unlimit(directory.id)
            raise
        return LocalJob(
            channel,
            directory,
            self._take_back,
            self._unlimit,
            lambda: self._send_texts(message, order.prologue, order.stdin, is_new=True),
        )

    async def _limit(self, id_: str, limit_bytes: int) -> dict[str, Any]:
        if self._cgroups is None:
            raise LaunchRefused("memory_bytes: this engine has no cgroup of its own")
        return await self._cgroups.begin(id_, limit_bytes)

    async def _unlimit(self, id_: str) -> None:
        """Let go of the job's cgroup, if it has one."""
        if self._cgroups is not None:
            await self._cgroups.end(id_)

    async def prepare(self, directory: TaskDirectory, order: Order) -> None:
        """See `Executor`. What goes wrong at the keeper shows when it is launched."""
        message = self._message(order) | {"op": "prepare", "dir": str(directory.path)}
        channel = await self._send_texts(message, order.prologue or b"", None)
        channel.known_by = directory
        self.discard(directory.id)
        self._prepared[directory.id] = channel

    def discard(self, id_: str) -> None:
        """See `Executor`. Its keeper goes too."""
        channel = self._prepared.pop(id_, None)
        if channel is not None:
            channel.close()

    def _message(self, order: Order) -> dict[str, Any]:
        """What a keeper must know to start a process."""
        return {
            "argv": order.argv,
            "path": order.path,
            "env": order.env,
            "cwd": order.cwd,
            "cwd_or_parent": order.cwd_or_parent,
            "umask": self._umask,
            "nofile": self._mother.nofile,
            "session": order.wants_state,
            "port": order.ready_port,
        }

    async def _send_texts(
        self,
        message: dict[str, Any],
        prologue: bytes | None,
        stdin: bytes | None,
        *,
        is_new: bool = False,
    ) -> Channel:
        """Hand `message` to a keeper, with the texts that there are as files. Raises LaunchRefused.

        `is_new`: to one that is born for it.
        """
        try:
            with ExitStack() as stack:
                fds = []
                if prologue is not None:
                    fds.append(self._prologues.open(prologue))
                    stack.callback(os.close, fds[-1])
                if stdin is not None:
                    fds += stack.enter_context(memory_files([stdin]))
                return await self._hand_over(message, fds, is_new=is_new)
        except OSError as exc:  # no descriptor or memory to be had
            raise LaunchRefused(f"no keeper: {exc.strerror}", exc.errno or 0) from exc

    async def _hand_over(self, message: dict[str, Any], fds: list[int], *, is_new: bool) -> Channel:
        while self._idle and not is_new:
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
            channel = Channel(self._mother.bear())
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
        if self._cgroups is not None:
            self._cgroups.adopt(directory.id)
        return LocalJob(channel, directory, let_go=self._unlimit)

    async def ask_new_keeper(self, kind: bytes, message: dict[str, Any]) -> Channel:
        """A channel to a new keeper that has been sent `message`. Raises LaunchRefused.

        `message` is completed with what holds for all that this executor starts.
        """
        message = {**message, "umask": self._umask, "nofile": self._mother.nofile}
        try:
            channel = Channel(self._mother.bear(kind))
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

    def _take_back(self, channel: Channel) -> None:
        """Keep a free keeper for the next job, or let it go."""
        if len(self._idle) < MAX_IDLE_KEEPERS:
            self._idle.append(channel)
        else:
            channel.close()

    def close(self) -> None:
        """Let idle keepers and mother go. Jobs run on."""
        for channel in (*self._idle, *self._prepared.values()):
            channel.close()
        self._idle.clear()
        self._prepared.clear()
        self._prologues.close()
        self._mother.close()


def _stdin_word(order: Order) -> str:
    if order.stdin is not None:
        return "fd"
    return "open" if order.stdin_open else "null"
