"""Mirrors `engine/cli/rounds.py`, with the engine that is the real thing."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest
from acceptance.running import Engine, Gate
from cli.program import LIMIT, Result, Terminal, engine, start

ERROR = "src/a.py:1:1: error: no"


def round_(real: Engine, me: str, *arguments: str) -> Result:
    return engine(real.home, "round", *arguments, "--as", me)


def round_id(done: Result) -> str:
    """The round that is named in what was said about it."""
    found = re.search(r"\br[0-9a-v]{6}\b", done.err)
    assert found, done
    return found[0]


def seats(out: bytes) -> dict[str, list[str]]:
    """Of each line about a seat's end the words after time and id, by the seat's name."""
    found = [line.split() for line in out.decode().splitlines() if " exit=" in line]
    return {words[5]: words[2:4] for words in found}


def test_a_round_whose_seats_all_succeed_says_nothing_but_their_ends(real: Engine, me: str) -> None:
    done = round_(real, me, "start", "--seat", "unit=true", "--seat", "lint=echo clean")
    assert (done.code, done.err) == (0, "")
    assert seats(done.out) == {
        "unit": ["succeeded", "exit=0"],
        "lint": ["succeeded", "exit=0"],
    }
    assert engine(real.home, "inbox", "--as", me).out == b""


def test_a_seat_that_fails_is_one_and_its_error_lines_come_last(real: Engine, me: str) -> None:
    done = round_(
        real, me, "start", "--seat", f"lint=echo {ERROR!r}; exit 4", "--seat", "unit=true"
    )
    id_ = round_id(done)
    assert done.code == 1
    assert seats(done.out)["lint"] == ["failed", "exit=4"]
    last = done.out.decode().splitlines()[-1]
    assert re.fullmatch(rf"lint \S+Z {re.escape(ERROR)}", last)
    assert done.err.splitlines()[-1] == (
        f"engine: 1 of 2 seats did not succeed: lint; engine round retry {id_}"
    )


def test_of_a_seat_that_fails_without_an_error_line_its_last_lines_are_quoted(
    real: Engine, me: str
) -> None:
    done = round_(real, me, "start", "--seat", "diff=seq 7; echo; exit 1", "--seat", "mute=false")
    lines = [line.split() for line in done.out.decode().splitlines() if " exit=" not in line]
    assert [(words[0], words[2]) for words in lines] == [("diff", str(n)) for n in range(3, 8)]


def test_a_retry_runs_the_failed_ones_again_and_is_green(
    real: Engine, me: str, tmp_path: Path
) -> None:
    ran, mended = tmp_path / "ran", tmp_path / "mended"
    good, bad = f"unit=echo x >> {ran}", f"lint=test -e {mended}"
    id_ = round_id(round_(real, me, "start", "--seat", good, "--seat", bad))
    assert round_(real, me, "retry", id_).code == 1
    mended.touch()
    again = round_(real, me, "retry", id_)
    assert (again.code, again.err) == (0, "")
    assert seats(again.out)["lint"] == ["succeeded", "exit=0"]
    assert ran.read_text() == "x\n"
    nothing = round_(real, me, "retry", id_)
    assert (nothing.code, nothing.err) == (0, f"engine: no seat of {id_} has failed\n")


def test_seats_from_a_file_are_in_the_wires_form(real: Engine, me: str, tmp_path: Path) -> None:
    file = tmp_path / "seats.json"
    file.write_text(json.dumps({"list": {"argv": ["false"]}, "text": {"command": "exit 0"}}))
    done = round_(real, me, "start", "-f", str(file), "--seat", "more=true")
    assert seats(done.out) == {
        "list": ["failed", "exit=1"],
        "text": ["succeeded", "exit=0"],
        "more": ["succeeded", "exit=0"],
    }
    file.write_text(json.dumps({"text": {"command": "true", "timeout": 3}}))
    wrong = round_(real, me, "start", "-f", str(file))
    assert (wrong.code, wrong.out) == (2, b"")  # as every other fault of the file
    assert wrong.err.startswith("engine: $.seats.text.timeout: ")


def test_seats_run_here_with_these_variables_and_in_their_lanes(
    real: Engine, me: str, tmp_path: Path
) -> None:
    call = ("round", "start", "--seat", "where=pwd > here; echo $A > a", "--seat", "b@narrow=true")
    done = engine(real.home, *call, "--as", me, cwd=tmp_path, A="1")
    assert done.code == 0
    assert (tmp_path / "here").read_text() == f"{tmp_path}\n"
    assert (tmp_path / "a").read_text() == "1\n"


def test_the_report_has_each_seat_also_those_of_a_retry(
    real: Engine, me: str, tmp_path: Path
) -> None:
    report, mended = tmp_path / "report.xml", tmp_path / "mended"
    bad = f"lint=test -e {mended} || {{ echo {ERROR!r}; exit 1; }}"
    call = ("--seat", "unit=echo 212 passed", "--seat", bad, "--junit", str(report))
    id_ = round_id(round_(real, me, "start", *call))
    suites = ElementTree.parse(report).getroot()
    assert (suites.get("tests"), suites.get("failures")) == ("2", "1")
    failure = suites.find("testsuite/testcase[@name='lint']/failure")
    assert failure is not None
    assert failure.text is not None
    assert failure.text.count(ERROR) == 2  # as a line of the log, and in what it wrote last
    assert suites.findtext("testsuite/testcase[@name='unit']/system-out") == "212 passed\n"
    mended.touch()
    assert round_(real, me, "retry", id_, "--junit", str(report)).code == 0
    suites = ElementTree.parse(report).getroot()
    assert (suites.get("tests"), suites.get("failures")) == ("2", "0")


def test_the_report_has_what_a_seat_wrote_last_in_whole_lines(
    real: Engine, me: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    call = ("--seat", "some=seq 3000", "--seat", "much=seq 20001", "--junit", str(report))
    assert round_(real, me, "start", *call).code == 0
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    some = suite.findtext("testcase[@name='some']/system-out") or ""
    assert some.split() == [str(number) for number in range(1, 3001)]
    much = (suite.findtext("testcase[@name='much']/system-out") or "").split()
    first = int(much[0])
    assert much == [str(number) for number in range(first, 20002)]
    assert (
        65536 - 6 <= 6 * len(much) - (9999 - first + 1) <= 65536
    )  # bytes: five a line below 10000


def test_with_json_it_is_the_wires_entry_about_the_end(real: Engine, me: str) -> None:
    done = round_(real, me, "start", "--json", "--seat", "unit=echo hi", "--seat", "lint=exit 2")
    entry = json.loads(done.out)
    assert (done.code, entry["ready"]) == (1, "ended")
    assert entry["seats"]["unit"]["output"] == "hi\n"
    assert entry["seats"]["lint"]["exitCode"] == 2
    shown = json.loads(round_(real, me, "show", entry["roundId"], "--json").out)
    assert shown["seats"]["lint"]["status"] == "failed"


def test_who_looks_receives_nothing(real: Engine, me: str) -> None:
    with real.connect() as client:
        begun = client.call("run_round", as_=me, seats={"unit": {"command": "true"}})
    id_ = begun["roundId"]
    assert round_(real, "another", "show", id_).code == 0
    assert engine(real.home, "wait", id_, "--as", "another").code == 0
    shown = engine(real.home, "inbox", "--as", me)
    assert shown.out.decode() == f"{id_} ended: 1 of 1 succeeded\n"
    assert engine(real.home, "inbox", "--as", me).out == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_only_stops_looking_and_wait_comes_back_to_it(
    real: Engine, me: str, gate: Gate, number: signal.Signals
) -> None:
    call = ("round", "start", "--seat", f"slow={gate.wait}; exit 3", "--seat", "quick=true")
    with start(real.home, *call, "--as", me, fresh=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline().split()[-2:] == [b"quick", b"true"]
        run.send_signal(number)
        out, err = run.communicate(timeout=LIMIT)
    id_ = round_id(Result(130, out, err.decode()))
    assert (run.returncode, out) == (128 + number, b"")
    goes_on = f"round {id_} goes on; engine wait {id_}"
    assert err.decode() == f"engine: {goes_on}, or engine cancel {id_}\n"
    spent = engine(real.home, "wait", id_, "--timeout", "0.2", "--as", me)
    assert (spent.code, spent.err) == (75, f"engine: {goes_on}\n")
    spent = engine(real.home, "wait", id_, "--timeout", "0.2", "--as", me, "--json")
    error: dict[str, object] = {
        "code": None,
        "kind": "still_running",
        "message": goes_on,
        "data": {},
    }
    assert (spent.code, json.loads(spent.err)) == (75, {"error": error})
    gate.open()
    done = engine(real.home, "wait", id_, "--as", me)
    assert (done.code, seats(done.out)["slow"]) == (1, ["failed", "exit=3"])
    assert engine(real.home, "wait", "--any", id_, "--as", me).code == 1


def begin_round(real: Engine, me: str, seats: dict[str, object]) -> tuple[str, dict[str, str]]:
    """A round's id, and by seat the id of its task."""
    with real.connect() as client:
        begun = client.call("run_round", as_=me, seats=seats)
        rows = client.call("read_round", roundId=begun["roundId"])["seats"]
    return begun["roundId"], {name: "t" + row["kickoffId"][1:] for name, row in rows.items()}


