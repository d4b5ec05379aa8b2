"""Mirrors `engine/mcp/link.py`, against an engine that answers when the test says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

from engine.client.errors import ConnectionLost, NotReachable, RpcError
from engine.client.places import Place
from engine.mcp.link import Link

LIMIT = 10.0
Asked = tuple[int, dict[str, Any]]  # the number of the connection, and what came on it


class Engine:
    """Hands out what it is asked, and answers nothing of its own but hello."""

    def __init__(self) -> None:
        self.connections: list[WebSocketConnection] = []
        self._send, self.asked = trio.open_memory_channel[Asked](100)

    async def serve(self, request: WebSocketRequest) -> None:
        websocket = await request.accept()
        number = len(self.connections)
        self.connections.append(websocket)
        try:
            while True:
                message = json.loads(await websocket.get_message())
                if message["method"] == "hello":
                    await self.answer((number, message), {})
                else:
                    await self._send.send((number, message))
        except ConnectionClosed:
            await self._send.send((number, {"method": "closed"}))

    async def answer(self, asked: Asked, result: Any) -> None:
        number, message = asked
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        await self.connections[number].send_message(json.dumps(reply))

    async def refuse(self, asked: Asked, code: int) -> None:
        number, message = asked
        error = {"code": code, "message": "no", "data": {"kind": "some"}}
        reply = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        await self.connections[number].send_message(json.dumps(reply))


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Engine, Link, trio.Nursery]]:
    engine = Engine()
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            server = await nursery.start(
                lambda task_status: serve_websocket(
                    engine.serve, "127.0.0.1", 0, None, task_status=task_status
                )
            )
            place = Place("", None, ("127.0.0.1", server.port), "localhost", "token", "/", None)
            yield engine, Link(place, {"client": "test"}, nursery), nursery
            nursery.cancel_scope.cancel()


def is_cancel(asked: Asked, of: Asked) -> bool:
    message = asked[1]
    return bool(message["method"] == "$/cancelRequest" and message["params"]["id"] == of[1]["id"])


async def test_a_call_is_asked_and_answered() -> None:
    async with linked() as (engine, link, nursery):

        async def answer() -> None:
            await engine.answer(await engine.asked.receive(), {"x": 1})

        nursery.start_soon(answer)
        assert await link.call("wait", {"as": "ci", "taskId": "t1"}) == {"x": 1}


async def test_an_error_is_raised() -> None:
    async with linked() as (engine, link, nursery):

        async def refuse() -> None:
            await engine.refuse(await engine.asked.receive(), -32003)

        nursery.start_soon(refuse)
        with pytest.raises(RpcError) as caught:
            await link.call("wait", {"as": "ci", "taskId": "t1"})
    assert caught.value.code == -32003


async def test_a_cancelled_call_is_cancelled_there_and_the_connection_kept() -> None:
    async with linked() as (engine, link, nursery):
        scope = await start_call(link, nursery, "wait_any")
        first = await engine.asked.receive()
        scope.cancel()
        assert is_cancel(await engine.asked.receive(), first)
        await engine.refuse(first, -32008)
        await start_call(link, nursery, "wait_any")
        number, message = await engine.asked.receive()
    assert (number, message["method"]) == (0, "wait_any")


async def test_an_answer_that_crosses_the_cancel_is_not_acknowledged_by_what_comes_next() -> None:
    async with linked() as (engine, link, nursery):
        scope = await start_call(link, nursery, "wait_any")
        first = await engine.asked.receive()
        scope.cancel()
        await engine.asked.receive()
        await engine.answer(first, {"updates": ["an end"]})
        await start_call(link, nursery, "wait_any")
        heard = [await engine.asked.receive(), await engine.asked.receive()]
    assert sorted((number, message["method"]) for number, message in heard) == [
        (0, "closed"),
        (1, "wait_any"),
    ]


async def test_other_calls_on_a_connection_that_is_given_up_are_answered_first() -> None:
    async with linked() as (engine, link, nursery):
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await link.call("read_output", {"as": "other"}))

        nursery.start_soon(call)
        slow = await engine.asked.receive()
        scope = await start_call(link, nursery, "bash")
        crossed = await engine.asked.receive()
        scope.cancel()
        await engine.asked.receive()
        await engine.answer(crossed, {"status": "succeeded"})
        await start_call(link, nursery, "wait")
        assert (await engine.asked.receive())[0] == 1
        await engine.answer(slow, {"text": "all of it"})
        assert await engine.asked.receive() == (0, {"method": "closed"})
    assert answers == [{"text": "all of it"}]


async def test_the_next_call_of_a_caller_waits_for_the_answer_to_a_cancelled_one() -> None:
    async with linked() as (engine, link, nursery):
        scope = await start_call(link, nursery, "wait_any")
        first = await engine.asked.receive()
        scope.cancel()
        await engine.asked.receive()
        await start_call(link, nursery, "wait")
        await start_call(link, nursery, "roster", caller="other")
        assert (await engine.asked.receive())[1]["method"] == "roster"
        await engine.refuse(first, -32008)
        assert (await engine.asked.receive())[1]["method"] == "wait"


async def test_a_lost_connection_ends_its_calls_and_the_next_opens_another() -> None:
    async with linked() as (engine, link, nursery):

        async def vanish() -> None:
            number, _message = await engine.asked.receive()
            await engine.connections[number].aclose()

        nursery.start_soon(vanish)
        with pytest.raises(ConnectionLost, match="the engine went away before wait was answered"):
            await link.call("wait", {"as": "ci"})
        assert (await engine.asked.receive())[1]["method"] == "closed"
        await start_call(link, nursery, "wait")
        assert (await engine.asked.receive())[0] == 1


async def test_where_nobody_listens_the_call_says_so() -> None:
    async with trio.open_nursery() as nursery:
        place = Place("", "/nowhere/engine.sock", None, "localhost", "token", "/", None)
        with pytest.raises(NotReachable):
            await Link(place, {}, nursery).call("wait", {"as": "ci"})


async def start_call(
    link: Link, nursery: trio.Nursery, method: str, caller: str = "ci"
) -> trio.CancelScope:
    """A call in the background, whose answer nobody looks at; its scope."""
    scope = trio.CancelScope()

    async def call() -> None:
        with scope:
            await link.call(method, {"as": caller})

    nursery.start_soon(call)
    return scope
