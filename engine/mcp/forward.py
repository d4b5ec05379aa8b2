"""`engine mcp --http HOST:PORT`: the engine's /mcp at an address of its own.

Passes bytes on between that address and the engine's socket, where the doors are: it knows no HTTP
and holds no token. The engine may be started again meanwhile; the next connection finds it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

import trio

from engine.client.errors import ClientError, NotReachable
from engine.client.places import find_place
from engine.client.sockets import unreachable
from engine.client.start import start_engine
from engine.client.transport import open_stream
from engine.mcp.wire import PATH
from engine.server.listeners import CannotListen, parse_listen

CHUNK_BYTES: Final = 1 << 16
CONNECTIONS: Final = 1_000  # at once; who comes then waits to be accepted
USAGE: Final = 2  # exit codes, as of the other verbs
UNREACHABLE: Final = 69


class Target(NamedTuple):
    """Which engine. `home` is absolute."""

    home: str
    url: str | None
    environ: Mapping[str, str]
    may_start: bool


def run(target: Target, listen: str) -> int:
    """Forward until SIGTERM or SIGINT; the exit code."""
    code, words = 0, ""
    try:
        trio.run(partial(serve, target, listen))
    except* CannotListen as group:
        code, words = USAGE, str(group.exceptions[0])
    except* (ClientError, OSError) as group:
        code, words = UNREACHABLE, str(group.exceptions[0])
    if words:
        print(f"engine mcp: {words}", file=sys.stderr)
    return code


async def serve(target: Target, listen: str) -> None:
    """Print the URL and forward until a signal comes. Raises CannotListen, ClientError, OSError."""
    address = parse_listen(listen)
    async with await _reach(target):  # or there is nothing to forward to
        pass
    (listener,) = await trio.open_tcp_listeners(address.port, host=address.host)
    host, port, *_ = listener.socket.getsockname()
    room = trio.CapacityLimiter(CONNECTIONS)
    async with trio.open_nursery() as serving_nursery:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            handler = partial(_forward, target, room)
            serving_nursery.start_soon(trio.serve_listeners, handler, [listener])
            where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            print(f"http://{where}{PATH}", flush=True)
            async for _number in signals:
                serving_nursery.cancel_scope.cancel()


async def _reach(target: Target) -> trio.SocketStream:
    """A connection to the engine, which is started where none is. Raises `ClientError`."""
    try:
        return await _connect(target)
    except NotReachable as exc:
        if not exc.absent or not target.may_start:
            raise
    await trio.to_thread.run_sync(start_engine, target.home, dict(target.environ))
    return await _connect(target)


async def _connect(target: Target) -> trio.SocketStream:
    place = find_place(target.home, target.url, dict(target.environ))
    try:
        return await open_stream(place)
    except OSError as exc:
        raise unreachable(place, exc) from exc


async def _forward(target: Target, room: trio.CapacityLimiter, client: trio.SocketStream) -> None:
    """One connection, until both sides have ended it or one is gone."""
    async with client, room:
        try:
            async with await _reach(target) as engine, trio.open_nursery() as way_nursery:
                way_nursery.start_soon(_pump, client, engine)
                way_nursery.start_soon(_pump, engine, client)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # one side is gone: leaving the block tells the other
        except* ClientError as group:
            print(f"engine mcp: {group.exceptions[0]}", file=sys.stderr)


async def _pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    async for data in source:
        await sink.send_all(data)
    await sink.send_eof()
