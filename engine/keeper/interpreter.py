"""A session's interpreter: started with `worker` as its program, handed calls, let go.

Knows processes and descriptors; which calls there are and how they ended, the keeper knows.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any, Final

from engine.keeper.killing import send
from engine.keeper.link import Link, LinkBroken
from engine.keeper.spawning import be_first_out_of_memory, find_program, spawn

# The parts of the program, in the order in which they are run; see `worker`.
PARTS: Final = ("worker_threads.py", "worker_streams.py", "worker_code.py", "worker.py")
MAX_WORDS: Final = 500  # characters of what an interpreter says that does not start
_TEXT_FD: Final = 4  # see `worker`
_SOCKET_FD: Final = 3

# The text is no module of the interpreter's, its names are not in `__main__`, and what code puts
# in place of a builtin is not in its way.
_START: Final = (
    '[exec(compile(part,"<session>","exec"),space)'
    ' for space in [{"__name__":"session","__builtins__":{**vars(__builtins__)}}]'
    f' for part in __import__("os").pread({_TEXT_FD},1<<20,0).split(b"\\0")]'
)


def _read_program() -> bytes:
    """The text that `_START` runs."""
    folder = Path(__file__).parent
    return b"\0".join((folder / part).read_bytes() for part in PARTS)


_PROGRAM: Final = _read_program()  # once: of the same version as what is loaded here


class Interpreter:
    """One process and the socket to the program in it. Raises SpawnFailed and OSError.

    request: see `spawning.spawn`; {python} is its program, looked for in {search}, a PATH, or by
    that of its environment.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.version = ""
        self.executable = ""
        self._can_hear = True
        program = _find(request)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._words = _memory_file("words", b"")
        text = _memory_file("worker", _PROGRAM)
        try:
            self.pid, _cwd = spawn(
                {**request, "argv": [program, "-c", _START], "path": program},
                [
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, self._words, 1),
                    (os.POSIX_SPAWN_DUP2, self._words, 2),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), _SOCKET_FD),
                    (os.POSIX_SPAWN_DUP2, text, _TEXT_FD),
                ],
            )
        except BaseException:
            ours.close()
            os.close(self._words)
            raise
        finally:
            theirs.close()
            os.close(text)
        self.worker = self.pid  # the process that runs the program, where `python` is a wrapper
        self.link: Link | None = Link(ours)
        be_first_out_of_memory(self.pid)

    @property
    def pids(self) -> set[int]:
        return {self.pid, self.worker}

    def greet(self, hello: dict[str, Any]) -> None:
        """Take down what it says of itself once it is ready."""
        self.worker = int(hello["pid"])
        self.version, self.executable = str(hello["version"]), str(hello["executable"])
        os.close(self._words)
        self._words = -1

    def words(self) -> str:
        """The end of what it said before it was ready."""
        if self._words < 0:
            return ""
        size = os.fstat(self._words).st_size
        said = os.pread(self._words, MAX_WORDS, max(0, size - MAX_WORDS))
        return said.decode("utf-8", "replace").strip()

    def hand_over(self, request: dict[str, Any], code: int, streams: list[int]) -> None:
        """Have it run a call: see `worker`. Raises LinkBroken if it takes none."""
        if self.link is None:
            raise LinkBroken("closed")
        try:
            asked = _memory_file("request", json.dumps(request).encode())
        except OSError as exc:
            raise LinkBroken(str(exc)) from exc
        try:
            rights = array.array("i", [asked, code, *streams])
            self.link.sock.sendmsg([b"r"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError as exc:
            raise LinkBroken(str(exc)) from exc
        finally:
            os.close(asked)

    def interrupt(self) -> None:
        """SIGINT; a stopped one goes on first."""
        send([self.worker], signal.SIGINT)
        send([self.worker], signal.SIGCONT)

    def let_go(self) -> None:
        """Have it end as at the end of a script; not in a call, which that would kill."""
        if self.link is not None and self._can_hear:
            self._can_hear = False
            try:
                self.link.sock.shutdown(socket.SHUT_WR)
            except OSError:
                return  # its end is closed: it is on its way out
            send([self.worker], signal.SIGCONT)

    def kill(self) -> None:
        send(self.pids, signal.SIGKILL)

    def close_link(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None

    def close(self) -> None:
        """Let go of the descriptors once the process is gone."""
        self.close_link()
        if self._words >= 0:
            os.close(self._words)
            self._words = -1


def _find(request: dict[str, Any]) -> str:
    """The interpreter's file. Raises SpawnFailed."""
    path = request.get("search")
    if path is None:
        path = request["env"].get("PATH", os.defpath)
    # Looked for from the directory where it will be started, which is not ours.
    folders = [os.path.join(request["cwd"], folder) for folder in path.split(":")]
    return find_program(request["python"], {"PATH": ":".join(folders)})


def _memory_file(name: str, data: bytes) -> int:
    """A descriptor of a file in memory that holds `data`. Raises OSError."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.close(fd)
        raise
    return fd
