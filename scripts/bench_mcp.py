"""What MCP costs: `make bench-mcp`.

Starts an engine in a home of its own, has agents connect by `engine mcp` as their configurations
would, and prints the time to the first reply of the first and of later ones, the memory of pipe,
helper and engine, how long `engine_info` took meanwhile, and 20 calls of 0.8 s side by side. The
limits are those of the project: exits 1 where one is passed.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.benching import ENGINE, Sampler, memory, running_engine

AGENTS: Final = 10
CALLS: Final = 20
CALL_SECS: Final = 0.8
FIRST_MAX: Final = 1.5  # seconds to the reply of the first agent
LATER_MAX: Final = 0.2
PIPE_MAX: Final = 20 << 20  # bytes
INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}


class Agent:
    """`engine mcp`, and the time from its start to its first reply."""

    def __init__(self, home: Path) -> None:
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [str(ENGINE), "--home", str(home), "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.send(INITIALIZE)
        self.receive()
        self.first_reply = time.perf_counter() - began
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    @property
    def memory(self) -> int:
        return memory(self._process.pid, "Rss")

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def call(self, id_: int, command: str, **more: Any) -> None:
        arguments = {"command": command, **more}
        params = {"name": "bash", "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params})

    def close(self) -> None:
        self._process.communicate(timeout=10)


def helper_of(engine: int) -> int:
    """The pid of the engine's MCP helper."""
    for thread in Path(f"/proc/{engine}/task").iterdir():
        for pid in (thread / "children").read_text().split():
            if b"engine.mcp.helper" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    raise ValueError("there is no helper")


def show_looks(when: str, took: list[float]) -> None:
    """`took`: milliseconds."""
    took = sorted(took)
    p99 = took[len(took) * 99 // 100]
    print(f"engine_info {when:<24} {statistics.median(took):7.2f} ms,", end=" ")
    print(f"99 of 100 {p99:.2f}, worst {took[-1]:.2f}")


def measure(home: Path, engine: int) -> list[str]:
    """Print what there is to see; the limits that were passed come back."""
    with Sampler(home) as sampler:
        time.sleep(1.0)
        quiet, before = time.time(), memory(engine)
        agents = [Agent(home)]
        started = time.time()
        agents += [Agent(home) for _ in range(AGENTS)]
    show_looks("before", sampler.times(end=quiet))
    show_looks("while the helper starts", sampler.times(quiet, started))
    show_looks("while agents connect", sampler.times(started))
    first, later = agents[0].first_reply, [agent.first_reply for agent in agents[1:]]
    pipe = max(agent.memory for agent in agents)
    print(f"first reply, first agent      {first * 1000:7.0f} ms")
    middle, worst = statistics.median(later) * 1000, max(later) * 1000
    print(f"first reply, later agents     {middle:7.0f} ms, worst {worst:.0f}")
    print(f"memory of a pipe, resident    {pipe / 1e6:7.1f} MB")
    print(f"memory of the helper, its own {memory(helper_of(engine)) / 1e6:7.1f} MB")
    print(f"memory of the engine, its own {before / 1e6:7.1f} MB, then", end=" ")
    print(f"{memory(engine) / 1e6:.1f} MB with {len(agents)} agents")
    side_by_side(agents[0])
    for agent in agents:
        agent.close()
    passed = {
        f"the first reply took more than {FIRST_MAX} s": first > FIRST_MAX,
        f"a later first reply took more than {LATER_MAX} s": middle / 1000 > LATER_MAX,
        f"a pipe has more than {PIPE_MAX} bytes": pipe > PIPE_MAX,
    }
    return [limit for limit, is_passed in passed.items() if is_passed]


def side_by_side(agent: Agent) -> None:
    began = time.perf_counter()
    for number in range(CALLS):
        agent.call(number + 1, f"sleep {CALL_SECS}", session=False)
    for _ in range(CALLS):
        agent.receive()
    took = time.perf_counter() - began
    print(f"{CALLS} calls of {CALL_SECS} s side by side {took * 1000:7.0f} ms")


def main() -> int:
    with running_engine("--slots", "100", "--set", "min_free_bytes=0") as (home, engine):
        passed = measure(home, engine)
    for limit in passed:
        print(f"NOT MET: {limit}")
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
