"""A keeper: the parent of one job at a time, which outlives the engine that asked for it.

An idle keeper lives as long as its engine; one with a job lives until nobody of the job is left.

Messages to a keeper (see `link` for their form), each but `prepare` and `kept` answered on the same
link:
  launch   a job, see `job.Job`; descriptors: [prologue] [stdin] -> started | taken | refused
           `prologue`: whether there is one, and a `call`, see `shell.AWAIT_CALL`
           `quiet`: the word of the start may come with the next one, 5 ms later at most
  prepare  start the shell of a launch that is to come; descriptor: prologue
  attach   {dir}: news of this directory's job from now on           -> state | absent
  cancel   {grace}: TERM, after `grace` seconds KILL, to everybody   -> signalled
  survey   who is left                                               -> survivors
  listener whose socket listens at the port of its request           -> listener {whose}
  kept     what `settled` said is in good hands
  write    {data (base64), eof}: to the open standard input          -> written {taken, isOpen}
News to every link that launched or attached: grew, blocked, unblocked, ended, gone.
  ended    {record} and the state of a session's shell; where that is to come {settling}, the
           session's directory, and later
  settled  {mishap?} and the state; the mishap: that the shell has not ended as it had told.
           The job is not gone before it was answered with `kept`, or nobody came for a minute
"""

from __future__ import annotations

import binascii
import fcntl
import os
import resource
import socket
from typing import Any, Final

from engine.keeper import shell, taskfiles
from engine.keeper.job import AHEAD, REQUIRED, Job
from engine.keeper.kept import Refused
from engine.keeper.link import Link, LinkBroken
from engine.keeper.loop import QUESTIONS, KeeperLoop
from engine.keeper.loop import keep as keep_kind
from engine.keeper.news import News
from engine.keeper.saying import say
from engine.keeper.spawning import SpawnFailed
from engine.keeper.telling import Telling
from engine.keeper.warm import WarmShell

_LIMITS: Final = 16  # RLIM_NLIMITS of Linux
MAX_STATE: Final = 32 << 20  # bytes of a shell's state; of one that has more only that is told


