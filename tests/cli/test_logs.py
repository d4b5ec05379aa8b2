"""Mirrors `engine/cli/logs.py`."""

from __future__ import annotations

import json
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from acceptance.running import Engine, Gate
from cli.program import LIMIT, Result, Terminal, engine, start
from client.fake_engine import OBSERVER, FakeEngine

ME = {"ENGINE_CALLER": "ci"}
LEFT_OUT = "-- {} from another caller's work left out; -a shows {}\n"


@pytest.fixture
def busy(fake: FakeEngine) -> FakeEngine:
    """A journal with lines of two callers and the engine."""
    fake.log("notice", "started")
    fake.log("warning", "unused variable", "ci", "t8f3kp9")
    fake.log("debug", "looking", "ci", "t8f3kp9")
    fake.log("error", "1 Failed", "anna", "t8f3kr9")
    fake.log("info", "compiling", "ci", "t8f3kp9")
    return fake


def texts(done: Result) -> list[str]:
    assert done.code == 0
    return [" ".join(line.split()[4:]) for line in done.out.decode().splitlines()]


def logs(fake: FakeEngine, *options: str) -> Result:
    return engine(fake.home, "logs", *options, ENGINE_CALLER="ci")


def read_lines(process: subprocess.Popen[bytes], count: int) -> list[str]:
    """The next `count` lines of stdout; fails after LIMIT seconds."""
    assert process.stdout is not None
    seen, until = b"", time.monotonic() + LIMIT
    while seen.count(b"\n") < count:
        left = max(0.0, until - time.monotonic())
        assert select.select([process.stdout], [], [], left)[0], seen
        piece = process.stdout.read(65536)
        assert piece, seen
        seen += piece
    lines = seen.decode().splitlines()
    assert len(lines) == count
    return lines


def test_the_lines_of_a_task_that_was_dropped_are_shown_by_its_id(fake: FakeEngine) -> None:
    fake.log("error", "1 Failed", "anna", "t7a0000")
    fake.log("error", "other", "ci", "t8f3kp9")
    assert texts(logs(fake, "t7a0000")) == ["1 Failed"]
    done = logs(fake, "k7a0000")
    assert (done.code, done.out) == (1, b"")


def test_lines_to_a_pipe_and_one_word_on_those_left_out(busy: FakeEngine) -> None:
    done = logs(busy)
    times = [line["time"] for line in busy.lines]
    assert done.out.decode().splitlines() == [
        f"{times[0]} notice engine - started",
        f"{times[1]} warning ci t8f3kp9 unused variable",
        f"{times[4]} info ci t8f3kp9 compiling",
    ]
    assert done.err == LEFT_OUT.format("1 info line", "it")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["-a"], ["started", "unused variable", "1 Failed", "compiling"]),
        (["--scope", "all", "-p", "warning"], ["unused variable", "1 Failed"]),
        (["-p", "debug"], ["started", "unused variable", "looking", "compiling"]),
        (["-c", "anna"], ["1 Failed"]),
        (["-a", "-g", "fAILED"], ["1 Failed"]),
        (["-a", "-n", "2"], ["1 Failed", "compiling"]),
        (["-a", "-n", "0"], []),
        (["-a", "-n", "all"], ["started", "unused variable", "1 Failed", "compiling"]),
        (["-a", "--after-seq", "2"], ["1 Failed", "compiling"]),
        (["-a", "--after-seq", "0", "-n", "1"], ["compiling"]),
        (["-a", "--since", "10m"], ["started", "unused variable", "1 Failed", "compiling"]),
        (["-a", "--since", "2999-01-01T00:00:00Z"], []),
        (["-g", "no such text"], []),
    ],
)
def test_options_choose_what_is_shown(
    busy: FakeEngine, options: list[str], shown: list[str]
) -> None:
    assert texts(logs(busy, *options)) == shown


def test_a_task_by_name_shows_its_lines_whose_ever_it_is(busy: FakeEngine) -> None:
    engine(busy.home, "run", "-d", "--as", "anna", "true")
    busy.log("error", "of this task", "anna", "t8f3000")
    done = logs(busy, "t8f3000")
    assert (texts(done), done.err) == (["of this task"], "")
    assert logs(busy, "t1zzzzz") == (1, b"", "engine: no such task t1zzzzz\n")


def test_it_looks_with_a_cursor_of_its_own_and_the_token_of_an_observer(busy: FakeEngine) -> None:
    busy.tokens.clear()
    busy.calls.clear()
    logs(busy, "-n", "2")
    logs(busy, "--since", "10m")
    assert {token for _, token in busy.tokens} == {OBSERVER}
    assert all(params["peek"] for _, params in busy.calls)
    places = {"after_seq", "before_seq", "since"}
    assert all(len(places & set(params)) == 1 for _, params in busy.calls)


def test_json_is_the_records_of_the_wire(busy: FakeEngine) -> None:
    done = logs(busy, "--json", "-a", "-n", "all")
    shown = [json.loads(line) for line in done.out.splitlines()]
    assert shown == [line for line in busy.lines if line["level"] != "debug"]


