"""How soon ends reach those who wait for them, and what waiting costs.

    pollers.py [--pollers N] [--handles N] [--ends N] [--idle SECONDS]

Opens an engine of its own, has it hold `--handles` jobs (most of them queued), and has `--pollers`
callers wait for their share of them with `wait_any`. Each is told what its jobs are blocked on:
the queued ones on their lane, those that run are idle after a minute. Then nothing happens any
more, and the processor time of the engine is taken, and of the keepers beside it; then jobs end
one by one, and the time from the job's last act to the reply is measured. Each end must wake its
own poller and nobody else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import trio
from trio_websocket import WebSocketConnection, wrap_client_stream

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from acceptance.running import Engine, Gate

from scripts.benching import memory, processor_secs

CONNECTIONS: Final = 10
TOLD_SECS: Final = 240.0  # until the last job is known to be idle
SETTLE_SECS: Final = 5.0  # for what is written behind the last reply


class Line:
    """One connection; `ask` waits for the reply with its id."""

    def __init__(self, websocket: WebSocketConnection) -> None:
        self._websocket, self._waiting = websocket, dict[int, trio.Event]()
        self._replies: dict[int, tuple[float, dict[str, Any]]] = {}
        self._next = 0

    async def serve(self) -> None:
        while True:
            reply = json.loads(await self._websocket.get_message())
            self._replies[reply["id"]] = time.monotonic(), reply["result"]
            self._waiting.pop(reply["id"]).set()

    async def ask(self, method: str, **params: Any) -> tuple[float, dict[str, Any]]:
        """When the reply came, and its result."""
        self._next += 1
        id_, event = self._next, trio.Event()
        self._waiting[id_] = event
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        await self._websocket.send_message(json.dumps(message))
        await event.wait()
        return self._replies.pop(id_)


async def open_lines(engine: Engine, nursery: trio.Nursery) -> list[Line]:
    lines = []
    headers = [(b"Authorization", f"Bearer {engine.token()}".encode())]
    for _ in range(CONNECTIONS):
        stream = await trio.open_unix_socket(engine.facts()["socket"])
        websocket = await wrap_client_stream(
            nursery, stream, "localhost", "/rpc", extra_headers=headers
        )
        lines.append(Line(websocket))
        nursery.start_soon(lines[-1].serve)
    return lines


async def make_jobs(lines: list[Line], options: argparse.Namespace, gate: Gate) -> list[list[str]]:
    """Each poller's handles; the first `--ends` pollers' first jobs run, and wait at the gate."""
    handles: list[list[str]] = [[] for _ in range(options.pollers)]
    for number in range(options.pollers):
        line, caller = lines[number % CONNECTIONS], f"p{number}"
        text = gate.wait if number < options.ends else "sleep 3600"
        _, reply = await line.ask(
            "bash", **{"as": caller, "command": text, "timeout_secs": 0, "session": False}
        )
        handles[number].append(reply["kickoffId"])
    for number in range(options.handles - options.pollers):
        poller = number % options.pollers
        params = {"as": f"p{poller}", "argv": ["true"], "timeout_secs": 0, "lane": "shut"}
        _, reply = await lines[poller % CONNECTIONS].ask("execute", **params)
        handles[poller].append(reply["kickoffId"])
    return handles


async def measure(engine: Engine, options: argparse.Namespace, gate: Gate) -> list[float]:
    """The delays in seconds, in order of size."""
    delays: list[float] = []
    opened, idle = 0.0, set[str]()
    reached, all_told = trio.Event(), trio.Event()

    async def poll(line: Line, caller: str, ids: list[str]) -> None:
        nonlocal reached
        while True:
            at, reply = await line.ask("wait_any", **{"as": caller, "ids": ids})
            ends = [each["id"] for each in reply["updates"] if each["ready"] == "ended"]
            idle.update(each["id"] for each in reply["updates"] if each.get("category") == "idle")
            if len(idle) == options.pollers:
                all_told.set()
            ids = reply["pending_ids"]
            if ends:
                assert len(ends) == 1, ends
                delays.append(at - opened)
                reached.set()

    async with trio.open_nursery() as nursery:
        lines = await open_lines(engine, nursery)
        handles = await make_jobs(lines, options, gate)
        print(f"{sum(map(len, handles))} handles, {options.pollers} pollers")
        for number, ids in enumerate(handles):
            nursery.start_soon(poll, lines[number % CONNECTIONS], f"p{number}", ids)
        began = time.monotonic()
        with trio.fail_after(TOLD_SECS):
            await all_told.wait()
        print(f"all told that their jobs are idle, {time.monotonic() - began:.0f} s later")
        await trio.sleep(SETTLE_SECS)
        keepers = engine.processes()
        before = processor_secs(engine.pid), processor_secs(*keepers)
        began = time.monotonic()
        await trio.sleep(options.idle)
        now = processor_secs(engine.pid), processor_secs(*keepers)
        used, beside = (
            (b - a) / (time.monotonic() - began) for a, b in zip(before, now, strict=True)
        )
        mib = memory(engine.pid, "Rss") / 2**20
        print(f"while nothing happens: {used:.2%} of a core, {mib:.0f} MiB", end="; ")
        print(f"{len(keepers)} processes of keepers and jobs: {beside:.2%}")
        for _ in range(options.ends):
            reached = trio.Event()
            opened = time.monotonic()
            gate.open()
            with trio.fail_after(30):
                await reached.wait()
        nursery.cancel_scope.cancel()
    return sorted(delays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pollers", type=int, default=1_000)
    parser.add_argument("--handles", type=int, default=10_000)
    parser.add_argument("--ends", type=int, default=500)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="engine-pollers-") as folder:
        place = Path(folder)
        settings = ("--slots", str(options.pollers), "--lane", "shut=0")
        more = ("--set", "min_free_bytes=0", "--set", "queue_limit=100000")
        with Gate(place / "gate") as gate, Engine(place / "home", *settings, *more) as engine:
            delays = trio.run(measure, engine, options, gate)
    each = [delays[min(len(delays) - 1, len(delays) * part // 100)] for part in (50, 95, 99)]
    shown = ", ".join(f"p{p} {d * 1000:.1f} ms" for p, d in zip((50, 95, 99), each, strict=True))
    print(f"{len(delays)} ends, from the job's leave to go to the reply: {shown}")
    sys.exit(0 if each[-1] < 0.05 and len(delays) == options.ends else 1)


if __name__ == "__main__":
    main()
