from __future__ import annotations

from pathlib import Path

import pytest
import trio
from tasks.building import FakeExecutor, ask, built

from engine.errors import InvalidState, Overloaded
from engine.store.ledger import Ledger
from engine.store.writer import StoreUnavailable
from engine.tasks.mode import Mode


async def test_the_mode_ends_in_time_and_says_so_once(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        mode = Mode(engine.ledger)
        said = trio.Event()
        engine.nursery.start_soon(mode.serve, said.set)
        await mode.take("a", 60)
        await mode.take("a", 0.05)
        assert mode.owner == "a"
        await said.wait()
        assert mode.owner is None


async def test_another_has_to_wait_and_the_owner_may_take_it_anew(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        mode = Mode(engine.ledger)
        await mode.share("a", is_human=False)
        await mode.take("a", 60)
        with pytest.raises(InvalidState) as told:
            await mode.take("b", 60)
        assert told.value.data() == {"kind": "invalid_state", "state": "exclusive", "owner": "a"}
        with pytest.raises(InvalidState):
            await mode.share("b", is_human=False)
        await mode.share("b", is_human=True)
        await mode.take("b", 60)
        assert mode.owner == "b"
        assert not mode.leave("a")
        assert mode.leave("b")
        assert mode.owner is None


async def test_two_who_want_it_in_one_moment_do_not_both_have_it(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        mode, refused = Mode(engine.ledger), []

        async def take(caller: str) -> None:
            try:
                await mode.take(caller, 60)
            except InvalidState:
                refused.append(caller)

        async with trio.open_nursery() as nursery:
            for caller in "ab":
                nursery.start_soon(take, caller)
        assert len(refused) == 1
        assert {mode.owner, *refused} == {"a", "b"}


async def test_it_is_known_to_the_next_engine_but_for_one_without_a_name(tmp_path: Path) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        await Mode(engine.ledger).take("a", 60)
        assert Mode(engine.ledger).owner == "a"
        await Mode(engine.ledger).take("a", 0.001)
        await trio.sleep(0.01)
        assert Mode(engine.ledger).owner is None
        await Mode(engine.ledger).take("anon-1", 60)
        assert Mode(engine.ledger).owner is None


async def test_what_the_store_does_not_take_is_not_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:

        async def add(_self: Ledger, _fact: object) -> None:
            raise StoreUnavailable("disk full")

        await engine.supervisor.set_mode("a", 60, is_human=False)
        monkeypatch.setattr(Ledger, "add", add)
        with pytest.raises(Overloaded):
            await engine.supervisor.set_mode("a", None, is_human=False)
        assert engine.supervisor.schedule.mode.owner == "a"
        other = await engine.supervisor.accept(ask("b"))
        assert other in engine.supervisor.schedule.queue
