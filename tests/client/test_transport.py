"""Mirrors `engine/client/transport.py`."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from client.fake_engine import AGENT, FakeEngine
from trio_websocket import WebSocketConnection

from engine.client import transport
from engine.client.errors import ConnectionLost, NotReachable, TokenRefused
from engine.client.places import Place
from engine.client.transport import Background, open_websocket, receive, send

LIMIT = 10.0  # seconds


def place(path: str, token: str = AGENT, address: tuple[str, int] | None = None) -> Place:
    unix = None if address is not None else path
    return Place("ws://127.0.0.1:1/rpc", unix, address, "localhost", token, "/h", None)


async def test_a_message_goes_and_its_answer_comes(fake: FakeEngine) -> None:
    with trio.fail_after(LIMIT):
        async with open_websocket(place(f"{fake.home}/engine.sock")) as websocket:
            await send(websocket, '{"jsonrpc":"2.0","id":1,"method":"engine_info","params":{}}')
            assert json.loads(await receive(websocket))["result"]["slots"] == 32


async def test_a_socket_may_lie_deeper_than_its_address_can_say(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    engine = FakeEngine(deep / "home")
    engine.start()
    try:
        with trio.fail_after(LIMIT):
            async with open_websocket(place(f"{engine.home}/engine.sock")):
                pass
    finally:
        engine.close()


@pytest.mark.parametrize(("code", "is_goodbye"), [(1001, True), (1011, False)])
async def test_an_end_of_the_connection_is_told_and_whether_it_was_in_order(
    fake: FakeEngine, code: int, is_goodbye: bool
) -> None:
    with trio.fail_after(LIMIT):
        async with open_websocket(place(f"{fake.home}/engine.sock")) as websocket:
            await trio.to_thread.run_sync(fake._connections[0].close, code)
            with pytest.raises(ConnectionLost) as caught:
                await receive(websocket)
            await send(websocket, "{}")  # says nothing: whoever receives has been told
    assert caught.value.is_goodbye == is_goodbye


async def test_a_connection_that_breaks_is_no_goodbye(fake: FakeEngine) -> None:
    with trio.fail_after(LIMIT):
        async with open_websocket(place(f"{fake.home}/engine.sock")) as websocket:
            fake.drop()
            with pytest.raises(ConnectionLost) as caught:
                await receive(websocket)
    assert not caught.value.is_goodbye


async def test_a_wrong_token_is_refused(fake: FakeEngine) -> None:
    with trio.fail_after(LIMIT), pytest.raises(TokenRefused, match=r"token refused \(401\)"):
        async with open_websocket(place(f"{fake.home}/engine.sock", token="x" * 43)):
            pass


async def test_a_stale_socket_says_that_nobody_is_there(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    with trio.fail_after(LIMIT), pytest.raises(NotReachable, match="refused") as caught:
        async with open_websocket(place(str(path))):
            pass
    assert caught.value.absent


async def test_an_address_where_nobody_is_cannot_be_reached() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        address = sock.getsockname()
        with trio.fail_after(LIMIT), pytest.raises(NotReachable, match="ws://127"):
            async with open_websocket(place("", address=address)):
                pass


@pytest.mark.parametrize("reads", [True, False])
async def test_somebody_who_hangs_up_in_the_handshake_is_as_one_who_is_not_there(
    tmp_path: Path, reads: bool
) -> None:
    path = str(tmp_path / "engine.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def hang_up() -> None:
            peer, _ = listener.accept()
            if reads:
                peer.recv(1000)
            peer.close()  # with what was not read: a reset

        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, hang_up)
                with pytest.raises(NotReachable, match="connection lost") as caught:
                    async with open_websocket(place(path)):
                        pass
    assert caught.value.absent


async def test_somebody_who_says_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "HANDSHAKE_WAIT", 0.1)
    path = str(tmp_path / "engine.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with trio.fail_after(LIMIT), pytest.raises(NotReachable, match="no answer"):
            async with open_websocket(place(path)):
                pass


async def test_an_engine_that_takes_nothing_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stalled:
        async def send_message(self, _message: str) -> None:
            await trio.sleep_forever()

    monkeypatch.setattr(transport, "SEND_WAIT", 0.05)
    with trio.fail_after(LIMIT), pytest.raises(ConnectionLost, match="takes nothing"):
        await send(cast(WebSocketConnection, Stalled()), "{}")


async def test_the_children_of_a_block_end_with_it_and_wrap_nothing() -> None:
    ended = trio.Event()

    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async def block() -> None:
        async with Background() as nursery:
            nursery.start_soon(child)
            await trio.testing.wait_all_tasks_blocked()
            raise KeyError

    with trio.fail_after(LIMIT), pytest.raises(KeyError):
        await block()
    assert ended.is_set()


async def test_a_child_that_fails_is_not_overlooked() -> None:
    async def fail() -> Any:
        raise ValueError("a bug")

    async def block() -> None:
        async with Background() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()

    with trio.fail_after(LIMIT), pytest.raises(ExceptionGroup) as caught:
        await block()
    assert [str(exc) for exc in caught.value.exceptions] == ["a bug"]


async def test_a_block_that_is_cancelled_ends_quietly() -> None:
    with trio.move_on_after(0) as scope:
        async with Background() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep_forever()
    assert scope.cancelled_caught
