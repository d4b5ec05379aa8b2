"""PROTOCOL 3: `stdin: "open"`, `pty` and `write_stdin`, with real interpreters at the other end."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import LIMIT, PROGRAM, Caller, Client, Engine, Gate, is_running, wait_gone

MIB = 1_048_576


def begin(caller: Caller, *argv: str, **named: Any) -> str:
    """The id of an argument list that runs."""
    return str(caller.execute(*argv, timeout_secs=0, **named)["taskId"])


def write(caller: Caller, task: str, text: str, **named: Any) -> None:
    assert written(caller, taskId=task, text=text, **named) == {"written": len(text.encode())}


def end_input(caller: Caller, task: str) -> None:
    assert written(caller, taskId=task, eof=True) == {"written": 0}


def written(caller: Caller, **params: Any) -> dict[str, Any]:
    """The result, without the notices: the job may have ended by this very input."""
    answer = caller.call("write_stdin", **params)
    answer.pop("notices", None)
    return answer


def wait_text(caller: Caller, task: str, text: str, stream: str = "output") -> str:
    """All of the output, once `text` stands in it."""
    found, at = "", 0
    until = time.monotonic() + LIMIT
    while text not in found:
        assert time.monotonic() < until, f"{text!r} is not in {found!r}"
        page = caller.call(
            "read_output", taskId=task, stream=stream, offset=at, timeout_secs=LIMIT / 3
        )
        assert page["text"] or not page["eof"], f"{text!r} is not in {found!r}, which is all"
        found, at = found + page["text"], page["nextOffset"]
    return found


# -- an open input -------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", ["merged", "split"])
def test_python_is_driven_through_its_open_input(caller: Caller, streams: str) -> None:
    task = begin(caller, "python3", "-i", "-q", stdin="open", streams=streams)
    answers = "stdout" if streams == "split" else "output"

    write(caller, task, "print(6 * 7)\n")
    wait_text(caller, task, "42", answers)
    write(caller, task, "import sys; print('to stderr', file=sys.stderr)\n")
    wait_text(caller, task, "to stderr", "stderr" if streams == "split" else "output")
    write(caller, task, "raise SystemExit(9)\n")

    done = caller.wait(task)
    assert (done["status"], done["exitCode"]) == ("failed", 9)
    if streams == "split":
        assert done["stdout"] == "42\n"


def test_bash_is_driven_through_its_open_input(caller: Caller) -> None:
    task = caller.start("bash", stdin="open")["taskId"]

    write(caller, task, "x=6\n")
    write(caller, task, "echo $((x * 7))\n")
    wait_text(caller, task, "42\n")
    end_input(caller, task)

    assert caller.wait(task)["status"] == "succeeded"


def test_sqlite_is_driven_through_its_open_input(caller: Caller) -> None:
    if shutil.which("sqlite3") is None:
        pytest.skip("NOT TESTED: the program sqlite3 is not installed")
    task = begin(caller, "sqlite3", stdin="open")

    write(caller, task, "create table t(x); insert into t values (40), (2);\n")
    write(caller, task, "select sum(x) from t;\n")
    wait_text(caller, task, "42\n")
    write(caller, task, ".quit\n")

    assert caller.wait(task)["status"] == "succeeded"


def test_every_byte_comes_back_as_it_was(caller: Caller) -> None:
    task = begin(caller, "cat", stdin="open")
    data = bytes(range(256)) * 500

    sent = written(caller, taskId=task, base64=base64.b64encode(data).decode(), eof=True)
    done = caller.wait(task)

    assert sent == {"written": 128_000}
    assert Path(done["outputPath"]).read_bytes() == data
    page = caller.call("read_output", taskId=task, raw=True, limit_bytes=256)
    assert base64.b64decode(page["base64"]) == bytes(range(256))


def test_an_input_stays_open_over_a_crash_of_the_engine(tmp_path: Path) -> None:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as engine:
        with engine.connect() as client:
            caller = client.caller()
            repl = begin(caller, "python3", "-i", "-q", stdin="open")
            terminal = begin(caller, "python3", "-i", "-q", pty=True)
            write(caller, repl, "x = 6\n")
            wait_text(caller, terminal, ">>> ")
            write(caller, terminal, "x = 8\n")
            wait_text(caller, terminal, "x = 8\r\n>>> ")

        engine.kill()
        engine.start()

        with engine.connect() as client:
            caller = caller.on(client)
            write(caller, repl, "print(x * 7)\n", eof=True)
            assert "42\n" in caller.wait(repl)["output"]
            write(caller, terminal, "print(x * 8)\n")
            wait_text(caller, terminal, "64\r\n>>> ")
            end_input(caller, terminal)
            assert caller.wait(terminal)["status"] == "succeeded"


def test_a_call_that_waits_in_the_queue_keeps_how_its_input_is(tmp_path: Path) -> None:
    options = ("--slots", "1", "--set", "min_free_bytes=0")
    with Engine(tmp_path / "home", *options) as engine:
        with engine.connect() as client:
            caller = client.caller()
            first = caller.start("sleep 300")["taskId"]
            open_ = begin_queued(caller, "cat", stdin="open")
            pty = begin_queued(caller, "tty", pty=True)
            task = "t" + open_[1:]
            error = caller.refuse("write_stdin", taskId=task, text="x")
            assert (error["code"], error["data"]["state"]) == (-32011, "queued")

        engine.kill()
        engine.start()

        with engine.connect() as client:
            caller = caller.on(client)
            caller.cancel(first, grace_secs=0)
            caller.call("list_tasks", state=["running"], changed_after=0, timeout_secs=LIMIT)
            write(caller, task, "hello\n", eof=True)
            assert caller.wait(open_)["output"] == "hello\n"
            assert caller.wait(pty)["output"].startswith("/dev/pts/")


def begin_queued(caller: Caller, *argv: str, **named: Any) -> str:
    return str(caller.execute(*argv, timeout_secs=0, **named)["kickoffId"])


@pytest.mark.case("C097")
def test_a_job_that_has_ended_takes_nothing(caller: Caller) -> None:
    task = caller.bash("exit 3", stdin="open")["taskId"]

    error = caller.refuse("write_stdin", taskId=task, text="x")

    assert (error["code"], error["data"]["kind"]) == (-32011, "invalid_state")
    assert (error["data"]["state"], error["data"]["exitCode"]) == ("failed", 3)
    assert caller.bash("echo alive")["output"] == "alive\n"


@pytest.mark.case("C097")
def test_writing_while_jobs_end_never_harms_the_engine(caller: Caller) -> None:
    for _ in range(30):
        task = begin(caller, "true", stdin="open")
        pending = [caller.send("write_stdin", taskId=task, text="x" * 70_000) for _ in range(3)]
        for one in pending:
            message = one.message()
            if "error" in message:
                assert message["error"]["code"] == -32011
        assert caller.wait(task)["status"] == "succeeded"


@pytest.mark.case("C098")
def test_a_job_that_does_not_read_delays_nobody(caller: Caller) -> None:
    task = begin(caller, "sleep", "300", stdin="open")

    begun = time.monotonic()
    write(caller, task, "x" * MIB)
    error = caller.refuse("write_stdin", taskId=task, text="y", eof=True)
    assert (error["code"], error["data"]["kind"]) == (-32007, "overloaded")
    assert (error["data"]["limit"], error["data"]["written"]) == (MIB, 0)
    assert caller.bash("echo quick")["output"] == "quick\n"
    assert caller.cancel(task)["outcome"] == "cancelled"
    assert time.monotonic() - begun < 5


def test_what_is_too_much_is_taken_in_part_and_can_be_gone_on_with(
    caller: Caller, gate: Gate
) -> None:
    task = caller.start(f"{gate.wait}; wc -c", stdin="open")["taskId"]

    error = caller.refuse("write_stdin", taskId=task, text="é" * MIB, eof=True)
    assert (error["code"], error["data"]["written"]) == (-32007, MIB)

    gate.open()
    until = time.monotonic() + LIMIT
    left = "é" * (MIB - MIB // 2)
    while left:
        assert time.monotonic() < until
        message = caller.send("write_stdin", taskId=task, text=left, eof=True).message()
        if "result" in message:
            break
        left = left[message["error"]["data"]["written"] // 2 :]
    assert caller.wait(task)["output"] == "2097152\n"


def test_an_input_that_was_never_open_takes_nothing(caller: Caller) -> None:
    for stdin in ("null", {"text": "all there is"}):
        task = begin(caller, "sleep", "300", stdin=stdin)
        error = caller.refuse("write_stdin", taskId=task, text="x")
        assert (error["code"], error["data"]["state"]) == (-32011, "running")
        caller.cancel(task, grace_secs=0)


def test_an_input_that_was_ended_takes_no_more(caller: Caller, gate: Gate) -> None:
    task = caller.start(f"{gate.wait}; cat", stdin="open")["taskId"]
    write(caller, task, "all\n", eof=True)

    error = caller.refuse("write_stdin", taskId=task, text="more")
    assert (error["code"], error["data"]["state"]) == (-32011, "running")

    gate.open()
    assert caller.wait(task)["output"] == "all\n"


def test_another_callers_job_takes_force_which_is_on_record(
    client: Client, caller: Caller, engine: Engine
) -> None:
    other = client.caller("other")
    task = begin(caller, "cat", stdin="open")

    assert other.refuse("write_stdin", taskId=task, text="x")["code"] == -32009
    write(other, task, "forced\n", eof=True, force=True)

    assert caller.wait(task)["output"] == "forced\n"
    lines = [line for line in engine.log_text().splitlines() if task in line]
    assert any(other.name in line and caller.name in line for line in lines)


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({}, "$"),
        ({"text": "x", "base64": "eA=="}, "$"),
        ({"base64": "no base64!"}, "$.base64"),
        ({"base64": "eA"}, "$.base64"),
        ({"text": 7}, "$.text"),
        ({"text": "x", "eof": 1}, "$.eof"),
    ],
)
def test_what_is_written_is_given_once_and_well(
    caller: Caller, params: dict[str, Any], path: str
) -> None:
    error = caller.refuse("write_stdin", taskId="t000000", **params)
    assert (error["code"], error["data"]["path"]) == (-32602, path)


def test_an_unknown_task_takes_nothing(caller: Caller) -> None:
    assert caller.refuse("write_stdin", taskId="t000zzz", text="x")["code"] == -32003


def test_an_observer_writes_to_nobody(engine: Engine, caller: Caller) -> None:
    task = begin(caller, "cat", stdin="open")
    with engine.connect("observer") as client:
        error = client.refuse("write_stdin", as_=caller.name, taskId=task, text="x")
    assert error["code"] == -32009
    end_input(caller, task)


# -- terminals -----------------------------------------------------------------------------------


def test_a_job_has_a_terminal_of_80_by_24(caller: Caller) -> None:
    done = caller.bash("tty; stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo yes", pty=True)

    tty, size, all_three = done["output"].splitlines()
    assert tty.startswith("/dev/pts/")
    assert (size, all_three) == ("24 80", "yes")


def test_a_terminal_leaves_the_shells_state_as_it_was(caller: Caller) -> None:
    caller.bash("COLUMNS=200; x=1")
    caller.bash("x=2; stty size; cd /tmp", pty=True)

    done = caller.bash('echo "$COLUMNS $x $PWD ${LINES-none}"')

    assert done["output"] == "200 2 /tmp none\n"


def test_programs_at_a_terminal_are_not_told_that_nobody_looks(client: Client) -> None:
    client.call("hello", env={"PATH": os.environ["PATH"]})
    caller = client.caller()
    show = 'echo "${TERM-none} ${NO_COLOR-none} ${PAGER-none} ${GIT_PAGER-none}"'

    assert caller.bash(show, pty=True)["output"] == "xterm none none none\n"
    assert caller.bash(show)["output"] == "dumb 1 cat cat\n"
    given = caller.bash(show, pty=True, env={"TERM": "vt100"})
    assert given["output"] == "vt100 none none none\n"
    direct = caller.execute("bash", "-c", show, pty=True)
    assert direct["output"] == "xterm none none none\n"


@pytest.mark.parametrize("method", ["bash", "execute"])
def test_a_terminal_cannot_be_split(caller: Caller, method: str) -> None:
    what: dict[str, Any] = {"command": "tty"} if method == "bash" else {"argv": ["tty"]}
    error = caller.refuse(method, pty=True, streams="split", **what)
    assert (error["code"], error["data"]["path"]) == (-32602, "$.pty")


def test_a_given_text_is_typed_and_ended(caller: Caller) -> None:
    done = caller.bash("stty -echo; cat -A; echo over", pty=True, stdin={"text": "one\ntwo\n"})
    assert done["status"] == "succeeded"
    assert done["output"].endswith("one$\ntwo$\nover\n")


def test_a_given_text_that_ends_in_a_line_is_ended_too(caller: Caller) -> None:
    done = caller.bash("stty -echo; cat; echo -over", pty=True, stdin={"text": "half"})
    assert done["output"].endswith("half-over\n")


def test_a_long_text_is_typed_without_loss(caller: Caller) -> None:
    text = "".join(f"{number:09d}\n" for number in range(300_000))
    done = caller.bash("stty -echo; sha256sum", pty=True, stdin={"text": text})
    assert hashlib.sha256(text.encode()).hexdigest() in done["output"]


def test_after_a_given_text_nobody_types(caller: Caller) -> None:
    task = begin(caller, "sleep", "300", pty=True, stdin={"text": "x"})
    error = caller.refuse("write_stdin", taskId=task, text="y")
    assert (error["code"], error["data"]["state"]) == (-32011, "running")
    caller.cancel(task, grace_secs=0)


def test_python_is_driven_at_a_terminal(caller: Caller) -> None:
    task = begin(caller, "python3", "-i", "-q", pty=True)

    wait_text(caller, task, ">>> ")
    write(caller, task, "print(6 * 7)\n")
    wait_text(caller, task, "42\r\n")
    write(caller, task, "import time; print('bus' + 'y'); time.sleep(300)\n")
    wait_text(caller, task, "busy\r\n")
    write(caller, task, "\x03")
    wait_text(caller, task, "KeyboardInterrupt\r\n>>> ")
    write(caller, task, "raise SystemExit(9)\n")

    assert caller.wait(task)["exitCode"] == 9


def test_bash_has_job_control_at_a_terminal(caller: Caller) -> None:
    task = begin(caller, "bash", "--norc", "-i", pty=True, env={"PS1": "ready> "})

    wait_text(caller, task, "ready> ")
    write(caller, task, "sleep 301\n")
    wait_text(caller, task, "sleep 301\r\n")
    wait_front(task, "sleep")
    write(caller, task, "\x1a")
    wait_text(caller, task, "Stopped")
    write(caller, task, "jobs; kill %1; wait; echo $((6 * 7)) over\n")
    wait_text(caller, task, "42 over")
    write(caller, task, "sleep 302; echo after=$?\n")
    wait_front(task, "sleep")
    write(caller, task, "\x03")
    wait_text(caller, task, "^C")
    write(caller, task, "exit 5\n")

    assert caller.wait(task)["exitCode"] == 5


def wait_front(task: str, name: str) -> None:
    """Wait until a program of this name is in front at the task's terminal."""
    marked = f"ENGINE_TASK_ID={task}".encode()
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command, _, rest = (entry / "stat").read_text().rpartition(")")
                if not command.endswith(f"({name}"):
                    continue
                group, front = rest.split()[2], rest.split()[5]
                if group == front and marked in (entry / "environ").read_bytes().split(b"\0"):
                    return
            except (FileNotFoundError, ProcessLookupError):
                continue
        time.sleep(0.01)  # nobody tells when a program comes to the front
    raise AssertionError(f"{name} is not in front")


