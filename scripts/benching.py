"""What the benchmarks share: an engine of their own, a client that is not ours, the yardsticks."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from websockets.sync.client import unix_connect

ENGINE = Path(sys.executable).with_name("engine")
GIB: Final = 1 << 30
LIMIT: Final = 120.0  # seconds for any one reply

Figure = tuple[str, list[float], str]  # what, its values, their unit


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
        reply: dict[str, Any] = json.loads(self.ws.recv(timeout=LIMIT))
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


class Sampler:
    """Calls `engine_info` on a connection of its own every `PAUSE`, and keeps what each took.

    A call whose turn came while the one before it was out counts from its turn: a pause of the
    engine then shows in all the calls that it would have held up, not in one.
    """

    PAUSE: Final = 0.01  # seconds from turn to turn

    def __init__(self, home: Path) -> None:
        self._client = Client(home)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._taken: list[tuple[float, float]] = []  # when it was its turn, milliseconds
        self._trouble: Exception | None = None

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join(LIMIT)
        self._client.ws.close()

    def _run(self) -> None:
        turn = free = time.time()
        try:
            while not self._stop.wait(max(0.0, turn - time.time())):
                # Where this thread was woken late, that is not the engine's doing.
                begun = turn if turn < free else time.time()
                self._client.call("engine_info")
                free = time.time()
                self._taken.append((begun, (free - begun) * 1e3))
                turn += self.PAUSE
        except Exception as exc:
            self._trouble = exc

    def times(self, start: float = 0.0, end: float = math.inf) -> list[float]:
        """Milliseconds of the calls whose turn came in this span of the wall clock.

        To be called when the sampler has ended; raises what ended it early.
        """
        if self._trouble is not None:
            raise self._trouble
        return [took for turn, took in self._taken if start <= turn < end]
