from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio

from engine.store.ledger import Key, Ledger, Tomb
from engine.store.writer import StoreUnavailable

LIMIT = 15.0  # seconds for any wait here
KEY = Key(caller="ci", key="K", digest="d1", task="aaaaaa")


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Ledger]:
    with closing(Ledger(path)) as ledger, trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            await nursery.start(ledger.serve)
            yield ledger
            nursery.cancel_scope.cancel()


async def test_keys_and_tombs_are_there_after_it_was_closed(tmp_path: Path) -> None:
    path, tomb = tmp_path / "record.db", Tomb(id="bbbbbb", ended_at=7, status="failed")
    async with serving(path) as ledger:
        await ledger.add(KEY)
        await ledger.add(tomb)
    async with serving(path) as ledger:
        assert ledger.find_key("ci", "K") == KEY
        assert ledger.find_key("other", "K") is None
        assert ledger.find_tomb("bbbbbb") == tomb
        assert ledger.find_tomb("aaaaaa") is None


async def test_the_first_use_of_a_key_stands(tmp_path: Path) -> None:
    async with serving(tmp_path / "record.db") as ledger:
        await ledger.add(KEY)
        await ledger.add(Key(caller="ci", key="K", digest="d2", task="cccccc"))
        assert ledger.find_key("ci", "K") == KEY


async def test_what_the_store_did_not_take_is_not_there_and_never_will_be(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    async with serving(path) as ledger:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable):
                await ledger.add(KEY)
            assert ledger.trouble == "database is locked"
            assert ledger.find_key("ci", "K") is None
            other.execute("ROLLBACK")
        tomb = Tomb(id="bbbbbb", ended_at=None, status="lost")
        while True:
            try:
                await ledger.add(tomb)
                break
            except StoreUnavailable:
                continue
        assert ledger.find_tomb("bbbbbb") == tomb
        assert ledger.find_key("ci", "K") is None


async def test_a_new_one_asks_for_the_keys_of_all_tasks_until_it_has_them(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    async with serving(path) as ledger:
        assert not ledger.is_complete
    async with serving(path) as ledger:
        assert not ledger.is_complete
        ledger.set_complete()
        assert ledger.is_complete
    async with serving(path) as ledger:
        assert ledger.is_complete
