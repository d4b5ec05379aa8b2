"""One output file of a job on its way into the journal: read on, cut, levelled.

Knows how much is read at a time and what of a flood is kept. What was read counts only once it is
committed: `state` is that, `reached` is where the last read has come to.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.jobs.leftout import line_ends
from engine.jobs.pages import OutputFile
from engine.journal.cutter import LineCutter, Lines, Place
from engine.journal.levels import Level, LevelFinder, is_plain

TURN_BYTES: Final = 256 << 10  # read at a time, so that one flood does not hold up the others
FLOOD_TURN_BYTES: Final = 1 << 20  # of a flood
# Likewise in lines, where they are short: storing one takes 3 us, looking at one 1, and passing
# over a block in which none can be severe 0.1.
TURN_LINES: Final = 2_000
# Looked at in one piece. No call on it is long then, which in this interpreter no other thread can
# interrupt: the event loop waits for each, several times on the way of a call.
SLICE_BYTES: Final = 128 << 10
FLOOD_TURN_LINES: Final = 15_000
SKIP_BYTES: Final = 64 << 20  # of the rest of a line that is cut already, which takes 20 ms

Ranges = tuple[tuple[int, int], ...]  # of offsets, ends excluded
Found = tuple[int, str, bool]  # level, text, whether it is cut


class State(msgspec.Struct, array_like=True):
    """How far one stream has come: what is stored with each piece."""

    offset: int = 0
    skipping: bool = False
    memory: str = ""
    passed_lines: int = 0  # counted and not stored
    passed_bytes: int = 0
    lost_bytes: int = 0  # not kept in the file, or not to be had


def _shortened(data: bytes, lines: int, count: int) -> bytes:
    """About `lines` lines of the beginning of `data`, which ends `count`; cut anywhere."""
    return data if count <= lines else data[: len(data) * lines // count]


class Stream:
    """One output file on its way."""

    def __init__(self, name: str, state: State) -> None:
        self.name = name
        self.state = state  # as committed
        self._cutter: LineCutter | None = None
        self._finder = LevelFinder()
        self._passed = (0, 0, 0)  # lines, their bytes, bytes that are lost
        self._taken = 0  # offset up to which lines are given or passed over
        self.density = 0.0  # lines a byte, of what was read last

    def forget(self) -> None:
        """Go back to what is committed."""
        self._cutter = None

    def _begin(self) -> LineCutter:
        state = self.state
        self._finder = LevelFinder(state.memory)
        self._passed = (state.passed_lines, state.passed_bytes, state.lost_bytes)
        self._cutter = LineCutter(Place(state.offset, state.skipping))
        self._taken = state.offset
        return self._cutter

    def read(
        self, file: OutputFile | None, size: int, dropped: Ranges, *, is_flood: bool
    ) -> list[Found]:
        """Read on towards `size`. Without a `file` there is nothing to be had up to there."""
        found: list[Found] = []
        cutter = self._cutter or self._begin()
        if file is None:
            self._jump(size, found)
            return found
        for start, end in dropped:
            if start <= cutter.position < end:
                cutter = self._jump(end, found)
        stop = min([size, *(start for start, _ in dropped if start > cutter.position)])
        end = min(stop, cutter.position + (FLOOD_TURN_BYTES if is_flood else TURN_BYTES))
        lines = FLOOD_TURN_LINES if is_flood else TURN_LINES
        while cutter is self._cutter and cutter.position < end and lines > 0:
            lines -= self._read_some(file, cutter, stop, lines, found, is_flood=is_flood)
        return found

    def _read_some(
        self,
        file: OutputFile,
        cutter: LineCutter,
        stop: int,
        most: int,
        found: list[Found],
        *,
        is_flood: bool,
    ) -> int:
        """Read on; how many lines were looked at one by one, about `most` of them at most."""
        if cutter.is_skipping and self._skip(file, cutter, stop):
            return 0
        data = file.read_at(cutter.position, min(SLICE_BYTES, stop - cutter.position))
        # The keeper drops first and tells then: what is not there reads as zeros.
        hole = file.hole_in(cutter.position, cutter.position + len(data))
        if hole is not None:
            data = data[: hole[0] - cutter.position]
        count = line_ends(data)
        self.density = count / max(len(data), 1)
        if is_flood and count and self._pass_over(cutter, data, count):
            count = 0
        else:
            some = _shortened(data, most, count)
            self._take(cutter, cutter.feed(some), found, is_flood=is_flood)
            if len(some) < len(data):
                return count
        if hole is not None:
            self._jump(hole[1], found)
        elif not data:  # somebody has cut the file short
            self._jump(stop, found)
        return count

    def _skip(self, file: OutputFile, cutter: LineCutter, stop: int) -> bool:
        """Pass over the rest of a line that was given; whether that was enough for one turn."""
        start, limit = cutter.position, min(stop, cutter.position + SKIP_BYTES)
        reached = file.seek_byte(b"\n", start, limit)
        hole = file.hole_in(start, reached)
        cutter.skip((reached if hole is None else hole[0]) - start)
        self._taken = cutter.place.offset
        self.density = 0.0
        return cutter.position == limit

    def end(self, *, is_last: bool) -> tuple[list[Found], list[str]]:
        """What is left when all was read, and words on what is not in the journal.

        `is_last`: nothing will follow, so a line without its end counts as one.
        """
        found: list[Found] = []
        if is_last:
            cutter = self._cutter or self._begin()
            self._take(cutter, cutter.finish(), found, is_flood=False)
        words, (lines, size, lost) = list[str](), self._passed
        self._passed = (0, 0, 0)
        if lines:
            noun, verb = ("line", "is") if lines == 1 else ("lines", "are")
            of = f"({size:,} bytes of {self.name})"
            words.append(f"{lines:,} {noun} {of} {verb} not in the journal")
        if lost:
            words.append(f"{lost:,} bytes of {self.name} are not kept and not in the journal")
        return found, words

    def _jump(self, offset: int, found: list[Found]) -> LineCutter:
        """Go on at `offset`, in the middle of a line; what was held of one is a line, cut."""
        cutter, held = self._cutter or self._begin(), list[Found]()
        self._take(cutter, cutter.finish(), held, is_flood=False)
        found += [(level, text, True) for level, text, _cut in held]
        lines, size, lost = self._passed
        self._passed = (lines, size, lost + max(offset - cutter.position, 0))
        self._cutter = LineCutter(Place(max(offset, cutter.position), skipping=True))
        self._taken = self._cutter.position
        return self._cutter

    def _pass_over(self, cutter: LineCutter, data: bytes, count: int) -> bool:
        """Pass over `count` lines of which none can be severe, unlooked at; False: look."""
        block = cutter.whole_lines(data)
        if block is None or self._finder.memory or not is_plain(block):
            return False
        self._add_passed(count, len(block))
        cutter.pass_over(data)
        self._taken = cutter.place.offset
        return True

    def _take(
        self, cutter: LineCutter, lines: Lines, found: list[Found], *, is_flood: bool
    ) -> None:
        """Level `lines`, with which `cutter` has come to where it stands, and keep what counts."""
        before, self._taken = self._taken, cutter.place.offset
        levelled, cut = self._finder.find(lines.texts), set(lines.cut)
        kept = [
            (int(level), text, index in cut)
            for index, (level, text) in enumerate(zip(levelled.levels, levelled.texts, strict=True))
            if not is_flood or level >= Level.WARNING
        ]
        found += kept
        if len(kept) < len(lines.texts):
            stored = sum(len(text.encode()) + 1 for _level, text, _cut in kept)
            self._add_passed(len(lines.texts) - len(kept), max(self._taken - before - stored, 0))

    def _add_passed(self, lines: int, size: int) -> None:
        passed, passed_size, lost = self._passed
        self._passed = (passed + lines, passed_size + size, lost)

    @property
    def position(self) -> int:
        """Bytes examined."""
        return self._cutter.position if self._cutter is not None else self.state.offset

    def reached(self) -> State:
        """Where the last read has come to."""
        cutter = self._cutter or self._begin()
        place = cutter.place
        return State(place.offset, place.skipping, self._finder.memory, *self._passed)
