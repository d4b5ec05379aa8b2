"""The benchmark's group `calls`: what one short call costs, against starting bash oneself.

In a session of 60 variables and 20 functions; the peers that are installed are measured in turn
with the same yardstick.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Final

from scripts.bench_client import Client
from scripts.bench_peers import short_peers
from scripts.benching import Figure, blocks, ratios, running_engine

SESSION: Final = "".join(
    [f"export BENCH_{i}='value number {i}';" for i in range(60)]
    + [f'bench_{i}() {{ local x={i}; if [ -n "$1" ]; then echo $x; fi; }};' for i in range(20)]
)
SIZE: Final = 20  # calls to a block
CHANGE: Final = "n=$((n + 1))"


def raw_bash() -> None:
    subprocess.run(["bash", "-c", "true"], check=True)


def call_figures(count: int, swe_rex: str | None) -> Iterator[Figure]:
    """All figures of single calls, from `count` blocks each."""
    yield from _warm(count)
    yield from _cold(count)
    yield from _peers(count, swe_rex)


def _warm(count: int) -> Iterator[Figure]:
    with running_engine() as (home, _pid):
        client = Client(home)
        client.bash(f"{SESSION} cd /usr/lib")

        def leave() -> None:
            if client.bash("exit 3")["exitCode"] != 3:
                raise RuntimeError("exit 3 is told otherwise")

        call, raw = blocks(count, SIZE, lambda: client.bash("true"), raw_bash)
        yield Figure("bash true in a session / bash -c true", ratios(call, raw), "x", "1.2")
        yield Figure("  the call", [x * 1e3 for x in call], "ms")
        yield Figure("  bash -c true", [x * 1e3 for x in raw], "ms")
        yield _against_raw("  with a changing state", "2.0", count, lambda: client.bash(CHANGE))
        yield _against_raw("  with exit 3", "1.3", count, leave)
        alone = "  with session: false"
        yield _against_raw(alone, "", count, lambda: client.bash("true", session=False))


def _cold(count: int) -> Iterator[Figure]:
    with running_engine("--set", "warm_shells=0") as (home, _pid):
        client = Client(home)
        client.bash(f"{SESSION} cd /usr/lib")
        yield _against_raw("  cold: no shell waits", "2.5", count, lambda: client.bash("true"))


def _peers(count: int, swe_rex: str | None) -> Iterator[Figure]:
    with short_peers(swe_rex) as (peers, missing):
        for peer in peers:
            run, size = peer.run, peer.size
            yield _against_raw(f"  through {peer.name}", "", count, run, size)
    for name in missing:
        yield Figure(f"  through {name}: not installed", [], "x")


def _against_raw(
    name: str, goal: str, count: int, run: Callable[[], object], size: int = SIZE
) -> Figure:
    ours, raw = blocks(count, size, run, raw_bash)
    return Figure(name, ratios(ours, raw), "x", goal)
