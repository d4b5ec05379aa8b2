"""The helper process: takes connections from the engine and speaks MCP on them.

It has the SDK, which is slow to load and large; the engine has not. It holds nothing of its own:
what it is asked it asks the engine, as a client on the engine's socket.
"""

from __future__ import annotations

import array
import gc
import logging
import os
import socket
import sys
import traceback
import warnings
from typing import Any, Final

import h11
import structlog
import trio
import trio.testing

from engine.client.errors import ClientError
from engine.mcp.control import (
    PACKET_MAX_BYTES,
    Client,
    Closed,
    Note,
    Setup,
    decode_to_helper,
    encode,
)
from engine.mcp.face import Busy, Face
from engine.mcp.http import HttpFace
from engine.mcp.lines import BadLine, Lines, accept, converse
from engine.mcp.link import Link
from engine.mcp.peers import HttpPeers, Peer, hello_of, place_of
from engine.mcp.wire import PROTOCOL
from engine.server.doors import Doors, bearer_of, values
from engine.server.tokens import Tokens

FLUSH_SECS: Final = 1.0  # when the engine ends: for answers that it has given to be passed on
FACT_MAX: Final = 8_000  # characters of one fact in the log
_DESCRIPTOR_BYTES: Final = array.array("i").itemsize

log = structlog.stdlib.get_logger("engine.mcp")


class Control:
    """The socket to the engine."""

    def __init__(self, fd: int) -> None:
        self._plain = socket.socket(fileno=fd)
        self._socket = trio.socket.from_stdlib_socket(self._plain)

    async def receive(self) -> tuple[Setup | Client, int] | None:
        """The next packet and the descriptor that came with it (or -1); None at the end."""
        room = socket.CMSG_SPACE(_DESCRIPTOR_BYTES)
        data, ancillary, _flags, _from = await self._socket.recvmsg(
            PACKET_MAX_BYTES, room, socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            return None
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content)
        return decode_to_helper(data), descriptors[0] if descriptors else -1

    async def closed(self, id_: int) -> None:
        """Tell the engine that a client is gone; one that is gone itself need not know."""
        try:
            await self._socket.send(encode(Closed(id=id_)))
        except OSError as exc:
            log.debug("mcp_engine_gone", reason=exc.strerror)

    def note(self, level: str, event: str, facts: dict[str, Any]) -> None:
        """Have the engine log a line; where it takes none now, it goes to standard error."""
        shown = {name: _plain(value) for name, value in facts.items()}
        try:
            self._plain.send(encode(Note(level=level, event=event, facts=shown)))
        except OSError:
            print(f"{level} {event} {shown}", file=sys.stderr, flush=True)


def _plain(value: Any) -> Any:
    """`value` as a packet may hold it."""
    if isinstance(value, bool | int | float | None):
        return value
    return str(value)[-FACT_MAX:]  # the end of a traceback says what it was


class _ToEngine(logging.Handler):
    """What the libraries log, as lines of the engine's log."""

    def __init__(self, control: Control) -> None:
        super().__init__(logging.WARNING)
        self._control = control

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        facts = {"logger": record.name, "text": record.getMessage()}
        if record.exc_info is not None:
            facts["exception"] = logging.Formatter().formatException(record.exc_info)
        self._control.note(level, "mcp_library", facts)


def configure_logging(control: Control) -> None:
    """Have all that is logged here appear in the engine's log."""

    def pass_on(_logger: Any, level: str, event: Any) -> Any:
        said = dict(event)
        if exc_info := said.pop("exc_info", None):
            wanted = exc_info if isinstance(exc_info, tuple) else sys.exc_info()
            said["exception"] = "".join(traceback.format_exception(*wanted))
        control.note(level, str(said.pop("event", "")), said)
        raise structlog.DropEvent

    structlog.configure(
        processors=[pass_on], wrapper_class=structlog.make_filtering_bound_logger("info")
    )
    logging.basicConfig(handlers=[_ToEngine(control)], level=logging.WARNING)


