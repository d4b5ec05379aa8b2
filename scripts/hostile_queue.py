"""20,000 calls that wait for their turn: what others notice, cancelled at once, and over a restart.

The queue is filled over one connection, one slot being held. Looked at: the times of a well-behaved
client all along, pages and positions, the cancel of all, and after a restart that each was begun
once and in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from acceptance.running import Client, Engine

from scripts.hostile_watch import Probe, percentile, resident

COUNT: Final = 20_000
GOAL_MS: Final = 100.0
GROUP: Final = 50  # calls sent before their replies are read
END_SECS: Final = 600.0


class Queue:
    """One engine with one slot for the queue's caller, and what was seen of it."""

    def __init__(self, home: Path, count: int, goal_ms: float, quiet_secs: float) -> None:
        self.engine = Engine(
            home, "--slots", "1", "--set", f"queue_limit={count}", "--set", "min_free_bytes=0",
            "--set", f"max_tasks_per_caller={2 * count}",
        )  # fmt: skip
        self.goal_ms, self.quiet_secs = goal_ms, quiet_secs
        self.count, self.done = count, home.parent / "done"
        self.rows: list[str] = []
        self.faults: list[str] = []

    def say(self, row: str) -> None:
        self.rows.append(row)
        print(row, flush=True)

    def check(self, what: str, found: object, right: object) -> None:
        if found != right:
            self.faults.append(f"queue: {what}: {found!r}, not {right!r}")

    def step(self, what: str, work: Callable[[], object]) -> None:
        """Do a step of it, and note how long it took and what others noticed."""
        with self.engine.connect() as client, Probe(client, 0.01, "engine_info") as probe:
            time.sleep(self.quiet_secs)
            begin = time.monotonic()
            work()
            end = time.monotonic()
            time.sleep(self.quiet_secs)
        times = probe.times(begin, end) or [0.0, 0.0]
        times = times if len(times) > 1 else times * 2
        p99 = percentile(times, 99)
        self.say(
            f"{what:42} {end - begin:7.2f} s   engine_info p50 {percentile(times, 50):6.1f}"
            f"  p99 {p99:6.1f}  max {max(times):6.1f} ms  n {len(times):5}"
            f"   {resident(self.engine.pid):4.0f} MiB"
        )
        if p99 > self.goal_ms:
            self.faults.append(f"queue: {what}: p99 {p99:.0f} ms")

    def fill(self, client: Client, held: str) -> None:
        """One that holds the slot, as many behind it as the queue takes, and one too many."""
        client.call("bash", as_="queued", command=held, session=False, timeout_secs=0)
        for start in range(0, self.count, GROUP):
            pending = [
                client.send(
                    "execute", as_="queued", timeout_secs=0,
                    argv=["sh", "-c", f"echo {number} >> {self.done}"],
                )
                for number in range(start, start + GROUP)
            ]  # fmt: skip
            for number, each in zip(range(start, start + GROUP), pending, strict=True):
                self.check("position", each.result()["queuePosition"], number + 1)
        refused = client.refuse("execute", as_="queued", argv=["true"])
        self.check("one too many", refused["data"].get("limit"), self.count)

    def look(self, client: Client) -> None:
        """Page through all of them: each is there once, in its place."""
        places: list[int] = []
        before: Any = None
        while True:
            page = client.call(
                "list_tasks", as_="queued", state=["queued"], limit=500, before=before
            )
            places += [row["queuePosition"] for row in page["tasks"]]
            before = page["next"]
            if not page["hasMore"]:
                break
        self.check("places", places, list(range(self.count, 0, -1)))

    def cancel(self, client: Client) -> None:
        done = client.send("cancel", as_="queued", caller="queued", grace_secs=1)
        message = done.message(END_SECS)
        self.check("cancelled", message.get("result", message).get("count"), self.count + 1)
        info = client.call("engine_info")
        self.check("left", (info["running"], info["queued"]), (0, 0))

    def run_out(self, client: Client) -> None:
        """Let the slot go, and wait until the queue has run empty."""
        client.call("cancel", as_="queued", taskId=self.holder(client), grace_secs=0)
        until = time.monotonic() + END_SECS
        after = 0
        while client.call("engine_info")["queued"] and time.monotonic() < until:
            page = client.call(
                "list_tasks", as_="queued", changed_after=after, limit=500, timeout_secs=5
            )
            after = page["nextChangedAfter"]
        info = client.call("engine_info")
        while info["running"] and time.monotonic() < until:
            time.sleep(0.05)
            info = client.call("engine_info")
        order = [int(line) for line in self.done.read_text().split()]
        self.check("begun", (len(order), len(set(order))), (self.count, self.count))
        self.check("in order", order == sorted(order), True)

    def holder(self, client: Client) -> str:
        page = client.call("list_tasks", as_="queued", state=["running"])
        found: str = page["tasks"][0]["taskId"]
        return found


def queue_rows(
    home: Path, count: int = COUNT, goal_ms: float = GOAL_MS, quiet_secs: float = 0.5
) -> tuple[list[str], list[str]]:
    """What was seen, which is printed too, and what was wrong."""
    queue = Queue(home, count, goal_ms, quiet_secs)
    with queue.engine as engine:
        with engine.connect() as client:
            held = "exec sleep 3600"
            queue.step(f"{count:,} calls queued", lambda: queue.fill(client, held))
            queue.step("all of them listed, with their places", lambda: queue.look(client))
            queue.step("all of them cancelled by one call", lambda: queue.cancel(client))
            queue.step("queued again", lambda: queue.fill(client, held))
        engine.kill()
        begin = time.monotonic()
        engine.start()
        took = time.monotonic() - begin
        queue.say(f"{'killed; ready again with all of them':42} {took:7.2f} s")
        with engine.connect() as client:
            queue.step("listed after the restart", lambda: queue.look(client))
            queue.step("run, one by one", lambda: queue.run_out(client))
    return queue.rows, queue.faults
