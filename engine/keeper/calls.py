"""The calls of one session: the one that runs, and those that left somebody behind.

Each is looked after until nobody of it is left; until then its outputs are copied.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any, Final

from engine.keeper.call import Call
from engine.keeper.descent import Descent
from engine.keeper.interpreter import Interpreter
from engine.keeper.kept import clock
from engine.keeper.loop import KeeperLoop, is_due
from engine.keeper.news import News

MAX_CALLS: Final = 64  # looked after at a time
RETRY_LOOK: Final = 1.0  # seconds


class CallsKeeper(KeeperLoop):
    """A keeper's loop over the calls of one interpreter; how that is used, the kind says."""

    max_links = 2 * MAX_CALLS

    def __init__(self, control: socket.socket, sockets: str) -> None:
        self.interpreter: Interpreter | None = None
        self.running: Call | None = None
        self.latest = ""  # name of the call that runs or ran last
        self.calls: dict[str, Call] = {}  # by name
        self._descent = Descent()
        self._pidfds: dict[str, int] = {}  # of one process of each call that has ended
        self._look_at: float | None = None  # anew after those left behind
        super().__init__(control, sockets)

    def tasks(self) -> Iterator[tuple[Call, News]]:
        return ((call, call.news) for call in self.calls.values())

    def timers(self) -> list[float | None]:
        return [self._look_at, *super().timers()]

    def on_timers(self) -> None:
        if is_due(self._look_at):
            self._look_at = None
            self.reap()  # which looks after all that have ended
        super().on_timers()

    def call_of(self, message: dict[str, Any]) -> Call | None:
        # By name, which is the task's id: a home may be known by more than one path.
        wanted = os.path.basename(message["dir"])
        calls = self.calls.values()
        return next((c for c in calls if os.path.basename(c.request["dir"]) == wanted), None)

    def sort_processes(self) -> dict[str, list[int]]:
        """Call -> its living processes, see `Descent.sort`."""
        pipes = {name: call.pipes() for name, call in self.calls.items()}
        own = self.interpreter.pids if self.interpreter else set()
        return self._descent.sort(own, pipes, self.latest)

    def on_all_reaped(self, *, is_childless: bool) -> None:
        for call in list(self.calls.values()):
            if call.record is not None:
                if self.interpreter is None:
                    call.has_threads = False
                call.on_child_gone()
                self.look_after(call)

    def look_after(self, call: Call) -> None:
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
        if is_alone and call.has_threads:
            call.stop_killing()  # a thread cannot be ended
        elif is_alone:
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
        self.look_after(call)

    def _finish(self, call: Call) -> None:
        del self.calls[call.name]
        for output in call.outputs:
            self.unwatch(output.pipe)
        sizes = call.close()
        call.news.tell({"ev": "gone", **sizes})
