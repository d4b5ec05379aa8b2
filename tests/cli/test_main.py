"""Mirrors `engine/cli/main.py`."""

from __future__ import annotations

import functools
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import leaks
import pytest
from cli.program import LIMIT, engine, environment, start
from client.fake_engine import FakeEngine

NO_TEXT = os.fsdecode(b"\xff")  # as the system hands over a word that is not UTF-8
VERBS = [
    *("run", "exec", "wait", "tasks", "show", "output", "cancel", "forget", "reset"),
    *("callers", "status", "serve", "stop", "call", "doctor", "install-service"),
    *("completion", "py", "logs", "stdin", "version", "help"),
]


@pytest.mark.parametrize(
    "arguments",
    [
        ["version"],
        ["help", "run"],
        ["no-such-verb"],
        ["run", "echo out; echo err >&2; exit 7"],
        ["exec", "--", "printf", NO_TEXT],
        ["exec", "--", "pwd"],
        ["wait", "t1zzzzz"],
        ["tasks", "--json", "--as", "anna"],
        ["logs", "-n", "1"],
        ["call", "list_tasks", "-"],
    ],
)
def test_forked_it_does_what_it_does_when_a_shell_starts_it(
    fake: FakeEngine, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "here").mkdir()
    fake.log("info", "a line", "ci")
    ask = functools.partial(
        engine, fake.home, *arguments, stdin=b'{"as": "ci"}', cwd=tmp_path / "here"
    )
    forked, fresh = ask(ENGINE_CALLER="ci"), ask(ENGINE_CALLER="ci", fresh=True)
    assert (forked.code, forked.out) == (fresh.code, fresh.out)
    assert without_times(forked.err) == without_times(fresh.err)
    assert fake.greetings[:1] == fake.greetings[1:]  # the same directory and environment


def without_times(text: str) -> str:
    return re.sub(r"t8f300\d|after \S+", "", text)


def test_what_is_forked_knows_nothing_of_the_one_before(fake: FakeEngine, tmp_path: Path) -> None:
    assert engine(fake.home, "run", "true", cwd=tmp_path, FRUIT="fig", TZ="Asia/Tokyo").code == 0
    assert engine(fake.home, "run", "echo $FRUIT").out == b"\n"
    first, second = fake.greetings
    assert (first["cwd"], first["env"]["FRUIT"]) == (str(tmp_path), "fig")
    assert (second["cwd"], second["env"].get("FRUIT")) == (os.getcwd(), None)
    assert set(first["env"]) - set(second["env"]) == {"FRUIT", "TZ"}


def test_what_is_forked_and_stays_is_found_as_our_child(fake: FakeEngine) -> None:
    before = leaks.children()
    with start(fake.home, "logs", "-f") as process:
        fake.wait_for(lambda: fake.calls)
        assert [child.pid for child in leaks.children() - before] == [process.pid]
        process.kill()
    assert process.returncode == -signal.SIGKILL