class Keeper(KeeperLoop):
    """The loop and the job."""

    def __init__(self, control: socket.socket, sockets: str) -> None:
        self._job: Job | None = None
        self._news: News | None = None
        self._has_children = False
        self._warm: WarmShell | None = None
        self._limits = _limits()
        self._nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._word = fcntl.fcntl(shell.FD_WORD, fcntl.F_DUPFD_CLOEXEC, 0)  # of a cold start
        self._call = os.memfd_create("call")
        os.dup2(self._call, shell.FD_CALL, inheritable=False)
        self._sink = os.memfd_create("state")
        os.dup2(self._sink, shell.FD_SINK, inheritable=False)
        self._telling = Telling()
        super().__init__(control, sockets)
        self.watch(self._telling.fd, self._on_told)

    def is_needed(self) -> bool:
        return self._job is not None or self._control is not None

    def tasks(self) -> list[tuple[Job, News]]:
        return [(self._job, self._news)] if self._job and self._news else []

    def on_message(self, link: Link, message: dict[str, Any]) -> None:
        kind = message.get("op")
        if kind == "launch":
            self._launch(link, message)
        elif kind == "prepare":
            self._prepare(link, message)
        elif kind == "attach":
            self._attach(link, message)
        elif kind == "kept":
            if (job := self._job_of(message)) is not None:
                job.kept()
                self._finish_if_over()
        elif kind in QUESTIONS:
            if kind == "cancel":
                self.reap()  # an end that has been is no cancellation
            self.answer(link, kind, message, self._job_of(message))
        elif kind == "write":
            self.reap()
            self._write(link, message, self._job_of(message))
        else:
            raise LinkBroken(f"unknown op {kind!r}")

    def _write(self, link: Link, message: dict[str, Any], job: Job | None) -> None:
        if job is None:
            self.send(link, {"ev": "gone"})
            return
        taken, is_open, feed = 0, False, job.feed
        if feed is not None:
            data = binascii.a2b_base64(message["data"])
            taken, is_open = feed.write(data, eof=bool(message["eof"]))
            job.stir()
            self.tend(feed)
        self.send(link, {"ev": "written", "taken": taken, "isOpen": is_open})

    def _job_of(self, message: dict[str, Any]) -> Job | None:
        """Our job, unless the message is about another: it may come after that one's end."""
        if self._job is None:
            return None
        ours = self._job.request["dir"]
        # By name, which is the task's id: a home may be known by more than one path.
        wanted = os.path.basename(message.get("dir", ours))
        return self._job if wanted == os.path.basename(ours) else None

    def _attach(self, link: Link, message: dict[str, Any]) -> None:
        job = self._job_of({"dir": message["dir"]})
        if job is None or self._news is None:
            self.send(link, {"ev": "absent"})
            return
        self._news.add(link)
        self.send(link, {"ev": "state", **job.state()})
        if job.told is not None and job.has_settled:
            self.send(link, *self._with_state({"ev": "settled"}))

    def _prepare(self, link: Link, request: dict[str, Any]) -> None:
        if not request.keys() >= AHEAD:
            raise LinkBroken("not all of a launch")
        (prologue,) = link.take_fds(1)
        try:
            if self._job is not None or self._warm is not None:
                raise LinkBroken("this keeper is not free")
            os.dup2(prologue, shell.FD_PROLOGUE, inheritable=False)
            os.ftruncate(self._sink, 0)
            self._prepare_claim(request["dir"])
            self._warm = WarmShell(request)
        except (OSError, SpawnFailed):
            self._forget_call()  # its launch will say what is wrong, if it still is
        finally:
            os.close(prologue)

    def _prepare_claim(self, path: str) -> None:
        try:
            dir_fd = os.open(path, os.O_DIRECTORY | taskfiles.SAFE_FLAGS)
        except FileNotFoundError:
            return  # its call was faster
        try:
            taskfiles.prepare_claim(dir_fd, self.mark)
        finally:
            os.close(dir_fd)

    def _take_warm(self, request: dict[str, Any]) -> WarmShell | None:
        """The shell that waits for this launch, if one does and nothing has changed since."""
        self.reap()
        warm, self._warm = self._warm, None
        if warm is None or warm.fits(request):
            return warm
        warm.end()
        self._forget_call()
        return None

    def _launch(self, link: Link, request: dict[str, Any]) -> None:
        if not request.keys() >= REQUIRED:
            raise LinkBroken("not all of a launch")
        fds = link.take_fds(request["fds"])
        try:
            if self._job is not None:
                raise LinkBroken("this keeper has a job")
            self._start(link, request, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _start(self, link: Link, request: dict[str, Any], fds: list[int]) -> None:
        try:
            job = Job(request, self.mark)
        except OSError as exc:
            message = f"task directory: {exc.strerror}"
            self.send(link, {"ev": "refused", "message": message, "errno": exc.errno})
            return
        if not job.is_ours:
            self.send(link, {"ev": "taken"})
            return
        self._job, self._news = job, (news := News(self.send, link))
        try:
            self._begin(job, fds)
        except Refused as exc:
            self._job = None
            job.close()
            news.tell({"ev": "refused", "message": str(exc), "errno": exc.errno})
            return
        for output in job.outputs:
            self.watch_output(job, output, news)
        if job.feed is not None and job.record is None:
            self.watch_feed(job.feed)
        facts = {"pid": job.pid, "startedAt": job.started_at, "cwd": job.cwd}
        if request.get("quiet"):
            news.put_off({"ev": "started", **facts})
        else:
            news.tell({"ev": "started", **facts})
            news.hold_back()
        if job.record is not None:
            news.tell({"ev": "ended", "record": job.record})
            self._finish(job, news)
        else:
            self._has_children = True

    def _begin(self, job: Job, fds: list[int]) -> None:
        """Start the first process, or let the one begin that waits. Raises Refused."""
        warm = self._take_warm(job.request)
        if job.request["prologue"]:
            self._write_call(os.fsencode(job.request["call"]))
        if warm is None:
            if job.request["prologue"]:
                os.dup2(fds[0], shell.FD_PROLOGUE, inheritable=False)
            os.ftruncate(self._sink, 0)
            job.start(fds[-1] if job.request["stdin"] == "fd" else None)
            return
        try:
            job.start_warm(warm)
        except Refused:
            warm.end()
            raise

    def _write_call(self, text: bytes) -> None:
        end = 0
        while end < len(text):
            end += os.pwrite(self._call, text[end:], end)

    def on_reaped(self, pid: int, status: int, cpu: float) -> None:
        if self._warm is not None and pid == self._warm.pid:
            self._warm.close()  # killed before it had anything to do
            self._warm = None
            self._forget_call()
            return
        job, news = self._job, self._news
        if job is None or news is None or pid != job.pid:
            return
        if job.told is not None:
            mishap = job.settle(status)
            settled = {"ev": "settled"} | ({"mishap": mishap} if mishap else {})
            news.tell(*self._with_state(settled))
            return
        if job.record is not None:
            return
        job.end(status, cpu)
        if job.feed is not None:
            self.unwatch(job.feed.fd)
        job.close_input()
        ended = {"ev": "ended", "record": job.record}
        if job.request["session"]:
            news.tell(*self._with_state(ended))
        else:
            news.tell(ended)

    def _on_told(self, _events: int) -> None:
        """A shell says that its command is over: tell so now, unless there is more to wait for."""
        told = self._telling.read()
        if told is None:
            return
        self.reap()  # what has ended is no longer to be guessed
        if self._job is not None and self._news is not None and self._job.end_early(told):
            record = self._job.record
            self._news.tell({"ev": "ended", "record": record, "settling": told.cwd})

    def _with_state(self, message: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """`message` and its payload, the state that the shell has written."""
        size = os.fstat(self._sink).st_size
        if size > MAX_STATE:
            return {**message, "stateLeft": size}, b""
        return message, os.pread(self._sink, size, 0)

    def on_all_reaped(self, *, is_childless: bool) -> None:
        if is_childless:
            self._has_children = False
        if self._job is None or self._news is None:
            return
        self._job.on_child_gone()
        self._finish_if_over()

    def on_timers(self) -> None:
        super().on_timers()
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        job, news = self._job, self._news
        if job is None or news is None or job.record is None or job.told is not None:
            return
        if not self._has_children:
            self._finish(job, news)

    def _finish(self, job: Job, news: News) -> None:
        """Nobody of the job is left: write down the last of it, say so, then be free."""
        self._job = None
        for output in job.outputs:
            self.unwatch(output.pipe)
        sizes = job.close()
        self._forget_call()
        if _limits() == self._limits:
            news.tell({"ev": "gone", **sizes})
            return
        say("my limits were changed: I take no other job")  # it would have them too
        news.tell({"ev": "gone", "leaves": True, **sizes})
        self.flush()
        if self._control is not None:
            self.drop_link(self._control)

    def _forget_call(self) -> None:
        """Let go of the call's text and state: they are not for the next job to read."""
        os.ftruncate(self._sink, 0)
        os.dup2(self._nothing, shell.FD_PROLOGUE, inheritable=False)
        os.ftruncate(self._call, 0)
        os.dup2(self._word, shell.FD_WORD, inheritable=False)
        self._telling.forget()


def _limits() -> tuple[list[tuple[int, int]], int, set[int]]:
    """Our limits of resources, priority and processors, which our jobs inherit and can change (see
    prlimit(2), setpriority(2), sched_setaffinity(2))."""
    limits = [resource.getrlimit(number) for number in range(_LIMITS)]
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)


def keep(control: socket.socket, sockets: str) -> None:
    """Be a keeper of jobs, in a process just forked for it."""
    keep_kind(Keeper, "engine-keeper", control, sockets)
