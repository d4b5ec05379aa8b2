"""Mirrors `engine/server/connection.py`: real sockets, clients that misbehave."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from serving import LIMIT, Gate, Served, call, raw, read_all, receive, serving
from structlog.testing import capture_logs
from trio_websocket import ConnectionClosed, WebSocketConnection
from websockets.sync.client import connect
from wsproto import ConnectionType, WSConnection
from wsproto.events import Request

from engine.server import connection as module
from engine.server import stream as stream_module
from engine.server.connection import Connection
from engine.server.dispatcher import Request as EngineRequest


async def closed_with(websocket: WebSocketConnection) -> int:
    with trio.fail_after(LIMIT), pytest.raises(ConnectionClosed) as caught:
        await websocket.get_message()
    assert caught.value.reason is not None
    return caught.value.reason.code


def handshake(served: Served) -> bytes:
    client = WSConnection(ConnectionType.CLIENT)
    host = f"127.0.0.1:{served.port}"
    return client.send(Request(host=host, target="/rpc", extra_headers=served.bearer()))


async def raw_client(served: Served) -> trio.SocketStream:
    """A client past its handshake whose frames the test makes, and reads, itself."""
    stream = await trio.open_tcp_stream("127.0.0.1", served.port)
    await stream.send_all(handshake(served))
    seen = b""
    with trio.fail_after(LIMIT):
        while not seen.endswith(b"\r\n\r\n"):
            seen += bytes(await stream.receive_some(1))
    assert seen.startswith(b"HTTP/1.1 101 ")
    return stream


def frame(payload: bytes, *, opcode: int = 1, is_last: bool = True) -> bytes:
    """A client's frame, masked with zeros (RFC 6455, section 5.2)."""
    first = (0x80 if is_last else 0) | opcode
    if len(payload) < 126:
        size = struct.pack("!B", 0x80 | len(payload))
    else:
        size = struct.pack("!BQ", 0x80 | 127, len(payload))
    return bytes([first]) + size + b"\0\0\0\0" + payload


