"""The account of a soak: what each job did by its own word, against what is said of it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from scripts.soak_jobs import SESSIONS, WARNING_EVERY, Job, Json, end_of
from scripts.soak_traces import Mark, Output

NEAR_SECS: Final = 0.05  # that a job begins before a kill or behind it, to count as near
NEAR_SHARE: Final = 1 / 3  # of all jobs


@dataclass
class Seen:
    """What is there of one job."""

    rows: list[Json] = field(default_factory=list)
    mark: Mark = field(default_factory=Mark)
    files: dict[str, Output] = field(default_factory=dict)  # by the name of the output
    bytes: int = 0
    journal: dict[str, Output] = field(default_factory=dict)  # by source
    counted: int = 0  # lines that the journal says that it has not

    @property
    def has_begun(self) -> bool:
        """By its own word; one that was ended before it had any, by the engine's."""
        return bool(self.mark.begins) or any(row["startedAt"] for row in self.rows)

    @property
    def found(self) -> tuple[str, ...] | None:
        return next((output.found for output in self.files.values() if output.found), None)

    @property
    def line_count(self) -> int:
        return sum(len(output.numbers) for output in self.files.values())


@dataclass
class View:
    """All of it."""

    jobs: dict[int, Seen]
    strays: list[str] = field(default_factory=list)  # tasks that are nobody's
    head: int = 0
    journal_lines: int = 0
    journal_check: int = 0
    backs: int = 0  # lines of the journal whose number is not greater than the one before


# -- one job --------------------------------------------------------------------------------------


def complaints(job: Job, seen: Seen) -> Iterator[tuple[str, str]]:
    """What is wrong with it: which line of the table, and words to find it by."""
    for trouble in job.troubles:
        yield "replies", trouble
    if len(seen.mark.begins) > 1 or len(seen.rows) > 1 or len(job.handles) > 1:
        tasks = [row["taskId"] for row in seen.rows]
        yield "begun twice", f"begun {len(seen.mark.begins)} times; its tasks are {tasks}"
    if not seen.rows and (job.handles or seen.mark.begins):
        yield "gone", f"there is no task; begun {len(seen.mark.begins)} times"
    for row in seen.rows[:1]:
        yield from _end_complaints(job, seen, row)
        yield from _line_complaints(job, seen, row)
        yield from _journal_complaints(job, seen)


def _end_complaints(job: Job, seen: Seen, row: Json) -> Iterator[tuple[str, str]]:
    end = end_of(row)
    if not job.ends_well(end):
        yield "codes", f"ended with {end}, not {job.own_end}"
    elif not seen.mark.begins and not _may_be_cut(job, end):
        yield "codes", f"ended with {end}, and has not begun"
    if not job.ends:
        yield "told", "no reply has told its end"
    elif set(job.ends) != {end}:
        yield "told", f"told {set(job.ends)}, and its row says {end}"
    if job.handles and row["taskId"][1:] not in job.handles:
        yield "gone", f"its task is {row['taskId']}"


def _may_be_cut(job: Job, end: tuple[Any, ...]) -> bool:
    """Whether it may have ended at any point of its way."""
    return not job.is_whole and end[0] in ("cancelled", "timed_out", "skipped")


def _line_complaints(job: Job, seen: Seen, row: Json) -> Iterator[tuple[str, str]]:
    if row["outputBytes"] != seen.bytes:
        yield "lines", f"{row['outputBytes']} bytes by its row, {seen.bytes} in its files"
    numbers = sorted(n for output in seen.files.values() for n in output.numbers)
    is_in_order = all(o.numbers == sorted(o.numbers) for o in seen.files.values())
    count = len(numbers)
    if numbers != list(range(1, count + 1)) or not is_in_order:
        yield "lines", f"not the lines from 1 to {count}, each once and in order"
    if job.kind == "flood" or not _may_be_cut(job, end_of(row)):
        if count != job.lines:
            yield "lines", f"{count} lines in its output, {job.lines} wanted"
    elif not seen.mark.lines <= count <= seen.mark.lines + 1:
        yield "lines", f"{count} lines in its output, {seen.mark.lines} written"
    if (job.kind in SESSIONS or job.kind == "fresh code") and numbers and seen.found is None:
        yield "lines", "the line about its session is not there"
    if job.kind == "fresh code" and seen.found not in (None, ("none", "none", "none")):
        yield "sessions", f"found {seen.found} in an interpreter of its own"
    wrong = [text for output in seen.files.values() for text in output.wrong]
    if wrong and not (job.kind.endswith("code") and _may_be_cut(job, end_of(row))):
        yield "lines", f"strange lines in its output: {wrong[:3]}"