def test_no_verb_needs_what_another_has_imported(tmp_path: Path) -> None:
    code = (
        "import os; from engine.cli.main import VERBS, cli\n"
        "for name in VERBS:\n"
        "    if os.fork() == 0: cli.get_command(None, name); os._exit(0)\n"
        "    assert os.wait()[1] == 0, name\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment(tmp_path), timeout=LIMIT
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_options_of_all_verbs_stand_before_or_after_the_verb(fake: FakeEngine) -> None:
    for arguments in (["--as", "ci", "tasks"], ["tasks", "--as", "ci"]):
        assert engine(fake.home, *arguments).code == 0
    assert [params["as"] for _, params in fake.calls] == ["ci", "ci"]
    assert engine(fake.home, "--as", "a", "tasks", "--as", "b").code == 0
    assert fake.calls[-1][1]["as"] == "b"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run"], 125),
        (["run", "echo", "hi"], 125),
        (["run", "true", "--no-such"], 125),
        (["run", "-", "--stdin", "-"], 125),
        (["run", "true", "-e", "X"], 125),
        (["run", "true", "-d", "--on-disconnect", "cancel"], 125),
        (["run", "--as", "Not A Name", "true"], 125),
        (["exec"], 125),
        (["wait", "r5k2", "t8f3kr9"], 125),
        (["wait", "--logs", "info"], 125),
        (["wait", "--any", "t8f3kr9", "--scope", "all"], 125),
        (["run", "--ready-port", "0", "true"], 125),
        (["run", "--ready-port", "80", "--ready-line", "up", "true"], 125),
        (["run", "--ready-line", NO_TEXT, "true"], 125),
        (["run", "--then", NO_TEXT, "true"], 125),
        (["py", "--ready-port", "80", "1"], 125),
        (["round", "start"], 2),
        (["round", "start", "--seat", "lint"], 2),
        (["round", "start", "--seat", "lint="], 2),
        (["round", "start", "--seat", "Lint=true"], 2),
        (["round", "start", "--seat", "lint=" + NO_TEXT], 2),
        (["round", "start", "--seat", "lint=true", "--seat", "lint=false"], 2),
        (["round", "start", "-f", "/nowhere/seats.json"], 2),
        (["round", "start", "-f", "-"], 2),
        (["round", "start", "--seat", "lint=true", "--junit", "/nowhere/report.xml"], 2),
        (["round", "retry"], 2),
        (["round", "strat"], 2),
        (["wait", "t8f3kr9", "--timeout", "-1"], 125),
        (["output", "-f"], 125),
        (["output"], 2),
        (["tasks", "--as", "Not A Name"], 2),
        (["tasks", "--no-such"], 2),
        (["reset", "perl"], 2),
        (["reset"], 2),
        (["wait", "t8f3kr9", "--timeout", "nan"], 125),
        (["wait", "t8f3kr9", "--timeout", "inf"], 125),
        (["tasks", "--reconnect", "nan"], 2),
        (["run", "--deadline", "nan", "true"], 125),
        (["run", "--deadline", "inf", "true"], 125),
        (["run", "--key", NO_TEXT, "true"], 125),
        (["run", "-e", NO_TEXT + "=1", "true"], 125),
        (["run", "--url", "ws://" + NO_TEXT, "true"], 125),
        (["tasks", "--url", "ws://" + NO_TEXT], 2),
        (["tasks", "--url", "http://x"], 2),
        (["run", "--url", "http://x", "true"], 125),
        (["py", "1", "--pty"], 125),
        (["py", "1", "--stdin", "open"], 125),
        (["call", "bash", '{"command":"true","timeout_secs":NaN}'], 2),
        (["call", "bash", '{"command":"true","timeout_secs":1e400}'], 2),
        (["call", "bash", r'{"command":"\ud800"}'], 2),
        (["--color", "blue", "tasks"], 2),
        (["no-such-verb"], 2),
        (["logs", "-n", "few"], 2),
        ([], 2),
        (["serve", "--set", "x"], 2),
    ],
)
def test_wrong_usage_is_2_or_125_for_the_verbs_that_exit_as_a_job(
    tmp_path: Path, arguments: list[str], code: int
) -> None:
    done = engine(tmp_path / "home", *arguments)
    assert (done.code, done.out) == (code, b"")
    assert done.err.startswith("engine: ")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "home").exists()


def test_several_words_to_run_name_the_verb_for_lists(tmp_path: Path) -> None:
    assert "engine exec -- ARGV" in engine(tmp_path / "home", "run", "echo", "hi").err


@pytest.mark.parametrize(("verb", "code"), [("tasks", 69), ("status", 69), ("stop", 69)])
def test_where_no_engine_ever_was_the_verb_says_where_it_looked(
    tmp_path: Path, verb: str, code: int
) -> None:
    home = tmp_path / "home"
    done = engine(home, verb)
    right = f"engine: no engine at home in {home} (no engine.json). engine serve\n"
    assert done == (code, b"", right)
    assert not home.exists()


@pytest.mark.parametrize("arguments", [["run", "true"], ["exec", "true"], ["wait", "t1"]])
def test_no_start_is_125_where_no_engine_is(tmp_path: Path, arguments: list[str]) -> None:
    done = engine(tmp_path / "home", "--no-start", *arguments)
    assert done.code == 125
    assert not (tmp_path / "home").exists()


