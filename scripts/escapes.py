"""Jobs that try to escape, cancelled at random moments; then who is left is counted.

`python scripts/escapes.py [--count N] [--home DIR]`. Without `--home` the jobs run below keepers
of a mother of this script's own; with it, through the websocket of the engine that serves DIR.
Survivors are looked for in all of /proc, by a variable that each job is started with and by a
number that stands in the arguments of each of its processes (some drop their environment).

Exit status 1 where anybody is left, or a cancel took longer than it may.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from rich.console import Console
from rich.table import Table

from engine.keeper import mother

VARIABLE: Final = "ESCAPE_RUN"
PARALLEL: Final = 8
LATEST_CANCEL_SECS: Final = 0.4  # the random moment is before this, from the start on
OVER_GRACE_SECS: Final = 5.0  # what a cancel may take beyond its grace
LINK_SECS: Final = 30.0  # for any word of a keeper or an engine

# `N` is the number by which each process is known; see `text_of`.
ESCAPES: Final = {
    "setsid": "setsid sleep N & sleep N",
    "double fork": "( (sleep N &) & ); sleep N",
    "env -i": "env -i sleep N & sleep N",
    "set -m": "set -m; sleep N & sleep N & wait",
    "trap '' TERM": "trap '' TERM; sleep N & while :; do sleep 0.05 N; done",
    "nohup": "nohup sleep N >/dev/null 2>&1 & sleep N",
    "stopped": "sleep N & kill -STOP $!; kill -STOP $$",
    "forks on": "trap '' TERM; while :; do (setsid sleep N &); sleep 0.005; done",
    "all": (
        "set -m; trap '' TERM HUP; nohup env -i setsid bash -c"
        " 'trap \"\" TERM; ( (setsid nohup sleep N &) & ); while :; do sleep 0.05; done; : N'"
        " >/dev/null 2>&1 & sleep N"
    ),
    "ends at once": "( (setsid env -i sleep N &) & ); exit 0",
}


class Cancelled(NamedTuple):
    """One job: how it tried, and how long its cancel took (seconds)."""

    kind: str
    seconds: float


class Target(Protocol):
    """Where jobs run. Each worker has one of its own."""

    def start(self, text: str, env: dict[str, str]) -> Any:
        """Start bash on `text`; a handle once it runs."""

    def cancel(self, handle: Any, grace: float) -> None:
        """Cancel; comes back when the answer says that nobody is left."""

    def close(self) -> None:
        """Let go."""


class Keepers:
    """A mother of this script's own, and what its keepers need."""

    def __init__(self, home: Path) -> None:
        self.home, self._ids, self._lock = home, itertools.count(), threading.Lock()
        (home / "keepers").mkdir()
        (home / "tasks").mkdir()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            numbers = (str(theirs.fileno()), str(home / "keepers"), "1024")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", mother.__file__, *numbers],
                pass_fds=[theirs.fileno()],
                env={},
            )

    def target(self) -> Target:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs, self._lock:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))
            self._requests.sendmsg([b"k"], [rights])
        return KeeperTarget(ours, self)

    def directory(self) -> Path:
        path = self.home / "tasks" / f"e{next(self._ids):05}"
        path.mkdir()
        return path

    def close(self) -> None:
        self._requests.close()
        self._process.wait(LINK_SECS)


class KeeperTarget:
    """One keeper, used for one job after another."""

    def __init__(self, link: socket.socket, keepers: Keepers) -> None:
        link.settimeout(LINK_SECS)
        self._link, self._file, self._keepers = link, link.makefile("rb"), keepers

    def _say(self, message: dict[str, Any]) -> None:
        self._link.sendall(json.dumps(message).encode() + b"\n")

    def _await(self, word: str) -> None:
        while (message := json.loads(self._file.readline()))["ev"] != word:
            if message["ev"] in ("refused", "taken"):
                raise RuntimeError(message)

    def start(self, text: str, env: dict[str, str]) -> Path:
        directory = self._keepers.directory()
        self._say(
            {
                "op": "launch",
                "dir": str(directory),
                "argv": ["bash", "-c", text],
                "path": None,
                "env": {"PATH": os.environ["PATH"], **env},
                "cwd": "/",
                "cwd_or_parent": False,
                "umask": 0o022,
                "streams": "merged",
                "deadline": None,
                "cap": 1 << 20,
                "prologue": False,
                "call": "",
                "stdin": "null",
                "session": False,
                "fds": 0,
            }
        )
        self._await("started")
        return directory

    def cancel(self, handle: Path, grace: float) -> None:
        self._say({"op": "cancel", "grace": grace, "dir": str(handle)})
        self._await("gone")

    def close(self) -> None:
        self._file.close()
        self._link.close()


