"""One run of `crash_points`: the scenario, strace at its target, the next engine, the account."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import Final, NamedTuple

from acceptance.running import Engine, RpcError
from leaks import living

from scripts.crash_account import Account, Judge
from scripts.crash_scenario import LANE, LOOK_SECS, EngineDied, Scenario
from scripts.crash_tracing import KILLED, Attached, calls_made, place_of_kill, read_trace, wrapping

RUN_SECS: Final = 60.0  # for one run; it takes three
FIND_SECS: Final = 5.0  # for a process that is on its way
OPTIONS: Final = ("--slots", "2", "--lane", f"{LANE}=1", "--set", "min_free_bytes=0")
# What goes wrong in a run is its outcome.
FAULTS: Final = (AssertionError, TimeoutError, subprocess.TimeoutExpired, EngineDied, RpcError)


class Point(NamedTuple):
    """Where to kill; `when` None: nowhere, to see what there is."""

    target: str
    call: str
    when: int | None


class Result(NamedTuple):
    """What came of one run. `place`: the call before which the kill came, if it did."""

    point: Point
    place: str | None
    counts: dict[str, int]  # of calls that one thread made at most, as far as it came
    account: Account
    folder: Path


class Run:
    """One scenario with one point, in a folder of its own."""

    def __init__(self, point: Point, folder: Path) -> None:
        self.point, self.folder = point, folder
        self.scenario = Scenario(folder)
        self.log = folder / "trace.log"
        self._lines: list[str] = []
        self._attached: Attached | None = None
        self.engine = Engine(folder / "home", *OPTIONS)
        self.until = time.monotonic() + RUN_SECS

    def result(self) -> Result:
        """Go through it all; whatever is not as it should be is in the account."""
        may_lose = self.point.target in ("keeper", "python")
        try:
            self._first_life()
            judge = Judge(self.scenario, may_lose=may_lose, may_kill=self.point.target == "shell")
            self._second_life(judge)
            self.engine.stop()
            account = judge.judge(self.engine)
        except FAULTS as exc:
            account = Account(wrong=[f"{type(exc).__name__}: {exc}"])
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.engine.kill()
            self._let_go()
            self.engine.end_leftovers()
            self.scenario.close()
        if time.monotonic() > self.until:
            account.wrong.append(f"took more than {RUN_SECS:g} s")
        place, counts = place_of_kill(self._lines), calls_made(self._lines)
        return Result(self.point, place, counts, account, self.folder)

    def _first_life(self) -> None:
        """From the start to the end of the engine, by its own kill or by ours."""
        is_engine = self.point.target == "engine"
        with contextlib.suppress(EngineDied):
            self._start(is_traced=is_engine)
            self._at("start")
            self.scenario.run(self.engine, self._at)
        if is_engine:
            self._end_trace()
        self._let_go()
        self.engine.kill()
        self.scenario.be_away(self.engine)

    def _second_life(self, judge: Judge) -> None:
        """The account; of `restart` first with the engine that is to die of it."""
        if self.point.target == "restart":
            with contextlib.suppress(EngineDied):
                self._start(is_traced=True)
                judge.ask(self.engine)
            self._end_trace()
        self._start(is_traced=False)
        judge.ask(self.engine)

    def _start(self, *, is_traced: bool) -> None:
        """Raises EngineDied where the point killed it before it was ready."""
        _target, calls, when = self.point
        self.engine.prefix = wrapping(self.log, calls, when) if is_traced else ()
        try:
            self.engine.start()
        except AssertionError:
            if is_traced and place_of_kill(read_trace(self.log)):
                raise EngineDied from None
            raise

    def _end_trace(self) -> None:
        """Kill the engine if the point has not, and read what strace has written."""
        process = self.engine.process
        is_untouched = process is not None and process.poll() is None
        self.engine.kill()
        self._lines = read_trace(self.log)
        if is_untouched:
            self._lines = [line for line in self._lines if KILLED not in line]

    def _at(self, name: str) -> None:
        """Attach strace where this target is."""
        target, calls, when = self.point
        if name == {"mother": "start", "keeper": "start", "python": "Y1"}.get(target):
            pid = self._find("mother.py")
            follow = target != "mother"
            self._attached = Attached(pid, calls, when, children=follow)
        elif target == "shell" and name == "A1":
            self._attached = Attached(self._find("--norc"), calls, when, children=False)

    def _find(self, word: str) -> int:
        """The pid of the home's oldest process with this word in its command line, once it is."""
        until = time.monotonic() + FIND_SECS
        while True:
            found = [pid for pid in self.engine.processes() if word in _words(pid)]
            if found:
                return min(found, key=lambda pid: (_started(pid), pid))
            if time.monotonic() > until:
                raise AssertionError(f"no process with {word}")
            time.sleep(LOOK_SECS)

    def _let_go(self) -> None:
        """What comes now is none of the point's doing."""
        if self._attached is not None:
            self._attached.end()
            self._lines, self._attached = self._attached.lines, None


def _started(pid: int) -> int:
    process = living(pid)
    return 0 if process is None else process.started


def _words(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [os.path.basename(word) for word in words]
