"""Start an engine in the background and wait until it says that it is ready."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

from engine.client.errors import CannotStart
from engine.client.places import tilde
from engine.client.sockets import wait_readable

if TYPE_CHECKING:
    import subprocess

READY_WAIT: Final = 30.0  # seconds; a home with 10,000 ended tasks takes one
END_WAIT: Final = 5.0  # seconds from the end of the pipe to the end of the process
HOME_TAKEN: Final = 3  # exit code of `engine serve` where another engine has the home
LOG: Final = "engine.log"
LOG_TAIL: Final = 8192  # bytes looked at for the last line
_STARTED: Final[list[subprocess.Popen[bytes]]] = []  # by this process, and perhaps still there


def start_engine(home: str, environ: dict[str, str]) -> bool:
    """Start `engine serve` on `home`, detached; True when it is ready.

    False: another engine has the home (one was started in the same instant), so connect to that.
    Raises `CannotStart` with the child's last line.
    """
    import subprocess  # only here: 6 ms that most calls need not pay

    log = os.path.join(home, LOG)
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        start_of_log = os.path.getsize(log) if os.path.exists(log) else 0
    except OSError as exc:
        raise CannotStart(f"no engine could be started in {tilde(home)}: {exc.strerror}") from exc
    ready, notify = os.pipe()
    arguments = ["--home", home, "--notify-fd", str(notify)]
    try:
        with open(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "engine", "serve", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={k: v for k, v in environ.items() if not k.startswith("ENGINE_")},
                cwd="/",  # it must not hold the folder in which somebody happened to stand
                start_new_session=True,
                pass_fds=[notify],
            )
        os.close(notify)
        notify = -1
        if _says_ready(ready):
            _keep(child)
            return True
        code = child.wait(END_WAIT)
    except OSError as exc:
        raise CannotStart(f"no engine could be started: {exc.strerror}") from exc
    except subprocess.TimeoutExpired as exc:
        raise CannotStart(
            f"the engine did not become ready in {READY_WAIT:g} s; see {tilde(log)}"
        ) from exc
    finally:
        os.close(ready)
        if notify >= 0:
            os.close(notify)
    if code == HOME_TAKEN:
        return False
    raise CannotStart(
        f"the engine ended at once, exit {code}: {last_line(log, start_of_log)}",
        f"see {tilde(log)}",
    )


def _keep(child: subprocess.Popen[bytes]) -> None:
    """Hold on to an engine that runs: it outlives us, and if not, the next start takes it away."""
    _STARTED[:] = [earlier for earlier in _STARTED if earlier.poll() is None]
    _STARTED.append(child)


def _says_ready(fd: int) -> bool:
    """Whether the line `ready` comes on `fd` before its end and in time."""
    until = time.monotonic() + READY_WAIT
    heard = b""
    while b"\n" not in heard:
        if not wait_readable([fd], until):
            return False
        piece = os.read(fd, 64)
        if not piece:
            return False
        heard += piece
    return heard.startswith(b"ready\n")


def last_line(path: str, start: int = 0) -> str:
    """The last line of the file at `path` that is not blank, from byte `start` on."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(start, size - LOG_TAIL))
        lines = [line for line in file.read().split(b"\n") if line.strip()]
    return lines[-1].decode(errors="replace").strip() if lines else "it said nothing"
