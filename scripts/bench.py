"""The project's benchmark: a real engine, a client that is not ours, ratios within one run.

    bench.py [--quick] [--long] [--only GROUP[,GROUP]] [--swe-rex PYTHON] [--json FILE]

Machines differ and are noisy: each figure that can be is measured in blocks, engine and yardstick
in turn, and given as the median of the blocks with its quartiles; of times of single calls also
the 99th percentile. Memory is that of the processes themselves (/proc/PID/smaps_rollup). Peers are
taken along where they are installed: task-spooler, nq, GNU parallel, and swe-rex in the
environment of the Python that is named.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench_calls import call_figures
from scripts.bench_journal import journal_figures
from scripts.bench_memory import memory_figures
from scripts.bench_output import output_figures
from scripts.bench_rate import rate_figures
from scripts.bench_restart import restart_figures
from scripts.bench_start import start_figures
from scripts.bench_waits import wait_figures
from scripts.benching import Figure, placing

P99_FROM: Final = 100  # values; of fewer it would be the largest, or a guess


def groups(options: argparse.Namespace) -> dict[str, Callable[[], Iterator[Figure]]]:
    """Each group, by name; `--quick` is a first look in less than three minutes."""
    quick: bool = options.quick
    blocks = 5 if quick else 20
    return {
        "calls": lambda: call_figures(blocks, options.swe_rex),
        "rate": lambda: rate_figures(2 if quick else 8),
        "waits": lambda: wait_figures(10 if quick else 40, 10_000),
        "memory": lambda: memory_figures(200 if quick else 1_000, is_long=options.long),
        "output": lambda: output_figures(1 if quick else 5),
        "journal": lambda: journal_figures(1 if quick else 4, is_long=options.long),
        "start": lambda: start_figures(blocks),
        "restart": lambda: restart_figures(500 if quick else 10_000, 20 if quick else 100, 3),
    }


def quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def show(rows: list[Figure]) -> None:
    table = Table("figure", "median", "quartiles", "p99", "n", "unit", "goal", box=None)
    for name, values, unit, goal in rows:
        if not values:
            table.add_row(name)
            continue
        low, middle, high = quartiles(list(values))
        p99 = number(statistics.quantiles(values, n=100)[-1]) if len(values) >= P99_FROM else ""
        spread = f"{number(low)} … {number(high)}"
        table.add_row(name, number(middle), spread, p99, f"{len(values):,}", unit, goal)
    Console(width=130).print(table)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.2f}"


def as_json(rows: list[Figure]) -> dict[str, Any]:
    """The machine, and of each figure all values."""
    machine = {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "homes": placing(),
    }
    figures = [
        {"name": f.name.strip(), "unit": f.unit, "goal": f.goal, "values": list(f.values)}
        for f in rows
    ]
    return {"machine": machine, "figures": figures}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer blocks: a first look")
    parser.add_argument("--only", metavar="GROUP[,GROUP]", help="these groups")
    parser.add_argument("--long", action="store_true", help="100,000 tasks, 10 million lines too")
    parser.add_argument("--swe-rex", metavar="PYTHON", help="one that has the library swe-rex")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values there as well")
    options = parser.parse_args(arguments)
    names = list(groups(options))
    options.groups = options.only.split(",") if options.only else names
    if wrong := set(options.groups) - set(names):
        parser.error(f"--only {', '.join(sorted(wrong))}: groups are {', '.join(names)}")
    return options


def main() -> None:
    options = parse()
    rows: list[Figure] = []
    for name, group in groups(options).items():
        if name in options.groups:
            rows += list(group())
    show(rows)
    print(placing())
    if options.json:
        options.json.write_text(json.dumps(as_json(rows), indent=1) + "\n")


if __name__ == "__main__":
    main()