def test_an_engine_that_is_gone_is_named_with_its_pid(fake: FakeEngine) -> None:
    pid = fake.process.pid if fake.process else 0
    engine(fake.home, "stop")
    done = engine(fake.home, "tasks")
    assert (done.code, done.out) == (69, b"")
    assert done.err == (
        f"engine: not reachable at {fake.home}/engine.sock (refused)\n"
        f"engine: engine.json names pid {pid}, which is gone. Start it: engine serve\n"
    )


def test_a_token_that_is_refused_is_no_reason_to_start_another_engine(fake: FakeEngine) -> None:
    facts = json.loads((fake.home / "engine.json").read_text())
    facts["tokens"]["agent"] = "x" * 43
    (fake.home / "engine.json").write_text(json.dumps(facts))
    done = engine(fake.home, "run", "true")
    assert (done.code, done.out) == (125, b"")
    assert done.err == (
        "engine: token refused (401) by ws://127.0.0.1:8420/rpc\n"
        f"engine: engine.json was read from {fake.home}. Another engine may own this port.\n"
    )
    error = json.loads(engine(fake.home, "run", "--json", "true").err)["error"]
    assert error["message"] == (
        "token refused (401) by ws://127.0.0.1:8420/rpc. engine.json was read from "
        f"{fake.home}. Another engine may own this port."
    )


def test_a_token_that_is_refused_names_the_file_that_it_came_from(
    fake: FakeEngine, tmp_path: Path
) -> None:
    file = tmp_path / "some.token"
    file.write_text("x" * 43)
    done = engine(fake.home, "tasks", ENGINE_TOKEN_FILE=str(file))
    where = "token refused (401) by ws://127.0.0.1:8420/rpc"
    assert done == (69, b"", f"engine: {where}; it was read from {file}\n")
    (fake.home / "human.token").write_text("x" * 43)
    done = engine(fake.home, "stop")
    assert done == (69, b"", f"engine: {where}; it was read from {fake.home}/human.token\n")


def test_verbose_says_where_it_is_connected_and_as_whom(fake: FakeEngine) -> None:
    done = engine(fake.home, "tasks", "-v", "--as", "ci")
    assert done.err == f"engine: connected to {fake.home}/engine.sock as ci\n"


def test_help_lists_every_verb_and_explains_each(tmp_path: Path) -> None:
    listed = engine(tmp_path, "help").out.decode()
    for verb in VERBS:
        assert f"\n  {verb} " in listed
        explained = engine(tmp_path, "help", verb)
        assert explained == engine(tmp_path, verb, "--help")
        assert (explained.code, explained.err) == (0, "")
    assert engine(tmp_path, "help", "nothing").code == 2


def loaded(home: Path, *arguments: str, stdout: IO[bytes] | int = subprocess.PIPE) -> set[str]:
    """The modules that a call of the command line has imported when it ends."""
    code = (
        "import sys; from engine.cli.main import run; import os;"
        f"run({list(arguments)!r}, dict(os.environ)); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment(home),
        check=True,
    )
    return {name.partition(".")[0] for name in done.stderr.decode().splitlines()[-1].split()}


def test_a_call_loads_no_more_than_it_needs(fake: FakeEngine) -> None:
    heavy = {"trio", "rich", "sqlite3", "asyncio", "structlog", "ssl", "subprocess", "platformdirs"}
    engine(fake.home, "run", "true")
    for arguments in (["tasks"], ["run", "true"], ["status"], ["callers"], ["wait", "t8f3000"]):
        modules = loaded(fake.home, *arguments)
        assert {"wsproto", "click"} <= modules
        assert not modules & (heavy | {"msgspec", "wcwidth"})
    for arguments in (["version"], ["--version"], ["help"], ["completion", "bash"]):
        assert not loaded(fake.home, *arguments) & (heavy | {"wsproto"})
    light = {"trio", "rich", "sqlite3", "asyncio", "structlog"}
    for arguments in (["doctor"], ["install-service"]):
        assert not loaded(fake.home, *arguments) & light


