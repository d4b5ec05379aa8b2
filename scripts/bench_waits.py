"""The benchmark's group `waits`: from the end of a job to the reply, and thousands that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from scripts.bench_client import Client
from scripts.benching import Figure, memory, running_engine

# The last thing that the job does is to say when it does so.
LAST_WORD: Final = 'read -t 0.1 <> <(:); printf %s "$EPOCHREALTIME"'
# Forgets nothing, has no output, ends when it is told to.
SILENT: Final = "exec sleep 600"


def wait_figures(count: int, waits: int) -> Iterator[Figure]:
    yield _end_to_reply(count)
    runs = [pending_waits(waits) for _ in range(max(1, count // 10))]
    name = f"{waits:,} pending waits"
    yield Figure(f"{name}: in the engine, each", [each for each, _ in runs], "KiB", "4")
    yield Figure(f"{name}: all answered after", [took for _, took in runs], "s", "0.5")


def _end_to_reply(count: int) -> Figure:
    """From the last command of a job to the reply of a wait that was pending."""
    with running_engine() as (home, _pid):
        client = Client(home)
        times = []
        for _ in range(count):
            task = client.bash(LAST_WORD, timeout_secs=0)
            reply = client.call("wait", taskId=task["taskId"])
            times.append((time.time() - float(reply["output"])) * 1e3)
    return Figure("end of a job → reply of a pending wait", times, "ms", "2.5")


def pending_waits(count: int) -> tuple[float, float]:
    """KiB of the engine's own memory for each of so many waits; seconds until all are answered."""
    with running_engine("--set", f"max_waits={count + 10}") as (home, pid):
        client = Client(home)
        task = client.bash(SILENT, session=False, timeout_secs=0)["taskId"]
        before = memory(pid)
        for _ in range(count):
            client.send("wait", taskId=task, timeout_secs=20)
        client.call("engine_info")  # answered when all waits are in
        each = (memory(pid) - before) / count / 1024
        begun = time.perf_counter()
        client.send("cancel", **{"as": "bench"}, taskId=task)
        for _ in range(count + 1):
            client.receive_text()
        return each, time.perf_counter() - begun
