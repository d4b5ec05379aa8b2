"""Words to a keeper that lives and has a job, and words from what stands in a keeper's place."""

from __future__ import annotations

import array
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Final

import trio
from keeper.harness import Nursery, is_running, order

from engine.jobs.channel import Channel
from engine.jobs.directory import TaskDirectory
from engine.jobs.executor import LaunchRefused
from engine.jobs.localjob import LocalJob
from engine.model import Kind, TaskRecord, as_text
from engine.tasks import ending
from scripts.fuzz_wire import WORDS
from scripts.fuzzing import Fault, Target, memory_of
from scripts.mutating import vary_json

LIMIT: Final = 20.0  # seconds for the end of a connection
_ID: Final = "aaaaaa"

_WORDS_TO: Final = tuple(
    json.dumps(message).encode() + b"\n"
    for message in (
        {"op": "attach", "dir": f"/x/{_ID}"},
        {"op": "attach", "dir": "/x/other"},
        {"op": "survey", "dir": f"/x/{_ID}"},
        {"op": "write", "dir": f"/x/{_ID}", "data": "aGk=", "eof": False},
        {"op": "cancel", "dir": "/x/other", "grace": 0.5},
        {"op": "kept", "dir": f"/x/{_ID}"},
        {"op": "prepare", "dir": "/x/other", "argv": ["true"], "env": {}},
        order(Path("/x/other"), "true", fds=1),
        order(Path(f"/x/{_ID}"), "bash", "-c", "true", prologue=True, call=":", fds=1),
    )
)
_LINK_WORDS: Final = (
    *WORDS,
    b"\n",
    b'"op"',
    b'"write"',
    b'"survey"',
    b'"launch"',
    b'"attach"',
    b'"eof": true',
    b'"fds": -1',
    b"=" * 5,
)


class Kept:
    """A keeper with a job that runs until it is cancelled, and its input open."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="engine-fuzz-"))
        self.mother = Nursery(self.folder)
        self.control = self.mother.keeper()
        self.directory = self.mother.directory(_ID)
        self.control.send(order(self.directory, "sleep", "86400", stdin="open"))
        self.job: int = self.control.expect("started")["pid"]
        pid, started, _boot = os.readlink(self.directory / "claim").split()
        self.keeper = int(pid)
        self.path = str(self.mother.sockets / f"{pid}-{started}.sock")
        self._before = self._usage()
        self._nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def _usage(self) -> tuple[int, int]:
        return memory_of(self.keeper), len(os.listdir(f"/proc/{self.keeper}/fd"))

    def check(self, data: bytes) -> Hashable:
        """No word of a stranger ends the keeper or its job, or is answered with nonsense."""
        if any(_is_cancel(line) for line in data.split(b"\n")):
            return None  # that is no garbage
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(LIMIT)
            sock.connect(self.path)
            fds = array.array("i", [self._nothing] * (data.count(b"fds") % 4))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if fds else []
            seen = bytearray()
            try:
                sent = sock.sendmsg([data or b"\n"], rights)
                sock.sendall(data[sent:])
                sock.shutdown(socket.SHUT_WR)
                while more := sock.recv(1 << 16):
                    seen += more
            except (BrokenPipeError, ConnectionResetError):
                pass
        if not (is_running(self.keeper) and is_running(self.job)):
            raise Fault("the keeper or its job is gone")
        return tuple(sorted({json.loads(line)["ev"] for line in seen.splitlines() if line}))

    def finish(self) -> None:
        """Raise Fault unless the keeper is as it was, and ends its job when it is told to."""
        try:
            memory, opened = self._usage() if is_running(self.keeper) else self._before
            self.control.send({"op": "cancel", "grace": 5})  # first: a Fault leaves nobody behind
            cause = self.control.expect("ended")["record"]["cause"]
            self.control.expect("gone")
            if cause != "cancelled":
                raise Fault(f"it ended as {cause}")
            if memory - self._before[0] > 8 << 20 or opened > self._before[1]:
                raise Fault(f"from {self._before} to {memory, opened}")
        finally:
            os.close(self._nothing)
            self.mother.close()
            shutil.rmtree(self.folder)


def _is_cancel(line: bytes) -> bool:
    """Whether the keeper would be right to end its job."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(message, dict) or message.get("op") != "cancel":
        return False
    wanted = message.get("dir", _ID)
    return not isinstance(wanted, str) or os.path.basename(wanted) == _ID


