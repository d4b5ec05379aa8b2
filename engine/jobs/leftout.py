"""What an excerpt leaves out: how many lines that is, and which of them are worth showing.

Reads a chunk at a time, whatever the size. Counting costs about 0.5 s a GiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from engine.jobs.plaintext import render

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


def lift_lines(
    read_at: ReadAt, span: Range, first_number: int, is_error: Callable[[str], bool]
) -> str:
    """The first `MAX_LIFTED` lines of `span` that `is_error` picks, each as `NUMBER: text`.

    `first_number` is the number of the line in which `span` begins. Only its first `LIFTED_SCAN`
    bytes are searched.
    """
    start, end = span
    lifted: list[str] = []
    lines = _lines(read_at, (start, min(end, start + LIFTED_SCAN)))
    for number, raw in enumerate(lines, first_number):
        text = render(raw[:LINE_LENGTH].decode("utf-8", "replace"))
        if is_error(text):
            lifted.append(f"{number}: {text[:LIFTED_LENGTH]}\n")
            if len(lifted) == MAX_LIFTED:
                break
    return "".join(lifted)


def _lines(read_at: ReadAt, span: Range) -> Iterator[bytes]:
    """The lines of `span` without their ends, those over `LINE_LENGTH` shortened at some point."""
    start, end = span
    rest = b""
    for at in range(start, end, CHUNK):
        *lines, rest = (rest + read_at(at, min(CHUNK, end - at))).split(b"\n")
        yield from lines
        rest = rest[:LINE_LENGTH]
    if rest:
        yield rest
