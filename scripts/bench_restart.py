"""The benchmark's group `restart`: from the start of the program to `ready`, and the first reply.

In homes with jobs that have ended and jobs that run; the engine before was killed with -9. The
running jobs and some of the ended ones are run by a real engine, the other ended ones made through
the engine's own classes, directories and rows alike.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

import trio

from engine.config import Home
from engine.jobs.directory import Base, Spec, make_directory
from engine.keeper import taskfiles
from engine.model import Kind
from engine.store.index import Index
from engine.tasks import ending
from engine.tasks.infolder import record_of
from scripts.bench_client import LIMIT, Client
from scripts.benching import Engine, Figure, new_home, start_engine

REAL: Final = 50  # ended jobs that a real engine ran; the others are made to look the same
CALLERS: Final = 5
OPTIONS: Final = ("--slots", "1000", "--set", "min_free_bytes=0")


class Restart(NamedTuple):
    """Seconds from the start of the program."""

    ready: float
    reply: float


def restart_figures(finished: int, running: int, runs: int) -> Iterator[Figure]:
    """With an empty home, a full one, and one whose index has to be made anew."""
    with _home() as home:
        yield from _figures("restart, an empty home", [restart(home) for _ in range(runs)])
        with filled(home, finished, running):
            what = f"restart, {finished:,} ended, {running:,} running"
            yield from _figures(what, [restart(home) for _ in range(runs)])
            for path in home.path.glob("index.db*"):
                path.unlink()
            yield from _figures("  the same, the index made anew", [restart(home)])


def _figures(name: str, restarts: list[Restart]) -> Iterator[Figure]:
    yield Figure(f"{name}: ready", [each.ready for each in restarts], "s")
    yield Figure("  first reply", [each.reply for each in restarts], "s")


def restart_times(counts: list[int], runs: int) -> Iterator[tuple[int, list[Restart]]]:
    """For each number of ended tasks, which grows, what a restart takes."""
    with _home() as home:
        there = 0
        for count in counts:
            _synthesise(home, count - there)
            there = count
            yield count, [restart(home) for _ in range(runs)]


def restart(home: Home) -> Restart:
    """Start the engine and have it answer, then kill it."""
    begun = time.monotonic()
    engine = start_engine(home.path, *OPTIONS)
    client = Client(home.path)
    client.call("engine_info")
    replied = time.monotonic() - begun
    _end(engine, client, signal.SIGKILL)
    return Restart(engine.ready_secs, replied)


def _end(engine: Engine, client: Client, number: signal.Signals) -> None:
    engine.process.send_signal(number)
    engine.process.wait(LIMIT)
    client.close()


@contextlib.contextmanager
def _home() -> Iterator[Home]:
    with new_home() as path:
        home = Home(path)
        home.path.mkdir(mode=0o700)
        yield home


@contextlib.contextmanager
def filled(home: Home, finished: int, running: int) -> Iterator[None]:
    """Have so many tasks in `home`, of an engine that was killed; what runs is ended at last."""
    real = min(REAL, finished)
    engine = start_engine(home.path, *OPTIONS)
    client = Client(home.path)
    for i in range(real):
        client.bash(f"echo {i}", caller=f"c{i % CALLERS}")
    for i in range(running):
        argv = ["sleep", "600"]
        client.call("execute", **{"as": f"c{i % CALLERS}"}, argv=argv, timeout_secs=0)
    _end(engine, client, signal.SIGKILL)
    _synthesise(home, finished - real)
    try:
        yield
    finally:
        engine = start_engine(home.path, *OPTIONS)
        client = Client(home.path)
        for i in range(CALLERS):
            client.call("cancel", **{"as": f"c{i}"}, caller=f"c{i}", grace_secs=0)
        _end(engine, client, signal.SIGTERM)


def _synthesise(home: Home, count: int) -> None:
    """Add `count` finished tasks, as an engine would have left them."""
    with closing(Index(home.index, lambda _done: None)) as index:
        trio.run(_put_all, index, home, count)


async def _put_all(index: Index, home: Home, count: int) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(index.serve)
        first = index.latest_order + 1
        for order in range(first, first + count):
            _put_one(index, home, order)
        await index.flush()
        nursery.cancel_scope.cancel()


def _put_one(index: Index, home: Home, order: int) -> None:
    directory = make_directory(home.tasks)
    now = int(time.time() * 1000)
    spec = Spec(
        id=directory.id,
        caller=f"c{order % 5}",
        kind=Kind.BASH,
        title=f"echo {order}",
        order=order,
        created_at=now,
        base=Base(cwd="/", env={"PATH": os.defpath, "HOME": "/", "LANG": "C.UTF-8"}),
        command=f"echo {order}",
        session=True,
    )
    directory.write_spec(spec)
    output = f"{order}\n".encode()
    (directory.path / "output").write_bytes(output)
    end = ending.unstarted("cancelled", now) | {
        "pid": 1_000_000,
        "cause": "exit",
        "exitCode": 0,
        "startedAt": now,
        "durationMs": 3,
        "cpuMs": 2,
        "cwd": "/",
        "sizes": [len(output)],
        "dropped": [[]],
    }
    with directory.opened() as dir_fd:
        taskfiles.take_claim(dir_fd, f"1000000 1 {secrets.token_hex(16)}")
        fd = taskfiles.reserve_exit(dir_fd)
        taskfiles.write_exit(fd, end)
        os.close(fd)
    index.put(ending.ended(record_of(spec), end))
