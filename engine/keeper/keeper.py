"""A keeper: the parent of one job at a time, which outlives the engine that asked for it.

Single-threaded; waits in epoll for its links, its job's output, its children and its timers. An
idle keeper lives as long as its engine; one with a job lives until nobody of the job is left.

Messages to a keeper (see `link` for their form), each answered on the same link:
  launch   a job, see `job.Job`; descriptors: [prologue] [stdin]     -> started | taken | refused
  attach   {dir}: news of this directory's job from now on           -> state | absent
  cancel   {grace}: TERM, after `grace` seconds KILL, to everybody   -> signalled
  survey   who is left                                               -> survivors
News to every link that launched or attached: grew, ended, gone.
"""

from __future__ import annotations

import functools
import contextlib
import json
import os
import select
import signal
import socket
import traceback
from collections.abc import Callable
from typing import Any, Final

from engine.keeper import processes, shell
from engine.keeper.job import REQUIRED, Job, Refused, clock
from engine.keeper.link import Link, LinkBroken
from engine.keeper.linux import become_subreaper, set_process_name, stop_tracing
from engine.keeper.output import Output

NEWS_INTERVAL: Final = 0.005  # seconds between two words of growth
MAX_LINKS: Final = 16  # connections at a time; an engine needs one
RETRY_ACCEPT: Final = 0.2  # seconds
MAX_STATE: Final = 32 << 20  # bytes of a shell's state; one that has more is not carried over
MAX_GRACE: Final = 1e9  # seconds
_BACKLOG: Final = 128  # links not yet taken up while this keeper is stopped
_READABLE: Final = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR

# Whatever a job may send its parent, but for what cannot be ignored and what tells of a bug here.
_IGNORED: Final = signal.valid_signals() - {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCHLD,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
}


