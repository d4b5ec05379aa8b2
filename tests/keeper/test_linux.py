"""Mirrors `engine/keeper/linux.py`."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.keeper import linux

ROOT = str(Path(__file__).parents[2])


def run(script: str) -> str:
    """What `script` prints, in an interpreter of its own: these calls change their process."""
    head = f"import os, sys; sys.path.insert(0, {ROOT!r}); from engine.keeper import linux\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", head + script], capture_output=True, text=True, timeout=20
    )
    assert done.stderr == ""
    return done.stdout


def test_an_orphan_becomes_the_child_of_the_subreaper() -> None:
    script = (
        "linux.become_subreaper()\n"
        "r, w = os.pipe()\n"
        "first = os.fork()\n"
        "if first == 0:\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        os.read(r, 1)\n"
        "        os._exit(os.getppid() != int(sys.argv[1]) if len(sys.argv) > 1 else 5)\n"
        "    os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))\n"
        "os.write(w, b'x')\n"
        "orphan, status = os.waitpid(-1, 0)\n"
        "print(orphan != first, os.waitstatus_to_exitcode(status))\n"
    )
    assert run(script) == "3\nTrue 5\n"


def test_without_a_subreaper_the_orphan_is_somebody_elses() -> None:
    script = (
        "first = os.fork()\n"
        "if first == 0:\n"
        "    os.fork()\n"
        "    os._exit(3)\n"
        "os.waitpid(first, 0)\n"
        "try:\n"
        "    os.waitpid(-1, 0)\n"
        "except ChildProcessError:\n"
        "    print('no child')\n"
    )
    assert run(script) == "no child\n"


def test_a_process_is_named_for_ps_and_a_long_name_is_cut() -> None:
    script = (
        "linux.set_process_name('engine-keeper-and-more'); print(open('/proc/self/comm').read())"
    )
    assert run(script) == "engine-keeper-a\n\n"


def test_a_hole_gives_its_blocks_back_reads_as_zeros_and_leaves_the_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (1 << 20))
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
        before = os.fstat(fd).st_blocks * 512
        linux.punch_hole(fd, 4096, (1 << 20) - 8192)
        after = os.fstat(fd).st_blocks * 512
        assert before >= 1 << 20
        assert after <= 16384
        assert os.fstat(fd).st_size == 1 << 20
        assert os.pread(fd, 4097, 0) == b"x" * 4096 + b"\0"
        assert os.pread(fd, 4097, (1 << 20) - 4097) == b"\0" + b"x" * 4096
    finally:
        os.close(fd)


def test_a_hole_beyond_four_gib_is_where_it_was_asked_for(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(fd, b"a" * 8192, 5 << 30)
        linux.punch_hole(fd, 5 << 30, 4096)
        assert os.pread(fd, 8192, 5 << 30) == b"\0" * 4096 + b"a" * 4096
    finally:
        os.close(fd)


def test_a_file_that_cannot_have_holes_says_so() -> None:
    read_end, write_end = os.pipe()
    try:
        with pytest.raises(OSError, match="Illegal seek") as caught:
            linux.punch_hole(write_end, 0, 4096)
        assert caught.value.errno == errno.ESPIPE
    finally:
        os.close(read_end)
        os.close(write_end)


def test_an_empty_hole_is_an_error_of_the_caller(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            linux.punch_hole(fd, 0, 0)
    finally:
        os.close(fd)


def test_a_process_that_asked_to_be_traced_is_let_go_with_its_signal() -> None:
    script = (
        "import ctypes, signal\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))\n"
        "    ctypes.CDLL(None).ptrace(0, 0, None, None)\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    os._exit(1)\n"
        "status = os.waitpid(pid, 0)[1]\n"
        "print(os.WIFSTOPPED(status), os.WSTOPSIG(status) == signal.SIGUSR1)\n"
        "linux.stop_tracing(pid, os.WSTOPSIG(status))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    assert run(script) == "True True\n7\n"
