from __future__ import annotations

from pathlib import Path

import pytest
from tasks.building import FakeExecutor, built

from engine.errors import InvalidParams
from engine.store.ledger import Ledger
from engine.tasks.lanes import Lanes


def test_a_lane_is_open_until_so_many_run_in_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "record.db")
    lanes = Lanes({"gpu": 2, "off": 0}, ledger)
    lanes.take("gpu")
    assert lanes.is_open("gpu")
    lanes.take("gpu")
    assert not lanes.is_open("gpu")
    lanes.take("gpu")  # it was begun before us
    lanes.give_back("gpu")
    assert not lanes.is_open("gpu")
    assert lanes.reason("gpu") == "lane gpu is full (2 of 2)"
    lanes.give_back("gpu")
    assert lanes.is_open("gpu")
    assert lanes.is_open(None)
    assert (lanes.is_open("off"), lanes.reason("off")) == (False, "lane off is closed")
    assert (lanes.is_open("x"), lanes.reason("x")) == (False, "there is no lane x now")
    ledger.close()


def test_a_lane_that_there_is_not_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "record.db")
    lanes = Lanes({"gpu": 2, "db": 1}, ledger)
    lanes.check(None)
    lanes.check("gpu")
    with pytest.raises(InvalidParams, match=r"^\$\.lane: expected one of the lanes db, gpu$"):
        lanes.check("cpu")
    ledger.close()


async def test_what_was_set_counts_as_long_as_the_settings_say_what_they_said_then(
    tmp_path: Path,
) -> None:
    async with built(tmp_path, FakeExecutor()) as engine:
        await Lanes({"gpu": 1}, engine.ledger).set_limit("gpu", 3)
        await Lanes({"gpu": 1}, engine.ledger).set_limit("new", 2)
    ledger = Ledger(tmp_path / "record.db")
    assert Lanes({"gpu": 1}, ledger).limits == {"gpu": 3, "new": 2}
    assert Lanes({"gpu": 2, "new": 5}, ledger).limits == {"gpu": 2, "new": 5}
    assert Lanes({}, ledger).limits == {"new": 2}
    ledger.close()
