from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store.ledgers import serving

from engine.store import ledger as ledger_module
from engine.store import told
from engine.store.ledger import Key, Ledger, Setting, Tomb
from engine.store.told import Position, Told
from engine.store.writer import StoreUnavailable

KEY = Key(caller="ci", key="K", digest="d1", task="aaaaaa")


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
        await ledger.set_complete()
        assert ledger.is_complete
    async with serving(path) as ledger:
        assert ledger.is_complete


def position(seq: int, caller: str = "ci") -> Position:
    return Position(caller=caller, marks=[seq] * 8, read_to=seq)


def told_of(task: str, offset: int) -> Told:
    return Told(task=task, caller="ci", output=(offset,), lines=[0] * 8)


def test_what_was_told_is_known_to_the_next_one_without_any_commit(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    with closing(Ledger(path)) as ledger:  # which never gets to write, as if killed
        ledger.note(position(5))
        ledger.note(position(7))
        ledger.tell(told_of("aaaaaa", 3))
        ledger.tell(told_of("bbbbbb", 4))
    with closing(Ledger(path)) as ledger:
        assert ledger.find_position("ci") == position(7)
        assert ledger.find_position("other") is None
        assert ledger.told("aaaaaa", "ci") == told_of("aaaaaa", 3)
        assert ledger.told("aaaaaa", "other") is None
        ledger.keep_told({"bbbbbb"})
        assert ledger.told("aaaaaa", "ci") is None
        ledger.drop_told("bbbbbb")
        assert ledger.told("bbbbbb", "ci") is None


async def test_a_position_that_only_the_database_has_newer_does_not_move_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record.db"
    async with serving(path) as ledger:
        ledger.note(position(5))
        await ledger.add(KEY)  # what was put before is written with it
        before = path.with_suffix(".told").read_bytes()
        ledger.note(position(7))
        await ledger.add(KEY)  # what was put before is written with it
    path.with_suffix(".told").write_bytes(before)
    with closing(Ledger(path)) as ledger:
        assert ledger.find_position("ci") == position(7)


async def test_of_what_was_set_the_newest_counts(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    async with serving(path) as ledger:
        assert ledger.settings() == {}
        for value in ("1", "2"):
            await ledger.add(Setting(name="lane gpu", value=value))
        await ledger.add(Setting(name="mode", value="null"))
        assert ledger.settings() == {"lane gpu": "2", "mode": "null"}
    with closing(Ledger(path)) as ledger:
        assert ledger.settings() == {"lane gpu": "2", "mode": "null"}


@pytest.mark.parametrize("is_writing", [True, False])
async def test_the_file_of_what_was_told_stays_small_and_forgets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_writing: bool
) -> None:
    monkeypatch.setattr(told, "COMPACT_BYTES", 2000)
    path = tmp_path / "record.db"

    def note(ledger: Ledger, number: int) -> None:
        if number == 0:
            ledger.note(position(3, "early"))
        ledger.note(position(number, f"c{number % 3}"))
        ledger.tell(told_of("aaaaaa", number))

    if is_writing:
        async with serving(path) as ledger:
            for number in range(500):
                note(ledger, number)
                if number % 50 == 0:
                    await ledger.add(KEY)  # what was put before is written with it
    else:  # as if it were killed before it could
        with closing(Ledger(path)) as ledger:
            for number in range(500):
                note(ledger, number)
    assert path.with_suffix(".told").stat().st_size < 4000
    with closing(Ledger(path)) as ledger:
        assert ledger.find_position("early") == position(3, "early")
        seqs = {number % 3: number for number in range(500)}
        for which, seq in seqs.items():
            assert ledger.find_position(f"c{which}") == position(seq, f"c{which}")
        assert ledger.told("aaaaaa", "ci") == told_of("aaaaaa", 499)


async def test_the_oldest_tombs_go_with_their_keys_and_then_the_key_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MOST_TOMBS", 10)
    path = tmp_path / "record.db"

    def key(number: int) -> Key:
        return Key(caller="ci", key=f"K{number}", digest="d", task=f"{number:06}")

    async with serving(path) as ledger:
        for number in range(12):
            await ledger.add(key(number))
        await ledger.add(
            *(Tomb(id=f"{n:06}", ended_at=100 - n, status="failed") for n in range(11))
        )
        assert len(ledger.buried({f"{n:06}" for n in range(12)})) == 11
    async with serving(path) as ledger:  # which counts anew
        await ledger.add(Tomb(id="bbbbbb", ended_at=1, status="failed"))
        assert ledger.buried({f"{n:06}" for n in range(12)}) == {f"{n:06}" for n in range(9)}
        assert ledger.find_tomb("bbbbbb") is not None
        assert [n for n in range(12) if ledger.find_key("ci", f"K{n}") is None] == [9, 10]


async def test_of_several_facts_all_are_written_or_none(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    tombs = [Tomb(id=f"{n:06}", ended_at=n, status="failed") for n in range(3)]
    async with serving(path) as ledger:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable):
                await ledger.add(*tombs)
            other.execute("ROLLBACK")
        while True:
            try:
                await ledger.add(KEY)
                break
            except StoreUnavailable:
                continue
        assert ledger.buried({tomb.id for tomb in tombs}) == set()


async def test_of_callers_positions_those_furthest_back_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MOST_POSITIONS", 10)
    path = tmp_path / "record.db"
    async with serving(path) as ledger:
        for number in range(10):
            ledger.note(position(number + 1, f"c{number}"))
        ledger.note(position(50, "c0"))
    async with serving(path) as ledger:
        ledger.note(position(40, "late"))
    with closing(sqlite3.connect(path)) as connection:
        kept = {caller for (caller,) in connection.execute("SELECT caller FROM position")}
    assert kept == {"c0", *(f"c{number}" for number in range(3, 10)), "late"}
