"""Draw what the benchmark measures over a growing load: `scripts/plots/*.svg`, as in the README.

    bench_plot.py [--quick] [--draw]

Measures anew, which takes a quarter of an hour (`--quick`: a minute or two, and less far), keeps
the numbers in `scripts/plots/data.json`, and draws; with `--draw` from the numbers that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.bench_memory import after_tasks
from scripts.bench_rate import crowds
from scripts.bench_restart import restart_times
from scripts.bench_waits import pending_waits
from scripts.plotting import Plot, Series, svg

PLACE: Final = Path(__file__).resolve().parent / "plots"
DATA: Final = PLACE / "data.json"
CALLERS: Final = [1, 2, 4, 8, 16, 32, 64]


def measure(*, quick: bool) -> dict[str, Any]:
    """What is drawn: lists of [x, y…], and where it was measured."""
    waits = [1_000, 2_500, 5_000] if quick else [1_000, 2_500, 5_000, 10_000]
    tasks = [0, 500, 1_000, 2_000] if quick else [0, 5_000, 10_000, 20_000, 50_000, 100_000]
    ended = [0, 1_000, 2_000] if quick else [0, 1_000, 5_000, 10_000, 20_000]
    restarts = restart_times(ended, 3)
    return {
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "crowds": list(crowds(CALLERS, 200 if quick else 2_000)),
        "waits": [(count, count * pending_waits(count)[0] / 1024) for count in waits],
        "tasks": list(after_tasks(tasks)),
        "restarts": [(n, statistics.median(r.reply for r in runs)) for n, runs in restarts],
    }


def plots(data: dict[str, Any]) -> dict[str, Plot]:
    """File name -> drawing."""
    crowd = data["crowds"]
    median = [(callers, ms) for callers, _, ms, _ in crowd]
    p99 = [(callers, ms) for callers, _, _, ms in crowd]
    rate = [(callers, each) for callers, each, _, _ in crowd]
    at_once = "callers at a time"
    return {
        "latency": Plot(
            "A short call in a session",
            at_once,
            "ms",
            [Series("median", median), Series("99 %", p99)],
            True,
        ),
        "throughput": Plot(
            "Short calls a second", at_once, "calls/s", [Series("calls", rate)], True
        ),
        "waits": Plot(
            "Memory for pending waits", "pending waits", "MiB", [Series("own", data["waits"])]
        ),
        "tasks": Plot(
            "Memory of the engine", "tasks run", "MiB", [Series("resident", data["tasks"])]
        ),
        "restart": Plot(
            "Restart after kill -9",
            "ended tasks in the home",
            "s",
            [Series("first reply", data["restarts"])],
        ),
    }


def draw(data: dict[str, Any], place: Path) -> None:
    for name, plot in plots(data).items():
        (place / f"{name}.svg").write_text(svg(plot))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a first look")
    parser.add_argument("--draw", action="store_true", help="from the numbers that are there")
    options = parser.parse_args()
    PLACE.mkdir(exist_ok=True)
    if not options.draw:
        DATA.write_text(json.dumps(measure(quick=options.quick), indent=1) + "\n")
    draw(json.loads(DATA.read_text()), PLACE)


if __name__ == "__main__":
    main()
