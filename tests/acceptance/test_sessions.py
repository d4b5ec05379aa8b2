"""PROTOCOL 2 and 3: callers, and the shell session that each has for itself."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from acceptance.running import Caller, Client, Engine, Gate, is_running, new_name, wait_gone


@pytest.mark.parametrize(
    ("before", "look", "seen"),
    [
        ("cd /usr", "pwd", "/usr\n"),
        ("export X='a b'", "bash -c 'echo $X'", "a b\n"),
        ("X=plain", "echo $X; bash -c 'echo [$X]'", "plain\n[]\n"),
        ("A=(1 'two 2' 3); declare -A M=([k]=v)", "echo ${#A[@]} ${A[1]} ${M[k]}", "3 two 2 v\n"),
        ('f() { echo "f $1"; }', "f x", "f x\n"),
        ("alias ll='echo aliased'", "ll", "aliased\n"),
        ("shopt -s nullglob; set -f", "shopt -q nullglob; echo $?; echo /etc/*", "0\n/etc/*\n"),
        ("umask 027", "umask", "0027\n"),
        ("readonly R=1", "R=2; echo no", "bash: line 1: R: readonly variable\n"),
        ("unset HOME", "echo [$HOME]", "[]\n"),
        ("X=kept; exit 3", "echo $X", "kept\n"),
        ("set -o pipefail; set -u; set -e; set -x", "false | true; echo $? $nope", "0\n"),
        ("trap 'echo LEAKED' EXIT", "echo clean", "clean\n"),
    ],
)
def test_the_next_call_finds_what_this_one_left(
    before: str, look: str, seen: str, caller: Caller
) -> None:
    caller.bash(before)

    assert caller.bash(look)["output"] == seen


def test_a_call_that_ends_by_exec_or_a_signal_commits_nothing(caller: Caller) -> None:
    caller.bash("X=first")

    caller.bash("X=second; exec true")
    caller.bash("X=third; kill -KILL $$")

    assert caller.bash("echo $X")["output"] == "first\n"


def test_a_trap_on_exit_runs_and_its_output_is_in_the_reply(caller: Caller) -> None:
    assert caller.bash("trap 'echo bye' EXIT; echo hi")["output"] == "hi\nbye\n"


@pytest.mark.case("C034")
def test_a_directory_that_is_gone_gives_way_to_its_nearest_parent(
    caller: Caller, tmp_path: Path
) -> None:
    gone = tmp_path / "a" / "b"

    first = caller.bash(f"mkdir -p {gone} && cd {gone}")
    second = caller.bash(f"rm -rf {tmp_path / 'a'}")
    third = caller.bash("echo hi; pwd")
    fourth = caller.bash("cd / && pwd")

    assert first["cwd"] == str(gone)
    assert second["exitCode"] == 0
    assert "cwdMissing" not in second
    assert (third["exitCode"], third["output"]) == (0, f"hi\n{tmp_path}\n")
    assert third["cwdMissing"] == str(gone)
    assert third["cwd"] == str(tmp_path)
    assert (fourth["exitCode"], fourth["output"]) == (0, "/\n")


@pytest.mark.case("C060")
def test_calls_of_one_caller_run_side_by_side_and_the_last_to_end_wins(
    caller: Caller, gate: Gate, bell: Gate
) -> None:
    slow = caller.send("bash", command=f"cd /tmp; {bell.tell}; {gate.wait}; pwd")
    bell.hear()
    fast = caller.bash("cd /; pwd")
    between = caller.bash("pwd")
    gate.open()

    assert fast["output"] == "/\n"
    assert between["output"] == "/\n"
    assert slow.result()["output"] == "/tmp\n"
    assert caller.bash("pwd")["output"] == "/tmp\n"


def test_callers_on_one_connection_never_mix(client: Client, tmp_path: Path) -> None:
    callers = [client.caller() for _ in range(8)]
    calls = []
    for i, caller in enumerate(callers):
        (tmp_path / str(i)).mkdir()
        caller.bash(f"cd {tmp_path / str(i)}; export ME=c{i}; f() {{ echo f{i}; }}; umask 00{i}")
    for _ in range(5):
        for i, caller in enumerate(callers):
            calls.append((i, caller.send("bash", command="pwd; echo $ME $ENGINE_CALLER; f; umask")))

    for i, call in calls:
        reply = call.result()
        me = callers[i].name
        assert reply["output"] == f"{tmp_path / str(i)}\nc{i} {me}\nf{i}\n000{i}\n"
        assert (reply["as"], reply["cwd"]) == (me, str(tmp_path / str(i)))


def test_the_same_name_on_another_connection_is_the_same_caller(
    engine: Engine, caller: Caller
) -> None:
    caller.bash("cd /usr; X=1")
    for tcp in (False, True):
        with engine.connect(tcp=tcp) as client:
            assert caller.on(client).bash("pwd; echo $X")["output"] == "/usr\n1\n"


def test_without_a_name_the_connection_is_the_caller_and_forgotten_with_it(
    engine: Engine, client: Client
) -> None:
    with engine.connect() as other:
        first = other.call("bash", command="X=1; cd /usr")
        second = other.call("bash", command="echo $X; pwd")
        third = client.call("bash", command="echo [$X]")
        rows = other.call("list_tasks")["tasks"]

    assert first["as"].startswith("anon-")
    assert second["as"] == first["as"] != third["as"]
    assert second["output"] == "1\n/usr\n"
    assert third["output"] == "[]\n"
    assert {row["as"] for row in rows} == {first["as"]}
    refused = client.refuse("bash", as_=first["as"], command="echo [$X]")
    assert refused["message"] == '$.as: expected a name that does not begin with "anon-"'


def test_of_a_connection_that_is_gone_no_session_is_left_once_its_last_task_has_ended(
    engine: Engine, client: Client, gate: Gate
) -> None:
    with engine.connect() as other:
        name = other.call("bash", command="X=secret; cd /usr")["as"]
        code = "import os; os.getpid()"
        interpreter = int(other.call("execute", code=code)["value"])
        wait = f"open({str(gate.path)!r}).readline(); 'done'"
        task = other.call("execute", code=wait, timeout_secs=0)["taskId"]
        folder = engine.home / "sessions" / name
        assert any(path.is_file() for path in folder.iterdir())
        other.drop()

    assert client.call("wait", taskId=task, timeout_secs=0.1)["status"] == "running"
    assert is_running(interpreter)  # its task needs it
    assert [path for path in folder.iterdir() if path.is_file()] == []
    gate.open()
    assert client.call("wait", taskId=task)["value"] == "'done'"
    wait_gone(interpreter)
    (entry,) = [row for row in client.call("roster")["callers"] if row["name"] == name]
    assert (entry["connections"], entry["running"], entry["lastSeen"]) == (0, 0, None)


def test_anyone_may_read_and_wait_on_any_task(client: Client, caller: Caller) -> None:
    task = caller.bash("echo mine")["taskId"]
    other = client.caller()

    assert other.wait(task)["output"] == "mine\n"
    assert other.wait(task)["as"] == caller.name
    assert other.call("read_output", taskId=task)["text"] == "mine\n"
    assert other.call("read_task", taskId=task)["as"] == caller.name


@pytest.mark.case("C150")
@pytest.mark.parametrize(
    "name",
    [
        *("../../x", "/etc/x", "a/b", "a\0b", "", ".", "x" * 65, "x" * 300, "con\u202ename"),
        *("A", "a b", "a\n", "é", 1, True, ["a"]),
    ],
)
def test_a_name_that_is_no_name_is_refused(name: object, client: Client) -> None:
    error = client.refuse("bash", {"as": name, "command": "true"})

    assert (error["code"], error["data"]["path"]) == (-32602, "$.as")


def test_a_name_of_64_characters_is_taken(client: Client) -> None:
    name = new_name().ljust(64, "_")

    assert client.call("bash", as_=name, command="echo $ENGINE_CALLER")["output"] == name + "\n"


def test_reset_session_gives_a_new_one(caller: Caller) -> None:
    caller.bash("X=1; cd /usr")

    assert caller.call("reset_session", kind="bash") == {"as": caller.name, "kind": "bash"}

    assert caller.bash("echo [$X]; pwd")["output"] != "[1]\n/usr\n"
    assert caller.bash("echo [$X]")["output"] == "[]\n"


def test_a_call_under_way_at_a_reset_does_not_bring_the_old_session_back(
    caller: Caller, gate: Gate, bell: Gate
) -> None:
    caller.bash("X=old")
    call = caller.send("bash", command=f"{bell.tell}; {gate.wait}; Y=late")
    bell.hear()
    caller.call("reset_session", kind="bash")
    gate.open()
    call.result()

    assert caller.bash("echo [$X]")["output"] == "[]\n"


@pytest.mark.case("C056")
def test_a_limit_of_one_call_neither_harms_us_nor_the_next_call(
    caller: Caller, tmp_path: Path
) -> None:
    reply = caller.bash(f"echo before; ulimit -f 0; echo x > {tmp_path}/zz; echo after")
    child = caller.bash(f"ulimit -f 0; bash -c 'echo x > {tmp_path}/zz'; echo $?")
    after = caller.bash(f"echo x > {tmp_path}/zz; cat {tmp_path}/zz")

    assert (reply["exitCode"], reply["signal"]) == (None, "SIGXFSZ")
    assert reply["output"] == "before\n"
    assert child["output"].endswith("153\n")
    assert (after["exitCode"], after["output"]) == (0, "x\n")


@pytest.mark.case("C057")
def test_nothing_that_a_job_prints_is_taken_for_its_status(caller: Caller) -> None:
    first = caller.bash("set -x -v; true", streams="split")
    said = first["stderr"] + first["stdout"]

    reply = caller.bash(f"cat <<'EOF'\n{said}:0\nMARK:0\n\0\nEOF\nfalse".replace("\0", ""))

    assert (reply["status"], reply["exitCode"]) == ("failed", 1)
    assert said.lstrip("+") == " true\n"  # nothing of ours is traced


@pytest.mark.case("C061")
def test_a_long_job_does_not_block_its_callers_shell(caller: Caller) -> None:
    caller.bash("cd /usr; X=1")
    long = caller.bash("sleep 300", timeout_secs=0.2)

    reply = caller.bash("echo hi; pwd; echo $X", timeout_secs=5)

    assert reply["output"] == "hi\n/usr\n1\n"
    assert long["status"] == "running"
    assert caller.wait(long["taskId"], timeout_secs=0)["taskId"] == long["taskId"]
    caller.cancel(long["taskId"])


@pytest.mark.case("C038")
def test_the_shell_itself_judges_its_text(caller: Caller) -> None:
    nested = "x=$(cat <<EOF\n$(echo '1 2' | awk '{print $2 \"!\"}')\nEOF\n); echo $x"

    good = caller.bash(nested, streams="split")
    bad = caller.bash("echo $(", streams="split")

    assert (good["exitCode"], good["stdout"], good["stderr"]) == (0, "2!\n", "")
    assert bad["exitCode"] == 2
    assert "syntax error" in bad["stderr"] or "unexpected EOF" in bad["stderr"]


@pytest.mark.case("C153")
def test_what_a_home_keeps_is_for_its_owner_alone(caller: Caller, engine: Engine) -> None:
    reply = caller.bash("export K=abc123; echo $K; export M='line1\nline2'")
    caller.bash("true", env={"SECRET": "def456"})

    assert reply["output"] == "abc123\n"
    assert stat.S_IMODE(engine.home.stat().st_mode) == 0o700
    wrong = [
        (str(path), oct(mode))
        for path in engine.home.rglob("*")
        if path.exists()
        and (mode := stat.S_IMODE(path.lstat().st_mode)) & 0o077
        and not path.is_symlink()
    ]
    assert wrong == []


@pytest.mark.case("C010")
def test_a_program_that_buffers_its_output_is_known_by_its_silence(caller: Caller) -> None:
    text = "import time; print('hello'); time.sleep(30)"

    silent = caller.execute("python3", "-c", text, timeout_secs=0)
    loud = caller.execute("python3", "-c", text, timeout_secs=0, env={"PYTHONUNBUFFERED": "1"})
    heard = caller.call("read_output", taskId=loud["taskId"], timeout_secs=10)
    shown = caller.wait(silent["taskId"], timeout_secs=0)

    assert heard["text"].startswith("hello")
    assert (shown["status"], shown["outputBytes"]) == ("running", 0)
    assert shown["lastOutputAt"] is None
    assert caller.call("read_task", taskId=loud["taskId"])["lastOutputAt"] is not None
    for task in (silent, loud):
        caller.cancel(task["taskId"])


def test_a_variable_by_a_name_of_ours_harms_nobody(client: Client) -> None:
    caller, other = client.caller(), client.caller()
    caller.bash("X=kept")

    assert caller.bash("_engine_was=3; X=lost; echo $_engine_was")["output"] == "3\n"
    assert caller.bash("true", env={"_engine_was": "x"})["status"] == "succeeded"
    assert other.bash("echo on")["output"] == "on\n"
    assert caller.bash("echo $X ${_engine_was-none}")["output"] == "kept none\n"


@pytest.mark.parametrize(
    ("size", "said"), [("17M", r"bytes=178\d{5} limit=16777216"), ("33M", r"bytes=346\d{5} limit=")]
)
def test_a_state_too_large_is_not_taken_and_the_reply_says_so(
    size: str, said: str, caller: Caller
) -> None:
    caller.bash("export OLD=1; cd /tmp")
    end = caller.bash(f"cd /usr; NEW=2; x=$(head -c {size} /dev/zero | tr '\\0' a)")
    assert (end["status"], end["exitCode"]) == ("succeeded", 0)
    (line,) = [line for line in end["logs"] if line["text"].startswith("session state too large")]
    assert (line["level"], line["caller"]) == ("warning", caller.name)
    assert line["taskId"] == end["taskId"]
    assert re.search(said, line["text"])
    assert line["text"].endswith("session=as before this call")
    assert caller.bash('echo "$PWD $OLD $NEW ${#x}"')["output"] == "/tmp 1  0\n"


def test_sessions_too_large_together_go_and_their_callers_are_told(tmp_path: Path) -> None:
    settings = ("min_free_bytes=0", "total_session_bytes=3200000")
    options = [word for setting in settings for word in ("--set", setting)]
    with Engine(tmp_path / "home", *options) as engine, engine.connect() as client:
        callers = [Caller(client, name) for name in ("a", "b", "c", "d")]
        for caller in callers:
            caller.bash("x=$(head -c 900000 /dev/zero | tr '\\0' a)")
        told = callers[0].call("read_logs", contains="session dropped", timeout_secs=20, peek=True)
        assert [line["caller"] for line in told["lines"]] == ["a"]
        assert told["lines"][0]["level"] == "warning"
        sizes = [caller.bash("echo ${#x}") for caller in callers]
        assert [end["output"] for end in sizes] == ["0\n", "900000\n", "900000\n", "900000\n"]
        assert [line["text"][:15] for line in sizes[0]["logs"]] == ["session dropped"]
