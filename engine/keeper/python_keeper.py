"""A session keeper: the parent of a caller's Python interpreter, for as long as the session lives.

It outlives the engine as any keeper does. The session is found by a link, made here, whose text is
this keeper's identity. Messages (see `link` for their form), each answered on the same link:
  open     see `interpreter`, and {link, once}                      -> opened | failed
  session  what there is                                            -> session
  run      a call, see `call.Call`; descriptors: code [stdin]       -> accepted | busy | closed |
                                                                       taken | refused
  attach   {dir}: news of this directory's call from now on         -> state | absent
  cancel   {dir, grace}: interrupt and TERM, after `grace` KILL     -> signalled | gone
  survey   {dir}: who is left                                       -> survivors | gone
  close    {grace}: end the session                                 -> closing, at the end closed
The engine that opened the session hears `closed` in any case.
News to every link that ran a call or attached to it: started, grew, ended, gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import secrets
import socket
from collections.abc import Iterator
from typing import Any, Final

from engine.keeper.call import REQUIRED, Call
from engine.keeper.descent import Descent
from engine.keeper.interpreter import Interpreter
from engine.keeper.kept import Refused, clock
from engine.keeper.link import Link, LinkBroken
from engine.keeper.loop import KeeperLoop, grace_of, is_due
from engine.keeper.loop import keep as keep_kind
from engine.keeper.news import News
from engine.keeper.spawning import SpawnFailed

START_SECS: Final = 60.0  # for an interpreter to be ready: a cold disk, a slow `sitecustomize`
MAX_CALLS: Final = 64  # looked after at a time: the one that runs, those that left somebody behind
NOFILE: Final = 1024  # descriptors: up to a dozen for each call
RETRY_LOOK: Final = 1.0  # seconds
ONCE_GRACE: Final = 5.0  # seconds for the interpreter of a single call to leave


class PythonKeeper(KeeperLoop):
    """The loop and the session."""

    max_links = 2 * MAX_CALLS

    def __init__(self, control: socket.socket, sockets: str) -> None:
        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, NOFILE), hard))
        self._calls: dict[str, Call] = {}  # by name
        self._running: Call | None = None
        self._latest = ""  # name of the call that runs or ran last
        self._descent = Descent()
        self._pidfds: dict[str, int] = {}  # of one process of each call that has ended
        self._interpreter: Interpreter | None = None
        self._is_ready = False
        self._has_opened = False
        self._kill_at: float | None = None  # the interpreter, if it has not left by then
        self._look_at: float | None = None  # anew after those left behind
        self._link_path: str | None = None
        self._is_once = False
        self._waiting: list[Link] = []  # for the end of the session
        super().__init__(control, sockets)

    def is_needed(self) -> bool:
        is_awaited = not self._has_opened and self._control is not None
        return self._interpreter is not None or bool(self._calls) or is_awaited

    def tasks(self) -> Iterator[tuple[Call, News]]:
        return ((call, call.news) for call in self._calls.values())

    def timers(self) -> list[float | None]:
        return [self._kill_at, self._look_at, *super().timers()]

    def on_timers(self) -> None:
        if self._interpreter is not None and is_due(self._kill_at):
            self._kill_at = None
            self._interpreter.kill()
        if any(is_due(call.next_timer()) for call in self._calls.values()):
            self._hear_worker()  # an end that has been is none by deadline
        if is_due(self._look_at):
            self._look_at = None
            self.reap()  # which looks after all that have ended
        super().on_timers()

    def drop_link(self, link: Link) -> None:
        super().drop_link(link)
        if link in self._waiting:
            self._waiting.remove(link)
        if not self._links and self._is_once and not self._calls:
            self._let_go(ONCE_GRACE)  # nobody is left who could ask for the one call

    def on_message(self, link: Link, message: dict[str, Any]) -> None:
        kind = message.get("op")
        if kind == "open":
            self._open(link, message)
        elif kind == "session":
            self.send(link, {"ev": "session", **self._describe()})
        elif kind == "run":
            self._run(link, message)
        elif kind == "attach":
            self._attach(link, message)
        elif kind in ("cancel", "survey"):
            self._hear_worker()  # an end that has been is no cancellation
            self.reap()
            self.answer(link, kind, message, self._call_of(message))
        elif kind == "write":  # the input of code is whole from its start
            self.send(link, {"ev": "written", "taken": 0, "isOpen": False})
        elif kind == "close":
            self._close(link, grace_of(message))
        else:
            raise LinkBroken(f"unknown op {kind!r}")

    # -- the session -----------------------------------------------------------------------------

    def _open(self, link: Link, request: dict[str, Any]) -> None:
        if self._has_opened:
            raise LinkBroken("this keeper has a session")
        self._has_opened, self._is_once = True, bool(request["once"])
        self._waiting.append(link)
        try:
            if request["link"] is not None:
                self._make_link(request["link"])
            self._interpreter = Interpreter(request)
        except SpawnFailed as exc:
            self._fail(exc.errno, str(exc), exc.exit_code)
            return
        except OSError as exc:
            self._fail(exc.errno or errno.EIO, f"python session: {exc.strerror}", 126)
            return
        self._kill_at = clock() + START_SECS
        assert self._interpreter.link is not None
        self.watch(self._interpreter.link.fileno(), lambda _events: self._hear_worker())

    def _fail(self, code: int, message: str, exit_code: int) -> None:
        failure = {"errno": code, "message": message, "exitCode": exit_code}
        self._tell_waiting({"ev": "failed", **failure})
        self._remove_link()

    def _make_link(self, path: str) -> None:
        """Have the session found here from now on; one that was there is replaced."""
        fresh = f"{path}.{secrets.token_hex(4)}"
        os.symlink(self.identity, fresh)
        try:
            os.rename(fresh, path)
        except OSError:
            os.unlink(fresh)
            raise
        self._link_path = path

    def _remove_link(self) -> None:
        path, self._link_path = self._link_path, None
        with contextlib.suppress(OSError):  # removed, or somebody has put something else there
            if path is not None and os.readlink(path) == self.identity:
                os.unlink(path)

    def _describe(self) -> dict[str, Any]:
        python = self._interpreter
        return {
            "identity": self.identity,
            "isOpen": self._takes_calls(),
            "pid": python.worker if python else 0,
            "version": python.version if python else "",
            "executable": python.executable if python else "",
            "busy": self._running.request["dir"] if self._running else None,
        }

    def _takes_calls(self) -> bool:
        is_leaving = self._kill_at is not None or (self._is_once and self._latest != "")
        return self._interpreter is not None and self._is_ready and not is_leaving

    def _close(self, link: Link, grace: float) -> None:
        self.send(link, {"ev": "closing"})
        if link in self._links:
            self._waiting.append(link)
        if self._interpreter is None:
            self._tell_waiting({"ev": "closed"})
            return
        self._hear_worker()
        if self._running is not None:
            self._running.begin_kill("cancelled", grace)
        self._let_go(grace)

    def _let_go(self, grace: float) -> None:
        if self._interpreter is not None:
            self._remove_link()
            if self._running is None:
                self._interpreter.let_go()
            kill_at = clock() + grace
            self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def _tell_waiting(self, message: dict[str, Any]) -> None:
        waiting, self._waiting = self._waiting, []
        for link in waiting:
            self.send(link, message)

    def _tell_closed(self) -> None:
        if self._control is not None and self._control not in self._waiting:
            self._waiting.append(self._control)
        self._tell_waiting({"ev": "closed"})

    # -- the interpreter -------------------------------------------------------------------------

    def _hear_worker(self) -> None:
        python = self._interpreter
        if python is None or python.link is None:
            return
        try:
            for message in python.link.receive():
                self._on_word(python, message)
        except (LinkBroken, LookupError, TypeError, ValueError):
            # Gone, closed or forged. With nothing to run it is of no use any more; with a call it
            # may have become another program, whose end is the call's.
            self.unwatch(python.link.fileno())
            python.close_link()
            if self._running is None and self._kill_at is None:
                python.kill()

    def _on_word(self, python: Interpreter, message: dict[str, Any]) -> None:
        word = message["ev"]
        if word == "hello":
            python.greet(message)
            self._is_ready, self._kill_at = True, None
            self._tell_waiting({"ev": "opened", **self._describe()})
            return
        call = self._calls.get(message["call"])
        if word == "released":
            if call is not None:
                call.has_threads = False
                self._look_after(call)
        elif call is None or call is not self._running:
            raise ValueError("not the call that runs")
        elif word == "began":
            call.on_began(message)
            call.news.tell(_started(call))
        elif word == "failed":
            call.end_unstarted(message)
            self._on_ended(call)
        elif word == "done":
            call.end(message)
            self._on_ended(call)
        else:
            raise ValueError("no such word")

    def on_reaped(self, pid: int, status: int, cpu: float) -> None:
        python = self._interpreter
        if python is None or pid != python.pid:
            return
        self._hear_worker()  # its last words
        if python.link is not None:
            self.unwatch(python.link.fileno())
        self._interpreter, self._kill_at = None, None
        self._remove_link()
        if not self._is_ready:
            code = errno.ENOEXEC
            words = python.words() or "it ended before it was ready"
            self._fail(code, f"{os.strerror(code)}: python3: {words}", 126)
        python.close()
        running = self._running
        if running is not None:
            running.end_with_interpreter(status, cpu)
            self._on_ended(running)
        self._tell_closed()

    def on_all_reaped(self, *, is_childless: bool) -> None:
        for call in list(self._calls.values()):
            if call.record is not None:
                if self._interpreter is None:
                    call.has_threads = False
                call.on_child_gone()
                self._look_after(call)

    # -- calls -----------------------------------------------------------------------------------

    def _call_of(self, message: dict[str, Any]) -> Call | None:
        # By name, which is the task's id: a home may be known by more than one path.
        wanted = os.path.basename(message["dir"])
        calls = self._calls.values()
        return next((c for c in calls if os.path.basename(c.request["dir"]) == wanted), None)

    def _attach(self, link: Link, message: dict[str, Any]) -> None:
        call = self._call_of(message)
        if call is None:
            self.send(link, {"ev": "absent"})
            return
        call.news.add(link)
        self.send(link, {"ev": "state", **call.state()})

    def _run(self, link: Link, request: dict[str, Any]) -> None:
        if not request.keys() >= REQUIRED:
            raise LinkBroken("not all of a call")
        fds = link.take_fds(request["fds"])
        try:
            if request["stdin"] != "fd":
                fds.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
            self._accept(link, request, fds[0], fds[-1])
        except OSError as exc:  # no descriptor to be had
            self.send(link, {"ev": "refused", "message": f"python session: {exc.strerror}"})
        finally:
            for fd in fds:
                os.close(fd)

    def _accept(self, link: Link, request: dict[str, Any], code: int, stdin: int) -> None:
        self._hear_worker()
        if self._running is not None:
            self.send(link, {"ev": "busy", "dir": self._running.request["dir"]})
            return
        if not self._takes_calls() or self._interpreter is None:
            self.send(link, {"ev": "closed"})
            return
        if len(self._calls) >= MAX_CALLS:
            message = f"{MAX_CALLS} calls of this session have left processes or threads behind"
            self.send(link, {"ev": "refused", "message": message})
            return
        try:
            call = Call(request, self.identity, self._interpreter)
        except OSError as exc:
            self.send(link, {"ev": "refused", "message": f"task directory: {exc.strerror}"})
            return
        if call.is_ours:
            self._begin(link, call, code, stdin)
        else:
            self.send(link, {"ev": "taken"})

    def _begin(self, link: Link, call: Call, code: int, stdin: int) -> None:
        self._sorted()  # whoever is there now is none of this call's
        call.news = News(self.send, link)
        call.living = lambda: self._sorted().get(call.name, [])
        try:
            call.start(code, stdin)
        except Refused as exc:
            call.close()
            self.send(link, {"ev": "refused", "message": str(exc)})
            return
        self._running, self._latest = call, call.name
        self._calls[call.name] = call
        self.send(link, {"ev": "accepted"})
        for output in call.outputs:
            self.watch_output(output, call.news)

    def _sorted(self) -> dict[str, list[int]]:
        pipes = {name: call.pipes() for name, call in self._calls.items()}
        own = self._interpreter.pids if self._interpreter else set()
        return self._descent.sort(own, pipes, self._latest)

    def _on_ended(self, call: Call) -> None:
        self._running = None
        call.news.hold_back()
        call.news.tell({"ev": "ended", "record": call.record})
        if self._is_once:
            self._let_go(ONCE_GRACE)
        elif self._kill_at is not None and self._interpreter is not None:
            self._interpreter.let_go()  # which was put off: see `worker`
        self._look_after(call)

    def _look_after(self, call: Call) -> None:
        """Let go of an ended call of which nobody is left; else have us woken by an end."""
        if call.name in self._pidfds:
            fd = self._pidfds.pop(call.name)
            self.unwatch(fd)
            os.close(fd)
        try:
            is_alone = not self._watch_one_of(call)
        except OSError:  # no descriptor to look with
            self._look_at = clock() + RETRY_LOOK
            return
        if is_alone and not call.has_threads:
            self._finish(call)

    def _watch_one_of(self, call: Call) -> bool:
        """Have us woken by the end of one of the call's processes; False if there is none."""
        while living := call.processes():
            try:
                fd = os.pidfd_open(living[0])
            except ProcessLookupError:
                continue
            self._pidfds[call.name] = fd
            self.watch(fd, lambda _events: self._on_survivor_gone(call))
            return True
        return False

    def _on_survivor_gone(self, call: Call) -> None:
        call.on_child_gone()
        self._look_after(call)

    def _finish(self, call: Call) -> None:
        del self._calls[call.name]
        for output in call.outputs:
            self.unwatch(output.pipe)
        sizes = call.close()
        call.news.tell({"ev": "gone", **sizes})


def _started(call: Call) -> dict[str, Any]:
    return {"ev": "started", "pid": call.pid, "startedAt": call.started_at, "cwd": call.cwd}


def keep(control: socket.socket, sockets: str) -> None:
    """Be a session keeper, in a process just forked for it."""
    keep_kind(PythonKeeper, "engine-python", control, sockets)
