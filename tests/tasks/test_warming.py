"""Mirrors `engine/tasks/warming.py`: which call finds a shell that was started ahead."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trio
from tasks.building import BASE, FakeExecutor

from engine.config import Home
from engine.jobs.directory import Spec
from engine.jobs.executor import LaunchRefused, Order
from engine.jobs.shellstate import ShellState, size_of
from engine.model import Kind
from engine.tasks import warming as module
from engine.tasks.ahead import DirectoriesAhead
from engine.tasks.sessions import ShellSessions
from engine.tasks.starting import Starter
from engine.tasks.warming import KEEP_SECS, WarmShells, is_plain

STATE = ShellState(
    directory=b"/usr", umask=b"0022", options=(), shell_options=(b"extglob",), posix=None,
    aliases=b"", variables={}, functions=(), foreign=(), digest=b"1",
)  # fmt: skip
OTHER = msgspec.structs.replace(STATE, directory=b"/", digest=b"2")


class Sessions(ShellSessions):
    """States as a test sets them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.states: dict[str, ShellState | None] = {}

    def state(self, caller: str) -> ShellState | None:
        return self.states.get(caller)

    def size(self, caller: str) -> int:
        return size_of(self.state(caller))


class Warming:
    def __init__(self, path: Path, limit: int = 2) -> None:
        home = Home(path)
        home.tasks.mkdir()
        self.home, self.executor, self.sessions = home, FakeExecutor(), Sessions(path)
        self.ahead = DirectoriesAhead(home, lambda _ids: set())
        self.shells = WarmShells(
            self.executor, Starter(str(path), 1 << 30), self.sessions, self.ahead, limit
        )

    async def renew(self, caller: str, state: ShellState | None = STATE) -> str | None:
        """The id for which the caller has a shell now."""
        self.sessions.states[caller] = state
        await self.shells.renew(caller)
        return self.shells.id_for(caller)


@pytest.fixture
async def warming(tmp_path: Path) -> AsyncIterator[Warming]:
    with trio.fail_after(10):
        yield Warming(tmp_path)


def spec(id_: str | None, caller: str = "ci") -> Spec:
    return Spec(
        id=id_ or "", caller=caller, kind=Kind.BASH, title="", order=1, created_at=1, base=BASE,
        command="true", session=True,
    )  # fmt: skip


async def test_the_next_call_finds_the_shell_that_was_started_for_it(warming: Warming) -> None:
    id_ = await warming.renew("ci")
    assert warming.executor.prepared == [id_]
    assert os.listdir(warming.home.ahead) == [id_]
    assert warming.shells.id_for("docs") is None
    warming.shells.take(spec(id_), STATE)
    assert warming.executor.prepared == [id_]
    assert warming.shells.id_for("ci") is None


async def test_a_shell_is_kept_while_the_state_is_the_same(warming: Warming) -> None:
    first = await warming.renew("ci")
    assert await warming.renew("ci") == first
    second = await warming.renew("ci", OTHER)
    assert second != first
    assert warming.executor.prepared == [second]
    assert os.listdir(warming.home.ahead) == [second]


async def test_a_session_that_has_changed_meanwhile_gets_no_shell_of_the_old_state(
    warming: Warming,
) -> None:
    id_ = await warming.renew("ci")
    warming.shells.take(spec(id_), OTHER)
    assert warming.executor.prepared == []


async def test_a_new_session_has_no_shell(warming: Warming) -> None:
    assert await warming.renew("ci", None) is None
    assert warming.executor.prepared == []


