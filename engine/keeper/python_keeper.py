"""A session keeper: the parent of a caller's Python interpreter, for as long as the session lives.

It outlives the engine as any keeper does. The session is found by a link, made here, whose text is
this keeper's identity. Where no engine is found to listen at `engine` for `alone` seconds, the
session is closed. Messages (see `link` for their form), each answered on the same link:
  open     see `interpreter`, and {link, once, engine?, alone?}     -> opened | failed
  session  what there is                                            -> session
  run      a call, see `call.Call`; descriptors: code [stdin]       -> accepted | busy | closed |
                                                                       taken | refused
  attach   {dir}: news of this directory's call from now on         -> state | absent
  cancel   {dir, grace}: interrupt and TERM, after `grace` KILL     -> signalled | gone
  survey   {dir}: who is left                                       -> survivors | gone
  listener {dir}: whose socket listens at the port of its request   -> listener | gone
  close    {grace, onlyIdle, isLost}: end the session               -> busy | closing, at the
                                                                       end closed
The engine that opened the session hears `closed` in any case. Where a session has died between
calls, or is closed with `isLost`, or as no engine is there, the link stays and says `lost`: the
next call must be told.
News to every link that ran a call or attached to it: started, grew, blocked, unblocked, ended,
gone.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from typing import Any, Final

from engine.keeper.alone import Alone
from engine.keeper.call import REQUIRED, Call
from engine.keeper.calls import MAX_CALLS, CallsKeeper
from engine.keeper.interpreter import Interpreter
from engine.keeper.kept import Refused, clock
from engine.keeper.link import Link, LinkBroken
from engine.keeper.loop import QUESTIONS, grace_of, is_due
from engine.keeper.loop import keep as keep_kind
from engine.keeper.news import News
from engine.keeper.place import Place
from engine.keeper.spawning import SpawnFailed

START_SECS: Final = 60.0  # for an interpreter to be ready: a cold disk, a slow `sitecustomize`
TOO_MANY: Final = (
    f"{MAX_CALLS} calls of this session have left threads or processes that live:"
    " cancel ends the processes, reset_session the threads too"
)
NOFILE: Final = 1024  # descriptors: up to a dozen for each call
LEAVE_GRACE: Final = 5.0  # seconds for an interpreter that nobody waits for to leave


class PythonKeeper(CallsKeeper):
    """The loop and the session."""

    def __init__(self, control: socket.socket, sockets: str) -> None:
        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, NOFILE), hard))
        self._is_ready = False
        self._has_opened = False
        self._is_leaving = False  # the interpreter was let go, or will be after its call
        self._kill_at: float | None = None  # the interpreter, if it has not left by then
        self._is_once = False
        self._alone: Alone | None = None
        self._waiting: list[Link] = []  # for the end of the session
        super().__init__(control, sockets)
        self._place = Place(self.identity)

    def is_needed(self) -> bool:
        is_awaited = not self._has_opened and self._control is not None
        return self.interpreter is not None or bool(self.calls) or is_awaited

    def timers(self) -> list[float | None]:
        look_at = None if self._alone is None else self._alone.look_at
        return [self._kill_at, look_at, *super().timers()]

    def on_timers(self) -> None:
        if self.interpreter is not None and is_due(self._kill_at):
            self._kill_at = None
            self.interpreter.kill()
        if self._alone is not None and is_due(self._alone.look_at):
            is_used = bool(self._links) or self.running is not None
            if self._alone.is_over(is_used=is_used):
                self._alone = None
                self._let_go(LEAVE_GRACE, is_lost=True)
        if any(is_due(call.next_timer()) for call in self.calls.values()):
            self._hear_worker()  # an end that has been is none by deadline
        super().on_timers()

    def drop_link(self, link: Link) -> None:
        super().drop_link(link)
        if link in self._waiting:
            self._waiting.remove(link)
        if not self._links and self._is_once and not self.calls:
            self._let_go(LEAVE_GRACE)  # nobody is left who could ask for the one call

    def on_message(self, link: Link, message: dict[str, Any]) -> None:
        kind = message.get("op")
        if kind == "open":
            self._open(link, message)
        elif kind == "session":
            self._hear_worker()
            self.send(link, {"ev": "session", **self._describe()})
        elif kind == "run":
            self._run(link, message)
        elif kind == "attach":
            self._attach(link, message)
        elif kind in QUESTIONS:
            self._hear_worker()  # an end that has been is no cancellation
            self.reap()
            self.answer(link, kind, message, self.call_of(message))
        elif kind == "write":  # the input of code is whole from its start
            self.send(link, {"ev": "written", "taken": 0, "isOpen": False})
        elif kind == "close":
            self._close(link, message)
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
                self._place.take(request["link"])
            if request.get("engine") is not None:
                self._alone = Alone(request["engine"], float(request["alone"]))
            self.interpreter = Interpreter(request)
        except SpawnFailed as exc:
            self._fail(exc.errno, str(exc), exc.exit_code)
            return
        except OSError as exc:
            self._fail(exc.errno or errno.EIO, f"python session: {exc.strerror}", 126)
            return
        self._kill_at = clock() + START_SECS
        assert self.interpreter.link is not None
        self.watch(self.interpreter.link.fileno(), lambda _events: self._hear_worker())

    def _fail(self, code: int, message: str, exit_code: int) -> None:
        failure = {"errno": code, "message": message, "exitCode": exit_code}
        self._tell_waiting({"ev": "failed", **failure})
        self._place.leave()

    def _describe(self) -> dict[str, Any]:
        python = self.interpreter
        return {
            "identity": self.identity,
            "isOpen": self._takes_calls(),
            "pid": python.worker if python else 0,
            "version": python.version if python else "",
            "executable": python.executable if python else "",
            "busy": self.running.request["dir"] if self.running else None,
        }

    def _takes_calls(self) -> bool:
        python = self.interpreter
        if python is None or python.link is None or not self._is_ready:
            return False
        return not self._is_leaving and not (self._is_once and self.latest)

    def _close(self, link: Link, request: dict[str, Any]) -> None:
        grace = grace_of(request)
        self._hear_worker()
        if request.get("onlyIdle") and self.running is not None:
            self.send(link, self._busy(self.running))
            return
        self.send(link, {"ev": "closing"})
        if link in self._links:
            self._waiting.append(link)
        if self.interpreter is None:
            self._tell_waiting({"ev": "closed"})
            return
        if self.running is not None:
            self.running.begin_kill("cancelled", grace)
        self._let_go(grace, is_lost=bool(request.get("isLost")))

    def _let_go(self, grace: float, *, is_lost: bool = False) -> None:
        if self.interpreter is not None:
            self._is_leaving = True
            self._place.leave(is_lost=is_lost)
            if self.running is None:
                self.interpreter.let_go()
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
        python = self.interpreter
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
            if self.running is None and self._kill_at is None:
                python.kill()

    def _on_word(self, python: Interpreter, message: dict[str, Any]) -> None:
        word = message["ev"]
        if word == "hello":
            python.greet(message)
            self._is_ready, self._kill_at = True, None
            self._tell_waiting({"ev": "opened", **self._describe()})
            return
        call = self.calls.get(message["call"])
        if word == "released":
            if call is not None:
                call.has_threads = False
                self.look_after(call)
        elif call is None or call is not self.running:
            raise ValueError("not the call that runs")
        elif word == "began":
            call.on_began(message)
            call.news.tell(call.started())
        elif word == "result" and self._is_once:
            call.on_result(message)
        elif word == "failed":
            call.end_unstarted(message)
            self._on_ended(call)
        elif word == "done" and not self._is_once:
            call.end(message, is_reset=self._is_leaving)
            self._on_ended(call)
        else:
            raise ValueError("no such word")

    def on_reaped(self, pid: int, status: int, cpu: float) -> None:
        python = self.interpreter
        if python is None or pid != python.pid:
            return
        self._hear_worker()  # its last words
        if python.link is not None:
            self.unwatch(python.link.fileno())
        self.interpreter, self._kill_at = None, None
        # Of an end in a call, that one's record tells.
        self._place.leave(is_lost=self._is_ready and self.running is None)
        if not self._is_ready:
            code = errno.ENOEXEC
            words = python.words() or "it ended before it was ready"
            self._fail(code, f"{os.strerror(code)}: python3: {words}", 126)
        python.close()
        running = self.running
        if running is not None:
            running.end_with_interpreter(status, cpu)
            self._on_ended(running)
        self._tell_closed()

    # -- calls -----------------------------------------------------------------------------------

    def _busy(self, call: Call) -> dict[str, Any]:
        return {"ev": "busy", "dir": call.request["dir"]}

    def _attach(self, link: Link, message: dict[str, Any]) -> None:
        call = self.call_of(message)
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
        if len(self.calls) >= MAX_CALLS:
            self.reap()  # of some the last may just have gone
        if self.running is not None:
            self.send(link, self._busy(self.running))
            return
        if not self._takes_calls() or self.interpreter is None:
            self.send(link, {"ev": "closed"})
            return
        if len(self.calls) >= MAX_CALLS:
            self.send(link, {"ev": "refused", "message": TOO_MANY})
            return
        try:
            call = Call(request, self.mark, self.interpreter, is_once=self._is_once)
        except OSError as exc:
            self.send(link, {"ev": "refused", "message": f"task directory: {exc.strerror}"})
            return
        if call.is_ours:
            self._begin(link, call, code, stdin)
        else:
            self.send(link, {"ev": "taken"})

    def _begin(self, link: Link, call: Call, code: int, stdin: int) -> None:
        self.sort_processes()  # whoever is there now is none of this call's
        call.news = News(self.send, link)
        call.living = lambda: self.sort_processes().get(call.name, [])
        try:
            call.start(code, stdin)
        except Refused as exc:
            call.close()
            self.send(link, {"ev": "refused", "message": str(exc)})
            return
        self.running, self.latest = call, call.name
        self.calls[call.name] = call
        self.send(link, {"ev": "accepted"})
        for output in call.outputs:
            self.watch_output(call, output, call.news)

    def _on_ended(self, call: Call) -> None:
        self.running = None
        call.news.hold_back()
        call.news.tell({"ev": "ended", "record": call.record})
        if self._is_once:
            self._let_go(LEAVE_GRACE)
        elif self._is_leaving and self.interpreter is not None:
            self.interpreter.let_go()  # which was put off: see `worker`
        self.look_after(call)


def keep(control: socket.socket, sockets: str) -> None:
    """Be a session keeper, in a process just forked for it."""
    keep_kind(PythonKeeper, "engine-python", control, sockets)
