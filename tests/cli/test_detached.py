"""Mirrors `engine/cli/detached.py`, with the engine that is the real thing."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Engine, Gate
from cli.program import LIMIT, Terminal, engine, start

from engine.cli.app import App
from engine.cli.console import Console
from engine.cli.detached import Detached
from engine.client.blocking import Client
from engine.client.errors import Refused

PYTHON = sys.executable


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def server(port: int, first: str = "") -> str:
    """Bash text of a server that comes up after `first`, and serves until it is cancelled."""
    return f"{first}exec {PYTHON} -m http.server {port} --bind 127.0.0.1"


def accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def row_of(real: Engine, me: str, task: str) -> dict[str, object]:
    row: dict[str, object] = json.loads(engine(real.home, "show", "--json", task, "--as", me).out)
    return row


# --ready-port and --ready-line.


def test_a_server_that_is_left_running_accepts_when_its_id_is_printed(
    real: Engine, me: str, gate: Gate
) -> None:
    port = free_port()
    command = server(port, f"{gate.wait}; ")
    with start(real.home, "run", "-d", "--ready-port", str(port), command, "--as", me) as run:
        with pytest.raises(TimeoutError):
            run_out(run, 0.3)
        gate.open()
        out, err = run.communicate(timeout=LIMIT)
    task = out.decode().strip()
    assert (run.returncode, err, accepts(port)) == (0, b"", True)
    assert row_of(real, me, task)["status"] == "running"
    assert engine(real.home, "cancel", task, "--as", me).code == 0


def run_out(process: object, seconds: float) -> None:
    """Raises TimeoutError where the process goes on for so long."""
    import subprocess

    assert isinstance(process, subprocess.Popen)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None


def test_a_line_of_the_output_makes_it_ready_too(real: Engine, me: str, gate: Gate) -> None:
    command = f"echo 'listening on 3000'; {gate.wait}"
    done = engine(real.home, "run", "-d", "--ready-line", "listening on", command, "--as", me)
    assert (done.code, done.err) == (0, "")
    assert row_of(real, me, done.out.decode().strip())["status"] == "running"
    gate.open()


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("exit 5", 5, "failed, exit 5, after "),
        ("true", 125, "succeeded, before "),  # 0 would say that it is ready
        ("kill -9 $$", 137, "failed, SIGKILL, after "),
    ],
)
def test_a_job_that_ends_before_it_is_ready_is_exited_as_with_one_line(
    real: Engine, me: str, command: str, code: int, said: str
) -> None:
    ready = ("--ready-port", str(free_port()))
    done = engine(real.home, "run", "-d", *ready, f"sleep 0.1; {command}", "--as", me)
    task = done.err.split()[1]
    assert (done.code, done.out) == (code, b"")
    assert done.err.startswith(f"engine: {task} {said}")
    assert done.err.endswith(f", before it was ready; engine output {task}\n")
    assert done.err.count("\n") == 1
    assert engine(real.home, "inbox", "--as", me).out == b""  # its end has been told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["echo 'Error: no port'; echo bye; exit 3"], ", before it was ready: Error: no port; "),
        (["echo; echo 'no port'; echo; exit 3"], ", before it was ready: no port; "),
        (["--split", "echo x; echo 'no port' >&2; exit 3"], ", before it was ready: no port; "),
        (["--cwd", "/no/such", "true"], "not started, exit 127: cwd /no/such: No such file"),
    ],
)
def test_what_a_job_said_last_before_it_was_ready_is_quoted(
    real: Engine, me: str, arguments: list[str], said: str
) -> None:
    call = ("run", "-d", "--ready-port", str(free_port()), *arguments, "--as", me)
    done = engine(real.home, *call)
    assert done.out == b""
    assert said in done.err
    assert done.err.count("\n") == 1


def test_on_a_terminal_it_is_said_that_it_is_waited_for(real: Engine, me: str, gate: Gate) -> None:
    call = ("run", "-d", "--ready-port", str(free_port()), gate.wait, "--as", me)
    with Terminal(real.home, *call, environ={"NO_COLOR": "1"}) as terminal:
        terminal.read_until("is not ready yet · Ctrl-C leaves it running")
        gate.open()
        assert terminal.wait() == 125


def test_who_asks_again_by_the_same_key_is_told_that_it_is_ready(
    real: Engine, me: str, gate: Gate
) -> None:
    call = ("run", "-d", "--key", "dev", "--ready-line", "up", f"echo up; {gate.wait}", "--as", me)
    first, second = engine(real.home, *call), engine(real.home, *call)
    assert (first.code, second) == (0, first)
    gate.open()


def test_with_json_the_wires_words_say_that_it_is_ready(real: Engine, me: str, gate: Gate) -> None:
    call = ("run", "-d", "--json", "--ready-line", "up", f"echo up; {gate.wait}", "--as", me)
    reply = json.loads(engine(real.home, *call).out)
    assert reply["status"] == "running"
    assert reply["ready"] in ("ready_when", True)
    gate.open()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_the_job_and_names_it(
    real: Engine, me: str, gate: Gate, number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        call = ("run", "-d", "--ready-port", port, gate.wait, "--as", me)
        with start(real.home, *call, fresh=True) as run:
            assert run.stderr is not None
            assert b"was taken" in run.stderr.readline()  # so it is being waited for
            task = first_task(real, me)
            run.send_signal(number)
            out, err = run.communicate(timeout=LIMIT)
    assert (run.returncode, out) == (128 + number, b"")
    assert err.decode() == f"engine: {task} runs on; engine wait {task}\n"
    gate.open()
    assert engine(real.home, "wait", task, "--as", me).code == 0


def first_task(real: Engine, me: str) -> str:
    """The first task of a caller, once it runs."""
    with real.connect() as client:
        seq = 0
        while True:
            page = client.call("list_tasks", as_=me, changed_after=seq, timeout_secs=20)
            for row in page["tasks"]:
                if row["status"] == "running" and row["taskId"]:
                    task: str = row["taskId"]
                    return task
            seq = page["nextChangedAfter"]


def test_that_the_port_is_taken_is_said_while_it_is_waited_for(
    real: Engine, me: str, gate: Gate
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        call = ("run", "-d", "--ready-port", port, gate.wait, "--as", me)
        with start(real.home, *call, fresh=True) as run:
            assert run.stderr is not None
            line = run.stderr.readline().decode()
            assert line == f"engine: port {port} was taken before the task began\n"
            run.send_signal(signal.SIGINT)
            assert run.wait(LIMIT) == 130
    gate.open()


# --after, --lane and --then.


def test_a_job_after_another_starts_when_that_has_succeeded(
    real: Engine, me: str, tmp_path: Path
) -> None:
    file = tmp_path / "made"
    first = engine(real.home, "run", "-d", f"sleep 0.3; touch {file}", "--as", me).out
    done = engine(real.home, "run", f"cat {file}", "--after", first.decode().strip(), "--as", me)
    assert done == (0, b"", "")


def test_a_job_after_one_that_failed_is_skipped_and_says_why(real: Engine, me: str) -> None:
    first = engine(real.home, "run", "-d", "exit 1", "--as", me).out.decode().strip()
    done = engine(real.home, "run", "echo on", "--after", first, "--as", me)
    assert (done.code, done.out) == (125, b"")
    assert done.err.endswith(f" skipped: after {first}, which failed\n")


def test_one_that_was_to_be_ready_and_is_skipped_says_why(real: Engine, me: str) -> None:
    first = engine(real.home, "run", "-d", "exit 1", "--as", me).out.decode().strip()
    call = ("run", "-d", "--ready-line", "x", "echo x", "--after", first, "--as", me)
    done = engine(real.home, *call)
    assert (done.code, done.out) == (125, b"")
    assert re.fullmatch(rf"engine: \w+ skipped: after {first}, which failed\n", done.err)


def test_two_jobs_of_a_narrow_lane_run_one_after_the_other(
    real: Engine, me: str, gate: Gate
) -> None:
    lane = ("run", "-d", "--lane", "narrow", "--as", me)
    first = engine(real.home, *lane, gate.wait).out.decode().strip()
    second = engine(real.home, *lane, "true").out.decode().strip()
    row = row_of(real, me, second)
    assert (row["status"], row["lane"]) == ("queued", "narrow")
    assert row["queueReason"] == "lane narrow is full (1 of 1)"
    gate.open()
    assert engine(real.home, "wait", first, second, "--as", me).code == 0


def test_a_lane_that_there_is_not_is_refused(real: Engine, me: str) -> None:
    done = engine(real.home, "run", "--lane", "wide", "true", "--as", me)
    assert (done.code, done.out) == (125, b"")
    assert "$.lane" in done.err


@pytest.mark.parametrize(
    ("options", "command", "code"),
    [
        ((), "exit 3", 3),
        ((), "sleep 0.4; exit 3", 3),
        (("--session",), "sleep 0.4", 0),
        (("--on-disconnect", "cancel"), "sleep 0.4", 0),
        (("-d",), "sleep 0.2; exit 3", 0),
    ],
)
def test_what_is_to_follow_runs_however_the_job_ends_and_where_that_ran(
    real: Engine, me: str, tmp_path: Path, options: tuple[str, ...], command: str, code: int
) -> None:
    then = 'echo "$WHAT" > then'
    call = ("run", *options, "-e", "WHAT=built", "--cwd", str(tmp_path), "--then", then, command)
    done = engine(real.home, *call, "--as", me)
    assert (done.code, done.err) == (code, "" if code == 0 else done.err)
    assert done.out.count(b"\n") == (1 if "-d" in options else 0)  # of the job alone
    engine(real.home, "wait", "--as", me)
    assert (tmp_path / "then").read_text() == "built\n"


def test_with_v_the_id_of_what_follows_is_told_and_by_a_key_it_is_the_same(
    real: Engine, me: str, gate: Gate
) -> None:
    call = ("run", "-d", "-v", "--key", "k", "--then", "true", gate.wait, "--as", me)
    first, second = (engine(real.home, *call) for _ in range(2))
    assert first == second
    line = first.err.splitlines()[-1]
    assert line.startswith("engine: then k")
    gate.open()
    assert engine(real.home, "wait", line.split()[-1], "--as", me).code == 0


@pytest.mark.parametrize("options", [(), ("-d",)])
def test_an_empty_text_to_follow_is_refused_before_the_job_is_begun(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = engine(tmp_path / "home", "run", *options, "--then", "", f"touch {tmp_path}/ran")
    assert (done.code, done.out) == (125, b"")
    assert "--then is empty" in done.err
    assert not (tmp_path / "home").exists()


class Full(Client):
    """A client of an engine that takes one job and then has no room."""

    def __init__(self) -> None:
        self.calls = 0

    def call(self, method: str, params: dict[str, Any], **_: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            return {"status": "running", "kickoffId": "k8f3kv1"}
        raise Refused(-32007, "the queue is full; try again when some have ended")


def test_where_what_follows_is_refused_the_id_is_printed_and_nobody_is_told_to_repeat(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    full = Full()
    monkeypatch.setattr(App, "client", lambda *_, **__: full)
    params = {"as": "ci", "cwd": "/", "env": None, "key": "k", "command": "true"}
    app = App({"as_": "ci"}, {}, Console({}))
    code = Detached(app, "bash", {**params, "ready_when": {"port": 1}}, "echo then").run()
    out, err = capfd.readouterr()
    assert (code, out) == (125, "k8f3kv1\n")
    assert err == "engine: k8f3kv1 was started without its --then: the queue is full\n"


def test_a_job_shown_to_its_end_without_what_should_follow_exits_125(
    tmp_path: Path, me: str
) -> None:
    with Engine(tmp_path / "home", "--set", "max_tasks_per_caller=1") as narrow:
        done = engine(narrow.home, "run", "--then", "true", "sleep 0.6; echo on", "--as", me)
    assert (done.code, done.out) == (125, b"on\n")
    assert re.match(r"engine: [kt]\w{6} was started without its --then: ", done.err)


class Taken(Client):
    """A client of an engine where a job goes on and its port is not its own."""

    def __init__(self) -> None:
        self.holds = list[float]()

    def call(self, method: str, params: dict[str, Any], **_: Any) -> Any:
        job = {"status": "running", "kickoffId": "k8f3kv1", "taskId": "t8f3kv1"}
        if method == "bash":
            return job
        if method == "wait":
            return {**job, "warnings": ["port 80 was open before"]}
        self.holds.append(params["wait_seconds"])
        if len(self.holds) < 3:
            return {"reason": "wait_elapsed", "updates": []}
        return {"reason": "ready", "updates": [{**job, "ready": "ready_when"}]}


def test_a_warning_is_said_once_and_soon_while_the_job_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    taken = Taken()
    monkeypatch.setattr(App, "client", lambda *_, **__: taken)
    params = {"as": "ci", "key": "k", "command": "true", "ready_when": {"port": 80}}
    assert Detached(App({"as_": "ci"}, {}, Console({})), "bash", params, None).run() == 0
    assert capfd.readouterr() == ("t8f3kv1\n", "engine: port 80 was open before\n")
    assert taken.holds == [0.25, 0.5, 1.0]
