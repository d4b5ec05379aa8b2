"""Jobs, links and disks that mean a keeper ill: what it does all the same."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from keeper.harness import KeeperClient, Nursery, bash, is_running, nursery, order, read_exit

ROOT = Path(__file__).parents[2]
PYTHON = "python3 -I -S -c"


@pytest.fixture
def mother(tmp_path: Path) -> Iterator[Nursery]:
    with nursery(tmp_path) as mother:
        yield mother


def keeper_of(directory: Path) -> int:
    return int(os.readlink(directory / "claim").split()[0])


def wait_zombie(parent: int) -> None:
    """Wait until a child of the stopped `parent` has ended: there is no event for that."""
    deadline = time.monotonic() + 10
    children = Path(f"/proc/{parent}/task/{parent}/children")
    while not any(
        ") Z" in Path(f"/proc/{child}/stat").read_text() for child in children.read_text().split()
    ):
        assert time.monotonic() < deadline


def end(keeper: KeeperClient) -> dict[str, object]:
    """Cancel without grace; the record."""
    keeper.send({"op": "cancel", "grace": 0})
    record: dict[str, object] = keeper.expect("ended")["record"]
    keeper.expect("gone")
    return record


def runs_on(mother: Nursery, keeper: KeeperClient, name: str = "zzzzzz") -> bool:
    """Whether this keeper takes another job and ends it well."""
    keeper.send(bash(mother.directory(name), "exit 3"))
    record = keeper.expect("ended")["record"]
    keeper.expect("gone")
    return bool(record["exitCode"] == 3)


# -- processes -----------------------------------------------------------------------------------


def test_a_job_that_makes_its_keeper_its_tracer_ends_as_any_other(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    script = (
        "import ctypes, os, signal\n"
        "signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'caught'))\n"
        "ctypes.CDLL(None).ptrace(0, 0, None, None)\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "os._exit(7)\n"
    )
    keeper.send(order(directory, "python3", "-I", "-S", "-c", script))
    record = keeper.expect("ended")["record"]
    assert (record["cause"], record["exitCode"], record["signal"]) == ("exit", 7, None)
    assert (directory / "output").read_bytes() == b"caught"
    keeper.expect("gone")


def test_a_process_whose_first_thread_has_left_is_ended_by_cancel(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    script = (
        "import ctypes, os, signal, threading, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "threading.Thread(target=lambda: (os.write(1, b'up'), time.sleep(600))).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"
    )
    keeper.send(order(directory, "python3", "-I", "-S", "-c", script))
    keeper.expect("grew")
    assert end(keeper)["signal"] == 9


def test_a_fork_bomb_is_ended_by_cancel(mother: Nursery) -> None:
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("FORK BOMBS ARE TESTED AS ROOT ONLY: THE LIMIT NEEDS A USER WITHOUT PROCESSES")
    directory, keeper = mother.directory(), mother.keeper()
    bomb = "trap '' TERM; ulimit -u 150; b() { b | b & b | b & }; echo up; while :; do b; done"
    user = ["setpriv", f"--reuid={60000 + os.getpid() % 5000}", "--clear-groups"]
    keeper.send(order(directory, *user, "bash", "-c", f"exec 2>/dev/null; {bomb}"))
    keeper.expect("grew")
    before = time.monotonic()
    keeper.send({"op": "cancel", "grace": 0.2})
    keeper.expect("signalled")
    keeper.expect("ended")
    keeper.expect("gone")
    assert time.monotonic() - before < 8
    claim = keeper_of(directory)
    assert Path(f"/proc/{claim}/task/{claim}/children").read_text() == ""


def test_a_job_may_send_its_keeper_what_it_likes_but_kill_and_stop(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = (
        "for s in $(seq 64); do case $s in 4|6|7|8|9|11|19|32|33) ;; *) kill -$s $PPID; esac; done"
    )
    keeper.send(bash(directory, f"{text}; echo alive"))
    assert keeper.expect("ended")["record"]["exitCode"] == 0
    assert (directory / "output").read_bytes() == b"alive\n"
    keeper.expect("gone")
    assert runs_on(mother, keeper)


def test_a_stopped_keeper_finds_the_end_as_it_was_when_it_goes_on(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "sleep 0.2; kill -STOP $PPID; echo out; exit 5", deadline=0.5))
    keeper.expect("started")
    pid = keeper_of(directory)
    wait_zombie(pid)
    time.sleep(0.5)  # past the job's deadline, which it has kept
    os.kill(pid, signal.SIGCONT)
    record = keeper.expect("ended")["record"]
    assert (record["cause"], record["exitCode"]) == ("exit", 5)
    assert (directory / "output").read_bytes() == b"out\n"


def test_an_end_that_has_been_is_not_made_a_cancellation(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "sleep 0.2; kill -STOP $PPID; exit 5"))
    keeper.expect("started")
    pid = keeper_of(directory)
    wait_zombie(pid)
    keeper.send({"op": "cancel", "grace": 5})
    os.kill(pid, signal.SIGCONT)
    record = keeper.expect("ended")["record"]
    assert (record["cause"], record["exitCode"]) == ("exit", 5)


def test_a_deadline_does_not_end_what_a_finished_job_left_behind(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "(sleep 0.6; echo late; exec sleep 600) & true", deadline=0.3))
    record = keeper.expect("ended")["record"]
    assert (record["cause"], record["exitCode"]) == ("exit", 0)
    while keeper.expect("grew")["sizes"] != [5]:
        pass
    keeper.send({"op": "cancel", "grace": 0})
    keeper.expect("gone")
    assert read_exit(directory)["cause"] == "exit"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("sleep 60 | cat", marks=pytest.mark.case("C015"), id="pipeline"),
        pytest.param("setsid sleep 300 & sleep 300", marks=pytest.mark.case("C016"), id="setsid"),
        pytest.param("sleep 300 & wait", marks=pytest.mark.case("C022"), id="background"),
    ],
)
def test_cancel_leaves_nobody_and_names_the_signal(mother: Nursery, text: str) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, f"echo; {text}"))
    keeper.expect("grew")
    keeper.send({"op": "cancel", "grace": 5})
    signalled = keeper.expect("signalled")["pids"]
    record = keeper.expect("ended")["record"]
    keeper.expect("gone")
    assert (record["cause"], record["exitCode"], record["signal"]) == ("cancelled", None, 15)
    assert not any(is_running(pid) for pid in signalled)


@pytest.mark.case("C005")
def test_a_deadline_ends_the_whole_pipeline(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    before = time.monotonic()
    keeper.send(bash(directory, "sleep 60 | cat", deadline=0.3))
    record = keeper.expect("ended")["record"]
    keeper.expect("gone")
    assert 0.3 <= time.monotonic() - before < 5
    assert (record["cause"], record["signal"]) == ("deadline", 15)


def test_a_zombie_that_nobody_asked_for_counts_as_gone(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    # The shell replaced by one that never waits leaves a zombie below itself.
    keeper.send(bash(directory, "true & exec sleep 600"))
    keeper.expect("started")
    pid = keeper_of(directory)
    keeper.send({"op": "survey"})
    time.sleep(0.1)  # `true` has ended; a zombie has no event
    keeper.send({"op": "survey"})
    keeper.expect("survivors")
    assert [s["command"] for s in keeper.expect("survivors")["survivors"]] == ["sleep 600"]
    end(keeper)
    assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""


@pytest.mark.case("C025")
def test_processes_left_behind_are_listed_with_the_end(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = "sh -c 'for i in 1 2 3; do sleep 60 & done; seq 200000' | head -3"
    keeper.send(bash(directory, text))
    record = keeper.expect("ended")["record"]
    assert record["exitCode"] == 0
    assert sum("sleep 60" in s["command"] for s in record["survivors"]) >= 3
    keeper.send({"op": "cancel", "grace": 0})
    keeper.expect("gone")


# -- output --------------------------------------------------------------------------------------


@pytest.mark.case("C003")
def test_a_holder_of_one_stream_does_not_hold_up_the_end(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    before = time.monotonic()
    keeper.send(bash(directory, "sleep 30 >/dev/null & echo ok", streams="split"))
    assert keeper.expect("ended")["record"]["exitCode"] == 0
    assert time.monotonic() - before < 5
    assert (directory / "stdout").read_bytes() == b"ok\n"
    keeper.send({"op": "cancel", "grace": 0})
    keeper.expect("gone")


@pytest.mark.case("C004")
def test_a_tee_that_holds_the_pipe_does_not_hold_up_the_end(
    mother: Nursery, tmp_path: Path
) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, f"exec > >(tee -a {tmp_path}/t.log) 2>&1; echo hi"))
    assert keeper.expect("ended")["record"]["exitCode"] == 0
    keeper.expect("gone")  # the tee sees its end and goes
    assert (tmp_path / "t.log").read_bytes() == b"hi\n"
    assert (directory / "output").read_bytes() == b"hi\n"


def test_a_job_that_closes_its_outputs_is_waited_for(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "echo one; exec >&- 2>&-; read -t 0.2 < <(sleep 9); exit 5"))
    assert keeper.expect("ended")["record"]["exitCode"] == 5
    assert (directory / "output").read_bytes() == b"one\n"
    keeper.send({"op": "cancel", "grace": 0})
    keeper.expect("gone")


def test_outputs_opened_again_by_name_lose_no_byte(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = (
        "echo 1; echo 2 > /dev/stdout; echo 3 | tee /dev/stderr > /dev/null; echo 4 >&2;"
        "echo 5 > /proc/self/fd/1; echo 6 >> /dev/stderr; echo 7"
    )
    keeper.send(bash(directory, text))
    keeper.expect("gone")
    assert (directory / "output").read_bytes() == b"1\n2\n3\n4\n5\n6\n7\n"


@pytest.mark.case("C069")
def test_a_line_longer_than_any_buffer_is_stored_whole(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, r"head -c 70000 /dev/zero | tr '\0' a; echo; echo next"))
    record = keeper.expect("ended")["record"]
    assert (record["exitCode"], record["sizes"]) == (0, [70006])
    lines = (directory / "output").read_bytes().split(b"\n")
    assert (len(lines[0]), lines[1], len(lines)) == (70000, b"next", 3)


@pytest.mark.case("C078")
def test_a_flood_is_capped_counted_and_harms_no_other_job(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "yes", cap=1 << 20))
    other, other_directory = mother.keeper(), mother.directory("bbbbbb")
    while keeper.expect("grew")["sizes"][0] < 64 << 20:
        pass
    other.send(bash(other_directory, "echo fine"))
    assert other.expect("ended")["record"]["exitCode"] == 0
    end(keeper)
    record = read_exit(directory)
    [(start, stop)] = record["dropped"][0]
    [size] = record["sizes"]
    assert size >= 64 << 20
    assert start == 1 << 19
    assert size - (stop - start) <= 1 << 20  # kept
    assert (directory / "output").stat().st_size == size
    assert (directory / "output").stat().st_blocks * 512 <= (1 << 20) + (64 << 10)


@pytest.mark.case("C056")
def test_a_file_limit_of_the_job_does_not_touch_its_output(mother: Nursery, tmp_path: Path) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = f"echo before; ulimit -f 0; (echo x > {tmp_path}/zz); echo $?"
    keeper.send(bash(directory, text))
    record = keeper.expect("ended")["record"]
    assert record["exitCode"] == 0
    assert (directory / "output").read_bytes().startswith(b"before\n")
    assert b"153" in (directory / "output").read_bytes().split()


@pytest.mark.case("C084")
def test_a_full_disk_keeps_neither_the_end_nor_the_other_jobs(tmp_path: Path) -> None:
    script = (
        "import json, os, subprocess, sys\n"
        "from pathlib import Path\n"
        "sys.path[:0] = [sys.argv[1], sys.argv[1] + '/tests']\n"
        "from keeper.harness import bash, nursery, read_exit\n"
        "home = Path(sys.argv[2])\n"
        "mount = ['mount', '-t', 'tmpfs', '-o', 'size=256k', 'none', str(home)]\n"
        "subprocess.run(mount, check=True)\n"
        "os.mkfifo(home / 'go')\n"
        "with nursery(home) as mother:\n"
        "    keeper, directory = mother.keeper(), mother.directory()\n"
        "    keeper.send(bash(directory, f'read < {home}/go; seq 100000; exit 3'))\n"
        "    keeper.expect('started')\n"
        "    try:\n"
        "        with open(home / 'fill', 'wb', buffering=0) as file:\n"
        "            while True:\n"
        "                file.write(bytes(4096))\n"
        "    except OSError as exc:\n"
        "        full = exc.errno\n"
        "    (home / 'go').write_text('x\\n')\n"
        "    told = keeper.expect('ended')['record']\n"
        "    keeper.expect('gone')\n"
        "    written = read_exit(directory)\n"
        "    second = mother.directory('bbbbbb')\n"
        "    keeper.send(bash(second, 'true'))\n"
        "    refused = keeper.expect('refused')['message']\n"
        "    left = os.listdir(second)\n"
        "    (home / 'fill').unlink()\n"
        "    keeper.send(bash(second, 'exit 4'))\n"
        "    later = keeper.expect('ended')['record']['exitCode']\n"
        "    keeper.expect('gone')\n"
        "    log = mother.log()\n"
        "print(json.dumps([full, told, written, refused, left, later, log]))\n"
    )
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-I", "-c", script, str(ROOT), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"NO SMALL DISK TO BE HAD, FULL DISKS ARE NOT TESTED HERE: {done.stderr}")
    assert done.stderr == ""
    full, told, written, refused, left, later, log = json.loads(done.stdout)
    assert full == 28
    assert told == written
    assert (told["exitCode"], told["sizes"]) == (3, [588895])
    [(start, stop)] = told["dropped"][0]
    assert (start < 4096, stop) == (True, 588895)
    assert refused == "task directory: No space left on device"
    assert left == []  # so that it can be tried again
    assert (later, log) == (4, "")


# -- the task directory --------------------------------------------------------------------------


def test_a_job_that_removes_its_own_directory_is_told_of_all_the_same(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, f"echo x; rm -rf {directory}; exit 6"))
    record = keeper.expect("ended")["record"]
    assert (record["exitCode"], record["sizes"]) == (6, [2])
    keeper.expect("gone")
    assert runs_on(mother, keeper)
    assert mother.log() == ""


def test_links_put_in_place_of_its_files_lead_the_keeper_nowhere(
    mother: Nursery, tmp_path: Path
) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    precious = tmp_path / "precious"
    precious.write_bytes(b"p" * 4096)
    text = (
        f"cd {directory}; rm -f exit output; ln -s {precious} exit; ln {precious} output;"
        "seq 100000; exit 6"
    )
    keeper.send(bash(directory, text, cap=100_000))
    assert keeper.expect("ended")["record"]["exitCode"] == 6
    keeper.expect("gone")
    assert precious.read_bytes() == b"p" * 4096


# -- what one job could leave for the next -------------------------------------------------------


def test_a_state_without_bounds_is_not_carried_and_not_kept_in_memory(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "head -c 40M /dev/zero > /proc/$PPID/fd/102; exit 3", session=True))
    message = keeper.expect("ended")
    assert message["record"]["exitCode"] == 3
    assert "state" not in message
    keeper.expect("gone")
    sink = Path(f"/proc/{keeper_of(directory)}/fd/102")
    assert sink.stat().st_size == 0


def test_a_state_of_several_megabytes_arrives_whole(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = f"{PYTHON} 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 32768)'"
    keeper.send(bash(directory, f"{text} > /proc/$PPID/fd/102", session=True))
    assert keeper.expect("ended")["state"] == bytes(range(256)) * 32768  # 8 MiB
    keeper.expect("gone")


def test_the_text_of_one_call_is_not_there_for_the_next(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    prologue = os.memfd_create("prologue")
    os.write(prologue, b"secret " * 150_000)
    read = "cat /proc/$PPID/fd/10[03] | wc -c; echo state > /proc/$PPID/fd/102"
    message = bash(directory, read, prologue=True, call="secret " * 150_000, fds=1)
    keeper.send(message, [prologue])
    os.close(prologue)
    keeper.expect("gone")
    assert (directory / "output").read_bytes() == b"2100000\n"
    second = mother.directory("bbbbbb")
    keeper.send(bash(second, "cat /proc/$PPID/fd/10[023]"))
    keeper.expect("gone")
    assert (second / "output").read_bytes() == b""


def test_three_hundred_jobs_leave_a_keeper_as_it_was(mother: Nursery) -> None:
    keeper = mother.keeper()
    first = mother.directory("a00000")
    keeper.send(bash(first, "true"))
    keeper.expect("gone")
    pid = keeper_of(first)
    before = sorted(os.listdir(f"/proc/{pid}/fd"))
    for i in range(1, 300):
        what = {"streams": "split"} if i % 3 else {"argv": ["no-such-program"]}
        keeper.send(order(mother.directory(f"a{i:05}"), "true", **what))
        keeper.expect("gone")
    assert sorted(os.listdir(f"/proc/{pid}/fd")) == before


# -- links ---------------------------------------------------------------------------------------


def test_a_link_that_asks_and_leaves_does_not_take_the_keeper_with_it(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "sleep 600"))
    keeper.expect("started")
    for _ in range(20):
        stranger = mother.find(directory)
        stranger.sock.sendall(b'{"op": "survey"}\n' * 50)
        stranger.sock.close()
    assert end(keeper)["cause"] == "cancelled"
    assert runs_on(mother, keeper)
    assert mother.log() == ""


@pytest.mark.parametrize(
    "text",
    [
        '{"op": "cancel"}',
        '{"op": "cancel", "grace": NaN}',
        '{"op": "cancel", "grace": -1}',
        '{"op": "cancel", "grace": "soon"}',
        '{"op": "cancel", "grace": [0]}',
        '{"op": "attach"}',
        '{"op": "attach", "dir": 5}',
        '{"op": "launch"}',
        '{"op": "launch", "dir": "/"}',
        "[" * 100_000,
    ],
)
def test_a_message_that_is_not_whole_closes_its_link_alone(mother: Nursery, text: str) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "sleep 600"))
    keeper.expect("started")
    stranger = mother.find(directory)
    stranger.sock.sendall(text.encode() + b"\n")
    with pytest.raises((EOFError, ConnectionResetError)):
        stranger.next()
    assert end(keeper)["cause"] == "cancelled"
    assert runs_on(mother, keeper)


def test_a_cancel_that_means_another_job_is_not_carried_out(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "read -t 0.3 < <(sleep 9); exit 4"))
    keeper.expect("started")
    keeper.send({"op": "cancel", "grace": 0, "dir": str(directory.with_name("bbbbbb"))})
    assert keeper.expect("gone", "signalled") == {"ev": "gone"}
    record = keeper.expect("ended")["record"]
    assert (record["cause"], record["exitCode"]) == ("exit", 4)
    keeper.send({"op": "cancel", "grace": 0, "dir": str(directory)})
    keeper.expect("gone")


def test_a_slow_reader_still_hears_the_last_of_the_growth(mother: Nursery, tmp_path: Path) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    os.mkfifo(tmp_path / "go")
    keeper.send(bash(directory, f"read < {tmp_path}/go; echo hello; exec sleep 600"))
    keeper.expect("started")
    slow = mother.find(directory)
    slow.send({"op": "attach", "dir": str(directory)})
    slow.sock.sendall(b'{"op": "survey"}\n' * 5000)  # their answers are more than a socket holds
    keeper.send({"op": "survey"})
    keeper.expect("survivors")
    (tmp_path / "go").write_text("x\n")
    assert keeper.expect("grew")["sizes"] == [6]
    assert slow.expect("grew")["sizes"] == [6]
    end(keeper)


def test_more_links_than_a_keeper_takes_are_turned_away_and_room_comes_back(
    mother: Nursery,
) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "sleep 600"))
    keeper.expect("started")
    links = [mother.find(directory) for _ in range(20)]
    answered = 0
    for link in links:
        try:
            link.send({"op": "survey"})
            link.expect("survivors")
            answered += 1
        except (EOFError, ConnectionResetError, BrokenPipeError):
            pass
    assert answered == 15  # and the one that launched
    for link in links:
        link.close()
    keeper.send({"op": "survey"})
    keeper.expect("survivors")
    later = mother.find(directory)
    later.send({"op": "attach", "dir": str(directory)})
    later.expect("state")
    end(keeper)


def test_a_home_known_by_another_path_finds_its_job(mother: Nursery, tmp_path: Path) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "sleep 600"))
    keeper.expect("started")
    (tmp_path / "other").symlink_to(tmp_path / "tasks")
    link = mother.find(directory)
    link.send({"op": "attach", "dir": str(tmp_path / "other" / directory.name)})
    assert link.expect("state", "absent")["ev"] == "state"
    end(keeper)


def test_a_keeper_whose_folder_of_sockets_is_gone_ends_quietly(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "true"))
    keeper.expect("gone")
    watcher = os.pidfd_open(keeper_of(directory))
    for entry in mother.sockets.iterdir():
        entry.unlink()
    keeper.close()
    assert select.select([watcher], [], [], 10)[0]
    os.close(watcher)
    assert mother.log() == ""
