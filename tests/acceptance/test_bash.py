"""PROTOCOL 3, `bash` and the reply of a call that ended within its budget."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import Caller, Client, Engine, Gate, is_running, wait_gone

TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
FINISHED = {
    *("status", "taskId", "kickoffId", "as", "exitCode", "signal", "reason", "output"),
    *("outputBytes", "omittedBytes", "omittedLines", "droppedBytes", "outputPath", "cwd"),
    *("createdAt", "startedAt", "endedAt", "durationMs", "cpuMs", "maxRssBytes", "survivors"),
    *("logs", "logsDropped", "notices"),
}


def outcome(reply: dict[str, Any]) -> tuple[Any, ...]:
    """How it ended and what it said: status, reason, code, signal, output."""
    return tuple(reply[name] for name in ("status", "reason", "exitCode", "signal", "output"))


def left_by(caller: Caller, reply: dict[str, Any]) -> list[str]:
    """The commands of who was left behind, once each is the program that it was to become."""
    while True:
        survivors = caller.call("read_task", taskId=reply["taskId"])["survivors"]
        assert [one["pid"] for one in survivors] == [one["pid"] for one in reply["survivors"]]
        commands = [str(one["command"]) for one in survivors]
        if not any(command.startswith("bash") for command in commands):
            return commands


def test_a_finished_reply_has_all_its_members(caller: Caller, engine: Engine) -> None:
    reply = caller.bash("cd /tmp; echo hi; echo there >&2; exit 3")

    assert reply.keys() == FINISHED
    assert outcome(reply) == ("failed", "exit", 3, None, "hi\nthere\n")
    assert re.fullmatch(r"t[0-9a-v]{6,}", reply["taskId"])
    assert reply["kickoffId"] == "k" + reply["taskId"][1:]
    assert reply["as"] == caller.name
    assert (reply["outputBytes"], reply["omittedBytes"]) == (9, 0)
    assert (reply["omittedLines"], reply["droppedBytes"]) == (0, 0)
    assert Path(reply["outputPath"]).read_bytes() == b"hi\nthere\n"
    assert Path(reply["outputPath"]).is_relative_to(engine.home)
    assert reply["cwd"] == "/tmp"
    times = [reply["createdAt"], reply["startedAt"], reply["endedAt"]]
    assert all(TIME.fullmatch(time) for time in times)
    assert times == sorted(times)
    assert type(reply["durationMs"]) is int
    assert 0 <= reply["durationMs"] < 10_000
    assert type(reply["cpuMs"]) is int
    assert 0 <= reply["cpuMs"] <= 1_000
    assert reply["maxRssBytes"] is None
    assert (reply["survivors"], reply["logsDropped"], reply["notices"]) == ([], 0, [])
    (line,) = reply["logs"]
    assert (line["level"], line["source"], line["taskId"]) == ("error", "engine", reply["taskId"])
    assert line["text"] == f"task {reply['taskId']} failed (exit 3)"


def test_a_job_that_computes_has_its_processor_time_counted(caller: Caller) -> None:
    reply = caller.bash("for ((i = 0; i < 60000; i++)); do :; done")

    assert reply["cpuMs"] > 10
    assert reply["durationMs"] > 10


@pytest.mark.case("C044")
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo 'hello != world'", "hello != world\n"),
        ('echo "a!b!!"', "a!b!!\n"),
        ("printf '%s\\n' '\\\\ \"q\" $HOME `x` ünï 🏷'", '\\\\ "q" $HOME `x` ünï 🏷\n'),
        ("echo one\n\necho two # end", "one\ntwo\n"),
        ("cat <<'EOF'\n$x\n\tEOF\nEOF", "$x\n\tEOF\n"),
        ("echo hi;", "hi\n"),
        ("echo 'a\r'", "a\n"),
    ],
)
def test_the_text_reaches_bash_as_it_was_sent(command: str, output: str, caller: Caller) -> None:
    assert outcome(caller.bash(command)) == ("succeeded", "exit", 0, None, output)


def test_output_is_kept_byte_for_byte_and_shown_as_text(caller: Caller) -> None:
    reply = caller.bash(r"printf '\xff\x00a\r\n\033[31mred\033[0m\n10%%\r100%%\n'")

    raw = b"\xff\x00a\r\n\x1b[31mred\x1b[0m\n10%\r100%\n"
    assert Path(reply["outputPath"]).read_bytes() == raw
    assert reply["output"] == "\ufffd\x00a\nred\n100%\n"
    assert reply["outputBytes"] == len(raw)


@pytest.mark.case("C085")
@pytest.mark.parametrize(
    ("command", "code", "name"),
    [
        ("kill -TERM $$", None, "SIGTERM"),
        ("kill -KILL $$", None, "SIGKILL"),
        ("kill -INT $$", None, "SIGINT"),
        ("kill -HUP $$", None, "SIGHUP"),
        ("kill -SEGV $$", None, "SIGSEGV"),
        ("kill -RTMIN+1 $$", None, "SIGRTMIN+1"),
        # A child's death is a code of its shell, which says so as any shell does.
        ("bash -c 'kill -TERM $$'", 143, None),
        ("bash -c 'kill -KILL $$'", 137, None),
        ("bash -c 'kill -INT $$'", 130, None),
        ("bash -c 'kill -HUP $$'", 129, None),
        ("bash -c 'kill -SEGV $$'", 139, None),
        ("ulimit -c 0; python3 -c 'import os; os.abort()'", 134, None),
    ],
)
def test_a_signal_that_ends_the_shell_is_named_and_one_that_ends_a_child_is_a_code(
    command: str, code: int | None, name: str | None, caller: Caller
) -> None:
    reply = caller.bash(command)

    reason = "exit" if name is None else "signal"
    assert outcome(reply)[:4] == ("failed", reason, code, name)


@pytest.mark.case("C090")
def test_what_is_not_found_is_127_what_is_not_executable_126_and_what_is_no_shell_text_2(
    caller: Caller, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("echo no\n")

    found = {
        text: caller.bash(text)["exitCode"]
        for text in ("nosuchcmd_xyz", f"{tmp_path}/f", "/tmp", "if", "exit 256", "exit 300")
    }
    spawned = caller.execute("nosuchcmd_xyz")

    assert found == {
        "nosuchcmd_xyz": 127,
        f"{tmp_path}/f": 126,
        "/tmp": 126,
        "if": 2,
        "exit 256": 0,
        "exit 300": 44,
    }
    assert outcome(spawned) == ("failed", "spawn_error", 127, None, "")
    assert spawned["error"] == {"errno": 2, "message": spawned["error"]["message"]}
    assert "nosuchcmd_xyz" in spawned["error"]["message"]


@pytest.mark.case("C089")
@pytest.mark.parametrize(
    ("command", "code"), [("yes | head -1", 0), ("set -o pipefail; yes | head -1", 141)]
)
def test_a_writer_whose_reader_is_gone_ends_in_silence(
    command: str, code: int, caller: Caller
) -> None:
    reply = caller.bash(command, streams="split")

    assert (reply["exitCode"], reply["stdout"], reply["stderr"]) == (code, "y\n", "")


# -- streams -----------------------------------------------------------------------------------


@pytest.mark.case("C011")
def test_merged_output_has_the_exact_order_of_the_writes(caller: Caller) -> None:
    reply = caller.bash("for i in 1 2 3; do echo o$i; echo e$i >&2; done")

    assert reply["output"] == "o1\ne1\no2\ne2\no3\ne3\n"


def test_split_streams_stand_apart(caller: Caller) -> None:
    reply = caller.bash("echo out; echo err >&2; echo more", streams="split")

    assert reply.keys() == (FINISHED - {"output"}) | {"stdout", "stderr"}
    assert (reply["stdout"], reply["stderr"]) == ("out\nmore\n", "err\n")
    assert reply["outputBytes"] == 13
    assert [Path(path).read_bytes() for path in reply["outputPath"]] == [b"out\nmore\n", b"err\n"]


def test_standard_output_can_be_opened_again_by_name(caller: Caller) -> None:
    reply = caller.bash("echo a; echo b > /dev/stdout; echo c >> /dev/stderr; echo d")

    assert reply["output"] == "a\nb\nc\nd\n"


# -- standard input ----------------------------------------------------------------------------


@pytest.mark.case("C046")
def test_a_command_reads_nothing_of_ours(caller: Caller) -> None:
    assert outcome(caller.bash("cat")) == ("succeeded", "exit", 0, None, "")
    assert outcome(caller.bash("echo second")) == ("succeeded", "exit", 0, None, "second\n")


@pytest.mark.case("C047")
@pytest.mark.parametrize("how", [{}, {"timeout_secs": 0}])
def test_standard_input_is_empty_for_a_call_in_the_background_too(
    how: dict[str, Any], caller: Caller
) -> None:
    first = caller.bash("read x; echo r=$?", **how)
    second = caller.bash("cat", **how)

    done = [caller.wait(reply["taskId"]) for reply in (first, second)]
    assert [reply["output"] for reply in done] == ["r=1\n", ""]
    assert [reply["exitCode"] for reply in done] == [0, 0]


def test_standard_input_can_be_a_text(caller: Caller) -> None:
    text = "één\n" + "x" * 200_000

    reply = caller.bash("head -n1; wc -c", stdin={"text": text}, session=False)
    script = caller.execute("bash", "-s", stdin={"text": "echo from text"})
    nothing = caller.bash("cat", stdin={"text": ""})
    null = caller.bash("readlink /proc/self/fd/0", stdin="null")

    assert reply["output"].startswith("één\n")
    assert script["output"] == "from text\n"
    assert nothing["output"] == ""
    assert null["output"] == "/dev/null\n"


def test_a_job_that_never_reads_its_text_ends_all_the_same(caller: Caller) -> None:
    reply = caller.bash("echo done", stdin={"text": "x" * (1 << 20)})

    assert outcome(reply) == ("succeeded", "exit", 0, None, "done\n")


# -- environment and directory -----------------------------------------------------------------


def test_cwd_and_env_are_for_this_call_alone(caller: Caller, tmp_path: Path) -> None:
    caller.bash("cd /usr; export KEPT=session")

    reply = caller.bash(
        "pwd; echo $ONCE $KEPT", cwd=str(tmp_path), env={"ONCE": "now", "KEPT": "x"}
    )
    after = caller.bash("pwd; echo [$ONCE] $KEPT")

    assert reply["output"] == f"{tmp_path}\nnow x\n"
    assert reply["cwd"] == str(tmp_path)
    assert after["output"] == "/usr\n[] session\n"


def test_a_job_knows_its_task_its_caller_and_the_home(caller: Caller, engine: Engine) -> None:
    names = 'echo "$ENGINE_TASK_ID|$ENGINE_CALLER|$ENGINE_HOME"'

    replies = [
        caller.bash(names),
        caller.bash(names),
        caller.bash(names, session=False),
        caller.execute("bash", "-c", names),
    ]

    for reply in replies:
        assert reply["output"] == f"{reply['taskId']}|{caller.name}|{engine.home}\n"
    assert len({reply["taskId"] for reply in replies}) == 4


def test_programs_are_told_that_nobody_looks_unless_the_caller_says_otherwise(
    caller: Caller,
) -> None:
    names = 'echo "$NO_COLOR $PAGER $GIT_PAGER $TERM"'

    assert caller.bash(names)["output"] == "1 cat cat dumb\n"
    assert caller.bash(names, env={"TERM": "xterm", "PAGER": "less"})["output"] == (
        "1 less cat xterm\n"
    )
    assert caller.execute("bash", "-c", names)["output"] == "1 cat cat dumb\n"
    caller.bash("export TERM=vt100; unset NO_COLOR")
    assert caller.bash(names)["output"].endswith("cat cat vt100\n")


@pytest.mark.parametrize("name", ["", "A=B", "A\0B", "ENGINE_HOME", "ENGINE_"])
def test_a_name_that_no_job_may_have_is_refused(name: str, caller: Caller) -> None:
    error = caller.refuse("bash", command="true", env={name: "x"})

    assert error["code"] == -32602
    assert error["data"]["path"].startswith("$.env")


def test_a_call_without_a_session_leaves_no_trace_in_it(caller: Caller) -> None:
    caller.bash("cd /usr; x=1; f() { echo f; }")

    alone = caller.bash("echo [$x]; f; cd /tmp; x=2; export y=3", session=False)
    after = caller.bash("pwd; echo $x [$y]")

    assert "[]\n" in alone["output"]
    assert "f: command not found" in alone["output"]
    assert after["output"] == "/usr\n1 []\n"


# -- what stays behind -------------------------------------------------------------------------


@pytest.mark.case("C001")
def test_a_call_ends_with_its_shell_and_names_who_stays(caller: Caller) -> None:
    reply = caller.bash("sleep 30 & echo done", streams="split")

    assert (reply["status"], reply["exitCode"], reply["stdout"]) == ("succeeded", 0, "done\n")
    assert reply["durationMs"] < 1000
    (survivor,) = reply["survivors"]
    assert survivor.keys() == {"pid", "command"}
    assert left_by(caller, reply) == ["sleep 30"]
    assert is_running(survivor["pid"])

    cancelled = caller.cancel(reply["taskId"])

    assert cancelled["outcome"] == "already_finished"
    assert cancelled["status"] == "succeeded"
    assert (cancelled["signalled"], cancelled["survivors"]) == ([survivor["pid"]], [])
    assert not is_running(survivor["pid"])
    assert caller.wait(reply["taskId"]) == reply  # the record of the end stays as it was


@pytest.mark.case("C002")
def test_a_chatty_process_left_behind_does_not_hold_up_the_reply(caller: Caller) -> None:
    reply = caller.bash("(for i in $(seq 50); do echo tick; sleep 0.2; done) & sleep 0.3; echo fg")

    assert (reply["status"], reply["exitCode"]) == ("succeeded", 0)
    assert "fg\n" in reply["output"]
    assert 300 <= reply["durationMs"] < 1500
    assert reply["survivors"]
    caller.cancel(reply["taskId"])


@pytest.mark.case("C003")
def test_a_process_that_holds_one_stream_does_not_hold_up_the_reply(caller: Caller) -> None:
    reply = caller.bash("sleep 30 >/dev/null & echo ok")

    assert outcome(reply) == ("succeeded", "exit", 0, None, "ok\n")
    assert reply["durationMs"] < 1000
    assert left_by(caller, reply) == ["sleep 30"]
    caller.cancel(reply["taskId"])


@pytest.mark.case("C004")
def test_a_redirection_into_a_process_ends_with_its_call(caller: Caller, tmp_path: Path) -> None:
    reply = caller.bash(f"exec > >(tee -a {tmp_path}/t.log) 2>&1; echo hi")
    after = caller.bash("echo plain")
    held = caller.bash("exec > >(sleep 20; cat); true")

    assert (reply["status"], reply["exitCode"]) == ("succeeded", 0)
    assert after["output"] == "plain\n"
    assert (held["status"], held["exitCode"]) == ("succeeded", 0)
    assert held["durationMs"] < 1000
    caller.cancel(held["taskId"])


@pytest.mark.case("C012")
def test_late_output_belongs_to_the_task_that_left_its_writer(caller: Caller, gate: Gate) -> None:
    first = caller.bash(f"({gate.wait}; echo LATE) &")
    second = caller.send("bash", command=f"{gate.tell}; sleep 0.2; echo two")

    late = caller.call("read_output", taskId=first["taskId"], timeout_secs=10)
    while not late["text"]:  # the end of the task ends the wait; what follows is read again
        late = caller.call("read_output", taskId=first["taskId"])
    assert late["text"] == "LATE\n"
    assert first["output"] == ""
    assert second.result()["output"] == "two\n"


@pytest.mark.case("C025")
def test_workers_left_behind_are_listed_and_can_be_ended(caller: Caller) -> None:
    reply = caller.bash("sh -c 'for i in 1 2 3; do sleep 60 & done; seq 200000' | head -3")

    assert (reply["status"], reply["exitCode"]) == ("succeeded", 0)
    assert reply["output"] == "1\n2\n3\n"
    assert left_by(caller, reply) == ["sleep 60"] * 3
    pids = sorted(one["pid"] for one in reply["survivors"])

    assert sorted(caller.cancel(reply["taskId"])["signalled"]) == pids
    assert [pid for pid in pids if is_running(pid)] == []


# -- deadline ----------------------------------------------------------------------------------


@pytest.mark.case("C005")
def test_a_deadline_ends_every_process_of_the_job(caller: Caller) -> None:
    reply = caller.bash("echo $BASHPID; sleep 60 | cat", deadline_secs=2)

    assert outcome(reply)[:2] == ("timed_out", "deadline")
    assert 2000 <= reply["durationMs"] < 4000
    assert not is_running(int(reply["output"]))
    for one in reply["survivors"]:  # told to end, and on their way when the shell was gone
        wait_gone(one["pid"], 2)
    assert caller.call("read_task", taskId=reply["taskId"])["survivors"] == []


@pytest.mark.case("C095")
def test_what_was_written_before_the_deadline_is_there(caller: Caller) -> None:
    reply = caller.bash("echo CRITICAL; sleep 30", deadline_secs=0.5, streams="split")

    assert (reply["status"], reply["reason"]) == ("timed_out", "deadline")
    assert (reply["stdout"], reply["stderr"]) == ("CRITICAL\n", "")


def test_timed_out_stands_whatever_the_code(caller: Caller) -> None:
    reply = caller.bash("trap 'echo bye; exit 0' TERM; sleep 30 & wait", deadline_secs=0.3)

    assert outcome(reply)[:4] == ("timed_out", "deadline", 0, None)
    assert reply["output"] == "bye\n"


def test_a_deadline_is_kept_for_a_promoted_job_too(caller: Caller) -> None:
    started = caller.start("sleep 30", deadline_secs=0.3)

    assert started["status"] == "running"
    assert outcome(caller.wait(started["taskId"]))[:2] == ("timed_out", "deadline")


# -- limits ------------------------------------------------------------------------------------


@pytest.mark.case("C101")
@pytest.mark.parametrize("size", [131_071, 131_072, 1 << 20])
def test_a_command_may_be_a_mebibyte(size: int, caller: Caller) -> None:
    head = "echo start\n# "
    tail = "\necho end"
    command = head + "x" * (size - len(head) - len(tail)) + tail

    assert outcome(caller.bash(command)) == ("succeeded", "exit", 0, None, "start\nend\n")


def test_a_command_is_of_1_byte_to_a_mebibyte(caller: Caller) -> None:
    for command in ("", "#" * ((1 << 20) + 1), "é" * (1 << 19) + "#"):
        error = caller.refuse("bash", command=command)
        assert (error["code"], error["data"]["path"]) == (-32602, "$.command")


@pytest.mark.case("C102")
def test_a_variable_that_linux_does_not_pass_is_refused_by_name(caller: Caller) -> None:
    caller.bash("x=kept")

    fits = caller.execute("bash", "-c", "echo ${#A}", env={"A": "x" * 131_069})
    error = caller.refuse("execute", argv=["true"], env={"A": "x" * 131_070})

    assert fits["output"] == "131069\n"
    assert (error["code"], error["data"]["path"]) == (-32602, "$.env.A")
    assert caller.bash("echo $x")["output"] == "kept\n"


@pytest.mark.case("C141")
@pytest.mark.parametrize("secs", [2.0**31, 1e10, 1e15, 1e300])
def test_a_huge_time_is_cut_to_its_bound_and_the_job_runs(secs: float, caller: Caller) -> None:
    reply = caller.bash("sleep 0.05; echo ran", timeout_secs=secs, deadline_secs=secs)

    assert outcome(reply) == ("succeeded", "exit", 0, None, "ran\n")
    assert caller.wait(reply["taskId"], timeout_secs=secs)["output"] == "ran\n"


# -- what a job does to itself and to us -------------------------------------------------------


@pytest.mark.case("C024")
def test_a_job_that_kills_its_group_or_its_parent_ends_no_other_job(
    caller: Caller, client: Client, gate: Gate
) -> None:
    other = client.caller().send("bash", command=f"{gate.wait}; echo unharmed")

    group = caller.bash("kill 0; sleep 5")
    parent = caller.bash("exec bash -c 'kill $PPID; echo alive'")

    assert outcome(group)[:4] == ("failed", "signal", None, "SIGTERM")
    assert parent["output"] == "alive\n"
    gate.open()
    assert other.result()["output"] == "unharmed\n"


@pytest.mark.case("C063")
def test_the_environment_runs_no_code_before_the_command(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "be.sh").write_text("echo INJECTED\n")

    reply = caller.bash("echo hi", env={"BASH_ENV": f"{tmp_path}/be.sh"})
    other = caller.client.caller().bash("echo [$BASH_ENV]")

    assert reply["output"] == "hi\n"
    assert other["output"] == "[]\n"


@pytest.mark.case("C096")
def test_an_interrupted_step_keeps_the_output_so_far(caller: Caller, bell: Gate) -> None:
    command = f"echo one; echo $BASHPID > {bell.path}; sleep 30; echo $?; echo two"
    call = caller.send("bash", command=command)
    shell = int(bell.hear())
    child = None
    while child is None:  # the shell forks in its own time
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        child = next((int(pid) for pid in children if _command(pid) == "sleep"), None)
    os.kill(child, 2)

    reply = call.result()

    # As in `bash -c`: the shell, which has had no signal itself, goes on.
    assert outcome(reply) == ("succeeded", "exit", 0, None, "one\n130\ntwo\n")


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


@pytest.mark.case("C008")
def test_the_last_bytes_of_a_job_that_ends_fast_are_there(caller: Caller) -> None:
    calls = [
        caller.send("execute", argv=["sh", "-c", "echo oops >&2; exit 1"], streams="split")
        for _ in range(200)
    ]

    found = {(r["exitCode"], r["stdout"], r["stderr"]) for r in (c.result() for c in calls)}

    assert found == {(1, "", "oops\n")}


@pytest.mark.case("C106")
def test_orphans_leave_no_zombie(caller: Caller, engine: Engine) -> None:
    calls = [caller.send("bash", command="(sleep 0.05 &) ; true") for _ in range(200)]
    survivors = [one for call in calls for one in call.result()["survivors"]]
    for one in survivors:
        wait_gone(one["pid"], 2)
    caller.bash("true")

    assert [pid for pid in _descendants(engine.pid) if _state(pid) == "Z"] == []


def _descendants(pid: int) -> list[int]:
    """Pids below `pid`, itself left out; one that ends meanwhile is left out too."""
    found: list[int] = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return found
    for child in children:
        found += [int(child), *_descendants(int(child))]
    return found


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
