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
from engine.journal.levels import Level
from engine.journal.stream import Found, Ranges, State, Stream
from engine.store.lines import NewLine, Piece

FLOOD_BYTES: Final = 8 << 20  # behind by more: what is below `warning` is only counted
FLOOD_LINES: Final = 250_000  # likewise, where they are short: storing so many takes 4 s


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
        self.is_said, states = False, [State() for _ in files]
        if state is not None:
            self.is_said, states = msgspec.msgpack.decode(state, type=tuple[bool, list[State]])
        self._id, self.caller, self.directory = id_, caller, directory
        self._streams = [Stream(name, s) for name, s in zip(files, states, strict=True)]
        self.sizes: tuple[int, ...] = (0,) * len(files)
        self.dropped: tuple[Ranges, ...] = ()
        self.may_grow = False  # also after the end; how far it was read is kept as long
        self.closing: list[NewLine] = []  # said once, when all lines are in
        self.is_ended = False
        self.is_gone = False  # nobody is left who could write
        self.is_starved = False  # there was no descriptor or memory to read with
        self.is_settled = self.is_said  # all that there was at the end is in the journal
        self.is_kept = state is not None  # the index has a state of it, or may have
        # What the next piece goes by: whether it has ended, sizes, what was dropped, may_grow.
        self._begun: tuple[bool, tuple[int, ...], tuple[Ranges, ...], bool]
        self.begin()
        self._is_open = False  # the last piece is not committed
        self._reached: list[State] = []
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

    def begin(self) -> None:
        """See `Work`. An end that comes later goes with its record, into the next transaction."""
        self._begun = (self.is_ended, self.sizes, self.dropped, self.may_grow)

    def read(self) -> Piece:
        """See `Work`."""
        is_ended, sizes, dropped, may_grow = self._begun
        if self._is_open:  # it was rolled back
            for stream in self._streams:
                stream.forget()
        self._is_open, self.is_starved = True, False
        # What is written after the end of a task is read as what a running one writes.
        is_last = is_ended and not (self.is_said and may_grow)
        started = [stream.position for stream in self._streams]
        now = int(time.time() * 1000)
        lines = self._read_all(sizes, dropped, now, is_last=is_last)
        is_done = self._is_done(sizes)
        is_finished = is_done and is_ended
        if is_finished and not self.is_said:
            # Not before the lines that it follows.
            lines += [msgspec.structs.replace(line, time=now) for line in self.closing]
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

    def _is_flood(self, sizes: tuple[int, ...]) -> bool:
        """Whether there is so much to read, in bytes or in lines, that only severe ones count."""
        left = [size - s.position for s, size in zip(self._streams, sizes, strict=False)]
        short = sum(s.density * size for s, size in zip(self._streams, left, strict=False))
        return sum(left) > FLOOD_BYTES or short > FLOOD_LINES

    def _read_all(
        self, sizes: tuple[int, ...], dropped: tuple[Ranges, ...], now: int, *, is_last: bool
    ) -> list[NewLine]:
        is_flood = self._is_flood(sizes)
        lines: list[NewLine] = []
        for i, stream in enumerate(self._streams):
            size = sizes[i] if i < len(sizes) else 0
            holes = dropped[i] if i < len(dropped) else ()
            found = self._read_stream(stream, size, holes, is_flood=is_flood)
            words: list[str] = []
            if stream.position >= size:
                rest, words = stream.end(is_last=is_last)
                found += rest
            lines += [
                NewLine(now, level, self.caller, self.id, stream.name, text, cut)
                for level, text, cut in found
            ]
            lines += [
                NewLine(now, int(Level.WARNING), self.caller, self.id, "engine", word)
                for word in words
            ]
        return lines

    def _read_stream(
        self, stream: Stream, size: int, holes: Ranges, *, is_flood: bool
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
    def left_bytes(self) -> int:
        """See `Work`."""
        left = (size - at for at, size in zip(self._read_to, self.sizes, strict=False))
        return sum(max(0, size) for size in left)

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read than what is committed."""
        return (self.is_ended and not self.is_settled) or any(
            done < size for done, size in zip(self._read_to, self.sizes, strict=False)
        )