_END: Final[dict[str, Any]] = {
    **dict.fromkeys(("exitCode", "durationMs", "cpuMs"), 0),
    **dict.fromkeys(("signal", "error")),
    **dict.fromkeys(("startedAt", "endedAt"), 5),
    "pid": 7,
    "cause": "exit",
    "cwd": "/",
    "survivors": [],
    "sizes": [3],
    "dropped": [[]],
}
_WORDS_FROM: Final = tuple(
    b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    for messages in (
        [
            {"ev": "started", "pid": 7, "startedAt": 5, "cwd": "/"},
            {"ev": "gone", "sizes": [0], "dropped": [[]]},
        ],
        [
            {
                "ev": "state",
                "pid": 7,
                "startedAt": 5,
                "cwd": "/",
                "record": _END,
                "sizes": [3],
                "dropped": [[]],
            }
        ],
        [{"ev": "grew", "sizes": [3, 4], "dropped": [[[0, 1]], []]}, {"ev": "absent"}],
        [{"ev": "ended", "record": _END, "payload": 0}, {"ev": "gone"}],
        [{"ev": "ended", "record": _END, "settling": "/"}, {"ev": "settled", "mishap": "x"}],
        [{"ev": "refused", "message": "x", "errno": 28}],
        [{"ev": "survivors", "survivors": []}, {"ev": "signalled", "pids": [1]}, {"ev": "taken"}],
        [{"ev": "written", "taken": 1, "isOpen": True}],
    )
)


class _Follower:
    """Makes of a job's news what the supervisor makes of them."""

    def __init__(self) -> None:
        self.record = TaskRecord(
            id=_ID, caller="ci", kind=Kind.BASH, title="x", order=1, created_at=1
        )

    def on_started(self, news: dict[str, Any]) -> None:
        as_text(news["cwd"])
        self.record = TaskRecord(
            id=_ID, caller="ci", kind=Kind.BASH, title="x", order=1, created_at=1,
            started_at=news["startedAt"], cwd=as_text(news["cwd"]),
        )  # fmt: skip

    def on_grew(self, news: dict[str, Any]) -> None:
        self.record = ending.grown(self.record, news)
        assert self.record.output_bytes >= 0, "an output of less than nothing"

    def on_blocked(self, category: str | None) -> None:
        pass

    def on_ended(self, record: dict[str, Any], state: bytes) -> None:
        self.record = ending.ended(self.record, record)
        as_text(record.get("settling") or "")

    def on_settled(self, news: dict[str, Any], state: bytes) -> None:
        assert news.get("stateLeft", 0) >= 0, "a state of less than nothing"


def check_news(data: bytes) -> Hashable:
    """What listens in a keeper's place cannot do more than have its job given up."""

    async def watch() -> str:
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        with theirs:
            theirs.setblocking(False)
            theirs.send(data[: 100 << 10] or b"\n")
        job = LocalJob(Channel(ours), TaskDirectory(Path("/x"), "x"))
        try:
            with trio.fail_after(LIMIT):
                return (await job.watch(_Follower())).name
        except LaunchRefused:
            return "refused"

    return trio.run(watch)


def _keeper() -> Target:
    kept = Kept()
    return Target(
        name="keeper", seeds=_WORDS_TO, check=kept.check, words=_LINK_WORDS, vary=vary_json,
        pumped=0, learns=False, finish=kept.finish,
    )  # fmt: skip


def _news() -> Target:
    return Target(
        name="news",
        seeds=_WORDS_FROM,
        check=check_news,
        words=_LINK_WORDS,
        vary=vary_json,
        pumped=0,
    )


MAKERS: Final[dict[str, Callable[[], Target]]] = {"keeper": _keeper, "news": _news}
