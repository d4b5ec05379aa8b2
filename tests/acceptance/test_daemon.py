"""The daemon's own life: one a home, its settings, its end by a signal, what it holds on to."""

from __future__ import annotations

import json
import os
import resource
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import LIMIT, NO_FLOOR, PROGRAM, Caller, Engine, Gate, RpcError

pytestmark = pytest.mark.usefixtures("whole_program")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def engine(home: Path) -> Iterator[Engine]:
    with Engine(home, *NO_FLOOR) as engine:
        yield engine


def serve(home: Path, *options: str) -> tuple[int, str]:
    """Exit code and standard error of an engine that does not start."""
    done = subprocess.run(
        [PROGRAM, "serve", "--home", home, *options], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


# -- one engine a home ---------------------------------------------------------------------------


def test_a_second_engine_on_the_same_home_is_refused_and_the_first_serves_on(
    engine: Engine,
) -> None:
    said = f"engine: another engine (pid {engine.pid}) has the home {engine.home}\n"
    assert serve(engine.home) == (3, said)
    with engine.connect() as client:
        assert client.caller().bash("echo hi")["output"] == "hi\n"


@pytest.mark.case("C116")
def test_of_several_started_in_the_same_instant_one_serves_also_after_a_kill(home: Path) -> None:
    with Engine(home, *NO_FLOOR) as engine:
        engine.kill()  # its socket, lock and facts stay behind
        assert {"engine.sock", "engine.lock", "engine.json"} <= set(os.listdir(home))
        (home / "engine.lock").write_text("1\n")
        processes, errors = [], []
        ready, notify = os.pipe()
        for _ in range(4):
            processes.append(
                subprocess.Popen(
                    [PROGRAM, "serve", "--home", home, "--notify-fd", str(notify), *NO_FLOOR],
                    stderr=subprocess.PIPE,
                    pass_fds=[notify],
                )
            )
        os.close(notify)
        readable, _, _ = select.select([ready], [], [], LIMIT)
        assert readable
        assert os.read(ready, 64) == b"ready\n"
        pid = engine.facts()["pid"]
        (winner,) = [process for process in processes if process.pid == pid]
        for process in processes:
            if process is not winner:
                _out, error = process.communicate(timeout=LIMIT)
                errors.append((process.returncode, error.decode()))
        assert errors == [(3, f"engine: another engine (pid {pid}) has the home {home}\n")] * 3
        with engine.connect() as client:
            assert client.caller().bash("echo hi")["output"] == "hi\n"
        winner.terminate()
        winner.communicate(timeout=LIMIT)
        os.close(ready)
        assert winner.returncode == 0


def test_a_home_that_is_open_to_others_is_closed(home: Path) -> None:
    home.mkdir()
    home.chmod(0o755)
    with Engine(home, *NO_FLOOR) as engine, engine.connect() as client:
        client.caller().bash("export SECRET=1")
        assert home.stat().st_mode & 0o777 == 0o700
        for path in home.rglob("*"):
            assert path.is_symlink() or path.stat().st_mode & 0o077 == 0, path


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to give a folder away")
def test_another_users_home_is_refused_and_left_as_it_is(home: Path) -> None:
    home.mkdir(mode=0o755)
    os.chown(home, 1234, 1234)
    said = f"engine: {home} belongs to another user (uid 1234)\n"
    assert serve(home) == (1, said)
    assert home.stat().st_mode & 0o777 == 0o755
    assert list(home.iterdir()) == []


def test_what_stands_in_a_homes_place_is_told_without_a_traceback(home: Path) -> None:
    home.write_text("")
    assert serve(home) == (1, f"engine: cannot use {home} as home: File exists\n")
    home.unlink()
    (home / "engine.lock").mkdir(parents=True)
    code, error = serve(home)
    assert (code, error) == (1, f"engine: cannot open {home}/engine.lock: Is a directory\n")


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "nonsense=1"], ["--set nonsense", "no setting 'nonsense'"]),
        (["--set", "slots=zero"], ["--set slots", "int"]),
        (["--set", "slots"], ["NAME=VALUE"]),
        (["--listen", "0.0.0.0:0"], ["0.0.0.0:0", "loopback", "TLS"]),
        (["--set", "listen=192.0.2.1:80"], ["192.0.2.1:80", "loopback"]),
    ],
)
def test_a_bad_setting_stops_the_start_and_says_which_and_why(
    home: Path, options: list[str], said: list[str]
) -> None:
    code, error = serve(home, *options)
    assert code == 2
    assert "Traceback" not in error
    for words in said:
        assert words in error


