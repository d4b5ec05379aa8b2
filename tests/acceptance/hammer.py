"""Bursts of jobs, the engine killed at a random moment, started again, and every job accounted for.

Each job appends one line to a file of its own, so that a second run, or none, shows. What a reply
has named must resolve, with the right output and code; what no reply named ran once or not at all.
"""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from acceptance.running import Client, Engine, Pending
from websockets.exceptions import ConnectionClosed

LINE: Final = "ran\n"


@dataclass
class Job:
    """One call: what it should print and exit with, and what is known of it."""

    number: int
    caller: str
    code: int
    key: str | None
    params: dict[str, Any]
    handles: set[str] = field(default_factory=set)  # without their letter: those of all replies
    error: dict[str, Any] | None = None

    @property
    def output(self) -> str:
        return f"begin {self.number}\nend {self.number}\n"


class Hammer:
    """Goes on with the same home round after round; `marks` is where the jobs leave their lines."""

    def __init__(self, engine: Engine, marks: Path, seed: int) -> None:
        self.engine, self.marks = engine, marks
        self.random = random.Random(seed)
        self.jobs: list[Job] = []
        self.latest_seq = 0
        self._numbers = itertools.count(1)

    def round(self, count: int, *, kill_within: float) -> None:
        """Send `count` calls, kill the engine at a random moment, start it again."""
        with self.engine.connect() as client:
            sent = [(job, self._send(client, job)) for job in self._make(count)]
            kill_at = time.monotonic() + self.random.uniform(0, kill_within)
            for job, pending in sent:
                if not _take_reply(job, pending, kill_at - time.monotonic()):
                    break
            time.sleep(max(0.0, kill_at - time.monotonic()))
            self.engine.kill()
            for job, pending in sent:  # what was written before it died
                _take_reply(job, pending, 5.0)
        self.engine.start()
        self._check_seq()

    def _make(self, count: int) -> list[Job]:
        made = []
        for _ in range(count):
            number, code = next(self._numbers), self.random.choice([0, 0, 1, 7, 255])
            seconds = self.random.choice([0, 0, 0.01, 0.05, 0.3])
            text = (
                f"echo begin {number}; echo ran >> {self.marks}/{number}; sleep {seconds}; "
                f"echo end {number}; exit {code}"
            )
            key = self.random.choice([None, f"key-{number}"])
            params: dict[str, Any] = {"as": f"c{self.random.randrange(4)}", "key": key}
            params["timeout_secs"] = self.random.choice([0, 0.02, 20])
            if self.random.random() < 0.5:
                params |= {"method": "bash", "command": text, "session": number % 2 == 0}
            else:
                params |= {"method": "execute", "argv": ["bash", "-c", text]}
            made.append(Job(number, params["as"], code, key, params))
        self.jobs += made
        return made

    def _send(self, client: Client, job: Job) -> Pending:
        method = job.params["method"]
        return client.send(method, {k: v for k, v in job.params.items() if k != "method"})

    def _check_seq(self) -> None:
        """No number of a change is given out twice: the newest never goes back."""
        with self.engine.connect() as client:
            page = client.call("list_tasks", caller="*", limit=1)
        assert page["latestSeq"] >= self.latest_seq
        self.latest_seq = page["latestSeq"]

    # -- the account ------------------------------------------------------------------------------

    def settle(self) -> dict[str, int]:
        """Check every job; how many there were of each sort. Raises AssertionError."""
        counts = {"answered": 0, "unanswered, ran": 0, "unanswered, not begun": 0}
        with self.engine.connect() as client:
            for job in self.jobs:
                if job.key is not None:  # asked again, it must be the same run
                    _take_reply(job, self._send(client, job), 30.0)
                assert len(job.handles) <= 1, (job, "two tasks for one call")
                if job.handles:
                    self._check_answered(client, job)
                    counts["answered"] += 1
            self._wait_all_ended(client)
            for job in self.jobs:
                ran = self._lines(job)
                if not job.handles:
                    assert ran in ("", LINE), (job, ran)
                    counts["unanswered, ran" if ran else "unanswered, not begun"] += 1
            self._check_list(client)
        return counts

    def _check_answered(self, client: Client, job: Job) -> None:
        (handle,) = job.handles
        for name, letter in (("taskId", "t"), ("kickoffId", "k")):
            end = client.call("wait", {"as": "judge", name: letter + handle})
            facts = (end["status"], end["exitCode"], end["output"], end["as"])
            status = "succeeded" if job.code == 0 else "failed"
            assert facts == (status, job.code, job.output, job.caller), (job, end)
            assert end["startedAt"] <= end["endedAt"], end
        assert self._lines(job) == LINE, (job, self._lines(job))

    def _wait_all_ended(self, client: Client) -> None:
        for row in _rows(client):
            client.call("wait", {"as": "judge", "taskId": row["taskId"]})

    def _check_list(self, client: Client) -> None:
        """As many tasks as jobs that ran: none twice, none gone; orders and numbers distinct."""
        rows = _rows(client)
        ran = sum(self._lines(job) == LINE for job in self.jobs)
        assert len(rows) == ran, (len(rows), ran)
        assert {row["status"] for row in rows} <= {"succeeded", "failed"}
        assert len({row["taskId"] for row in rows}) == len({row["changedSeq"] for row in rows})

    def _lines(self, job: Job) -> str:
        path = self.marks / str(job.number)
        return path.read_text() if path.exists() else ""


def _rows(client: Client) -> list[dict[str, Any]]:
    """All tasks of the home, page by page."""
    rows: list[dict[str, Any]] = []
    page: dict[str, Any] = {"hasMore": True, "next": None}
    while page["hasMore"]:
        page = client.call("list_tasks", caller="*", limit=500, before=page["next"])
        rows += page["tasks"]
    return rows


def _take_reply(job: Job, pending: Pending, limit: float) -> bool:
    """Note what the reply says; False where none came in time, or the engine is dead."""
    try:
        message = pending.message(max(0.0, limit))
    except (TimeoutError, ConnectionClosed):
        return False
    if "error" in message:
        raise AssertionError((job, message))
    job.handles.add(message["result"]["kickoffId"][1:])
    return True
