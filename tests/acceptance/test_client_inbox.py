"""The library's inbox, rounds, lanes and modes against a real engine, in both faces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from acceptance.running import LIMIT, Client, Engine, Gate, new_name

from engine import client, errors
from engine.client import sync
from engine.protocol.parts import RoundUpdate, Update
from engine.protocol.results import Kickoff, Running


@asynccontextmanager
async def library(running: Engine, name: str, **options: Any) -> AsyncIterator[client.Engine]:
    """The library, connected as this caller; all within LIMIT."""
    with trio.fail_after(LIMIT):
        async with client.connect(running.home, as_=name, start=False, **options) as engine:
            yield engine


def ended(client_: Client, name: str, *commands: str) -> list[str]:
    """Tasks of this caller that have ended, of which no reply has told it; in that order."""
    found = []
    for command in commands:
        task = client_.call("bash", as_=name, command=f"sleep 0.05; {command}", timeout_secs=0)
        found.append(task["taskId"])
        client_.call("wait", as_=f"{name}-x", taskId=found[-1])
    return found


async def read(lib: client.Engine, most: int = 99) -> list[str]:
    """Ids of the news in the inbox, of which so many are taken."""
    found: list[str] = []
    async with aclosing(lib.inbox()) as inbox:
        async for news in inbox:
            found.append(news.id if isinstance(news, Update) else news.round_id)
            if len(found) == most:
                break
    return found


async def test_ends_are_handed_out_once_until_nothing_is_left_to_wait_for(
    engine: Engine, client: Client, gate: Gate
) -> None:
    name = new_name()
    tasks = ended(client, name, "exit 1", "echo two")
    async with library(engine, name) as lib:
        started = await lib.bash(f"{gate.wait}; echo three", timeout_secs=0)
        assert isinstance(started, Running)
        found: list[tuple[str, str, str | None]] = []
        async with aclosing(lib.inbox()) as inbox:
            async for news in inbox:
                assert isinstance(news, Update)
                found.append((news.id, news.status, news.output))
                if len(found) == 2:
                    gate.open()
        assert found == [
            (tasks[0], "failed", ""),
            (tasks[1], "succeeded", "two\n"),
            (started.task_id, "succeeded", "three\n"),
        ]
        assert await read(lib) == []
    async with library(engine, name) as again:
        assert await read(again) == []


async def test_who_stops_has_the_rest_and_nothing_twice(engine: Engine, client: Client) -> None:
    name = new_name()
    tasks = ended(client, name, "true", "true", "true")
    async with library(engine, name) as lib:
        assert await read(lib, most=2) == tasks[:2]
        await lib.engine_info()  # what the program asks besides acknowledges nothing
        assert await read(lib) == tasks[1:]  # the second was not done with when the loop was left
        assert await read(lib) == []


async def test_a_program_that_dies_in_the_loop_is_told_again_with_the_mark(
    engine: Engine, client: Client
) -> None:
    name = new_name()
    [task] = ended(client, name, "true")

    async def die() -> None:
        async with library(engine, name) as lib, aclosing(lib.inbox()) as inbox:
            async for _ in inbox:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await die()
    async with library(engine, name) as lib, aclosing(lib.inbox()) as inbox:
        async for news in inbox:
            assert isinstance(news, Update)
            assert (news.id, news.redelivered) == (task, True)


async def test_what_a_call_brought_is_received_by_who_leaves_in_order_only(
    engine: Engine,
) -> None:
    name = new_name()
    async with library(engine, name) as lib:
        await lib.bash("echo one")
    brought: list[str] = []

    async def die() -> None:
        async with library(engine, name) as lib:
            brought.append((await lib.bash("echo two")).task_id)  # type: ignore[union-attr]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await die()
    async with library(engine, name) as lib:
        assert await read(lib) == brought


async def test_an_engine_that_is_killed_loses_no_end_and_has_none_told_twice(
    tmp_path: Path, gate: Gate
) -> None:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as own:
        async with library(own, "ci") as lib:
            first = await lib.bash("sleep 0.1; exit 1", timeout_secs=0)
            second = await lib.bash(f"{gate.wait}; exit 2", timeout_secs=0)
            found: list[tuple[str, int | None]] = []
            async with aclosing(lib.inbox()) as inbox:
                async for news in inbox:
                    assert isinstance(news, Update)
                    found.append((news.id, news.exit_code))
                    if len(found) == 1:  # handed out, and not acknowledged
                        own.kill()
                        gate.open()
                        await trio.to_thread.run_sync(own.start)
            assert found == [("t" + first.kickoff_id[1:], 1), ("t" + second.kickoff_id[1:], 2)]


async def test_what_calls_bring_meanwhile_is_no_news_and_keeps_nobody_waiting(
    engine: Engine,
) -> None:
    async with library(engine, new_name()) as lib:
        started = await lib.bash("sleep 0.1", timeout_secs=0)
        await lib.bash("echo before")
        found = []
        async with aclosing(lib.inbox()) as inbox:
            async for news in inbox:
                assert isinstance(news, Update)
                found.append(news.id)
                await lib.bash("echo meanwhile")
        assert found == ["t" + started.kickoff_id[1:]]
        await lib.bash("echo after")
        assert await read(lib) == []


async def test_followed_it_goes_on_with_tasks_that_are_begun_later(engine: Engine) -> None:
    async with library(engine, new_name()) as lib:
        codes: list[int | None] = []
        async with aclosing(lib.inbox(follow=True)) as inbox, trio.open_nursery() as nursery:

            async def begin() -> None:
                for code in (1, 2):
                    await lib.bash(f"sleep 0.05; exit {code}", timeout_secs=0)

            nursery.start_soon(begin)
            async for news in inbox:
                assert isinstance(news, Update)
                codes.append(news.exit_code)
                if len(codes) == 2:
                    break
        assert sorted(codes, key=str) == [1, 2]


async def test_what_blocks_a_task_is_handed_out_too(engine: Engine) -> None:
    async with library(engine, new_name()) as lib, aclosing(lib.inbox()) as inbox:
        asking = 'printf "Name? "; read -r name'
        started = await lib.bash(asking, session=False, stdin="open", timeout_secs=0)
        assert isinstance(started, Running)
        news = await anext(inbox)
        assert isinstance(news, Update)
        assert (news.id, news.ready) == (started.task_id, "execution_blocked")
        assert (news.category, news.prompt) == ("input", "Name? ")
        await lib.write_stdin(started.task_id, text="anna\n")
        assert (await anext(inbox)).ready == "ended"


async def test_a_round_is_run_read_and_retried(engine: Engine, tmp_path: Path) -> None:
    async with library(engine, new_name()) as lib:
        mended = f"sleep 0.05; test -e {tmp_path}/mended"
        seats = {"unit": {"command": "echo hi"}, "lint": {"command": mended}}
        begun = await lib.run_round(seats)
        assert await read(lib) == [begun.round_id]
        (tmp_path / "mended").touch()
        again = await lib.run_round(round_id=begun.round_id, retry_seats=["lint"])
        assert list(again.seats) == ["lint"]
        async with aclosing(lib.inbox()) as inbox:
            [news] = [each async for each in inbox]
        assert isinstance(news, RoundUpdate)
        assert [seat.status for seat in news.seats.values()] == ["succeeded", "succeeded"]
        details = await lib.read_round(begun.round_id)
        assert (details.status, details.seats["unit"].exit_code) == ("succeeded", 0)
        [listed] = (await lib.list_rounds()).rounds
        assert listed.round_id == begun.round_id


async def test_jobs_come_after_others_in_lanes_and_when_they_are_ready(
    tmp_path: Path, gate: Gate
) -> None:
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0") as own:
        async with library(own, "ci", role="human") as human:
            assert (await human.set_lane("gpu", 1)).limit == 1
        async with library(own, "ci") as lib:
            ready = {"contains": "up"}
            server = await lib.bash(
                f"echo up; {gate.wait}", session=False, timeout_secs=0, lane="gpu",
                ready_when=ready,  # type: ignore[arg-type]
            )  # fmt: skip
            assert isinstance(server, Running)
            reply = await lib.wait_any([server.task_id], include_output=False)
            assert [(u.id, u.ready) for u in reply.updates] == [(server.task_id, "ready_when")]
            [standing] = (await lib.wait_any([server.task_id], wait_seconds=0)).updates
            assert (standing.ready, standing.output) == (None, "up\n")  # that is told once
            later = await lib.bash("true", lane="gpu", timeout_secs=0)
            assert isinstance(later, Kickoff)
            assert later.queue_reason == "lane gpu is full (1 of 1)"
            gate.open()
            after = await lib.run("true", after=[server.task_id], after_when="ended")
            assert after.status == "succeeded"
            held = await lib.set_mode("exclusive", ttl_secs=30)
            assert held.mode_owner == "ci"
            with pytest.raises(errors.InvalidState):
                await lib.set_mode("exclusive", as_="another")
            assert (await lib.set_mode("shared")).mode == "shared"


def test_without_trio_the_inbox_is_the_same(engine: Engine, client: Client) -> None:
    name = new_name()
    tasks = ended(client, name, "exit 1", "exit 2", "exit 3")
    with sync.connect(engine.home, start=False, as_=name) as plain:
        first = next(iter(plain.inbox()))
        plain.bash("true")
        rest = [(news.id, news.exit_code) for news in plain.inbox()]  # type: ignore[union-attr]
        assert first.id == tasks[0]  # type: ignore[union-attr]
        assert rest == [(tasks[0], 1), (tasks[1], 2), (tasks[2], 3)]
        plain.bash("true")
    with sync.connect(engine.home, start=False, as_=name) as plain:
        assert list(plain.inbox()) == []
