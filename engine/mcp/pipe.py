"""`engine mcp`: a thin pipe between an agent's stdio and the engine, which speaks MCP at /mcp.

The standard library alone, one thread, no SDK: it stands beside every agent. It reads messages only
to know which requests wait for an answer: when the engine is gone it answers them itself, and says
what to call next. With the next message it connects again, to an engine that it starts where none
is, and repeats the client's handshake there. It ends when its stdin does.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from engine.client.errors import CannotStart, ClientError, NotReachable
from engine.client.identity import greeting
from engine.client.places import Place, find_place
from engine.client.schedule import START_AFTER, Schedule
from engine.client.sockets import hung_up, open_socket, refusal, spot
from engine.mcp.inflight import Ledger, Lines
from engine.mcp.wire import HEAD_MAX_BYTES, request

ANSWER_SECS: Final = 30.0  # for the engine to let us in: it starts its helper for the first
SEND_SECS: Final = 30.0  # in which the engine takes none of what we send
PATIENCE_SECS: Final = 30.0  # of one message, with an engine that is away
CHUNK_BYTES: Final = 1 << 16
UNREACHABLE: Final = 69  # exit code, as of the other verbs


class Options(NamedTuple):
    """What `engine mcp` was told. `home` is absolute."""

    home: str
    url: str | None
    name: str
    max_wait: float | None
    may_start: bool


class Ended(Exception):
    """The client has closed our stdin."""


class Pipe:
    """The way of the messages, over one connection after the other."""

    def __init__(self, options: Options, environ: dict[str, str]) -> None:
        self._options, self._environ = options, environ
        self._ledger = Ledger()
        self._from_client = Lines()
        self._from_engine = Lines()
        self._socket: socket.socket | None = None

    def run(self) -> None:
        """Pass messages on until the client ends. Raises `ClientError` where none can be."""
        self._connect_first()
        try:
            while True:
                self._turn()
        except (Ended, BrokenPipeError):
            return
        finally:
            if self._socket is not None:
                self._socket.close()

    def _turn(self) -> None:
        """Wait for either side, and pass on what it has said."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        if self._socket is not None:
            poll.register(self._socket.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poll.poll()}
        if self._socket is not None and self._socket.fileno() in ready:
            self._take()
        if 0 in ready:
            self._read_client()

    def _read_client(self) -> None:
        data = os.read(0, CHUNK_BYTES)
        if not data:
            raise Ended
        for line in self._from_client.feed(data):
            if line.strip():
                self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        """Send a line of the client's; what cannot be sent is answered here."""
        try:
            if self._socket is None:
                self._connect_again()
        except ClientError as exc:
            self._ledger.sent(line)
            self._give_up(" ".join(exc.lines))
            return
        self._ledger.sent(line)
        self._send(line)

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(data)
        except OSError:
            self._lose()

    def _take(self) -> None:
        """Pass on what the engine has said."""
        assert self._socket is not None
        try:
            data = self._socket.recv(CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        lines = self._from_engine.feed(data)
        _write_out(b"".join(line for line in lines if self._ledger.is_for_client(line)))

    def _lose(self) -> None:
        """The connection has ended: nobody else answers what is in flight."""
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        self._give_up("the engine went away before this was answered")

    def _give_up(self, why: str) -> None:
        for answer in self._ledger.give_up(why):
            _write_out(json.dumps(answer, separators=(",", ":")).encode() + b"\n")

    # Connecting.

    def _connect_first(self) -> None:
        """Connect, to an engine that is started where none is. Raises `ClientError`."""
        try:
            self._open()
        except NotReachable as exc:
            if not exc.absent or not self._options.may_start:
                raise
        else:
            return
        self._try_until(self._start)

    def _connect_again(self) -> None:
        """Connect after a loss: whoever looks after the engine has some seconds to bring it back.

        Raises `ClientError`.
        """
        self._try_until(lambda: None)

    def _try_until(self, prepare: Callable[[], None]) -> None:
        prepare()
        schedule = Schedule(time.monotonic(), PATIENCE_SECS)
        while True:
            try:
                self._open()
            except NotReachable as exc:
                if not schedule.failed(time.monotonic()):
                    raise
                if exc.absent and self._options.may_start and schedule.attempts == START_AFTER:
                    self._start()
                _wait_until(schedule.due)
            else:
                return

    def _start(self) -> None:
        """Start an engine that is no child of ours. Raises `CannotStart`.

        Some clients end their servers with all that came of them, and the engine is everybody's.
        """
        from engine.client.start import start_engine  # only here: most find one that runs

        reader, writer = os.pipe()
        child = os.fork()
        if child:
            os.close(writer)
            with open(reader, "rb") as said:
                words = said.read()
            os.waitpid(child, 0)
            if words:
                raise CannotStart(*json.loads(words))
            return
        try:
            start_engine(self._options.home, self._environ)
        except CannotStart as exc:
            os.write(writer, json.dumps(exc.lines).encode())
        except BaseException as exc:  # this process has nobody else to tell
            os.write(writer, json.dumps([f"no engine could be started: {exc!r}"]).encode())
        finally:
            os._exit(0)

    def _open(self) -> None:
        """Connect, be let in, greet, and repeat the handshake. Raises `ClientError`."""
        place = find_place(self._options.home, self._options.url, self._environ)
        sock = open_socket(place)
        try:
            sock.settimeout(ANSWER_SECS)
            sock.sendall(request(place.host, place.token) + self._greeting())
            rest = _enter(sock, place)
            sock.settimeout(SEND_SECS)
            if self._ledger.handshake:
                sock.sendall(b"".join(self._ledger.handshake))
                self._ledger.repeated()
        except TimeoutError as exc:
            sock.close()
            raise NotReachable(f"not reachable at {spot(place)} (no answer)") from exc
        except OSError as exc:
            sock.close()
            raise hung_up(place, exc.strerror or str(exc)) from exc
        except ClientError:
            sock.close()
            raise
        self._socket, self._from_engine = sock, Lines()
        self._deliver(rest)

    def _greeting(self) -> bytes:
        said = {
            **greeting("engine mcp", self._environ),
            "name": self._options.name,
            "max_wait": self._options.max_wait,
        }
        return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def _enter(sock: socket.socket, place: Place) -> bytes:
    """Read the head of the engine's answer; what follows it comes back. Raises `NotReachable`."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        data = sock.recv(CHUNK_BYTES)
        if not data:
            raise hung_up(place, "connection lost")
        heard += data
        if len(heard) > HEAD_MAX_BYTES:
            raise NotReachable(f"not reachable at {spot(place)} (that is no engine)")
    head, _, rest = heard.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise NotReachable(f"not reachable at {spot(place)} (that is no engine)")
    status = int(words[1])
    if status == 101:
        return rest
    error = refusal(place, status)
    if status != 401:
        while len(rest) < HEAD_MAX_BYTES and (data := sock.recv(CHUNK_BYTES)):
            rest += data
        error = NotReachable(*error.lines, rest.decode(errors="replace").strip())
    raise error


def _wait_until(due: float) -> None:
    """Wait, unless the client goes away first. Raises `Ended`."""
    poll = select.poll()
    poll.register(0, 0)  # a hang-up is told unasked
    if poll.poll(max(0.0, due - time.monotonic()) * 1000):
        raise Ended


def _write_out(data: bytes) -> None:
    """Write to stdout, all of it. Raises BrokenPipeError."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def main() -> None:
    """`pipe OPTIONS`, as JSON: run, and exit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    options = Options(**json.loads(sys.argv[1]))
    try:
        Pipe(options, dict(os.environ)).run()
    except (ClientError, ValueError) as exc:
        lines = exc.lines if isinstance(exc, ClientError) else [str(exc)]
        print("engine mcp: " + "\n".join(lines), file=sys.stderr)
        code = 1 if isinstance(exc, CannotStart | ValueError) else UNREACHABLE
        sys.exit(code)
