"""Mirrors `engine/keeper/terminal.py`: real keepers, jobs with an open input or a terminal."""

from __future__ import annotations

import os
import select
import signal
import time
from binascii import b2a_base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keeper.harness import KeeperClient, Nursery, bash, is_running, nursery, order

MIB = 1_048_576


@pytest.fixture
def mother(tmp_path: Path) -> Iterator[Nursery]:
    with nursery(tmp_path) as mother:
        yield mother
        assert mother.log() == ""


def write(
    keeper: KeeperClient, directory: Path, data: bytes, *, eof: bool = False
) -> tuple[int, bool] | None:
    """What the keeper took, and whether the input is open; None: the job is gone."""
    text = b2a_base64(data, newline=False).decode()
    keeper.send({"op": "write", "dir": str(directory), "data": text, "eof": eof})
    answer = keeper.expect("written", "gone")
    return (answer["taken"], answer["isOpen"]) if answer["ev"] == "written" else None


def wait_output(keeper: KeeperClient, directory: Path, text: bytes) -> bytes:
    """The output, once `text` is in it; the keeper tells of growth."""
    deadline = time.monotonic() + 10
    path, found = directory / "output", b""
    while text not in (found := path.read_bytes() if path.exists() else b""):
        assert time.monotonic() < deadline, found
        keeper.expect("started", "grew")
    return found


def wait_gone(pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([fd], [], [], 10)[0], f"{pid} is still there"
    finally:
        os.close(fd)


def test_an_open_input_gives_back_every_byte(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    data = bytes(range(256)) * 2000
    keeper.send(order(directory, "cat", stdin="open"))
    keeper.expect("started")

    assert write(keeper, directory, b"first\n") == (6, True)
    assert write(keeper, directory, data, eof=True) == (512_000, True)

    assert keeper.expect("ended")["record"]["exitCode"] == 0
    keeper.expect("gone")
    assert (directory / "output").read_bytes() == b"first\n" + data
    assert write(keeper, directory, b"late") is None


@pytest.mark.case("C098", "C100")
def test_a_job_that_reads_nothing_holds_nobody_up(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = "import os, time; print(os.get_blocking(0), flush=True); time.sleep(60)"
    keeper.send(order(directory, "python3", "-c", text, stdin="open"))
    wait_output(keeper, directory, b"True\n")

    assert write(keeper, directory, b"x" * (MIB + 1)) == (MIB, True)
    assert write(keeper, directory, b"x") == (0, True)

    begun = time.monotonic()
    keeper.send({"op": "cancel", "dir": str(directory), "grace": 5})
    assert keeper.expect("ended")["record"]["cause"] == "cancelled"
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("size", [0, MIB])
def test_an_input_that_is_not_read_costs_no_processor_time(mother: Nursery, size: int) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "exec sleep 60", stdin="open"))
    keeper.expect("started")
    write(keeper, directory, b"x" * size)
    pid = int(os.readlink(directory / "claim").split()[0])

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    assert select.select([keeper.sock], [], [], 0.5)[0] == []
    assert ticks() - before <= 2
    keeper.send({"op": "cancel", "dir": str(directory), "grace": 0})
    keeper.expect("gone")


def test_an_input_that_the_job_has_closed_is_not_open(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "exec <&-; echo closed; sleep 60", stdin="open"))
    wait_output(keeper, directory, b"closed\n")

    assert write(keeper, directory, b"x") == (0, False)
    keeper.send({"op": "cancel", "dir": str(directory), "grace": 0})
    keeper.expect("gone")


def test_the_jobs_end_takes_its_input_along(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "{ cat; echo ended; } & exit 3", stdin="open"))
    keeper.expect("ended")
    keeper.expect("gone")
    # Without job control bash gives what runs in the background no input: this one has it.
    second = mother.directory("bbbbbb")
    keeper.send(bash(second, "{ cat; echo ended; } <&0 & exit 3", stdin="open"))
    keeper.expect("gone")
    assert (second / "output").read_bytes() == b"ended\n"


