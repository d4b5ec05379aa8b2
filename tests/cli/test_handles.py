"""Mirrors `engine/cli/handles.py`."""

from __future__ import annotations

import pytest
from cli.program import Terminal, engine
from client.fake_engine import FakeEngine

from engine.cli.handles import ambiguous, streams_of


@pytest.fixture
def busy(fake: FakeEngine) -> FakeEngine:
    for code in (3, 4):
        engine(fake.home, "run", f"exit {code}")
    return fake


def typed(fake: FakeEngine, *arguments: str) -> tuple[int, str]:
    """Exit code and last line of a call in a terminal."""
    with Terminal(fake.home, *arguments, environ={"NO_COLOR": "1"}) as terminal:
        code = terminal.wait()
    return code, terminal.seen.rstrip().rpartition("\n")[2].strip()


def test_a_unique_prefix_will_do_on_a_terminal(busy: FakeEngine) -> None:
    code, line = typed(busy, "wait", "t8f3001"[:7])
    assert (code, line.partition(",")[0]) == (4, "✗ t8f3001  failed")
    del busy.jobs["8f3000"]
    code, line = typed(busy, "wait", "t8f")
    assert (code, line.partition(",")[0]) == (4, "✗ t8f3001  failed")


def test_an_ambiguous_prefix_names_the_candidates(busy: FakeEngine) -> None:
    right = "engine: t8f3 fits 2 tasks: t8f3000 t8f3001"
    assert typed(busy, "wait", "t8f3") == (125, right)
    assert typed(busy, "show", "t8f3") == (1, right)


def test_two_characters_are_too_few(busy: FakeEngine) -> None:
    assert typed(busy, "show", "t8") == (1, "engine: no such task t8")


def test_in_a_pipe_ids_are_whole(busy: FakeEngine) -> None:
    assert engine(busy.home, "show", "t8f300").err == "engine: no such task t8f300\n"


def test_last_is_the_callers_newest_task(busy: FakeEngine) -> None:
    assert engine(busy.home, "wait", "@last").code == 4
    done = engine(busy.home, "wait", "@last", "--as", "nobody")
    assert done == (125, b"", "engine: nobody has no task\n")


def test_of_many_candidates_ten_are_named() -> None:
    found = [f"t8f3{i:03d}" for i in range(12)]
    assert ambiguous("t8f3", found) == (
        "t8f3 fits 12 tasks: t8f3000 t8f3001 t8f3002 t8f3003 t8f3004 t8f3005 t8f3006 t8f3007"
        " t8f3008 t8f3009 and 2 more"
    )


def test_two_output_paths_are_two_streams() -> None:
    assert streams_of({"outputPath": "/x/output"}) == ("output",)
    assert streams_of({"outputPath": ["/x/stdout", "/x/stderr"]}) == ("stdout", "stderr")
