"""Mirrors `engine/jobs/leftout.py`."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from engine.jobs.leftout import Pick, ReadAt, count_lines, kept_ranges, lift_lines

MIB = 2**20


def picking(is_error: Callable[[str], bool]) -> Pick:
    return lambda lines: [place for place, line in enumerate(lines) if is_error(line)]


def reader(data: bytes) -> ReadAt:
    return lambda offset, length: data[offset : offset + length]


def test_what_stands_on_both_sides_of_a_hole_is_kept() -> None:
    assert kept_ranges(10, 90, None) == [(10, 90)]
    assert kept_ranges(10, 90, (30, 50)) == [(10, 30), (50, 90)]
    assert kept_ranges(10, 90, (30, 200)) == [(10, 30), (90, 90)]
    assert kept_ranges(40, 90, (30, 50)) == [(40, 40), (50, 90)]


def test_lines_are_counted_over_chunks_and_ranges() -> None:
    data = (b"x" * 99 + b"\n") * 30_000
    assert len(data) > 2 * MIB
    assert count_lines(reader(data), [(0, len(data))]) == 30_000
    assert count_lines(reader(data), [(0, 100), (150, 300), (500, 500)]) == 3


def test_a_line_in_two_chunks_is_one_line() -> None:
    data = b"a\n" + b"x" * (MIB - 5) + b"\nerror here\nend"
    assert data.index(b"error") < MIB < data.index(b"here")
    assert lift_lines(reader(data), (0, len(data)), 7, picking(lambda line: "err" in line)) == (
        "9: error here\n"
    )


def test_a_lifted_line_is_shown_without_colours_and_shortened() -> None:
    data = b"\x1b[31merror\x1b[0m: " + b"x" * 5_000_000 + b"\nerror: last"
    assert lift_lines(
        reader(data), (0, len(data)), 1, picking(lambda line: line.startswith("error"))
    ) == ("1: error: " + "x" * 393 + "\n2: error: last\n")


def test_the_first_twenty_are_lifted_and_no_more_is_searched() -> None:
    data = b"error\n" * 21
    assert lift_lines(reader(data), (0, len(data)), 1, picking(bool)).splitlines() == [
        f"{number}: error" for number in range(1, 21)
    ]
    late = (b"x" * 1023 + b"\n") * (9 * 1024) + b"error\n"
    assert lift_lines(reader(late), (0, len(late)), 1, picking(lambda line: line == "error")) == ""


@given(st.lists(st.sampled_from([b"a\n", b"\n", b"bc"])).map(b"".join))
def test_lines_are_numbered_as_they_stand(data: bytes) -> None:
    wanted = [
        f"{number}: a"
        for number, line in enumerate(data.split(b"\n"), 1)
        if line == b"a" and number <= data.count(b"\n")
    ]
    lifted = lift_lines(reader(data), (0, len(data)), 1, picking(lambda line: line == "a"))
    assert lifted.splitlines() == wanted[:20]
