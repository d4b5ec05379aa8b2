"""What the benchmarks share: an engine of their own, a client that is not ours, the yardsticks."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from scripts.bench_client import LIMIT, Client

ENGINE: Final = Path(sys.executable).with_name("engine")
TICKS: Final = os.sysconf("SC_CLK_TCK")
SLOW_START: Final = 120.0  # seconds that an engine may take to its first word


class Figure(NamedTuple):
    """What was measured: its values, their unit, and what the project wants of it."""

    name: str
    values: Sequence[float]
    unit: str
    goal: str = ""


class Engine(NamedTuple):
    """One that answers. `ready_secs`: from the start of the program to its word that it does."""

    home: Path
    process: subprocess.Popen[bytes]
    ready_secs: float

    @property
    def pid(self) -> int:
        return self.process.pid


def start_engine(home: Path, *options: str) -> Engine:
    """An engine in `home` that is ready; the caller ends it. Raises RuntimeError."""
    begun = time.monotonic()
    ready, notify = os.pipe()
    process = subprocess.Popen(
        [str(ENGINE), "serve", "--home", str(home), "--notify-fd", str(notify), *options],
        pass_fds=[notify],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(notify)
    with open(ready, "rb") as pipe:
        if pipe.readline() != b"ready\n":
            process.wait(SLOW_START)
            raise RuntimeError("the engine did not start")
    return Engine(home, process, time.monotonic() - begun)


@contextlib.contextmanager
def new_home() -> Iterator[Path]:
    """The path of a home that is not there yet; removed afterwards.

    ext4 looks for a new file's place among all that was freed in its block group in the last
    minutes: up to a millisecond each where a home was removed lately. This one has a group of its
    own where the file system takes `chattr +T`.
    """
    with tempfile.TemporaryDirectory(prefix="engine-bench-") as folder:
        spread(folder)
        yield Path(folder) / "home"


def spread(folder: str) -> bool:
    """Have folders made in this one placed apart from each other; False where that cannot be."""
    try:
        done = subprocess.run(["chattr", "+T", folder], stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def placing() -> str:
    """Where the homes of this run are, in a sentence."""
    with tempfile.TemporaryDirectory(prefix="engine-bench-") as folder:
        how = "each in a block group of its own" if spread(folder) else "placed as any other folder"
    return f"Homes are below {tempfile.gettempdir()}, {how}."


@contextlib.contextmanager
def running_engine(*options: str) -> Iterator[tuple[Path, int]]:
    """The home and the pid of an engine that answers."""
    with new_home() as home:
        engine = start_engine(home, *options)
        try:
            yield engine.home, engine.pid
        finally:
            engine.process.send_signal(signal.SIGTERM)
            engine.process.wait(LIMIT)


def blocks(count: int, size: int, *runs: Callable[[], object]) -> list[list[float]]:
    """Seconds per call of each of `runs`, in turn, a value a block; the first does not count."""
    found: list[list[float]] = [[] for _ in runs]
    for block in range(count + 1):
        for values, run in zip(found, runs, strict=True):
            before = time.perf_counter()
            for _ in range(size):
                run()
            if block:
                values.append((time.perf_counter() - before) / size)
    return found


def ratios(ours: Sequence[float], plain: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(ours, plain, strict=True)]


def seconds(run: Callable[[], object]) -> float:
    before = time.perf_counter()
    run()
    return time.perf_counter() - before


def memory(pid: int, field: str = "Private_") -> int:
    """Bytes of process `pid` that are its own; with `Rss`, all that it has resident."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(field))


def processor_secs(*pids: int) -> float:
    """User and system time of processes so far, threads that have ended included; in ticks."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / TICKS


class Sampler:
    """Calls `engine_info` on a connection of its own every `PAUSE`, and keeps what each took.

    A call whose turn came while the one before it was out counts from its turn: a pause of the
    engine then shows in all the calls that it would have held up, not in one.
    """

    PAUSE: Final = 0.01  # seconds from turn to turn

    def __init__(self, home: Path) -> None:
        self._client = Client(home)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._taken: list[tuple[float, float]] = []  # when it was its turn, milliseconds
        self._trouble: Exception | None = None

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join(LIMIT)
        self._client.close()

    def _run(self) -> None:
        turn = free = time.time()
        try:
            while not self._stop.wait(max(0.0, turn - time.time())):
                # Where this thread was woken late, that is not the engine's doing.
                begun = turn if turn < free else time.time()
                self._client.call("engine_info")
                free = time.time()
                self._taken.append((begun, (free - begun) * 1e3))
                turn += self.PAUSE
        except Exception as exc:
            self._trouble = exc

    def times(self, start: float = 0.0, end: float = math.inf) -> list[float]:
        """Milliseconds of the calls whose turn came in this span of the wall clock.

        To be called when the sampler has ended; raises what ended it early.
        """
        if self._trouble is not None:
            raise self._trouble
        return [took for turn, took in self._taken if start <= turn < end]