def test_the_end_of_a_job_hangs_up_on_its_group(caller: Caller, bell: Gate, gate: Gate) -> None:
    task = caller.start(f"sleep 301 & echo $!; {bell.tell}; {gate.wait}", pty=True)["taskId"]
    bell.hear()
    pid = int(wait_text(caller, task, "\n").split()[0])
    assert is_running(pid)

    gate.open()

    caller.wait(task)
    wait_gone(pid)


def test_cancel_of_a_job_at_a_terminal_leaves_nobody(caller: Caller) -> None:
    task = begin(caller, "bash", "--norc", "-i", pty=True, env={"PS1": "ready> "})
    wait_text(caller, task, "ready> ")
    write(caller, task, "set +m; setsid sleep 301 & nohup sleep 302 >/dev/null 2>&1 & sleep 303\n")
    wait_front(task, "sleep")

    answer = caller.cancel(task, grace_secs=0.5)

    assert (answer["outcome"], answer["survivors"]) == ("cancelled", [])
    assert len(answer["signalled"]) >= 4
    assert [pid for pid in answer["signalled"] if is_running(pid)] == []


def test_all_output_of_a_terminal_is_there_at_the_end(caller: Caller) -> None:
    done = caller.bash("seq 200000; printf end", pty=True)
    expected = b"".join(b"%d\r\n" % number for number in range(1, 200_001)) + b"end"
    assert Path(done["outputPath"]).read_bytes() == expected


