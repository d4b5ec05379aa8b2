"""Mirrors `engine/keeper/keeper.py`: keepers of a real mother, real processes, no engine."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from keeper.harness import Nursery, bash, is_running, nursery, order, read_exit


@pytest.fixture
def mother(tmp_path: Path) -> Iterator[Nursery]:
    with nursery(tmp_path) as mother:
        yield mother
        assert mother.log() == ""


def test_a_job_is_started_and_its_end_is_written_down_exactly(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "echo out; echo err >&2; exit 7"))
    started = keeper.expect("started")
    ended = keeper.expect("ended")["record"]
    keeper.expect("gone")
    assert (directory / "output").read_bytes() == b"out\nerr\n"
    assert read_exit(directory) == ended
    assert ended["pid"] == started["pid"]
    assert (ended["cause"], ended["exitCode"], ended["signal"]) == ("exit", 7, None)
    assert (ended["sizes"], ended["dropped"], ended["survivors"]) == ([8], [[]], [])
    assert 0 <= ended["durationMs"] < 5000
    assert ended["endedAt"] == ended["startedAt"] + ended["durationMs"]


@pytest.mark.parametrize(
    ("text", "exit_code", "number"),
    [
        ("kill -TERM $$", None, 15),
        ("kill -KILL $$", None, 9),
        ("kill -SEGV $$", None, 11),
        ("kill 0", None, 15),
        ("kill -USR1 0", None, 10),
        ("kill -9 0", None, 9),
        ("sh -c 'kill -9 $$'; exit $?", 137, None),
        ("exit 256", 0, None),
        ("nosuchcmd_xyz", 127, None),
    ],
)
def test_status_is_what_wait_says(
    mother: Nursery, text: str, exit_code: int | None, number: int | None
) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, text))
    record = keeper.expect("ended")["record"]
    assert (record["exitCode"], record["signal"]) == (exit_code, number)
    assert record["cause"] == ("exit" if number is None else "signal")


def test_split_streams_go_to_a_file_each(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "echo out; echo err >&2", streams="split"))
    assert keeper.expect("ended")["record"]["sizes"] == [4, 4]
    assert (directory / "stdout").read_bytes() == b"out\n"
    assert (directory / "stderr").read_bytes() == b"err\n"
    assert not (directory / "output").exists()


@pytest.mark.case("C008")
def test_two_hundred_jobs_of_one_keeper_lose_no_last_byte(mother: Nursery) -> None:
    keeper = mother.keeper()
    for i in range(200):
        directory = mother.directory(f"a{i:05}")
        keeper.send(order(directory, "sh", "-c", "echo oops >&2; exit 1", streams="split"))
        assert keeper.expect("ended")["record"]["exitCode"] == 1
        assert (directory / "stderr").read_bytes() == b"oops\n"
        keeper.expect("gone")


def test_a_job_has_its_own_session_no_descriptor_of_ours_and_default_signals(
    mother: Nursery,
) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    script = (
        "import os, signal\n"
        "print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())\n"
        "print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:4])\n"
        "print([s.name for s in signal.valid_signals() if isinstance(s, signal.Signals)"
        " and signal.getsignal(s) == signal.SIG_IGN])\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
    )
    keeper.send(order(directory, "python3", "-I", "-c", script, env=dict(os.environ)))
    assert keeper.expect("ended")["record"]["exitCode"] == 0
    # Python itself ignores SIGPIPE and SIGXFSZ; descriptor 3 is the one that lists them.
    assert (directory / "output").read_text().splitlines() == [
        "True True",
        "[0, 1, 2, 3]",
        "['SIGPIPE', 'SIGXFSZ']",
        "set()",
    ]


@pytest.mark.case("C089")
def test_a_broken_pipe_ends_its_writer_in_silence(mother: Nursery) -> None:
    keeper, directory = mother.keeper(), mother.directory()
    keeper.send(bash(directory, "yes | head -1", streams="split"))
    assert keeper.expect("ended")["record"]["exitCode"] == 0
    assert (directory / "stdout").read_bytes() == b"y\n"
    assert (directory / "stderr").read_bytes() == b""
    keeper.expect("gone")
    directory = mother.directory("bbbbbb")
    keeper.send(bash(directory, "set -o pipefail; yes | head -1"))
    assert keeper.expect("ended")["record"]["exitCode"] == 141


def test_a_job_ends_with_its_shell_and_not_with_the_last_holder_of_its_output(
    mother: Nursery,
) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    before = time.monotonic()
    keeper.send(bash(directory, "(sleep 0.3; echo late; exec sleep 600) & echo done"))
    record = keeper.expect("ended")["record"]
    assert time.monotonic() - before < 5
    assert record["exitCode"] == 0
    assert [s["pid"] for s in record["survivors"]] != []
    # What they write later is still kept.
    while keeper.expect("grew")["sizes"] != [len("done\nlate\n")]:
        pass
    assert (directory / "output").read_bytes() == b"done\nlate\n"
    keeper.send({"op": "cancel", "grace": 5})
    keeper.expect("gone")
    assert not any(is_running(s["pid"]) for s in record["survivors"])
    assert read_exit(directory)["sizes"] == [10]


@pytest.mark.case("C002")
def test_a_chatty_survivor_does_not_hold_up_the_end(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    before = time.monotonic()
    keeper.send(bash(directory, "yes & sleep 0.3; echo fg"))
    record = keeper.expect("ended")["record"]
    assert time.monotonic() - before < 5
    assert record["exitCode"] == 0
    keeper.send({"op": "cancel", "grace": 5})
    keeper.expect("gone")
    assert b"fg\n" in (directory / "output").read_bytes()


ESCAPES = {
    "setsid": "setsid sleep 600 & sleep 600",
    "double fork": "( (sleep 600 &) & ); sleep 600",
    "env -i": "env -i sleep 600 & sleep 600",
    "set -m": "set -m; sleep 600 & sleep 600",
    "ignores TERM": "trap '' TERM; sleep 600 & while :; do sleep 0.05; done",
    "nohup": "nohup sleep 600 >/dev/null 2>&1 & sleep 600",
    "all": "set -m; trap '' TERM HUP; nohup env -i setsid bash -c"
    " 'trap \"\" TERM; (setsid sleep 600 &) & while :; do sleep 0.05; done' & sleep 600",
    "stopped": "sleep 600 & kill -STOP $!; kill -STOP $$",
    "a fork a moment": "trap '' TERM; while :; do sleep 600 & disown; sleep 0.01; done",
}


@pytest.mark.parametrize("text", ESCAPES.values(), ids=ESCAPES.keys())
def test_cancel_ends_every_process_however_it_fled(mother: Nursery, text: str) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, text))
    keeper.expect("started")
    time.sleep(0.2)  # let it flee: there is no event for that
    keeper.send({"op": "cancel", "grace": 0.3})
    signalled = keeper.expect("signalled")["pids"]
    record = keeper.expect("ended")["record"]
    keeper.expect("gone")
    assert record["cause"] == "cancelled"
    assert len(signalled) >= 1
    assert not any(is_running(pid) for pid in signalled)
    marker = f"{directory}".encode()
    assert marker  # every process below the keeper is gone, as its own children file says
    claim = os.readlink(directory / "claim").split()[0]
    assert Path(f"/proc/{claim}/task/{claim}/children").read_text() == ""


@pytest.mark.case("C020")
def test_a_trap_has_its_grace_and_its_exit_code_stands_beside_the_cancel(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "trap 'echo cleaned; exit 0' TERM; (echo up; exec sleep 30)"))
    keeper.expect("grew")
    before = time.monotonic()
    keeper.send({"op": "cancel", "grace": 5})
    record = keeper.expect("ended")["record"]
    assert time.monotonic() - before < 2
    assert (record["cause"], record["exitCode"]) == ("cancelled", 0)
    # Bash itself says `Terminated` of its sleep, before it runs the trap.
    assert (directory / "output").read_bytes() == b"up\nTerminated\ncleaned\n"


@pytest.mark.case("C021")
def test_a_stopped_job_is_continued_so_that_it_sees_the_term(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "echo up; kill -STOP $$"))
    keeper.expect("grew")
    before = time.monotonic()
    keeper.send({"op": "cancel", "grace": 30})
    assert keeper.expect("ended")["record"]["signal"] == 15
    assert time.monotonic() - before < 5


def test_a_deadline_ends_the_job_also_while_no_engine_is_there(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "trap 'exit 3' TERM; sleep 60 | cat", deadline=0.6))
    keeper.expect("started")
    again = mother.find(directory)
    keeper.close()
    again.send({"op": "attach", "dir": str(directory)})
    again.expect("state")
    record = again.expect("ended")["record"]
    assert (record["cause"], record["exitCode"]) == ("deadline", 3)
    assert 500 <= record["durationMs"] < 5000


def test_a_keeper_outlives_its_engine_and_is_found_again(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "echo one; read -t 0.8 < <(sleep 60); echo two; exit 5"))
    keeper.expect("grew")
    keeper.close()
    mother.requests.close()
    mother.process.wait(10)  # mother ends with its engine
    again = mother.find(directory)
    again.send({"op": "attach", "dir": str(directory)})
    state = again.expect("state")
    assert (state["sizes"], state["record"]) == ([4], None)
    assert again.expect("ended")["record"]["exitCode"] == 5
    again.send({"op": "cancel", "grace": 0})
    again.expect("gone")
    assert (directory / "output").read_bytes() == b"one\ntwo\n"
    with pytest.raises(EOFError):  # nobody needs it any more
        again.next()
    assert list(mother.sockets.iterdir()) == []


@pytest.mark.case("C111")
def test_an_end_that_nobody_watched_is_written_down(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "sleep 0.3; exit 7"))
    keeper.expect("started")
    watcher = os.pidfd_open(int(os.readlink(directory / "claim").split()[0]))
    keeper.close()
    assert select.select([watcher], [], [], 10)[0]  # the keeper has ended
    os.close(watcher)
    assert read_exit(directory)["exitCode"] == 7


def test_a_claimed_directory_is_never_started_again(mother: Nursery) -> None:
    directory = mother.directory()
    first, second = mother.keeper(), mother.keeper()
    first.send(bash(directory, "echo once"))
    first.expect("ended")
    second.send(bash(directory, "echo twice"))
    second.expect("taken")
    assert (directory / "output").read_bytes() == b"once\n"
    second.send(bash(mother.directory("bbbbbb"), "exit 3"))  # and the keeper is free
    assert second.expect("ended")["record"]["exitCode"] == 3


@pytest.mark.parametrize(
    ("argv", "changes", "exit_code", "errno", "named"),
    [
        (["nosuchcmd_xyz"], {}, 127, 2, "nosuchcmd_xyz"),
        (["/etc/passwd"], {}, 126, 13, "/etc/passwd"),
        (["/tmp"], {}, 126, 13, "/tmp"),
        (["true"], {"cwd": "/no/such/dir"}, 127, 2, "/no/such/dir"),
        (["true"], {"cwd": "/etc/passwd"}, 127, 20, "/etc/passwd"),
        (["true", "x" * 131072], {}, 126, 7, "true"),
    ],
)
def test_what_cannot_be_started_is_a_record_like_any_other(
    mother: Nursery,
    argv: list[str],
    changes: dict[str, str],
    exit_code: int,
    errno: int,
    named: str,
) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(order(directory, *argv, **changes))
    record = keeper.expect("ended")["record"]
    keeper.expect("gone")
    assert (record["cause"], record["exitCode"]) == ("spawn_error", exit_code)
    assert record["error"]["errno"] == errno
    assert named in record["error"]["message"]
    assert read_exit(directory) == record


def test_a_directory_that_is_gone_gives_way_to_its_parent_where_asked(
    mother: Nursery, tmp_path: Path
) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    gone = tmp_path / "gone" / "deeper"
    keeper.send(bash(directory, "pwd", cwd=str(gone), cwd_or_parent=True))
    assert keeper.expect("started")["cwd"] == str(tmp_path)
    keeper.expect("ended")
    assert (directory / "output").read_text() == f"{tmp_path}\n"


def test_standard_input_is_the_text_or_nothing(mother: Nursery) -> None:
    keeper, directory = mother.keeper(), mother.directory()
    keeper.send(bash(directory, "cat; read x; echo r=$?"))
    keeper.expect("gone")
    assert (directory / "output").read_bytes() == b"r=1\n"
    directory = mother.directory("bbbbbb")
    fd = os.memfd_create("text")
    os.write(fd, b"hello")
    os.lseek(fd, 0, os.SEEK_SET)
    keeper.send(bash(directory, "cat", stdin="fd", fds=1), [fd])
    os.close(fd)
    keeper.expect("gone")
    assert (directory / "output").read_bytes() == b"hello"


def test_a_keeper_ignores_the_signals_that_a_job_sends_its_parent(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "kill $PPID; kill -INT $PPID; kill -HUP $PPID; echo alive"))
    assert keeper.expect("ended")["record"]["exitCode"] == 0
    assert (directory / "output").read_bytes() == b"alive\n"


@pytest.mark.case("C024")
def test_kill_of_the_parent_reaches_the_keeper_of_that_job_alone(mother: Nursery) -> None:
    other, keeper = mother.keeper(), mother.keeper()
    other_directory, directory = mother.directory("bbbbbb"), mother.directory()
    other.send(bash(other_directory, "read -t 0.5 < <(sleep 9); echo fine"))
    other.expect("started")
    keeper.send(bash(directory, "exec bash -c 'kill -9 $PPID'"))
    with pytest.raises(EOFError):
        keeper.expect("ended")
    assert other.expect("ended")["record"]["exitCode"] == 0
    other.send({"op": "cancel", "grace": 0})
    other.expect("gone")


def test_a_job_is_what_the_kernel_kills_first_when_memory_is_short(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "read -t 0.2 < <(sleep 9); cat /proc/self/oom_score_adj"))
    keeper.expect("ended")
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int((directory / "output").read_text()) == own + 300 - own
    keeper.send({"op": "cancel", "grace": 0})
    keeper.expect("gone")


@pytest.mark.case("C106")
def test_orphans_are_reaped(mother: Nursery) -> None:
    keeper = mother.keeper()
    for i in range(50):
        keeper.send(bash(mother.directory(f"a{i:05}"), "(sleep 0.01 &); true"))
        assert keeper.expect("ended")["record"]["exitCode"] == 0
        keeper.expect("gone")
        claim = os.readlink(mother.home / "tasks" / f"a{i:05}" / "claim").split()[0]
        assert Path(f"/proc/{claim}/task/{claim}/children").read_text() == ""


def test_a_killed_mother_leaves_the_keepers_running(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "read -t 0.4 < <(sleep 9); echo fine"))
    keeper.expect("started")
    os.kill(mother.process.pid, signal.SIGKILL)
    assert keeper.expect("ended")["record"]["exitCode"] == 0
    keeper.send({"op": "cancel", "grace": 0})
    keeper.expect("gone")


def test_a_link_that_talks_nonsense_is_closed_and_the_job_goes_on(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "read -t 0.5 < <(sleep 9); exit 4"))
    keeper.expect("started")
    for nonsense in (b"not json\n", b"[1]\n", b'{"op": "dance"}\n', b"\xff\x00\n"):
        stranger = mother.find(directory)
        stranger.sock.sendall(nonsense)
        with pytest.raises((EOFError, ConnectionResetError)):
            stranger.next()
    assert keeper.expect("ended")["record"]["exitCode"] == 4
    keeper.send({"op": "cancel", "grace": 0})
    keeper.expect("gone")