def _journal_complaints(job: Job, seen: Seen) -> Iterator[tuple[str, str]]:
    if job.kind == "flood":
        yield from _flood_complaints(job, seen)
        return
    if seen.counted:
        yield "journal", f"{seen.counted} lines counted and not stored"
    for name, output in seen.files.items():
        stored = seen.journal.get(name, Output())
        if (stored.count, stored.check) != (output.count, output.check):
            missing = sorted(set(output.numbers) - set(stored.numbers))
            yield (
                "journal",
                f"{stored.count} lines of {name} in the journal, {output.count} in the file;"
                f" missing {missing[:5]}, in order: {stored.is_in_order}",
            )
    if strange := seen.journal.keys() - seen.files.keys():
        yield "journal", f"lines of {strange}, which is not there"


def _flood_complaints(job: Job, seen: Seen) -> Iterator[tuple[str, str]]:
    """Stored and counted must make up what it wrote; its warnings are all stored."""
    stored = seen.journal.get("output", Output())
    if len(stored.numbers) + seen.counted != seen.line_count or stored.wrong:
        yield (
            "journal",
            f"of {seen.line_count} lines {len(stored.numbers)} stored, {seen.counted} counted;"
            f" strange: {stored.wrong[:3]}",
        )
    if stored.numbers != sorted(set(stored.numbers)):
        yield "journal", "lines of a flood twice or out of order"
    warnings = set(range(WARNING_EVERY, job.lines + 1, WARNING_EVERY))
    if missing := sorted(warnings - set(stored.numbers)):
        yield "journal", f"{len(missing)} warnings of a flood are not there: {missing[:5]}"


# -- sessions -------------------------------------------------------------------------------------


def shell_complaints(jobs: Iterable[Job], view: View) -> Iterator[tuple[Job, str]]:
    """What is wrong with the bash session of a caller, whose calls in it came one by one.

    A call whose end its own reply told has committed; one that was promoted has not; of one whose
    reply was lost, or told an end at the edge of its budget, nobody knows. A call that had to wait
    may have begun later.
    """
    order = list(jobs)
    possible = [{"0"}]  # before each call
    for job in order:
        now = set(possible[-1])
        if job.first == "inline" and job.ends[0][3] == "exit":
            now = {str(job.number)}
        elif job.first in ("lost", "late"):
            now.add(str(job.number))
        possible.append(now)
    for at, job in enumerate(order):
        found = view.jobs[job.number].found
        is_late = job.first in ("lost", "queued")
        allowed = set().union(*possible[at:]) if is_late else possible[at]
        if found is not None and not _is_of_one(found, allowed):
            yield job, f"found {found} in its session, not of {sorted(allowed)[:5]}"


def _is_of_one(found: tuple[str, ...], allowed: set[str]) -> bool:
    """Whether variable, function and directory are those that one of these calls left."""
    value, by_function, place = found
    function = "none" if value == "0" else value
    return value in allowed and by_function == function and place == f"d{int(value) % 4}"


def python_complaints(jobs: Iterable[Job], view: View) -> Iterator[tuple[Job, str]]:
    """What is wrong with the Python session of a caller: there each call sees the one before."""
    begun = [job for job in jobs if view.jobs[job.number].mark.begins]
    possible = {"0"}
    for job in sorted(begun, key=lambda job: view.jobs[job.number].mark.begins[0]):
        seen, mine = view.jobs[job.number], str(job.number)
        if seen.found is not None and seen.found[0] not in possible:
            yield job, f"found {seen.found[0]!r} in its session, not of {sorted(possible)}"
        # One that was interrupted may have got as far, or not.
        possible = {mine} if seen.mark.has_ended else possible | {mine}


