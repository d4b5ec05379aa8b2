"""PROTOCOL 3, `execute` with `argv`, what cannot be started, and where a call starts: `hello`."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from acceptance.running import Caller, Engine


def test_the_words_reach_the_program_as_they_are(caller: Caller) -> None:
    words = ["", "two words", "$HOME", "*", "--", "ünï 🏷", "q\"u'o`te", "line\nline", "\\"]

    reply = caller.execute("python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *words)

    assert reply["output"] == ascii(words) + "\n"
    assert (reply["status"], reply["reason"], reply["exitCode"]) == ("succeeded", "exit", 0)


def test_no_shell_and_no_session_stand_between(caller: Caller) -> None:
    caller.bash("cd /usr; export X=session; umask 077; alias pwd='echo alias'")

    reply = caller.execute("sh", "-c", "pwd; echo [$X]; cat /proc/$$/comm")

    assert "/usr" not in reply["output"]
    assert reply["output"].splitlines()[1:] == ["[]", "sh"]
    assert caller.bash("echo $X")["output"] == "session\n"


@pytest.mark.parametrize("argv", [[], ["x"] * 4097, ["a\0b"], [1], "true"])
def test_argv_is_1_to_4096_strings_without_nul(argv: object, caller: Caller) -> None:
    error = caller.refuse("execute", argv=argv)

    assert error["code"] == -32602
    assert error["data"]["path"].startswith("$.argv")


def test_4096_words_are_taken(caller: Caller) -> None:
    reply = caller.execute("bash", "-c", "echo $#", "bash", *["x"] * 4092)

    assert reply["output"] == "4092\n"


def test_what_is_to_run_is_named_exactly_once(caller: Caller) -> None:
    for params in ({}, {"argv": ["true"], "code": "1"}, {"argv": ["true"], "command": "true"}):
        assert caller.refuse("execute", **params)["code"] == -32602


@pytest.mark.case("C035")
@pytest.mark.parametrize(
    ("cwd", "number", "name"), [("/no/such/dir", 2, "/no/such/dir"), ("/etc/passwd", 20, "passwd")]
)
def test_a_directory_that_is_none_is_named_and_not_the_program(
    cwd: str, number: int, name: str, caller: Caller
) -> None:
    for reply in (caller.execute("true", cwd=cwd), caller.bash("true", cwd=cwd)):
        assert (reply["status"], reply["reason"]) == ("failed", "spawn_error")
        assert reply["exitCode"] in (126, 127)
        assert reply["error"]["errno"] == number
        assert name in reply["error"]["message"]
        assert "true" not in reply["error"]["message"]
        assert "bash" not in reply["error"]["message"]
    rows = caller.call("list_tasks", state=["running", "queued"])["tasks"]
    assert rows == []


def test_a_program_that_cannot_be_started_is_a_record_like_any_other(
    caller: Caller, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    lost = tmp_path / "lost"
    lost.write_text("#!/no/such/interpreter\n")
    lost.chmod(0o700)

    found = {}
    for program in ("/no/such/program", str(plain), str(tmp_path), str(lost)):
        reply = caller.execute(program)
        assert (reply["status"], reply["reason"]) == ("failed", "spawn_error")
        assert reply["signal"] is None
        assert reply["output"] == ""
        assert program in reply["error"]["message"]
        assert caller.wait(reply["taskId"]) == reply
        found[program] = (reply["exitCode"], reply["error"]["errno"])

    assert found == {
        "/no/such/program": (127, 2),
        str(plain): (126, 13),
        str(tmp_path): (126, 13),
        str(lost): (127, 2),
    }


def test_a_program_is_looked_up_on_the_path_of_the_call(caller: Caller, tmp_path: Path) -> None:
    tool = tmp_path / "mytool"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o700)

    there = caller.execute("mytool", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    not_there = caller.execute("mytool")

    assert there["output"] == "found\n"
    assert not_there["exitCode"] == 127


@pytest.mark.case("C064")
def test_a_character_in_two_writes_is_one(caller: Caller) -> None:
    text = r"import os,time; os.write(1,b'\xe2'); time.sleep(.1); os.write(1,b'\x82\xac\n')"

    reply = caller.execute("python3", "-c", text)

    assert reply["output"] == "€\n"
    assert Path(reply["outputPath"]).read_bytes() == b"\xe2\x82\xac\n"


@pytest.mark.case("C100")
def test_a_job_has_blocking_descriptors(caller: Caller) -> None:
    text = "import os; print([os.get_blocking(fd) for fd in (0, 1, 2)])"

    for reply in (
        caller.execute("python3", "-c", text, stdin={"text": "x"}),
        caller.bash(f'python3 -c "{text}" 2>&1 | cat'),
    ):
        assert reply["output"] == "[True, True, True]\n"


# -- where a call starts -----------------------------------------------------------------------


def test_without_hello_a_call_starts_in_the_users_home_with_few_variables(
    engine: Engine, caller: Caller
) -> None:
    reply = caller.execute("env")
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir

    names = {line.partition("=")[0] for line in reply["output"].splitlines()}
    allowed = {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TMPDIR", "PWD"}
    ours = {"NO_COLOR", "PAGER", "GIT_PAGER", "TERM"}
    own = {"ENGINE_TASK_ID", "ENGINE_CALLER", "ENGINE_HOME"}
    rest = names - allowed - ours - own
    assert {name for name in rest if not name.startswith(("LC_", "XDG_"))} == set()
    assert {"HOME", "PATH"} | ours | own <= names
    assert reply["cwd"] == home
    assert caller.bash("pwd")["output"] == home + "\n"


def test_hello_says_where_calls_and_new_sessions_start(engine: Engine, tmp_path: Path) -> None:
    with engine.connect() as client:
        env = {"PATH": "/usr/bin:/bin", "MINE": "yes", "ENGINE_HOME": "/x", "ENGINE_FOO": "x"}
        greeting = client.call("hello", cwd=str(tmp_path), env=env, client="test 1.0")
        caller, other = client.caller(), client.caller()

        names = "pwd; echo $MINE [$ENGINE_FOO] $ENGINE_HOME [$HOME]"
        expected = f"{tmp_path}\nyes [] {engine.home} []\n"
        assert caller.bash(names)["output"] == expected
        assert caller.bash(names, session=False)["output"] == expected
        assert caller.execute("bash", "-c", names)["output"] == expected
        caller.bash("cd /usr; MINE=changed")
        assert caller.bash("pwd; echo $MINE")["output"] == "/usr\nchanged\n"
        assert other.bash(names)["output"] == expected
        assert greeting["protocol"] == 1

        again = client.refuse("hello", cwd="/")
        assert (again["code"], again["data"]["kind"]) == (-32011, "invalid_state")


def test_a_session_that_exists_is_not_moved_by_a_later_hello(
    engine: Engine, caller: Caller, tmp_path: Path
) -> None:
    caller.bash("cd /usr; X=old")
    with engine.connect() as client:
        client.call("hello", cwd=str(tmp_path), env={"X": "new", "PATH": "/usr/bin:/bin"})

        assert caller.on(client).bash("pwd; echo $X")["output"] == "/usr\nold\n"


@pytest.mark.parametrize(
    ("params", "path"),
    [({"cwd": "tmp"}, "$.cwd"), ({"env": {"A=": "x"}}, '$.env["A="]'), ({"foo": 1}, "$.foo")],
)
def test_a_hello_that_makes_no_sense_is_refused(
    params: dict[str, object], path: str, engine: Engine
) -> None:
    with engine.connect() as client:
        error = client.refuse("hello", params)

        assert (error["code"], error["data"]["path"]) == (-32602, path)
        assert client.call("hello")["protocol"] == 1
