"""Measure a restart: from the start of the program to `ready`, and to the first reply.

    restart_bench.py [--finished N] [--running N] [--runs N]

Makes a home in a temporary folder: the running jobs and some of the finished ones by a real
engine, the other finished ones through the engine's own classes, directories and rows alike. Then
kills the engine with -9 and starts it again, as often as asked, and once with the index removed.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import trio
from websockets.sync.client import ClientConnection, unix_connect

from engine.config import Home
from engine.jobs.directory import Base, Spec, make_directory
from engine.keeper import taskfiles
from engine.model import Kind
from engine.store.index import Index
from engine.tasks import ending
from engine.tasks.infolder import record_of

PROGRAM = Path(sys.executable).with_name("engine")
LIMIT = 60.0  # seconds for any one thing here
REAL_FINISHED = 50  # jobs that a real engine ran; the others are made to look the same


class Program:
    """The engine as a process; `ready_secs` and `reply_secs` from its start."""

    def __init__(self, home: Path) -> None:
        begun = time.monotonic()
        ready, notify = os.pipe()
        self.process = subprocess.Popen(
            [
                *(PROGRAM, "serve", "--home", home, "--slots", "1000", "--notify-fd", str(notify)),
                *("--set", "min_free_bytes=0"),
            ],
            stderr=subprocess.DEVNULL,
            pass_fds=[notify],
        )
        os.close(notify)
        with open(ready, "rb") as file:
            if file.readline() != b"ready\n":
                raise SystemExit("the engine did not start")
        self.ready_secs = time.monotonic() - begun
        facts = json.loads((home / "engine.json").read_text())
        self.websocket: ClientConnection = unix_connect(
            facts["socket"],
            "ws://localhost/rpc",
            additional_headers={"Authorization": f"Bearer {facts['tokens']['agent']}"},
            compression=None,
            max_size=None,
        ).__enter__()
        self.call("engine_info")
        self.reply_secs = time.monotonic() - begun

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.websocket.send(json.dumps(message))
        reply = json.loads(self.websocket.recv(timeout=LIMIT))
        if "error" in reply:
            raise SystemExit(f"{method}: {reply['error']}")
        result: dict[str, Any] = reply["result"]
        return result

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(LIMIT)
        self.websocket.close()


def run_real(home: Path, finished: int, running: int) -> None:
    """Have a real engine run jobs, and kill it while `running` of them go on."""
    program = Program(home)
    for i in range(finished):
        program.call("bash", **{"as": f"c{i % 5}"}, command=f"echo {i}")
    for i in range(running):
        argv = ["sleep", "600"]
        program.call("execute", **{"as": f"c{i % 5}"}, argv=argv, timeout_secs=0)
    program.end(signal.SIGKILL)


def synthesise(home: Home, count: int) -> None:
    """Add `count` finished tasks, as an engine would have left them."""
    with closing(Index(home.index, lambda _done: None)) as index:
        trio.run(_put_all, index, home, count)


async def _put_all(index: Index, home: Home, count: int) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(index.serve)
        first = index.latest_order + 1
        for order in range(first, first + count):
            _put_one(index, home, order)
        await index.flush()
        nursery.cancel_scope.cancel()


def _put_one(index: Index, home: Home, order: int) -> None:
    directory = make_directory(home.tasks)
    now = int(time.time() * 1000)
    spec = Spec(
        id=directory.id,
        caller=f"c{order % 5}",
        kind=Kind.BASH,
        title=f"echo {order}",
        order=order,
        created_at=now,
        base=Base(cwd="/", env={"PATH": os.defpath, "HOME": "/", "LANG": "C.UTF-8"}),
        command=f"echo {order}",
        session=True,
    )
    directory.write_spec(spec)
    output = f"{order}\n".encode()
    (directory.path / "output").write_bytes(output)
    end = ending.unstarted("cancelled", now) | {
        "pid": 1_000_000,
        "cause": "exit",
        "exitCode": 0,
        "startedAt": now,
        "durationMs": 3,
        "cpuMs": 2,
        "cwd": "/",
        "sizes": [len(output)],
        "dropped": [[]],
    }
    with directory.opened() as dir_fd:
        taskfiles.take_claim(dir_fd, f"1000000 1 {secrets.token_hex(16)}")
        fd = taskfiles.reserve_exit(dir_fd)
        taskfiles.write_exit(fd, end)
        os.close(fd)
    index.put(ending.ended(record_of(spec), end))


def measure(home: Path, runs: int, what: str) -> None:
    """Start the engine `runs` times, killed with -9 before each, and print what it took."""
    ready, replied = [], []
    for _ in range(runs):
        program = Program(home)
        info = program.call("engine_info")
        ready.append(program.ready_secs)
        replied.append(program.reply_secs)
        program.end(signal.SIGKILL)
    print(
        f"{what}: ready {statistics.median(ready):.2f} s (at most {max(ready):.2f}), "
        f"first reply {statistics.median(replied):.2f} s (at most {max(replied):.2f}); "
        f"{info['running']} running"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--finished", type=int, default=10_000)
    parser.add_argument("--running", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="engine-bench-") as folder:
        home = Home(Path(folder) / "home")
        home.path.mkdir(mode=0o700)
        measure(home.path, options.runs, "empty home")
        run_real(home.path, min(REAL_FINISHED, options.finished), options.running)
        synthesise(home, max(0, options.finished - REAL_FINISHED))
        try:
            what = f"{options.finished} finished, {options.running} running"
            measure(home.path, options.runs, what)
            for path in home.path.glob("index.db*"):
                path.unlink()
            measure(home.path, 1, "the same, index rebuilt from the directories")
        finally:
            program = Program(home.path)
            for i in range(5):
                program.call("cancel", **{"as": f"c{i}"}, caller=f"c{i}", grace_secs=0)
            program.end(signal.SIGTERM)


if __name__ == "__main__":
    main()
