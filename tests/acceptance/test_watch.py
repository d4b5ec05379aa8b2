"""`tasks --watch` while the engine is killed: each change is told, none twice."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from acceptance.running import LIMIT, PROGRAM, Engine, Gate


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(tmp_path / "gate") as gate:
        yield gate


class Watcher:
    """The program as it looks on, to a pipe."""

    def __init__(self, home: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, "tasks", "--watch", "--as", "dev", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "ENGINE_HOME": str(home)},
            bufsize=0,
        )

    def line(self) -> str:
        """The next line of stdout; fails where none comes."""
        return _next_line(self.process.stdout)

    def said(self) -> str:
        """The next line of stderr, likewise."""
        return _next_line(self.process.stderr)

    def finish(self) -> tuple[bytes, bytes]:
        """Interrupt it; what it had not been asked for yet."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == 130
        return out, err

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=LIMIT)


def _next_line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    assert select.select([stream], [], [], LIMIT)[0], "nothing came"
    return stream.readline().decode()


def test_to_a_pipe_what_changed_meanwhile_is_told_and_nothing_again(
    tmp_path: Path, gate: Gate
) -> None:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as engine:
        with engine.connect() as client:
            ended = client.call("bash", as_="dev", command="exit 3")["taskId"]
            running = client.call("bash", as_="dev", command=gate.wait, timeout_secs=0)["taskId"]
        with Watcher(engine.home, "--no-header") as watcher:
            assert watcher.line().split()[:2] == ["failed", ended]
            assert watcher.line().split()[:2] == ["running", running]
            engine.kill()
            assert watcher.said() == "engine: connection lost; trying again for up to 60 s\n"
            gate.open()
            engine.start()
            assert watcher.said().startswith("engine: connected again after ")
            assert watcher.line().split()[:2] == ["succeeded", running]
            with engine.connect() as client:
                late = client.call("bash", as_="dev", command="true")["taskId"]
            while (told := watcher.line().split()[:2]) != ["succeeded", late]:
                assert told[1][1:] == late[1:]  # queued or running, before
            assert watcher.finish() == (b"", b"")


def test_in_json_a_row_ends_once_however_often_the_engine_is_killed(
    tmp_path: Path, gate: Gate
) -> None:
    with (
        Engine(tmp_path / "home", "--set", "min_free_bytes=0") as engine,
        Watcher(engine.home, "--json") as watcher,
    ):
        rows: list[dict[str, Any]] = []
        for number in range(3):
            with engine.connect() as client:
                text = f"{gate.wait}; exit {number}"
                client.call("bash", as_="dev", command=text, timeout_secs=0)
            while not rows or rows[-1]["status"] != "running":
                rows.append(json.loads(watcher.line()))
            engine.kill()
            assert "connection lost" in watcher.said()
            gate.open()
            engine.start()
            assert "connected again" in watcher.said()
            while rows[-1]["endedAt"] is None:
                rows.append(json.loads(watcher.line()))
        watcher.finish()
    ends = [row for row in rows if row["endedAt"] is not None]
    assert [row["exitCode"] for row in ends] == [0, 1, 2]
    assert len({row["taskId"] for row in ends}) == 3
    seqs = [row["changedSeq"] for row in rows]
    assert seqs == sorted(set(seqs))
