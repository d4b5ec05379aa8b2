"""The project's benchmark: a real engine, a client that is not ours, ratios within one run.

`python scripts/bench.py [--quick] [--json FILE]`. Machines differ and are noisy: each figure that
can be is measured in blocks, engine and yardstick in turn, and given as the median of the blocks
with its quartiles. Memory is that of the processes themselves (/proc/PID/smaps_rollup).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from websockets.sync.client import unix_connect

ENGINE = Path(sys.executable).with_name("engine")
SESSION = "".join(
    [f"export BENCH_{i}='value number {i}';" for i in range(60)]
    + [f'bench_{i}() {{ local x={i}; if [ -n "$1" ]; then echo $x; fi; }};' for i in range(20)]
)
GIB = 1 << 30


class Client:
    """JSON-RPC over one websocket."""

    def __init__(self, home: Path) -> None:
        facts = json.loads((home / "engine.json").read_text())
        self.ws = unix_connect(
            facts["socket"],
            "ws://localhost/rpc",
            additional_headers={"Authorization": f"Bearer {facts['tokens']['agent']}"},
            compression=None,
            max_size=None,
        )
        self.ids = itertools.count(1)

    def send(self, method: str, **params: Any) -> int:
        number = next(self.ids)
        frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.ws.send(json.dumps(frame))
        return number

    def receive(self) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.ws.recv(timeout=120))
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = self.send(method, **params)
        reply = self.receive()
        assert reply["id"] == number
        result: dict[str, Any] = reply["result"]
        return result

    def bash(self, command: str, caller: str = "bench", **params: Any) -> dict[str, Any]:
        return self.call("bash", **{"as": caller}, command=command, **params)


@contextlib.contextmanager
def running_engine(*options: str) -> Iterator[tuple[Path, int]]:
    """The home and the pid of an engine that answers."""
    with tempfile.TemporaryDirectory(prefix="engine-bench-") as folder:
        home = Path(folder) / "home"
        ready, notify = os.pipe()
        process = subprocess.Popen(
            [str(ENGINE), "serve", "--home", str(home), "--notify-fd", str(notify), *options],
            pass_fds=[notify],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(notify)
        with open(ready, "rb") as pipe:
            assert pipe.readline() == b"ready\n"
        try:
            yield home, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)


def blocks(count: int, size: int, *runs: Callable[[], object]) -> list[list[float]]:
    """Seconds per call of each of `runs`, in turn, a value a block; the first does not count."""
    found: list[list[float]] = [[] for _ in runs]
    for block in range(count + 1):
        for values, run in zip(found, runs, strict=True):
            before = time.perf_counter()
            for _ in range(size):
                run()
            if block:
                values.append((time.perf_counter() - before) / size)
    return found


def memory(pid: int, field: str = "Private_") -> int:
    """Bytes of process `pid` that are its own; with `Rss`, all that it has resident."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(field))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def raw_bash() -> None:
    subprocess.run(["bash", "-c", "true"], check=True)


def short_calls(count: int) -> Iterator[tuple[str, list[float], str]]:
    with running_engine() as (home, _pid):
        client = Client(home)
        client.bash(f"{SESSION} cd /usr/lib")
        call, raw = blocks(count, 20, lambda: client.bash("true"), raw_bash)
        ratios = [a / b for a, b in zip(call, raw, strict=True)]
        yield "bash true in a session / bash -c true", ratios, "x"
        yield "  the call", [x * 1e3 for x in call], "ms"
        yield "  bash -c true", [x * 1e3 for x in raw], "ms"
        plain, raw = blocks(count, 20, lambda: client.bash("true", session=False), raw_bash)
        yield (
            "bash true, session: false / bash -c true",
            [a / b for a, b in zip(plain, raw, strict=True)],
            "x",
        )


def end_to_reply(count: int) -> Iterator[tuple[str, list[float], str]]:
    """From the last command of a job to the reply of a wait that was pending."""
    with running_engine() as (home, _pid):
        client = Client(home)
        times = []
        for _ in range(count):
            task = client.bash('read -t 0.1 <> <(:); printf %s "$EPOCHREALTIME"', timeout_secs=0)
            reply = client.call("wait", taskId=task["taskId"])
            times.append((time.time() - float(reply["output"])) * 1e3)
        yield "end of a job → reply of a pending wait", times, "ms"


