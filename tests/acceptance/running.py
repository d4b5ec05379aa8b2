"""A running engine for the acceptance tests: the installed program, a foreign client.

    with Engine(tmp_path / "home", "--slots", "1") as engine, engine.connect() as client:
        ci = client.caller("ci")
        assert ci.bash("echo hi")["output"] == "hi\\n"

`Engine` starts `engine serve` as a process of its own and ends what is left of it by pid. In the
tests of this folder it is forked from one that has the program loaded, which takes a third of the
processor time; `whole_program` of `conftest` has each start its own Python, as a user does.
`Client` is one connection, spoken through the library `websockets`, which the engine does not use.
Several calls may be under way on it: `send` gives a `Pending`, whose reply is found by its id
whatever the order in which replies come. A name that Python reserves gets an underscore: `as_`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from cli.program import PROGRAM as FORKED_PROGRAM
from cli.program import Forked
from websockets.sync.client import ClientConnection, connect, unix_connect

NO_FLOOR: Final = ("--set", "min_free_bytes=0")  # of free disk: the machine's is no matter of ours
LIMIT: Final = 30.0  # seconds for anything that a test waits for
PROGRAM: Final = Path(sys.executable).with_name("engine")
FORKED: list[type[Forked]] = []  # by which engines are started, where there is one

_NAMES = itertools.count(1)


class RpcError(Exception):
    """The engine answered with an error; its members are here as they came."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(json.dumps(error))
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: dict[str, Any] = error["data"]


def new_name(prefix: str = "c") -> str:
    """A caller name that no other test of this engine has: `ci-1234-7`."""
    return f"{prefix}-{os.getpid()}-{next(_NAMES)}"


class Pending:
    """A call that was sent; its reply may come after those of later ones."""

    def __init__(self, client: Client, id_: int) -> None:
        self.client, self.id = client, id_

    def message(self, limit: float = LIMIT) -> dict[str, Any]:
        """The whole JSON-RPC response, waited for `limit` seconds. Raises TimeoutError."""
        return self.client.wait_reply(self.id, limit)

    def result(self, limit: float = LIMIT) -> dict[str, Any]:
        """The result. Raises RpcError."""
        message = self.message(limit)
        if "error" in message:
            raise RpcError(message["error"])
        result: dict[str, Any] = message["result"]
        return result

    def error(self, limit: float = LIMIT) -> dict[str, Any]:
        """The error, where one must come: a result fails the test."""
        message = self.message(limit)
        assert "error" in message, message
        error: dict[str, Any] = message["error"]
        return error

    def is_answered(self, within: float = 0.0) -> bool:
        """Whether the reply is there, waited for `within` seconds; it can still be asked for."""
        try:
            self.client.replies[self.id] = self.client.wait_reply(self.id, within)
        except TimeoutError:
            return False
        return True


