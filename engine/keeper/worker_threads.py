"""Whose the threads of a session's interpreter are, and where what they write goes.

A part of the program that `worker` describes. While a call runs, whatever threads write is that
call's: a pool works for whoever waits for it. While none runs, it is the call's that began the
thread, also by a thread of its own; past Python (C code, children), the call's that ended last
among those that left threads behind.
"""

from __future__ import annotations

import _thread
import json
import os
import select
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from engine.keeper.worker import move_up

LINE_BYTES = 8192  # of an unfinished line held back

# All by which a thread is begun: the last two names are those that `threading` has for them.
_STARTS = (
    (_thread, "start_new_thread"),
    (_thread, "start_new"),
    (_thread, "start_joinable_thread"),  # from Python 3.13 on
    (threading, "_start_new_thread"),
    (threading, "_start_joinable_thread"),
)


class Call:
    """One request and the descriptors that came with it."""

    def __init__(self, fds: list[int]) -> None:
        request, code, *streams = fds
        asked = json.loads(read_file(request))
        self.name: str = asked["call"]
        self.cwd: str | None = asked["cwd"]
        self.env: dict[str, str] = asked["env"]
        self.is_once: bool = asked["once"]  # the interpreter ends with it
        self.text = read_file(code).decode("utf-8", "replace")
        self.threads = 0  # that it has begun and that live
        moved = [move_up(fd) for fd in streams]
        self.streams = (moved[0], moved[1], moved[-1])  # for 0, 1 and 2
        os.close(request)
        os.close(code)

    def close(self) -> None:
        for fd in set(self.streams):
            try:
                os.close(fd)
            except OSError:
                continue  # code that closes every number it can think of


def read_file(fd: int) -> bytes:
    parts: list[bytes] = []
    offset = 0
    while True:
        part = os.pread(fd, 1 << 20, offset)
        if not part:
            return b"".join(parts)
        parts.append(part)
        offset += len(part)


class Threads:
    """The call that runs, those that left threads behind, and which thread is whose.

    `lock` guards all this and where the outputs lead: nothing is written while that changes.
    """

    def __init__(self, on_end: Callable[[int], None], on_released: Callable[[Call], None]) -> None:
        """`on_end`: a thread, by its number, is about to end; `on_released`: a call's last has.

        Both are called in that thread, with the lock.
        """
        self.lock: Any = threading.RLock()  # a handler of signals may write in the midst of it
        self.running: Call | None = None
        self.held: list[Call] = []  # the one that ended last comes last
        self._on_end, self._on_released = on_end, on_released
        self._owners: dict[int, Call] = {}  # by the numbers of threads
        for module, name in _STARTS:
            start = getattr(module, name, None)
            if start is not None:
                setattr(module, name, self._noting(start))

    @property
    def latest(self) -> Call | None:
        return self.held[-1] if self.held else None

    def owner(self, thread: int) -> Call | None:
        """The call that `thread` is of; what began by no hand of ours is of the present one."""
        return self._owners.get(thread) or self.running or self.latest

    def end(self, call: Call) -> bool:
        """Note that `call`, which ran, has ended; whether threads of it live."""
        self.running = None
        if call.threads:
            self.held.append(call)
        return bool(call.threads)

    def _noting(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """`start`, a function that begins a thread, with a note of whose that thread is."""

        def begin(function: Any, *args: Any, **named: Any) -> Any:
            call = self.owner(threading.get_ident())
            if call is None or not callable(function):
                return start(function, *args, **named)
            with self.lock:
                call.threads += 1
            try:
                return start(self._owned(function, call), *args, **named)
            except BaseException:
                self._leave(call)
                raise

        return begin

    def _owned(self, function: Callable[..., Any], call: Call) -> Callable[..., Any]:
        interpreter = os.getpid()

        def run(*args: Any, **named: Any) -> None:
            thread = threading.get_ident()
            self._owners[thread] = call
            try:
                function(*args, **named)
            finally:
                if os.getpid() == interpreter:  # else code has forked, and the calls are not ours
                    with self.lock:
                        self._on_end(thread)
                        self._owners.pop(thread, None)
                        self._leave(call)

        return run

    def _leave(self, call: Call) -> None:
        with self.lock:
            call.threads -= 1
            if not call.threads and call in self.held:
                self.held.remove(call)
                self._on_released(call)

    def forget_others(self) -> None:
        """Be in a process that has just been forked, where this thread is alone."""
        self.lock = threading.RLock()
        thread = threading.get_ident()
        self._owners = {number: call for number, call in self._owners.items() if number == thread}


class Unlocked:
    """In place of a lock that nobody waits for any more."""

    def __enter__(self) -> None:
        return

    def __exit__(self, *_exc: object) -> None:
        return


class Lines:
    """What Python writes, thread by thread: held back until a line is whole."""

    def __init__(self) -> None:
        self.threads: Threads  # set before anything is written
        self._rests: dict[tuple[int, int], bytes] = {}  # by descriptor and thread
        self._holds_back = True

    def write(self, number: int, piece: bytes) -> None:
        """Write to descriptor `number`, 1 or 2, or where it leads for the calling thread."""
        key = (number, threading.get_ident())
        with self.threads.lock:
            line = self._rests.pop(key, b"") + piece
            if self._holds_back and b"\n" not in piece and len(line) < LINE_BYTES:
                self._rests[key] = line
            else:
                _write_all(self._target(*key), line)

    def flush(self, number: int) -> None:
        """Write what is held back of the calling thread."""
        self.write_out((number, threading.get_ident()))

    def flush_thread(self, thread: int) -> None:
        for number in (1, 2):
            self.write_out((number, thread), loses=True)

    def flush_all(self) -> None:
        for key in list(self._rests):
            self.write_out(key, loses=True)

    def write_out(self, key: tuple[int, int], *, loses: bool = False) -> None:
        """Write what is held back by `key`. `loses`: where code has closed the descriptor, drop it.

        Raises OSError otherwise.
        """
        with self.threads.lock:
            rest = self._rests.pop(key, b"")
            try:
                if rest:
                    _write_all(self._target(*key), rest)
            except OSError:
                if not loses:
                    raise

    def stop_holding_back(self) -> None:
        """The interpreter is about to end: from here on nobody may be there to flush.

        Nor to give the lock back: a thread that runs on is stopped for good in the midst of things.
        """
        self._holds_back = False
        self.flush_all()
        self.threads.lock = Unlocked()

    def forget_all(self) -> None:
        """Be in a process that has just been forked: its parent writes what is held back."""
        self._rests = {}

    def _target(self, number: int, thread: int) -> int:
        if self.threads.running is not None:
            return number  # also where code has led it elsewhere
        call = self.threads.owner(thread)
        return number if call is None else call.streams[number]


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # a child of the code has made the pipe non-blocking
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
