"""How many examples the stateful tests have: few and always the same, or many new ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))  # of `make fuzz`; else the test's own number


def examples(count: int, *, shrinks: bool = True) -> settings:
    """`shrinks`: look for a smaller example of a failure; not where one takes a second."""
    phases = set(Phase) if shrinks else set(Phase) - {Phase.shrink, Phase.explain}
    return settings(
        phases=phases,
        max_examples=EXAMPLES or count,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        stateful_step_count=60,
        suppress_health_check=list(HealthCheck),
    )
