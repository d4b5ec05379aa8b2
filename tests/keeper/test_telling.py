"""Mirrors `engine/keeper/telling.py`: what a session's shell tells before it writes its state.

A command that says the word itself and then stops its shell holds the moment between the two.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keeper.harness import KeeperClient, Nursery, is_running, nursery, order, read_exit
from keeper.test_warm import BASE, wait_dead

from engine.jobs.shelldump import read_dump
from engine.jobs.shellstate import plan_call
from engine.keeper import job as job_module
from engine.keeper import processes, shell
from engine.keeper.job import Job
from engine.keeper.telling import Telling, Told

LIMIT = 10.0  # seconds for any wait in a test
WORD = rf"printf '0\0x\n0m1.250s 0m0,125s\n\0/usr\n\0' >/proc/$PPID/fd/{shell.FD_TELL}"


@pytest.fixture
def mother(tmp_path: Path) -> Iterator[Nursery]:
    with nursery(tmp_path) as mother:
        yield mother
        assert mother.log() == ""


class Call:
    """A call of a new session, sent to a keeper of its own. `keeps`: see `KeeperClient`."""

    def __init__(self, mother: Nursery, text: str, *, keeps: bool = True, **changes: Any) -> None:
        self.directory, self.keeper = mother.directory(), mother.keeper()
        self.keeper.keeps = keeps
        plan = plan_call(
            None, text.encode(), session=True, base=BASE, env={}, defaults={}, identity={}
        )
        fd = os.memfd_create("text")
        os.write(fd, plan.prologue)
        message = order(
            self.directory, *plan.argv, env=plan.environ, session=True, call=plan.call.decode(),
            prologue=True, **changes,
        )  # fmt: skip
        self.keeper.send({**message, "fds": 1}, [fd])
        os.close(fd)

    def expect(self, *words: str) -> dict[str, Any]:
        return self.keeper.expect(*words)

    def is_known(self) -> bool:
        """Whether the keeper still has the job."""
        self.keeper.send({"op": "survey"})
        word: str = self.expect("survivors", "gone")["ev"]
        return word == "survivors"


def wait_stopped(pid: int) -> None:
    deadline = time.monotonic() + LIMIT
    while f"{Path(f'/proc/{pid}/stat').read_text()}".rpartition(") ")[2][0] != "T":
        assert time.monotonic() < deadline, "it does not stop"
        time.sleep(0.005)


def held(mother: Nursery, rest: str = "", **settings: Any) -> tuple[Call, dict[str, Any]]:
    """A call whose end was told, and whose shell is stopped; the word of the end."""
    call = Call(mother, f"A=after; {WORD}; kill -STOP $$; {rest}", **settings)
    ended = call.expect("ended")
    wait_stopped(ended["record"]["pid"])
    return call, ended


def test_the_end_is_told_and_written_down_before_the_state(mother: Nursery) -> None:
    call, ended = held(mother, keeps=False)
    record = ended["record"]
    assert "payload" not in ended
    assert ended["settling"] == "/usr"
    assert (record["cause"], record["exitCode"], record["signal"]) == ("exit", 0, None)
    assert record["survivors"] == []
    assert record["cpuMs"] >= 1375  # what the children are said to have used is in it
    assert record["unsettled"] is True
    assert read_exit(call.directory) == record
    os.kill(record["pid"], signal.SIGCONT)
    settled = call.expect("settled")
    dump = read_dump(settled["state"])
    assert dump is not None
    assert dump.variables[b"A"].value == b'"after"'
    assert "mishap" not in settled
    assert call.is_known()  # until the state is in good hands
    call.keeper.send({"op": "kept"})
    call.expect("gone")
    del record["unsettled"]
    assert read_exit(call.directory) == record


def test_all_that_the_command_wrote_is_there_when_its_end_is_told(mother: Nursery) -> None:
    call = Call(mother, f"head -c 60000 /dev/zero; {WORD}; kill -STOP $$")
    ended = call.expect("ended")
    assert ended["settling"] == "/usr"
    assert ended["record"]["sizes"] == [60000]
    wait_stopped(ended["record"]["pid"])
    os.kill(ended["record"]["pid"], signal.SIGCONT)
    call.expect("gone")


@pytest.mark.parametrize("text", ["true", "cd /usr; echo hi; (exit 7)", "ls / | wc -l; false"])
def test_the_word_of_the_shell_itself_is_true(mother: Nursery, text: str) -> None:
    """It may be overtaken by the shell's end, so it is looked at however it comes."""
    codes = {"true": 0, "cd /usr; echo hi; (exit 7)": 7, "ls / | wc -l; false": 1}
    where = "/usr" if text.startswith("cd") else "/"
    for _ in range(5):
        call = Call(mother, text)
        ended = call.expect("ended")
        assert ended["record"]["exitCode"] == codes[text]
        assert ended.get("settling", where) == where
        dump = ended.get("state") or call.expect("settled")["state"]
        assert read_dump(dump) is not None
        call.expect("gone")
        for path in call.directory.iterdir():
            path.unlink()
        call.directory.rmdir()


