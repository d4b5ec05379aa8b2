"""Mirrors the pure parts of `scripts/soak*.py`: a soak that sees nothing is none."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from scripts.soak_account import (
    Seen,
    View,
    account,
    complaints,
    near_kills,
    python_complaints,
    shell_complaints,
    within,
)
from scripts.soak_inbox import Ledger, Tell, inbox_complaints, inbox_rows
from scripts.soak_jobs import Job, Maker, number_in
from scripts.soak_orders import LANE, Order, Orders, most_at_once, order_rows
from scripts.soak_traces import Mark, Output, lines_of

GOOD = b"j7 1 xx\nj7 2 xx\nj7 3 xx\n"


def job(number: int = 7, **facts: Any) -> Job:
    """A job of three lines that ends with code 5, as its clients were told."""
    about = {"kind": "shell", "fate": "ends", "lines": 3, "code": 5, "handles": {"abc"}, **facts}
    made = Job(number, "ada", **about)
    made.width = 2
    made.ends = facts.get("ends", [("failed", 5, None, "exit")])
    return made


def row(**facts: Any) -> dict[str, Any]:
    end = {"status": "failed", "exitCode": 5, "signal": None, "reason": "exit"}
    return {"taskId": "tabc", "startedAt": "x", "outputBytes": 24, **end, **facts}


def seen(
    of: Job,
    *rows: dict[str, Any],
    output: bytes = GOOD,
    journal: bytes | None = None,
    mark: str = "begin 1.0\n1\n2\n3\nend\n",
) -> Seen:
    """What is there of it; the journal has what the file has unless it is given."""
    stored = output if journal is None else journal
    return Seen(
        list(rows) or [row(outputBytes=len(output))],
        Mark.read(mark),
        {"output": Output.of(lines_of(output), of)},
        len(output),
        {"output": Output.of(lines_of(stored), of)} if stored else {},
    )


def wrong(of: Job, there: Seen) -> list[str]:
    return [where for where, _words in complaints(of, there)]


# -- one job -------------------------------------------------------------------------------------


def test_of_a_job_that_is_all_there_nothing_is_wrong() -> None:
    assert wrong(job(), seen(job())) == []


@pytest.mark.parametrize(
    ("output", "journal", "where"),
    [
        (b"j7 1 xx\nj7 3 xx\n", None, ["lines", "lines"]),  # a gap, and too few
        (b"j7 1 xx\nj7 2 xx\n", None, ["lines"]),
        (b"j7 2 xx\nj7 1 xx\nj7 3 xx\n", None, ["lines"]),
        (b"j7 1 xx\nj7 2 xx\nj7 2 xx\nj7 3 xx\n", None, ["lines", "lines"]),
        (b"j7 1 xx\nj7 2 xj7 3 xx\n", None, ["lines", "lines"]),
        (GOOD + b"what\n", None, ["lines"]),
        (GOOD, b"j7 1 xx\nj7 3 xx\n", ["journal"]),
        (GOOD, b"j7 1 xx\nj7 3 xx\nj7 2 xx\n", ["journal"]),
        (GOOD, GOOD + b"j7 3 xx\n", ["journal"]),
        (GOOD, b"", ["journal"]),
    ],
)
def test_a_line_that_is_lost_doubled_torn_or_misplaced_is_seen(
    output: bytes, journal: bytes | None, where: list[str]
) -> None:
    assert wrong(job(), seen(job(), output=output, journal=journal)) == where


def test_bytes_that_the_row_does_not_know_are_seen() -> None:
    assert wrong(job(), seen(job(), row(outputBytes=23))) == ["lines"]


@pytest.mark.parametrize(
    ("end", "where"),
    [
        ({"exitCode": 4}, ["codes", "told"]),
        ({"status": "lost", "exitCode": None, "reason": "lost"}, ["codes", "told"]),
        ({"status": "cancelled", "reason": "cancelled"}, ["codes", "told"]),
    ],
)
def test_another_end_than_the_job_had_is_seen(end: dict[str, Any], where: list[str]) -> None:
    assert wrong(job(), seen(job(), row(**end))) == where


def test_an_end_that_no_reply_told_is_seen() -> None:
    assert wrong(job(ends=[]), seen(job())) == ["told"]


def test_two_replies_that_differ_about_the_end_are_seen() -> None:
    ends = [("failed", 5, None, "exit"), ("lost", None, None, "lost")]
    assert wrong(job(ends=ends), seen(job())) == ["told"]


@pytest.mark.parametrize(
    ("mark", "rows"),
    [
        ("begin 1.0\n1\n2\n3\nend\nbegin 2.0\n", [row()]),
        ("begin 1.0\n1\n2\n3\nend\n", [row(), row(taskId="tabd")]),
    ],
)
def test_a_job_that_was_begun_twice_or_has_two_tasks_is_seen(
    mark: str, rows: list[dict[str, Any]]
) -> None:
    assert "begun twice" in wrong(job(), seen(job(), *rows, mark=mark))


def test_a_call_with_two_handles_is_seen() -> None:
    assert "begun twice" in wrong(job(handles={"abc", "abd"}), seen(job()))


@pytest.mark.parametrize(
    ("handles", "mark", "where"),
    [
        ({"abc"}, "", ["gone"]),
        (set[str](), "begin 1.0\n", ["gone"]),
        (set[str](), "", []),  # the call was lost on its way
    ],
)
def test_a_job_that_was_told_of_or_has_begun_is_gone_where_it_has_no_task(
    handles: set[str], mark: str, where: list[str]
) -> None:
    assert wrong(job(handles=handles), Seen(mark=Mark.read(mark))) == where


def test_an_end_without_a_beginning_is_seen() -> None:
    there = seen(job(), row(outputBytes=0), output=b"", mark="")
    assert wrong(job(), there) == ["codes", "lines"]


CANCELLED = ("cancelled", None, "SIGTERM", "cancelled")


@pytest.mark.parametrize(
    ("output", "mark", "where"),
    [
        (b"j7 1 xx\n", "begin 1.0\n1\n", []),
        (b"j7 1 xx\nj7 2 xx\n", "begin 1.0\n1\n", []),  # cut between a line and its mark
        (b"j7 1 xx\n", "begin 1.0\n1\n2\n", ["lines"]),
        (b"", "", []),
    ],
)
def test_a_cancelled_job_has_the_lines_that_it_wrote(
    output: bytes, mark: str, where: list[str]
) -> None:
    of = job(fate="cancelled", ends=[CANCELLED])
    end = dict(zip(("status", "exitCode", "signal", "reason"), CANCELLED, strict=True))
    there = seen(of, row(outputBytes=len(output), **end), output=output, mark=mark)
    assert wrong(of, there) == where


@pytest.mark.parametrize(
    ("stored", "counted", "where"),
    [
        ([*range(1, 15), 20, 30], 14, []),
        ([*range(1, 15), 20, 30], 13, ["journal"]),
        ([*range(1, 15), 30], 15, ["journal"]),  # a warning is not there
        ([*range(1, 15), 30, 20], 14, ["journal"]),
    ],
)
def test_of_a_flood_stored_and_counted_lines_make_up_what_was_written(
    stored: list[int], counted: int, where: list[str]
) -> None:
    of = job(kind="flood", lines=30)
    output = "".join(of.line(i) + "\n" for i in range(1, 31)).encode()
    journal = "".join(of.line(i) + "\n" for i in stored).encode()
    there = seen(of, output=output, journal=journal)
    there.counted = counted
    assert wrong(of, there) == where


# -- sessions ------------------------------------------------------------------------------------


def found(*calls: tuple[int, str, str | None]) -> tuple[list[Job], View]:
    """Calls in a session: number, how the first reply was, what state it found."""
    jobs = [job(number, kind="session", first=first) for number, first, _ in calls]
    there = {}
    for made, (number, _, state) in zip(jobs, calls, strict=True):
        value = "none" if state == "0" else state
        text = "" if state is None else f"found {state} {value} d{int(state) % 4}\n"
        there[number] = seen(made, output=text.encode(), mark=f"begin {number}.0\nend\n")
    return jobs, View(there)


@pytest.mark.parametrize(
    ("calls", "complained"),
    [
        ([(1, "inline", "0"), (2, "inline", "1"), (3, "inline", "2")], []),
        ([(1, "inline", "0"), (2, "running", "1"), (3, "inline", "1")], []),
        ([(1, "inline", "0"), (2, "running", "1"), (3, "inline", "2")], [3]),  # had left it
        ([(1, "inline", "0"), (2, "inline", "0")], [2]),
        ([(1, "inline", "0"), (2, "lost", "1"), (3, "inline", "2")], []),
        ([(1, "inline", "0"), (2, "lost", "1"), (3, "inline", "1")], []),
        ([(1, "inline", "0"), (2, "late", "1"), (3, "inline", "1")], []),
        ([(1, "inline", "0"), (2, "late", "1"), (3, "inline", "0")], [3]),
        ([(1, "lost", "2"), (2, "inline", "0")], []),  # begun after the next
        ([(1, "queued", "2"), (2, "inline", "0"), (3, "inline", "2")], []),
        ([(1, "inline", "0"), (2, "inline", "1"), (3, "queued", "1")], [3]),
    ],
)
def test_a_shell_session_holds_what_the_last_call_left_that_ended_in_it(
    calls: list[tuple[int, str, str]], complained: list[int]
) -> None:
    jobs, view = found(*calls)
    assert [made.number for made, _words in shell_complaints(jobs, view)] == complained


def test_a_state_that_is_made_up_of_two_calls_is_seen() -> None:
    jobs, view = found((1, "inline", "0"), (2, "inline", "1"))
    view.jobs[2].files["output"].found = ("1", "none", "d1")
    assert [made.number for made, _words in shell_complaints(jobs, view)] == [2]


@pytest.mark.parametrize(
    ("states", "cut", "complained"),
    [
        (["0", "1", "2"], None, []),
        (["0", "1", "1"], 2, []),
        (["0", "1", "2"], 2, []),
        (["0", "1", "1"], None, [3]),
        (["0", "0", "2"], None, [2]),
    ],
)
def test_a_python_session_holds_what_the_call_before_left(
    states: list[str], cut: int | None, complained: list[int]
) -> None:
    jobs, view = found(*((i, "lost", state) for i, state in enumerate(states, 1)))
    if cut is not None:
        view.jobs[cut].mark = Mark((float(cut),), 0, False)
    assert [made.number for made, _words in python_complaints(jobs, view)] == complained


# -- inboxes -------------------------------------------------------------------------------------

OWN_END = ("failed", 5, None, "exit")


def tell(sent_at: float = 1.0, *, marked: bool = False, late: bool = False, code: int = 5) -> Tell:
    return Tell(sent_at, marked, late, ("failed", code, None, "exit"))


@pytest.mark.parametrize(
    ("facts", "tells", "where"),
    [
        ({}, [tell()], []),
        ({}, [tell(), tell(2.0, marked=True)], []),
        ({}, [tell(marked=True)], []),  # the reply with the first was lost
        ({"replied": [2.0]}, [], []),
        ({"replied": [2.0]}, [tell(1.0)], []),  # somebody asked for it by its id besides
        ({"replied": [2.0]}, [tell(3.0, marked=True)], []),
        ({}, [], ["lost"]),
        ({}, [tell(code=4)], ["lost"]),
        ({}, [tell(), tell(2.0)], ["twice"]),
        ({"replied": [2.0]}, [tell(3.0)], ["twice"]),
        ({"replied": [2.0], "first": "inline", "sends": 1}, [tell(1.0)], ["twice"]),
        ({"replied": [2.0], "first": "inline", "sends": 2}, [tell(1.0)], []),
        ({}, [tell(), tell(2.0, marked=True, late=True)], ["twice"]),
    ],
)
def test_an_end_that_the_caller_was_not_told_or_was_told_twice_unmarked_is_seen(
    facts: dict[str, Any], tells: list[Tell], where: list[str]
) -> None:
    assert [place for place, _words in inbox_complaints(job(**facts), row(), tells)] == where


def update(**facts: Any) -> dict[str, Any]:
    end = {"status": "failed", "exitCode": 5, "signal": None, "reason": "exit"}
    ids = {"id": "tabc", "taskId": "tabc", "kickoffId": "kabc", "as": "ada"}
    return {**ids, "ready": "ended", **end, **facts}


def hear(ledger: Ledger, *updates: dict[str, Any], rounds: Any = ()) -> list[str]:
    reply = {"updates": list(updates), "rounds": list(rounds)}
    return ledger.note("ada", reply, 1.0, lambda _task: False)


def test_a_ledger_has_the_ends_of_tasks_and_seats_and_what_was_told_once() -> None:
    ledger = Ledger()
    told = hear(ledger, update(), update(id="kxyz", kickoffId="kxyz", ready=None, status="running"))
    assert (told, ledger.tells["tabc"]) == (["tabc"], [Tell(1.0, False, False, OWN_END)])
    assert (ledger.wait("tabc", 0), ledger.wait("txyz", 0), dict(ledger.once)) == (True, False, {})
    hear(ledger, update(ready="execution_blocked", category="lane"))
    hear(ledger, update(id="kabc", ready="execution_blocked", category="lane"))
    assert dict(ledger.once) == {("ada", "tabc", "execution_blocked", "lane"): 2}
    withheld = {"taskId": "t1", "status": "succeeded"}
    answer = {**update(taskId="t2", redelivered=True), "exitCode": 1}
    entry = {"roundId": "r1", "ready": "seat_lost", "seats": {"a": withheld, "b": answer}}
    assert hear(ledger, rounds=[entry]) == ["t2"]
    assert (ledger.tells["t2"][0].is_marked, dict(ledger.rounds)) == (True, {})
    returned = {"taskId": "t2", "status": "failed", "exitCode": 1, "output_returned": True}
    ended = {"roundId": "r1", "ready": "ended", "redelivered": True}
    hear(ledger, rounds=[{**ended, "seats": {"b": returned}}])
    assert (len(ledger.tells["t2"]), ledger.rounds["r1"]) == (1, [True])
    assert ledger.wrong == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"as": "ben"}, "ada was told of tabc"),
        ({"output_returned": True}, "tabc was received, and told ada again"),
    ],
)
def test_what_no_inbox_may_tell_is_seen(facts: dict[str, Any], words: str) -> None:
    ledger = Ledger()
    hear(ledger, update(**facts))
    assert ledger.wrong == [words]


def test_a_round_whose_end_nobody_was_told_or_twice_and_news_told_twice_are_seen() -> None:
    view = View({7: seen(job(), row(roundId="r1"))})
    ledger = Ledger()
    hear(ledger, update())
    rows = {line.what: line for line in inbox_rows([job()], view, ledger, [])}
    assert rows["ends lost to their callers"].wrong == ["nobody was told of the end of r1"]
    for _ in range(2):
        hear(ledger, update(id="tx", kickoffId="kx", ready="ready_when"))
        hear(ledger, rounds=[{"roundId": "r1", "ready": "ended", "seats": {}}])
    rows = {line.what: line for line in inbox_rows([job()], view, ledger, [])}
    assert rows["ends lost to their callers"].wrong == []
    assert rows["ends repeated without it"].wrong == ["r1 was told 2 times without the mark"]
    assert rows["news that comes once, told twice"].wrong == ["ada tx ready_when : 2 times"]


# -- those that wait for others ------------------------------------------------------------------


def at(start: str | None, end: str, task: str = "tabc") -> dict[str, Any]:
    return row(startedAt=start, endedAt=end, taskId=task)


def test_a_call_that_has_not_waited_for_the_one_before_it_is_seen() -> None:
    before, after = job(1), job(2, before=job(1))
    for start, count in (("12:00:02", 0), ("12:00:03", 0), ("12:00:01", 1), (None, 0)):
        view = View({1: seen(before, at("12:00:00", "12:00:02")), 2: seen(after, at(start, "13"))})
        early, _lane = order_rows([before, after], view)
        assert len(early.wrong) == count


def test_tasks_are_at_once_in_a_lane_from_their_start_to_their_end() -> None:
    spans = [at("01", "05"), at("02", "03"), at("03", "09"), at(None, "04")]
    assert most_at_once(spans) == 2
    assert most_at_once([*spans, at("04", "06")]) == 3
    jobs = [job(number, params={"lane": LANE}) for number in (1, 2, 3)]
    view = View({made.number: seen(made, at("01", "02")) for made in jobs})
    assert order_rows(jobs, view)[1].wrong == ["3 at once in a lane of 2"]


def orders(tmp_path: Path, count: int) -> list[Order]:
    made = Orders(random.Random(3), maker(tmp_path), ["ada", "ben"], {"ben"})
    drawn = []
    for number in range(count):
        order = made.next(is_short=False)
        for each in order.jobs:
            each.handles = {f"h{number}"}
        if order.lock is not None:
            order.lock.release()
        drawn.append(order)
    return drawn


def test_some_calls_are_rounds_and_some_wait_for_others_as_is_known_of_them(tmp_path: Path) -> None:
    drawn = orders(tmp_path, 600)
    rounds = [order for order in drawn if order.seats is not None]
    assert {order.method for order in rounds} == {"run_round"}
    assert {len(order.params["seats"]) for order in rounds} == {2, 3}
    assert not any("key" in seat for order in rounds for seat in order.params["seats"].values())
    single = [order.jobs[0] for order in drawn if order.seats is None]
    after = [made for made in single if made.before is not None]
    assert len(after) > 30
    for made in after:
        assert made.before is not None
        (handle,) = made.before.handles
        assert made.params["after"] == ["k" + handle]
        wanted = made.params["after_when"]
        assert (made.fate == "skipped") == (wanted not in ("ended", made.before.own_end[0]))
    assert {"ended", "succeeded", "failed"} == {made.params["after_when"] for made in after}
    assert sum("ready_when" in made.params for made in single) > 20
    assert sum(made.params.get("lane") == LANE for made in single) > 20


# -- kills and the table -------------------------------------------------------------------------


def test_near_is_within_50_ms_before_or_behind_a_kill() -> None:
    assert near_kills([1.0, 1.94, 1.96, 2.04, 2.06, 9.0], [2.0, 9.0]) == 3


def test_what_ended_between_a_kill_and_the_next_start_is_counted() -> None:
    assert within([1.0, 2.0, 2.9, 3.0], [(2.0, 3.0)]) == 2


def test_the_table_counts_each_job_where_it_belongs() -> None:
    lost = job(8, handles=set(), ends=[], sends=1)
    off_queue = job(9, fate="cancelled", ends=[CANCELLED], handles={"xyz"}, sends=1)
    end = dict(zip(("status", "exitCode", "signal", "reason"), CANCELLED, strict=True))
    there = {
        7: seen(job()),
        8: Seen(),
        9: seen(
            off_queue,
            row(taskId="txyz", startedAt=None, outputBytes=0, **end),
            output=b"",
            mark="",
        ),
    }
    table = account([job(sends=2, answers=1), lost, off_queue], View(there), 1)
    values = {line.what: line.value for line in table}
    assert values["calls sent"] == "3, 4 with repeats"
    assert values["accepted"] == "2"
    assert values["begun once"] == "1"
    assert values["never begun, and told so"] == "1"
    assert values["never accepted (the call was lost)"] == "1"
    assert values["lines in the outputs"] == "3"
    assert not any(line.wrong for line in table)


# -- jobs ----------------------------------------------------------------------------------------


def maker(tmp_path: Path) -> Maker:
    for name in ("marks", "d0", "d1", "d2", "d3"):
        (tmp_path / name).mkdir()
    return Maker(random.Random(1), tmp_path / "marks", tmp_path, tmp_path / "bell", 123456)


def run(made: Job, tmp_path: Path, given: str = "") -> tuple[int, list[str]]:
    """Run what the job asks for without an engine: exit status and lines."""
    params = made.params
    argv = params.get("argv") or ["bash", "-c", params.get("command", "")]
    if "code" in params:
        argv = [sys.executable, "-u", "-c", params["code"]]
    done = subprocess.run(
        argv,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=30,
        check=False,
        cwd=tmp_path,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    "kind", ["session", "shell", "argv", "split", "pty", "fed", "code", "fresh code"]
)
@pytest.mark.parametrize("fate", ["ends", "killed"])
def test_what_a_job_is_asked_to_run_does_what_is_known_of_it(
    kind: str, fate: str, tmp_path: Path
) -> None:
    made = maker(tmp_path).make(6, "ada", kind, fate, is_short=True)
    fed = "".join(f"{i}\n{i}\n" for i in range(1, made.lines + 1))  # each twice
    status, lines = run(made, tmp_path, fed if kind == "fed" else "")
    there = Output.of(lines, made)
    assert (sorted(there.numbers), there.wrong) == (list(range(1, made.lines + 1)), [])
    assert status == (-9 if fate == "killed" else made.code)
    mark = Mark.read((tmp_path / "marks" / "6").read_text())
    assert (len(mark.begins), mark.lines, mark.has_ended) == (1, made.lines, True)
    rings = 0 if "code" in kind else 1
    assert ((tmp_path / "bell").read_text() if rings else "") == "\n" * rings
    assert (there.found is not None) == ("found" in str(made.params))


def test_a_flood_is_more_than_the_journal_stores_of_one_that_is_behind(tmp_path: Path) -> None:
    made = maker(tmp_path).make(6, "ada", "flood", "ends", is_short=False)
    status, lines = run(made, tmp_path)
    assert (status, Output.of(lines, made).numbers) == (made.code, list(range(1, 40_001)))
    assert sum(map(len, lines)) > 2 * (8 << 20)


def test_a_job_is_known_by_the_title_of_its_task(tmp_path: Path) -> None:
    make = maker(tmp_path).make
    shell, argv = (make(6, "ada", kind, "ends", is_short=True) for kind in ("shell", "argv"))
    code = make(6, "ada", "code", "ends", is_short=True)
    first = [
        shell.params["command"].partition("\n")[0],
        " ".join(argv.params["argv"]).partition("\n")[0],
        code.params["code"].partition("\n")[0],
    ]
    assert [number_in(title) for title in first] == [6, 6, 6]
    assert number_in("echo soak") is None
