"""Mirrors `engine/server/fitting.py`."""

from __future__ import annotations

import json

from engine.jobs.plaintext import json_bytes
from engine.server.fitting import clip, fit, frame


def test_a_text_that_has_room_stays_and_one_that_has_none_says_how_much_is_left_out() -> None:
    assert clip("x" * 100, 100) == "x" * 100
    cut = clip("x" * 1_000, 100)
    kept = cut.index("…")
    assert cut == "x" * kept + f"…<{1_000 - kept} characters left out; wait has them>"
    assert kept > 40
    assert json_bytes(cut) <= 100
    assert clip("x" * 1_000, 0, None) == "…<1000 characters left out>"


def test_what_json_makes_longer_is_cut_by_what_it_is_there() -> None:
    cut = clip("\x01" * 1_000, 600)
    assert 400 < json_bytes(cut) <= 600
    assert len(cut.partition("…")[0]) < 100


def test_an_entry_with_room_is_left_as_it_is() -> None:
    entry = {"taskId": "t123456", "output": "x" * 500}
    assert fit(entry, 1_000) is entry


def test_of_an_entry_the_longest_texts_are_cut_and_no_end_in_it_is_lost() -> None:
    seats = {
        f"s{number}": {"taskId": f"t{number:06}", "output": "x" * 5_000, "value": "v" * 90}
        for number in range(100)
    }
    cut = fit({"roundId": "r123456", "seats": seats}, 100_000)
    assert len(json.dumps(cut, ensure_ascii=False).encode()) < 110_000
    assert cut["seats"].keys() == seats.keys()
    seat = cut["seats"]["s7"]
    assert (seat["taskId"], seat["value"]) == ("t000007", "v" * 90)
    assert seat["output"].endswith("characters left out; read_output has them>")


def test_a_page_keeps_room_for_its_notices_and_a_small_one_less() -> None:
    assert frame(512 * 1024) == 3_584
    assert frame(8_000) == 1_000
