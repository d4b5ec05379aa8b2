"""The end of a soak: everything is looked at, the engine stopped, and the table made.

What is gathered here comes from the engine's own answers, from the files of its tasks and from
/proc; `soak_account` judges what of it is about jobs.
"""

from __future__ import annotations

import os
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from acceptance.running import Engine, wait_gone

from scripts.benching import memory
from scripts.soak_account import NEAR_SHARE, Row, Seen, View, account, near_kills, within
from scripts.soak_callers import Stories
from scripts.soak_jobs import Job, Json, end_of, number_in
from scripts.soak_lines import Line
from scripts.soak_traces import Mark, Output, lines_of
from scripts.soak_watch import Reader, Tail, chained

PAGE_LINES: Final = 1000
KILLS_A_MINUTE: Final = 10
LEAK_BYTES: Final = 16 << 20  # that the last lives may have over the first: noise
LEAK_DESCRIPTORS: Final = 12
FEW_LIVES: Final = 20  # of fewer the noise is larger
FREE_KEEPERS: Final = 16  # idle ones, and those with a shell that waits
END_SECS: Final = 10.0  # from the stop of the engine to the end of the last process

_PASSED: Final = re.compile(r"([\d,]+) lines? \(.*not in the journal")


class Usage(NamedTuple):
    """Of the engine, at one moment."""

    bytes: int
    descriptors: int

    @staticmethod
    def of(pid: int) -> Usage:
        return Usage(memory(pid), len(os.listdir(f"/proc/{pid}/fd")))


class Life(NamedTuple):
    """One engine from ready to its end (seconds since 1970), and what it had then."""

    ready_at: float
    ended_at: float
    first: Usage
    last: Usage


class End:
    """`setup`: tasks that belong to no job."""

    def __init__(
        self, engine: Engine, judge: Line, jobs: list[Job], marks: Path, setup: set[str]
    ) -> None:
        self.engine, self._judge, self._marks, self._setup = engine, judge, marks, setup
        self._jobs = {job.number: job for job in jobs}

    # -- jobs -------------------------------------------------------------------------------------

    def job_rows(self) -> tuple[list[Row], View]:
        """The account of the jobs, when all have ended."""
        for row in list(self._rows(state=["queued", "running"])):  # that nobody follows
            self._ask(row["taskId"], 20)
        late = self._ask_for_ends()
        view = self._look()
        return account(list(self._jobs.values()), view, late), view

    def _rows(self, **which: Any) -> Iterator[Json]:
        """All tasks, page by page."""
        before, has_more = None, True
        while has_more:
            page = self._judge.insist("list_tasks", caller="*", limit=500, before=before, **which)
            yield from page["tasks"]
            before, has_more = page["next"], page["hasMore"]

    def _ask_for_ends(self) -> int:
        """Ask for every end by its kickoff; how many nobody had been told of."""
        late = 0
        for row in list(self._rows()):
            job = self._jobs.get(number_in(row["title"]) or 0)
            if job is not None:
                late += not job.ends
                job.ends.append(end_of(self._ask(row["kickoffId"], 0)))
        return late

    def _ask(self, handle: str, timeout_secs: float) -> Json:
        name = "taskId" if handle.startswith("t") else "kickoffId"
        about: Json = {"logs": "none", "max_output_bytes": 0, "timeout_secs": timeout_secs}
        return self._judge.insist("wait", as_="judge", **{name: handle}, **about)

    def _look(self) -> View:
        """What there is of the jobs."""
        seen = {number: Seen() for number in self._jobs}
        view, by_task = View(seen), dict[str, int]()
        for row in self._rows():
            number = number_in(row["title"]) or 0
            if number in seen:
                seen[number].rows.append(row)
                by_task[row["taskId"]] = number
            elif row["taskId"] not in self._setup:
                view.strays.append(f"{row['taskId']} {row['title']!r} is nobody's")
        for number, one in seen.items():
            one.mark = read_mark(self._marks, number)
            for row in one.rows:
                folder = self.engine.home / "tasks" / row["taskId"][1:]
                _look_at_files(self._jobs[number], one, folder)
        self._look_at_journal(view, by_task)
        return view

    def _look_at_journal(self, view: View, by_task: dict[str, int]) -> None:
        after, has_more = 0, True
        while has_more:
            page = self._judge.insist(
                "read_logs", as_="judge", logs="debug", logScope="all", after_seq=after,
                limit=PAGE_LINES, peek=True,
            )  # fmt: skip
            for record in page["lines"]:
                view.backs += record["seq"] <= after
                after = record["seq"]
                view.journal_lines += 1
                view.journal_check = chained(view.journal_check, record)
                number = by_task.get(record["taskId"])
                if number is not None:
                    _note_record(self._jobs[number], view.jobs[number], record)
            after, has_more = page["nextAfterSeq"], page["hasMore"]
        view.head = after

    # -- what else there is -----------------------------------------------------------------------

    def left_rows(self, callers: Iterable[str]) -> list[Row]:
        """End the callers' interpreters and the engine; who or what is left then."""
        names = list(callers)
        found = Counter(map(kind_of, self.engine.processes()))
        wrong = []
        if found["keeper"] > 1 + FREE_KEEPERS + len(names):  # mother is one of them
            wrong.append(f"{found['keeper']} keepers, and nothing runs")
        for name in names:
            self._judge.insist("reset_session", as_=name, kind="python")
        code = self.engine.stop()
        if code != 0:
            wrong.append(f"the engine ended with {code}")
        for pid in self.engine.processes():
            about = f"{pid} {kind_of(pid)} {arguments(pid)[:200]!r}"
            try:
                wait_gone(pid, END_SECS)
            except AssertionError:
                wrong.append(f"left running: {about}")
        sockets = sorted(os.listdir(self.engine.home / "keepers"))
        wrong += [f"left in keepers: {name}" for name in sockets]
        now = ", ".join(f"{count} {kind}s" for kind, count in sorted(found.items()))
        left = sum("left" in words for words in wrong)
        return [
            Row("when nothing ran", now),
            Row("keepers, shells and sockets left over", str(left), wrong),
        ]

    def log_row(self) -> Row:
        text = self.engine.log_text()
        errors = re.findall(r"\[(?:error|critical)\s*\] (\w+)", text)
        words = ", ".join(f"{count} {event}" for event, count in Counter(errors).items())
        tracebacks = text.count("Traceback")
        wrong = [f"{tracebacks} in {self.engine.log}"] * bool(tracebacks)
        return Row("tracebacks in the engine's log", f"{tracebacks}; errors: {words or 0}", wrong)


