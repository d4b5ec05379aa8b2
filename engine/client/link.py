"""One open connection to an engine: a blocking socket under `Framing`.

Waits end at a deadline or when a `Wake` becomes readable (a signal came), never by polling.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from typing import Final, Protocol

from engine.client.errors import (
    ConnectionLost,
    NotReachable,
    ProtocolFailure,
    TokenRefused,
    Unsendable,
)
from engine.client.framing import Closed, Framing, Message, Opened, Rejected
from engine.client.places import FACTS, Place, is_alive, tilde

HANDSHAKE_WAIT: Final = 10.0  # seconds; the engine's front door gives up after the same time
SEND_WAIT: Final = 30.0  # seconds in which the engine takes none of what we send
CHUNK: Final = 1 << 18  # bytes a read
GOING_AWAY: Final = 1001  # close codes: RFC 6455, 7.4.1
TOO_BIG: Final = 1009
MAX_SOCKET_PATH: Final = 107  # bytes that fit in sockaddr_un


class Wake(Protocol):
    """What may end a wait early: readable when something (a signal) is to be looked at."""

    def fileno(self) -> int: ...

    def drain(self) -> None:
        """Make it unreadable again; what happened is kept for whoever looks."""


def wait_readable(fds: list[int], until: float | None) -> set[int]:
    """Those of `fds` that can be read; none when the monotonic clock has reached `until`."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    left = None if until is None else max(0.0, until - time.monotonic()) * 1000
    return {fd for fd, _ in poll.poll(left)}


def connect_unix(path: str, timeout: float) -> socket.socket:
    """A socket connected to `path`, which may be longer than the kernel's address field."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
            sock.connect(path)
            return sock
        folder, name = os.path.split(path)
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{fd}/{name}")
        finally:
            os.close(fd)
    except BaseException:
        sock.close()
        raise
    return sock


class Link:
    """A connection past its handshake. Not for two threads."""

    def __init__(self, sock: socket.socket, place: Place, wake: Wake | None = None) -> None:
        self.place = place
        self._sock = sock
        self._wake = wake
        self._framing = Framing()
        self._texts: deque[str] = deque()
        self._ended: str | None = None  # why nothing more will come
        self._is_goodbye = False  # whether the engine ended it in order
        sock.settimeout(SEND_WAIT)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        """End the connection in order, as far as the other side still takes it."""
        try:
            self._sock.setblocking(False)
            self._sock.send(self._framing.closing())
        except OSError:
            pass  # it has ended already, or does not read: the close below tells the kernel
        self._sock.close()

    def shake_hands(self, until: float) -> None:
        """Upgrade to a WebSocket. Raises `NotReachable` where the front door refuses."""
        self._write(self._framing.opening(self.place.host, self.place.token))
        while True:
            if self.fileno() not in wait_readable([self.fileno()], until):
                raise NotReachable(f"not reachable at {spot(self.place)} (no answer)")
            if self._ended is not None:
                raise ConnectionLost(self._ended, is_goodbye=self._is_goodbye)
            for event in self._read():
                if isinstance(event, Opened):
                    return
                if isinstance(event, Rejected):
                    raise refusal(self.place, event.status)

    def send(self, text: str) -> None:
        """Hand one message to the kernel. Raises `ConnectionLost`."""
        self._write(self._framing.text(text))

    def look(self) -> None:
        """Take what has come by now. Raises `ConnectionLost` if that is the end."""
        while self._ended is None and wait_readable([self.fileno()], time.monotonic()):
            self._read()
        if self._ended is not None:
            raise ConnectionLost(self._ended, is_goodbye=self._is_goodbye)

    def receive(self, until: float | None) -> str | None:
        """The next message; None at the deadline or when `wake` said so (it is drained then).

        Raises `ConnectionLost` when the connection has ended, `Unsendable` where that is because of
        the length of what we sent.
        """
        while not self._texts:
            if self._ended is not None:
                raise ConnectionLost(self._ended, is_goodbye=self._is_goodbye)
            fds = [self.fileno()] if self._wake is None else [self.fileno(), self._wake.fileno()]
            ready = wait_readable(fds, until)
            if self.fileno() in ready:
                self._read()
            else:
                if self._wake is not None and self._wake.fileno() in ready:
                    self._wake.drain()
                return None
        return self._texts.popleft()

    def _read(self) -> list[Opened | Rejected]:
        """Take what is there; messages are put by, the events of the handshake returned."""
        try:
            data = self._sock.recv(CHUNK)
        except OSError as exc:
            raise ConnectionLost(exc.strerror or "connection lost") from exc
        events, reply = self._framing.receive(data)
        early: list[Opened | Rejected] = []
        for event in events:
            if isinstance(event, Message):
                self._texts.append(event.text)
            elif isinstance(event, Closed):
                self._ended = event.reason or "connection lost"
                self._is_goodbye = event.code == GOING_AWAY
                if event.code == TOO_BIG:
                    raise Unsendable("the call is longer than the engine takes")
            else:
                early.append(event)
        if not data:
            self._ended = self._ended or "connection lost"
        if reply and self._ended is None:
            self._write(reply)
        return early

    def _write(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except OSError as exc:
            raise ConnectionLost(exc.strerror or "connection lost") from exc


def open_link(place: Place, wake: Wake | None = None, until: float | None = None) -> Link:
    """A connection to `place`, upgraded. `until`: give up earlier than usual.

    Raises `NotReachable`.
    """
    now = time.monotonic()
    limit = now + HANDSHAKE_WAIT if until is None else min(until, now + HANDSHAKE_WAIT)
    timeout = max(0.001, limit - now)  # 0 would mean: not at all
    try:
        if place.socket is not None:
            sock = connect_unix(place.socket, timeout)
        else:
            assert place.address is not None
            sock = socket.create_connection(place.address, timeout=timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as exc:
        raise unreachable(place, exc) from exc
    link = Link(sock, place, wake)
    try:
        link.shake_hands(limit)
    except (ConnectionLost, ProtocolFailure) as exc:
        sock.close()
        raise NotReachable(f"not reachable at {spot(place)} ({exc})") from exc
    except BaseException:
        sock.close()
        raise
    return link


def spot(place: Place) -> str:
    """Where the connection goes, for people."""
    return tilde(place.socket) if place.socket is not None else place.url


def unreachable(place: Place, exc: OSError) -> NotReachable:
    """What to say where no connection could be made, and whether nobody listens."""
    reason = {
        ConnectionRefusedError: "refused",
        FileNotFoundError: "no socket",
        PermissionError: "permission denied",
        TimeoutError: "no answer",
    }.get(type(exc), (exc.strerror or str(exc)).lower())
    lines = [f"not reachable at {spot(place)} ({reason})"]
    if place.socket is not None and place.pid is not None:
        state = "is there and does not listen" if is_alive(place.pid) else "is gone"
        lines.append(f"{FACTS} names pid {place.pid}, which {state}. Start it: engine serve")
    absent = place.socket is not None and reason in ("refused", "no socket")
    return NotReachable(*lines, absent=absent)


def refusal(place: Place, status: int) -> NotReachable:
    """What to say where the front door answered with this HTTP status."""
    if status == 401:
        where, file = place.url or spot(place), tilde(place.token_from)
        if file:
            return TokenRefused(f"token refused (401) by {where}; it was read from {file}")
        return TokenRefused(
            f"token refused (401) by {where}",
            f"{FACTS} was read from {tilde(place.home)}. Another engine may own this port.",
        )
    return NotReachable(f"refused ({status}) by {spot(place)}")
