"""A mother of keepers and a plain blocking client of theirs: no engine, no trio."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MOTHER = Path(__file__).parents[2] / "engine" / "keeper" / "mother.py"
LIMIT = 10.0  # seconds for any one word of a keeper


class KeeperClient:
    """One link: `send` a message, `expect` the next word of a kind.

    A state is acknowledged as it comes, if this `keeps` them.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(LIMIT)
        self.sock = sock
        self.keeps = True
        self.file = sock.makefile("rb")

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        data = json.dumps(message).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.sock.sendmsg([data], rights)
        if sent < len(data):  # else it may have answered and gone by now
            self.sock.sendall(data[sent:])

    def next(self) -> dict[str, Any]:
        line = self.file.readline()
        if not line:
            raise EOFError("the keeper is gone")
        message: dict[str, Any] = json.loads(line)
        if "payload" in message:
            message["state"] = self.file.read(message["payload"])
        if message["ev"] == "settled" and self.keeps:
            self.send({"op": "kept"})
        return message

    def expect(self, *words: str) -> dict[str, Any]:
        """The next message of one of these kinds; others are passed over."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            message = self.next()
            if message["ev"] in words:
                return message
        raise TimeoutError(f"no {words} in {LIMIT} s")

    def close(self) -> None:
        self.file.close()
        self.sock.close()


class Nursery:
    """A mother as a child process, and the folders that an engine's home would have."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.sockets = home / "keepers"
        self.sockets.mkdir()
        (home / "tasks").mkdir()
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs, open(home / "keepers.log", "ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(MOTHER)),
                    *(str(theirs.fileno()), str(self.sockets), "1024"),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={},
            )
        self.clients: list[KeeperClient] = []

    def keeper(self) -> KeeperClient:
        """The control link of a new keeper."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))
            self.requests.sendmsg([b"k"], [rights])
        client = KeeperClient(ours)
        self.clients.append(client)
        return client

    def find(self, directory: Path) -> KeeperClient:
        """A link to the keeper that claimed `directory`, as an engine that comes back makes it."""
        pid, started, _boot = os.readlink(directory / "claim").split()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(self.sockets / f"{pid}-{started}.sock"))
        client = KeeperClient(sock)
        self.clients.append(client)
        return client

    def directory(self, name: str = "aaaaaa") -> Path:
        path = self.home / "tasks" / name
        path.mkdir()
        return path

    def log(self) -> str:
        return (self.home / "keepers.log").read_text()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.requests.close()
        self.process.wait(LIMIT)


@contextlib.contextmanager
def nursery(home: Path) -> Iterator[Nursery]:
    mother = Nursery(home)
    try:
        yield mother
    finally:
        mother.close()


def order(directory: Path, *argv: str, **changes: Any) -> dict[str, Any]:
    """A launch message for `argv`, with an environment of its own and the defaults of a call."""
    return {
        "op": "launch",
        "dir": str(directory),
        "argv": list(argv),
        "path": None,
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        "cwd": "/",
        "cwd_or_parent": False,
        "umask": 0o022,
        "streams": "merged",
        "deadline": None,
        "cap": 1 << 30,
        "prologue": False,
        "call": "",
        "stdin": "null",
        "session": False,
        "fds": 0,
        **changes,
    }


def bash(directory: Path, text: str, **changes: Any) -> dict[str, Any]:
    return order(directory, "bash", "-c", text, **changes)


def read_exit(directory: Path) -> dict[str, Any]:
    body, mark, _padding = (directory / "exit").read_bytes().partition(b"\ncomplete\n")
    assert mark, "exit has no closing mark"
    record: dict[str, Any] = json.loads(body)
    return record


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat[stat.rindex(b")") + 2 :].split()[0] not in (b"Z", b"X")
