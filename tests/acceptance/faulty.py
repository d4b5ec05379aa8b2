"""Faults of storage, made for real: a small disk that fills, one that fails, a database that
another process has locked.

    with small_disk(tmp_path, "size=16m") as disk, Engine(disk.path / "home") as engine:
        disk.fill()

Mounting takes the rights of root, or a namespace in which one is root: `unshare -Urm`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from acceptance.running import LIMIT, NO_FLOOR, Client, Engine

STRANGER: Final = 64_123  # a user whom nobody has named, and so with no process but ours

PAGE: Final = 4096  # what a disk gives out at a time
_FILLER: Final = "filler"
_IMAGE_BYTES: Final = 48 << 20
_LOCK: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA busy_timeout=20000")
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


class Disk:
    """A mounted file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, *, leave: int = 0) -> None:
        """Take all the room there is, but for `leave` bytes."""
        filler = os.open(self.path / _FILLER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            with contextlib.suppress(OSError):
                while os.write(filler, bytes(PAGE)):
                    pass
            os.ftruncate(filler, os.fstat(filler).st_size - leave)
        finally:
            os.close(filler)

    def free(self) -> None:
        """Give the room back."""
        (self.path / _FILLER).unlink()

    @contextlib.contextmanager
    def no_files(self) -> Iterator[None]:
        """Meanwhile it takes no more files."""
        folder = self.path / "files"
        folder.mkdir()
        with contextlib.suppress(OSError):
            for number in itertools.count():
                (folder / str(number)).touch(exist_ok=False)
        yield
        shutil.rmtree(folder)

    def fail(self) -> None:
        """Have it take no writes any more, as a file system does whose device fails."""
        subprocess.run(["mount", "-o", "remount,abort", self.path], check=True)


@contextlib.contextmanager
def small_disk(folder: Path, *options: str) -> Iterator[Disk]:
    """A disk below `folder`; `options` as tmpfs(5) has them. Skips where nothing can be mounted."""
    path = folder / "disk"
    path.mkdir()
    with mounted("-t", "tmpfs", "-o", ",".join(options), "none", on=path):
        yield Disk(path)


@contextlib.contextmanager
def failing_disk(folder: Path) -> Iterator[Disk]:
    """A disk below `folder` that can `fail`. Skips where it cannot be made."""
    image, path = folder / "image", folder / "disk"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("needs mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with mounted("-o", "loop", str(image), on=path):
        yield Disk(path)


@contextlib.contextmanager
def mounted(*argv: str, on: Path) -> Iterator[None]:
    """What mount(8) does with `argv`, undone at the end. Skips where nothing can be mounted."""
    done = subprocess.run(["mount", *argv, on], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", on], check=True)


@contextlib.contextmanager
def locked(database: Path) -> Iterator[None]:
    """Another process has the database for itself."""
    with _process(sys.executable, "-c", _LOCK, str(database)) as locker:
        assert _hear(locker) == "locked"
        yield


def _hear(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints; empty at its end."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], LIMIT)
    assert readable, "it says nothing"
    return process.stdout.readline().strip()


@contextlib.contextmanager
def _process(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends when its standard input does."""
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(LIMIT)
            finally:
                process.kill()


def degraded(client: Client) -> list[str]:
    """What `engine_info` says is wrong."""
    found: list[str] = client.call("engine_info")["degraded"]
    return found


def wait_well(client: Client) -> None:
    """Wait until nothing is wrong any more."""
    _wait_said(client, lambda said: not said)


def wait_degraded(client: Client, beginning: str) -> None:
    """Wait until it is said that something is wrong, in words that begin so."""
    _wait_said(client, lambda said: any(words.startswith(beginning) for words in said))


def _wait_said(client: Client, is_so: Callable[[list[str]], bool]) -> None:
    until = time.monotonic() + LIMIT
    while not is_so(said := degraded(client)):
        assert time.monotonic() < until, said
        time.sleep(0.05)  # nobody tells of that


def of_few_processes(tmp_path: Path, most: int, *options: str) -> Engine:
    """An engine of a user who may have `most` processes: root may have any number.

    Skips where that cannot be had.
    """
    if os.getuid() != 0 or not shutil.which("setpriv") or not shutil.which("prlimit"):
        pytest.skip("needs root, setpriv and prlimit, to be a user of its own")
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, STRANGER, STRANGER)
    caps = ("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override")
    user = ("setpriv", f"--reuid={STRANGER}", *caps, "--bounding-set=-all,+dac_override")
    return Engine(home, *NO_FLOOR, *options, prefix=("prlimit", f"--nproc={most}", *user))
