"""The benchmark's group `memory`: jobs that are silent, and what an engine holds resident."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.bench_client import Client
from scripts.bench_waits import SILENT
from scripts.benching import Figure, memory, processor_secs, running_engine

QUIET: Final = 20.0  # seconds in which nothing happens
MANY_TASKS: Final = 100_000
CALLERS: Final = 8
AT_ONCE: Final = 64  # calls that are out at a time


def memory_figures(jobs: int, *, is_long: bool) -> Iterator[Figure]:
    yield from _silent(jobs)
    if is_long:
        *_, (count, after) = after_tasks([0, MANY_TASKS])
        yield Figure(f"after {count:,} tasks, resident", [after], "MiB", "70")


def _silent(jobs: int) -> Iterator[Figure]:
    with running_engine("--slots", f"{jobs + 1}") as (home, pid):
        client = Client(home)
        client.bash("true")
        yield Figure("an idle engine, resident", [memory(pid, "Rss") / 2**20], "MiB", "40")
        before = memory(pid)
        for _ in range(jobs):
            client.bash(SILENT, session=False, timeout_secs=0)
        keepers = _keepers(home)
        if len(keepers) < jobs:
            raise RuntimeError(f"{len(keepers)} of {jobs} keepers are there")
        yield Figure(
            f"{jobs:,} silent jobs: in the engine, each", [_each(pid, before, jobs)], "KiB"
        )
        # What comes after a start is over then. Of a keeper alone a tick would be too coarse, but
        # what each of so many has begun of one adds up to what they used.
        time.sleep(1)
        busy = sum(map(processor_secs, (pid, *keepers)))
        time.sleep(QUIET)
        busy = sum(map(processor_secs, (pid, *keepers))) - busy
        yield Figure("  engine and keepers, of a core", [100 * busy / QUIET], "%", "2")
        own = [memory(keeper) / 2**20 for keeper in keepers]
        yield Figure("  a keeper's own memory", own, "MiB", "1.3")
        client.call("cancel", **{"as": "bench"}, caller="bench", grace_secs=1)


def _each(pid: int, before: int, jobs: int) -> float:
    return (memory(pid) - before) / jobs / 1024


def _keepers(home: Path) -> list[int]:
    """The processes that have claimed a task which has not ended."""
    claims = [task / "claim" for task in (home / "tasks").iterdir()]
    pids = {int(os.readlink(claim).split()[0]) for claim in claims if claim.is_symlink()}
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def after_tasks(counts: list[int]) -> Iterator[tuple[int, float]]:
    """After each of these numbers of tasks have been run: how many, and what is resident, MiB."""
    with running_engine() as (home, pid):
        client = Client(home)
        client.bash("true")
        done = 0
        for count in counts:
            sent = done
            while done < count:
                while sent < min(count, done + AT_ONCE):
                    caller = {"as": f"c{sent % CALLERS}"}
                    client.send("bash", **caller, command="true", session=False)
                    sent += 1
                client.receive_text()
                done += 1
            yield count, memory(pid, "Rss") / 2**20
