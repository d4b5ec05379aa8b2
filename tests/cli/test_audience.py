"""Mirrors `engine/cli/audience.py`: the reader goes away while nothing is to be written."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.program import LIMIT, engine, start
from client.fake_engine import FakeEngine

from engine.cli.audience import Audience
from engine.cli.signals import Signals


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(write)


def is_readable(audience: Audience, seconds: float = 0.0) -> bool:
    return bool(select.select([audience], [], [], seconds)[0])


def test_it_is_readable_once_the_reader_is_gone(pipe: tuple[int, int]) -> None:
    with Audience(pipe[1]) as audience:
        os.write(pipe[1], b"x")
        assert not is_readable(audience)
        audience.drain()
        os.close(pipe[0])
        assert is_readable(audience)
        with pytest.raises(BrokenPipeError):
            audience.drain()


def test_a_signal_makes_it_readable_until_it_is_drained(pipe: tuple[int, int]) -> None:
    with Signals(signal.SIGUSR1) as signals, Audience(pipe[1], signals) as audience:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert is_readable(audience, LIMIT)
        audience.drain()
        assert not is_readable(audience)
        assert signals.take() == [signal.SIGUSR1]
    os.close(pipe[0])


def test_of_a_file_nobody_is_the_reader(tmp_path: Path) -> None:
    for path in (tmp_path / "file", Path(os.devnull)):
        with open(path, "wb") as file, Audience(file.fileno()) as audience:
            assert not is_readable(audience)


@pytest.mark.parametrize(
    "verb",
    [
        ["logs", "-f", "--no-prefix", "--after-seq", "0"],
        ["logs", "-f", "--no-prefix", "t8f3000"],
        ["output", "-f", "t8f3000"],
        ["tasks", "--watch"],
    ],
)
def test_who_looks_on_ends_with_its_reader_though_nothing_comes(
    fake: FakeEngine, verb: list[str]
) -> None:
    engine(fake.home, "run", "-d", "--as", "ci", "echo one; sleep 60")
    fake.log("info", "one", "ci", "t8f3000")
    with start(fake.home, *verb, "--as", "ci") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        fake.wait_for(lambda: "timeout_secs" in fake.calls[-1][1])
        process.stdout.close()
        assert process.wait(LIMIT) == 141
        assert process.stderr.read() == b""


def test_a_reader_that_goes_away_while_the_engine_is_down_ends_it_too(fake: FakeEngine) -> None:
    fake.log("info", "one", "ci")
    with start(fake.home, "logs", "-f", "--as", "ci") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        fake.stop()
        assert process.stderr.readline().startswith(b"engine: connection lost")
        process.stdout.close()
        assert process.wait(LIMIT) == 141


def test_a_run_goes_on_without_a_reader_as_it_may_write_no_more(fake: FakeEngine) -> None:
    gate = fake.home / "gate"
    command = f"echo up; until [ -e {gate} ]; do sleep 0.05; done; exit 3"
    with start(fake.home, "run", command) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        run.stdout.close()
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(0.3)
        gate.touch()
        assert run.wait(LIMIT) == 3
