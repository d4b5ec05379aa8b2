"""Mirrors `engine/keeper/output.py`: real pipes and files; the oracle is what was written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.keeper import output as output_module
from engine.keeper.output import Output

ROOT = Path(__file__).parents[2]
BLOCK = 4096
MIB = 1 << 20


@contextlib.contextmanager
def opened(folder: Path, cap: int = 1 << 30) -> Iterator[tuple[Output, int]]:
    """An output in `folder`, and the descriptor that its job would write to."""
    dir_fd = os.open(folder, os.O_DIRECTORY)
    try:
        output = Output(dir_fd, "output", cap)
    finally:
        os.close(dir_fd)
    try:
        yield output, output.take_write_end()
    finally:
        output.close()


def feed(output: Output, fd: int, data: bytes) -> None:
    """Write `data` as a job would, copying whenever the pipe is full."""
    os.set_blocking(fd, False)
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            assert output.copy()
    output.drain()


def numbered(blocks: int, first: int = 0) -> bytes:
    """Blocks that each hold their own number, so that a misplaced one shows."""
    return b"".join(b"%015d\n" % number * (BLOCK // 16) for number in range(first, first + blocks))


def kept_and_gone(size: int, dropped: list[list[int]]) -> list[tuple[int, int, bool]]:
    """[start, end, is kept] pieces that cover the output."""
    pieces, at = [], 0
    for start, end in dropped:
        pieces += [(at, start, True), (start, end, False)]
        at = end
    return [piece for piece in [*pieces, (at, size, True)] if piece[0] < piece[1]]


@pytest.mark.parametrize("can_splice", [True, False])
def test_every_byte_is_stored_once_however_it_was_cut(tmp_path: Path, can_splice: bool) -> None:
    rng = random.Random(4)
    data = rng.randbytes(3 * MIB)
    with opened(tmp_path) as (output, fd):
        output._can_splice = can_splice
        at = 0
        while at < len(data):
            size = rng.choice([1, 7, 4095, 4096, 65536, 300_000])
            feed(output, fd, data[at : at + size])
            at += size
        assert (output.size, output.dropped) == (len(data), [])
    stored = (tmp_path / "output").read_bytes()
    assert hashlib.sha256(stored).digest() == hashlib.sha256(data).digest()


def test_the_file_is_private_and_never_taken_over(tmp_path: Path) -> None:
    with opened(tmp_path) as (output, fd):
        assert (tmp_path / "output").stat().st_mode & 0o777 == 0o600
        os.write(fd, b"x")
        output.drain()
        with pytest.raises(FileExistsError), opened(tmp_path):
            pass


@pytest.mark.case("C100")
def test_the_end_that_a_job_gets_blocks_and_ours_does_not(tmp_path: Path) -> None:
    with opened(tmp_path) as (output, fd):
        assert os.get_blocking(fd)
        assert not os.get_blocking(output.pipe)
        assert output.copy()  # nothing there: comes back at once
        assert not os.get_inheritable(output.pipe)


def test_copying_says_when_nobody_can_write_any_more(tmp_path: Path) -> None:
    with opened(tmp_path) as (output, fd):
        os.write(fd, b"last")
        output.close_write_end()
        assert not output.copy()
        assert output.size == 4


def test_a_turn_is_bounded(tmp_path: Path) -> None:
    with opened(tmp_path) as (output, fd):
        os.write(fd, b"x" * 60_000)
        assert output.copy(10_000)
        assert output.size == 10_000


def test_a_drain_takes_what_is_there_and_does_not_wait_for_more(tmp_path: Path) -> None:
    with opened(tmp_path) as (output, fd):
        os.write(fd, b"x" * 60_000)
        output.drain()
        assert output.size == 60_000
        output.drain()  # the writer is still there, and says nothing
        assert output.size == 60_000


def test_a_drain_survives_a_job_that_reads_its_own_output(tmp_path: Path) -> None:
    with opened(tmp_path) as (output, fd):
        os.write(fd, b"x" * 1000)
        thief = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        assert os.read(thief, 400) == b"x" * 400
        os.close(thief)
        output.drain()
        assert output.size == 600


def test_a_flood_gets_a_wide_pipe(tmp_path: Path) -> None:
    with opened(tmp_path) as (output, fd):
        before = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
        feed(output, fd, b"x" * 500_000)
        assert fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) >= max(before, 1 << 20)


@pytest.mark.case("C070")
def test_twenty_million_bytes_without_a_line_end_are_stored_whole(tmp_path: Path) -> None:
    with opened(tmp_path) as (output, fd):
        feed(output, fd, b"a" * 20_000_000)
        assert (output.size, output.dropped) == (20_000_000, [])
    data = (tmp_path / "output").read_bytes()
    assert (len(data), data.count(b"a"), data.count(b"\n")) == (20_000_000, 20_000_000, 0)


@pytest.mark.parametrize("cap", [2 * BLOCK, 10 * BLOCK, 100_000, MIB, 3 * MIB + 1])
def test_over_the_cap_the_beginning_and_the_newest_stay_at_their_own_offsets(
    tmp_path: Path, cap: int
) -> None:
    data = numbered(1500)
    with opened(tmp_path, cap) as (output, fd):
        for at in range(0, len(data), 130_001):
            feed(output, fd, data[at : at + 130_001])
        dropped, size = output.dropped, output.size
    assert size == len(data)
    stored = (tmp_path / "output").read_bytes()
    assert len(stored) == len(data)
    for start, end, is_kept in kept_and_gone(size, dropped):
        assert stored[start:end] == (data[start:end] if is_kept else b"\0" * (end - start))
    [(start, end)] = dropped
    assert start == min(64 << 20, cap // 2) // BLOCK * BLOCK  # the head
    kept = len(data) - (end - start)
    # The cap holds, and what is kept is not much less than it allows.
    assert cap - max(cap // 8, 140_000) - BLOCK <= kept <= cap
    # Blocks were really given back (a file system may need a few for its own tables).
    assert (tmp_path / "output").stat().st_blocks * 512 <= cap + 16 * BLOCK


def test_where_holes_are_refused_the_newest_bytes_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no holes here")

    monkeypatch.setattr(output_module, "punch_hole", refuse)
    data = numbered(100)
    with opened(tmp_path, 20 * BLOCK) as (output, fd):
        for at in range(0, len(data), 3 * BLOCK):
            feed(output, fd, data[at : at + 3 * BLOCK])
        [(start, end)] = output.dropped
        assert (output.size, end) == (100 * BLOCK, 100 * BLOCK)
        assert 20 * BLOCK <= start <= 23 * BLOCK
    stored = (tmp_path / "output").read_bytes()
    assert stored == data[:start] + b"\0" * (end - start)


def test_dropped_ranges_are_few_however_often_the_disk_is_full(tmp_path: Path) -> None:
    with opened(tmp_path) as (output, _fd):
        for number in range(100):
            output._drop(number * 1000, number * 1000 + 10)
        assert len(output.dropped) == 16
        # Nothing dropped is forgotten, whatever was kept between.
        for number in range(100):
            assert any(low <= number * 1000 < high for low, high in output.dropped)
        assert output.dropped == sorted(output.dropped)


def test_a_file_system_without_splice_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: int, **_more: int) -> int:
        raise OSError(errno.EINVAL, "no splice here")

    monkeypatch.setattr(os, "splice", refuse)
    with opened(tmp_path) as (output, fd):
        feed(output, fd, b"x" * 200_000)
        assert (output.size, output.dropped) == (200_000, [])
    assert (tmp_path / "output").read_bytes() == b"x" * 200_000


@pytest.mark.parametrize("can_splice", [True, False])
def test_a_file_limit_drops_what_is_over_it_and_the_job_goes_on(
    tmp_path: Path, can_splice: bool
) -> None:
    script = (
        "import os, resource, signal, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from engine.keeper.output import Output\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))\n"
        "output = Output(os.open(sys.argv[1], os.O_DIRECTORY), 'output', 1 << 30)\n"
        f"output._can_splice = {can_splice}\n"
        "for _ in range(5):\n"
        "    os.write(output.take_write_end(), b'x' * 6000)\n"
        "    output.drain()\n"
        "print(output.size, output.dropped, flush=True)\n"
        "output.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.stdout, done.stderr) == ("30000 [[10000, 30000]]\n", "")
    assert (tmp_path / "output").read_bytes() == b"x" * 10000


FULL_DISK = """
import hashlib, json, os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from engine.keeper.output import Output
home = sys.argv[2]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", home], check=True)
output = Output(os.open(home, os.O_DIRECTORY), "output", 1 << 30)
output._can_splice = sys.argv[3] == "splice"
fd, sent = output.take_write_end(), b""
def feed(size):
    global sent
    for at in range(len(sent) // 16, (len(sent) + size) // 16, 2048):
        piece = b"".join(b"%015d\\n" % n for n in range(at, at + 2048))
        sent += piece
        os.write(fd, piece)
        output.drain()
feed(512 << 10)
full = [output.size, output.dropped]
# Somebody makes room.
subprocess.run(["fallocate", "-p", "-o", "0", "-l", "131072", home + "/output"], check=True)
feed(64 << 10)
stored = open(home + "/output", "rb").read()
wrong, at = 0, 131072
for start, end in output.dropped + [[output.size, output.size]]:
    wrong += stored[at:start] != sent[at:start]
    wrong += any(stored[start:end])
    at = end
output.close()
print(json.dumps([full, [output.size, output.dropped], wrong, len(stored)]))
"""


@pytest.mark.parametrize("how", ["splice", "write"])
def test_a_full_disk_drops_and_counts_and_takes_up_again(tmp_path: Path, how: str) -> None:
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-I", "-c", FULL_DISK, str(ROOT), str(tmp_path), how],
        capture_output=True,
        text=True,
        timeout=20,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"NO SMALL DISK TO BE HAD, FULL DISKS ARE NOT TESTED HERE: {done.stderr}")
    assert done.stderr == ""
    (size, dropped), (later_size, later_dropped), wrong, length = json.loads(done.stdout)
    assert size == 512 << 10
    [(start, end)] = dropped
    assert end == size
    assert 200 << 10 <= start <= 256 << 10
    # With room again the newest bytes are kept, each at its own offset.
    assert (later_size, later_dropped) == (576 << 10, [[start, end]])
    assert (wrong, length) == (0, 576 << 10)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[tuple[Output, int]]:
    """An output that reads a terminal, and the end of it that a job would write to."""
    master, slave = os.openpty()
    os.set_blocking(master, False)
    dir_fd = os.open(tmp_path, os.O_DIRECTORY)
    output = Output(dir_fd, "output", 1 << 30, master, is_terminal=True)
    os.close(dir_fd)
    yield output, slave
    output.close()


def test_all_that_waits_in_a_terminal_is_drained_and_its_end_is_no_error(
    terminal: tuple[Output, int], tmp_path: Path
) -> None:
    output, slave = terminal
    os.set_blocking(slave, False)
    written = 0
    with contextlib.suppress(BlockingIOError):
        while True:  # as much as the terminal holds
            written += os.write(slave, b"x" * 1000)

    output.drain()
    assert output.size == written > 4096, "more than one read brings in"
    assert output.copy(), "somebody can still write"

    os.write(slave, b"last")
    os.close(slave)
    output.drain()
    assert (tmp_path / "output").read_bytes() == b"x" * written + b"last"
    assert not output.copy()
