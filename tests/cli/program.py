"""The command `engine` as a test runs it: to pipes, or in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

LIMIT = 30.0  # seconds for any one call
PROGRAM = [sys.executable, "-m", "engine"]


class Result(NamedTuple):
    code: int
    out: bytes
    err: str


def environment(home: Path, **more: str) -> dict[str, str]:
    """A small environment, so that the machine's own colours and locale play no part."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "TERM": "xterm", "ENGINE_HOME": str(home), **more}


def engine(
    home: Path, *arguments: str, stdin: bytes | None = None, cwd: Path | None = None, **more: str
) -> Result:
    """Run `engine` with its streams to pipes, to its end."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        env=environment(home, **more),
        cwd=cwd,
        timeout=LIMIT,
    )
    return Result(done.returncode, done.stdout, done.stderr.decode())


def start(home: Path, *arguments: str, **kwargs: Any) -> subprocess.Popen[bytes]:
    """Start `engine` with stdout and stderr to pipes."""
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home),
        bufsize=0,  # what a test reads is all that is gone from the pipe
        **kwargs,
    )


class Terminal:
    """`engine` in a terminal; `seen` is all that came out of it."""

    def __init__(
        self,
        home: Path,
        *arguments: str,
        columns: int = 80,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.seen = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LEADER, *PROGRAM, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(home, **(environ or {})),
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def read_until(self, text: str) -> None:
        """Read until `text` has been seen; fail after LIMIT seconds or at the end."""
        until = time.monotonic() + LIMIT
        while text not in self.seen:
            assert self._read(until), f"{text!r} never came: {self.seen!r}"

    def wait(self) -> int:
        """Read to the end; the exit code."""
        until = time.monotonic() + LIMIT
        while self._read(until):
            pass
        return self.process.wait(LIMIT)

    def _read(self, until: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"nothing more came: {self.seen!r}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: the last holder of the terminal is gone
            return False
        self.seen += data.decode()
        return bool(data)


# Makes the terminal the controlling one, so that its keys are signals, and becomes the program.
_LEADER = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
