"""Mirrors `engine/cli/stdin.py`; what a job reads is tested with the real engine."""

from __future__ import annotations

import json

import pytest
from cli.fuller_engine import FullerEngine
from cli.program import engine

LOST = "engine: connection lost: {} bytes were taken, whether {} is not known\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "fed"),
    [
        (["one"], None, b"one\n"),
        (["one\n"], None, b"one\n"),
        (["-"], b"one", b"one"),
        (["-", "--eof"], b"", b""),
        (["--eof"], None, b""),
    ],
)
def test_a_text_is_a_line_and_stdin_is_bytes(
    fake: FullerEngine, arguments: list[str], stdin: bytes | None, fed: bytes
) -> None:
    done = engine(fake.home, "stdin", "t8f3000", *arguments, "--json", stdin=stdin)
    assert (done.code, json.loads(done.out)["written"], fake.fed) == (0, len(fed), fed)
    assert [params.get("eof", False) for _, params in fake.calls][-1] is ("--eof" in arguments)


@pytest.mark.parametrize(
    ("lost", "taken", "unknown"),
    [
        ("write_stdin", 0, "the next 4 were"),
        ("write_stdin eof", 4, "the input was ended"),
    ],
)
def test_of_a_call_whose_answer_is_lost_it_says_what_is_not_known(
    fake: FullerEngine, lost: str, taken: int, unknown: str
) -> None:
    fake.loses = [lost]
    done = engine(fake.home, "stdin", "t8f3000", "one", "--eof")
    assert done == (69, b"", LOST.format(taken, unknown))
    assert fake.fed == b"one\n"  # once
