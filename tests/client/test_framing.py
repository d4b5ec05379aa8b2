"""Mirrors `engine/client/framing.py`: against wsproto as the server, in any cut of the bytes."""

from __future__ import annotations

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.events import Message as WsMessage

from engine.client.errors import ProtocolFailure
from engine.client.framing import Closed, Event, Framing, Message, Opened, Rejected


def server_for(client: Framing) -> WSConnection:
    """A server that has read the client's opening."""
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(client.opening("localhost", "t" * 43))
    [request] = server.events()
    assert isinstance(request, Request)
    assert (request.host, request.target) == ("localhost", "/rpc")
    assert (b"authorization", b"Bearer " + b"t" * 43) in request.extra_headers
    return server


def feed(client: Framing, data: bytes, step: int) -> tuple[list[Event], bytes]:
    events: list[Event] = []
    replies = b""
    for i in range(0, len(data), step):
        more, reply = client.receive(data[i : i + step])
        events += more
        replies += reply
    return events, replies


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_messages_come_whole_whatever_the_cut(step: int) -> None:
    client = Framing()
    server = server_for(client)
    text = "grün " * 50
    data = server.send(AcceptConnection())
    data += server.send(TextMessage(data=text[:100], message_finished=False))
    data += server.send(TextMessage(data=text[100:]))
    data += server.send(Ping(payload=b"p"))
    data += server.send(TextMessage(data="second"))
    data += server.send(CloseConnection(code=1001, reason="bye"))
    events, replies = feed(client, data, step)
    assert events == [Opened(), Message(text), Message("second"), Closed(1001, "bye")]
    server.receive_data(replies)
    assert [type(e).__name__ for e in server.events()] == ["Pong"]


def test_what_the_client_sends_arrives() -> None:
    client = Framing()
    server = server_for(client)
    client.receive(server.send(AcceptConnection()))
    server.receive_data(client.text("ü" * 70_000))
    received = "".join(e.data for e in server.events() if isinstance(e, WsMessage))
    assert received == "ü" * 70_000


def test_a_refusal_at_the_door_is_told_with_its_status() -> None:
    client = Framing()
    server = server_for(client)
    data = server.send(RejectConnection(status_code=401, headers=[(b"content-length", b"0")]))
    assert client.receive(data)[0] == [Rejected(401)]


def test_an_end_without_goodbye_is_an_end() -> None:
    client = Framing()
    client.receive(server_for(client).send(AcceptConnection()))
    assert client.receive(b"")[0] == [Closed(1006, "")]


def test_an_end_in_the_handshake_is_an_end_too() -> None:
    client = Framing()
    client.opening("localhost", "t")
    assert client.receive(b"") == ([Closed(1006, "")], b"")


@pytest.mark.parametrize("data", [b"HTTP/1.1 200 OK\r\n\r\n", b"\x00\x01garbage\r\n\r\n"])
def test_who_speaks_no_websocket_is_a_protocol_failure_or_a_refusal(data: bytes) -> None:
    client = Framing()
    client.opening("localhost", "t")
    try:
        events, _ = client.receive(data)
    except ProtocolFailure:
        return
    assert events == [Rejected(200)]


def test_a_binary_frame_is_a_protocol_failure() -> None:
    client = Framing()
    server = server_for(client)
    client.receive(server.send(AcceptConnection()))
    with pytest.raises(ProtocolFailure):
        client.receive(server.send(BytesMessage(data=b"x")))
