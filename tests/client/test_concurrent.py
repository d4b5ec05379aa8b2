"""Mirrors `engine/client/concurrent.py`."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from client.fake_engine import FakeEngine

from engine.client import room
from engine.client.concurrent import Client
from engine.client.errors import (
    CannotStart,
    ClientClosed,
    ConnectionLost,
    NotReachable,
    Refused,
    TokenRefused,
    Unsendable,
)
from engine.client.places import find_place
from engine.client.transport import Background

LIMIT = 10.0  # seconds for anything that a test waits for


@asynccontextmanager
async def connected(fake: FakeEngine, **options: Any) -> AsyncIterator[Client]:
    """A client of the fake engine, closed in the end."""
    client = Client(
        lambda: find_place(str(fake.home), None, {}), hello={"client": "test"}, **options
    )
    async with Background() as client_nursery:
        with trio.fail_after(LIMIT):
            await client.connect(client_nursery)
        try:
            yield client
        finally:
            await client.aclose()


async def seen(fake: FakeEngine, predicate: Callable[[], bool]) -> None:
    """Wait until what the fake engine was asked fulfils the predicate."""
    await trio.to_thread.run_sync(fake.wait_for, predicate)


def bash(command: str, **more: object) -> dict[str, object]:
    return {"as": "ci", "command": command, **more}


async def test_a_call_returns_its_result_and_raises_its_error(fake: FakeEngine) -> None:
    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            assert (await client.call("bash", bash("echo hi")))["output"] == "hi\n"
            with pytest.raises(Refused, match="no method nothing") as caught:
                await client.call("nothing", {})
    assert caught.value.code == -32601
    assert fake.greetings == [{"client": "test"}]


async def test_calls_side_by_side_are_answered_as_they_are_ready(fake: FakeEngine) -> None:
    order: list[str] = []

    async def ask(client: Client, command: str, said: str) -> None:
        order.append((await client.call("bash", bash(command), budget=20))["output"])
        assert order[-1] == said

    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, client, "sleep 0.4; echo slow", "slow\n")
                nursery.start_soon(ask, client, "echo quick", "quick\n")
    assert order == ["quick\n", "slow\n"]


async def test_a_cancelled_await_is_withdrawn_and_the_connection_goes_on(
    fake: FakeEngine,
) -> None:
    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call, "bash", bash("sleep 60"))
                await seen(fake, lambda: "bash" in fake.methods())
                nursery.cancel_scope.cancel()
            await seen(fake, lambda: "$/cancelRequest" in fake.methods())
            assert (await client.call("engine_info", {}))["slots"] == 32
    cancels = [params for method, params in fake.calls if method == "$/cancelRequest"]
    assert cancels == [{"id": 2}]  # hello is the first


async def test_a_lost_call_is_sent_again_on_the_next_connection(fake: FakeEngine) -> None:
    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    reply = await client.call("bash", bash("sleep 0.5; echo once", key="k"))
                    assert reply["output"] == "once\n"

                nursery.start_soon(ask)
                await seen(fake, lambda: "bash" in fake.methods())
                fake.drop()
    assert fake.methods() == ["hello", "bash", "hello", "bash"]
    assert len(fake.jobs) == 1


async def test_of_two_lost_calls_only_the_one_that_must_not_be_repeated_fails(
    fake: FakeEngine,
) -> None:
    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call, "bash", bash("sleep 0.5", key="k"))

                async def once() -> None:
                    with pytest.raises(ConnectionLost, match="bash was answered: it may have"):
                        await client.call("bash", bash("sleep 5"), resend=False)

                nursery.start_soon(once)
                await seen(fake, lambda: fake.methods().count("bash") == 2)
                fake.drop()
    assert len(fake.jobs) == 2


async def test_an_idle_client_connects_again_when_it_is_called(fake: FakeEngine) -> None:
    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            fake.stop()
            fake.start()
            assert (await client.call("engine_info", {}))["slots"] == 32
    assert fake.methods() == ["hello", "hello", "engine_info"]


async def test_patience_that_is_spent_fails_the_call_and_the_next_one_tries_anew(
    fake: FakeEngine,
) -> None:
    async with connected(fake, patience=0.4) as client:
        fake.stop()
        with trio.fail_after(LIMIT):
            for _ in range(2):
                with pytest.raises(NotReachable, match=r"gave up after 0\.4 s \(reconnect\)"):
                    await client.call("engine_info", {})
            fake.start()
            assert (await client.call("engine_info", {}))["slots"] == 32


async def test_a_token_that_is_refused_ends_all_patience(fake: FakeEngine) -> None:
    async with connected(fake) as client:
        fake.stop()
        fake.start()
        facts = fake.home / "engine.json"
        facts.write_text(facts.read_text().replace("a" * 43, "x" * 43))
        with trio.fail_after(LIMIT), pytest.raises(TokenRefused):
            await client.call("engine_info", {})


async def test_closing_answers_all_in_flight_and_who_comes_later(fake: FakeEngine) -> None:
    told: list[str] = []

    async def ask(client: Client) -> None:
        with pytest.raises(ClientClosed) as caught:
            await client.call("bash", bash("sleep 60"))
        told.append(str(caught.value))

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery, connected(fake) as client:
            nursery.start_soon(ask, client)
            nursery.start_soon(ask, client)
            await seen(fake, lambda: fake.methods().count("bash") == 2)
    assert told == ["closed before bash was answered"] * 2
    with pytest.raises(ClientClosed, match="closed before bash was sent"):
        await client.call("bash", bash("true"))


async def test_an_error_of_the_block_comes_out_as_it_is(fake: FakeEngine) -> None:
    with pytest.raises(KeyError):
        async with connected(fake):
            raise KeyError


async def test_where_no_engine_is_connecting_fails_at_once(fake: FakeEngine) -> None:
    fake.stop()
    with pytest.raises(NotReachable, match="refused") as caught:
        async with connected(fake):
            pass
    assert caught.value.absent


async def test_where_no_engine_is_one_is_started(fake: FakeEngine) -> None:
    fake.stop()
    threads: list[threading.Thread] = []

    def start() -> None:
        threads.append(threading.current_thread())
        fake.start()

    async with connected(fake, start=start) as client:
        with trio.fail_after(LIMIT):
            assert (await client.call("engine_info", {}))["slots"] == 32
    assert threads != [threading.main_thread()]
    assert len(threads) == 1


async def test_one_that_cannot_be_started_says_so(fake: FakeEngine) -> None:
    def start() -> None:
        raise CannotStart("no_such_setting")

    fake.stop()
    with pytest.raises(CannotStart, match="no_such_setting"):
        async with connected(fake, start=start):
            pass


async def test_one_that_vanished_is_started_again_if_nobody_else_does(fake: FakeEngine) -> None:
    started: list[float] = []

    def start() -> None:
        started.append(trio.from_thread.run_sync(trio.current_time))
        fake.start()

    async with connected(fake, start=start) as client:
        with trio.fail_after(LIMIT):
            fake.stop()
            began = trio.current_time()
            assert (await client.call("engine_info", {}))["slots"] == 32
    assert len(started) == 1
    assert started[0] - began > 0.6  # whoever looks after it had his chance


async def test_more_calls_than_there_is_room_for_wait_their_turn(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_CALLS", 2)
    most = 0

    async def ask(client: Client) -> None:
        nonlocal most
        await client.call("bash", bash("true"))
        most = max(most, len(client._waiters) + 1)

    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                for _ in range(9):
                    nursery.start_soon(ask, client)
    assert fake.methods().count("bash") == 9
    assert most == 2


async def test_a_call_waits_until_the_bytes_before_it_are_answered(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_BYTES", 300)
    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call, "bash", bash(f"sleep 0.5; : {'x' * 300}"))
                await seen(fake, lambda: "bash" in fake.methods())
                with trio.move_on_after(0.2) as waiting:
                    await client.call("engine_info", {})
                assert waiting.cancelled_caught
                assert "engine_info" not in fake.methods()
                await client.call("engine_info", {})


async def test_what_no_engine_would_take_is_not_sent(fake: FakeEngine) -> None:
    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            with pytest.raises(Unsendable):
                await client.call("bash", {"command": "\udcff"})
            assert (await client.call("engine_info", {}))["slots"] == 32


async def test_a_call_that_ends_the_connection_three_times_is_given_up(fake: FakeEngine) -> None:
    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    with pytest.raises(ConnectionLost, match="lost 3 times right after bash"):
                        await client.call("bash", bash("sleep 60", key="k"))

                nursery.start_soon(ask)
                for count in (1, 2, 3):

                    def is_sent(count: int = count) -> bool:
                        return fake.methods().count("bash") == count

                    await seen(fake, is_sent)
                    fake.drop()


async def test_an_answer_that_does_not_come_in_time_counts_as_a_loss(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.calls.REPLY_WAIT", 0.3)
    async with connected(fake) as client:
        with trio.fail_after(LIMIT):
            reply = await client.call("bash", bash("sleep 0.6; echo late", key="k"))
    assert reply["output"] == "late\n"
    assert fake.methods().count("bash") > 1
    assert len(fake.jobs) == 1


async def test_one_that_said_goodbye_is_left_to_who_ended_it(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.calls.START_AFTER", 2)
    started: list[str] = []
    async with connected(fake, start=lambda: started.append("started"), patience=0.4) as client:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    with pytest.raises(NotReachable, match="gave up"):
                        await client.call("bash", bash("sleep 60", key="k"))

                nursery.start_soon(ask)
                await seen(fake, lambda: "bash" in fake.methods())
                await trio.to_thread.run_sync(fake._connections[0].close, 1001)
                fake.stop()
    assert started == []


async def test_who_was_idle_at_the_goodbye_starts_no_engine_either(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.client.calls.START_AFTER", 1)
    started: list[str] = []
    async with connected(fake, start=lambda: started.append("started"), patience=0.4) as client:
        with trio.fail_after(LIMIT):
            await trio.to_thread.run_sync(fake._connections[0].close, 1001)
            fake.stop()
            await trio.testing.wait_all_tasks_blocked(0.05)
            with pytest.raises(NotReachable, match="gave up"):
                await client.call("engine_info", {})
            assert started == []
            fake.start()
            assert (await client.call("engine_info", {}))["slots"] == 32
