"""The project's benchmark: a real engine, a client that is not ours, ratios within one run.

`python scripts/bench.py [--quick] [--long] [--only GROUP] [--json FILE]`. Machines differ and are
noisy: each figure that can be is measured in blocks, engine and yardstick in turn, and given as the
median of the blocks with its quartiles; of times of single calls also the 99th percentile. Memory
is that of the processes themselves (/proc/PID/smaps_rollup).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench_journal import journal_figures
from scripts.benching import GIB, Client, Figure, blocks, memory, running_engine

SESSION = "".join(
    [f"export BENCH_{i}='value number {i}';" for i in range(60)]
    + [f'bench_{i}() {{ local x={i}; if [ -n "$1" ]; then echo $x; fi; }};' for i in range(20)]
)


P99_FROM = 100  # values; of fewer it would be the largest, or a guess


def raw_bash() -> None:
    subprocess.run(["bash", "-c", "true"], check=True)


def short_calls(count: int) -> Iterator[Figure]:
    with running_engine() as (home, _pid):
        client = Client(home)
        client.bash(f"{SESSION} cd /usr/lib")
        call, raw = blocks(count, 20, lambda: client.bash("true"), raw_bash)
        ratios = [a / b for a, b in zip(call, raw, strict=True)]
        yield "bash true in a session / bash -c true", ratios, "x"
        yield "  the call", [x * 1e3 for x in call], "ms"
        yield "  bash -c true", [x * 1e3 for x in raw], "ms"
        plain, raw = blocks(count, 20, lambda: client.bash("true", session=False), raw_bash)
        yield (
            "bash true, session: false / bash -c true",
            [a / b for a, b in zip(plain, raw, strict=True)],
            "x",
        )


def end_to_reply(count: int) -> Iterator[Figure]:
    """From the last command of a job to the reply of a wait that was pending."""
    with running_engine() as (home, _pid):
        client = Client(home)
        times = []
        for _ in range(count):
            task = client.bash('read -t 0.1 <> <(:); printf %s "$EPOCHREALTIME"', timeout_secs=0)
            reply = client.call("wait", taskId=task["taskId"])
            times.append((time.time() - float(reply["output"])) * 1e3)
        yield "end of a job → reply of a pending wait", times, "ms"


def flood(count: int) -> Iterator[Figure]:
    with running_engine() as (home, _pid):
        client = Client(home)
        target = home / "flood"
        text = f"head -c {GIB} /dev/zero"

        def through_engine() -> None:
            reply = client.bash(text, session=False, max_output_bytes=0)
            while reply["status"] == "running":
                reply = client.call("wait", taskId=reply["taskId"], max_output_bytes=0)
            assert reply["outputBytes"] == GIB
            client.call("forget", **{"as": "bench"}, taskId=reply["taskId"])

        def to_file() -> None:
            subprocess.run(["bash", "-c", f"{text} > {target}"], check=True)
            target.unlink()

        ours, plain = blocks(count, 1, through_engine, to_file)
        yield (
            "1 GiB by a job / to a file, time",
            [a / b for a, b in zip(ours, plain, strict=True)],
            "x",
        )


def throughput(count: int) -> Iterator[Figure]:
    """400 calls by 8 callers, all sent before the first reply is read."""
    with running_engine() as (home, _pid):
        client = Client(home)
        rates = []
        for _ in range(count):
            before = time.perf_counter()
            for i in range(400):
                client.send("bash", **{"as": f"c{i % 8}"}, command="true", session=False)
            for _ in range(400):
                client.receive()
            rates.append(400 / (time.perf_counter() - before))
        yield "bash true jobs a second, 8 callers, no session", rates, "/s"


def memory_figures(jobs: int, waits: int) -> Iterator[Figure]:
    with running_engine("--slots", "2000", "--set", "max_waits=20000") as (home, pid):
        client = Client(home)
        client.bash("true")
        yield "idle engine, resident", [memory(pid, "Rss") / 2**20], "MiB"
        before = memory(pid)
        tasks = [
            client.bash("sleep 600", session=False, timeout_secs=0)["taskId"] for _ in range(jobs)
        ]
        keepers = [
            int(os.readlink(home / "tasks" / task[1:] / "claim").split()[0]) for task in tasks
        ]
        yield "a running job: its keeper, own memory", [memory(k) / 2**20 for k in keepers], "MiB"
        yield "a running job: in the engine", [(memory(pid) - before) / jobs / 1024], "KiB"
        before = memory(pid)
        for _ in range(waits):
            client.send("wait", taskId=tasks[0], timeout_secs=20)
        info = client.call("engine_info")  # answered after all waits are in
        assert info["name"] == "engine"
        yield (
            f"{waits:,} pending waits: in the engine, each",
            [(memory(pid) - before) / waits / 1024],
            "KiB",
        )
        started = time.perf_counter()
        client.send("cancel", **{"as": "bench"}, taskId=tasks[0])
        for _ in range(waits + 1):
            client.receive()
        yield f"{waits:,} pending waits: all answered after", [time.perf_counter() - started], "s"
        client.call("cancel", **{"as": "bench"}, caller="bench", grace_secs=1)


def show(rows: list[Figure]) -> None:
    table = Table("figure", "median", "quartiles", "p99", "n", "unit", box=None)
    for name, values, unit in rows:
        low, middle, high = (
            statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
        )
        p99 = number(statistics.quantiles(values, n=100)[-1]) if len(values) >= P99_FROM else ""
        quartiles = f"{number(low)} … {number(high)}"
        table.add_row(name, number(middle), quartiles, p99, f"{len(values):,}", unit)
    Console(width=120).print(table)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer blocks: a first look")
    parser.add_argument(
        "--only", help="part of a group's name: calls, reply, flood, rate, memory, journal"
    )
    parser.add_argument("--long", action="store_true", help="journal: 10 million lines as well")
    parser.add_argument("--json", type=Path, help="write all values to this file as well")
    options = parser.parse_args()
    scale = 1 if options.quick else 4
    groups: dict[str, Callable[[], Iterator[Figure]]] = {
        "calls": lambda: short_calls(5 * scale),
        "reply": lambda: end_to_reply(10 * scale),
        "flood": lambda: flood(scale + 1),
        "rate": lambda: throughput(scale + 1),
        "memory": lambda: memory_figures(25 * scale, 1250 * scale),
        "journal": lambda: journal_figures(scale, is_long=options.long),
    }
    rows: list[Figure] = []
    for name, group in groups.items():
        if options.only is None or options.only in name:
            rows += list(group())
    show(rows)
    if options.json:
        options.json.write_text(json.dumps({name: values for name, values, _ in rows}))


if __name__ == "__main__":
    main()