async def test_beyond_the_limit_the_oldest_shell_goes(
    warming: Warming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SPARED_SECS", 0.0)
    ids = [await warming.renew(caller) for caller in ("a", "b", "c")]
    assert warming.executor.prepared == ids[1:]
    assert warming.shells.id_for("a") is None


async def test_of_more_callers_at_once_than_may_have_a_shell_some_keep_theirs(
    warming: Warming,
) -> None:
    ids = [await warming.renew(caller) for caller in ("a", "b")]
    for caller in ("c", "d"):
        await warming.renew(caller)
    assert warming.executor.prepared == ids
    assert [warming.shells.id_for(caller) for caller in "abcd"] == [*ids, None, None]


async def test_no_shell_is_started_where_there_may_be_none(tmp_path: Path) -> None:
    warming = Warming(tmp_path, limit=0)
    with trio.fail_after(10):
        assert await warming.renew("ci") is None
    assert warming.executor.prepared == []


async def test_a_caller_who_resets_or_leaves_keeps_no_shell(warming: Warming) -> None:
    await warming.renew("ci")
    warming.shells.discard("ci")
    warming.shells.discard("ci")
    assert (warming.executor.prepared, os.listdir(warming.home.ahead)) == ([], [])


async def test_where_no_keeper_is_to_be_had_there_is_no_shell(
    warming: Warming, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_args: object) -> None:
        raise LaunchRefused("no process")

    monkeypatch.setattr(warming.executor, "prepare", refuse)
    assert await warming.renew("ci") is None
    assert os.listdir(warming.home.ahead) == []


async def test_a_shell_whose_call_came_before_it_was_ready_is_ended(
    warming: Warming, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = warming.executor.prepare

    async def late(directory: object, order: Order) -> None:
        warming.shells.take(spec(warming.shells.id_for("ci")), STATE)
        await prepare(directory, order)  # type: ignore[arg-type]

    monkeypatch.setattr(warming.executor, "prepare", late)
    assert await warming.renew("ci") is None
    assert warming.executor.prepared == []


async def test_a_shell_waits_five_minutes(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    warming = Warming(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(warming.shells.serve)
        await trio.testing.wait_all_tasks_blocked()
        await warming.renew("a")
        await trio.sleep(KEEP_SECS - 1)
        second = await warming.renew("b")
        await trio.sleep(2)
        assert warming.executor.prepared == [second]
        await trio.sleep(KEEP_SECS)
        assert warming.executor.prepared == []
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "own",
    [
        {"cwd": "/"}, {"env": {"A": "b"}}, {"stdin": "x"}, {"stdin_open": True}, {"pty": True},
        {"split": True}, {"session": False}, {"command": None, "argv": ["true"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_call_with_something_of_its_own_starts_its_own_shell(own: dict[str, object]) -> None:
    assert is_plain(spec("a"))
    assert not is_plain(msgspec.structs.replace(spec("a"), **own))


async def test_one_in_a_hurry_who_changes_nothing_has_the_next_shell_started_with_the_call(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    warming = Warming(tmp_path)
    warming.sessions.states["ci"] = STATE
    assert not warming.shells.is_hurried("ci")
    for after, hurried in ((STATE, True), (OTHER, False), (OTHER, True)):
        warming.shells.take(spec("x"), warming.sessions.state("ci"))
        warming.sessions.states["ci"] = after
        warming.shells.replied("ci")
        assert warming.shells.is_hurried("ci") is hurried


async def test_one_who_takes_time_has_it_started_after_the_reply(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    warming = Warming(tmp_path)
    warming.sessions.states["ci"] = STATE
    warming.shells.take(spec("x"), STATE)
    warming.shells.replied("ci")
    await warming.renew("ci")
    await trio.sleep(0.002)
    assert warming.shells.is_hurried("ci")
    await trio.sleep(0.002)
    assert not warming.shells.is_hurried("ci")
    assert warming.shells.id_for("ci") is not None


async def test_one_that_is_taken_before_anybody_looks_for_its_time_ends_nothing(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    warming = Warming(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(warming.shells.serve)
        await trio.testing.wait_all_tasks_blocked()
        assert await warming.renew("a") is not None
        warming.shells.discard("a")  # in the turn in which it came
        await trio.testing.wait_all_tasks_blocked()
        assert await warming.renew("b") is not None
        await trio.sleep(KEEP_SECS + 1)
        assert warming.shells.id_for("b") is None
        nursery.cancel_scope.cancel()