def test_a_round_is_cancelled_with_all_its_seats_that_have_not_ended(
    real: Engine, me: str, gate: Gate
) -> None:
    seats: dict[str, object] = {
        "quick": {"command": "true"},
        "slow": {"command": gate.wait},
        "deaf": {"command": f"trap '' TERM; {gate.wait}"},
        "one": {"command": gate.wait, "lane": "narrow"},
        "two": {"command": gate.wait, "lane": "narrow"},
    }
    id_, tasks = begin_round(real, me, seats)
    assert engine(real.home, "wait", tasks["quick"], "--as", me).code == 0
    done = engine(real.home, "cancel", id_, "--as", me)
    assert (done.code, done.out) == (0, b"")
    said = {line.split()[1][1:]: line.split()[2] for line in done.err.splitlines()}
    assert said == {
        task[1:]: "cancelled," if name != "two" else "cancelled"
        for name, task in tasks.items()
        if name != "quick"
    }
    with real.connect() as client:
        rows = client.call("read_round", roundId=id_)["seats"]
    assert {name: row["status"] for name, row in rows.items()} == {
        "quick": "succeeded",
        **dict.fromkeys(("slow", "deaf", "one", "two"), "cancelled"),
    }
    done = engine(real.home, "cancel", id_, "--as", me)
    assert done == (0, b"", f"engine: no seat of {id_} runs or waits\n")
    assert engine(real.home, "cancel", "r1zzzzz", "--as", me) == (
        *(1, b""),
        "engine: no such round r1zzzzz\n",
    )