def request(method: str, params: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def test_a_foreign_client_has_its_call_answered(tmp_path: Path) -> None:
    def talk(url: str, token: str) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        with connect(url, additional_headers=headers, open_timeout=LIMIT) as client:
            client.send(request("subtract", [42, 23]).decode())
            reply = json.loads(client.recv(timeout=LIMIT))
            client.send('{"jsonrpc":"2.0","id":2,"method":"get_data"}')
            return reply, json.loads(client.recv(timeout=LIMIT))

    async def main() -> Any:
        async with serving(tmp_path) as served:
            return await trio.to_thread.run_sync(talk, served.url, served.tokens.agent)

    assert trio.run(main) == (
        {"jsonrpc": "2.0", "id": 1, "result": 19},
        {"jsonrpc": "2.0", "id": 2, "result": ["hello", 5]},
    )


async def test_a_handler_sees_where_its_client_comes_from(tmp_path: Path) -> None:
    seen: list[Connection] = []

    async def look(request: EngineRequest, params: Any) -> Any:
        seen.append(request.connection)

    async with serving(tmp_path, {"look": raw(look)}) as served:
        async with served.client("observer") as websocket:
            await call(websocket, "look")
        async with served.client() as websocket:
            await call(websocket, "look")
    assert [connection.role for connection in seen] == ["observer", "agent"]
    assert all(connection.peer.startswith("127.0.0.1 port ") for connection in seen)
    names = {connection.name for connection in seen}
    assert len(names) == 2
    assert all(name.startswith("anon-") and len(name) == 15 for name in names)


async def test_each_connection_is_told_of_once_when_it_opens_and_once_when_it_ends(
    tmp_path: Path,
) -> None:
    told: list[tuple[str, str]] = []
    closed = trio.Event()

    def on_closed(connection: Connection) -> None:
        told.append(("closed", connection.name))
        closed.set()

    def on_opened(connection: Connection) -> None:
        told.append(("opened", connection.name))

    async with serving(tmp_path, opened=on_opened, closed=on_closed) as served:
        async with served.client() as websocket:
            await call(websocket, "get_data")
            assert [what for what, _ in told] == ["opened"]
        with trio.fail_after(LIMIT):
            await closed.wait()
    assert [what for what, _ in told] == ["opened", "closed"]
    assert told[0][1] == told[1][1]


async def test_a_client_that_ends_has_its_waits_ended(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(tmp_path, {"gate": raw(gate.method)}) as served:
        async with await raw_client(served) as stream:
            await stream.send_all(frame(request("gate")) * 3)
            await gate.wait_until("started", 3)
        await gate.wait_until("ended", 3)
        await gate.wait_until("settled", 3)
    assert gate.settled == [False] * 3


async def test_a_frame_that_comes_in_pieces_is_one_message(tmp_path: Path) -> None:
    text = request("subtract", [42, 23])
    fragments = (
        frame(text[:10], is_last=False)
        + frame(text[10:20], opcode=0, is_last=False)
        + frame(text[20:], opcode=0)
    )
    async with serving(tmp_path) as served, await raw_client(served) as stream:
        for i in range(len(fragments)):
            await stream.send_all(fragments[i : i + 1])
        with trio.fail_after(LIMIT):
            reply = bytes(await stream.receive_some())
    assert json.loads(reply[2:]) == {"jsonrpc": "2.0", "id": 1, "result": 19}


async def test_frames_sent_together_with_the_handshake_are_answered(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as served,
        await trio.open_tcp_stream("127.0.0.1", served.port) as stream,
    ):
        await stream.send_all(handshake(served) + frame(request("subtract", [42, 23])))
        seen = b""
        with trio.fail_after(LIMIT):
            while b'"result":19' not in seen:
                seen += bytes(await stream.receive_some())
    assert seen.startswith(b"HTTP/1.1 101 ")


async def test_a_binary_frame_closes_with_1003(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as websocket:
        await websocket.send_message(b"{}")
        assert await closed_with(websocket) == 1003


async def test_a_message_over_16_mib_closes_with_1009_also_while_it_is_being_sent(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        async with served.client() as websocket:
            await websocket.send_message(request("get_data").decode().ljust(16 << 20))
            assert (await receive(websocket))["result"] == ["hello", 5]
        async with served.client() as websocket:
            with pytest.raises(ConnectionClosed):  # noqa: PT012 - sending may see the end first
                await websocket.send_message("x" * ((24 << 20) + 1))
                await websocket.get_message()
            assert websocket.closed is not None
            assert websocket.closed.code == 1009


async def test_the_limit_of_a_message_counts_bytes(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as websocket:
        await websocket.send_message("é" * (8 << 20) + "x")
        assert await closed_with(websocket) == 1009


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(b"\xff\xfe"), 1007),
        (frame(b"\xed\xa0\x80"), 1007),
        (frame(b"x", opcode=0), 1002),
        (b"\xf1\x80\0\0\0\0", 1002),
    ],
    ids=["no UTF-8", "surrogate in UTF-8", "continuation of nothing", "reserved bits"],
)
async def test_a_bad_frame_closes_with_the_reason_and_harms_nobody_else(
    data: bytes, code: int, tmp_path: Path
) -> None:
    async with (
        serving(tmp_path) as served,
        served.client() as other,
        await raw_client(served) as stream,
    ):
        await stream.send_all(data)
        with trio.fail_after(LIMIT):
            seen = await read_all(stream)
        assert seen == b"\x88\x02" + struct.pack("!H", code)
        assert (await call(other, "get_data"))["result"] == ["hello", 5]


async def test_a_ping_after_our_close_frame_is_no_fault_of_ours(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, await raw_client(served) as stream:
        with capture_logs() as logs:
            await stream.send_all(frame(b"x", opcode=2) + frame(b"ping", opcode=9))
            with trio.fail_after(LIMIT):
                await read_all(stream)
    assert [entry for entry in logs if entry["log_level"] == "error"] == []


async def test_a_client_that_never_reads_holds_up_nobody_and_is_not_read_from(
    tmp_path: Path,
) -> None:
    handled = 0

    async def big(request: EngineRequest, params: Any) -> str:
        nonlocal handled
        handled += 1
        return "x" * 500_000

    async with (
        serving(tmp_path, {"big": raw(big)}) as served,
        served.client() as other,
        await raw_client(served) as stream,
    ):
        await stream.send_all(frame(request("big")) * 1000)
        before = -1
        while handled != before:  # until the engine takes no more from it
            before = handled
            for _ in range(20):
                assert (await call(other, "get_data"))["result"] == ["hello", 5]
        assert 0 < handled < 100


async def test_a_client_with_too_many_unread_bytes_of_replies_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OUTBOX_HARD_BYTES", 20 << 20)
    gate = Gate()

    async def big(request: EngineRequest, params: Any) -> str:
        await gate.method(request, params)
        return "x" * 1_000_000

    async with serving(tmp_path, {"big": raw(big)}) as served, await raw_client(served) as stream:
        await stream.send_all(frame(request("big")) * 60)
        await gate.wait_until("started", 60)
        with capture_logs() as logs:
            gate.opened.set()
            await gate.wait_until("settled", 60)
        assert False in gate.settled
    reasons = [entry["reason"] for entry in logs if entry["event"] == "connection dropped"]
    assert reasons[:1] == ["the client does not read its replies"]
    (entry, *_rest) = (entry for entry in logs if entry["event"] == "connection dropped")
    assert entry["unwrittenBytes"] > 20 << 20
    assert entry["unwrittenReplies"] == -(-entry["unwrittenBytes"] // 1_000_040)


@pytest.mark.case("C134")
async def test_a_client_that_takes_no_data_is_dropped_and_what_it_missed_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream_module.WRITE_STALL_SECS == 30.0
    monkeypatch.setattr(stream_module, "WRITE_STALL_SECS", 0.2)
    gone = trio.Event()

    async def big(request: EngineRequest, params: Any) -> str:
        return "x" * 1_000_000

    async with serving(
        tmp_path, {"big": raw(big)}, closed=lambda _connection: gone.set()
    ) as served:
        with capture_logs() as logs:
            stream = await raw_client(served)
            async with stream:
                await stream.send_all(frame(request("big")) * 30)
                with trio.fail_after(LIMIT):
                    await gone.wait()
                taken = await read_all(stream)  # what was on its way, then the end
    (entry,) = (entry for entry in logs if entry["event"] == "connection dropped")
    assert entry["reason"] == "the client takes no data"
    assert 5 <= entry["unwrittenReplies"] <= 30  # the bounds: 4 MiB, and one reply over it
    assert 4 << 20 < entry["unwrittenBytes"] < 31_000_000
    assert len(taken) < 31_000_000 - entry["unwrittenBytes"] + 1_000_100


async def test_a_message_in_too_many_frames_is_closed_with_1009(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, await raw_client(served) as stream:
        fragments = frame(b"x", is_last=False) + frame(b"x", opcode=0, is_last=False) * 20_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_what_is_taken, stream, fragments)
            assert await read_all(stream) == b"\x88\x02\x03\xf1"


async def send_what_is_taken(stream: trio.SocketStream, data: bytes) -> None:
    with suppress(trio.BrokenResourceError):
        await stream.send_all(data)


async def test_what_is_heavy_is_done_one_at_a_time_and_not_for_one_who_reads_nothing(
    tmp_path: Path,
) -> None:
    inside, most, done = 0, 0, 0
    gate = Gate()

    async def heavy(request: EngineRequest, params: Any) -> str:
        nonlocal inside, most, done
        await gate.method(request, params)
        async with request.connection.heavy_turn():
            inside += 1
            most = max(most, inside)
            await trio.lowlevel.checkpoint()
            inside, done = inside - 1, done + 1
        return "x" * 900_000

    async with (
        serving(tmp_path, {"heavy": raw(heavy)}) as served,
        served.client() as other,
        await raw_client(served) as stream,
    ):
        await stream.send_all(frame(request("heavy")) * 100)
        await gate.wait_until("started", 100)
        gate.opened.set()
        before = -1
        while done != before:  # until no more is done for it
            before = done
            for _ in range(20):
                assert (await call(other, "get_data"))["result"] == ["hello", 5]
        assert (most, done < 20) == (1, True)
        assert len((await call(other, "heavy"))["result"]) == 900_000


async def test_two_thousand_calls_of_one_id_are_all_cancelled_by_one_request(
    tmp_path: Path,
) -> None:
    gate = Gate()
    async with (
        serving(tmp_path, {"gate": raw(gate.method)}) as served,
        served.client() as websocket,
    ):
        for _ in range(2_000):
            await websocket.send_message('{"jsonrpc":"2.0","id":1,"method":"gate"}')
        await gate.wait_until("started", 2_000)
        cancel = '{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}'
        await websocket.send_message(f"[{','.join([cancel] * 64)}]")
        with trio.fail_after(LIMIT):
            codes = [(await receive(websocket))["error"]["code"] for _ in range(2_000)]
        assert set(codes) == {-32008}


async def test_a_silent_client_is_pinged_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PING_EVERY_SECS", 0.01)
    async with serving(tmp_path) as served, await raw_client(served) as stream:
        for _ in range(3):
            with trio.fail_after(LIMIT):
                ping = bytes(await stream.receive_some())
            assert ping[:2] == b"\x89\x04"
            await stream.send_all(frame(ping[2:6], opcode=10))
        await stream.send_all(frame(request("get_data")))
        with trio.fail_after(LIMIT):
            while b'"hello"' not in bytes(await stream.receive_some()):
                pass


@pytest.mark.case("C144")
async def test_a_client_that_answers_no_ping_is_dropped_and_its_waits_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PING_EVERY_SECS", 0.05)
    monkeypatch.setattr(module, "PONG_WITHIN_SECS", 0.1)
    gate = Gate()
    async with (
        serving(tmp_path, {"gate": raw(gate.method)}) as served,
        await raw_client(served) as stream,
    ):
        await stream.send_all(frame(request("gate")))
        await gate.wait_until("started", 1)
        with capture_logs() as logs:
            await gate.wait_until("settled", 1)
    assert gate.settled == [False]
    dropped = [entry for entry in logs if entry["event"] == "connection dropped"]
    assert [entry["reason"] for entry in dropped] == ["no answer to a ping"]


CLIENT = """
import json, sys
from websockets.sync.client import connect
headers = {"Authorization": "Bearer " + sys.stdin.readline().strip()}
client = connect(sys.argv[1], additional_headers=headers)
client.send('{"jsonrpc":"2.0","id":1,"method":"gate"}')
client.recv()
"""


@pytest.mark.case("C144")
async def test_a_client_that_is_killed_has_its_waits_ended(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        serving(tmp_path, {"gate": raw(gate.method)}) as served,
        trio.open_nursery() as nursery,
    ):
        run = partial(trio.run_process, stdin=subprocess.PIPE, check=False)
        process = await nursery.start(run, [sys.executable, "-c", CLIENT, served.url])
        await process.stdin.send_all(served.tokens.agent.encode() + b"\n")
        await gate.wait_until("started", 1)
        process.kill()
        await gate.wait_until("settled", 1)
    assert gate.settled == [False]


async def test_a_fault_of_the_server_itself_ends_one_connection_and_is_logged(
    tmp_path: Path,
) -> None:
    def opened(connection: Connection) -> None:
        if connection.role == "observer":
            raise KeyError("a bug")

    async with serving(tmp_path, opened=opened) as served, served.client() as other:
        with capture_logs() as logs:
            async with served.client("observer") as websocket:
                with trio.fail_after(LIMIT), pytest.raises(ConnectionClosed):
                    await websocket.get_message()
        assert "connection failed" in [entry["event"] for entry in logs]
        assert (await call(other, "get_data"))["result"] == ["hello", 5]


async def test_many_calls_sent_at_once_are_all_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as websocket:

        async def send() -> None:
            for id_ in range(2000):
                message = {"jsonrpc": "2.0", "id": id_, "method": "get_data"}
                await websocket.send_message(json.dumps(message))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            ids = {(await receive(websocket))["id"] for _ in range(2000)}
    assert ids == set(range(2000))
