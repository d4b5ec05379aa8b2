"""Kill a part of the engine before every single system call that matters, and account for the jobs.

    crash_points.py [--target NAME]... [--calls LIST] [--most N] [--workers N]

For each n = 1, 2, ... a real engine, in a home of its own, goes through one scenario with
`strace --inject=CALL:signal=KILL:when=n` at the target, until it comes through untouched. Then
a new engine has that home, and every call is held against what its job did. Targets:

    engine    the engine, from its first moment
    restart   the engine that comes after a kill, and finds jobs in every state
    mother    the fork server
    keeper    the keepers of jobs; strace lets go after the first that dies
    python    the keeper of a Python session
    shell     a shell that was started ahead of its call

Exit code 1 where an outcome is wrong; the home is kept then.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from rich.console import Console
from rich.table import Table

from scripts.crash_run import Point, Result, Run

NICE: Final = 5

_FILES: Final = "write,pwrite64,rename,mkdir,rmdir,unlink,link,linkat,symlink,symlinkat,ftruncate"
_DISK: Final = "fsync,fdatasync"
_BIRTHS: Final = "clone,clone3,vfork"
_LINKS: Final = "sendmsg,sendto"
CALLS: Final = {
    "engine": f"{_FILES},{_DISK},{_BIRTHS},{_LINKS}",
    "restart": f"{_FILES},{_DISK},{_BIRTHS},{_LINKS}",
    "mother": "recvmsg,clone,close",
    "keeper": f"{_FILES},openat,vfork,clone3,wait4,sendto,recvmsg,splice,dup2,execve",
    "python": f"{_FILES},openat,vfork,clone3,wait4,sendto,sendmsg,recvmsg,splice,execve",
    "shell": "read,openat,write,dup2,clone,rt_sigprocmask,exit_group",
}


class Tally:
    """What was found at one system call of one target."""

    def __init__(self, target: str, call: str) -> None:
        self.target, self.call = target, call
        self.tried = self.killed = self.wrong = 0
        self.calls: Counter[str] = Counter()

    def add(self, result: Result) -> None:
        account = result.account
        self.tried += 1
        self.killed += result.place is not None
        self.wrong += bool(account.wrong)
        for sort in ("once", "unbegun", "cut_short"):
            self.calls[sort] += len(getattr(account, sort))

    def cells(self) -> list[str]:
        calls = [str(self.calls[sort]) for sort in ("once", "unbegun", "cut_short")]
        return [self.target, self.call, str(self.tried), str(self.killed), *calls, str(self.wrong)]


class Campaign:
    """All points of one target, a few at a time."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor, workers: int, most: int) -> None:
        self._folder, self._pool, self._workers, self._most = folder, pool, workers, most
        self._numbers = itertools.count(1)
        self.tallies: list[Tally] = []

    def attack(self, target: str, calls: list[str]) -> None:
        """Count what the scenario makes of each call, then kill before each of them."""
        counted = self._run(Point(target, ",".join(calls), None))
        _tell(counted)
        counts = counted.counts
        print(f"{target}: {', '.join(f'{name} {n}' for name, n in sorted(counts.items()))}")
        for call in calls:
            if counts.get(call):
                self.tallies.append(self._attack_call(target, call, counts[call]))

    def _attack_call(self, target: str, call: str, count: int) -> Tally:
        tally, running = Tally(target, call), set[Future[Result]]()
        began = time.monotonic()
        numbers = self._numbers_for(count)
        is_through = False
        while True:
            while not is_through and len(running) < self._workers:
                when = next(numbers, None)
                if when is None:
                    is_through = True
                else:
                    running.add(self._pool.submit(self._run, Point(target, call, when)))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                result = future.result()
                tally.add(result)
                _tell(result)
                # Whoever comes first may make a few less this time: so only past what was counted.
                is_through |= result.place is None and (result.point.when or 0) > count
        print(f"  {'  '.join(tally.cells())}  {time.monotonic() - began:.0f} s", flush=True)
        return tally

    def _numbers_for(self, count: int) -> Iterator[int]:
        """1, 2, ...; of more than `most` as many, evenly spread."""
        if count <= self._most:
            return itertools.count(1)
        return iter(sorted({1 + i * (count - 1) // (self._most - 1) for i in range(self._most)}))

    def _run(self, point: Point) -> Result:
        folder = self._folder / f"{point.target}-{next(self._numbers)}"
        folder.mkdir()
        result = Run(point, folder).result()
        if not result.account.wrong:
            shutil.rmtree(folder)
        return result


def _tell(result: Result) -> None:
    """Say at once what is wrong."""
    if result.account.wrong:
        target, call, when = result.point
        print(f"WRONG {target} {call[:20]} {when}, {result.folder}: killed before {result.place}")
        for text in result.account.wrong:
            print(f"    {text}")
        sys.stdout.flush()


def _table(tallies: list[Tally]) -> Table:
    screen = Table(title="crash points")
    for name in ("target", "before"):
        screen.add_column(name, no_wrap=True)
    for name in (
        "n tried",
        "killed",
        "calls begun once",
        "not begun, says so",
        "cut short, says so",
    ):
        screen.add_column(name, justify="right")
    screen.add_column("wrong", justify="right")
    for tally in tallies:
        screen.add_row(*tally.cells())
    return screen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", action="append", choices=sorted(CALLS))
    parser.add_argument("--calls", help="system calls, with commas; left out: those that matter")
    parser.add_argument("--most", type=int, default=1000, help="points of one call")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if shutil.which("strace") is None:
        parser.error("strace is not installed")
    os.nice(NICE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what has begun is seen to its end
    folder = Path(tempfile.mkdtemp(prefix="engine-crash-"))
    with ThreadPoolExecutor(options.workers) as pool:
        campaign = Campaign(folder, pool, options.workers, max(2, options.most))
        try:
            for target in options.target or CALLS:
                campaign.attack(target, (options.calls or CALLS[target]).split(","))
            is_whole = True
        except KeyboardInterrupt:
            is_whole = False
            print("stopped before its end")
    Console().print(_table(campaign.tallies))
    if list(folder.iterdir()):
        print(f"kept: {folder}")
        return 1
    folder.rmdir()
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
