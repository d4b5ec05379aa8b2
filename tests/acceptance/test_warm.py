"""Shells started ahead, over the wire: nothing tells a call that runs in one from any other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from acceptance.running import LIMIT, Caller, Client, Engine, wait_gone


def prepared(engine: Engine) -> list[str]:
    """Ids for which a shell has been started ahead."""
    folder = engine.home / "tasks" / ".ahead"
    return [path.name for path in folder.iterdir() if (path / "ready").is_symlink()]


def warm_call(engine: Engine, caller: Caller, command: str) -> dict[str, Any]:
    """A call of a caller whose shell is there before it comes; tried anew where it was not."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        before = set(prepared(engine))
        caller.bash(":")
        while not set(prepared(engine)) - before and time.monotonic() < deadline:
            time.sleep(0.005)
        reply = caller.bash(command)
        if was_prepared(reply):  # another caller's may have been the new one
            return reply
    raise AssertionError("no shell was started ahead")


def was_prepared(reply: dict[str, Any]) -> bool:
    """Whether the call had the directory that was made for a shell started ahead."""
    return (Path(reply["outputPath"]).parent / "ready").is_symlink()


SEEN = """
env | grep -v -e ENGINE_TASK_ID -e ENGINE_CALLER | sort
shopt | sort; set +o; trap -p; alias
declare -p | grep -v -e SECONDS -e EPOCH -e RANDOM -e PID -e ENGINE_
echo "$0 $- $# $? $! $SECONDS $_"; umask; ulimit -a; ls /proc/$$/fd; tty; id
cat /proc/$$/oom_score_adj; ps -o ni=,pri=,cls= $$; [[ $$ == $BASHPID ]]; echo $?; jobs
tr '\\0' '\\n' < /proc/$$/environ | grep -v -e ENGINE_TASK_ID -e ENGINE_CALLER | sort
test "$(ps -o pgid=,sid= $$ | xargs)" = "$$ $$"; echo $?
"""


def test_a_shell_that_was_started_ahead_cannot_be_told_from_another(
    engine: Engine, client: Client
) -> None:
    begin = "export A=b; f() { echo f; }; alias ll='ls -l'; shopt -s nullglob; cd /usr"
    warm, cold = client.caller(), client.caller()
    warm.bash(begin)
    cold.bash(begin)
    cold.bash(":")
    replies = [warm_call(engine, warm, SEEN), cold.bash(SEEN, cwd="/usr")]
    assert not was_prepared(replies[1])  # a directory of its own: a shell of its own
    seen = [Path(reply["outputPath"]).read_text().splitlines() for reply in replies]
    assert seen[0] == seen[1]
    assert len(seen[0]) > 100


def test_a_job_knows_its_own_id_in_a_shell_that_was_started_ahead(
    engine: Engine, caller: Caller
) -> None:
    reply = warm_call(engine, caller, "echo $ENGINE_TASK_ID $ENGINE_CALLER")
    assert reply["output"] == f"{reply['taskId']} {caller.name}\n"


def test_a_call_with_a_directory_or_an_environment_of_its_own_gets_it(
    engine: Engine, caller: Caller, tmp_path: Path
) -> None:
    for own, text, output in (
        ({"cwd": str(tmp_path)}, "pwd", f"{tmp_path}\n"),
        ({"env": {"A": "own"}}, "echo $A", "own\n"),
        ({"stdin": {"text": "typed"}}, "cat", "typed"),
        ({}, "echo ${A-none}; pwd", "none\n/\n"),
    ):
        warm_call(engine, caller, "cd /")
        assert caller.bash(text, **own)["output"] == output


def test_a_session_that_was_reset_does_not_come_back_by_a_shell_that_waits(
    engine: Engine, caller: Caller
) -> None:
    warm_call(engine, caller, "old=1; cd /usr")
    caller.call("reset_session", kind="bash")
    assert caller.bash("echo ${old-none}")["output"] == "none\n"


def test_a_shell_that_waits_ends_with_its_engine(tmp_path: Path) -> None:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as engine:
        with engine.connect() as client:
            caller = client.caller()
            pid = int(warm_call(engine, caller, "echo $PPID")["output"])
            caller.bash("x=2")
            deadline = time.monotonic() + LIMIT
            while not prepared(engine):
                assert time.monotonic() < deadline
                time.sleep(0.005)
        engine.kill()
        wait_gone(pid)
        engine.start()
        assert prepared(engine) == []
        with engine.connect() as client:
            assert caller.on(client).bash("echo $x")["output"] == "2\n"