@pytest.mark.parametrize(
    "before",
    ["sleep 1 & ", "(sleep 1 &); ", "trap 'sleep 0.1; echo bye' EXIT; ",
     "B=$(head -c 3000000 /dev/zero | tr '\\0' b); "],
    ids=["a child", "an orphan", "its own trap", "much to write"],
)  # fmt: skip
def test_where_more_is_to_come_the_end_is_that_of_the_shell(mother: Nursery, before: str) -> None:
    ended = Call(mother, f"{before}cd /usr; (exit 5)").expect("ended")
    assert "settling" not in ended
    assert ended["record"]["exitCode"] == 5
    dump = read_dump(ended["state"])
    assert dump is not None
    assert dump.directory == b"/usr"


@pytest.mark.parametrize("before", ["sleep 100 & ", "(sleep 100 &); "], ids=["child", "orphan"])
def test_whom_a_command_leaves_behind_is_told_with_its_end(mother: Nursery, before: str) -> None:
    call = Call(mother, f"{before}{WORD}; sleep 0.1")
    ended = call.expect("ended")
    assert "settling" not in ended
    assert [each["command"] for each in ended["record"]["survivors"]] == ["sleep 100"]
    call.keeper.send({"op": "cancel", "grace": 5})
    call.expect("gone")


@pytest.mark.parametrize(
    "changes", [{"streams": "split"}, {"stdin": "open"}, {"pty": True}], ids=str
)
def test_a_call_that_needs_the_end_of_its_shell_has_no_earlier_one(
    mother: Nursery, changes: dict[str, Any]
) -> None:
    call = Call(mother, f"{WORD}; exit 6", **changes)
    ended = call.expect("ended")
    assert "settling" not in ended
    assert ended["record"]["exitCode"] == 6
    call.expect("gone")


@pytest.mark.parametrize(
    ("rest", "sent", "mishap"),
    [
        ("exit 7", signal.SIGCONT, "its shell ended with 7"),
        ("", signal.SIGKILL, "its shell was killed by signal 9"),
    ],
)
def test_a_shell_that_ends_otherwise_than_it_said_is_told_of_and_the_end_stands(
    mother: Nursery, rest: str, sent: int, mishap: str
) -> None:
    call, ended = held(mother, rest)
    os.kill(ended["record"]["pid"], sent)
    assert call.expect("settled")["mishap"] == mishap
    call.expect("gone")
    assert read_exit(call.directory)["exitCode"] == 0


def test_a_cancel_lets_the_shell_write_its_state(mother: Nursery) -> None:
    call, ended = held(mother)
    pid = ended["record"]["pid"]
    call.keeper.send({"op": "cancel", "grace": 0})
    assert call.expect("signalled")["pids"] == []
    time.sleep(0.3)  # longer than from one round of kills to the next
    assert is_running(pid)
    os.kill(pid, signal.SIGCONT)
    assert read_dump(call.expect("settled")["state"]) is not None
    call.expect("gone")
    assert read_exit(call.directory)["cause"] == "exit"


