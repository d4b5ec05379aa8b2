"""The benchmark's group `start`: the command line, against Python with the two libraries it needs.

Processor time of the whole process, which tells it truer than a clock on a machine with other work.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.bench_client import Client
from scripts.benching import ENGINE, Figure, ratios, running_engine

YARDSTICK: Final = "import click, wsproto"
VERBS: Final = (("tasks", "1.5"), ("status", ""), ("run true", ""))


def start_figures(count: int) -> Iterator[Figure]:
    """Of starts in turn, the first of which does not count."""
    commands = {name: [sys.executable, str(ENGINE), *name.split()] for name in dict(VERBS)}
    least = [sys.executable, "-c", YARDSTICK]
    with running_engine() as (home, _pid), tempfile.TemporaryDirectory() as bytecode:
        Client(home).bash("true")
        environ = _environment(home, bytecode)
        yardstick: list[float] = []
        found: dict[str, list[float]] = {name: [] for name in commands}
        for block in range(count + 1):
            times = {name: _processor_secs(command, environ) for name, command in commands.items()}
            plain = _processor_secs(least, environ)
            if block:
                yardstick.append(plain)
                for name, took in times.items():
                    found[name].append(took)
    for name, goal in VERBS:
        what = f"engine {name} / python -c '{YARDSTICK}'"
        yield Figure(what, ratios(found[name], yardstick), "x", goal)
    yield Figure("  the latter", [1e3 * each for each in yardstick], "ms")


def _environment(home: Path, bytecode: str) -> dict[str, str]:
    """Modules are compiled once, as where the program is installed, whatever is set here."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("ENGINE_", "PYTHON"))}
    return environ | {"ENGINE_HOME": str(home), "PYTHONPYCACHEPREFIX": bytecode}


def _processor_secs(command: list[str], environ: dict[str, str]) -> float:
    """User and system time of `command`, whose output is dropped. Raises RuntimeError."""
    actions = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(command[0], command, environ, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{command} ended with {status}")
    return usage.ru_utime + usage.ru_stime
