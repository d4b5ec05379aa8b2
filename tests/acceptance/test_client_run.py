"""`run` of the library: one job to its end, its output exact, over the death of the engine."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
from acceptance.running import LIMIT, Engine, Gate, new_name, wait_gone

from engine import client, errors
from engine.client import sync
from engine.client.errors import NotReachable


@asynccontextmanager
async def library(home: Path, **options: Any) -> AsyncIterator[client.Engine]:
    """The library, connected as a caller that nobody has been before; all within LIMIT."""
    options.setdefault("start", False)
    with trio.fail_after(LIMIT):
        async with client.connect(home, as_=new_name(), **options) as lib:
            yield lib


@contextmanager
def own_engine(home: Path) -> Iterator[Engine]:
    """A home whose engine the library starts; whoever runs there in the end is ended."""
    running = Engine(home)
    try:
        yield running
    finally:
        if (home / "engine.json").exists():
            pid = running.facts()["pid"]
            os.kill(pid, signal.SIGTERM)
            wait_gone(pid)
        running.end_leftovers()


def counted(tmp_path: Path, gate: Gate, bell: Gate) -> tuple[str, bytes]:
    """A job that says when it has begun, goes on when the gate opens, and its whole output.

    Each run of it leaves a line in `runs`.
    """
    command = f"echo run >> {tmp_path}/runs; seq 20000; {bell.tell}; {gate.wait}; seq 20000; exit 7"
    numbers = "".join(f"{number}\n" for number in range(1, 20_001)).encode()
    return command, numbers * 2


def runs(tmp_path: Path) -> int:
    return (tmp_path / "runs").read_text().count("run\n")


async def test_a_job_is_run_to_its_end_with_its_output_exact(engine: Engine) -> None:
    got = bytearray()
    async with library(engine.home) as lib:
        result = await lib.run("printf 'a\\0\\xff\\r\\n'; exit 4", on_output=got.extend)
        quiet = await lib.run(["sh", "-c", "echo hi; exit 3"])
    assert (bytes(got), result.status, result.exit_code) == (b"a\0\xff\r\n", "failed", 4)
    assert (quiet.output, quiet.exit_code) == ("hi\n", 3)


async def test_streams_can_be_taken_apart(engine: Engine) -> None:
    out, err = bytearray(), bytearray()
    async with library(engine.home) as lib:
        await lib.run("echo o; echo e >&2; echo o", on_output=out.extend, on_stderr=err.extend)
        only = bytearray()
        result = await lib.run("echo o; echo e >&2", on_output=only.extend, streams="split")
    assert (bytes(out), bytes(err)) == (b"o\no\n", b"e\n")
    assert (bytes(only), result.stderr) == (b"o\n", "e\n")


async def test_output_comes_while_the_job_runs_also_in_the_session(
    engine: Engine, gate: Gate
) -> None:
    for session in (False, True):
        got = bytearray()

        def take(data: bytes, got: bytearray = got) -> None:
            got.extend(data)
            if got == b"first\n":
                gate.open()

        async with library(engine.home) as lib:
            await lib.run(
                f"echo first; {gate.wait}; echo second; mark=1", on_output=take, session=session
            )
            kept = await lib.run("echo ${mark-none}", session=True)
        assert got == b"first\nsecond\n"
        assert kept.output == ("1\n" if session else "none\n")


async def test_who_takes_the_output_sets_the_pace(engine: Engine) -> None:
    got: list[int] = []

    async def take(data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        got.append(len(data))

    async with library(engine.home) as lib:
        result = await lib.run("head -c 3000000 /dev/zero", on_output=take)
    assert (sum(got), result.output_bytes) == (3_000_000, 3_000_000)


async def test_a_job_that_waits_for_its_turn_is_run_when_it_comes(
    tmp_path: Path, gate: Gate
) -> None:
    with Engine(tmp_path / "home", "--slots", "1") as running:
        got = bytearray()
        async with library(running.home) as lib:
            await lib.bash(gate.wait, timeout_secs=0)
            async with trio.open_nursery() as nursery:

                async def open_when_queued() -> None:
                    page = await lib.list_tasks(state=["queued"], changed_after=0, timeout_secs=20)
                    assert len(page.tasks) == 1
                    gate.open()

                nursery.start_soon(open_when_queued)
                result = await lib.run("echo late", on_output=got.extend)
    assert (bytes(got), result.status) == (b"late\n", "succeeded")


async def test_an_error_of_who_takes_the_output_leaves_the_job_running(
    engine: Engine, gate: Gate
) -> None:
    def refuse(_data: bytes) -> None:
        raise KeyError

    async with library(engine.home) as lib:
        with pytest.raises(KeyError):
            await lib.run(f"echo x; {gate.wait}", on_output=refuse)
        (row,) = (await lib.list_tasks()).tasks
        assert row.status == "running"
        gate.open()


@pytest.mark.parametrize("on_cancel", ["keep", "cancel"])
async def test_a_run_that_is_cancelled_keeps_or_cancels_its_job(
    engine: Engine, gate: Gate, bell: Gate, on_cancel: Any
) -> None:
    async with library(engine.home) as lib:
        async with trio.open_nursery() as nursery:

            async def leave() -> None:
                await trio.to_thread.run_sync(bell.hear)
                nursery.cancel_scope.cancel()

            nursery.start_soon(leave)
            await lib.run(f"{bell.tell}; {gate.wait}", on_cancel=on_cancel)
        # What has just begun gets its row a moment later, and again when it has.
        seq = 0
        while True:
            page = await lib.list_tasks(changed_after=seq, timeout_secs=20)
            (row,), seq = page.tasks, page.next_changed_after
            if row.status != "queued":
                break
        assert row.status == ("running" if on_cancel == "keep" else "cancelled")
        if on_cancel == "keep":
            gate.open()


async def test_what_the_engine_refuses_ends_the_run(engine: Engine) -> None:
    async with library(engine.home) as lib:
        with pytest.raises(errors.InvalidParams):
            await lib.run("true", deadline_secs=-1)
        await lib.run("true", key="k")
        with pytest.raises(errors.KeyConflict):
            await lib.run("false", key="k")


async def test_the_engine_is_killed_and_another_one_comes(
    tmp_path: Path, gate: Gate, bell: Gate
) -> None:
    command, whole = counted(tmp_path, gate, bell)
    got = bytearray()
    with Engine(tmp_path / "home") as running:
        async with library(running.home) as lib, trio.open_nursery() as nursery:

            async def kill_and_start() -> None:
                await trio.to_thread.run_sync(bell.hear)
                running.kill()
                gate.open()  # it ends while nobody is there
                await trio.to_thread.run_sync(running.start)

            nursery.start_soon(kill_and_start)
            result = await lib.run(command, on_output=got.extend)
            tasks = (await lib.list_tasks()).tasks
    assert bytes(got) == whole
    assert (result.exit_code, result.output_bytes) == (7, len(whole))
    assert (len(tasks), runs(tmp_path)) == (1, 1)


async def test_six_runs_survive_five_deaths(tmp_path: Path) -> None:
    command = "for i in $(seq 1 40); do seq $i 300; sleep 0.05; done"
    whole = "".join(f"{n}\n" for i in range(1, 41) for n in range(i, 301)).encode()
    found: dict[int, tuple[int | None, bytes, int]] = {}

    async def run(lib: client.Engine, number: int) -> None:
        got, count = bytearray(), tmp_path / f"runs{number}"
        result = await lib.run(
            f"echo run >> {count}; {command}; exit {number}",
            as_=f"c{number}",
            session=bool(number % 2),
            on_output=got.extend,
        )
        found[number] = (result.exit_code, bytes(got), count.read_text().count("run\n"))

    with Engine(tmp_path / "home") as running:
        async with library(running.home) as lib, trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(run, lib, number)
            for alive in (0.1, 0.6, 0.0, 0.3, 0.5):  # at odd moments: that is what is tested
                await trio.sleep(alive)
                running.kill()
                await trio.to_thread.run_sync(running.start)
    assert found == {number: (number, whole, 1) for number in range(6)}


async def test_an_engine_that_vanished_is_started_by_who_needs_it(
    tmp_path: Path, gate: Gate, bell: Gate
) -> None:
    command, whole = counted(tmp_path, gate, bell)
    got = bytearray()
    with own_engine(tmp_path / "home") as running:
        async with library(running.home, start=True) as lib, trio.open_nursery() as nursery:
            first = running.facts()["pid"]

            async def kill() -> None:
                await trio.to_thread.run_sync(bell.hear)
                os.kill(first, signal.SIGKILL)
                gate.open()

            nursery.start_soon(kill)
            result = await lib.run(command, on_output=got.extend)
        assert running.facts()["pid"] != first
    assert bytes(got) == whole
    assert (result.exit_code, runs(tmp_path)) == (7, 1)


async def test_killed_before_the_first_call_is_answered_it_runs_once(
    tmp_path: Path, gate: Gate, bell: Gate
) -> None:
    """The reply with the handle is lost: the key finds the task again."""
    command, whole = counted(tmp_path, gate, bell)
    with Engine(tmp_path / "home") as running:
        async with library(running.home) as lib, trio.open_nursery() as nursery:

            async def kill_and_start() -> None:
                await trio.to_thread.run_sync(bell.hear)
                running.kill()
                gate.open()
                await trio.to_thread.run_sync(running.start)

            nursery.start_soon(kill_and_start)
            result = await lib.run(command, session=True)  # stays 20 s in its first call
    assert (result.exit_code, result.output_bytes, runs(tmp_path)) == (7, len(whole), 1)


async def test_an_engine_that_stays_away_is_given_up(tmp_path: Path, bell: Gate) -> None:
    with Engine(tmp_path / "home") as running:
        async with library(running.home, reconnect=0.5) as lib, trio.open_nursery() as nursery:

            async def kill() -> None:
                await trio.to_thread.run_sync(bell.hear)
                running.kill()

            nursery.start_soon(kill)
            with pytest.raises(NotReachable, match=r"gave up after 0\.5 s \(reconnect\)"):
                await lib.run(f"{bell.tell}; sleep 60")
        running.start()


def test_without_trio_it_rides_it_out_as_well(tmp_path: Path, gate: Gate, bell: Gate) -> None:
    command, whole = counted(tmp_path, gate, bell)
    got, err = bytearray(), bytearray()
    killed: list[int] = []
    with own_engine(tmp_path / "home") as running:
        with sync.connect(running.home, as_=new_name()) as lib:

            def take(data: bytes) -> None:
                got.extend(data)
                if not killed:
                    bell.hear()
                    killed.append(running.facts()["pid"])
                    os.kill(killed[0], signal.SIGKILL)
                    gate.open()

            result = lib.run(command, on_output=take, on_stderr=err.extend)
            assert len(lib.list_tasks().tasks) == 1
        assert running.facts()["pid"] != killed[0]
    assert (bytes(got), bytes(err)) == (whole, b"")
    assert (result.exit_code, runs(tmp_path)) == (7, 1)


def test_without_trio_an_interrupt_leaves_the_job_and_the_client_usable(
    engine: Engine, gate: Gate
) -> None:
    def interrupt(_data: bytes) -> None:
        raise KeyboardInterrupt

    with sync.connect(engine.home, as_=new_name(), start=False) as lib:
        with pytest.raises(KeyboardInterrupt):
            lib.run(f"echo x; {gate.wait}", on_output=interrupt)
        (row,) = lib.list_tasks().tasks
        assert row.status == "running"
        gate.open()
        assert lib.run("echo on").output == "on\n"
