"""The engine is dead for half a minute: command line and library carry on where they were."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from acceptance.running import LIMIT, PROGRAM, Engine, Gate

from engine import client
from engine.client import sync
from engine.protocol.results import Finished, Running

AWAY: Final = 30.0  # seconds without an engine: what is promised, so it is waited for
HALF: Final = [str(number) for number in range(1, 301)]
WHOLE: Final = HALF * 2
BYTES: Final = "".join(f"{line}\n" for line in WHOLE).encode()


class Job:
    """Says that it has begun, prints the second half when the gate opens; each run is counted."""

    def __init__(self, folder: Path, name: str) -> None:
        self.bell = Gate(folder / f"{name}.bell")
        self.gate = Gate(folder / f"{name}.gate")
        self.count = folder / f"{name}.runs"
        self.command = (
            f"echo run >> {self.count}; seq 300; {self.bell.tell}; {self.gate.wait}; seq 300"
        )

    @property
    def runs(self) -> int:
        return self.count.read_text().count("run\n")

    def close(self) -> None:
        self.bell.__exit__()
        self.gate.__exit__()


class Verb:
    """A verb of the command line that is connected, run to its end by `finish`."""

    def __init__(self, home: Path, *words: str) -> None:
        environ = {**os.environ, "ENGINE_HOME": str(home), "ENGINE_CALLER": "dev"}
        self._process = subprocess.Popen(
            [PROGRAM, "-v", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            bufsize=0,
        )
        assert self._process.stderr is not None
        assert self._process.stderr.readline().startswith(b"engine: connected to")

    def finish(self) -> tuple[int, bytes]:
        """Exit code and output. It must have lost the connection and found it again."""
        out, err = self._process.communicate(timeout=AWAY + LIMIT)
        assert b"engine: connection lost" in err
        assert b"engine: connected again after" in err
        return self._process.returncode, out


async def followed_output(lib: client.Engine, task_id: str) -> bytes:
    async with aclosing(lib.follow_output(task_id)) as pieces:
        return b"".join([piece async for piece in pieces])


async def followed_logs(lib: client.Engine, task_id: str) -> list[str]:
    texts: list[str] = []
    async with aclosing(lib.follow_logs(task_id=task_id, after_seq=0)) as lines:
        async for line in lines:
            texts.append(line.text)
            if len(texts) == len(WHOLE):
                break
    return texts


async def ended(lib: client.Engine, task_id: str) -> str:
    while not isinstance(reply := await lib.wait(task_id=task_id), Finished):
        pass
    return reply.status


def run_plainly(home: Path, command: str) -> tuple[str, bytes]:
    """A run without trio."""
    got = bytearray()
    with sync.connect(home, as_="plain", start=False) as lib:
        result = lib.run(command, on_output=got.extend)
        assert len(lib.list_tasks().tasks) == 1
    return result.status, bytes(got)


async def run_on_trio(home: Path, command: str) -> tuple[str, bytes]:
    got = bytearray()
    async with client.connect(home, as_="lib", start=False) as lib:
        result = await lib.run(command, on_output=got.extend)
        assert len((await lib.list_tasks()).tasks) == 1
    return result.status, bytes(got)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[dict[str, Job]]:
    jobs = {name: Job(tmp_path, name) for name in ("seen", "cli", "lib", "plain")}
    yield jobs
    for job in jobs.values():
        job.close()


async def test_nothing_is_lost_repeated_or_run_twice(tmp_path: Path, jobs: dict[str, Job]) -> None:
    found: dict[str, Any] = {}

    async def keep(name: str, ask: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        found[name] = await ask(*arguments)

    with Engine(tmp_path / "home") as running, trio.fail_after(AWAY + LIMIT):
        home = running.home
        async with client.connect(home, as_="dev", start=False) as lib:
            started = await lib.bash(jobs["seen"].command, timeout_secs=0)
            assert isinstance(started, Running)
            task = started.task_id
            verbs = {
                "wait": Verb(home, "wait", "--no-start", task),
                "output": Verb(home, "output", "-f", task),
                "logs": Verb(home, "logs", "-f", "-n", "all", "--no-prefix", task),
                "run": Verb(home, "run", "--no-start", jobs["cli"].command),
            }
            async with trio.open_nursery() as nursery:
                plainly = (trio.to_thread.run_sync, run_plainly, home, jobs["plain"].command)
                nursery.start_soon(keep, "plain run", *plainly)
                nursery.start_soon(keep, "lib run", run_on_trio, home, jobs["lib"].command)
                nursery.start_soon(keep, "lib wait", ended, lib, task)
                nursery.start_soon(keep, "lib output", followed_output, lib, task)
                nursery.start_soon(keep, "lib logs", followed_logs, lib, task)
                for name, verb in verbs.items():
                    nursery.start_soon(keep, name, trio.to_thread.run_sync, verb.finish)
                for job in jobs.values():
                    await trio.to_thread.run_sync(job.bell.hear)
                running.kill()
                for job in jobs.values():
                    job.gate.open()
                await trio.sleep(AWAY)
                await trio.to_thread.run_sync(running.start)
    ends, told = found.pop("wait")
    assert (ends, told.count(task.encode())) == (0, 1)
    assert found == {
        "output": (0, BYTES),
        "logs": (0, BYTES),
        "run": (0, BYTES),
        "lib run": ("succeeded", BYTES),
        "plain run": ("succeeded", BYTES),
        "lib wait": "succeeded",
        "lib output": BYTES,
        "lib logs": WHOLE,
    }
    assert {name: job.runs for name, job in jobs.items()} == dict.fromkeys(jobs, 1)
