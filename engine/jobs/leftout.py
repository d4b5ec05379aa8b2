"""What an excerpt leaves out: how many lines that is, and which of them are worth showing.

Reads a chunk at a time, whatever the size. Counting costs about 0.5 s a GiB, a fifth of it where
there are no line ends; what is searched for lines worth showing is bounded, from both ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

# Whole lines as they are written -> (place, text) of those to lift, in order; None: enough was
# looked at, the search ends here.
Pick = Callable[[bytes], list[tuple[int, str]] | None]
ReadAt = Callable[[int, int], bytes]  # offset, length -> what is there, shorter at the end
Range = tuple[int, int]  # offsets, the end excluded

CHUNK: Final = 2**18  # bytes held at once: they fit into a processor's cache
MAX_LIFTED: Final = 20  # lines
LIFTED_LENGTH: Final = 400  # characters of a line that are shown
LIFTED_SCAN: Final = 4 * 2**20  # bytes that are searched, from either end
SCAN_CHUNK: Final = 2**16  # bytes given to a `Pick` at once
LINE_LENGTH: Final = 4096  # bytes of a line that needs to be looked at


class _Found(NamedTuple):
    """A line to lift: its number among those of the span, from 0, and its text."""

    number: int
    text: str


def kept_ranges(start: int, end: int, hole: Range | None) -> list[Range]:
    """The ranges between `start` and `end` that are still there; `hole` is what is not."""
    if hole is None:
        return [(start, end)]
    return [(start, max(min(hole[0], end), start)), (min(max(hole[1], start), end), end)]


def line_ends(data: bytes) -> int:
    """The number of line ends in `data`. Where there are none, a search tells it much sooner."""
    return data.count(b"\n") if b"\n" in data else 0


def count_lines(read_at: ReadAt, ranges: list[Range]) -> int:
    """The number of line ends in `ranges`."""
    return sum(
        line_ends(read_at(at, min(CHUNK, end - at)))
        for start, end in ranges
        for at in range(start, end, CHUNK)
    )


def lift_lines(
    read_at: ReadAt,
    span: Range,
    first_number: int,
    line_count: int,
    new_pick: Callable[[], Pick],
    *,
    known: int,
) -> str:
    """Lines of `span` that are picked, each as `NUMBER: text`; `MAX_LIFTED` at most.

    The first ones, and of a span that is not searched as a whole the last ones too. If fewer than
    the `known` ones are found in such a span, a line says how much was not searched. `first_number`
    is the number of the line in which `span` begins, `line_count` how many line ends it has.
    `new_pick` makes what picks, for either end.
    """
    start, end = span
    first, front = _from_front(read_at, start, min(end, start + LIFTED_SCAN), new_pick())
    last: list[_Found] = []
    back = end
    if front < end:
        floor = max(front, end - LIFTED_SCAN)
        last, back = _from_back(read_at, floor, end, line_count, new_pick())
    first = first[: MAX_LIFTED - min(len(last), MAX_LIFTED // 2)]
    last = last[-(MAX_LIFTED - len(first)) :]
    is_gap = back > front and len(first) + len(last) < min(known, MAX_LIFTED)
    note = f"<{back - front} bytes were not searched for errors>\n" if is_gap else ""
    return _written(first, first_number) + note + _written(last, first_number)


def _written(found: list[_Found], first_number: int) -> str:
    return "".join(f"{first_number + number}: {text[:LIFTED_LENGTH]}\n" for number, text in found)


def _from_front(read_at: ReadAt, start: int, end: int, pick: Pick) -> tuple[list[_Found], int]:
    """The first lines that are picked, and up to where was searched."""
    found: list[_Found] = []
    number, rest, at = 0, b"", start
    while at < end and len(found) < MAX_LIFTED:
        data = rest + read_at(at, min(SCAN_CHUNK, end - at))
        next_at = min(at + SCAN_CHUNK, end)
        whole = data.rfind(b"\n") + 1 if next_at < end else len(data)
        picked = pick(data[:whole]) if whole else []
        if picked is None:
            return found, at - len(rest)
        found += [_Found(number + place, text) for place, text in picked]
        number += data.count(b"\n")
        rest, at = data[whole:][:LINE_LENGTH], next_at
    return found[:MAX_LIFTED], at


def _from_back(
    read_at: ReadAt, start: int, end: int, line_count: int, pick: Pick
) -> tuple[list[_Found], int]:
    """The last lines that are picked, and from where on was searched."""
    found: list[_Found] = []
    number, stop = line_count, end  # of the lines before `stop`
    while stop > start and len(found) < MAX_LIFTED:
        at = max(start, stop - SCAN_CHUNK)
        data = read_at(at, stop - at)
        cut = 0  # of a line that begins before: the next block has all of it
        if at and read_at(at - 1, 1) != b"\n":
            cut = data.find(b"\n") + 1 or len(data)
        number -= data.count(b"\n", cut)
        picked = pick(data[cut:]) if cut < len(data) else []
        if picked is None:
            break
        found = [_Found(number + place, text) for place, text in picked] + found
        if cut < len(data) and at > start:
            stop = at + cut
        else:
            number -= data.count(b"\n", 0, cut)
            stop = at
    return found[-MAX_LIFTED:], stop
