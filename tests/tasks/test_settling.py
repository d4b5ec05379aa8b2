"""Mirrors `engine/tasks/settling.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from engine.jobs.directory import Base, Spec
from engine.jobs.shellstate import CallPlan, plan_call
from engine.model import Kind
from engine.tasks.sessions import ShellSessions
from engine.tasks.settling import LONGEST_SECS, Settling
from engine.tasks.waits import Waits

DUMP = b'\0begin\0:braceexpand:/:sourcepath:/\0/usr\n\x000022\n\0\0declare -- A="1"\n\0\0\0end\0'


def plan() -> CallPlan:
    return plan_call(None, b"true", session=True, base={}, env={}, defaults={}, identity={})


def spec(id_: str, caller: str = "ci") -> Spec:
    return Spec(
        id=id_, caller=caller, kind=Kind.BASH, title="", order=1, created_at=1,
        base=Base(cwd="/", env={}), command="true", session=True,
    )  # fmt: skip


@pytest.fixture
def sessions(tmp_path: Path) -> ShellSessions:
    return ShellSessions(tmp_path)


@pytest.fixture
def settling(sessions: ShellSessions) -> Settling:
    return Settling(sessions, Waits())


async def is_waiting(settling: Settling, caller: str = "ci") -> bool:
    with trio.move_on_after(0.001) as scope:
        await settling.wait(caller)
    return scope.cancelled_caught


async def test_a_caller_is_waited_for_until_all_its_states_are_there(
    settling: Settling, sessions: ShellSessions
) -> None:
    settling.expect(spec("a"), plan())
    settling.expect(spec("b"), plan())
    assert not await is_waiting(settling, "docs")
    settling.take("a", {}, DUMP)
    assert await is_waiting(settling)
    with capture_logs() as logs:
        settling.lose("b")
    assert not await is_waiting(settling)
    assert [(line["event"], line["taskId"], line["caller"]) for line in logs] == [
        ("session_state_lost", "tb", "ci")
    ]
    state = sessions.state("ci")
    assert state is not None
    assert (state.cwd, state.variables[b"A"]) == ("/usr", b'declare -- A="1"')


async def test_one_that_waits_goes_on_when_the_state_is_there(settling: Settling) -> None:
    settling.expect(spec("a"), plan())
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(settling.wait, "ci")
            await trio.testing.wait_all_tasks_blocked()
            settling.take("a", {}, DUMP)


async def test_it_is_not_waited_for_longer_than_bounded(
    settling: Settling, autojump_clock: trio.testing.MockClock
) -> None:
    settling.expect(spec("a"), plan())
    begun = trio.current_time()
    await settling.wait("ci")
    assert trio.current_time() - begun == pytest.approx(LONGEST_SECS)


@pytest.mark.parametrize(
    ("news", "dump", "told"),
    [
        ({}, DUMP, []),
        ({}, b"", [("session_state_lost", "its shell wrote none")]),
        ({"mishap": "killed"}, DUMP[:-5], [("session_state_lost", "killed")]),
        ({"mishap": "ended with 7"}, DUMP, [("call_ended_otherwise", "ended with 7")]),
        ({"stateLeft": 1 << 30}, b"", [("session_state_too_large", None)]),
    ],
)
def test_what_went_wrong_is_told(
    settling: Settling, news: dict[str, object], dump: bytes, told: list[tuple[str, str | None]]
) -> None:
    settling.expect(spec("a"), plan())
    with capture_logs() as logs:
        settling.take("a", news, dump)
        settling.take("a", news, dump)  # nobody expects it any more
        settling.lose("a")
    assert [(line["event"], line.get("reason")) for line in logs] == told


async def test_of_a_session_that_was_ended_no_state_is_taken(
    settling: Settling, sessions: ShellSessions
) -> None:
    settling.expect(spec("a"), plan())
    settling.expect(spec("b", "docs"), plan())
    settling.drop("ci")
    assert not await is_waiting(settling)
    assert await is_waiting(settling, "docs")
    settling.take("a", {}, DUMP)
    assert sessions.state("ci") is None