def test_more_lines_than_a_page_come_whole_and_in_order(fake: FakeEngine) -> None:
    for number in range(2_500):
        fake.log("info", f"line {number}", "ci", "t8f3kp9")
    every = [f"line {number}" for number in range(2_500)]
    assert texts(logs(fake, "-n", "all")) == every
    assert texts(logs(fake, "-n", "2300")) == every[200:]
    assert texts(logs(fake, "--after-seq", "0", "-n", "1100")) == every[1_400:]


def test_what_retention_has_dropped_is_said_where_it_is_missing(busy: FakeEngine) -> None:
    busy.dropped = 1_204
    done = logs(busy, "-a", "--after-seq", "0", "-p", "error")
    at = busy.lines[3]["time"]
    assert done.err == f"-- 1204 lines are gone (retention); reading on at {at}\n"
    busy.dropped = 1
    assert logs(busy, "-a", "-q", "--after-seq", "0").err == ""


def test_on_a_terminal_the_columns_are_aligned(busy: FakeEngine) -> None:
    environ = {"NO_COLOR": "1", "TZ": "UTC", **ME}
    with Terminal(busy.home, "logs", "-p", "warning", columns=50, environ=environ) as terminal:
        assert terminal.wait() == 0
    assert re.sub(r"\d\d:\d\d:\d\d\.\d{3}", "12:04:30.871", terminal.seen).split("\r\n") == [
        "12:04:30.871 warning  ci           t8f3kp9  unused variable",
        "-- 1 warning line from another caller's work left out; -a shows it",
        "",
    ]


@pytest.mark.parametrize(("option", "hour"), [([], "15"), (["--utc"], "12")])
def test_times_are_local_on_a_terminal_unless_utc_is_wanted(
    fake: FakeEngine, option: list[str], hour: str
) -> None:
    fake.log("info", "x", "ci")
    fake.lines[0]["time"] = "2026-11-30T12:04:30.871Z"
    environ = {"NO_COLOR": "1", "TZ": "XYZ-3", **ME}
    with Terminal(fake.home, "logs", *option, environ=environ) as terminal:
        assert terminal.wait() == 0
    assert f"{hour}:04:30.871 info " in terminal.seen


@pytest.mark.parametrize(
    "options",
    [
        ["-p", "loud"],
        ["-n", "-1"],
        ["-n", "few"],
        ["--since", "soon"],
        ["--since", "10m", "--after-seq", "1"],
        ["-c", "A"],
        ["-g", ""],
        ["-g", "x" * 201],
        ["-a", "--scope", "caller"],
        ["t8f3000", "t8f3001"],
    ],
)
def test_wrong_options_are_exit_2_before_anything_is_asked(
    fake: FakeEngine, options: list[str]
) -> None:
    done = logs(fake, *options)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("engine: ")
    assert fake.calls == []


