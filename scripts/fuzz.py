"""Inputs made up from good ones, for all that reads what others wrote; then the stateful tests.

    fuzz.py [--count N] [--seed S] [--target NAME]... [--folder DIR] [--examples N] [--again FILE]

A million inputs, in shares by what a target costs. Each is to be taken or refused as the target's
`check` says, at a cost that its size decides; see `scripts/fuzz_*.py`. The same seed makes the
same inputs. One that fails is printed, and kept in the folder as TARGET-DIGEST; `--again` feeds
it again. Prints the table; exit code 1 where something failed.
"""

from __future__ import annotations

import argparse
import gc
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from rich.console import Console
from rich.table import Table

from scripts import fuzz_files, fuzz_keeper, fuzz_live, fuzz_shells, fuzz_text, fuzz_wire
from scripts.fuzzing import Result, Target, feed, try_one

COUNT: Final = 1_000_000
MAKERS: Final[dict[str, Callable[[], Target]]] = {
    **fuzz_wire.MAKERS,
    **fuzz_text.MAKERS,
    **fuzz_files.MAKERS,
    **fuzz_shells.MAKERS,
    **fuzz_live.MAKERS,
    **fuzz_keeper.MAKERS,
}
# Of a hundred inputs; what is not named here has `_REST`.
_SHARES: Final = {"envelopes": 16.0, "params": 20.0, "heads": 2.0, "frames": 3.0}
_REST: Final = (100 - sum(_SHARES.values())) / (len(MAKERS) - len(_SHARES))
_MOST_GROWN: Final = 64 << 20  # bytes of this process by one target, what it keeps of inputs too
_STATEFUL: Final = tuple(
    f"tests/tasks/test_{name}_stateful.py" for name in ("keys", "queue", "sessions")
)
_ROOT: Final = Path(__file__).resolve().parent.parent


def share(name: str, count: int) -> int:
    """How many of `count` inputs a target has."""
    return max(1, round(count * _SHARES.get(name, _REST) / 100))


def run(names: list[str], count: int, seed: str, folder: Path) -> list[Result]:
    """Feed the targets one by one; those that grew too much are said to have failed."""
    results = []
    for name in names:
        result = feed(MAKERS[name](), share(name, count), seed, folder)
        if result.grown > _MOST_GROWN:
            result.faults[f"the process has grown by {result.grown >> 20} MiB"] = None
        results.append(result)
        print(f"{name}: {result.count:,} in {result.secs:.0f} s", flush=True)
        gc.collect()
    return results


def feed_again(path: Path) -> Result:
    """Feed the input in `path` to the target that its name begins with."""
    target = MAKERS[path.name.partition("-")[0]]()
    result = Result(target.name, count=1)
    try:
        try_one(target, path.read_bytes(), result, path.parent)
    finally:
        target.finish()
    return result


def table_of(results: list[Result]) -> Table:
    table = Table("target", *("inputs", "a second", "kept", "slowest", "grown", "failed"))
    for result in results:
        table.add_row(
            result.name,
            f"{result.count:,}",
            f"{result.count / max(result.secs, 1e-9):,.0f}",
            f"{result.kept:,}",
            f"{result.slowest * 1000:.0f} ms",
            f"{result.grown / 2**20:.1f} MiB",
            str(len(result.faults)),
        )
    table.add_row("all", f"{sum(result.count for result in results):,}")
    return table


def run_stateful(examples: int) -> int:
    """The stateful tests with other examples than `make test` has; pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *_STATEFUL]
    env = {**os.environ, "FUZZ_EXAMPLES": str(examples)}
    return subprocess.run(command, cwd=_ROOT, env=env, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=COUNT, help="inputs in all")
    parser.add_argument("--seed", default=None, help="whatever; left out: another one each time")
    parser.add_argument("--target", action="append", choices=MAKERS, help="these alone")
    folder = Path(tempfile.gettempdir(), "engine-fuzz-found")
    parser.add_argument("--folder", type=Path, default=folder, help="for what fails")
    parser.add_argument("--examples", type=int, default=0, help="of each stateful test, after it")
    parser.add_argument("--again", type=Path, metavar="FILE", help="feed this input once")
    options = parser.parse_args()
    console = Console(width=100)
    if options.again is not None:
        results = [feed_again(options.again)]
    else:
        seed = options.seed or secrets.token_hex(4)
        console.print(f"seed {seed}")
        results = run(options.target or list(MAKERS), options.count, seed, options.folder)
    console.print(table_of(results))
    for result in results:
        for what, path in result.faults.items():
            console.print(f"{result.name}: {what}\n  {path or ''}", markup=False, soft_wrap=True)
    failed = any(result.faults for result in results)
    if options.examples and options.again is None:
        failed |= run_stateful(options.examples) != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
