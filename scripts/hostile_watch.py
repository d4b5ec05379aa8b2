"""What an engine looks like while it is attacked: a well-behaved client's times, memory, state."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from acceptance.running import Client, Engine

SETTLE_SECS: Final = 20.0  # for the figures to be again as they were
PEAK_EVERY_SECS: Final = 0.1
MIB: Final = 1 << 20


class Probe:
    """Calls one thing on a connection of its own, a turn every `pause`; keeps what each took.

    A call whose turn came while the one before it was out counts from its turn: a pause of the
    engine shows in all the calls that it would have held up, not in one.
    """

    def __init__(self, client: Client, pause: float, method: str, **params: Any) -> None:
        self._client, self._pause, self._method, self._params = client, pause, method, params
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.taken: list[tuple[float, float]] = []  # when it was its turn, ms
        self.trouble: Exception | None = None

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.trouble is not None:
            raise self.trouble

    def _run(self) -> None:
        turn = free = time.monotonic()
        try:
            while not self._stop.wait(max(0.0, turn - time.monotonic())):
                # Where this thread was woken late, that is not the engine's doing.
                begun = turn if turn < free else time.monotonic()
                self._client.call(self._method, **self._params)
                free = time.monotonic()
                self.taken.append((begun, (free - begun) * 1e3))
                turn += self._pause
        except Exception as exc:
            self.trouble = exc

    def times(self, begin: float, end: float) -> list[float]:
        """Milliseconds of the calls whose turn came in that time."""
        return [took for turn, took in self.taken if begin <= turn < end]


@dataclass
class Figures:
    """What the engine holds at one moment."""

    rss: float  # MiB
    descriptors: int
    state: dict[str, Any]

    @classmethod
    def of(cls, engine: Engine, client: Client) -> Figures:
        info = client.call("engine_info")
        state = {name: info[name] for name in ("running", "queued", "callers", "degraded")}
        return cls(resident(engine.pid), descriptors(engine.pid), state)


def resident(pid: int) -> float:
    """MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / MIB


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


class Peak(threading.Thread):
    """The most memory and descriptors that were seen."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._over = pid, threading.Event()
        self.rss, self.descriptors = 0.0, 0

    def run(self) -> None:
        while not self._over.wait(PEAK_EVERY_SECS):
            self.rss = max(self.rss, resident(self._pid))
            self.descriptors = max(self.descriptors, descriptors(self._pid))

    def stop(self) -> None:
        self._over.set()
        self.join()


@dataclass
class Result:
    """Of one load: the times of others, quiet and meanwhile, and what was held."""

    name: str
    quiet: dict[str, list[float]] = field(default_factory=dict)
    loud: dict[str, list[float]] = field(default_factory=dict)
    figures: list[Figures] = field(default_factory=list)  # before, and after each round
    peak_rss: float = 0.0
    peak_descriptors: int = 0
    facts: list[dict[str, Any]] = field(default_factory=list)
    dropped: int = 0

    def p99(self, what: str) -> float:
        return percentile(self.loud[what], 99)


def percentile(values: list[float], percent: int) -> float:
    """Of nothing, or of one value: endless, for then nobody was answered."""
    if len(values) < 2:
        return math.inf
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def measure(
    engine: Engine,
    name: str,
    attack: Callable[[], subprocess.Popen[str]],
    finish: Callable[[subprocess.Popen[str]], dict[str, Any]],
    *,
    rounds: int,
    quiet_secs: float,
) -> Result:
    """Quiet and attack in turn, `rounds` times; every attack ends by itself."""
    result = Result(name, {"info": [], "bash": []}, {"info": [], "bash": []})
    with engine.connect() as watch, engine.connect() as asker, engine.connect() as runner:
        caller = {"as": "well-behaved"}
        runner.call("bash", caller, command="true")
        result.figures.append(Figures.of(engine, watch))
        info = Probe(asker, 0.01, "engine_info")
        bash = Probe(runner, 0.04, "bash", as_="well-behaved", command="true")
        peak = Peak(engine.pid)
        peak.start()
        with info, bash:
            for _ in range(rounds):
                begin = time.monotonic()
                time.sleep(quiet_secs)
                middle = time.monotonic()
                process = attack()
                result.facts.append(finish(process))
                end = time.monotonic()
                for probe, what in ((info, "info"), (bash, "bash")):
                    result.quiet[what] += probe.times(begin, middle)
                    result.loud[what] += probe.times(middle, end)
                result.figures.append(settled(engine, watch, result.figures[0]))
        peak.stop()
    result.peak_rss, result.peak_descriptors = peak.rss, peak.descriptors
    return result


def settled(engine: Engine, watch: Client, before: Figures) -> Figures:
    """The figures once descriptors and state are as before, or after `SETTLE_SECS`."""
    until = time.monotonic() + SETTLE_SECS
    while True:
        now = Figures.of(engine, watch)
        slack = 12  # of the probes' own calls, and keepers that wait for the next
        is_back = now.descriptors <= before.descriptors + slack
        if (is_back and now.state["queued"] == 0) or time.monotonic() > until:
            return now
        time.sleep(0.2)