@contextmanager
def follow(home: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`engine logs -f` with these options; it has ended when this is left."""
    with start(home, "logs", "-f", "--as", "ci", *options) as process:
        try:
            yield process
        finally:
            process.kill()


def test_follow_starts_with_the_newest_ten_and_goes_on_until_it_is_left(fake: FakeEngine) -> None:
    for number in range(12):
        fake.log("info", f"{number}", "ci")
    with follow(fake.home, "--no-prefix") as process:
        assert read_lines(process, 10) == [f"{number}" for number in range(2, 12)]
        fake.log("info", "next", "ci")
        assert read_lines(process, 1) == ["next"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize("start_at", [["--after-seq", "0"], ["--since", "10m"], ["-n", "all"]])
def test_follow_from_a_place_shows_all_from_there(fake: FakeEngine, start_at: list[str]) -> None:
    for number in range(12):
        fake.log("info", f"{number}", "ci")
    with follow(fake.home, "--no-prefix", *start_at) as process:
        assert read_lines(process, 12) == [f"{number}" for number in range(12)]
        fake.log("info", "next", "ci")
        assert read_lines(process, 1) == ["next"]
        process.kill()


def test_follow_goes_on_over_a_restart_without_gap_or_repeat(fake: FakeEngine) -> None:
    fake.log("info", "before", "ci")
    with follow(fake.home, "--no-prefix") as process:
        assert read_lines(process, 1) == ["before"]
        fake.wait_for(lambda: "timeout_secs" in fake.calls[-1][1])
        fake.stop()
        fake.log("info", "meanwhile", "ci")
        fake.start()
        assert read_lines(process, 1) == ["meanwhile"]
        fake.log("info", "after", "ci")
        assert read_lines(process, 1) == ["after"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
    assert out == b""
    lost, back = err.decode().splitlines()
    assert lost == "engine: connection lost; trying again for up to 60 s"
    assert back.startswith("engine: connected again after ")


def test_follow_speaks_of_what_it_leaves_out_at_most_once_a_minute(fake: FakeEngine) -> None:
    fake.log("error", "another's", "anna")
    with follow(fake.home, "--no-prefix") as process:
        fake.wait_for(lambda: fake.calls and "timeout_secs" in fake.calls[-1][1])
        fake.log("error", "another's again", "anna")
        fake.log("info", "own", "ci")
        assert read_lines(process, 1) == ["own"]
        fake.wait_for(lambda: fake.calls[-1][1].get("after_seq") == 3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
    assert err.decode() == LEFT_OUT.format("1 info line", "it")


def test_follow_of_a_task_ends_when_it_has_ended_and_its_lines_are_in(fake: FakeEngine) -> None:
    gate = fake.home / "gate"
    engine(fake.home, "run", "-d", f"until [ -e {gate} ]; do sleep 0.05; done; false")
    with follow(fake.home, "--no-prefix", "t8f3000") as process:
        fake.log("info", "first", "anna", "t8f3000")
        assert read_lines(process, 1) == ["first"]
        fake.log("error", "last", "anna", "t8f3000")
        gate.touch()
        out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (0, b"last\n", b"")


def test_follow_of_a_task_waits_for_lines_that_the_journal_is_behind_with(fake: FakeEngine) -> None:
    engine(fake.home, "run", "-d", "true")
    engine(fake.home, "wait", "t8f3000")
    fake.reply_logs = {"logs": [], "logsDropped": 0, "logsBehind": True}
    with follow(fake.home, "--no-prefix", "t8f3000") as process:
        fake.wait_for(lambda: fake.methods().count("wait") > 2)
        fake.log("info", "late", "ci", "t8f3000")
        fake.reply_logs = {"logs": [], "logsDropped": 0}
        out, _ = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (0, b"late\n")


def test_a_kickoff_has_no_lines_and_is_followed_once_it_is_reached(fake: FakeEngine) -> None:
    fake.holds_queue = True
    engine(fake.home, "run", "-d", "true")
    done = logs(fake, "k8f3000")
    assert done == (0, b"", "engine: k8f3000 has not started: no lines\n")
    with follow(fake.home, "--no-prefix", "k8f3000") as process:
        fake.wait_for(lambda: "list_tasks" in fake.methods())
        fake.log("info", "x", "ci", "t8f3000")
        fake.release_queue()
        out, _ = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (0, b"x\n")


def test_a_real_engine_killed_in_between_loses_and_repeats_no_line(tmp_path: Path) -> None:
    command = "echo warning: {0}; {1}; echo error: {0} again"
    with (
        Engine(tmp_path / "home", "--set", "min_free_bytes=0") as real,
        Gate(tmp_path / "gate") as gate,
    ):
        options = ["-a", "-p", "warning", "--json", "--after-seq", "0"]
        with follow(real.home, *options) as process, real.connect() as client:
            ci, anna = client.caller("ci"), client.caller("anna")
            tasks = [c.start(command.format(c.name, gate.wait))["taskId"] for c in (ci, anna)]
            seen = [json.loads(line) for line in read_lines(process, 2)]
            real.kill()
            gate.open(2)
            real.start()
            with real.connect() as again:
                for who, task in zip((ci, anna), tasks, strict=True):
                    assert who.on(again).wait(task)["status"] == "succeeded"
            seen += [json.loads(line) for line in read_lines(process, 2)]
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=LIMIT)
        with real.connect() as client:
            page = client.call("read_logs", as_="x", logs="warning", logScope="all", after_seq=0)
    assert out == b""
    assert seen == page["lines"]
    assert [line["seq"] for line in seen] == sorted({line["seq"] for line in seen})
    assert sorted(line["text"] for line in seen) == sorted(
        text for c in (ci, anna) for text in (f"warning: {c.name}", f"error: {c.name} again")
    )


def test_looking_moves_nobodys_position(tmp_path: Path) -> None:
    with (
        Engine(tmp_path / "home", "--set", "min_free_bytes=0") as real,
        Gate(tmp_path / "gate") as gate,
        real.connect() as client,
    ):
        ci, other = client.caller("ci"), client.caller("other")
        task = other.bash("echo")["taskId"]
        ran = ci.start(f"{gate.wait}; echo warning: one")["taskId"]
        gate.open()
        other.wait(ran)
        for options in (["-a"], [ran, "-f"], ["--since", "10m"]):
            assert engine(real.home, "logs", "--as", ci.name, *options).code == 0
        assert engine(real.home, "show", "--as", ci.name, ran).code == 0
        page = ci.call("read_logs", logs="warning")
        assert [line["text"] for line in page["lines"]] == ["warning: one"]
        reply = ci.wait(task)
        assert [line["text"] for line in reply["logs"]] == ["warning: one"]


def test_since_takes_the_lines_of_that_time(fake: FakeEngine) -> None:
    fake.log("info", "old", "ci")
    fake.log("info", "new", "ci")
    old = datetime.now(UTC) - timedelta(minutes=20)
    fake.lines[0]["time"] = old.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert texts(logs(fake, "--since", "10m")) == ["new"]
    assert texts(logs(fake, "--since", "30m")) == ["old", "new"]
