"""Mirrors `engine/server/frontdoor.py`: real sockets, raw bytes."""

from __future__ import annotations

import errno
import json
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from serving import LIMIT, Gate, Served, call, raw, read_all, receive, serving
from structlog.testing import capture_logs
from trio_websocket import ConnectionClosed, WebSocketConnection
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect, unix_connect

from engine.server import frontdoor, porch
from engine.server.doors import Doors
from engine.server.listeners import peer_name

HANDSHAKE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


def status_of(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def body_of(response: bytes) -> bytes:
    return response.partition(b"\r\n\r\n")[2]


def header_of(response: bytes, name: str) -> str | None:
    head = response.partition(b"\r\n\r\n")[0].decode("latin-1")
    pairs = [line.partition(": ") for line in head.split("\r\n")[1:]]
    return next((value for key, _, value in pairs if key.lower() == name.lower()), None)


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/livez?x=1"])
async def test_the_engine_says_that_it_lives(path: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        response = await served.get(path)
    assert (status_of(response), body_of(response)) == (200, b"ok\n")
    assert header_of(response, "Cache-Control") == "no-store"
    assert header_of(response, "X-Content-Type-Options") == "nosniff"


async def test_the_engine_says_whether_it_is_ready_and_else_why_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        response = await served.get("/readyz")
        assert (status_of(response), body_of(response)) == (200, b"ready\n")
        served.readiness[0] = "recovering"
        response = await served.get("/readyz")
        assert (status_of(response), body_of(response)) == (503, b"recovering\n")


async def test_whoami_tells_the_role_of_a_token(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        response = await served.get("/whoami", f"Authorization: Bearer {served.tokens.observer}")
        assert status_of(response) == 200
        assert json.loads(body_of(response)) == {
            "role": "observer",
            "version": "0.1.0",
            "protocol": 1,
            "startedAt": "2026-01-02T03:04:05.678Z",
        }
        response = await served.get("/whoami")
        assert status_of(response) == 401
        assert header_of(response, "WWW-Authenticate") == "Bearer"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/rpc/", 404),
        ("GET", "//rpc", 404),
        ("GET", "/../livez", 404),
        ("GET", "/%2e%2e/livez", 404),
        ("POST", "/livez", 405),
        ("DELETE", "/whoami", 405),
        ("GET", "/rpc", 401),
        ("OPTIONS", "*", 404),
    ],
)
async def test_what_is_no_page_is_refused(
    method: str, path: str, status: int, tmp_path: Path
) -> None:
    async with serving(tmp_path) as served:
        response = await served.get(path, method=method)
    assert status_of(response) == status
    assert header_of(response, "Allow") == ("GET, HEAD" if status == 405 else None)


async def test_head_has_the_headers_and_no_body(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        response = await served.get("/livez", method="HEAD")
    assert (status_of(response), body_of(response)) == (200, b"")
    assert header_of(response, "Content-Length") == "3"


async def test_rpc_without_a_handshake_asks_for_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        token = f"Authorization: Bearer {served.tokens.agent}"
        response = await served.get("/rpc", token)
        assert (status_of(response), header_of(response, "Upgrade")) == (426, "websocket")
        upgrade = [token, "Upgrade: websocket", "Connection: Upgrade"]
        key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
        response = await served.get("/rpc", *upgrade, key, "Sec-WebSocket-Version: 8")
        assert status_of(response) == 426
        assert header_of(response, "Sec-WebSocket-Version") == "13"
        response = await served.get("/rpc", *upgrade, "Sec-WebSocket-Version: 13")
        assert status_of(response) == 400


@pytest.mark.case("C146")
async def test_a_host_that_is_not_ours_is_refused_on_every_path(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for path in ("/livez", "/readyz", "/whoami", "/rpc", "/nothing"):
            for host, status in (
                (f"attacker.example:{served.port}", 403),
                (f"127.0.0.1:{served.port - 1}", 403),
                ("127.0.0.1", 403),
            ):
                data = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
                assert status_of(await served.exchange(data)) == status, (path, host)
        for host in ("127.0.0.1", "localhost", "[::1]"):
            data = f"GET /livez HTTP/1.1\r\nHost: {host}:{served.port}\r\n\r\n".encode()
            assert status_of(await served.exchange(data)) == 200, host


async def test_two_hosts_or_none_are_a_bad_request(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert status_of(await served.get("/livez", f"Host: 127.0.0.1:{served.port}")) == 400
        assert status_of(await served.exchange(b"GET /livez HTTP/1.1\r\n\r\n")) == 400
        assert status_of(await served.exchange(b"GET /livez HTTP/1.0\r\n\r\n")) == 400


@pytest.mark.parametrize("origin", ["null", "https://attacker.example", "http://127.0.0.1:1"])
async def test_an_origin_that_is_not_allowed_is_refused(origin: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert status_of(await served.get("/livez", f"Origin: {origin}")) == 403


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /livez\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
    ],
    ids=["tls", "no version", "bad header", "70 kB header"],
)
async def test_bytes_that_are_no_request_are_answered_and_not_reset(
    data: bytes, status: int, tmp_path: Path
) -> None:
    async with serving(tmp_path) as served:
        response = await served.exchange(data)
    assert status_of(response) == status
    assert not response.endswith(b"(reset)")


async def test_a_body_that_nobody_wants_does_not_reset_the_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        head = f"POST /livez HTTP/1.1\r\nHost: localhost:{served.port}\r\nContent-Length: 99999"
        response = await served.exchange(head.encode() + b"\r\n\r\n" + b"x" * 99_999)
    assert status_of(response) == 405
    assert not response.endswith(b"(reset)")


def talk(url: str, **options: Any) -> tuple[str | None, Any]:
    with connect(url, open_timeout=LIMIT, **options) as client:
        client.send('{"jsonrpc":"2.0","id":1,"method":"get_data"}')
        return client.subprotocol, json.loads(client.recv(timeout=LIMIT))["result"]


def refused(url: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as caught:
        talk(url, **options)
    return caught.value.response.status_code


async def test_a_browser_brings_its_token_by_subprotocol_and_does_not_get_it_back(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:

        def try_all() -> None:
            token = f"bearer.{served.tokens.agent}"
            own = f"http://127.0.0.1:{served.port}"
            both: list[Any] = ["engine.v1", token]
            alone: list[Any] = [token]
            wrong: list[Any] = ["engine.v1", f"bearer.{'x' * 43}"]
            good = ("engine.v1", ["hello", 5])
            assert talk(served.url, subprotocols=both, origin=own) == good
            assert talk(served.url, subprotocols=both, origin="https://allowed.example") == good
            assert refused(served.url, subprotocols=both, origin="https://x.example") == 403
            assert refused(served.url, subprotocols=both, origin="null") == 403
            assert refused(served.url, subprotocols=alone) == 400
            assert refused(served.url, subprotocols=wrong) == 401
            assert refused(served.url) == 401
            headers = {"Authorization": f"Bearer {'x' * 43}"}
            assert refused(served.url, additional_headers=headers) == 401

        await trio.to_thread.run_sync(try_all)


async def test_the_socket_in_the_home_has_the_same_doors(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:

        def try_all() -> None:
            path = str(tmp_path / "engine.sock")
            headers = {"Authorization": f"Bearer {served.tokens.agent}"}
            with unix_connect(path, "ws://localhost/rpc", additional_headers=headers) as client:
                client.send('{"jsonrpc":"2.0","id":1,"method":"get_data"}')
                assert json.loads(client.recv(timeout=LIMIT))["result"] == ["hello", 5]
            with pytest.raises(InvalidStatus) as caught:
                unix_connect(path, "ws://localhost/rpc")
            assert caught.value.response.status_code == 401
            with pytest.raises(InvalidStatus) as caught:
                unix_connect(path, "ws://attacker.example/rpc", additional_headers=headers)
            assert caught.value.response.status_code == 403

        await trio.to_thread.run_sync(try_all)


@pytest.mark.case("C144")
async def test_clients_that_say_nothing_or_little_are_sent_away_and_hold_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert frontdoor.HEAD_SECS == 10.0
    monkeypatch.setattr(frontdoor, "HEAD_SECS", 0.5)
    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        silent = [await trio.open_tcp_stream("127.0.0.1", served.port) for _ in range(100)]
        slow = await trio.open_tcp_stream("127.0.0.1", served.port)

        async def drip() -> None:
            try:
                while True:
                    await slow.send_all(b"G")
                    await trio.sleep(0.1)
            except trio.BrokenResourceError:
                return

        nursery.start_soon(drip)
        assert status_of(await served.get("/livez")) == 200
        with trio.fail_after(LIMIT):
            for stream in [*silent, slow]:
                async with stream:
                    assert not status_like(await read_all(stream))
            nursery.cancel_scope.cancel()


def status_like(response: bytes) -> bool:
    return response.startswith(b"HTTP/")


async def test_500_clients_at_once_are_all_served(tmp_path: Path) -> None:
    answered = 0

    async def one(served: Served) -> None:
        nonlocal answered
        async with served.client() as websocket:
            assert (await call(websocket, "get_data"))["result"] == ["hello", 5]
            answered += 1

    with trio.fail_after(60):
        async with serving(tmp_path) as served, trio.open_nursery() as nursery:
            for _ in range(500):
                nursery.start_soon(one, served)
    assert answered == 500


async def test_over_the_limit_of_connections_a_client_is_told_and_sent_away(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, max_connections=1) as served:
        async with served.client() as websocket:
            assert (await call(websocket, "get_data"))["result"] == ["hello", 5]
            assert status_of(await served.get("/rpc", *HANDSHAKE, bearer(served))) == 503
            assert status_of(await served.get("/rpc", *HANDSHAKE)) == 401
            assert status_of(await served.get("/livez")) == 200
            assert (await call(websocket, "get_data"))["result"] == ["hello", 5]
        with trio.fail_after(LIMIT):
            while status_of(await _knock(served)) != 101:
                pass  # each try waits for an answer: until the engine has seen the end


async def test_of_those_that_are_not_in_the_one_that_came_first_goes_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert porch.MOST_OUTSIDE == 1_000
    monkeypatch.setattr(porch, "MOST_OUTSIDE", 2)
    async with serving(tmp_path) as served, served.client() as websocket, AsyncExitStack() as stack:
        silent = []
        for _ in range(3):
            silent.append(await trio.open_tcp_stream("127.0.0.1", served.port))
            stack.push_async_callback(silent[-1].aclose)
        with trio.fail_after(LIMIT):
            assert await read_all(silent[0]) == b""
        await silent[1].send_all(b"GET /livez HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % served.port)
        with trio.fail_after(LIMIT):
            assert status_of(await read_all(silent[1])) == 200
        for _ in range(4):
            assert status_of(await served.get("/livez")) == 200
        # Those that are in are nobody's room.
        assert (await call(websocket, "get_data"))["result"] == ["hello", 5]


async def _knock(served: Served) -> bytes:
    """The answer to a handshake."""
    head = ["GET /rpc HTTP/1.1", f"Host: 127.0.0.1:{served.port}", *HANDSHAKE, bearer(served)]
    with trio.fail_after(LIMIT):
        async with await trio.open_tcp_stream("127.0.0.1", served.port) as stream:
            await stream.send_all("\r\n".join([*head, "", ""]).encode())
            return bytes(await stream.receive_some())


def bearer(served: Served) -> str:
    return f"Authorization: Bearer {served.tokens.agent}"


async def test_no_descriptor_left_is_waited_out_and_not_the_end(tmp_path: Path) -> None:
    class Exhausted(trio.abc.Listener[trio.SocketStream]):
        """A listener whose first accept finds no descriptor."""

        def __init__(self, inner: trio.SocketListener) -> None:
            self.inner, self.failures = inner, 1

        async def accept(self) -> trio.SocketStream:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return await self.inner.accept()

        async def aclose(self) -> None:
            await self.inner.aclose()

    [inner] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = inner.socket.getsockname()[1]
    async with serving(tmp_path) as served:
        door = frontdoor.FrontDoor(
            served.dispatcher, frontdoor.Pages(readiness=lambda: None, whoami=dict)
        )
        doors = Doors(tokens=served.tokens, port=port)
        listeners: Any = [(Exhausted(inner), doors)]
        async with trio.open_nursery() as nursery:
            with capture_logs() as logs:
                stop = trio.Event()
                await nursery.start(lambda **k: door.serve(listeners, stop=stop, **k))
                served.port = port
                assert status_of(await served.get("/livez")) == 200
            stop.set()
    assert [e["reason"] for e in logs if e["event"] == "cannot accept"] == ["Too many open files"]


async def close_code(websocket: WebSocketConnection) -> int:
    with trio.fail_after(LIMIT), pytest.raises(ConnectionClosed) as caught:
        await websocket.get_message()
    assert caught.value.reason is not None
    return caught.value.reason.code


async def test_at_the_end_the_last_replies_are_written_and_then_all_is_closed(
    tmp_path: Path,
) -> None:
    gate = Gate()
    async with (
        serving(tmp_path, {"gate": raw(gate.method)}) as served,
        served.client() as websocket,
    ):
        await websocket.send_message('{"jsonrpc":"2.0","id":1,"method":"gate"}')
        await gate.wait_until("started", 1)
        served.stop.set()
        with trio.fail_after(LIMIT):
            while not await is_refused(served):
                pass
        assert (await call(websocket, "get_data", id_=2))["error"]["code"] == -32006
        gate.opened.set()
        assert (await receive(websocket))["result"] == "through"
        assert await close_code(websocket) == 1001
        with trio.fail_after(LIMIT):
            await served.ended.wait()
    assert gate.settled == [True]


async def is_refused(served: Served) -> bool:
    """Whether nobody listens on the port any more."""
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", served.port)
    except OSError:
        return True
    await stream.aclose()
    return False


async def test_the_end_is_not_put_off_by_a_wait_or_by_a_client_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontdoor, "DRAIN_SECS", 0.2)
    gate = Gate()
    async with serving(tmp_path, {"gate": raw(gate.method)}) as served:
        silent = await trio.open_tcp_stream("127.0.0.1", served.port)
        async with silent, served.client() as websocket:
            await websocket.send_message('{"jsonrpc":"2.0","id":1,"method":"gate"}')
            await gate.wait_until("started", 1)
            served.stop.set()
            assert await close_code(websocket) == 1001
            with trio.fail_after(3):
                await served.ended.wait()
    assert gate.settled == [False]


async def test_a_peer_on_the_socket_in_the_home_is_told_by_its_process() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sock = trio.socket.from_stdlib_socket(ours)
        assert peer_name(sock) == f"pid {os.getpid()} uid {os.getuid()}"
