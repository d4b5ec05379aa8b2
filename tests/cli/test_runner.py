"""Mirrors `engine/cli/runner.py`: `run` and `exec` from the first call to the exit code."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from acceptance.running import Engine
from cli.program import LIMIT, PROGRAM, Terminal, engine, environment, start
from client.fake_engine import FakeEngine


def test_a_run_that_ends_well_says_nothing(fake: FakeEngine) -> None:
    assert engine(fake.home, "run", "true") == (0, b"", "")
    assert fake.methods()[:2] == ["hello", "bash"]
    assert set(fake.methods()[2:]) <= {"read_task"}  # which says that the end has been shown


def test_a_short_run_comes_in_one_answer_and_a_page_of_each_stream(fake: FakeEngine) -> None:
    assert engine(fake.home, "run", "echo hi; echo there") == (0, b"hi\nthere\n", "")
    assert fake.methods() == ["hello", "bash", "read_output", "read_output"]


def test_a_run_that_ends_badly_says_one_line_and_exits_as_the_job(fake: FakeEngine) -> None:
    done = engine(fake.home, "run", "exit 7")
    assert (done.code, done.out) == (7, b"")
    assert done.err.startswith("engine: t8f3000 failed, exit 7, after ")
    assert done.err.count("\n") == 1
    assert engine(fake.home, "run", "-q", "exit 7") == (7, b"", "")


@pytest.mark.parametrize(
    "command",
    [
        r'printf "\x00\xff\n"',
        r'printf "a\rb\e[31mc\e[0m\n"',
        r'printf "\xf0\x9f\x8f"',  # ends inside a character: as long as the sign for it
        "head -c 300000 /dev/zero",
        "head -c 65537 /dev/zero | tr '\\0' x",
    ],
)
def test_output_is_byte_exact(fake: FakeEngine, tmp_path: Path, command: str) -> None:
    right = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
    assert engine(fake.home, "run", command) == (0, right, "")


def test_streams_stay_apart_where_ours_do(fake: FakeEngine) -> None:
    done = engine(fake.home, "run", "echo out; echo err >&2")
    assert done == (0, b"out\n", "err\n")
    assert fake.calls[1][1]["streams"] == "split"


def test_streams_are_merged_where_ours_are(fake: FakeEngine) -> None:
    with Terminal(fake.home, "run", "echo out; echo err >&2; echo out2") as terminal:
        assert terminal.wait() == 0
        assert terminal.seen == "out\r\nerr\r\nout2\r\n"
    assert fake.calls[1][1]["streams"] == "merged"


def test_a_long_run_is_followed_and_no_byte_is_lost(fake: FakeEngine) -> None:
    command = "for i in 1 2 3 4; do echo $i; echo e$i >&2; sleep 0.2; done; exit 3"
    done = engine(fake.home, "run", command)
    assert (done.code, done.out) == (3, b"1\n2\n3\n4\n")
    assert done.err.splitlines()[:4] == ["e1", "e2", "e3", "e4"]


def test_exec_passes_arguments_as_they_are(fake: FakeEngine) -> None:
    done = engine(fake.home, "exec", "--", "printf", "%s|", "a b", "--json", "$HOME")
    assert done == (0, b"a b|--json|$HOME|", "")
    assert fake.calls[1][1]["argv"] == ["printf", "%s|", "a b", "--json", "$HOME"]


def test_it_runs_in_the_clients_directory_and_environment_without_engine_variables(
    fake: FakeEngine, tmp_path: Path
) -> None:
    done = engine(
        fake.home, "run", "pwd; echo $FRUIT", cwd=tmp_path, FRUIT="fig", ENGINE_CALLER="ci"
    )
    assert done == (0, f"{tmp_path}\nfig\n".encode(), "")
    [greeting] = fake.greetings
    assert greeting["cwd"] == str(tmp_path)
    assert not [name for name in greeting["env"] if name.startswith("ENGINE_")]
    assert fake.calls[1][1]["as"] == "ci"
    assert fake.calls[1][1]["session"] is False


def test_options_reach_the_call(fake: FakeEngine, tmp_path: Path) -> None:
    options = ["--deadline", "30", "--cwd", "sub", "-e", "A=1=2", "--key", "k1", "--as", "ci"]
    (tmp_path / "sub").mkdir()
    done = engine(fake.home, "run", "pwd; echo $A", *options, cwd=tmp_path)
    assert done == (0, f"{tmp_path}/sub\n1=2\n".encode(), "")
    params = fake.calls[1][1]
    assert (params["deadline_secs"], params["cwd"], params["env"], params["key"], params["as"]) == (
        30,
        f"{tmp_path}/sub",
        {"A": "1=2"},
        "k1",
        "ci",
    )


def test_each_run_has_a_key_of_its_own(fake: FakeEngine) -> None:
    for _ in range(2):
        engine(fake.home, "run", "true")
    first, second = (params["key"] for method, params in fake.calls if method == "bash")
    assert first != second


def test_text_and_input_come_from_stdin_when_asked(fake: FakeEngine) -> None:
    assert engine(fake.home, "run", "-", stdin=b"echo 'from stdin'") == (0, b"from stdin\n", "")
    assert engine(fake.home, "run", "cat", "--stdin", "-", stdin=b"in") == (0, b"in", "")
    assert engine(fake.home, "run", "cat", stdin=b"in") == (0, b"", "")


def test_detached_prints_the_id_alone(fake: FakeEngine) -> None:
    assert engine(fake.home, "run", "-d", "sleep 60") == (0, b"t8f3000\n", "")
    assert fake.calls[-1][1]["timeout_secs"] == 0
    fake.holds_queue = True
    assert engine(fake.home, "run", "-d", "sleep 60").out == b"k8f3001\n"


def test_json_is_the_wires_record_on_one_line(fake: FakeEngine) -> None:
    done = engine(fake.home, "run", "--json", "echo hi; sleep 0.5; exit 4")
    assert done.code == 4
    assert done.out.count(b"\n") == 1
    record = json.loads(done.out)
    assert (record["output"], record["exitCode"], record["taskId"]) == ("hi\n", 4, "t8f3000")


def test_a_job_that_waits_in_the_queue_is_told_and_then_followed(fake: FakeEngine) -> None:
    fake.holds_queue = True
    with start(fake.home, "run", "echo at last") as run:
        fake.wait_for(lambda: "list_tasks" in fake.methods())
        assert run.stderr is not None
        assert run.stderr.readline() == b"engine: queued #1: all slots are taken\n"
        fake.release_queue()
        out, err = run.communicate(timeout=LIMIT)
    assert (run.returncode, out, err) == (0, b"at last\n", b"")


def test_a_job_that_is_cancelled_in_the_queue_ends_the_run(fake: FakeEngine) -> None:
    fake.holds_queue = True
    with start(fake.home, "run", "true") as run:
        fake.wait_for(lambda: "list_tasks" in fake.methods())
        assert engine(fake.home, "cancel", "k8f3000").code == 0
        run.communicate(timeout=LIMIT)
    assert run.returncode == 143


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_the_job_and_exits_143(fake: FakeEngine, number: int) -> None:
    with start(fake.home, "run", "echo up; sleep 60", fresh=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        run.send_signal(number)
        _, err = run.communicate(timeout=LIMIT)
    assert run.returncode == 143
    first, last = err.decode().splitlines()
    assert first == (
        "engine: cancelling t8f3000 (Ctrl-C again leaves; it is cancelled all the same)"
    )
    assert last.startswith("engine: t8f3000 cancelled after ")
    assert last.endswith(", SIGTERM, 1 process")


def test_a_second_interrupt_leaves_at_once(fake: FakeEngine) -> None:
    with start(fake.home, "run", "trap '' TERM; echo up; while :; do sleep 1; done") as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        run.send_signal(signal.SIGINT)
        fake.wait_for(lambda: "cancel" in fake.methods())
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=LIMIT)
    assert run.returncode == 130


def test_an_interrupt_while_our_reader_is_slow_still_cancels(fake: FakeEngine) -> None:
    with start(fake.home, "run", "head -c 3000000 /dev/zero; echo done; sleep 60") as run:
        assert run.stdout is not None
        os.read(run.stdout.fileno(), 1)  # it writes, and we read no more
        fake.wait_for(lambda: len(fake.jobs["8f3000"].kept.get("stdout", b"")) == 3_000_005)
        run.send_signal(signal.SIGINT)
        fake.wait_for(lambda: "cancel" in fake.methods())
        run.communicate(timeout=LIMIT)
    assert run.returncode == 143


def test_quit_leaves_the_job_running_and_says_its_id(fake: FakeEngine) -> None:
    with start(fake.home, "run", "echo up; sleep 60") as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        run.send_signal(signal.SIGQUIT)
        _, err = run.communicate(timeout=LIMIT)
    assert (run.returncode, err) == (0, b"engine: t8f3000 runs on; engine wait t8f3000\n")
    assert "cancel" not in fake.methods()


def test_keep_makes_an_interrupt_leave_the_job_running(fake: FakeEngine) -> None:
    with start(fake.home, "run", "--keep", "echo up; sleep 60") as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=LIMIT)
    assert run.returncode == 130
    assert "cancel" not in fake.methods()


def test_a_reader_that_goes_away_is_exit_141_in_silence(fake: FakeEngine) -> None:
    with start(fake.home, "run", "yes", fresh=True) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        os.read(run.stdout.fileno(), 1)
        run.stdout.close()
        assert run.wait(LIMIT) == 141
        assert run.stderr.read() == b""


def test_a_lost_connection_is_made_again_and_no_byte_comes_twice(fake: FakeEngine) -> None:
    command = "for i in $(seq 30); do echo $i; sleep 0.1; done; exit 9"
    with start(fake.home, "run", "--no-start", command) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"1\n"
        fake.stop()
        fake.start()
        out, err = run.communicate(timeout=LIMIT)
    assert (run.returncode, out) == (9, "".join(f"{i}\n" for i in range(2, 31)).encode())
    lost, back, ended = err.decode().splitlines()
    assert lost == "engine: connection lost; trying again for up to 60 s"
    assert back.startswith("engine: connected again after 0.")
    assert ended.startswith("engine: t8f3000 failed, exit 9")
    assert len(fake.jobs) == 1


def test_an_engine_that_stays_away_is_given_up_with_exit_125(fake: FakeEngine) -> None:
    with start(fake.home, "run", "--no-start", "--reconnect", "0.5", "echo up; sleep 60") as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        fake.stop()
        _, err = run.communicate(timeout=LIMIT)
    assert run.returncode == 125
    assert "gave up after 0.5 s" in err.decode()


def test_a_call_that_is_lost_before_its_answer_runs_once(fake: FakeEngine) -> None:
    with start(fake.home, "run", "--json", "sleep 1; echo once") as run:
        fake.wait_for(lambda: "bash" in fake.methods())
        fake.drop()
        out, _ = run.communicate(timeout=LIMIT)
    assert json.loads(out)["output"] == "once\n"
    assert fake.methods().count("bash") == 2
    assert len(fake.jobs) == 1


def test_a_terminal_gets_colours_and_nothing_that_moves_it(fake: FakeEngine) -> None:
    command = r"printf '\e]0;x\a\e[2Jhi \e[31mred\e[0m\a\n'"
    with Terminal(fake.home, "run", command) as terminal:
        assert terminal.wait() == 0
        assert terminal.seen == "hi \x1b[31mred\x1b[0m\\x07\r\n"
    with Terminal(fake.home, "run", "--raw", command) as terminal:
        assert terminal.wait() == 0
        assert "\x1b]0;x\x07\x1b[2Jhi" in terminal.seen


def test_a_terminal_shows_that_a_silent_job_runs_and_wipes_it(fake: FakeEngine) -> None:
    with Terminal(
        fake.home, "run", "echo start; sleep 6; echo end", environ={"NO_COLOR": "1"}
    ) as terminal:
        terminal.read_until("▶ t8f3000  running 5s · last output 5s ago · Ctrl-C cancels")
        assert terminal.wait() == 0
        assert terminal.seen.endswith("\r\x1b[2Kend\r\n")


def test_keys_of_a_terminal_are_signals(fake: FakeEngine) -> None:
    with Terminal(fake.home, "run", "printf up; sleep 60", fresh=True) as terminal:
        terminal.read_until("up")
        terminal.type(b"\x1c")
        assert terminal.wait() == 0
        assert terminal.seen.endswith("\r\nengine: t8f3000 runs on; engine wait t8f3000\r\n")


@pytest.mark.case("C096")
def test_an_interrupted_run_keeps_what_it_wrote(fake: FakeEngine) -> None:
    with start(fake.home, "run", "echo one; sleep 30; echo two; exit 5") as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"one\n"
        job = fake.jobs["8f3000"]
        assert job.process is not None
        children = Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children")
        fake.wait_for(lambda: children.read_text().split())
        os.kill(int(children.read_text().split()[0]), signal.SIGINT)
        out, _ = run.communicate(timeout=LIMIT)
    assert (run.returncode, out) == (5, b"two\n")
    assert engine(fake.home, "output", "t8f3000").out == b"one\ntwo\n"


def test_on_the_real_engine_a_session_lives_on_from_run_to_run(real: Engine, me: str) -> None:
    ask = functools.partial(engine, real.home, ENGINE_CALLER=me)
    assert ask("run", "--session", "sleep 0.6; A=7; cd /tmp").code == 0
    assert ask("run", "--session", "echo $A; pwd") == (0, b"7\n/tmp\n", "")
    assert ask("run", "echo $A") == (0, b"\n", "")


@pytest.mark.case("C085")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("kill -INT $$", 130),
        ("kill -HUP $$", 129),
        ("ulimit -c 0; kill -SEGV $$", 139),
        ("ulimit -c 0; python3 -c 'import os; os.abort()'", 134),
    ],
)
def test_a_death_by_a_signal_is_128_and_its_number(
    fake: FakeEngine, command: str, code: int
) -> None:
    assert engine(fake.home, "run", command).code == code


def test_the_real_engine_may_die_in_the_middle_and_come_back(tmp_path: Path) -> None:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as real:
        command = "for i in $(seq 20); do echo $i; sleep 0.1; done; exit 9"
        with start(real.home, "run", "--no-start", command) as run:
            assert run.stdout is not None
            assert run.stdout.readline() == b"1\n"
            real.kill()
            real.start()
            out, err = run.communicate(timeout=LIMIT)
        assert (run.returncode, out) == (9, "".join(f"{i}\n" for i in range(2, 21)).encode())
        words = [line.split()[1] for line in err.decode().splitlines()]
        assert words[:2] == ["connection", "connected"]


def test_on_the_real_engine_output_is_byte_exact_and_large(
    real: Engine, me: str, tmp_path: Path
) -> None:
    ask = functools.partial(engine, real.home, ENGINE_CALLER=me)
    for command in (
        r'printf "\x00\xff\n"',
        r'printf "a\e[4Cb\n"',  # shown, it is as long as it is written
        r'printf "a\rb\e[31mc\e[0m\n\t\a\b"; printf "\xf0\x9f\x8f"',
        "head -c 3000000 /dev/urandom >r; cat r; rm r; sleep 0.4; echo end",
    ):
        done = ask("run", command, cwd=tmp_path)
        assert (done.code, done.err) == (0, "")
        assert done.out == ask("output", "@last").out
    assert len(done.out) == 3_000_004
    assert ask("run", r'printf "\x00\xff\n"').out == b"\x00\xff\n"


def test_a_process_that_is_left_behind_and_writes_for_ever_does_not_hold_the_run(
    real: Engine, me: str
) -> None:
    ask = functools.partial(engine, real.home, ENGINE_CALLER=me)
    noisy = "(while :; do echo x; done) & sleep 0.6; exit 4"
    assert ask("run", noisy).code == 4
    done = ask("cancel", "@last")
    assert done.code == 0
    assert done.err.endswith("; 1 process that it left behind ended\n")


def test_py_prints_the_output_and_then_the_value_as_the_interpreter_would(
    real: Engine, me: str
) -> None:
    ask = functools.partial(engine, real.home, ENGINE_CALLER=me)
    code = "import sys\nx = 20\nprint('out')\nx + 1"
    assert ask("py", code) == (0, b"out\n21\n", "")
    assert ask("py", "x = x * 2; None") == (0, b"", "")
    assert ask("py", "-", stdin=b"x\n") == (0, b"40\n", "")
    assert ask("py", "print(input())", "--stdin", "-", stdin=b"in") == (0, b"in\n", "")
    slow = "import time; print('a', end='', flush=True); time.sleep(0.6); 'b'"
    assert ask("py", slow) == (0, b"a'b'\n", "")
    done = ask("py", "--json", "x")
    assert (done.code, json.loads(done.out)["value"]) == (0, "40")
    assert ask("reset", "python").code == 0
    done = ask("py", "x")
    assert (done.code, done.out) == (1, b"")
    lines = done.err.splitlines()
    assert lines[-2] == "NameError: name 'x' is not defined"
    assert lines[-1].startswith("engine: t")
    assert "failed, exit 1, after " in lines[-1]


def test_the_value_of_py_that_was_detached_is_told_by_wait_and_show(real: Engine, me: str) -> None:
    task = engine(real.home, "--as", me, "py", "-d", "'a' * 2").out.decode().strip()
    done = engine(real.home, "--as", me, "wait", task)
    assert (done.code, done.err) == (0, "")
    first, second = done.out.decode().splitlines()
    assert first.endswith("s 'a' * 2")
    assert second == "  value: 'aa'"
    shown = engine(real.home, "--as", me, "show", task).out.decode()
    assert re.search(r"^value +'aa'$", shown, re.M)


def test_py_exits_as_the_code_does_and_says_when_the_session_is_gone(real: Engine, me: str) -> None:
    ask = functools.partial(engine, real.home, ENGINE_CALLER=me)
    assert ask("py", "import sys; sys.exit(7)").code == 7
    done = ask("py", "import os; os._exit(8)")
    assert done.code == 8
    assert "engine: the Python session was lost, and its names with it\n" in done.err


def test_py_runs_where_the_client_is_and_shows_a_terminal_no_control_characters(
    real: Engine, me: str, tmp_path: Path
) -> None:
    ask = functools.partial(engine, real.home, ENGINE_CALLER=me)
    done = ask("py", "import os; os.getcwd()", cwd=tmp_path)
    assert done.out.decode() == f"{str(tmp_path)!r}\n"
    code = "class C:\n  def __repr__(self): return '\\x1b[2Jvalue'\nprint('\\x1b]0;t'); C()"
    with Terminal(real.home, "--as", me, "py", code) as terminal:
        assert terminal.wait() == 0
        assert terminal.seen.endswith("value\r\n")
        assert "\x1b" not in terminal.seen


def test_py_interrupted_keeps_the_session(real: Engine, me: str) -> None:
    ask = functools.partial(engine, real.home, ENGINE_CALLER=me)
    code = "kept = 1; import time; print('on', flush=True); time.sleep(600)"
    with start(real.home, "--as", me, "py", code) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"on\n"
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=LIMIT)
    assert (run.returncode, b"KeyboardInterrupt" in err) == (1, True)
    assert ask("py", "kept") == (0, b"1\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["py"], "missing argument 'CODE'"),
        (["py", "1", "2"], "got unexpected extra argument (2)"),
        (["py", "-", "--stdin", "-"], "CODE and --stdin cannot both be read from stdin"),
    ],
)
def test_py_takes_one_text(fake: FakeEngine, arguments: list[str], words: str) -> None:
    done = engine(fake.home, *arguments)
    assert done.code == 125
    assert words in done.err


def test_a_text_over_1_mib_is_refused_before_it_is_sent(fake: FakeEngine) -> None:
    done = engine(fake.home, "run", "-", stdin=b"#" * (1 << 20) + b"x")
    assert (done.code, done.out) == (125, b"")
    assert done.err.startswith("engine: TEXT has 1048577 bytes; the engine takes 1048576")
    assert done.err.count("\n") == 1
    assert engine(fake.home, "run", "-", stdin=b"#" * 100_000).code == 0
    assert fake.methods().count("bash") == 1


@pytest.mark.parametrize("verb", [["run", "cat", "--stdin", "-"], ["call", "bash", "-"]])
def test_a_call_over_16_mib_is_refused_before_it_is_sent(fake: FakeEngine, verb: list[str]) -> None:
    text = b"x" * (16 << 20)
    stdin = text if verb[0] == "run" else b'{"command":"' + text + b'"}'
    done = engine(fake.home, *verb, stdin=stdin)
    assert (done.code, done.out) == (125 if verb[0] == "run" else 2, b"")
    assert done.err.startswith("engine: the call has 1677")
    assert done.err.endswith(" bytes; the engine takes 16777216\n")
    assert done.err.count("\n") == 1
    assert "bash" not in fake.methods()


def test_closed_streams_are_as_nothing(fake: FakeEngine) -> None:
    program = shlex.join(PROGRAM)
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"{program} run 'echo hi; echo err >&2; exit 3' {closed}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment(fake.home),
            timeout=LIMIT,
        )
        assert done.returncode == 3
        assert done.stdout == (b"hi\n" if closed == "2>&-" else b"")
        assert done.stderr.startswith(b"err\n" if closed == ">&-" else b"")
    done = subprocess.run(
        ["bash", "-c", f"{program} run - <&-"], capture_output=True, env=environment(fake.home)
    )
    assert b"Traceback" not in done.stderr


def test_an_interrupt_while_the_engine_is_down_says_so_and_cancels_when_it_is_back(
    fake: FakeEngine,
) -> None:
    with start(fake.home, "run", "--no-start", "echo up; sleep 60") as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == b"up\n"
        fake.stop()
        assert run.stderr.readline().startswith(b"engine: connection lost")
        run.send_signal(signal.SIGINT)
        assert run.stderr.readline() == (
            b"engine: the engine is not reachable; t8f3000 runs on unless it is cancelled when the "
            b"connection is back (Ctrl-C again leaves)\n"
        )
        assert "cancel" not in fake.methods()
        fake.start()
        _, err = run.communicate(timeout=LIMIT)
    assert run.returncode == 143
    assert b"cancelling" not in err
    assert fake.methods().count("cancel") == 1


def test_a_second_interrupt_while_the_engine_is_down_says_that_the_job_may_run_on(
    fake: FakeEngine,
) -> None:
    with start(fake.home, "run", "--no-start", "echo up; sleep 60") as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == b"up\n"
        fake.stop()
        run.stderr.readline()
        run.send_signal(signal.SIGTERM)
        run.stderr.readline()
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=LIMIT)
    assert (run.returncode, err) == (
        130,
        b"engine: t8f3000 may run on: it was not cancelled\n",
    )
