"""Mirrors `engine/store/receipts.py`, as a part of the ledger."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store.ledgers import serving

from engine.store import receipts, told
from engine.store.ledger import Ledger
from engine.store.told import Receipt, State, Told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


def receipt(
    handle: str, state: State, delivery: str | None = None, *, caller: str = "ci"
) -> Receipt:
    return Receipt(caller=caller, handle=handle, state=state, delivery=delivery)


def states(ledger: Ledger) -> dict[tuple[str, str], str]:
    return {key: found.state for key, found in ledger.receipts.all().items()}


def test_what_was_noted_is_known_to_the_next_one_without_any_commit(path: Path) -> None:
    with closing(Ledger(path)) as ledger:  # which never gets to write, as if killed
        ledger.receipts.note([receipt("t1", "delivered", "d1"), receipt("t2", "delivered", "d1")])
        ledger.receipts.note([receipt("t1", "received")])
        ledger.receipts.note([receipt("t3", "noticed", caller="other")])
    with closing(Ledger(path)) as ledger:
        assert ledger.receipts.find("ci", "t1") == receipt("t1", "received")
        assert ledger.receipts.find("ci", "t2") == receipt("t2", "delivered", "d1")
        assert ledger.receipts.find("other", "t2") is None
        assert states(ledger) == {
            ("ci", "t1"): "received",
            ("ci", "t2"): "delivered",
            ("other", "t3"): "noticed",
        }


def test_what_was_taken_back_is_as_if_it_had_never_been_told(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.receipts.note([receipt("t1", "delivered", "d1")])
        ledger.receipts.note([receipt("t1", "none")])
        assert ledger.receipts.find("ci", "t1") is None
        assert states(ledger) == {}
    with closing(Ledger(path)) as ledger:
        assert ledger.receipts.find("ci", "t1") is None


async def test_the_database_gets_them_many_at_a_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "MOST_HELD", 10)
    async with serving(path) as ledger:
        for number in range(10):
            ledger.receipts.note([receipt(f"t{number}", "received")])
        await ledger.settle()
        assert rows(path) == 0
        ledger.receipts.note([receipt("t10", "noticed")])
        await ledger.settle()
        assert rows(path) == 11
        assert ledger.receipts.received_of("ci", ["t0", "t10", "t11"]) == {"t0"}
        ledger.receipts.note([receipt("t10", "received"), receipt("t0", "received")])
        assert ledger.receipts.received_of("ci", ["t0", "t10", "t11"]) == {"t0", "t10"}
    path.with_suffix(".told").unlink()
    with closing(Ledger(path)) as ledger:
        assert ledger.receipts.find("ci", "t9") == receipt("t9", "received")


async def test_one_that_is_taken_back_leaves_the_database_too(path: Path) -> None:
    async with serving(path) as ledger:
        ledger.receipts.note([receipt("t1", "noticed"), receipt("t2", "noticed")])
        ledger.receipts.hand_over()
        await ledger.settle()
        ledger.receipts.note([receipt("t1", "none")])
        ledger.receipts.hand_over()
        await ledger.settle()
        assert rows(path) == 1
        assert states(ledger) == {("ci", "t2"): "noticed"}


async def test_a_handle_that_is_dropped_takes_the_receipts_of_all_callers_with_it(
    path: Path,
) -> None:
    async with serving(path) as ledger:
        for caller in ("ci", "other"):
            ledger.receipts.note([receipt("t1", "received", caller=caller)])
        ledger.receipts.hand_over()
        ledger.receipts.note([receipt("t1", "noticed", caller="third"), receipt("t2", "received")])
        ledger.receipts.drop("t1")
        ledger.receipts.hand_over()
        await ledger.settle()
        assert states(ledger) == {("ci", "t2"): "received"}
        assert rows(path) == 1


async def test_nothing_that_was_received_is_taken_for_only_delivered_again(path: Path) -> None:
    async with serving(path) as ledger:
        ledger.receipts.note([receipt("t1", "delivered", "d1")])
        before = path.with_suffix(".told").read_bytes()
        ledger.receipts.note([receipt("t1", "received")])
        ledger.receipts.hand_over()
        await ledger.settle()
    path.with_suffix(".told").write_bytes(before)  # as if that had not been written
    with closing(Ledger(path)) as ledger:
        assert ledger.receipts.find("ci", "t1") == receipt("t1", "received")


def test_the_file_stays_small_and_forgets_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "COMPACT_BYTES", 2_000)
    with closing(Ledger(path)) as ledger:
        ledger.receipts.note([receipt("t7", "noticed")])
        for _ in range(500):
            ledger.receipts.note([receipt("t1", "delivered", "d1")])
            ledger.receipts.note([receipt("t1", "received")])
            ledger.tell(Told(task="aaaaaa", caller="ci", output=(0,), lines=[0] * 8))
    assert path.with_suffix(".told").stat().st_size < 4_000
    with closing(Ledger(path)) as ledger:
        assert states(ledger) == {("ci", "t1"): "received", ("ci", "t7"): "noticed"}


def test_from_where_on_receipts_are_recorded_is_settled_by_the_first_engine(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        assert ledger.receipts_from(41) == 41
    with closing(Ledger(path)) as ledger:
        assert ledger.receipts_from(99) == 41


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM receipt").fetchone()
    return int(count)
