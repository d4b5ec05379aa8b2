"""What every keeper is: a loop in epoll over links, children, outputs and timers.

Single-threaded. Which messages it understands and what it looks after, the kinds of keepers say.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from engine.keeper import processes
from engine.keeper.feed import Feed
from engine.keeper.kept import Kept, clock
from engine.keeper.link import Link, LinkBroken
from engine.keeper.linux import become_subreaper, set_process_name, stop_tracing
from engine.keeper.news import News
from engine.keeper.output import Output
from engine.keeper.saying import say_exception
from engine.keeper.taskfiles import Mark

LONGEST_SLEEP: Final = 3600.0  # seconds
MAX_LINKS: Final = 16  # connections at a time; an engine needs one
RETRY_ACCEPT: Final = 0.2  # seconds
MAX_GRACE: Final = 1e9  # seconds
_BACKLOG: Final = 128  # links not yet taken up while this keeper is stopped
_NO_ROOM_WANTED: Final = 0  # that nobody reads any more is told all the same
QUESTIONS: Final = ("cancel", "survey", "listener")  # see `KeeperLoop.answer`
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


class KeeperLoop:
    """`control` is the engine that has this keeper, `sockets` the folder where it can be found."""

    max_links = MAX_LINKS

    def __init__(self, control: socket.socket, sockets: str) -> None:
        become_subreaper()
        self.identity = processes.identity(os.getpid())
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._epoll = select.epoll()
        self._links: list[Link] = []
        self._unsent: dict[Link, None] = {}  # links with words that have not gone out
        self._listen_at: float | None = None  # when to take up links again
        self._sockets = os.open(sockets, os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket_name = socket_name(self.identity)
        self.mark = Mark(self.identity, self._sockets, _mark_name(self.identity))
        self._listener = self._listen()
        self._watch_children()
        self._control: Link | None = self._add_link(control)

    # -- for the kinds to say --------------------------------------------------------------------

    def is_needed(self) -> bool:
        """Whether there is anything to live for."""
        raise NotImplementedError

    def tasks(self) -> Iterable[tuple[Kept, News]]:
        """What is looked after now, and who is told of it."""
        raise NotImplementedError

    def on_message(self, link: Link, message: dict[str, Any]) -> None:
        raise NotImplementedError

    def on_reaped(self, pid: int, status: int, cpu: float) -> None:
        """A child has ended: `status` as of wait4(2), `cpu` in seconds."""
        raise NotImplementedError

    def on_all_reaped(self, *, is_childless: bool) -> None:
        """Every child that had ended was told of."""
        raise NotImplementedError

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until nobody needs this keeper."""
        try:
            while self.is_needed():
                for fd, events in self._epoll.poll(self._timeout()):
                    handler = self._handlers.get(fd)  # one before it may have closed this one
                    if handler is not None:
                        handler(events)
                        self.flush()
                self.on_timers()
                self.flush()
        finally:  # a disk that takes no writes may end us: what was told before goes out
            self.flush()
        self.mark.remove()
        with contextlib.suppress(FileNotFoundError):  # somebody has cleared the folder
            os.unlink(self._socket_name, dir_fd=self._sockets)

    def timers(self) -> list[float | None]:
        """When something is due (`clock` seconds)."""
        due = [self._listen_at]
        for task, news in self.tasks():
            due += (task.next_timer(), news.at)
        return due

    def _timeout(self) -> float | None:
        due = [at for at in self.timers() if at is not None]
        # epoll takes milliseconds in 32 bits; a deadline may lie years ahead
        return min(max(0.0, min(due) - clock()), LONGEST_SLEEP) if due else None

    def on_timers(self) -> None:
        """Do what is due."""
        if any(is_due(task.next_timer()) for task, _news in self.tasks()):
            self.reap()  # after a stop of ours a timer can come before the end that was first
        for task, news in list(self.tasks()):
            if is_due(task.next_timer()):
                task.on_timer()
            news.tell_if_blocked(task)
            news.tell_if_due(task.sizes())
        if is_due(self._listen_at):
            self._listen_at = None
            self.watch(self._listener.fileno(), self._on_connect)

    def watch(self, fd: int, handler: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def watch_output(self, task: Kept, output: Output, news: News) -> None:
        """Copy what comes until nobody can write any more."""

        def copy(_events: int) -> None:
            before = output.size
            if not output.copy():
                self.unwatch(output.pipe)
            if output.size != before:
                task.stir()
                news.want()

        self.watch(output.pipe, copy)

    def watch_feed(self, feed: Feed) -> None:
        """Write on as there is room, until there is nothing left to write."""

        def go_on(events: int) -> None:
            feed.on_event(events)
            self.tend(feed)

        self.watch(feed.fd, go_on, _NO_ROOM_WANTED)
        feed.go_on()  # it may have a text
        self.tend(feed)

    def tend(self, feed: Feed) -> None:
        """Watch for what `feed`, which has been written to, waits for now."""
        if feed.fd not in self._handlers:
            return
        if feed.is_over:
            self.unwatch(feed.fd)
            feed.close()
        else:
            wanted = select.EPOLLOUT if feed.wants_room else _NO_ROOM_WANTED
            self._epoll.modify(feed.fd, wanted)

    # -- children --------------------------------------------------------------------------------

    def _watch_children(self) -> None:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        self._alarm, write_end = os.pipe()
        os.set_blocking(self._alarm, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watch(self._alarm, self._on_child)

    def _on_child(self, _events: int) -> None:
        try:
            while os.read(self._alarm, 4096):
                pass
        except BlockingIOError:
            pass
        self.reap()

    def reap(self) -> None:
        """Take away every child that has ended, and tell of it."""
        is_childless = False
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                if os.WIFSTOPPED(status):  # it has made us its tracer
                    stop_tracing(pid, os.WSTOPSIG(status))
                    continue
                self.on_reaped(pid, status, usage.ru_utime + usage.ru_stime)
        except ChildProcessError:
            is_childless = True
        self.on_all_reaped(is_childless=is_childless)

    # -- links -----------------------------------------------------------------------------------

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Through the descriptor: a socket's path is limited to 107 bytes.
        listener.bind(f"/proc/self/fd/{self._sockets}/{self._socket_name}")
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self.watch(listener.fileno(), self._on_connect)
        return listener

    def _on_connect(self, _events: int) -> None:
        try:
            sock, _address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no descriptor, no memory
            self.unwatch(self._listener.fileno())
            self._listen_at = clock() + RETRY_ACCEPT
            return
        if len(self._links) >= self.max_links:
            sock.close()
        else:
            self._add_link(sock)

    def _add_link(self, sock: socket.socket) -> Link:
        link = Link(sock)
        self._links.append(link)
        self.watch(link.fileno(), lambda events: self._on_link(link, events))
        return link

    def flush(self) -> None:
        """Send what was told since the last time, to each link in one piece.

        A link that does not take it is dropped.
        """
        while self._unsent:
            link, _ = self._unsent.popitem()
            try:
                link.flush()
            except LinkBroken:
                self.drop_link(link)
            else:
                self._watch_link(link)

    def _watch_link(self, link: Link) -> None:
        """Watch for room on the link where it has more to send, and only there."""
        if link in self._links and link.is_backed_up != link.awaits_room:
            link.awaits_room = link.is_backed_up
            wanted = select.EPOLLIN | (select.EPOLLOUT if link.awaits_room else 0)
            self._epoll.modify(link.fileno(), wanted)

    def drop_link(self, link: Link) -> None:
        if link not in self._links:
            return  # dropped while its messages were being answered
        self.unwatch(link.fileno())
        self._links.remove(link)
        self._unsent.pop(link, None)
        for _task, news in self.tasks():
            news.drop(link)
        if link is self._control:
            self._control = None
        link.close()

    def _on_link(self, link: Link, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                link.flush()
                if not link.is_backed_up:
                    for _task, news in self.tasks():
                        news.catch_up(link)
            if events & _READABLE:
                for message in link.receive():
                    if link in self._links:
                        self.on_message(link, message)
        except LinkBroken:
            self.drop_link(link)
            return
        except (LookupError, TypeError, ValueError):  # an engine of another version, or a bug
            say_exception()
            self.drop_link(link)
            return
        self._watch_link(link)

    def send(self, link: Link, message: dict[str, Any], payload: bytes = b"") -> None:
        """Send to one link, with all else that is told in this turn; see `flush`."""
        if link not in self._links:
            return
        try:
            link.put(message, payload)
        except LinkBroken:
            self.drop_link(link)
            return
        self._unsent[link] = None

    # -- what is asked of any task ---------------------------------------------------------------

    def answer(self, link: Link, kind: str, message: dict[str, Any], task: Kept | None) -> None:
        """Answer one of QUESTIONS about `task`; None: it is gone."""
        if kind == "listener":
            whose = {"ev": "listener", "whose": task.listener()} if task else {"ev": "gone"}
            self.send(link, whose)
        elif kind == "cancel":
            pids = task.begin_kill("cancelled", grace_of(message)) if task else []
            self.send(link, {"ev": "signalled", "pids": pids} if task else {"ev": "gone"})
        else:
            survey = {"ev": "survivors", "survivors": task.survivors()} if task else {"ev": "gone"}
            self.send(link, survey)


def is_due(at: float | None) -> bool:
    return at is not None and clock() >= at


def grace_of(message: dict[str, Any]) -> float:
    """Seconds. Raises LinkBroken."""
    grace = float(message["grace"])
    if not 0 <= grace <= MAX_GRACE:
        raise LinkBroken("no such grace")
    return grace


def socket_name(identity: str) -> str:
    """The name of a keeper's socket in the folder of sockets."""
    return _name(identity) + ".sock"


def _mark_name(identity: str) -> str:
    return _name(identity) + ".who"


def _name(identity: str) -> str:
    pid, started, _boot = identity.split(" ")
    return f"{pid}-{started}"


def keep(kind: type[KeeperLoop], name: str, control: socket.socket, sockets: str) -> None:
    """Be a keeper, in a process just forked for it, until there is nothing left to keep."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    set_process_name(name)
    try:
        keeper = kind(control, sockets)
    except OSError as exc:  # a full disk, no descriptors
        message = f"no keeper: {exc.strerror}"
        answer = {"ev": "refused", "message": message, "errno": exc.errno}
        control.send(json.dumps(answer).encode() + b"\n")
        return
    keeper.run()