def test_the_file_of_settings_counts_below_set_and_set_below_a_flag(home: Path) -> None:
    home.mkdir()
    (home / "engine.toml").write_text("slots = 3\nqueue_limit = 7\nmin_free_bytes = 0\n")
    with Engine(home) as engine:
        for options, wanted in (
            ((), (3, 7)),
            (("--set", "slots=4"), (4, 7)),
            (("--set", "slots=4", "--slots", "5", "--set", "queue_limit=8"), (5, 8)),
        ):
            engine.kill()
            engine.start(*options)
            with engine.connect() as client:
                info = client.call("engine_info")
            assert (info["slots"], info["limits"]["queue_limit"]) == wanted
    (home / "engine.toml").write_text("nonsense = 1\n")
    said = f"engine: {home}/engine.toml: there is no setting 'nonsense'\n"
    assert serve(home) == (2, said)


def test_the_port_is_kept_over_ends_of_both_kinds_and_one_that_is_taken_is_told(
    home: Path,
) -> None:
    with Engine(home, *NO_FLOOR) as engine:
        url = engine.facts()["url"]
        engine.kill()
        engine.start()
        assert engine.facts()["url"] == url
        assert engine.stop() == 0
        engine.start()
        assert engine.facts()["url"] == url
        engine.stop()
        port = int(url.rpartition(":")[2].partition("/")[0])
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
            other.listen()
            engine.start()
            assert engine.facts()["url"] != url
            for tcp in (False, True):
                with engine.connect(tcp=tcp) as client:
                    said = f"port {port} is kept for this home, and was taken at the start"
                    assert client.call("engine_info")["degraded"] == [said]
            code, error = serve(home.with_name("second"), "--listen", f"127.0.0.1:{port}")
        refused = f"engine: cannot listen on 127.0.0.1:{port}: Address already in use\n"
        assert (code, error) == (1, refused)
        engine.stop()
        engine.start()
        assert engine.facts()["url"] == url


def test_a_log_in_json_has_one_object_a_line(home: Path) -> None:
    with Engine(home, *NO_FLOOR, "--log-format", "json") as engine:
        with engine.connect() as client:
            caller = client.caller("logger")
            task = caller.start("sleep 600")["taskId"]
            caller.cancel(task, grace_secs=0)
        engine.stop()
        lines = [json.loads(line) for line in engine.log_text().splitlines()]
    assert (lines[0]["event"], lines[-1]["event"]) == ("engine_started", "engine_stopped")
    (cancel,) = [line for line in lines if line["event"] == "cancel"]
    assert (cancel["taskId"], cancel["caller"]) == (task, caller.name)


def test_a_starter_that_has_gone_away_is_no_reason_to_end(home: Path) -> None:
    ready, notify = os.pipe()
    process = subprocess.Popen(
        [PROGRAM, "serve", "--home", home, "--notify-fd", str(notify), *NO_FLOOR],
        stderr=subprocess.PIPE,
        pass_fds=[notify],
    )
    os.close(notify)
    os.close(ready)
    assert process.stderr is not None
    assert b"engine_started" in process.stderr.readline()
    with Engine(home).connect() as client:
        assert client.caller().bash("echo hi")["output"] == "hi\n"
    process.terminate()
    process.communicate(timeout=LIMIT)
    assert process.returncode == 0


