"""The library against a real engine: every method typed, errors by their class, both faces."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from acceptance.running import LIMIT, Engine, Gate, new_name

from engine import client, errors
from engine.client import sync
from engine.client.errors import ClientClosed, NotReachable, RpcError, Unsendable
from engine.protocol.results import Finished, Kickoff, Running


@asynccontextmanager
async def library(running: Engine, **options: Any) -> AsyncIterator[client.Engine]:
    """The library, connected as a caller that nobody has been before; all within LIMIT."""
    with trio.fail_after(LIMIT):
        async with client.connect(running.home, as_=new_name(), start=False, **options) as engine:
            yield engine


async def test_a_call_that_ends_in_time_is_finished(engine: Engine) -> None:
    async with library(engine) as lib:
        result = await lib.bash("echo out; exit 3", as_=f"{lib.caller}-x", logs="none")
    assert isinstance(result, Finished)
    assert (result.status, result.exit_code, result.output) == ("failed", 3, "out\n")
    assert result.as_ == f"{lib.caller}-x"
    assert result.logs == []


async def test_a_call_that_outlives_its_budget_is_waited_for(engine: Engine, gate: Gate) -> None:
    async with library(engine) as lib:
        started = await lib.bash(f"echo on; {gate.wait}; echo off", timeout_secs=0.5)
        assert isinstance(started, Running)
        assert (started.output, started.status) == ("on\n", "running")
        gate.open()
        ended = await lib.wait(task_id=started.task_id, max_output_bytes=100)
        assert isinstance(ended, Finished)
        assert ended.output == "on\noff\n"
        assert await lib.wait(kickoff_id=started.kickoff_id, max_output_bytes=100) == ended


async def test_a_call_that_finds_no_slot_is_a_kickoff(tmp_path: Path, gate: Gate) -> None:
    with Engine(tmp_path / "home", "--slots", "1") as running:
        async with library(running) as lib:
            await lib.bash(gate.wait, timeout_secs=0)
            waiting = await lib.bash("true", timeout_secs=0)
            assert isinstance(waiting, Kickoff)
            assert waiting.queue_position == 1
            row = await lib.read_task(kickoff_id=waiting.kickoff_id)
            assert row.status == "queued"
            done = await lib.cancel(kickoff_id=waiting.kickoff_id)
            assert (done.outcome, done.status) == ("cancelled", "cancelled")
            (gone,) = (await lib.cancel_all(lib.caller)).tasks
            assert (gone.outcome, gone.status) == ("cancelled", "cancelled")


async def test_argument_lists_and_code_are_executed(engine: Engine) -> None:
    async with library(engine) as lib:
        printed = await lib.execute(["printf", "%s", "a b"])
        assert isinstance(printed, Finished)
        assert printed.output == "a b"
        value = await lib.execute(code="6 * 7")
        assert isinstance(value, Finished)
        assert value.value == "42"
        failed = await lib.execute(code="1 / 0")
        assert isinstance(failed, Finished)
        assert failed.error is not None
        assert failed.error.type == "ZeroDivisionError"
        assert (await lib.reset_session("python")).kind == "python"


async def test_an_input_that_is_open_is_fed(engine: Engine) -> None:
    async with library(engine) as lib:
        job = await lib.bash("cat", stdin="open", timeout_secs=0)
        assert isinstance(job, Running)
        assert (await lib.write_stdin(job.task_id, text="héllo\n")).written == 7
        assert (await lib.write_stdin(job.task_id, base64="AAE=", eof=True)).written == 2
        assert isinstance(await lib.wait(task_id=job.task_id), Finished)
        page = await lib.read_output(job.task_id, raw=True)
        assert (page.base64, page.eof, page.next_offset) == (b"h\xc3\xa9llo\n\x00\x01", True, 9)


async def test_tasks_are_listed_read_and_forgotten(engine: Engine) -> None:
    async with library(engine) as lib:
        await lib.bash("echo 1; echo error: x >&2")
        (row,) = (await lib.list_tasks(state=["succeeded"])).tasks
        assert (row.title, row.status, row.as_, row.error_lines) == (
            "echo 1; echo error: x >&2",
            "succeeded",
            lib.caller,
            1,
        )
        details = await lib.read_task(task_id=row.task_id)
        assert (details.command, details.session) == ("echo 1; echo error: x >&2", True)
        lines = await lib.read_logs(task_id=row.task_id, logs="error", after_seq=0)
        assert [(line.text, line.level, line.source) for line in lines.lines] == [
            ("error: x", "error", "output")
        ]
        assert (await lib.forget(row.task_id)).status == "forgotten"
        with pytest.raises(errors.ExpiredHandle) as caught:
            await lib.read_task(task_id=row.task_id)
        assert (caught.value.handle, caught.value.status) == (row.task_id, "succeeded")


async def test_the_engine_tells_of_itself(engine: Engine) -> None:
    async with library(engine) as lib:
        info = await lib.engine_info()
        assert (info.slots, info.protocol, info.policy) == (100, 1, "none")
        assert lib.caller in {entry.name for entry in (await lib.roster()).callers}
        assert (await lib.read_stats()).last_hour.ended is not None
        methods = {method["name"] for method in (await lib.discover()).methods}
        assert {"bash", "wait", "rpc.discover"} <= methods


async def test_only_a_human_ends_the_engine(tmp_path: Path) -> None:
    with Engine(tmp_path / "home") as running:
        async with library(running) as lib:
            with pytest.raises(errors.Forbidden):
                await lib.shutdown()
        async with library(running, role="human") as lib:
            assert (await lib.shutdown()).mode == "leave"
        assert running.wait_exit() == 0


async def test_what_the_engine_refuses_is_told_by_class(engine: Engine) -> None:
    async with library(engine) as lib:
        with pytest.raises(errors.InvalidParams) as bad:
            await lib.bash("true", timeout_secs=-1)
        assert (bad.value.path, bad.value.expected) == ("$.timeout_secs", "number >= 0")
        with pytest.raises(errors.UnknownHandle, match="no such handle: t0000000"):
            await lib.wait(task_id="t0000000")
        await lib.bash("true", key="k")
        with pytest.raises(errors.KeyConflict) as conflict:
            await lib.bash("false", key="k")
        assert conflict.value.key == "k"
        job = await lib.bash("sleep 60", timeout_secs=0)
        assert isinstance(job, Running)
        with pytest.raises(errors.Forbidden):
            await lib.cancel(task_id=job.task_id, as_=f"{lib.caller}-x")
        with pytest.raises(errors.InvalidState) as state:
            await lib.write_stdin(job.task_id, text="x")
        assert isinstance(state.value, errors.EngineError)
        await lib.cancel(task_id=job.task_id)


async def test_an_await_that_is_cancelled_leaves_the_job_and_the_connection(
    engine: Engine, gate: Gate, bell: Gate
) -> None:
    async with library(engine) as lib:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def leave() -> None:
                    await trio.to_thread.run_sync(bell.hear)
                    scope.cancel()

                nursery.start_soon(leave)
                await lib.bash(f"{bell.tell}; {gate.wait}; echo done", timeout_secs=20)
        assert scope.cancelled_caught
        (row,) = (await lib.list_tasks(changed_after=0, timeout_secs=20)).tasks
        reply = await lib.wait(task_id=row.task_id, timeout_secs=0)
        assert reply.status == "running"
        gate.open()
        ended = await lib.wait(task_id=row.task_id)
        assert isinstance(ended, Finished)
        assert ended.output == "done\n"


async def test_a_hundred_calls_share_the_connection_and_keep_apart(engine: Engine) -> None:
    said: dict[int, str | None] = {}

    async def ask(lib: client.Engine, number: int) -> None:
        result = await lib.bash(f"echo {number}", as_=f"{lib.caller}-{number % 10}")
        assert isinstance(result, Finished)
        said[number] = result.output

    async with library(engine) as lib, trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(ask, lib, number)
    assert said == {number: f"{number}\n" for number in range(100)}


async def test_closing_ends_what_waits_and_leaves_the_job(engine: Engine, gate: Gate) -> None:
    told: list[str] = []

    async def ask(lib: client.Engine, task_id: str) -> None:
        with pytest.raises(ClientClosed):
            await lib.wait(task_id=task_id)
        told.append("closed")

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery, library(engine) as lib:
            job = await lib.bash(gate.wait, timeout_secs=0)
            assert isinstance(job, Running)
            nursery.start_soon(ask, lib, job.task_id)
            await trio.testing.wait_all_tasks_blocked(0.05)
    assert told == ["closed"]
    async with library(engine) as other:
        assert (await other.read_task(task_id=job.task_id)).status == "running"
        gate.open()
        await other.wait(task_id=job.task_id)


async def test_callers_start_where_the_program_stands(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRUIT", "pear")
    async with library(engine) as lib:
        result = await lib.bash('echo "$PWD $FRUIT"')
        assert isinstance(result, Finished)
        assert result.output == f"{tmp_path} pear\n"
    async with library(engine, hello=False) as lib:
        result = await lib.bash('echo "${FRUIT-none}"')
        assert isinstance(result, Finished)
        assert result.output == "none\n"


async def test_a_url_and_its_token_are_enough(engine: Engine) -> None:
    facts = engine.facts()
    with trio.fail_after(LIMIT):
        async with client.connect(
            "/nowhere", facts["url"], facts["tokens"]["observer"], as_=new_name()
        ) as lib:
            assert (await lib.engine_info()).slots == 100
            with pytest.raises(errors.Forbidden):
                await lib.bash("true")


async def test_where_none_is_and_none_may_be_started_it_says_so(tmp_path: Path) -> None:
    with trio.fail_after(LIMIT), pytest.raises(NotReachable, match="no engine at home"):
        async with client.connect(tmp_path / "home", start=False):
            pass


async def test_output_is_followed_to_its_end_and_logs_as_they_come(
    engine: Engine, gate: Gate
) -> None:
    async with library(engine) as lib:
        job = await lib.bash(
            f"echo 1; {gate.wait}; echo error: 2; {gate.wait}; echo 3", timeout_secs=0
        )
        assert isinstance(job, Running)
        gate.open()
        async with aclosing(lib.follow_logs(task_id=job.task_id, after_seq=0)) as lines:
            texts = [(await anext(lines)).text for _ in range(2)]
        assert texts == ["1", "error: 2"]
        gate.open()
        async with aclosing(lib.follow_output(job.task_id, offset=2)) as pieces:
            assert b"".join([piece async for piece in pieces]) == b"error: 2\n3\n"
        with pytest.raises(errors.UnknownHandle):
            await anext(lib.follow_output("t0000000"))


async def test_logs_are_followed_from_now_on_unless_said_otherwise(engine: Engine) -> None:
    async with library(engine) as lib:
        await lib.bash("echo error: before")
        lines = lib.follow_logs(logs="error")
        seen: list[str] = []

        async def read() -> None:
            async for line in lines:
                if line.source == "output":
                    seen.append(line.text)
                    break

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await lib.bash("echo error: after")
        await lines.aclose()
    assert seen == ["error: after"]


# The face without trio.


@pytest.fixture
def plain(engine: Engine) -> Iterator[sync.Engine]:
    with sync.connect(engine.home, as_=new_name(), start=False) as lib:
        yield lib


def test_without_trio_the_methods_are_the_same(plain: sync.Engine, gate: Gate) -> None:
    started = plain.bash(f"echo on; {gate.wait}; echo off", timeout_secs=0.2)
    assert isinstance(started, Running)
    gate.open()
    assert b"".join(plain.follow_output(started.task_id)) == b"on\noff\n"
    ended = plain.wait(task_id=started.task_id)
    assert isinstance(ended, Finished)
    assert ended.output == "on\noff\n"
    first = next(plain.follow_logs(after_seq=0, task_id=started.task_id))
    assert first.text == "on"
    with pytest.raises(errors.UnknownHandle) as caught:
        plain.wait(task_id="t0000000")
    assert isinstance(caught.value.__cause__, RpcError)


def test_without_trio_threads_take_turns_and_each_has_its_own_answer(plain: sync.Engine) -> None:
    heard: dict[int, object] = {}

    def ask(number: int) -> None:
        reply = plain.bash(f"sleep 0.1; echo {number}")
        heard[number] = reply.output if isinstance(reply, Finished) else reply

    threads = [threading.Thread(target=ask, args=(n,), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert heard == {0: "0\n", 1: "1\n", 2: "2\n"}


def test_without_trio_leaving_waits_for_the_call_of_another_thread(engine: Engine) -> None:
    heard: list[object] = []
    with sync.connect(engine.home, as_=new_name(), start=False) as lib:
        is_on = threading.Event()

        def ask() -> None:
            ended = lib.run("echo on; sleep 0.2", on_output=lambda _: is_on.set())
            heard.append(ended.output)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert is_on.wait(LIMIT)
    thread.join(LIMIT)
    assert heard == ["on\n"]


def test_without_trio_who_takes_the_output_may_ask_meanwhile(plain: sync.Engine) -> None:
    slots: list[int] = []
    plain.run("echo x", on_output=lambda _: slots.append(plain.engine_info().slots))
    assert slots == [plain.engine_info().slots]


async def test_what_is_no_json_or_no_choice_ends_no_connection(engine: Engine) -> None:
    async with library(engine) as lib:
        with pytest.raises(Unsendable, match="is not JSON serializable"):
            await lib.run([Path("/bin/true")])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="on_cancel 'bogus' is not one of keep, cancel"):
            await lib.run("true", on_cancel="bogus")  # type: ignore[arg-type]
        assert (await lib.run("pwd", cwd=Path("/"))).output == "/\n"


def test_without_trio_a_program_does_not_load_it(engine: Engine) -> None:
    code = (
        "import sys; from engine.client.sync import connect\n"
        f"with connect({str(engine.home)!r}) as e: print(e.run('echo hi').output, end='')\n"
        "assert 'trio' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "hi\n", "")
