"""Fixtures that are jobs of the engine: its Tasks extension answers for them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, Final, NamedTuple


class Job(NamedTuple):
    """`needs_tasks`: a client that does not declare the extension is refused."""

    command: str
    needs_tasks: bool = False


def _compute(arguments: dict[str, Any]) -> Job:
    words = shlex.quote(f"computed {arguments.get('label')}")
    return Job(f"sleep {float(arguments.get('seconds', 0))}; echo {words}")


def _fail(arguments: dict[str, Any]) -> Job:
    return Job("sleep 1; echo it failed; exit 3", needs_tasks=True)


JOBS: Final[dict[str, Callable[[dict[str, Any]], Job]]] = {
    "slow_compute": _compute,
    "failing_job": _fail,
}
