"""What an excerpt leaves out: how many lines that is, and which of them are worth showing.

Reads a chunk at a time, whatever the size. Counting costs about 0.5 s a GiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from engine.jobs.plaintext import render

Pick = Callable[[list[str]], Iterable[int]]  # the next lines -> places of those to lift, in order
ReadAt = Callable[[int, int], bytes]  # offset, length -> what is there, shorter at the end
Range = tuple[int, int]  # offsets, the end excluded

CHUNK: Final = 2**20  # bytes held at once
MAX_LIFTED: Final = 20  # lines
LIFTED_LENGTH: Final = 400  # characters of a line that are shown
LIFTED_SCAN: Final = 8 * 2**20  # bytes that are searched; a predicate a line is slow
LINE_LENGTH: Final = 4096  # bytes of a line that the predicate sees


def kept_ranges(start: int, end: int, hole: Range | None) -> list[Range]:
    """The ranges between `start` and `end` that are still there; `hole` is what is not."""
    if hole is None:
        return [(start, end)]
    return [(start, max(min(hole[0], end), start)), (min(max(hole[1], start), end), end)]


def count_lines(read_at: ReadAt, ranges: list[Range]) -> int:
    """The number of line ends in `ranges`."""
    return sum(
        read_at(at, min(CHUNK, end - at)).count(b"\n")
        for start, end in ranges
        for at in range(start, end, CHUNK)
    )


def lift_lines(read_at: ReadAt, span: Range, first_number: int, pick: Pick) -> str:
    """The first `MAX_LIFTED` lines of `span` that `pick` picks, each as `NUMBER: text`.

    `first_number` is the number of the line in which `span` begins. Only its first `LIFTED_SCAN`
    bytes are searched; `pick` is given them in pieces, in order.
    """
    start, end = span
    lifted: list[str] = []
    for lines in _lines(read_at, (start, min(end, start + LIFTED_SCAN))):
        texts = [render(raw[:LINE_LENGTH].decode("utf-8", "replace")) for raw in lines]
        lifted += [
            f"{first_number + place}: {texts[place][:LIFTED_LENGTH]}\n" for place in pick(texts)
        ]
        if len(lifted) >= MAX_LIFTED:
            break
        first_number += len(lines)
    return "".join(lifted[:MAX_LIFTED])


def _lines(read_at: ReadAt, span: Range) -> Iterator[list[bytes]]:
    """The lines of `span` without their ends, those over `LINE_LENGTH` shortened at some point."""
    start, end = span
    rest = b""
    for at in range(start, end, CHUNK):
        *lines, rest = (rest + read_at(at, min(CHUNK, end - at))).split(b"\n")
        yield lines
        rest = rest[:LINE_LENGTH]
    if rest:
        yield [rest]
