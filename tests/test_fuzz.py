"""The fuzzer: a few seconds of each target, and that it sees what is wrong."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Hashable
from pathlib import Path

import pytest

from scripts import fuzz
from scripts.fuzzing import MAX_FAULTS, Fault, Result, Target, feed, make_up, try_one

LIVE = {"heads", "frames", "keeper"}


def target(check: Callable[[bytes], Hashable], **more: object) -> Target:
    facts = {"name": "x", "seeds": (b'{"a": 1, "b": [2]}',), "words": (b"word",), "check": check}
    return Target(**{**facts, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", fuzz.MAKERS)
def test_a_target_takes_or_refuses_all_that_is_made_up(name: str, tmp_path: Path) -> None:
    made = fuzz.MAKERS[name]()
    count = len(made.seeds) + (150 if name in LIVE else 400)
    assert feed(made, count, "a seed of tests", tmp_path).faults == {}


def test_the_same_seed_makes_the_same_inputs(tmp_path: Path) -> None:
    def fed(seed: str) -> list[bytes]:
        seen: list[bytes] = []

        def check(data: bytes) -> int:
            seen.append(data)
            return len(data)

        feed(target(check, pumped=0), 300, seed, tmp_path)
        return seen

    first = fed("1")
    assert first == fed("1")
    assert first != fed("2")
    assert len(set(first)) > 250


def test_what_fails_is_told_once_kept_and_can_be_fed_again(tmp_path: Path) -> None:
    def check(data: bytes) -> int:
        if b"word" in data:
            raise Fault("a word")
        if len(data) > 40:
            raise KeyError("long")
        return 0

    result = feed(target(check), 400, "1", tmp_path)
    assert len(result.faults) == 2
    assert all(
        re.match(r"test_fuzz.py:\d+: a word|KeyError at test_fuzz", what) for what in result.faults
    )
    assert {path.parent for path in result.faults.values() if path} == {tmp_path}
    again = Result("x")
    for path in result.faults.values():
        assert path is not None
        assert try_one(target(check), path.read_bytes(), again, tmp_path / "again") is None
    assert again.faults.keys() == result.faults.keys()


def test_a_target_that_fails_in_many_ways_is_given_up(tmp_path: Path) -> None:
    def check(data: bytes) -> int:
        raise Fault(str(data))

    assert feed(target(check), 400, "1", tmp_path).count == MAX_FAULTS


def test_what_takes_more_of_the_processor_than_its_size_allows_is_a_fault(tmp_path: Path) -> None:
    def check(data: bytes) -> int:
        until = time.process_time() + (0.3 if data == b"slow" else 0)
        while time.process_time() < until:
            pass
        return 0

    result = Result("x")
    assert try_one(target(check), b"fast", result, tmp_path) == 0
    assert try_one(target(check), b"slow", result, tmp_path) is None
    (what,) = result.faults
    assert re.fullmatch(r"nowhere: takes 0\.\d\d s of the processor for 4 bytes", what)


def test_what_leads_to_something_new_is_made_up_from(tmp_path: Path) -> None:
    """Five words in a row are never met by chance."""

    def check(data: bytes) -> int:
        found = re.match(b"(?:word)*", data)
        assert found is not None
        return found.end()

    result = feed(target(check, pumped=0), 20_000, "1", tmp_path)
    assert result.kept >= 6


def test_every_thousandth_input_is_a_piece_again_and_again() -> None:
    made = make_up(random.Random(1), target(lambda _data: 0, pumped=100_000), [b"abc"], 999)
    assert 90_000 < len(made) < 110_000


def test_the_shares_of_the_targets_make_the_whole() -> None:
    assert 999_900 < sum(fuzz.share(name, 1_000_000) for name in fuzz.MAKERS) < 1_000_100