# -- the command line ------------------------------------------------------------------------------


def run(engine: Engine, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    env = {**engine.env, "ENGINE_HOME": str(engine.home), "ENGINE_CALLER": "stdin-cli"}
    return subprocess.run(
        [PROGRAM, *words], input=stdin, capture_output=True, timeout=LIMIT, env=env, check=False
    )


def test_a_job_is_fed_from_the_command_line(engine: Engine) -> None:
    task = run(engine, "run", "-d", "--stdin", "open", "cat").stdout.decode().strip()

    assert run(engine, "stdin", task, "a line").returncode == 0
    assert run(engine, "stdin", task, "another\n").returncode == 0
    assert run(engine, "stdin", task, "-", stdin=b"\xff\x00").returncode == 0
    assert run(engine, "stdin", task, "-", "--eof", stdin=b"x" * 3_000_000).returncode == 0

    done = run(engine, "output", "-f", task)
    assert done.stdout == b"a line\nanother\n\xff\x00" + b"x" * 3_000_000
    late = run(engine, "stdin", task, "late")
    assert (late.returncode, late.stdout) == (1, b"")
    assert late.stderr.startswith(b"engine: ")


def test_a_terminal_is_had_and_typed_at_from_the_command_line(engine: Engine) -> None:
    done = run(engine, "exec", "--pty", "--", "stty", "size")
    assert (done.returncode, done.stdout) == (0, b"24 80\r\n")

    task = run(engine, "run", "-d", "--pty", "read -r x; echo got $x").stdout.decode().strip()
    assert run(engine, "stdin", task, "typed").returncode == 0
    assert b"got typed\r\n" in run(engine, "output", "-f", task).stdout


def test_what_to_write_must_be_said(engine: Engine) -> None:
    assert run(engine, "stdin", "t000000").returncode == 2
    assert run(engine, "run", "--pty", "--split", "true").returncode == 125
