"""The clients of the soak: what is done with each job over connections that break."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from acceptance.running import RpcError

from scripts.soak_inbox import Ledger
from scripts.soak_jobs import Job, Json, end_of, first_word
from scripts.soak_lines import Line, LinkLost, NotAnswered, result_of

STORY_SECS: Final = 150.0  # for a job from its first reply to the news of its end
GRACE_SECS: Final = 0.5
HEARD: Final = 0.6  # share of the jobs whose end only the inbox is to tell


class Stories:
    """What is done with jobs once their first call is sent: each runs in a thread of the pool."""

    def __init__(self, seed: int, find_alive: Callable[[Job], list[int]], ledger: Ledger) -> None:
        """`find_alive`: the living processes of a job. `ledger`: of what the inboxes told."""
        self.counts: Counter[str] = Counter()
        self.random = random.Random(seed)
        self._find_alive, self._ledger = find_alive, ledger

    def follow(self, job: Job, line: Line, first: Future[Json]) -> None:
        """See a job to its end. What is wrong with a reply goes to the job's troubles."""
        try:
            reply = self._accept(job, line, first)
            if reply is not None and reply["status"] == "running":
                self._go_on(job, line, reply)
        except (NotAnswered, AssertionError, RpcError, OSError) as exc:
            job.troubles.append(f"{type(exc).__name__}: {exc}")

    def follow_round(self, seats: dict[str, Job], line: Line, first: Future[Json]) -> None:
        """See the seats of a round to their ends; one whose reply is lost goes its own way."""
        try:
            reply = result_of(first, 0)
            for name, job in seats.items():
                job.answers += 1
                job.handles |= {handle[1:] for handle in reply["seats"][name].values()}
            for job in seats.values():
                if self.random.random() < 0.2:
                    self._wait_end(job, line, "k" + next(iter(job.handles)))
                else:
                    self._hear_end(job)
        except LinkLost:
            return
        except (NotAnswered, AssertionError, RpcError) as exc:
            for job in seats.values():
                job.troubles.append(f"{type(exc).__name__}: {exc}")

    def _accept(self, job: Job, line: Line, first: Future[Json]) -> Json | None:
        """The first reply to the call that starts the job; None where it is lost for good."""
        futures = [first]
        while True:
            replies = []
            for future in futures:
                with contextlib.suppress(LinkLost):
                    replies.append(result_of(future, job.params["timeout_secs"]))
            for reply in replies:
                self._take(job, reply)
            job.answers += len(replies)
            if replies and job.sends == 1:
                job.first = first_word(replies[0], job.params["timeout_secs"])
            if replies or job.key is None:
                return replies[-1] if replies else None
            line.wait_up()
            twice = self.random.random() < 0.3  # as a client does that is in a hurry
            futures = [line.send(job.method, job.params) for _ in range(1 + twice)]
            job.sends += len(futures)

    def _take(self, job: Job, reply: Json) -> None:
        """Note what a reply says about the job."""
        job.handles |= {reply[name][1:] for name in ("taskId", "kickoffId") if name in reply}
        assert reply["as"] == job.caller, reply
        if reply["status"] != "running":
            job.replied.append(time.monotonic())
            job.ends.append(end_of(reply))
            if reply.get("sessionReset"):
                job.troubles.append("its end says that the session was reset")

    def _go_on(self, job: Job, line: Line, reply: Json) -> None:
        """From a running reply to the end."""
        if job.kind == "fed":
            self._feed(job, line, self._task_id(job, line, reply))
        if job.may_be_cancelled:
            time.sleep(self.random.choice([0, 0.01, 0.1, 0.5]))  # any moment will do
            self._cancel(job, line, reply["kickoffId"])
        elif self.random.random() < 0.2 and job.kind != "flood" and job.fate != "skipped":
            self._tail(job, line, self._task_id(job, line, reply))
        if self.random.random() < HEARD and not job.ends:
            self._hear_end(job)
        else:
            self._wait_end(job, line, reply["kickoffId"])

    def _task_id(self, job: Job, line: Line, reply: Json) -> str:
        """Its task id, waited for where it is queued."""
        until = time.monotonic() + STORY_SECS
        while "taskId" not in reply:
            assert time.monotonic() < until, "it is not reached"
            reply = self._ask(job, line, reply["kickoffId"], 1)
        return str(reply["taskId"])

    def _ask(self, job: Job, line: Line, handle: str, timeout_secs: float) -> Json:
        name = "taskId" if handle.startswith("t") else "kickoffId"
        reply = line.insist("wait", as_=job.caller, timeout_secs=timeout_secs, **{name: handle})
        self._take(job, reply)
        return reply

    def _wait_end(self, job: Job, line: Line, kickoff: str) -> None:
        until = time.monotonic() + STORY_SECS
        for handle in itertools.cycle([kickoff, "t" + kickoff[1:]]):
            reply = self._ask(job, line, handle, self.random.choice([0.1, 1, 5]))
            if reply["status"] != "running":
                return
            assert time.monotonic() < until, "it does not end"

    def _hear_end(self, job: Job) -> None:
        """Ask no more: its caller's inbox must tell of it."""
        (handle,) = job.handles
        assert self._ledger.wait("t" + handle, STORY_SECS), "its caller's inbox does not tell of it"

    def _cancel(self, job: Job, line: Line, kickoff: str) -> None:
        """Cancel it, again where the reply is lost; then nobody of it may be left."""
        done = line.insist("cancel", as_=job.caller, kickoffId=kickoff, grace_secs=GRACE_SECS)
        self.counts["cancelled"] += 1
        left = [f"{one['pid']} {one['command'][:80]}" for one in done["survivors"]]
        left += [str(pid) for pid in self._find_alive(job)]
        if left:
            self.counts["survivors"] += 1
            job.troubles.append(f"left after its cancel: {left}")

    def _tail(self, job: Job, line: Line, task: str) -> None:
        """Follow its output by offsets to the end; it must be what stands in the file."""
        stream = "stdout" if job.kind == "split" else "output"
        text, offset, until = "", 0, time.monotonic() + STORY_SECS
        while True:
            page = line.insist(
                "read_output", as_=job.caller, taskId=task, stream=stream, offset=offset,
                limit_bytes=self.random.choice([100, 4096, 65536]), timeout_secs=2,
            )  # fmt: skip
            assert page["offset"] == offset, page
            text, offset = text + page["text"], page["nextOffset"]
            if page["eof"]:
                break
            assert time.monotonic() < until, "its output does not end"
        path = line.insist("read_task", as_=job.caller, taskId=task)["outputPath"]
        path = path[0] if isinstance(path, list) else path
        whole = Path(path).read_bytes().decode().replace("\r\n", "\n")
        self.counts["outputs tailed"] += 1
        if text.replace("\r\n", "\n") != whole:
            job.troubles.append(f"tailed: {len(text)} characters, not those of {path}")

    def _feed(self, job: Job, line: Line, task: str) -> None:
        """Write the numbers that it waits for; those that may be lost with a reply once more."""
        at = 1
        while at <= job.lines:
            end = min(job.lines, at + self.random.choice([0, 3, 20]))
            text = "".join(f"{number}\n" for number in range(at, end + 1))
            if not self._write(job, line, task=task, text=text):
                return
            at = end + 1
        self._write(job, line, task=task, eof=True)

    def _write(self, job: Job, line: Line, *, task: str, **what: Any) -> bool:
        """False where the job does not take it any more."""
        is_repeat = False
        while True:
            line.wait_up()
            try:
                line.call("write_stdin", as_=job.caller, taskId=task, **what)
            except LinkLost:
                is_repeat = True
                continue
            except RpcError as exc:
                # Ended from outside; or the first time came through, and was the last word.
                if exc.data["kind"] == "invalid_state" and (is_repeat or not job.is_whole):
                    return False
                raise
            return True