def test_too_few_descriptors_are_told_at_the_start(home: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", 'ulimit -n 64; exec "$@"', "bash", PROGRAM, "serve", "--home", home],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    said = "engine: 64 descriptors are too few (ulimit -Hn): it takes 256\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize(
    ("option", "what"), [("t 1", "processor time"), ("f 100", "the size of files")]
)
def test_a_limit_that_would_end_the_engine_is_told_at_the_start_or_lifted(
    home: Path, option: str, what: str
) -> None:
    serve = [str(PROGRAM), "serve", "--home", str(home)]
    hard = subprocess.run(
        ["bash", "-c", f'ulimit -{option}; exec "$@"', "bash", *serve],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert hard.returncode == 1
    assert hard.stderr.startswith(f"engine: {what} is limited (ulimit -H{option[0]}): ")
    assert not home.exists()
    run = [str(PROGRAM), "run", "--home", str(home), f"ulimit -{option[0]}"]
    soft = subprocess.run(
        ["bash", "-c", f'ulimit -S{option}; exec "$@"', "bash", *run],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    subprocess.run(
        [PROGRAM, "stop", "--home", home], check=True, capture_output=True, timeout=LIMIT
    )
    assert (soft.returncode, soft.stdout, soft.stderr) == (0, "unlimited\n", "")


# -- its end ---------------------------------------------------------------------------------------


@pytest.mark.case("C094")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_time_with_every_wait_answered_and_every_job_running_on(
    home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with (
        Engine(home, *NO_FLOOR, "--slots", "11") as engine,
        ExitStack() as stack,
        Gate(tmp_path / "go") as go,
    ):
        clients = [stack.enter_context(engine.connect()) for _ in range(5)]
        ci = Caller(clients[0], "ci")
        # Without a process for each word: how busy they are is not the point.
        noisy = "exec 9<> <(:); while :; do echo hello; read -rt 0.01 -u 9 _; done"
        tasks = [ci.start(noisy)["taskId"] for _ in range(10)]
        code_7 = ci.start(f"{go.wait}; exit 7")["taskId"]
        queued = ci.start("true")["kickoffId"]
        sent: list[Any] = []
        for i in range(50):
            caller = Caller(clients[i % 5], f"w{i}")
            sent.append(caller.send("wait", taskId=tasks[i % 10]))
        calls = [Caller(client, "in").send("bash", command="sleep 30") for client in clients]
        tail = clients[1].send("list_tasks", as_="x", changed_after=10**15, timeout_secs=55)
        ci.call("engine_info")  # all of them are under way
        began = time.monotonic()
        assert engine.process is not None
        engine.process.send_signal(number)
        for i, pending in enumerate(sent):
            reply = pending.result()
            assert (reply["status"], reply["taskId"]) == ("running", tasks[i % 10])
        for pending in calls:
            reply = pending.result()
            assert reply["status"] == "running"
            assert reply["kickoffId"].startswith("k")
        assert tail.result()["tasks"] == []
        assert engine.wait_exit() == 0
        assert time.monotonic() - began < 5
        assert not (home / "engine.sock").exists()
        go.open()
        engine.start()
        with engine.connect() as client:
            again = ci.on(client)
            end = again.wait(code_7)
            assert (end["status"], end["exitCode"], end["signal"]) == ("failed", 7, None)
            assert end["reason"] == "exit"
            assert again.wait(queued)["status"] == "succeeded"
            for task in tasks:
                assert again.wait(task, timeout_secs=0)["status"] == "running"


def test_what_is_asked_after_the_signal_is_refused_not_lost(home: Path) -> None:
    """A call either has its reply, or the connection ends: none is taken and left."""
    with Engine(home, *NO_FLOOR) as engine, engine.connect() as client:
        ci = client.caller()
        task = ci.start("sleep 600")["taskId"]
        waiting = ci.send("wait", taskId=task)
        assert engine.process is not None
        engine.process.terminate()
        assert waiting.result()["status"] == "running"
        try:
            error = ci.refuse("bash", command="echo late")
        except Exception as exc:
            assert type(exc).__name__.startswith("ConnectionClosed")  # noqa: PT017
        else:
            assert (error["code"], error["data"]["kind"]) == (-32006, "shutting_down")
        assert engine.wait_exit() == 0


# -- what it holds, and what it tells --------------------------------------------------------------


@pytest.mark.case("C148", "C149")
def test_no_token_is_in_argv_in_a_jobs_environment_or_in_the_log(home: Path) -> None:
    secret = {"MY_API_TOKEN": "s3cret-of-the-daemon"}
    with Engine(home, *NO_FLOOR, env=secret) as engine:
        with engine.connect() as client, engine.connect("human", tcp=True) as human:
            human.call("engine_info")
            seen = client.caller().bash(
                "env; tr '\\0' '\\n' < /proc/$PPID/environ; "
                "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done 2> /dev/null",
                max_output_bytes=524_288,
            )["output"]
        tokens = [engine.token(role) for role in ("agent", "observer", "human")]
        bad = secrets.token_urlsafe(32)  # which nobody else on this machine has
        with pytest.raises(Exception, match="401"):
            _connect_with(engine, bad)
        log = engine.log_text()
    assert "ENGINE_TASK_ID=t" in seen
    for token in (*tokens, bad, *secret.values()):
        assert token not in seen
        assert token not in log
    for name in ("engine.json", "human.token"):
        assert (home / name).stat().st_mode & 0o777 == 0o600


def _connect_with(engine: Engine, token: str) -> None:
    from websockets.sync.client import unix_connect

    headers = {"Authorization": f"Bearer {token}"}
    path = engine.facts()["socket"]
    with unix_connect(path, "ws://localhost/rpc", additional_headers=headers):
        raise AssertionError("let in")


def test_the_descriptors_and_the_memory_of_500_short_jobs_are_given_back(engine: Engine) -> None:
    with engine.connect() as client:
        ci = client.caller()

        def burst() -> None:
            calls = [ci.send("bash", command="echo hi", session=i % 2 == 0) for i in range(20)]
            for call in calls:
                call.result()

        burst()
        burst()
        base, memory = _descriptors(engine.pid), _resident_bytes(engine.pid)
        for _ in range(25):
            burst()
        assert _descriptors(engine.pid) <= base + 2
        assert _resident_bytes(engine.pid) < memory + (8 << 20)
        assert memory < 60 << 20


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.case("C103")
def test_without_descriptors_calls_are_refused_and_a_later_one_works(
    home: Path, tmp_path: Path
) -> None:
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/bash\nulimit -n 256\nexec {PROGRAM} "$@"\n')
    limited.chmod(0o755)
    ready, notify = os.pipe()
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            [limited, "serve", "--home", home, "--notify-fd", str(notify), *NO_FLOOR],
            stderr=log,
            pass_fds=[notify],
        )
    os.close(notify)
    engine = Engine(home)
    try:
        assert os.read(ready, 64) == b"ready\n"
        with engine.connect() as client, ExitStack() as stack:
            ci = client.caller()
            said = ci.bash("echo one")["taskId"]
            running = ci.start("sleep 600")["taskId"]
            for _ in range(256):
                crowd = stack.enter_context(socket.socket(socket.AF_UNIX))
                crowd.settimeout(LIMIT)
                crowd.connect(str(home / "engine.sock"))
                crowd.send(b"GET /livez HTTP/1.1\r\n")  # and the rest never comes
            _wait_full(process.pid, 255)  # one is freed for whoever comes next
            with pytest.raises(RpcError) as refused:
                ci.bash("echo two")
            assert (refused.value.code, refused.value.data["kind"]) == (-32007, "overloaded")
            unread = ci.refuse("read_output", taskId=said)  # not: an empty output
            assert (unread["code"], unread["data"]["limit"]) == (-32007, "system")
            before = _processor_ticks(process.pid)
            time.sleep(1)
            assert _processor_ticks(process.pid) - before < 30  # it does not spin
            stack.close()
            _wait_full(process.pid, 100, below=True)
            assert ci.bash("echo three")["output"] == "three\n"
            assert ci.call("read_output", taskId=said)["text"] == "one\n"
            assert ci.wait(running, timeout_secs=0)["status"] == "running"
            for _ in range(5):  # its keepers are there again then
                ci.bash("true")
            _wait_ahead(home)
            base = _descriptors(process.pid)
            for _ in range(5):
                ci.bash("true")
            _wait_ahead(home)
            assert _descriptors(process.pid) <= base + 2
        process.terminate()
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.wait(LIMIT)
        os.close(ready)
        engine.end_leftovers()


def _wait_full(pid: int, count: int, *, below: bool = False) -> None:
    """Wait until a process has `count` descriptors, or fewer: nobody tells of that."""
    limit = time.monotonic() + LIMIT
    while (_descriptors(pid) < count) != below:
        assert time.monotonic() < limit
        time.sleep(0.02)


def _wait_ahead(home: Path) -> None:
    """Wait until the shell of the next call waits for it: until then it may hold more or less."""
    limit = time.monotonic() + LIMIT
    while not any((each / "ready").is_symlink() for each in (home / "tasks" / ".ahead").iterdir()):
        assert time.monotonic() < limit
        time.sleep(0.02)


def _processor_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
