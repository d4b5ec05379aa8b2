"""From an output file to the journal: read on, cut, levelled, tagged; each line once, in order.

A pump is read in the writer's thread and changed by the engine's own; what a piece led to counts
only once it is committed. Killed at any time, the next engine goes on from the last commit.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from engine.errors import NO_ROOM
from engine.jobs.directory import TaskDirectory
from engine.jobs.pages import OutputFile
from engine.journal.cutter import LineCutter, Lines, Place
from engine.journal.levels import Level, LevelFinder
from engine.store.lines import NewLine, Piece

TURN_BYTES: Final = 256 << 10  # read at a time, so that one flood does not hold up the others
FLOOD_BYTES: Final = 8 << 20  # behind by more: what is below `warning` is only counted
FLOOD_TURN_BYTES: Final = 2 << 20  # read at a time then
# Likewise in lines, where they are short: storing one takes 15 us, passing over one 2.
TURN_LINES: Final = 2_000
FLOOD_TURN_LINES: Final = 15_000


Ranges = tuple[tuple[int, int], ...]  # of offsets, ends excluded
Found = tuple[int, str, bool]  # level, text, whether it is cut


class _State(msgspec.Struct, array_like=True):
    """How far one stream has come: what is stored with each piece."""

    offset: int = 0
    skipping: bool = False
    memory: str = ""
    passed_lines: int = 0  # counted and not stored
    passed_bytes: int = 0


def _shortened(data: bytes, lines: int) -> bytes:
    """About so many lines of the beginning of `data`, wherever the last one is cut."""
    count = data.count(b"\n")
    return data if count <= lines else data[: len(data) * lines // count]


class _Stream:
    """One output file on its way."""

    def __init__(self, name: str, state: _State) -> None:
        self.name = name
        self.state = state  # as committed
        self._cutter: LineCutter | None = None
        self._finder = LevelFinder()
        self._passed = (0, 0)

    def forget(self) -> None:
        """Go back to what is committed."""
        self._cutter = None

    def _begin(self) -> LineCutter:
        state = self.state
        self._finder = LevelFinder(state.memory)
        self._passed = (state.passed_lines, state.passed_bytes)
        self._cutter = LineCutter(Place(state.offset, state.skipping))
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
        limit = FLOOD_TURN_BYTES if is_flood else TURN_BYTES
        length = min(limit, stop - cutter.position)
        if length <= 0:
            return found
        data = file.read_at(cutter.position, length)
        data = _shortened(data, FLOOD_TURN_LINES if is_flood else TURN_LINES)
        # The keeper drops first and tells then: what is not there reads as zeros.
        hole = file.hole_in(cutter.position, cutter.position + len(data))
        if hole is not None:
            data = data[: hole[0] - cutter.position]
        self._take(cutter.feed(data), found, len(data), is_flood=is_flood)
        if hole is not None:
            self._jump(hole[1], found)
        elif not data:  # somebody has cut the file short
            self._jump(stop, found)
        return found

    def end(self, *, is_last: bool) -> tuple[list[Found], str | None]:
        """What is left when all was read, and a word on what was passed over.

        `is_last`: nothing will follow, so a line without its end counts as one.
        """
        found: list[Found] = []
        if is_last:
            cutter = self._cutter or self._begin()
            self._take(cutter.finish(), found, 0, is_flood=False)
        if self._passed == (0, 0):
            return found, None
        lines, size = self._passed
        self._passed = (0, 0)
        return found, f"{lines:,} lines ({size:,} bytes of {self.name}) are not in the journal"

    def _jump(self, offset: int, found: list[Found]) -> LineCutter:
        """Go on at `offset`, in the middle of a line; what was held of one is a line."""
        cutter = self._cutter or self._begin()
        self._take(cutter.finish(), found, 0, is_flood=False)
        lines, size = self._passed
        self._passed = (lines, size + max(offset - cutter.position, 0))
        self._cutter = LineCutter(Place(max(offset, cutter.position), skipping=True))
        return self._cutter

    def _take(self, lines: Lines, found: list[Found], size: int, *, is_flood: bool) -> None:
        levelled, cut = self._finder.find(lines.texts), set(lines.cut)
        kept = [
            (int(level), text, index in cut)
            for index, (level, text) in enumerate(zip(levelled.levels, levelled.texts, strict=True))
            if not is_flood or level >= Level.WARNING
        ]
        found += kept
        if is_flood:
            stored = sum(len(text) + 1 for _level, text, _cut in kept)
            passed, passed_size = self._passed
            self._passed = (
                passed + len(lines.texts) - len(kept),
                passed_size + max(size - stored, 0),
            )

    @property
    def position(self) -> int:
        """Bytes examined."""
        return self._cutter.position if self._cutter is not None else self.state.offset

    def reached(self) -> _State:
        """Where the last read has come to."""
        cutter = self._cutter or self._begin()
        place = cutter.place
        return _State(place.offset, place.skipping, self._finder.memory, *self._passed)


class Pump:
    """All output of one task, on its way into the journal. See `engine.store.lines.Work`."""

    def __init__(
        self,
        id_: str,
        caller: str,
        files: tuple[str, ...],
        directory: TaskDirectory,
        *,
        state: bytes | None,
    ) -> None:
        """`state`: of a piece that an earlier engine has committed."""
        self.is_said, states = False, [_State() for _ in files]
        if state is not None:
            self.is_said, states = msgspec.msgpack.decode(state, type=tuple[bool, list[_State]])
        self._id, self.caller, self.directory = id_, caller, directory
        self._streams = [_Stream(name, s) for name, s in zip(files, states, strict=True)]
        self.sizes: tuple[int, ...] = (0,) * len(files)
        self.dropped: tuple[Ranges, ...] = ()
        self.may_grow = False  # also after the end; how far it was read is kept as long
        self.closing: list[NewLine] = []  # said once, when all lines are in
        self.is_ended = False  # to be set last: the writer's thread looks at it first
        self.is_gone = False  # nobody is left who could write
        self.is_starved = False  # there was no descriptor or memory to read with
        self.is_settled = self.is_said  # all that there was at the end is in the journal
        self.is_kept = state is not None  # the index has a state of it, or may have
        self._is_open = False  # the last piece is not committed
        self._reached: list[_State] = []
        self._read_to = [state.offset for state in states]  # examined, as of the last commit

    @property
    def id(self) -> str:
        return self._id

    def end(self, *, is_silent: bool) -> None:
        """The task has ended. `is_silent`: nothing was written, and there is nothing to say."""
        if is_silent:
            self.is_said = self.is_settled = True
        self.is_kept = self.is_kept or self.may_grow
        self.is_ended = True

    def read(self) -> Piece:
        """See `Work`."""
        is_ended = self.is_ended
        sizes, dropped, may_grow = self.sizes, self.dropped, self.may_grow
        if self._is_open:  # it was rolled back
            for stream in self._streams:
                stream.forget()
        self._is_open, self.is_starved = True, False
        # What is written after the end of a task is read as what a running one writes.
        is_last = is_ended and not (self.is_said and may_grow)
        started = [stream.position for stream in self._streams]
        lines = self._read_all(sizes, dropped, is_last=is_last)
        is_done = self._is_done(sizes)
        is_finished = is_done and is_ended
        if is_finished and not self.is_said:
            lines += self.closing
        self._reached = [stream.reached() for stream in self._streams]
        is_over = is_finished and not may_grow
        state = (self.is_said or is_finished, self._reached)
        return Piece(
            task=self.id,
            lines=lines,
            state=None if is_over else msgspec.msgpack.encode(state),
            is_finished=is_finished,
            read_bytes=sum(s.position for s in self._streams) - sum(started),
        )

    def _is_done(self, sizes: tuple[int, ...]) -> bool:
        return all(s.position >= size for s, size in zip(self._streams, sizes, strict=False))

    def _read_all(
        self, sizes: tuple[int, ...], dropped: tuple[Ranges, ...], *, is_last: bool
    ) -> list[NewLine]:
        behind = sum(sizes) - sum(s.position for s in self._streams)
        now = int(time.time() * 1000)
        lines: list[NewLine] = []
        for i, stream in enumerate(self._streams):
            size = sizes[i] if i < len(sizes) else 0
            holes = dropped[i] if i < len(dropped) else ()
            found = self._read_stream(stream, size, holes, is_flood=behind > FLOOD_BYTES)
            word = None
            if stream.position >= size:
                rest, word = stream.end(is_last=is_last)
                found += rest
            lines += [
                NewLine(now, level, self.caller, self.id, stream.name, text, cut)
                for level, text, cut in found
            ]
            if word is not None:
                lines.append(NewLine(now, int(Level.WARNING), self.caller, self.id, "engine", word))
        return lines

    def _read_stream(
        self, stream: _Stream, size: int, holes: Ranges, *, is_flood: bool
    ) -> list[Found]:
        if stream.position >= size:
            return []
        try:
            with (
                self.directory.opened() as dir_fd,
                OutputFile(stream.name, dir_fd=dir_fd) as file,
            ):
                return stream.read(file, size, holes, is_flood=is_flood)
        except OSError as exc:
            if exc.errno in NO_ROOM:
                self.is_starved = True
                return []
            # Gone, or something else in its place: what was in it is not to be had.
            return stream.read(None, size, holes, is_flood=is_flood)

    def committed(self, piece: Piece) -> None:
        """See `Work`."""
        self._is_open = False
        for i, (stream, state) in enumerate(zip(self._streams, self._reached, strict=True)):
            stream.state = state
            self._read_to[i] = stream.position
        self.is_kept = piece.state is not None
        self.is_said = self.is_said or piece.is_finished
        self.is_settled = self.is_settled or piece.is_finished

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read than what is committed."""
        return (self.is_ended and not self.is_settled) or any(
            done < size for done, size in zip(self._read_to, self.sizes, strict=False)
        )