def _look_at_files(job: Job, seen: Seen, folder: Path) -> None:
    for name in ("output", "stdout", "stderr"):
        path = folder / name
        if path.exists():
            data = path.read_bytes()
            seen.bytes += len(data)
            seen.files[name] = Output.of(lines_of(data), job)


def _note_record(job: Job, seen: Seen, record: Json) -> None:
    source, text = record["source"], record["text"]
    if source != "engine":
        seen.journal.setdefault(source, Output()).add(text, job)
    elif passed := _PASSED.match(text):
        seen.counted += int(passed[1].replace(",", ""))


def read_mark(marks: Path, number: int) -> Mark:
    """What the job wrote down of itself; nothing where it has not begun."""
    path = marks / str(number)
    return Mark.read(path.read_text()) if path.exists() else Mark()


# -- the engine's lives ---------------------------------------------------------------------------


def kill_rows(lives: list[Life], view: View) -> list[Row]:
    kills = [life.ended_at for life in lives[:-1]]
    downs = list(zip(kills, (life.ready_at for life in lives[1:]), strict=True))
    begins = [begin for one in view.jobs.values() for begin in one.mark.begins]
    ends = [seconds(row["endedAt"]) for one in view.jobs.values() for row in one.rows]
    near = near_kills(begins, kills)
    rate = 60 * len(kills) / max(1.0, lives[-1].ready_at - lives[0].ready_at)
    few = [f"fewer than {KILLS_A_MINUTE} a minute"] * (rate < KILLS_A_MINUTE)
    far = ["fewer than a third"] * (near < NEAR_SHARE * len(begins))
    return [
        Row("kills", f"{len(kills)}, {rate:.1f} a minute", few),
        Row("begun within 50 ms of a kill", f"{near} of {len(begins)}", far),
        Row("ended while there was no engine", str(within(ends, downs))),
    ]


def usage_rows(lives: list[Life]) -> list[Row]:
    """Memory and descriptors: of the first quarter of the lives and of the last, medians."""
    part = max(1, len(lives) // 4)
    table = []
    for moment in ("first", "last"):
        usages = [getattr(life, moment) for life in lives]
        for name, unit, noise in (
            ("bytes", 1 << 20, LEAK_BYTES),
            ("descriptors", 1, LEAK_DESCRIPTORS),
        ):
            figures = [getattr(usage, name) / unit for usage in usages]
            early, late = statistics.median(figures[:part]), statistics.median(figures[-part:])
            is_leak = len(lives) >= FEW_LIVES and (late - early) * unit > noise
            grown = ["it grows from life to life"] * is_leak
            what = "MiB of its own" if unit > 1 else name
            text = f"{early:.1f} in the first lives, {late:.1f} last, at most {max(figures):.1f}"
            when = "when ready" if moment == "first" else "at its end"
            table.append(Row(f"engine {when}: {what}", text, grown))
    return table


def client_rows(tail: Tail, reader: Reader, stories: Stories, view: View) -> list[Row]:
    tail.stop(view.head)
    reader.stop()
    wrong = [f"the tail: {tail.trouble}"] if tail.trouble else []
    if not wrong and (tail.count, tail.check) != (view.journal_lines, view.journal_check):
        wrong = [f"the tail has {tail.count} lines, the journal {view.journal_lines}"]
    if view.backs:
        wrong.append(f"{view.backs} lines of the journal out of order")
    backs = [f"{reader.backs} reads began before the end of one before"] * bool(reader.backs)
    backs += [f"the reader: {reader.trouble}"] if reader.trouble else []
    counts = stories.counts
    left = [f"{counts['survivors']} cancels"] * bool(counts["survivors"])
    return [
        Row("calls not sent: too many under way", str(counts["not sent"])),
        Row("journal, tailed by a cursor", f"{tail.count:,} of {view.journal_lines:,}", wrong),
        Row("read positions moved back", f"{reader.backs} in {reader.reads} reads", backs),
        Row("outputs tailed by offsets", str(counts["outputs tailed"])),
        Row("cancels that left survivors", f"{counts['survivors']} of {counts['cancelled']}", left),
    ]


def seconds(time: str) -> float:
    """Seconds since 1970 of a time on the wire."""
    return datetime.fromisoformat(time).timestamp()


# -- processes ------------------------------------------------------------------------------------


def arguments(pid: int | str) -> str:
    """Its command line; empty of one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def kind_of(pid: int) -> str:
    words = arguments(pid)
    if "keeper/mother.py" in words:
        return "keeper"
    return "shell" if words.partition(" ")[0].endswith("bash") else "interpreter"


def alive(job: Job) -> list[int]:
    """The processes of a job, by its task's id or by what stands in their arguments."""
    marks = {f"ENGINE_TASK_ID=t{handle}".encode() for handle in job.handles}
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if marks & set(environment) or job.token in arguments(entry):
            found.append(int(entry))
    return found
