"""The benchmark's group `rate`: many short jobs, against the peers; and over concurrency."""

from __future__ import annotations

import functools
import statistics
import time
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from scripts.bench_client import Client
from scripts.bench_peers import SPOOLER, many_peers
from scripts.benching import Figure, blocks, ratios, running_engine

JOBS: Final = 400
CALLERS: Final = 8


def rate_figures(count: int) -> Iterator[Figure]:
    """Jobs a second, of 400 queued by 8 callers before the first reply is read."""
    with running_engine() as (home, _pid), many_peers() as (peers, missing):
        client = Client(home)
        plain, session, *others = blocks(
            count,
            1,
            lambda: _send_all(client, session=False),
            lambda: _send_all(client, session=True),
            *(functools.partial(peer.run, JOBS) for peer in peers),
        )
        names = [peer.name for peer in peers]
        yield Figure("bash true jobs, no session", _rates(plain), "jobs/s")
        yield Figure("  in sessions", _rates(session), "jobs/s")
        for name, values in zip(names, others, strict=True):
            yield Figure(f"  {name}", _rates(values), "jobs/s")
        if SPOOLER in names:
            spooler = others[names.index(SPOOLER)]
            yield Figure(f"  no session / {SPOOLER}", ratios(spooler, plain), "x", "≥ 1")
            yield Figure(f"  in sessions / {SPOOLER}", ratios(spooler, session), "x", "≥ 0.75")
        for name in missing:
            yield Figure(f"  {name}: not installed", [], "jobs/s")


def _rates(values: list[float]) -> list[float]:
    return [JOBS / each for each in values]


def _send_all(client: Client, *, session: bool) -> None:
    for i in range(JOBS):
        client.send("bash", **{"as": f"c{i % CALLERS}"}, command="true", session=session)
    for _ in range(JOBS):
        client.receive()


class Crowd(NamedTuple):
    """So many callers, each of which calls again when its reply is there."""

    callers: int
    rate: float  # calls a second
    median_ms: float  # of one call
    p99_ms: float


def crowds(sizes: list[int], calls: int) -> Iterator[Crowd]:
    """For each size, `calls` short calls in the callers' sessions, measured."""
    with running_engine() as (home, _pid):
        client = Client(home)
        for size in sizes:
            _one_crowd(client, size, 2 * size)  # their sessions begin
            begun = time.perf_counter()
            times = _one_crowd(client, size, calls)
            rate = calls / (time.perf_counter() - begun)
            p99 = statistics.quantiles(times, n=100)[-1]
            yield Crowd(size, rate, statistics.median(times), p99)


def _one_crowd(client: Client, size: int, calls: int) -> list[float]:
    """Milliseconds of each call."""
    free, sent = deque(range(size)), dict[int, tuple[int, float]]()
    times: list[float] = []
    left = calls
    while free or sent:
        while free and left:
            caller, left = free.popleft(), left - 1
            id_ = client.send("bash", **{"as": f"c{caller}"}, command="true")
            sent[id_] = (caller, time.perf_counter())
        if not sent:
            break
        caller, at = sent.pop(client.receive()["id"])
        times.append((time.perf_counter() - at) * 1e3)
        free.append(caller)
    return times
