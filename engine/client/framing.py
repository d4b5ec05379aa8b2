"""A WebSocket connection seen from the client, without a socket: bytes in, events out.

wsproto does the handshake and the frames; this puts messages together and answers pings. RFC 6455.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from engine.client.errors import ProtocolFailure

MAX_MESSAGE: Final = 16 << 20  # characters; the engine's replies end at 1 MiB
ABNORMAL: Final = 1006  # close code: RFC 6455, 7.4.1
PATH: Final = "/rpc"


class Opened(NamedTuple):
    """The engine took the handshake."""


class Rejected(NamedTuple):
    """The front door answered with an HTTP status instead."""

    status: int


class Message(NamedTuple):
    """One whole text message."""

    text: str


class Closed(NamedTuple):
    """The connection has ended, in order or by end of file (code 1006)."""

    code: int
    reason: str


Event = Opened | Rejected | Message | Closed


class Framing:
    """The state of one connection: `opening`, then `receive` and `text` in any order."""

    def __init__(self) -> None:
        self._ws = WSConnection(ConnectionType.CLIENT)
        self._parts: list[str] = []
        self._length = 0

    def opening(self, host: str, token: str) -> bytes:
        """The bytes of the upgrade request, the token in its Authorization header."""
        headers = [(b"authorization", b"Bearer " + token.encode("ascii"))]
        return self._ws.send(Request(host=host, target=PATH, extra_headers=headers))

    def text(self, text: str) -> bytes:
        """The bytes of one text message."""
        return self._ws.send(TextMessage(data=text))

    def closing(self) -> bytes:
        """The bytes that end the connection; none where it has ended."""
        try:
            return self._ws.send(CloseConnection(code=1000))
        except LocalProtocolError:
            return b""

    def receive(self, data: bytes) -> tuple[list[Event], bytes]:
        """The events in `data` (empty: end of file), and bytes that are due in return.

        Raises `ProtocolFailure` for bytes that are no WebSocket.
        """
        if not data and self._ws.state is ConnectionState.CONNECTING:
            return [Closed(ABNORMAL, "")], b""  # which wsproto would call a bad HTTP message
        events: list[Event] = []
        reply = b""
        try:
            self._ws.receive_data(data or None)
            for event in self._ws.events():
                if isinstance(event, Ping):
                    reply += self._ws.send(event.response())
                elif isinstance(event, TextMessage):
                    events.extend(self._gather(event))
                elif isinstance(event, CloseConnection):
                    events.append(Closed(int(event.code), event.reason or ""))
                elif isinstance(event, AcceptConnection):
                    events.append(Opened())
                elif isinstance(event, RejectConnection):
                    events.append(Rejected(event.status_code))
                elif isinstance(event, BytesMessage):
                    raise ProtocolFailure("the engine sent a binary frame")
        except (RemoteProtocolError, LocalProtocolError) as exc:
            raise ProtocolFailure(f"that is no WebSocket: {exc}") from exc
        return events, reply

    def _gather(self, event: TextMessage) -> list[Event]:
        self._parts.append(event.data)
        self._length += len(event.data)
        if self._length > MAX_MESSAGE:
            raise ProtocolFailure("the engine sent a message over 16 MiB")
        if not event.message_finished:
            return []
        whole = "".join(self._parts)
        self._parts, self._length = [], 0
        return [Message(whole)]