# -- kills ----------------------------------------------------------------------------------------


def near_kills(times: Iterable[float], kills: Iterable[float]) -> int:
    """How many of these moments are near to a kill."""
    near = list(kills)
    return sum(any(abs(time - kill) <= NEAR_SECS for kill in near) for time in times)


def within(times: Iterable[float], spans: Iterable[tuple[float, float]]) -> int:
    """How many of these moments lie in one of the spans."""
    known = list(spans)
    return sum(any(begin <= time < end for begin, end in known) for time in times)


# -- the table ------------------------------------------------------------------------------------


@dataclass
class Row:
    """A line of the table; `wrong`: what is not as it should be, with words to find it by."""

    what: str
    value: str
    wrong: list[str] = field(default_factory=list)


class Complaints:
    """All of them, by the line of the table to which they belong."""

    def __init__(self, jobs: list[Job], view: View) -> None:
        self._found: defaultdict[str, list[str]] = defaultdict(list)
        for job in jobs:
            for where, words in complaints(job, view.jobs[job.number]):
                self._found[where].append(f"{job}: {words}")
        for kind, check in (("session", shell_complaints), ("code", python_complaints)):
            for caller in sorted({job.caller for job in jobs}):
                own = [job for job in jobs if (job.caller, job.kind) == (caller, kind)]
                self._found["sessions"] += [f"{job}: {words}" for job, words in check(own, view)]

    def of(self, where: str) -> list[str]:
        return self._found[where]


def account(jobs: list[Job], view: View, lost_ends: int) -> list[Row]:
    """The table's lines about jobs. `lost_ends`: ends that were asked for at last."""
    wrong = Complaints(jobs, view)
    seen = [view.jobs[job.number] for job in jobs]
    accepted = [one for one in seen if one.rows]
    unbegun = [one for one in accepted if not one.has_begun]
    silent = [job for job, one in zip(jobs, seen, strict=True) if not one.rows and not job.handles]
    written = sum(
        max(one.mark.lines, 0) if job.kind != "flood" else job.lines * one.mark.has_ended
        for job, one in zip(jobs, seen, strict=True)
    )
    in_outputs = sum(one.line_count for one in seen)
    floods = [one for job, one in zip(jobs, seen, strict=True) if job.kind == "flood"]
    counted = sum(one.counted for one in floods)
    stored = sum(len(o.numbers) for one in seen for o in one.journal.values())
    sessions = sum(job.kind in ("session", "code") for job in jobs)
    retried = [job for job in jobs if job.sends > 1]
    return [
        Row("calls sent", f"{len(jobs)}, {sum(job.sends for job in jobs)} with repeats"),
        Row("accepted", str(len(accepted)), view.strays),
        Row("answered", str(sum(job.answers > 0 for job in jobs)), wrong.of("replies")),
        Row("by key retried", str(len(retried))),
        Row("begun once", str(sum(one.has_begun for one in seen))),
        Row("never begun, and told so", str(len(unbegun))),
        Row("never accepted (the call was lost)", str(len(silent))),
        Row("begun twice", str(len(wrong.of("begun twice"))), wrong.of("begun twice")),
        Row("gone", str(len(wrong.of("gone"))), wrong.of("gone")),
        Row("lines written by the jobs", f"{written:,}"),
        Row("lines in the outputs", f"{in_outputs:,}", wrong.of("lines")),
        Row("lines in the journal", f"{stored:,}, and {counted:,} counted", wrong.of("journal")),
        Row("floods", f"{len(floods)}, {sum(f.counted > 0 for f in floods)} of them counted"),
        Row("codes right", str(len(accepted) - len(wrong.of("codes"))), wrong.of("codes")),
        Row(
            "ends told, in a reply to whoever waited",
            f"{sum(bool(job.ends) for job in jobs) - lost_ends}, and {lost_ends} when asked for",
            wrong.of("told"),
        ),
        Row("calls in sessions that found the last state", str(sessions), wrong.of("sessions")),
    ]
