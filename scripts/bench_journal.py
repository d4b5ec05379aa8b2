"""The benchmark's group `journal`: floods of lines on their way into the journal.

How many lines a second are there for a reader, against a job that writes the same into a file;
what a call costs meanwhile; what the lines leave in memory and on disk. The jobs `cat` files that
were made before, so that no program's own speed hides the engine's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from scripts.bench_client import Client
from scripts.benching import (
    Figure,
    Sampler,
    memory,
    processor_secs,
    ratios,
    running_engine,
    seconds,
)

PLAIN: Final = "cc -O2 -Ibuild/include -c src/module/object.c -o build/object.o\n"
WARNING: Final = "src/object.c:12:5: warning: unused variable 'n' [-Wunused-variable]\n"
EACH: Final = 100  # so many lines have one warning
# A journal that is 8 MiB behind a job stores its warnings only: as many lines as stay below.
STORED: Final = 120_000
FLOOD: Final = 20  # times as many lines at once
STEADY_ROUNDS: Final = 50  # of a job that writes for some seconds: 24,000 lines, and a pause
STEADY_LINES: Final = 24_000
STEADY_PAUSE: Final = 0.1  # seconds
IDLE: Final = 3.0  # seconds in which nothing else happens
SHORT: Final = 1_000_000  # lines that hold a number each, in 6.6 MiB
LONG: Final = 10  # times as many in all
LINES_GOAL: Final = "200,000"
ANSWERS_GOAL: Final = "p99 10"
PATIENCE: Final = 600.0  # seconds for the lines of one job
# A call without the costs of a session and of what its reply might show.
BARE: Final[dict[str, Any]] = {"session": False, "max_output_bytes": 0, "logs": "none"}


def journal_figures(scale: int, *, is_long: bool) -> Iterator[Figure]:
    """All figures; takes 1.5 minutes, with `is_long` about 3 more."""
    with tempfile.TemporaryDirectory(prefix="engine-bench-") as folder:
        lines = Path(folder) / "lines"
        yield from stored(write_lines(lines, STORED), scale + 2)
        yield from flood(lines, scale)
        yield from steady(write_lines(lines, STEADY_LINES))
    if is_long:
        yield from ten_million("one job", f"seq {SHORT * LONG}", 1)
        yield from ten_million(f"{LONG} jobs", f"seq {SHORT}", LONG)


def write_lines(path: Path, count: int) -> Path:
    path.write_text((PLAIN * (EACH - 1) + WARNING) * (count // EACH))
    return path


def settled(client: Client, command: str) -> dict[str, Any]:
    """The reply about a job once its last line can be read."""
    reply = client.bash(command, **BARE)
    deadline = time.monotonic() + PATIENCE
    while reply["status"] == "running" or reply.get("logsBehind"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{reply['taskId']} is not in the journal")
        reply = client.call("wait", taskId=reply["taskId"], max_output_bytes=0, logs="none")
    if reply["status"] != "succeeded":
        raise RuntimeError(reply)
    return reply


def check_warnings(client: Client, reply: dict[str, Any], lines: int) -> None:
    row = client.call("read_task", taskId=reply["taskId"])
    if row["warningLines"] != lines // EACH:
        raise RuntimeError(f"{row['warningLines']} warnings of {lines // EACH} are in the journal")


def stored(lines: Path, count: int) -> Iterator[Figure]:
    """Of a job whose lines are all kept, in blocks with the same into a file."""
    with running_engine() as (home, pid):
        client = Client(home)
        with Sampler(home) as idle:
            client.bash(f"read -t {IDLE} <> <(:)", **BARE)
        ours, plain, busy = [], [], []
        calls: list[float] = []
        for block in range(count + 1):
            used = processor_secs(pid)
            with Sampler(home) as sampler:
                own = seconds(lambda: settled(client, f"cat {lines}"))
            used = processor_secs(pid) - used
            other = seconds(lambda: settled(client, f"cat {lines} > {home}/copy"))
            if block:  # the first does not count
                ours.append(own)
                busy.append(used * 1e6 / STORED)
                plain.append(other)
                calls += sampler.times()
        kept = client.call("engine_info")["journalLines"]
        if kept < STORED * (count + 1):
            raise RuntimeError(f"{kept} lines are in the journal")
    name = f"{STORED:,} lines of a job, until all can be read"
    yield Figure(name, [STORED / s for s in ours], "lines/s", LINES_GOAL)
    yield Figure("  the engine's processor time for each", busy, "us")
    yield Figure("  the same / into a file, time", ratios(ours, plain), "x")
    yield Figure("  engine_info meanwhile", calls, "ms", ANSWERS_GOAL)
    yield Figure("  engine_info in an idle engine", idle.times(), "ms")


def flood(lines: Path, count: int) -> Iterator[Figure]:
    """Of a job that is far ahead of the journal: its warnings are kept, the rest is counted."""
    runs = [one_flood(lines) for _ in range(count + 1)][1:]  # the first does not count
    owns, busy, jobs, plains, shares, calls = zip(*runs, strict=True)
    total = STORED * FLOOD
    name = f"{total:,} lines of a job at once, read to the end"
    yield Figure(name, [total / own for own in owns], "lines/s", LINES_GOAL)
    yield Figure("  the engine's processor time for each", list(busy), "us")
    yield Figure("  the same / into a file, time", ratios(owns, plains), "x")
    yield Figure("  the job itself / into a file, time", ratios(jobs, plains), "x")
    yield Figure("  of them stored (all warnings), the rest counted", list(shares), "%")
    meanwhile = [took for each in calls for took in each]
    yield Figure("  engine_info meanwhile", meanwhile, "ms", ANSWERS_GOAL)


def one_flood(lines: Path) -> tuple[float, float, float, float, float, list[float]]:
    """Seconds to the end of the journal; the engine's processor time for a line, us; seconds of
    the job, of one into a file; % stored; calls' ms.
    """
    command = "cat" + f" {lines}" * FLOOD
    total = STORED * FLOOD
    with running_engine() as (home, pid):
        client = Client(home)
        used = processor_secs(pid)
        with Sampler(home) as sampler:
            before = time.perf_counter()
            reply = settled(client, command)
            own = time.perf_counter() - before
        busy = (processor_secs(pid) - used) * 1e6 / total
        kept = client.call("engine_info")["journalLines"]
        check_warnings(client, reply, total)
        plain = settled(client, f"{command} > {home}/copy")
    job, copy = reply["durationMs"] / 1e3, plain["durationMs"] / 1e3
    return own, busy, job, copy, 100 * kept / total, sampler.times()


def steady(lines: Path) -> Iterator[Figure]:
    """Of a job that writes for seconds, faster than lines can be stored."""
    pause = f"read -t {STEADY_PAUSE} <> <(:)"
    command = f"for i in {{1..{STEADY_ROUNDS}}}; do cat {lines}; {pause}; done; true"
    total = STEADY_ROUNDS * STEADY_LINES
    with running_engine() as (home, pid):
        client = Client(home)
        with Sampler(home) as sampler:
            reply = settled(client, command)
            done = time.time()
        ended = datetime.fromisoformat(reply["endedAt"]).timestamp()
        kept = client.call("engine_info")["journalLines"]
        check_warnings(client, reply, total)
        resident = memory(pid, "Rss") / 2**20
    yield Figure("a job that goes on writing", [1e3 * total / reply["durationMs"]], "lines/s")
    yield Figure("  of its lines stored", [100 * kept / total], "%")
    yield Figure("  engine_info while it writes", sampler.times(end=ended), "ms")
    yield Figure("  engine_info from its end to the last line", sampler.times(ended, done), "ms")
    yield Figure("  the last line can be read after its end", [done - ended], "s")
    yield Figure("  the engine then, resident", [resident], "MiB")


def ten_million(what: str, command: str, jobs: int) -> Iterator[Figure]:
    """Of so many short lines: the engine's memory as they come, the journal's on disk."""
    with running_engine() as (home, pid):
        client = Client(home)
        client.bash("true")
        resident, own = [memory(pid, "Rss") / 2**20], [memory(pid) / 2**20]
        took = 0.0
        with Sampler(home) as sampler:
            for _ in range(jobs):
                took += seconds(lambda: settled(client, command))
                resident.append(memory(pid, "Rss") / 2**20)
                own.append(memory(pid) / 2**20)
        kept = client.call("engine_info")["journalLines"]
        disk = sum(path.stat().st_size for path in home.glob("index.db*"))
    yield Figure(f"{SHORT * LONG:,} short lines of {what}", [SHORT * LONG / took], "lines/s")
    yield Figure("  engine_info meanwhile", sampler.times(), "ms")
    for name, values in (("resident", resident), ("own memory", own)):
        yield Figure(f"  the engine, {name}: before", values[:1], "MiB")
        if jobs > 1:
            yield Figure(f"  the engine, {name}: after the first job", values[1:2], "MiB")
        yield Figure(f"  the engine, {name}: after all", values[-1:], "MiB")
    yield Figure("  lines in the journal after", [kept], "lines")
    yield Figure("  index.db", [disk / 2**20], "MiB")