def test_a_command_that_is_being_cancelled_ends_with_its_shell(mother: Nursery) -> None:
    loop = "trap GO=1 TERM; echo up; while [[ ! $GO ]]; do sleep 0.05; done"
    busy = "S=${EPOCHREALTIME/./}; while (( ${EPOCHREALTIME/./} - S < 300000 )); do :; done"
    call = Call(mother, f"{loop}; {WORD}; {busy}; exit 4")
    call.expect("grew")
    call.keeper.send({"op": "cancel", "grace": 5})
    ended = call.expect("ended")
    assert "settling" not in ended
    assert (ended["record"]["cause"], ended["record"]["exitCode"]) == ("cancelled", 4)
    call.expect("gone")


@pytest.mark.parametrize("when", ["before the state", "after it"])
def test_an_engine_that_comes_meanwhile_has_the_state(mother: Nursery, when: str) -> None:
    call, ended = held(mother)
    pid = ended["record"]["pid"]
    call.keeper.close()
    if when == "after it":
        os.kill(pid, signal.SIGCONT)
        wait_dead(pid)
    again: KeeperClient = mother.find(call.directory)
    again.send({"op": "attach", "dir": str(call.directory)})
    state = again.expect("state")
    assert (state["settling"], state["record"]) == ("/usr", ended["record"])
    if when == "before the state":
        os.kill(pid, signal.SIGCONT)
    dump = read_dump(again.expect("settled")["state"])
    assert dump is not None
    assert dump.variables[b"A"].value == b'"after"'
    again.expect("gone")
    again.close()


def test_a_shell_that_writes_for_too_long_is_ended_and_its_state_held_for_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(job_module, "clock", lambda: now)
    # The tests have children of their own.
    monkeypatch.setattr(processes, "is_only_descendant", lambda pid: True)
    (directory := tmp_path / "aaaaaa").mkdir()
    job = Job(order(directory, "sleep", "100", session=True), "1 2 boot")
    job.start(None)
    assert job.end_early(Told(3, 0.5, "/usr"))
    assert job.next_timer() == 1030.0
    now = 1030.0
    job.on_timer()
    _pid, status, _usage = os.wait4(job.pid, 0)
    assert job.settle(status) == "its shell was killed by signal 9"
    assert job.next_timer() == 1090.0
    assert job.told is not None
    now = 1090.0
    job.on_timer()
    assert job.told is None
    assert job.record is not None
    assert (job.record["exitCode"], job.record["unsettled"]) == (3, True)
    job.close()


@pytest.fixture
def telling() -> Iterator[Telling]:
    telling = Telling()
    yield telling
    os.close(telling.fd)
    os.close(shell.FD_TELL)


def say(data: bytes) -> None:
    os.write(shell.FD_TELL, data)


def test_a_word_is_read_up_to_its_end(telling: Telling) -> None:
    for piece in (b"3\0", b"0m0.1s 0m0.1s\n1m2.003s", b" 0m0,004s\n\0", b"/a\nb\n"):
        say(piece)
        assert telling.read() is None
    say(b"\0")
    assert telling.read() == Told(3, 62.007, "/a\nb")
    assert telling.read() is None


@pytest.mark.parametrize(
    "data",
    [b"0\0x\n0m0.000s 0m0.000s\n\0usr\n\0", b"256\0x\n0m0.000s 0m0.000s\n\0/\n\0",
     b"-1\0x\n0m0.000s 0m0.000s\n\0/\n\0", b"0\0x\n\0/\n\0", b"\0\0\0", b"a" * 9000,
     b"0\0x\n0m0.000s 0m0.000s\n\0/\n\0more"],
)  # fmt: skip
def test_what_makes_no_sense_is_no_word(telling: Telling, data: bytes) -> None:
    say(data)
    assert telling.read() is None
    telling.forget()
    say(b"0\0x\n0m0.000s 0m0.000s\n\0/\n\0")
    assert telling.read() == Told(0, 0.0, "/")


def test_a_word_that_is_left_is_not_the_next_commands(telling: Telling) -> None:
    say(b"0\0")
    assert telling.read() is None
    say(b"x\n0m0.000s 0m0.000s\n\0")
    telling.forget()
    say(b"1\0x\n0m0.000s 0m0.000s\n\0/\n\0")
    assert telling.read() == Told(1, 0.0, "/")