class Client:
    """One connection. `replies` are those that came while another was waited for."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket
        self.replies: dict[Any, dict[str, Any]] = {}
        self._ids = itertools.count(1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.websocket.close()

    def caller(self, prefix: str = "c") -> Caller:
        """A caller with a name of its own on this connection."""
        return Caller(self, new_name(prefix))

    def send(self, method: str, params: Any = None, **named: Any) -> Pending:
        """Send a call; `named` become its params, after `params` if that is a mapping."""
        id_ = next(self._ids)
        members = params if params is not None and not named else {**(params or {}), **wire(named)}
        self.send_json({"jsonrpc": "2.0", "id": id_, "method": method, "params": members})
        return Pending(self, id_)

    def call(self, method: str, params: Any = None, **named: Any) -> dict[str, Any]:
        """Send a call and wait for its result. Raises RpcError."""
        return self.send(method, params, **named).result()

    def refuse(self, method: str, params: Any = None, **named: Any) -> dict[str, Any]:
        """The error of a call that must be refused."""
        return self.send(method, params, **named).error()

    def notify(self, method: str, **named: Any) -> None:
        self.send_json({"jsonrpc": "2.0", "method": method, "params": wire(named)})

    def cancel_request(self, pending: Pending) -> None:
        self.notify("$/cancelRequest", id=pending.id)

    def send_json(self, message: Any) -> None:
        self.websocket.send(json.dumps(message))

    def send_text(self, text: str) -> None:
        """Send a frame as it stands, JSON or not."""
        self.websocket.send(text)

    def receive(self, limit: float = LIMIT) -> Any:
        """The next message of any kind, decoded. Raises TimeoutError, ConnectionClosed."""
        return json.loads(self.websocket.recv(timeout=limit))

    def wait_reply(self, id_: Any, limit: float = LIMIT) -> dict[str, Any]:
        """The response with this id; others that come meanwhile are kept."""
        until = time.monotonic() + limit
        while id_ not in self.replies:
            message = self.receive(max(0.0, until - time.monotonic()))
            self.replies[message["id"]] = message
        return self.replies.pop(id_)

    def close(self) -> None:
        """Close as a client does that has nothing more to say."""
        self.websocket.close()

    def drop(self) -> None:
        """Vanish: the connection ends without a closing handshake."""
        self.websocket.socket.shutdown(socket.SHUT_RDWR)
        self.websocket.close()


class Caller:
    """A caller's calls: every one carries its name."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name

    def on(self, client: Client) -> Caller:
        """The same caller on another connection."""
        return Caller(client, self.name)

    def send(self, method: str, **named: Any) -> Pending:
        return self.client.send(method, as_=self.name, **named)

    def call(self, method: str, **named: Any) -> dict[str, Any]:
        return self.send(method, **named).result()

    def refuse(self, method: str, **named: Any) -> dict[str, Any]:
        return self.send(method, **named).error()

    def bash(self, command: str, **named: Any) -> dict[str, Any]:
        return self.call("bash", command=command, **named)

    def execute(self, *argv: str, **named: Any) -> dict[str, Any]:
        return self.call("execute", argv=list(argv), **named)

    def start(self, command: str, **named: Any) -> dict[str, Any]:
        """Promoted at once: the running reply, with its `taskId` where a slot was free."""
        return self.bash(command, timeout_secs=0, **named)

    def running_row(self) -> dict[str, Any]:
        """The row of the caller's one running task, waited for: a job may run before we know."""
        page = self.call("list_tasks", state=["running"], changed_after=0, timeout_secs=LIMIT)
        (row,) = page["tasks"]
        found: dict[str, Any] = row
        return found

    def wait(self, handle: str, **named: Any) -> dict[str, Any]:
        """`wait` by a task or kickoff id, told apart by the first letter."""
        name = "taskId" if handle.startswith("t") else "kickoffId"
        return self.call("wait", **{name: handle}, **named)

    def cancel(self, handle: str, **named: Any) -> dict[str, Any]:
        name = "taskId" if handle.startswith("t") else "kickoffId"
        return self.call("cancel", **{name: handle}, **named)