def test_another_callers_round_takes_force(real: Engine, me: str, gate: Gate) -> None:
    id_, tasks = begin_round(real, me, {"slow": {"command": gate.wait}})
    done = engine(real.home, "cancel", id_, "--as", "another")
    assert (done.code, done.out) == (77, b"")
    assert done.err.endswith(f" is {me}'s; cancel it with --force\n")
    done = engine(real.home, "cancel", id_, "--as", "another", "--force", "--json")
    assert [json.loads(line)["taskId"] for line in done.out.splitlines()] == [tasks["slow"]]


def test_of_a_seat_that_runs_the_time_by_now_is_shown(real: Engine, me: str, gate: Gate) -> None:
    id_, tasks = begin_round(real, me, {"slow": {"command": gate.wait}})
    engine(real.home, "wait", tasks["slow"], "--timeout", "0.3", "--as", me)
    shown = engine(real.home, "round", "show", id_, "--as", me).out.decode().split()
    assert shown[1:4] == [tasks["slow"], "running", "exit=-"]
    assert 0.2 < float(shown[4].removesuffix("s")) < LIMIT
    gate.open()


def test_a_round_that_there_is_not_is_said_to_be_none(real: Engine, me: str) -> None:
    for verb in (["round", "show"], ["round", "retry"], ["wait"]):
        done = engine(real.home, *verb, "r1zzzzz", "--as", me)
        assert done == (1, b"", "engine: no such round r1zzzzz\n")


@pytest.mark.parametrize("columns", [80, 50])
def test_on_a_terminal_the_seats_are_drawn_in_place_with_their_last_lines(
    real: Engine, me: str, gate: Gate, columns: int
) -> None:
    call = (
        "--seat",
        f"types=echo one; {gate.wait}; echo two",
        "--seat",
        f"lint=echo {ERROR}; false",
    )
    with Terminal(
        *(real.home, "round", "start", *call, "--as", me),
        columns=columns,
        environ={"NO_COLOR": "1"},
    ) as terminal:
        terminal.read_until("1 of 2 ended")
        terminal.read_until("  one")
        gate.open()
        assert terminal.wait() == 1
    assert "\x1b[4A" in terminal.seen  # up over its own four lines
    assert "\x1b[2J" not in terminal.seen
    last = terminal.seen.rpartition("\x1b[4A")[2].replace("\x1b[2K", "").split("\r\n")
    assert re.fullmatch(r"round r\w{6} · 2 of 2 ended", last[0])
    assert last[1].split() == ["SEAT", "STATUS", "TIME", "TASK", "LAST", "LINE"]
    assert re.fullmatch(r"✓ types   succeeded    +\S+  t\w{6}  two", last[2])
    assert last[3].startswith("✗ lint    failed 1")
    assert last[4].startswith("✗ lint  failed, exit 1, ")
    assert ERROR in last[5]


