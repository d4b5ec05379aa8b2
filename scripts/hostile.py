"""Hostile clients and loads against an engine of its own, and what others notice of it.

    hostile.py [--secs N] [--rounds N] [--only PART] [--home DIR]

Each load runs in a process of its own, in turn with quiet, while a well-behaved client asks for
`engine_info` every 10 ms and runs `true` every 40 ms. Prints the times of that client, and the
engine's memory and descriptors before, at the most and after each round. Exit code 1 where it was
not answered within 100 ms at the 99th percentile, or where the engine does not come back to what
it held.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from acceptance.running import Engine
from rich.console import Console
from rich.table import Table

from scripts.hostile_attacks import ATTACKS
from scripts.hostile_queue import queue_rows
from scripts.hostile_watch import Result, measure, percentile
from scripts.hostile_wire import nice

GOAL_MS: Final = 100.0
LARGE: Final = "head -c 50000000 /dev/zero | tr '\\0' y | fold -w 4000"  # an output to page through
QUIET_SECS: Final = 5.0
LONG: Final = {"follows, never reads": 60.0, "reads a byte a second": 45.0}  # seconds, at least
OVER_SECS: Final = 240.0  # that an attack may take beyond its time
GROWTH_MIB: Final = 24.0  # from the first round to the last


def attack(engine: Engine, name: str, task: str, secs: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, __file__, "--attack", name, "--home", str(engine.home)),
            *("--secs", str(secs), "--task", task),
        ],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], secs: float) -> dict[str, Any]:
    try:
        said, _ = process.communicate(timeout=secs + OVER_SECS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"fault": "did not end"}
    if process.returncode:
        return {"fault": f"exit code {process.returncode}"}
    found: dict[str, Any] = json.loads(said)
    return found


def run_load(home: Path, name: str, secs: float, rounds: int) -> Result:
    """One load against a fresh engine."""
    with Engine(home, "--slots", "100", "--set", "min_free_bytes=0",
                "--set", "output_cap_bytes=67108864") as engine:  # fmt: skip
        with engine.connect() as client:
            caller = client.caller()
            if name == "follows, never reads":
                task = caller.start("yes", deadline_secs=(secs + 60) * rounds)["taskId"]
            else:
                task = caller.bash("head -c 50000000 /dev/zero | tr '\\0' y | fold -w 4000")[
                    "taskId"
                ]
        result = measure(
            engine,
            name,
            lambda: attack(engine, name, task, secs),
            lambda process: finish(process, secs),
            rounds=rounds,
            quiet_secs=QUIET_SECS,
        )
        result.dropped = engine.log_text().count("connection dropped")
    return result


def complaints(result: Result) -> list[str]:
    found = [
        f"{what}: p99 {result.p99(what):.0f} ms"
        for what in result.loud
        if result.p99(what) > GOAL_MS
    ]
    first, last = result.figures[1], result.figures[-1]
    if last.rss - first.rss > GROWTH_MIB:
        found.append(f"memory grew by {last.rss - first.rss:.0f} MiB")
    if last.descriptors > result.figures[0].descriptors + 12:
        found.append(f"{last.descriptors} descriptors")
    return found + [str(facts["fault"]) for facts in result.facts if "fault" in facts]


def show(results: list[Result]) -> None:
    table = Table(
        "load", "call", "quiet p50", "p99", "max", "meanwhile p50", "p99", "max", "n",
        "MiB before/peak/after", "descriptors", "logged drops", box=None,
    )  # fmt: skip
    for result in results:
        for what in ("info", "bash"):
            held = len(table.rows) % 2 == 0
            after = " ".join(f"{figures.rss:.0f}" for figures in result.figures[1:])
            count = "/".join(
                str(n)
                for n in (
                    result.figures[0].descriptors,
                    result.peak_descriptors,
                    result.figures[-1].descriptors,
                )
            )
            table.add_row(
                result.name if held else "",
                what,
                *times(result.quiet[what]),
                *times(result.loud[what]),
                f"{len(result.loud[what]):,}",
                f"{result.figures[0].rss:.0f}/{result.peak_rss:.0f}/{after}" if held else "",
                count if held else "",
                str(result.dropped) if held else "",
            )
    Console(width=160).print(table)
    for result in results:
        print(f"{result.name}: {json.dumps(result.facts)}", *complaints(result), sep="\n  ")


def times(values: list[float]) -> list[str]:
    figures = (percentile(values, 50), percentile(values, 99), max(values, default=math.inf))
    return [f"{figure:.1f}" for figure in figures]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--secs", type=float, default=15.0, help="of each attack, at least")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", help="part of a load's name")
    parser.add_argument("--home", type=Path, help="a folder for the engines' homes")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--task", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        nice()
        until = time.monotonic() + options.secs
        print(json.dumps(ATTACKS[options.attack](options.home, until, options.task)))
        return 0
    with tempfile.TemporaryDirectory(prefix="engine-hostile-", dir=options.home) as folder:
        results = []
        for number, name in enumerate(ATTACKS):
            if options.only is None or options.only in name:
                secs = max(options.secs, LONG.get(name, 0.0) if options.secs >= 15 else 0.0)
                results.append(run_load(Path(folder) / str(number), name, secs, options.rounds))
        show(results)
        is_bad = any(complaints(result) for result in results)
        if options.only is None or options.only in "queue":
            _rows, faults = queue_rows(Path(folder) / "queue")
            print(*faults, sep="\n")
            is_bad = is_bad or bool(faults)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