def test_a_call_loads_hardly_more_than_click_and_wsproto_do(fake: FakeEngine) -> None:
    least = "import sys, click, wsproto; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", least], capture_output=True, check=True, text=True)
    least_modules = {name.partition(".")[0] for name in done.stdout.split()}
    engine(fake.home, "run", "true")
    sockets, texts = {"socket", "_socket", "select", "selectors", "array"}, {"json", "_json"}
    # `encodings.idna`, for the Host header; names of people; click's translations.
    names = {"stringprep", "unicodedata", "pwd", "locale", "_locale"}
    for arguments in (["tasks"], ["run", "true"], ["output", "@last"], ["wait", "@last"], ["logs"]):
        more = loaded(fake.home, *arguments) - least_modules - {"engine"}
        assert more <= sockets | texts | names | {"signal", "_signal"}


def test_on_a_terminal_no_tables_of_wide_characters_are_loaded_for_a_plain_row(
    fake: FakeEngine,
) -> None:
    engine(fake.home, "run", "echo 'naïve · café'")
    for arguments in (["tasks"], ["tasks", "-a"]):
        screen, terminal = pty.openpty()
        os.set_blocking(screen, False)
        with open(screen, "rb") as shown, open(terminal, "wb") as stdout:
            modules = loaded(fake.home, *arguments, stdout=stdout)
            assert "·" in shown.read().decode()
        assert "wcwidth" not in modules


def test_the_version_is_told_with_that_of_the_protocol(tmp_path: Path) -> None:
    for arguments in (["version"], ["--version"]):
        assert engine(tmp_path, *arguments, fresh=True) == (0, b"engine 0.1.0 (protocol 1)\n", "")
        told = engine(tmp_path, *arguments, "--json").out
        assert json.loads(told) == {"version": "0.1.0", "protocol": 1}


def test_help_has_the_options_of_the_verb_before_those_of_all(tmp_path: Path) -> None:
    own, _, common = engine(tmp_path, "tasks", "--help").out.decode().partition("of all verbs:")
    assert "--failed" in own
    assert "--home" not in own
    assert "--home" in common
    assert "--failed" not in common


def test_a_verb_of_no_release_so_far_is_wrong_usage(tmp_path: Path) -> None:
    done = engine(tmp_path, "requests", "show", "q7m2a")
    assert done == (2, b"", "engine: there is no verb 'requests' (see: engine --help)\n")
    done = engine(tmp_path, "taks")
    assert done.err == "engine: there is no verb 'taks': do you mean tasks? (see: engine --help)\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["wait", NO_TEXT], 125),
        (["show", NO_TEXT], 2),
        (["cancel", NO_TEXT], 2),
        (["call", NO_TEXT], 2),
    ],
)
def test_a_word_that_is_not_utf8_is_told_in_one_line(
    fake: FakeEngine, arguments: list[str], code: int
) -> None:
    done = engine(fake.home, *arguments)
    assert done == (code, b"", "engine: a word of the call is not UTF-8\n")


def test_a_home_that_cannot_be_made_is_told_in_one_line() -> None:
    done = engine(Path("/proc/x"), "run", "true")
    assert done.code == 125
    assert done.err == (
        "engine: no engine could be started in /proc/x: No such file or directory\n"
    )


@pytest.mark.parametrize("arguments", [["help"], ["help", "run"], ["run", "--help"], ["--help"]])
def test_help_that_cannot_be_written_is_told_in_one_line(
    tmp_path: Path, arguments: list[str]
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "engine", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(tmp_path),
        )
    assert done.returncode == (125 if arguments[0] == "run" else 1)
    assert done.stderr == (b"engine: the output cannot be written: No space left on device\n")


def test_a_kind_that_is_missing_is_told_without_line_breaks(tmp_path: Path) -> None:
    done = engine(tmp_path, "reset")
    assert done.err == (
        "engine: missing argument '{bash|python}'. Choose from: bash, python"
        " (see: engine reset --help)\n"
    )
