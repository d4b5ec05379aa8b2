"""Kill the engine at random moments, start it again, and account for every job it was given.

    restart_hammer.py [--rounds N] [--calls N] [--seed N]

The long form of the test of the same name: each round is a burst of calls, a kill -9 between 0
and 0.3 s after the first of them, and a start. Exit code 1 and the job's story where a handle
does not resolve, an output or code is wrong, or a job ran twice or not at all.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from acceptance.hammer import Hammer
from acceptance.running import Engine

MOMENTS = (0.02, 0.05, 0.1, 0.3)  # seconds: the latest moment of the kill in a round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--calls", type=int, default=12, help="calls in each round")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="engine-hammer-") as folder:
        marks = Path(folder) / "marks"
        marks.mkdir()
        began = time.monotonic()
        home = Path(folder) / "home"
        with Engine(home, "--slots", "4", "--set", "min_free_bytes=0") as engine:
            hammer = Hammer(engine, marks, options.seed)
            for _ in range(options.rounds):
                hammer.round(options.calls, kill_within=hammer.random.choice(MOMENTS))
            counts = hammer.settle()
        story = ", ".join(f"{count} {sort}" for sort, count in counts.items())
        print(f"{options.rounds} kills, {time.monotonic() - began:.0f} s: {story}")


if __name__ == "__main__":
    main()
