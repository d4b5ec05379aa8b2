"""Mirrors `engine/cli/console.py`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from cli.program import LIMIT, PROGRAM, environment
from client.fake_engine import FakeEngine

from engine.cli.console import Console, is_utf8, lead_apart


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def console(fd: int, **more: str) -> Console:
    return Console({"LANG": "C.UTF-8", **more}, out_fd=fd, err_fd=fd)


def test_what_we_say_is_one_line_with_our_name(pipe: tuple[int, int]) -> None:
    console(pipe[1]).say("two\nlines and \x1b[2J")
    assert os.read(pipe[0], 999) == b"engine: two\\x0alines and \\x1b[2J\n"


def test_quiet_says_errors_alone(pipe: tuple[int, int]) -> None:
    quiet = Console({}, quiet=True, out_fd=pipe[1], err_fd=pipe[1])
    quiet.say("progress")
    quiet.say("trouble", always=True)
    assert os.read(pipe[0], 999) == b"engine: trouble\n"


def test_a_locale_without_utf8_gets_ascii(pipe: tuple[int, int]) -> None:
    console(pipe[1], LANG="C").line("grün")
    assert os.read(pipe[0], 999) == b"gr\\xfcn\n"
    assert not is_utf8({})
    assert is_utf8({"LANG": "en_US.utf8"})
    assert not is_utf8({"LC_ALL": "C", "LANG": "en_US.UTF-8"})


def test_a_pipe_has_no_status_line(pipe: tuple[int, int]) -> None:
    piped = console(pipe[1])
    piped.show_status("running")
    piped.line("x")
    assert os.read(pipe[0], 999) == b"x\n"


def test_two_descriptors_of_one_pipe_lead_to_the_same_place(pipe: tuple[int, int]) -> None:
    other = os.dup(pipe[1])
    assert not lead_apart(pipe[1], other)
    assert lead_apart(pipe[1], 0)
    os.close(other)
    assert lead_apart(pipe[1], other)


@pytest.mark.parametrize(
    ("verb", "code"), [(["run", "echo hi"], 125), (["tasks"], 1), (["version"], 1)]
)
def test_output_that_cannot_be_written_is_told(
    fake: FakeEngine, verb: list[str], code: int
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, *verb],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(fake.home),
            timeout=LIMIT,
        )
    assert done.returncode == code
    assert done.stderr == b"engine: the output cannot be written: No space left on device\n"
