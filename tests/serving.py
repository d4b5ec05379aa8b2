"""A front door on real sockets, with a table of methods that exists in tests only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import trio
from trio_websocket import WebSocketConnection, wrap_client_stream

from engine.errors import InvalidParams
from engine.server.dispatcher import Dispatcher, Method, Request
from engine.server.doors import Doors
from engine.server.frontdoor import FrontDoor, Pages
from engine.server.listeners import open_tcp, open_unix, tcp_port
from engine.server.tokens import Tokens, load_or_make_tokens

LIMIT = 10.0  # seconds for anything that a test waits for


class Gate:
    """A method that waits until the test lets it go, and tells what became of each call."""

    def __init__(self) -> None:
        self.opened = trio.Event()
        self.settled: list[bool] = []
        self._counts: dict[str, int] = {"started": 0, "ended": 0}
        self._changed = trio.Event()

    async def method(self, request: Request, params: Any) -> str:
        request.finished = self._settle
        self._count("started")
        try:
            await self.opened.wait()
            return "through"
        finally:
            self._count("ended")

    def _settle(self, written: bool) -> None:
        self.settled.append(written)
        self._count("settled")

    def _count(self, what: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1
        self._changed.set()
        self._changed = trio.Event()

    async def wait_until(self, what: str, count: int) -> None:
        with trio.fail_after(LIMIT):
            while self._counts.get(what, 0) < count:
                await self._changed.wait()


async def subtract(request: Request, params: msgspec.Raw | None) -> Any:
    values = msgspec.json.decode(params or b"[]")
    if isinstance(values, dict):
        values = [values["minuend"], values["subtrahend"]]
    if not all(isinstance(value, int) for value in values):
        raise InvalidParams("$", "two numbers")
    return values[0] - values[1]


async def add_up(request: Request, params: msgspec.Raw | None) -> Any:
    return sum(msgspec.json.decode(params or b"[]"))


async def get_data(request: Request, params: msgspec.Raw | None) -> Any:
    return ["hello", 5]


async def ignore(request: Request, params: msgspec.Raw | None) -> Any:
    return None


async def fail(request: Request, params: msgspec.Raw | None) -> Any:
    raise KeyError("a secret of ours")


async def fill(request: Request, params: msgspec.Raw | None) -> Any:
    """A result of so many characters as the one param says."""
    return "x" * msgspec.json.decode(params or b"[0]")[0]


def raw(handler: Any, **options: Any) -> Method:
    return Method(handler=handler, params=None, **options)


def table() -> dict[str, Method]:
    return {
        "subtract": raw(subtract),
        "sum": raw(add_up),
        "get_data": raw(get_data),
        "update": raw(ignore),
        "notify_hello": raw(ignore),
        "notify_sum": raw(ignore),
        "fail": raw(fail),
        "fill": raw(fill),
        "answer": raw(get_data, roles=frozenset({"human"})),
    }


@dataclass
class Served:
    home: Path
    port: int
    tokens: Tokens
    dispatcher: Dispatcher
    stop: trio.Event
    ended: trio.Event
    readiness: list[str | None]

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/rpc"

    def bearer(self, role: str = "agent") -> list[tuple[bytes, bytes]]:
        return [(b"Authorization", f"Bearer {getattr(self.tokens, role)}".encode())]

    @asynccontextmanager
    async def client(self, role: str = "agent") -> AsyncIterator[WebSocketConnection]:
        host = f"127.0.0.1:{self.port}"
        async with (
            await trio.open_tcp_stream("127.0.0.1", self.port) as stream,  # closed by us: the
            trio.open_nursery() as nursery,  # client library leaves it open where we end first
        ):
            websocket = await wrap_client_stream(
                nursery, stream, host, "/rpc", extra_headers=self.bearer(role)
            )
            async with websocket:
                yield websocket
            nursery.cancel_scope.cancel()

    async def exchange(self, data: bytes) -> bytes:
        """What comes back for raw `data` on a connection of its own, until the engine ends it."""
        with trio.fail_after(LIMIT):
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                await stream.send_all(data)
                return await read_all(stream)

    async def get(self, path: str, *headers: str, method: str = "GET") -> bytes:
        host = f"Host: 127.0.0.1:{self.port}"
        lines = [f"{method} {path} HTTP/1.1", host, *headers, "", ""]
        return await self.exchange("\r\n".join(lines).encode())


async def read_all(stream: trio.abc.ReceiveStream) -> bytes:
    seen = b""
    try:
        while data := await stream.receive_some():
            seen += bytes(data)
    except trio.BrokenResourceError:
        return seen + b"(reset)"
    return seen


async def call(
    websocket: WebSocketConnection, method: str, params: Any = None, id_: Any = 1
) -> Any:
    """The reply to one call; any other frame that comes first is an error of the test."""
    message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    await websocket.send_message(json.dumps(message))
    return await receive(websocket)


async def receive(websocket: WebSocketConnection) -> Any:
    with trio.fail_after(LIMIT):
        return json.loads(await websocket.get_message())


@asynccontextmanager
async def serving(
    home: Path, methods: Mapping[str, Method] | None = None, **options: Any
) -> AsyncIterator[Served]:
    max_connections = options.pop("max_connections", 1_000)
    tokens = load_or_make_tokens(home)
    dispatcher = Dispatcher({**table(), **(methods or {})}, **options)
    readiness: list[str | None] = [None]
    facts = {"version": "0.1.0", "protocol": 1, "startedAt": "2026-01-02T03:04:05.678Z"}
    pages = Pages(readiness=lambda: readiness[0], whoami=lambda: facts)
    door = FrontDoor(dispatcher, pages, max_connections=max_connections)
    tcp, unix = open_tcp(home, "127.0.0.1:0"), open_unix(home)
    port = tcp_port(tcp)
    doors = Doors(
        tokens=tokens,
        port=port,
        own_port=port,
        origins=frozenset({"https://allowed.example"}),
    )
    listeners = [(tcp, doors), (unix, dataclasses.replace(doors, port=None))]
    stop, ended = trio.Event(), trio.Event()

    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        await door.serve(listeners, stop=stop, task_status=task_status)
        ended.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        yield Served(home, port, tokens, dispatcher, stop, ended, readiness)
        nursery.cancel_scope.cancel()