def flood(count: int) -> Iterator[tuple[str, list[float], str]]:
    with running_engine() as (home, _pid):
        client = Client(home)
        target = home / "flood"
        text = f"head -c {GIB} /dev/zero"

        def through_engine() -> None:
            reply = client.bash(text, session=False, max_output_bytes=0)
            while reply["status"] == "running":
                reply = client.call("wait", taskId=reply["taskId"], max_output_bytes=0)
            assert reply["outputBytes"] == GIB
            client.call("forget", **{"as": "bench"}, taskId=reply["taskId"])

        def to_file() -> None:
            subprocess.run(["bash", "-c", f"{text} > {target}"], check=True)
            target.unlink()

        ours, plain = blocks(count, 1, through_engine, to_file)
        yield (
            "1 GiB by a job / to a file, time",
            [a / b for a, b in zip(ours, plain, strict=True)],
            "x",
        )


def throughput(count: int) -> Iterator[tuple[str, list[float], str]]:
    """400 calls by 8 callers, all sent before the first reply is read."""
    with running_engine() as (home, _pid):
        client = Client(home)
        rates = []
        for _ in range(count):
            before = time.perf_counter()
            for i in range(400):
                client.send("bash", **{"as": f"c{i % 8}"}, command="true", session=False)
            for _ in range(400):
                client.receive()
            rates.append(400 / (time.perf_counter() - before))
        yield "bash true jobs a second, 8 callers, no session", rates, "/s"


def memory_figures(jobs: int, waits: int) -> Iterator[tuple[str, list[float], str]]:
    with running_engine("--slots", "2000", "--set", "max_waits=20000") as (home, pid):
        client = Client(home)
        client.bash("true")
        yield "idle engine, resident", [memory(pid, "Rss") / 2**20], "MiB"
        before = memory(pid)
        tasks = [
            client.bash("sleep 600", session=False, timeout_secs=0)["taskId"] for _ in range(jobs)
        ]
        keepers = [
            int(os.readlink(home / "tasks" / task[1:] / "claim").split()[0]) for task in tasks
        ]
        yield "a running job: its keeper, own memory", [memory(k) / 2**20 for k in keepers], "MiB"
        yield "a running job: in the engine", [(memory(pid) - before) / jobs / 1024], "KiB"
        before = memory(pid)
        for _ in range(waits):
            client.send("wait", taskId=tasks[0], timeout_secs=20)
        info = client.call("engine_info")  # answered after all waits are in
        assert info["name"] == "engine"
        yield (
            f"{waits:,} pending waits: in the engine, each",
            [(memory(pid) - before) / waits / 1024],
            "KiB",
        )
        started = time.perf_counter()
        client.send("cancel", **{"as": "bench"}, taskId=tasks[0])
        for _ in range(waits + 1):
            client.receive()
        yield f"{waits:,} pending waits: all answered after", [time.perf_counter() - started], "s"
        client.call("cancel", **{"as": "bench"}, caller="bench", grace_secs=1)


def show(rows: list[tuple[str, list[float], str]]) -> None:
    table = Table("figure", "median", "quartiles", "n", "unit", box=None)
    for name, values, unit in rows:
        low, middle, high = (
            statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
        )
        table.add_row(name, f"{middle:.2f}", f"{low:.2f} … {high:.2f}", str(len(values)), unit)
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer blocks: a first look")
    parser.add_argument("--only", help="part of a group's name: calls, reply, flood, rate, memory")
    parser.add_argument("--json", type=Path, help="write all values to this file as well")
    options = parser.parse_args()
    scale = 1 if options.quick else 4
    groups: dict[str, Callable[[], Iterator[tuple[str, list[float], str]]]] = {
        "calls": lambda: short_calls(5 * scale),
        "reply": lambda: end_to_reply(10 * scale),
        "flood": lambda: flood(scale + 1),
        "rate": lambda: throughput(scale + 1),
        "memory": lambda: memory_figures(25 * scale, 1250 * scale),
    }
    rows: list[tuple[str, list[float], str]] = []
    for name, group in groups.items():
        if options.only is None or options.only in name:
            rows += list(group())
    show(rows)
    if options.json:
        options.json.write_text(json.dumps({name: values for name, values, _ in rows}))


if __name__ == "__main__":
    main()