def test_shown_once_it_is_the_same_block(real: Engine, me: str) -> None:
    with real.connect() as client:
        begun = client.call("run_round", as_=me, seats={"unit": {"command": "echo hi"}})
        client.call("wait_any", as_=me, ids=[begun["roundId"]])
    id_ = begun["roundId"]
    with Terminal(real.home, "round", "show", id_, environ={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 0
    lines = terminal.seen.split("\r\n")
    assert lines[0] == f"round {id_} · 1 of 1 ended"
    assert re.fullmatch(r"✓ unit    succeeded  .*  t\w{6}  hi", lines[2])


def test_on_a_terminal_the_beginning_of_its_id_is_enough(real: Engine, me: str) -> None:
    with real.connect() as client:
        id_ = client.call("run_round", as_=me, seats={"unit": {"command": "true"}})["roundId"]
    for verb in (("round", "show", id_[:6]), ("round", "retry", id_[:6]), ("wait", id_[:6])):
        with Terminal(real.home, *verb, environ={"NO_COLOR": "1"}) as terminal:
            assert terminal.wait() == 0
        assert f"round {id_} · 1 of 1 ended\r\n" in terminal.seen
    with Terminal(real.home, "wait", "--any", id_[:6]) as terminal:
        assert terminal.wait() == 0
    assert engine(real.home, "round", "show", id_[:6]).code == 1  # a script has to be exact
    with Terminal(real.home, "round", "show", "rzzzz") as terminal:
        assert terminal.wait() == 1
    assert "no such round rzzzz" in terminal.seen


def test_without_seats_or_a_verb_it_is_wrong_usage(tmp_path: Path) -> None:
    done = engine(tmp_path / "home", "round")
    assert (done.code, done.out) == (2, b"")
    assert "start" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "-f", "twice.json"], "-f: unit is there twice"),
        (["start", "-f", "once.json", "--seat", "unit=true"], "seat unit is in -f and in --seat"),
        (["start", "--seat", "a=true", "--junit", "-"], "--junit - : give a file"),
        (["start", "--seat", "a=true", "--junit", ""], "--junit: the name of the file is empty"),
        (["start", "--seat", "a=true", "--junit", "no/where.xml"], "no/where.xml cannot be"),
        (["retry", "@last"], "@last is no round: their ids begin with r"),
        (["show", "t8f3kv1"], "t8f3kv1 is no round: their ids begin with r"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_starts(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "once.json").write_text('{"unit": {"command": "true"}}')
    (tmp_path / "twice.json").write_text('{"unit": {"command": "a"}, "unit": {"command": "b"}}')
    done = engine(tmp_path / "home", "round", *arguments, cwd=tmp_path)
    assert (done.code, done.out) == (2, b"")
    assert said in done.err
    assert not (tmp_path / "home").exists()


def test_what_explains_a_failure_is_shown_and_reported(
    real: Engine, me: str, tmp_path: Path
) -> None:
    file, report = tmp_path / "seats.json", tmp_path / "report.xml"
    split = {"argv": ["sh", "-c", "echo out; echo err >&2; exit 1"], "streams": "split"}
    file.write_text(json.dumps({"split": split, "never": {"argv": ["/no/such"]}}))
    done = round_(real, me, "start", "-f", str(file), "--junit", str(report))
    last = done.out.decode().splitlines()[-1]
    assert re.fullmatch(r"never \S+Z not started, exit 127: .*/no/such.*", last)
    case = ElementTree.parse(report).getroot().find("testsuite/testcase[@name='split']")
    assert case is not None
    assert (case.findtext("system-out"), case.findtext("system-err")) == ("out\n", "err\n")
    failure = ElementTree.parse(report).getroot().find(".//testcase[@name='never']/failure")
    assert failure is not None
    assert "/no/such" in failure.get("message", "")


def test_a_seat_that_was_not_started_says_why_to_whoever_looks(
    real: Engine, me: str, tmp_path: Path
) -> None:
    file = tmp_path / "seats.json"
    file.write_text(json.dumps({"never": {"argv": ["/no/such"]}, "unit": {"command": "true"}}))
    id_ = round_id(round_(real, me, "start", "-f", str(file)))
    why = "/no/such: No such file or directory"
    for look in (("round", "show", id_), ("wait", id_)):  # the end has been received by now
        done = engine(real.home, *look, "--as", me)
        last = done.out.decode().splitlines()[-1]
        assert re.fullmatch(rf"never \S+Z not started, exit 127: {why}", last), look
    with Terminal(real.home, "round", "show", id_, environ={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 0
    assert re.search(rf"✗ never   failed 127  .*  {why}\r\n", terminal.seen)


@pytest.mark.parametrize("verb", ["show", "output", "logs", "forget"])
def test_a_round_where_a_task_belongs_is_said_to_be_one(real: Engine, me: str, verb: str) -> None:
    id_ = round_id(round_(real, me, "start", "--seat", "a=false"))
    done = engine(real.home, verb, id_, "--as", me)
    right = f"engine: {id_} is a round: engine round show {id_} names its tasks\n"
    assert done == (1, b"", right)
    assert engine(real.home, verb, "r1zzzzz", "--as", me).err == "engine: no such round r1zzzzz\n"
