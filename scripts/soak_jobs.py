"""The jobs of the soak: what each is asked to do, prints and ends with. Pure.

A job prints lines with its number and theirs. Beside its output it keeps a file of its own, its
*mark*: when it began, one line behind each line that it printed, and that it came to its end. So
it is known what happened whatever the engine says of it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

FOREVER: Final = 86_400  # seconds that code sleeps which is to be ended; of the others `token`
DEADLINE_SECS: Final = 1.0
MARGIN_SECS: Final = 0.1  # within which nobody knows whether an end was within the budget
WARNING_EVERY: Final = 10  # lines; a flood keeps these in the journal
FLOOD_LINES: Final = 40_000
FLOOD_WIDTH: Final = 560  # characters beside the numbers: with them 22 MiB, which is a flood
CODES: Final = (0, 0, 0, 1, 3, 7, 42, 255)

# Kind -> how often it is drawn. In the callers' sessions: `session` (bash) and `code` (Python).
KINDS: Final = {
    "session": 5, "shell": 5, "argv": 5, "split": 3, "pty": 2, "fed": 2, "code": 3, "fresh code": 1,
}  # fmt: skip
# How it ends -> how often. `either`: cancelled at about the moment at which it ends by itself.
FATES: Final = {"ends": 14, "cancelled": 3, "either": 2, "killed": 2, "deadline": 1}
# Of those in a burst, which are to begin at once.
QUICK_KINDS: Final = {kind: weight for kind, weight in KINDS.items() if "code" not in kind}
QUICK_FATES: Final = {"ends": 8, "killed": 1, "either": 1}
SESSIONS: Final = ("session", "code")


@dataclass
class Job:
    """What is asked, and behind it what its clients were told."""

    number: int
    caller: str
    kind: str
    fate: str
    lines: int
    code: int
    token: str = ""  # stands in the arguments of its processes, and of no other's
    method: str = "bash"
    params: Json = field(default_factory=dict)
    width: int = 0
    key: str | None = None
    sends: int = 0  # of the call that starts it
    answers: int = 0  # to those
    handles: set[str] = field(default_factory=set)  # of all replies, without their letter
    first: str = "lost"  # or what the first reply to the first call said: see `first_word`
    ends: list[tuple[Any, ...]] = field(default_factory=list)  # told by replies: see `end_of`
    replied: list[float] = field(default_factory=list)  # when replies told its caller of its end
    before: Job | None = None  # the one that it waits for
    is_seat: bool = False
    troubles: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether it prints all its lines, however it ends."""
        return self.fate in ("ends", "killed")

    @property
    def may_be_cancelled(self) -> bool:
        return self.fate in ("cancelled", "either")

    @property
    def own_end(self) -> tuple[Any, ...]:
        """Status, exit code, signal and reason, if nobody ends it before."""
        if self.fate == "killed":
            return ("failed", None, "SIGKILL", "signal")
        return ("succeeded" if self.code == 0 else "failed", self.code, None, "exit")

    def ends_well(self, end: tuple[Any, ...]) -> bool:
        """Whether it may have ended so."""
        match self.fate:
            case "cancelled":
                return bool(end[0] == "cancelled")
            case "deadline":
                return (end[0], end[3]) == ("timed_out", "deadline")
            case "either":
                return bool(end[0] == "cancelled") or end == self.own_end
            case "skipped":
                return end == ("skipped", None, None, "skipped")
        return end == self.own_end

    def line(self, number: int) -> str:
        word = "" if number % WARNING_EVERY else "warning: "
        return f"{word}j{self.number} {number} {'x' * self.width}"

    def __str__(self) -> str:
        task = "/".join(f"t{handle}" for handle in sorted(self.handles)) or "no handle"
        return f"job {self.number} ({task}, {self.kind}, {self.fate}, of {self.caller})"


def end_of(reply: Json) -> tuple[Any, ...]:
    return (reply["status"], reply["exitCode"], reply["signal"], reply["reason"])


def first_word(reply: Json, timeout_secs: float) -> str:
    """`inline`: it ended within the call's budget; `late`: it ended, perhaps behind it; else
    `running` or `queued`.
    """
    if reply["status"] == "running":
        return "running" if "taskId" in reply else "queued"
    began, ended = (datetime.fromisoformat(reply[name]) for name in ("createdAt", "endedAt"))
    is_soon = (ended - began).total_seconds() < timeout_secs - MARGIN_SECS
    return "inline" if is_soon else "late"


def title(number: int) -> str:
    """The first line of every job's text: by it a task is known whose call had no reply."""
    return f": soak {number}"


def number_in(text: str) -> int | None:
    """The job whose task has this title."""
    found = re.search(r"(?::|#) soak (\d+)$", text)
    return int(found[1]) if found else None