def wire(named: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments under the names that they have on the wire."""
    return {name.removesuffix("_"): value for name, value in named.items()}


class Engine:
    """`engine serve` in a home. Entering starts it; leaving ends it and all that it started."""

    def __init__(
        self,
        home: Path,
        *options: str,
        env: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> None:
        """`options` of `serve`; `env` beside the test's own; `prefix`: a program that runs it."""
        self.home, self.options, self.prefix = home, options, prefix
        self.log = home.parent / f"{home.name}.log"
        self.env = os.environ | (env or {})
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        exc: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        try:
            if self.process is not None:
                self.stop()
        finally:
            self.end_leftovers()
        if exc is None:
            assert "Traceback" not in self.log_text(), self.log_text()[-8000:]

    def start(self, *more: str) -> None:
        """Start the program and wait until it says that it is ready.

        Fails with the end of its log where it ends instead.
        """
        ready, notify = os.pipe()
        try:
            with open(self.log, "ab") as log:
                self.process = self._serve(log, notify, *more)
            os.close(notify)
            readable, _, _ = select.select([ready], [], [], LIMIT)
            said = os.read(ready, 64) if readable else b""
        finally:
            os.close(ready)
        if said != b"ready\n":
            self.kill()
            raise AssertionError(f"the engine did not start: {self.log_text()[-4000:]}")

    def _serve(self, log: IO[bytes], notify: int, *more: str) -> subprocess.Popen[bytes]:
        # What else is in an environment may be for Python itself, or the loader.
        is_forked = bool(FORKED) and not self.prefix and self.env == dict(os.environ)
        number = 3 if is_forked else notify
        program = FORKED_PROGRAM if is_forked else [*self.prefix, PROGRAM]
        return (FORKED[0] if is_forked else subprocess.Popen)(
            [
                *program,
                *("serve", "--home", str(self.home), "--notify-fd", str(number)),
                *(*self.options, *more),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self.env,
            pass_fds=[notify],
        )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end by a signal; its exit code. Its jobs run on."""
        assert self.process is not None
        self.process.send_signal(number)
        try:
            return self.process.wait(LIMIT)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it, as a crash does: the jobs and their keepers run on."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(LIMIT)
            self.process = None

    def wait_exit(self, limit: float = LIMIT) -> int:
        """The exit code of one that ends by itself."""
        assert self.process is not None
        code = self.process.wait(limit)
        self.process = None
        return code

    def facts(self) -> dict[str, Any]:
        """What engine.json says."""
        found: dict[str, Any] = json.loads((self.home / "engine.json").read_text())
        return found

    def token(self, role: str = "agent") -> str:
        """The token of `agent`, `observer` or `human`."""
        if role == "human":
            return (self.home / "human.token").read_text().strip()
        token: str = self.facts()["tokens"][role]
        return token

    def connect(self, role: str = "agent", *, tcp: bool = False) -> Client:
        """A new connection, over the Unix socket or loopback TCP."""
        options: dict[str, Any] = {
            "additional_headers": {"Authorization": f"Bearer {self.token(role)}"},
            "compression": None,
            "max_size": None,
            "open_timeout": LIMIT,
            "close_timeout": LIMIT,
            "ping_interval": None,
        }
        facts = self.facts()
        if tcp:
            opened = connect(facts["url"], proxy=None, **options)
        else:
            opened = unix_connect(facts["socket"], "ws://localhost/rpc", **options)
        return Client(opened.__enter__())  # left by `Client.close`

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def processes(self) -> list[int]:
        """Pids, but the engine's own, of all that belongs to this home: mothers, keepers, jobs."""
        own = {os.getpid()} | ({self.process.pid} if self.process is not None else set())
        home = os.fsencode(self.home)
        found = []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and int(entry.name) not in own:
                environ, argv = _proc(entry.path, "environ"), _proc(entry.path, "cmdline")
                if b"ENGINE_HOME=" + home in environ.split(b"\0") or home + b"/keepers" in argv:
                    found.append(int(entry.name))
        return found

    def end_leftovers(self) -> None:
        """Kill what still runs of this home, by pid, until nobody is left."""
        for _ in range(100):
            left = self.processes()
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                wait_gone(pid)
        raise AssertionError(f"still there: {left}")


def _proc(path: str, name: str) -> bytes:
    """A file of a process; empty of one that is gone."""
    try:
        return Path(path, name).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    stat = _proc(f"/proc/{pid}", "stat")
    return bool(stat) and stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def wait_gone(pid: int, limit: float = LIMIT) -> None:
    """Wait for the end of any process; the kernel tells. Raises AssertionError when it stays."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        readable, _, _ = select.select([fd], [], [], limit)
    finally:
        os.close(fd)
    assert readable, f"process {pid} is still there"


@contextlib.contextmanager
def called(engine: Engine, name: str = "ci") -> Iterator[Caller]:
    """A caller of this name, on a connection of its own."""
    with engine.connect() as client:
        yield Caller(client, name)


class Gate:
    """A named pipe: a job waits on it until the test opens it, or the test hears from a job by it.

    Held open at both ends by the test, so neither side ever waits for the other to open it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_exc: object) -> None:
        os.close(self._fd)
        self.path.unlink()

    @property
    def wait(self) -> str:
        """Bash text that waits until the gate is opened."""
        return f"read -r _ < {self.path}"

    def open(self, times: int = 1) -> None:
        """Let `times` waiting jobs, or the next ones, go on."""
        os.write(self._fd, b"\n" * times)

    @property
    def tell(self) -> str:
        """Bash text that makes `hear` return; what is echoed is `told`."""
        return f"echo told > {self.path}"

    def hear(self, limit: float = LIMIT) -> str:
        """The next line that a job wrote. Raises AssertionError when none comes."""
        readable, _, _ = select.select([self._fd], [], [], limit)
        assert readable, "no job has come so far"
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self._fd, 1)
        return line.decode().strip()
