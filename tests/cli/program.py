"""The command `engine` as a test runs it: to pipes, or in a terminal of its own.

Usually it is forked by `forkserver`, which has it loaded; `fresh` has a Python of its own start
it, as a user's shell does.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

LIMIT = 30.0  # seconds for any one call
PROGRAM = [sys.executable, "-m", "engine"]
SERVER = Path(__file__).with_name("forkserver.py")


class Result(NamedTuple):
    code: int
    out: bytes
    err: str


def environment(home: Path, **more: str) -> dict[str, str]:
    """A small environment, so that the machine's own colours and locale play no part."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "TERM": "xterm", "ENGINE_HOME": str(home), **more}


class ForkServer:
    """`forkserver` as a process, from `open` to `close`."""

    def __init__(self, *modules: str) -> None:
        """`modules`: loaded beside the command line."""
        self._modules = modules
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(LIMIT)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", SERVER, *self._modules, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment(Path("/nowhere")),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C at who tests is none of its business
            )

    def close(self) -> None:
        assert self._process is not None
        self._control.close()
        self._process.wait(LIMIT)
        self._process = None

    def fork(
        self,
        arguments: list[str],
        environ: Mapping[str, str],
        cwd: Path | str,
        fds: list[int],
        *,
        terminal: bool,
    ) -> int:
        """The pid of a new child of ours that runs the command, with `fds` as 0, 1, 2 and 3."""
        assert self._process is not None, "the fork server is there for the tests of its folder"
        asked = {
            "arguments": arguments,
            "environ": dict(environ),
            "cwd": str(cwd),
            "terminal": terminal,
        }
        text = json.dumps(asked).encode()
        socket.send_fds(self._control, [len(text).to_bytes(4)], fds)
        self._control.sendall(text)
        answer = self._control.recv(16, socket.MSG_WAITALL)
        assert len(answer) == 16, "the fork server is gone"
        return int(answer)


FORKS = ForkServer()


class Fresh(subprocess.Popen[bytes]):
    """A process of its own, which a test that fails does not wait for."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, tb)


class Forked(Fresh):
    """A `Popen` of PROGRAM whose process is forked by the server; `env` is given.

    A new session has its stdin as its terminal. One descriptor may be passed: it will be 3.
    """

    server: ClassVar = FORKS

    def _execute_child(self, args: Any, *more: Any) -> None:
        # The way by which Popen starts a process is its own affair. So it is in 3.11 to 3.13.
        (_, _, _, passed, cwd, env, _, _, _, *ends, _, _, _, _, _, has_session, _) = more
        in_read, _, _, out_write, _, err_write = ends
        arguments = list(args[len(PROGRAM) :])
        fds = [in_read, out_write, err_write, *passed]
        self.pid = self.server.fork(arguments, env, cwd or os.getcwd(), fds, terminal=has_session)
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]


def engine(
    home: Path,
    *arguments: str,
    stdin: bytes | None = None,
    cwd: Path | None = None,
    fresh: bool = False,
    **more: str,
) -> Result:
    """Run `engine` with its streams to pipes, to its end."""
    with (Fresh if fresh else Forked)(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home, **more),
        cwd=cwd,
    ) as process:
        out, err = process.communicate(stdin, timeout=LIMIT)
    return Result(process.returncode, out, err.decode())


def start(home: Path, *arguments: str, fresh: bool = False) -> subprocess.Popen[bytes]:
    """Start `engine` with stdout and stderr to pipes."""
    return (Fresh if fresh else Forked)(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home),
        bufsize=0,  # what a test reads is all that is gone from the pipe
    )


class Terminal:
    """`engine` in a terminal; `seen` is all that came out of it."""

    def __init__(
        self,
        home: Path,
        *arguments: str,
        columns: int = 80,
        environ: dict[str, str] | None = None,
        fresh: bool = False,
    ) -> None:
        self.seen = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        leader = [sys.executable, "-c", _LEADER] if fresh else []
        self.process = (Fresh if fresh else Forked)(
            [*leader, *PROGRAM, *arguments],
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