class EngineTarget:
    """A running engine, through its websocket."""

    def __init__(self, home: Path, caller: str) -> None:
        from websockets.sync.client import unix_connect

        facts = json.loads((home / "engine.json").read_text())
        self._caller, self._ids = caller, itertools.count(1)
        self._opened = contextlib.ExitStack()
        self._websocket = self._opened.enter_context(
            unix_connect(
                facts["socket"],
                "ws://localhost/rpc",
                additional_headers={"Authorization": f"Bearer {facts['tokens']['agent']}"},
                compression=None,
            )
        )

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        params = {"as": self._caller, **params}
        frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._websocket.send(json.dumps(frame))
        reply: dict[str, Any] = json.loads(self._websocket.recv(timeout=LINK_SECS))
        if "error" in reply:
            raise RuntimeError(reply["error"])
        result: dict[str, Any] = reply["result"]
        return result

    def start(self, text: str, env: dict[str, str]) -> str:
        reply = self._call("bash", command=text, env=env, session=False, timeout_secs=0)
        return str(reply.get("taskId") or reply["kickoffId"])

    def cancel(self, handle: str, grace: float) -> None:
        field = "taskId" if handle.startswith("t") else "kickoffId"
        reply = self._call("cancel", grace_secs=grace, **{field: handle})
        if reply["survivors"]:
            raise RuntimeError(reply)

    def close(self) -> None:
        self._opened.close()


def text_of(kind: str, number: str) -> str:
    """The script of an escape, its processes known by `number`, which `sleep` takes for seconds."""
    return ESCAPES[kind].replace("sleep 0.05 N", "sleep 0.05").replace("N", number) + f" # {number}"


def left(run: str) -> Iterator[tuple[int, str]]:
    """Living processes of this run, with their command lines."""
    variable = f"{VARIABLE}={run}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes()
            environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if run.encode() in command or variable in environment:
            yield int(entry), command.replace(b"\0", b" ").decode("utf-8", "replace")


def work(target: Target, run: str, jobs: Iterator[int], grace: float) -> list[Cancelled]:
    """Start and cancel jobs until there are no more."""
    kinds, done = list(ESCAPES), []
    for job in jobs:
        kind = kinds[job % len(kinds)]
        handle = target.start(text_of(kind, f"{run}.{job}"), {VARIABLE: run})
        time.sleep(random.uniform(0, LATEST_CANCEL_SECS))  # the moment is to be random
        before = time.monotonic()
        target.cancel(handle, grace)
        done.append(Cancelled(kind, time.monotonic() - before))
    target.close()
    return done


def run_all(make: Callable[[int], Target], count: int, run: str, grace: float) -> list[Cancelled]:
    lock, numbers = threading.Lock(), iter(range(count))

    def jobs() -> Iterator[int]:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            yield number

    with ThreadPoolExecutor(PARALLEL) as pool:
        workers = [pool.submit(work, make(i), run, jobs(), grace) for i in range(PARALLEL)]
        return [cancelled for worker in workers for cancelled in worker.result()]


def report(done: list[Cancelled], survivors: list[tuple[int, str]], run: str) -> None:
    """Print a row for each kind, and one for all of them."""
    times: dict[str, list[float]] = defaultdict(list)
    for kind, seconds in done:
        times[kind].append(seconds)
        times["total"].append(seconds)
    alive = dict.fromkeys(times, 0)
    kinds = list(ESCAPES)
    for _pid, command in survivors:
        alive["total"] += 1
        _, _, job = command.partition(f"{run}.")
        digits = "".join(itertools.takewhile(str.isdigit, job))
        if digits:
            alive[kinds[int(digits) % len(kinds)]] += 1
    table = Table("escape", "jobs", "survivors", "p50 ms", "p99 ms", "max ms")
    for kind in sorted(times, key=[*ESCAPES, "total"].index):
        found = sorted(times[kind])
        p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
        figures = [statistics.median(found), p99, found[-1]]
        cells = [f"{1000 * figure:.0f}" for figure in figures]
        table.add_row(kind, str(len(found)), str(alive[kind]), *cells)
    Console().print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="jobs (default 2000)")
    parser.add_argument("--grace", type=float, default=0.5, help="seconds from TERM to KILL")
    parser.add_argument("--home", type=Path, help="of a running engine; without: keepers alone")
    options = parser.parse_args()
    # Nine digits that no other process has in its arguments.
    run = str(random.randrange(100_000_000, 1_000_000_000))
    began = time.monotonic()
    if options.home:
        home = options.home
        done = run_all(
            lambda i: EngineTarget(home, f"escape-{i}"), options.count, run, options.grace
        )
    else:
        with tempfile.TemporaryDirectory() as folder:
            keepers = Keepers(Path(folder))
            done = run_all(lambda _i: keepers.target(), options.count, run, options.grace)
            keepers.close()
    survivors = list(left(run))
    report(done, survivors, run)
    print(f"{len(done)} jobs in {time.monotonic() - began:.1f} s")
    for pid, command in survivors:
        print(f"left: {pid} {command[:200]}")
        os.kill(pid, signal.SIGKILL)
    late = [c for c in done if c.seconds > options.grace + OVER_GRACE_SECS]
    for kind, seconds in late:
        print(f"late: {kind}, {seconds:.2f} s")
    return 1 if survivors or late or len(done) != options.count else 0


if __name__ == "__main__":
    sys.exit(main())