@dataclass
class Maker:
    """Makes jobs. `marks`: where they keep their marks; `places`: directories `d0` to `d3`.

    `bell`: where those of bash write a line when they begin.
    """

    random: random.Random
    marks: Path
    places: Path
    bell: Path
    run: int  # six digits, which no other soak has

    def make(self, number: int, caller: str, kind: str, fate: str, *, is_short: bool) -> Job:
        """A job; `is_short`: it is soon over, and ends by itself."""
        lines = self.random.choice([1, 2, 5, 10, 20, 30] if is_short else [5, 20, 40, 120])
        pause = self.random.choice([0, 0.01, 0.03] if is_short else [0, 0.02, 0.1, 0.3])
        job = Job(
            number, caller, kind, fate, lines, self.random.choice(CODES), self.token_of(number)
        )
        job.width = self._width(kind)
        if kind == "flood":
            job.lines, job.method = FLOOD_LINES, "execute"
            job.params = {"argv": ["bash", "-c", self._flood(job)]}
        elif kind.endswith("code"):
            job.method = "execute"
            job.params = {"code": self._code(job, pause), "session": kind == "code"}
        else:
            job.params = self._shell_params(job, pause)
        if fate == "deadline":
            job.params["deadline_secs"] = DEADLINE_SECS
        if fate not in ("ends", "killed") or kind == "fed" or self.random.random() < 0.6:
            job.key = job.params["key"] = f"key-{number}"
        is_patient = fate in ("ends", "killed") and kind != "fed"
        job.params |= {
            "as": caller,
            "timeout_secs": self.random.choice([0, 0.05, 0.3, *([2, 20] if is_patient else [])]),
            "logs": self.random.choice(["none", "warning", "info"]),
        }
        return job

    def token_of(self, number: int) -> str:
        """A number of seconds, for a `sleep` that is to be ended."""
        return f"{self.run}.{number:07}"

    def _width(self, kind: str) -> int:
        return FLOOD_WIDTH if kind == "flood" else self.random.choice([0, 20, 60, 200])

    def _shell_params(self, job: Job, pause: float) -> Json:
        text = self._text(job, pause)
        match job.kind:
            case "session":
                return {"command": text}
            case "argv":
                job.method = "execute"
                return {"argv": ["bash", "-c", text]}
            case "split":
                return {"command": text, "session": False, "streams": "split"}
            case "pty":
                return {"command": text, "session": False, "pty": True}
            case "fed":
                return {"command": text, "session": False, "stdin": "open"}
        return {"command": text, "session": False}

    def _text(self, job: Job, pause: float) -> str:
        mark, split = self.marks / str(job.number), " >&$((i % 2 ? 1 : 2))"
        print_line = (
            f"p=; ((i % {WARNING_EVERY})) || p='warning: '; "
            f'echo "${{p}}j{job.number} $i $x"{split if job.kind == "split" else ""}; echo $i >&9'
        )
        if job.kind == "fed":  # a number that came before is a repeat of its sender's
            loop = f"n=1; while read -r i; do ((i == n)) || continue; n=$((n + 1)); {print_line}"
        else:
            loop = f"for ((i = 1; i <= {job.lines}; i++)); do {print_line}"
        if pause:
            loop += f"; ((i % 5)) || sleep {pause}"
        begin = f'echo "begin $EPOCHREALTIME" >&9; echo >>{self.bell}'
        parts = [title(job.number), f"exec 9>>{mark}", begin]
        if job.kind == "session":
            parts += ["F=; f 2>/dev/null", 'echo "found ${V-none} ${F:-none} ${PWD##*/}"']
        parts += [f"x={'x' * job.width}", f"{loop}; done"]
        if job.kind == "session":
            n = job.number
            parts += [f"V={n}; f() {{ F={n}; }}; cd {self.places}/d{n % 4}"]
        return "\n".join([*parts, "echo end >&9", self._last(job)])

    def _last(self, job: Job) -> str:
        if job.fate == "killed":
            return "kill -KILL $$"
        if job.fate in ("cancelled", "deadline"):  # some of it flees
            flee = self.random.choice(["setsid", "nohup", "env -i", "set -m;"])
            path = "" if flee == "env -i" else "exec "
            where = ">/dev/null 2>&1 </dev/null"
            return f"({flee} sleep {job.token} {where} &); {path}sleep {job.token}"
        return f"exit {job.code}"

    def _flood(self, job: Job) -> str:
        x = "x" * job.width
        return "\n".join(
            [
                title(job.number),
                f'echo "begin $EPOCHREALTIME" >>{self.marks / str(job.number)}; b=; x={x}',
                f"for ((i = 1; i <= {job.lines}; i++)); do",
                f"  p=; ((i % {WARNING_EVERY})) || p='warning: '",
                f"  b+=\"${{p}}j{job.number} $i $x\"$'\\n'",
                '  ((i % 50)) || { printf %s "$b"; b=; }',
                f'done; printf %s "$b"; echo end >>{self.marks / str(job.number)}',
                f"exit {job.code}",
            ]
        )

    def _code(self, job: Job, pause: float) -> str:
        # A line and its end are one write: an interrupt may come between two.
        sleep = f"        if not _i % 5: _time.sleep({pause})\n" if pause else ""
        is_endless = job.fate in ("cancelled", "deadline")
        last = f"_time.sleep({FOREVER})" if is_endless else f"_sys.exit({job.code})"
        if job.fate == "killed":
            last = "import os; os.kill(os.getpid(), 9)"
        name = f"# soak {job.number}\n"
        found = "_v = globals().get('V', 'none')\n_sys.stdout.write(f'found {_v} {_v} {_v}\\n')\n"
        return (
            f"{name}import sys as _sys, time as _time\n"
            f"with open({str(self.marks / str(job.number))!r}, 'a', buffering=1) as _m:\n"
            f"    _m.write(f'begin {{_time.time()}}\\n')\n"
            f"    {found.replace(chr(10), chr(10) + '    ').rstrip()}\n"
            f"    for _i in range(1, {job.lines} + 1):\n"
            f"        _w = '' if _i % {WARNING_EVERY} else 'warning: '\n"
            f"        _sys.stdout.write(f'{{_w}}j{job.number} {{_i}} {'x' * job.width}\\n')\n"
            f"        _m.write(f'{{_i}}\\n')\n"
            f"{sleep}"
            f"    V = {job.number}\n"
            f"    _m.write('end\\n')\n"
            f"{last}\n"
        )