def test_a_job_without_an_open_input_takes_nothing(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(order(directory, "sleep", "60"))
    keeper.expect("started")
    assert write(keeper, directory, b"x") == (0, False)
    keeper.send({"op": "cancel", "dir": str(directory), "grace": 0})
    keeper.expect("gone")


def test_no_descriptor_is_left_of_inputs_and_terminals(mother: Nursery) -> None:
    keeper, counts = mother.keeper(), []
    for number in range(4):
        directory = mother.directory(f"job{number}")
        keeper.send(order(directory, "cat", stdin="open", pty=number % 2 == 1))
        keeper.expect("started")
        write(keeper, directory, b"x\n", eof=True)
        keeper.expect("gone")
        pid = int(os.readlink(directory / "claim").split()[0])
        counts.append(len(os.listdir(f"/proc/{pid}/fd")))
    assert len(set(counts)) == 1


def test_what_cannot_be_started_leaves_a_keeper_free(mother: Nursery) -> None:
    keeper = mother.keeper()
    for number, pty in enumerate((False, True)):
        directory = mother.directory(f"job{number}")
        keeper.send(order(directory, "nosuchcmd_xyz", stdin="open", pty=pty))
        assert keeper.expect("ended")["record"]["exitCode"] == 127
        keeper.expect("gone")
    last = mother.directory("last")
    keeper.send(order(last, "echo", "fine"))
    keeper.expect("gone")
    assert (last / "output").read_bytes() == b"fine\n"


# -- terminals ---------------------------------------------------------------------------------


def test_the_terminal_is_the_controlling_one_and_has_its_size(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = (
        "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo yes; stty size; ps -o tty= -p $$; tty </dev/tty"
    )
    keeper.send(bash(directory, text, pty=True))
    keeper.expect("gone")
    yes, size, short, path = (directory / "output").read_text().splitlines()
    assert (yes, size, path) == ("yes", "24 80", "/dev/tty")
    assert short.startswith("pts/")


def test_the_terminal_controls_a_program_that_does_not_see_to_it_itself(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    # A shell would open its terminal once more, and so make it the controlling one.
    text = "import os; os.open('/dev/tty', os.O_RDWR); print(os.tcgetpgrp(0) == os.getpgrp())"
    keeper.send(order(directory, "python3", "-c", text, pty=True))
    keeper.expect("gone")
    assert (directory / "output").read_bytes() == b"True\r\n"


def test_not_a_byte_is_lost_at_the_end(mother: Nursery) -> None:
    keeper = mother.keeper()
    for number in range(20):
        directory = mother.directory(f"job{number}")
        size = 100_000 + 997 * number
        text = f"import os\nb = b'x' * {size}\nwhile b: b = b[os.write(1, b):]"
        keeper.send(order(directory, "python3", "-c", text, pty=True))
        assert keeper.expect("ended")["record"]["sizes"] == [size]
        keeper.expect("gone")
        assert (directory / "output").read_bytes() == b"x" * size


def test_a_terminal_that_the_job_closes_and_opens_again_is_still_heard(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = "echo one; exec <&- >&- 2>&-; sleep 0.2; echo two >/dev/tty"
    keeper.send(bash(directory, text, pty=True))
    assert keeper.expect("ended")["record"]["exitCode"] == 0
    keeper.expect("gone")
    assert (directory / "output").read_bytes() == b"one\r\ntwo\r\n"


def test_a_typed_interrupt_reaches_the_program_in_front(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "echo ready; sleep 60; echo not reached", pty=True))
    wait_output(keeper, directory, b"ready\r\n")
    assert write(keeper, directory, b"\x03") == (1, True)
    record = keeper.expect("ended")["record"]
    assert (record["exitCode"], record["signal"]) == (None, signal.SIGINT)
    keeper.expect("gone")
    assert (directory / "output").read_bytes() == b"ready\r\n^C"


def test_the_end_of_the_leader_hangs_up_on_its_group(mother: Nursery, tmp_path: Path) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    os.mkfifo(tmp_path / "gate")
    text = (
        "trap '' HUP; sleep 302 >/dev/null 2>&1 & echo $!; trap - HUP; sleep 301 & echo $! end; "
        f"read _ < {tmp_path}/gate"
    )
    keeper.send(bash(directory, text, pty=True))
    lines = wait_output(keeper, directory, b"end").decode().split()
    immune, hung_up = int(lines[0]), int(lines[1])
    (tmp_path / "gate").write_text("\n")

    keeper.expect("ended")
    wait_gone(hung_up)
    assert is_running(immune)

    keeper.send({"op": "cancel", "dir": str(directory), "grace": 1})
    assert keeper.expect("signalled")["pids"] == [immune]
    keeper.expect("gone")


def test_what_is_left_behind_at_a_terminal_is_still_heard(mother: Nursery, tmp_path: Path) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    os.mkfifo(tmp_path / "gate")
    text = f"(trap '' HUP; read _ < {tmp_path}/gate; echo late) & sleep 0.1; exit 4"
    keeper.send(bash(directory, text, pty=True))
    record: dict[str, Any] = keeper.expect("ended")["record"]
    assert (record["exitCode"], len(record["survivors"])) == (4, 1)
    assert write(keeper, directory, b"x") == (0, False)

    (tmp_path / "gate").write_text("\n")
    keeper.expect("gone")
    assert (directory / "output").read_bytes() == b"late\r\n"


def test_a_flood_that_survives_the_leader_does_not_keep_the_end_back(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(
        bash(directory, "(trap '' HUP; exec yes) & sleep 0.2; exit 0", pty=True, cap=1 << 20)
    )
    begun = time.monotonic()
    keeper.expect("ended")
    assert time.monotonic() - begun < 5
    keeper.send({"op": "cancel", "dir": str(directory), "grace": 0})
    keeper.expect("gone")