class Keeper:
    """The loop. `control` is the engine that has this keeper, `sockets` where it can be found."""

    def __init__(self, control: socket.socket, sockets: str) -> None:
        become_subreaper()
        self.identity = processes.identity(os.getpid())
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._epoll = select.epoll()
        self._links: list[Link] = []
        self._listeners_of_news: list[Link] = []
        self._job: Job | None = None
        self._has_children = False
        self._news_at: float | None = None
        self._last_news = 0.0
        self._listen_at: float | None = None  # when to take up links again
        self._sink = os.memfd_create("state")
        os.dup2(self._sink, shell.FD_SINK, inheritable=False)
        self._sockets = os.open(sockets, os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket_name = socket_name(self.identity)
        self._listener = self._listen()
        self._watch_children()
        self._control: Link | None = self._add_link(control)

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Through the descriptor: a socket's path is limited to 107 bytes.
        listener.bind(f"/proc/self/fd/{self._sockets}/{self._socket_name}")
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self._watch(listener.fileno(), self._on_connect)
        return listener

    def _watch_children(self) -> None:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        self._alarm, write_end = os.pipe()
        os.set_blocking(self._alarm, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._watch(self._alarm, self._on_child)

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until neither a job nor an engine needs this keeper."""
        while self._job is not None or self._control is not None:
            for fd, events in self._epoll.poll(self._timeout()):
                handler = self._handlers.get(fd)  # one before it may have closed this one
                if handler is not None:
                    handler(events)
            self._on_timers()
        with contextlib.suppress(FileNotFoundError):  # somebody has cleared the folder
            os.unlink(self._socket_name, dir_fd=self._sockets)

    def _timeout(self) -> float | None:
        due = [at for at in (self._news_at, self._listen_at) if at is not None]
        if self._job is not None and (at := self._job.next_timer()) is not None:
            due.append(at)
        return max(0.0, min(due) - clock()) if due else None

    def _on_timers(self) -> None:
        if self._job is not None:
            self._job.on_timer()
        if self._news_at is not None and clock() >= self._news_at:
            self._tell_growth()
        if self._listen_at is not None and clock() >= self._listen_at:
            self._listen_at = None
            self._watch(self._listener.fileno(), self._on_connect)

    def _watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def _unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    # -- links -----------------------------------------------------------------------------------

    def _on_connect(self, _events: int) -> None:
        try:
            sock, _address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no descriptor, no memory
            self._unwatch(self._listener.fileno())
            self._listen_at = clock() + RETRY_ACCEPT
            return
        if len(self._links) >= MAX_LINKS:
            sock.close()
        else:
            self._add_link(sock)

    def _add_link(self, sock: socket.socket) -> Link:
        link = Link(sock)
        self._links.append(link)
        self._watch(link.fileno(), lambda events: self._on_link(link, events))
        return link

    def _drop_link(self, link: Link) -> None:
        if link not in self._links:
            return  # dropped while its messages were being answered
        self._unwatch(link.fileno())
        self._links.remove(link)
        if link in self._listeners_of_news:
            self._listeners_of_news.remove(link)
        if link is self._control:
            self._control = None
        link.close()

    def _on_link(self, link: Link, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                link.flush()
                if not link.is_backed_up and link in self._listeners_of_news:
                    self._want_news()  # what it missed meanwhile
            if events & _READABLE:
                for message in link.receive():
                    if link in self._links:
                        self._on_message(link, message)
        except LinkBroken:
            self._drop_link(link)
            return
        except (LookupError, TypeError, ValueError):  # an engine of another version, or a bug
            traceback.print_exc()
            self._drop_link(link)
            return
        if link in self._links:
            wanted = select.EPOLLIN | (select.EPOLLOUT if link.is_backed_up else 0)
            self._epoll.modify(link.fileno(), wanted)

    def _send(self, link: Link, message: dict[str, Any], payload: bytes = b"") -> None:
        try:
            link.send(message, payload)
        except LinkBroken:
            self._drop_link(link)
            return
        if link.is_backed_up:
            self._epoll.modify(link.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _tell(self, message: dict[str, Any], payload: bytes = b"") -> None:
        for link in list(self._listeners_of_news):
            self._send(link, message, payload)

    def _on_message(self, link: Link, message: dict[str, Any]) -> None:
        kind = message.get("op")
        if kind == "launch":
            self._launch(link, message)
        elif kind == "attach":
            self._attach(link, message)
        elif kind == "cancel":
            self._cancel(link, message)
        elif kind == "survey":
            job = self._job_of(message)
            answer = {"ev": "survivors", "survivors": job.survivors()} if job else {"ev": "gone"}
            self._send(link, answer)
        else:
            raise LinkBroken(f"unknown op {kind!r}")

    def _job_of(self, message: dict[str, Any]) -> Job | None:
        """Our job, unless the message is about another: it may come after that one's end."""
        if self._job is None:
            return None
        ours = self._job.request["dir"]
        # By name, which is the task's id: a home may be known by more than one path.
        wanted = os.path.basename(message.get("dir", ours))
        return self._job if wanted == os.path.basename(ours) else None

    def _cancel(self, link: Link, message: dict[str, Any]) -> None:
        grace = float(message["grace"])
        if not 0 <= grace <= MAX_GRACE:
            raise LinkBroken("no such grace")
        self._reap()  # an end that has been is no cancellation
        job = self._job_of(message)
        pids = job.begin_kill("cancelled", grace) if job else []
        self._send(link, {"ev": "signalled", "pids": pids} if job else {"ev": "gone"})

    def _attach(self, link: Link, message: dict[str, Any]) -> None:
        job = self._job_of({"dir": message["dir"]})
        if job is None:
            self._send(link, {"ev": "absent"})
            return
        if link not in self._listeners_of_news:
            self._listeners_of_news.append(link)
        news = {"pid": job.pid, "startedAt": job.started_at, "cwd": job.cwd, "record": job.record}
        self._send(link, {"ev": "state", **news, **job.sizes()})

    # -- the job ---------------------------------------------------------------------------------

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
        if request["prologue"]:
            os.dup2(fds[0], shell.FD_PROLOGUE, inheritable=False)
        os.ftruncate(self._sink, 0)
        try:
            job = Job(request, self.identity)
        except OSError as exc:
            self._send(link, {"ev": "refused", "message": f"task directory: {exc.strerror}"})
            return
        if not job.is_ours:
            self._send(link, {"ev": "taken"})
            return
        self._job = job
        self._listeners_of_news = [link]
        try:
            job.start(fds[-1] if request["stdin"] == "fd" else None)
        except Refused as exc:
            self._job = None
            job.close()
            self._tell({"ev": "refused", "message": str(exc)})
            return
        for output in job.outputs:
            self._watch(output.pipe, functools.partial(self._on_output, output))
        self._tell({"ev": "started", "pid": job.pid, "startedAt": job.started_at, "cwd": job.cwd})
        if job.record is not None:
            self._tell({"ev": "ended", "record": job.record})
            self._finish()
        else:
            self._has_children = True

    def _on_output(self, output: Output, _events: int) -> None:
        if not output.copy():
            self._unwatch(output.pipe)
        self._want_news()

    def _want_news(self) -> None:
        if self._news_at is None:
            self._news_at = max(clock(), self._last_news + NEWS_INTERVAL)

    def _tell_growth(self) -> None:
        self._news_at, self._last_news = None, clock()
        if self._job is None:
            return
        for link in list(self._listeners_of_news):
            if not link.is_backed_up:  # a slow reader hears the newest word only
                self._send(link, {"ev": "grew", **self._job.sizes()})

    def _on_child(self, _events: int) -> None:
        try:
            while os.read(self._alarm, 4096):
                pass
        except BlockingIOError:
            pass
        self._reap()

    def _reap(self) -> None:
        job, ended = self._job, None
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                if os.WIFSTOPPED(status):  # it has made us its tracer
                    stop_tracing(pid, os.WSTOPSIG(status))
                    continue
                if job is not None and pid == job.pid:
                    ended = (status, usage.ru_utime + usage.ru_stime)
        except ChildProcessError:
            self._has_children = False
        if job is None:
            return
        if ended is not None and job.record is None:
            job.end(*ended)
            state = self._dumped_state() if job.request["session"] else b""
            self._tell({"ev": "ended", "record": job.record}, state)
        job.on_child_gone()
        if not self._has_children and job.record is not None:
            self._finish()

    def _finish(self) -> None:
        """Nobody of the job is left: write down the last of it, say so, then be free."""
        job, self._job = self._job, None
        assert job is not None
        for output in job.outputs:
            self._unwatch(output.pipe)
        sizes = job.close()
        self._news_at = None
        self._tell({"ev": "gone", **sizes})
        self._listeners_of_news = []
        self._forget_call()

    def _forget_call(self) -> None:
        """Let go of the call's text and state: they are not for the next job to read."""
        os.ftruncate(self._sink, 0)
        nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.dup2(nothing, shell.FD_PROLOGUE, inheritable=False)
        finally:
            os.close(nothing)

    def _dumped_state(self) -> bytes:
        size = os.fstat(self._sink).st_size
        return os.pread(self._sink, size, 0) if 0 < size <= MAX_STATE else b""


def socket_name(identity: str) -> str:
    """The name of a keeper's socket in the folder of sockets."""
    pid, started, _boot = identity.split(" ")
    return f"{pid}-{started}.sock"


def keep(control: socket.socket, sockets: str) -> None:
    """Be a keeper, in a process just forked for it, until there is nothing left to keep."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    set_process_name("engine-keeper")
    try:
        keeper = Keeper(control, sockets)
    except OSError as exc:  # a full disk, no descriptors
        answer = {"ev": "refused", "message": f"no keeper: {exc.strerror}"}
        control.send(json.dumps(answer).encode() + b"\n")
        return
    keeper.run()
