"""One open connection to an engine: a blocking socket under `Framing`.

Waits end at a deadline or when a `Wake` becomes readable (a signal came), never by polling.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import Final, Protocol

from engine.client.errors import (
    ConnectionLost,
    NotReachable,
    ProtocolFailure,
    Unsendable,
)
from engine.client.framing import Closed, Framing, Message, Opened, Rejected
from engine.client.places import Place
from engine.client.sockets import (
    HANDSHAKE_WAIT,
    hung_up,
    open_socket,
    refusal,
    spot,
    wait_readable,
)

SEND_WAIT: Final = 30.0  # seconds in which the engine takes none of what we send
CHUNK: Final = 1 << 18  # bytes a read
GOING_AWAY: Final = 1001  # close codes: RFC 6455, 7.4.1
TOO_BIG: Final = 1009


class Wake(Protocol):
    """What may end a wait early: readable when something (a signal) is to be looked at."""

    def fileno(self) -> int: ...

    def drain(self) -> None:
        """Make it unreadable again; what happened is kept for whoever looks."""


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

    Raises `NotReachable`; `absent` also where the engine went away in the handshake.
    """
    now = time.monotonic()
    limit = now + HANDSHAKE_WAIT if until is None else min(until, now + HANDSHAKE_WAIT)
    sock = open_socket(place, max(0.001, limit - now))  # 0 would mean: not at all
    link = Link(sock, place, wake)
    try:
        link.shake_hands(limit)
    except ConnectionLost as exc:
        sock.close()
        raise hung_up(place, str(exc)) from exc
    except ProtocolFailure as exc:
        sock.close()
        raise NotReachable(f"not reachable at {spot(place)} ({exc})") from exc
    except BaseException:
        sock.close()
        raise
    return link