class Conversations:
    """The connections that the helper has."""

    def __init__(self, control: Control, setup: Setup, nursery: trio.Nursery) -> None:
        self._control, self._setup, self._nursery = control, setup, nursery
        self._busy = Busy()
        self._peers = HttpPeers(setup.home, setup.socket, nursery)
        self._http = HttpFace(self._peers, self._busy)

    async def serve(self) -> None:
        """Take connections until the engine ends, and then let what it has answered be written."""
        async with self._http.open(), trio.open_nursery() as client_nursery:
            client_nursery.start_soon(self._peers.serve)
            while (got := await self._control.receive()) is not None:
                packet, descriptor = got
                assert isinstance(packet, Client)
                client_nursery.start_soon(self._serve_client, packet, descriptor)
            with trio.move_on_after(FLUSH_SECS):
                await self._busy.wait_idle()
                await trio.testing.wait_all_tasks_blocked()  # the last answers are written
            client_nursery.cancel_scope.cancel()

    async def _serve_client(self, client: Client, descriptor: int) -> None:
        """One connection, from what was read of it to its end. Raises nothing."""
        sock = trio.socket.from_stdlib_socket(socket.socket(fileno=descriptor))
        stream = trio.SocketStream(sock)
        try:
            await self._speak(stream, client)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, BadLine, ClientError) as gone:
            log.info("mcp_client_gone", reason=str(gone.exceptions[0]))
        except* Exception:  # a bug of ours ends this client, not the others
            log.exception("mcp_client_failed")
        finally:
            await trio.aclose_forcefully(stream)
            with trio.CancelScope(shield=True):  # a packet of some bytes; the engine reads
                await self._control.closed(client.id)

    async def _speak(self, stream: trio.SocketStream, client: Client) -> None:
        http = h11.Connection(h11.SERVER)
        http.receive_data(client.seen)
        head = http.next_event()
        assert isinstance(head, h11.Request)  # the engine has read it
        if PROTOCOL.encode() in [value.encode() for value in values(head.headers, b"upgrade")]:
            token = bearer_of(values(head.headers, b"authorization"))
            rest, _ended = http.trailing_data
            await self._serve_lines(stream, rest, token)
        else:
            await self._http.serve(stream, client.seen, self._doors(client.port))

    async def _serve_lines(self, stream: trio.SocketStream, rest: bytes, token: str) -> None:
        await accept(stream)
        lines = Lines(stream, rest)
        greeting = await lines.greeting()
        said = {"cwd": greeting.cwd, "env": greeting.env, "client": greeting.client}
        place = place_of(self._setup.home, self._setup.socket, token)
        link = Link(place, hello_of(greeting.name, said), self._nursery)
        peer = Peer(link=link, name=greeting.name, max_wait=greeting.max_wait)
        try:
            await link.open()
            await converse(Face(lambda _ctx: peer, self._busy).make_server(), stream, lines)
        finally:
            link.close()

    def _doors(self, port: int | None) -> Doors:
        """Those of the listener to which a connection came."""
        setup = self._setup
        tokens = Tokens(
            agent=setup.agent_token, observer=setup.observer_token, human=setup.human_token
        )
        return Doors(
            tokens=tokens,
            port=port,
            own_port=setup.own_port,
            hosts=frozenset(setup.hosts),
            origins=frozenset(setup.origins),
        )


async def serve(fd: int) -> None:
    """Serve what the engine hands over on this socket, until it closes it."""
    control = Control(fd)
    configure_logging(control)
    first = await control.receive()
    if first is None:
        return
    setup, _none = first
    assert isinstance(setup, Setup)
    async with trio.open_nursery() as link_nursery:
        await Conversations(control, setup, link_nursery).serve()
        link_nursery.cancel_scope.cancel()


def main() -> None:
    """`helper FD`: the descriptor of the socket to the engine. The collector is off so far."""
    warnings.filterwarnings("ignore", module=r"mcp\..*")  # the SDK's own deprecations
    gc.freeze()
    gc.enable()
    os.set_inheritable(int(sys.argv[1]), False)
    trio.run(serve, int(sys.argv[1]))
