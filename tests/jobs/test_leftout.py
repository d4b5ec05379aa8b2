"""Mirrors `engine/jobs/leftout.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.jobs import leftout
from engine.jobs.leftout import (
    SCAN_CHUNK,
    Pick,
    ReadAt,
    count_lines,
    kept_ranges,
    lift_lines,
)
from engine.jobs.plaintext import render

MIB = 2**20


def picking(is_error: Callable[[str], bool]) -> Callable[[], Pick]:
    """Makes what picks the lines for which `is_error` holds, without their colours."""

    def pick(block: bytes) -> list[tuple[int, str]]:
        lines = render(block.decode()).split("\n")
        return [(place, line) for place, line in enumerate(lines) if is_error(line)]

    return lambda: pick


def lift(data: bytes, is_error: Callable[[str], bool], first_number: int = 1) -> str:
    span, count = (0, len(data)), data.count(b"\n")
    return lift_lines(reader(data), span, first_number, count, picking(is_error), known=99)


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
    data = b"a\n" + b"x" * (SCAN_CHUNK - 5) + b"\nerror here\nend"
    assert data.index(b"error") < SCAN_CHUNK < data.index(b"here")
    assert lift(data, lambda line: "err" in line, 7) == "9: error here\n"


def test_a_lifted_line_is_shown_without_colours_and_shortened() -> None:
    data = b"\x1b[31merror\x1b[0m: " + b"x" * 3_000_000 + b"\nerror: last"
    assert lift(data, lambda line: line.startswith("error")) == (
        "1: error: " + "x" * 393 + "\n2: error: last\n"
    )


def test_the_first_twenty_are_lifted() -> None:
    assert lift(b"error\n" * 21, lambda line: line == "error").splitlines() == [
        f"{number}: error" for number in range(1, 21)
    ]


@pytest.mark.parametrize("length", [1, 17, 1023])
def test_of_a_span_that_is_too_large_both_ends_are_searched_and_the_rest_is_named(
    length: int,
) -> None:
    plain = b"x" * length + b"\n"
    count = 5 * MIB // len(plain)
    data = b"error 1\n" + plain * count + b"error 2\n" + plain * count + b"error 3\n" * 3
    assert lift(data, lambda line: line.startswith("error")).splitlines() == [
        "1: error 1",
        f"<{len(data) - 8 * MIB} bytes were not searched for errors>",
        *(f"{2 * count + number}: error 3" for number in (3, 4, 5)),
    ]


def test_where_both_ends_have_many_each_gets_half() -> None:
    data = b"error\n" * 30 + (b"x" * 1023 + b"\n") * 9 * 1024 + b"error\n" * 30
    lifted = lift(data, lambda line: line == "error").splitlines()
    assert lifted == [f"{n}: error" for n in (*range(1, 11), *range(9267, 9277))]


def test_one_who_has_looked_at_enough_ends_the_search_and_the_rest_is_named() -> None:
    def new_pick() -> Pick:
        blocks = iter([[(0, "seen")], None])
        return lambda _block: next(blocks)

    data = b"x" * 1023 + b"\n"
    data *= 4096
    lifted = lift_lines(reader(data), (0, len(data)), 1, 4096, new_pick, known=3)
    assert lifted.splitlines() == [
        "1: seen",
        f"<{len(data) - 2 * SCAN_CHUNK} bytes were not searched for errors>",
        "4033: seen",
    ]
    lifted = lift_lines(reader(data), (0, len(data)), 1, 4096, new_pick, known=2)
    assert lifted.splitlines() == ["1: seen", "4033: seen"]  # and there are no others


@given(st.lists(st.sampled_from([b"a\n", b"\n", b"bc"])).map(b"".join))
def test_lines_are_numbered_as_they_stand(data: bytes) -> None:
    wanted = [
        f"{number}: a"
        for number, line in enumerate(data.split(b"\n"), 1)
        if line == b"a" and number <= data.count(b"\n")
    ]
    assert lift(data, lambda line: line == "a").splitlines() == wanted[:20]


@given(
    st.lists(st.sampled_from([b"a\n", b"\n", b"bc"]), max_size=60).map(b"".join),
    st.integers(1, 9),
    st.integers(1, 30),
)
def test_whatever_the_pieces_no_line_is_missed_doubled_or_misnumbered(
    data: bytes, chunk: int, scan: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leftout, "SCAN_CHUNK", chunk)
        patch.setattr(leftout, "LIFTED_SCAN", scan)
        lifted = lift(data, lambda line: line == "a").splitlines()
    lines = data.split(b"\n")
    numbers = [int(line.partition(":")[0]) for line in lifted if line[0] != "<"]
    assert numbers == sorted(set(numbers))
    assert {lines[number - 1][-1:] for number in numbers} <= {b"a"}
    if len(data) <= scan:
        assert numbers == [n for n, line in enumerate(lines, 1) if line == b"a"][:20]


def test_where_no_line_ends_the_bytes_are_searched_and_not_counted() -> None:
    class Uncounted(bytes):
        def count(self, *_args: object) -> int:
            raise AssertionError("counted")

    assert leftout.line_ends(Uncounted(bytes(1000))) == 0
    assert leftout.line_ends(b"\na\n\n") == 3
