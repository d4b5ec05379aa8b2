"""A session keeper and its calls, through the plain client of `harness`."""

from __future__ import annotations

import array
import os
import socket
from pathlib import Path
from typing import Any

from keeper.harness import KeeperClient, Nursery

PATH = os.environ["PATH"]


class Answer:
    """A call that has ended: its record, and what it wrote."""

    def __init__(self, directory: Path, link: KeeperClient, record: dict[str, Any]) -> None:
        self.directory, self.link, self.record = directory, link, record

    @property
    def output(self) -> str:
        return (self.directory / "output").read_text()

    def __getitem__(self, name: str) -> Any:
        return self.record[name]


class Session:
    """One interpreter below a keeper of its own. `opened` is the answer to `open`."""

    def __init__(self, mother: Nursery, **changes: Any) -> None:
        self.mother = mother
        self.link_path = mother.home / "python"
        self._count = 0
        self.control = self._bear()
        self.control.send(
            {
                "op": "open",
                "link": str(self.link_path),
                "once": False,
                "python": "python3",
                "path": None,
                "env": {"PATH": PATH, "LC_ALL": "C.UTF-8"},
                "cwd": "/",
                "cwd_or_parent": False,
                "umask": 0o022,
                **changes,
            }
        )
        self.opened = self.control.expect("opened", "failed")

    def _bear(self) -> KeeperClient:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))
            self.mother.requests.sendmsg([b"p"], [rights])
        client = KeeperClient(ours)
        self.mother.clients.append(client)
        return client

    def connect(self) -> KeeperClient:
        """A link of its own, by the place where the session is found."""
        pid, started, _boot = os.readlink(self.link_path).split()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(self.mother.sockets / f"{pid}-{started}.sock"))
        client = KeeperClient(sock)
        self.mother.clients.append(client)
        return client

    def send(
        self,
        code: str,
        *,
        link: KeeperClient | None = None,
        stdin: bytes | None = None,
        env: dict[str, str] | None = None,
        **changes: Any,
    ) -> tuple[Path, KeeperClient]:
        """Hand a call over; its directory, and the link that hears of it."""
        self._count += 1
        name = f"a{self._count:05}"
        directory = self.mother.directory(name)
        link = link or self.connect()
        fds = [memory_file(data) for data in (code.encode(), stdin) if data is not None]
        request = {
            "op": "run",
            "dir": str(directory),
            "name": f"t{name}",
            "cwd": None,
            "env": {"ENGINE_TASK_ID": f"t{name}", **(env or {})},
            "stdin": "null" if stdin is None else "fd",
            "streams": "merged",
            "deadline": None,
            "cap": 1 << 30,
            "fds": len(fds),
            **changes,
        }
        link.send(request, fds)
        for fd in fds:
            os.close(fd)
        return directory, link

    def begin(self, code: str, **changes: Any) -> tuple[Path, KeeperClient]:
        """Hand a call over and wait until it can be interrupted."""
        directory, link = self.send(code, **changes)
        link.expect("accepted")
        link.expect("started")
        return directory, link

    def run(self, code: str, **changes: Any) -> Answer:
        """Run a call to its end."""
        directory, link = self.begin(code, **changes)
        return Answer(directory, link, link.expect("ended")["record"])

    def run_unstarted(self, code: str, **changes: Any) -> Answer:
        """Hand over a call that never begins; its end."""
        directory, link = self.send(code, **changes)
        return Answer(directory, link, link.expect("ended")["record"])

    def close(self, grace: float = 5.0, **more: bool) -> str:
        """Have it closed; the last word about that."""
        link = self.connect()
        link.send({"op": "close", "grace": grace, **more})
        word: str = link.expect("closed", "busy")["ev"]
        return word


def memory_file(data: bytes) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def wait_for_output(directory: Path, link: KeeperClient, size: int) -> None:
    """Return once the call has written `size` bytes."""
    while sum(link.expect("grew")["sizes"]) < size:
        pass


class Bell:
    """Something that code can wait for: a FIFO, which the test holds open."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR)
        self.wait = f"open({str(path)!r}).readline()"

    def ring(self) -> None:
        os.write(self._fd, b"\n")

    def close(self) -> None:
        os.close(self._fd)
