"""The output of a job as a reply carries it: whole where it fits, else its beginning and its end.

Reads no more of an output than it shows, but for counting the lines it leaves out. Nothing here
opens a file or waits; all of it is synchronous. An output of up to `CHEAP_BYTES` costs less than
what a reply may cost inline; counting the lines of more (about 0.5 s a GiB) belongs in a thread.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final

import msgspec

from engine.jobs.leftout import Pick, ReadAt, count_lines, kept_ranges, lift_lines
from engine.jobs.plaintext import MAX_SEQUENCE, json_bytes, render, unfinished

CHEAP_BYTES: Final = 4 * 2**20  # bytes of output; about 2 ms to count
JSON_LIMIT: Final = 768 * 1024  # bytes of JSON; leaves a quarter of a reply to logs and the rest
SLACK: Final = 64 * 1024  # bytes read beyond what is shown, for what rendering takes away
INSIDE_LIMIT: Final = 256  # below this the marker comes on top: it would leave no room for output


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """An output at one moment. `dropped` are the offsets, end excluded, that are kept no more.

    `ended`: no byte will follow, so what is incomplete at the end is shown as it is. `has_data`:
    False of a range, end excluded, in which nothing was ever written, to spare reading it.
    """

    read_at: ReadAt
    size: int
    dropped: tuple[int, int] | None = None
    ended: bool = True
    has_data: Callable[[int, int], bool] = lambda _start, _end: True

    def read_written(self, offset: int, length: int) -> bytes:
        """`read_at`, empty where nothing was written."""
        return self.read_at(offset, length) if self.has_data(offset, offset + length) else b""


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """`text`, what it leaves out of the output, and the offset at which it ends.

    `end` is short of the size where a running job has written half a character or half an
    escape sequence: the next reply starts there.
    """

    text: str
    end: int
    omitted_bytes: int = 0
    omitted_lines: int = 0


class _Budget(msgspec.Struct, frozen=True):
    """How much text is allowed: in encoded bytes (or characters), and in bytes of JSON."""

    size: int
    json: int
    characters: bool

    def fits(self, text: str) -> bool:
        size = len(text) if self.characters else len(text.encode())
        return size <= self.size and json_bytes(text) <= self.json

    def part(self, taken: int, parts: int) -> _Budget:
        """One of `parts` equal shares of what remains when `taken` are used for something else."""
        return _Budget(
            max(self.size - taken, 0) // parts, max(self.json - taken, 0) // parts, self.characters
        )

    @property
    def raw(self) -> int:
        """Bytes of output that may be needed to fill it without rendering."""
        return self.size * (4 if self.characters else 1)


def excerpt(
    source: Source,
    limit: int,
    *,
    characters: bool = False,
    json_limit: int = JSON_LIMIT,
    new_pick: Callable[[], Pick] | None = None,
    known: int = 0,
) -> Excerpt:
    """The text of `source` in at most `limit` encoded bytes (or `characters`).

    Over the limit the first and last halves stand, cut at line ends, with a marker line between.
    The marker counts into a limit of `INSIDE_LIMIT` or more; 0 gives no text at all. A line that
    alone is longer than most of a half is cut inside. Where dropped bytes reach to the end, the
    beginning alone is shown. `new_pick` makes what names lines to lift out of the gap (see
    `leftout`), into a quarter of a limit of `INSIDE_LIMIT` or more; of such lines the output has
    `known` at least.
    """
    if limit < INSIDE_LIMIT:
        new_pick = None
    budget = _Budget(limit, json_limit, characters)
    end = settled_end(source)
    hole = _hole(source, end)
    window = 2 * budget.raw + SLACK
    if hole is None and limit and end <= 2 * window:
        text = render(_decode(source.read_at(0, end)))
        if budget.fits(text):
            return Excerpt(text=text, end=end)
    room = len(_marker(end, end)) + 3 if limit >= INSIDE_LIMIT else 0
    parts = 1 if hole and hole[1] >= end else 2
    share = budget.part(room + (limit // 4 if new_pick else 0), parts)

    head_raw = source.read_at(0, min(window, hole[0] if hole else end))
    head, head_end = _head(head_raw, share)
    tail_from = min(max(end - window, head_end, hole[1] if hole else 0), end)
    is_all = tail_from in (head_end, hole[1] if hole else head_end)
    tail, tail_start = _tail(source.read_at, tail_from, end, share, is_all)
    if head_end == tail_start:
        return Excerpt(text=head + tail, end=end)

    ranges = kept_ranges(head_end, tail_start, hole)
    counts = [count_lines(source.read_written, [part]) for part in ranges]
    lines, lifted = sum(counts), ""
    if new_pick:
        number = head_raw.count(b"\n", 0, head_end) + 1
        known -= len(new_pick()((head + "\n" + tail).encode()) or ())
        lifted = lift_lines(source.read_at, ranges[0], number, counts[0], new_pick, known=known)
        lifted = _whole_lines(lifted, budget.part(0, 4))
        if not lifted:  # then its share is the output's
            return excerpt(source, limit, characters=characters, json_limit=json_limit)
    marker = _marker(tail_start - head_end, lines) if limit else ""
    return Excerpt(
        text=_ended(head) + marker + lifted + tail,
        end=end,
        omitted_bytes=tail_start - head_end,
        omitted_lines=lines,
    )


def excerpt_pair(
    stdout: Source,
    stderr: Source,
    limit: int,
    *,
    new_pick: Callable[[], Pick] | None = None,
    known: int = 0,
) -> tuple[Excerpt, Excerpt]:
    """The two streams in at most `limit` encoded bytes together: half each, or what one leaves.

    `new_pick` and `known`, of both together: see `excerpt`.
    """
    small, large = (stdout, stderr) if stdout.size <= stderr.size else (stderr, stdout)
    first = excerpt(small, limit // 2, json_limit=JSON_LIMIT // 2, new_pick=new_pick, known=known)
    second = excerpt(
        large,
        max(limit - len(first.text.encode()), 0),
        json_limit=JSON_LIMIT - json_bytes(first.text),
        new_pick=new_pick,
        known=known,
    )
    return (first, second) if small is stdout else (second, first)


def recent(source: Source, start: int, characters: int = 1000) -> Excerpt:
    """What came from offset `start` on, at most its last `characters`; empty where nothing did.

    `start` is the `end` of an earlier excerpt of the same output, or 0.
    """
    end = settled_end(source)
    hole = _hole(source, end)
    since = max(start, end - 8 * characters - SLACK)
    if hole and since < hole[1]:
        since = max(hole[1], since)
    if since >= end:
        return Excerpt(text="", end=max(start, end))
    lead = _sequence_before(source.read_at, since) if since > start else ""
    text = render(lead + _decode(source.read_at(since, end - since)))
    return Excerpt(text=text[max(len(text) - characters, 0) :], end=end)


def settled_end(source: Source) -> int:
    """The size, short of a character or an escape sequence that a running job has yet to finish."""
    if source.ended:
        return source.size
    start = max(source.size - MAX_SEQUENCE, 0)
    data = source.read_at(start, source.size - start)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    pending = len(decoder.getstate()[0])
    sequence = "" if pending else unfinished(text)
    # A bad byte in it has become three: its length in the file is unknown, so it is settled.
    return source.size - pending - (0 if "\ufffd" in sequence else len(sequence.encode()))


def _head(raw: bytes, budget: _Budget) -> tuple[str, int]:
    """The longest beginning of `raw` that fits, and the offset in `raw` where it ends."""
    text = render(_decode(raw))
    fitting = _longest(budget, len(text), lambda n: text[:n])
    cut = text.rfind("\n", 0, fitting) + 1
    if cut and cut >= fitting // 4:
        rest = raw.split(b"\n", text.count("\n", 0, cut))[-1]
        return text[:cut], len(raw) - len(rest)
    length = min(len(raw), budget.raw)
    while True:
        length = _character_end(raw, length)
        shown = render(_decode(raw[:length]))
        if budget.fits(shown):
            return shown, length
        length = length * 7 // 8


def _tail(read_at: ReadAt, start: int, end: int, budget: _Budget, is_all: bool) -> tuple[str, int]:
    """The longest end of the output before `end` that fits, and the offset where it starts.

    Shows nothing before `start`; `is_all`: there is nothing more to show, so a piece of a line
    may stand first where all of it fits.
    """
    raw = read_at(start, end - start)
    text = render(_decode(raw))
    fitting = _longest(budget, len(text), lambda n: text[len(text) - n :])
    first = len(text) - fitting
    if first == 0 and is_all:
        return text, start
    cut = text.find("\n", max(first - 1, 0)) + 1
    if cut and len(text) - cut >= max(fitting // 4, 1):
        before = raw.rsplit(b"\n", text.count("\n", cut) + 1)[0]
        return text[cut:], start + len(before) + 1
    length = min(len(raw), budget.raw)
    while True:
        offset = _character_start(raw, len(raw) - length)
        lead = _sequence_before(read_at, start + offset)
        shown = render(lead + _decode(raw[offset:]))
        if budget.fits(shown):
            return shown, start + offset
        length = length * 7 // 8


def _longest(budget: _Budget, length: int, piece: Callable[[int], str]) -> int:
    """The largest number of characters, up to `length`, of which `piece` fits `budget`."""
    low, high = 0, min(length, budget.size)
    if budget.fits(piece(high)):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if budget.fits(piece(middle)) else (low, middle)
    return low


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _sequence_before(read_at: ReadAt, offset: int) -> str:
    """The escape sequence that `offset` would cut in two, up to there; empty where it cuts none."""
    start = max(offset - MAX_SEQUENCE, 0)
    line = read_at(start, offset - start).rpartition(b"\n")[2]
    return unfinished(_decode(line))


def _character_start(raw: bytes, offset: int) -> int:
    """`offset`, moved on past what is left of a character that it cuts in two."""
    for step in range(min(3, len(raw) - offset)):
        if raw[offset + step] & 0xC0 != 0x80:
            return offset + step
    return min(offset + 3, len(raw))


def _character_end(raw: bytes, length: int) -> int:
    """`length`, less the beginning of a character that it cuts in two."""
    if length == len(raw):
        return length
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(raw[max(length - 4, 0) : length])
    return length - len(decoder.getstate()[0])


def _hole(source: Source, end: int) -> tuple[int, int] | None:
    if source.dropped is None or source.dropped[0] >= min(source.dropped[1], end):
        return None
    return source.dropped


def _marker(size: int, lines: int) -> str:
    return f"<{size} bytes, {lines} lines left out; read_output has them>\n"


def _whole_lines(text: str, budget: _Budget) -> str:
    return text[: text.rfind("\n", 0, _longest(budget, len(text), lambda n: text[:n])) + 1]


def _ended(head: str) -> str:
    """`head` with the line end that the marker needs before it."""
    return head if not head or head.endswith("\n") else head + "\n"
