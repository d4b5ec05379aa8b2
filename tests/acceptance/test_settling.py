"""A call is answered while its shell writes the session's state: what comes between the two.

The command says its shell's word itself and then stops the shell, which holds that moment.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import LIMIT, NO_FLOOR, Caller, Engine, called, wait_gone

from engine.keeper.shell import FD_TELL

WORD = rf"printf '0\0x\n0m0.000s 0m0.000s\n\0/usr\n\0' >/proc/$PPID/fd/{FD_TELL}"
HELD = f"A=after; cd /usr; echo $PPID $$; {WORD}; kill -STOP $$"
SEEN = 'echo "$A $PWD"'


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine:
        yield engine


def hold(ci: Caller, rest: str = "") -> tuple[dict[str, Any], int, int]:
    """A reply whose state is to come; the pids of keeper and shell, which is stopped."""
    ci.bash("A=before; cd /")
    end = ci.bash(f"{HELD}; {rest}")
    keeper, shell = map(int, end["output"].split())
    deadline = time.monotonic() + LIMIT
    while Path(f"/proc/{shell}/stat").read_text().rpartition(") ")[2][0] != "T":
        assert time.monotonic() < deadline, "it does not stop"
        time.sleep(0.005)
    return end, keeper, shell


def lost(reply: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines of the reply that tell of a lost state: level and task."""
    lines = [line for line in reply["logs"] if line["text"].startswith("session state lost")]
    return [(line["level"], line["taskId"]) for line in lines]


def test_a_call_is_answered_before_its_state_and_the_next_one_waits_for_that(
    engine: Engine,
) -> None:
    with called(engine) as ci:
        end, _keeper, shell = hold(ci)
        assert (end["status"], end["exitCode"], end["cwd"]) == ("succeeded", 0, "/usr")
        assert end["survivors"] == []
        following = ci.send("bash", command=SEEN)
        assert not following.is_answered(within=0.3)
        assert ci.call("bash", command="echo free", session=False)["output"] == "free\n"
        os.kill(shell, signal.SIGCONT)
        reply = following.result()
        assert (reply["output"], lost(reply)) == ("after /usr\n", [])
        # The keeper knows that the state is in good hands, and is free.
        written = engine.home / "tasks" / end["taskId"][1:] / "exit"
        deadline = time.monotonic() + LIMIT
        while b"unsettled" in written.read_bytes().partition(b"\ncomplete\n")[0]:
            assert time.monotonic() < deadline, "the keeper holds the state"
            time.sleep(0.005)


@pytest.mark.parametrize("which", ["keeper", "shell"])
def test_a_state_that_does_not_come_leaves_the_session_as_it_was_and_is_told(
    engine: Engine, which: str
) -> None:
    with called(engine) as ci:
        end, keeper, shell = hold(ci)
        following = ci.send("bash", command=SEEN)
        os.kill(keeper if which == "keeper" else shell, signal.SIGKILL)
        reply = following.result()
        assert reply["output"] == "before /\n"
        assert lost(reply) == [("warning", end["taskId"])]
        assert ci.wait(end["taskId"])["exitCode"] == 0
        if which == "keeper":
            os.kill(shell, signal.SIGKILL)
            wait_gone(shell)


def test_a_shell_that_ends_otherwise_than_its_reply_said_is_told_of(engine: Engine) -> None:
    with called(engine) as ci:
        end, _keeper, shell = hold(ci, "exit 7")
        os.kill(shell, signal.SIGCONT)
        reply = ci.bash(SEEN)
        assert reply["output"] == "after /usr\n"
        (line,) = [x for x in reply["logs"] if x["text"].startswith("call ended otherwise")]
        assert (line["level"], line["taskId"]) == ("warning", end["taskId"])
        assert "its shell ended with 7" in line["text"]


@pytest.mark.parametrize("pause", [0.0, 0.5], ids=["at once", "later"])
@pytest.mark.parametrize("is_written", [False, True], ids=["held", "written meanwhile"])
def test_an_engine_killed_before_the_state_came_leaves_it_to_the_next(
    engine: Engine, pause: float, is_written: bool
) -> None:
    with called(engine) as ci:
        end, _keeper, shell = hold(ci)
        time.sleep(pause)  # the index is written meanwhile, or not
    engine.kill()
    if is_written:
        os.kill(shell, signal.SIGCONT)
        wait_gone(shell)
    engine.start()
    with called(engine) as ci:
        following = ci.send("bash", command=SEEN)
        if not is_written:
            assert not following.is_answered(within=0.3)
            os.kill(shell, signal.SIGCONT)
        reply = following.result()
        assert (reply["output"], lost(reply)) == ("after /usr\n", [])
        status = ci.wait(end["taskId"])
        assert (status["status"], status["exitCode"]) == ("succeeded", 0)


@pytest.mark.parametrize("pause", [0.0, 0.5], ids=["at once", "later"])
def test_where_engine_and_keeper_are_killed_before_it_the_end_stands_and_the_next_is_told(
    engine: Engine, pause: float
) -> None:
    with called(engine) as ci:
        end, keeper, shell = hold(ci)
        time.sleep(pause)
    engine.kill()
    for pid in (keeper, shell):
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)
    engine.start()
    with called(engine) as ci:
        reply = ci.bash(SEEN)
        assert reply["output"] == "before /\n"
        assert lost(reply) == [("warning", end["taskId"])]
        status = ci.wait(end["taskId"])
        assert (status["status"], status["exitCode"]) == ("succeeded", 0)


def test_a_cancel_meanwhile_takes_nothing_away(engine: Engine) -> None:
    with called(engine) as ci:
        end, _keeper, shell = hold(ci)
        reply = ci.cancel(end["taskId"])
        assert reply["outcome"] == "already_finished"
        os.kill(shell, signal.SIGCONT)
        assert ci.bash(SEEN)["output"] == "after /usr\n"


def test_a_session_that_is_ended_meanwhile_takes_no_state(engine: Engine) -> None:
    with called(engine) as ci:
        _end, _keeper, shell = hold(ci)
        ci.call("reset_session")
        reply = ci.bash('echo "${A-none}"')
        assert (reply["output"], lost(reply)) == ("none\n", [])
        os.kill(shell, signal.SIGCONT)
        wait_gone(shell)
        assert ci.bash('echo "${A-none}"')["output"] == "none\n"


def test_what_a_command_left_is_told_with_its_end(engine: Engine) -> None:
    with called(engine) as ci:
        # Seen as what they are, no more as the bash that they came of.
        run = 'until [ "$(< /proc/$!/comm)" = sleep ]; do :; done'
        end = ci.bash(f"sleep 600 & {run}; disown; (sleep 600 & {run})")
        assert [each["command"] for each in end["survivors"]] == ["sleep 600", "sleep 600"]
        ci.cancel(end["taskId"])


def test_a_task_that_is_forgotten_meanwhile_stays_so_and_its_state_counts(engine: Engine) -> None:
    with called(engine) as ci:
        end, _keeper, shell = hold(ci)
        ci.call("forget", taskId=end["taskId"])
        os.kill(shell, signal.SIGCONT)
        assert ci.bash(SEEN)["output"] == "after /usr\n"
        assert ci.refuse("wait", taskId=end["taskId"])["data"]["kind"] == "expired_handle"
        engine.stop()
    engine.start()
    with called(engine) as ci:
        assert ci.refuse("wait", taskId=end["taskId"])["data"]["kind"] == "expired_handle"
