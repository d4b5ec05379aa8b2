"""Bytes of one output in any pieces become lines: cut, decoded, drawn, made safe to show.

Owns where a line ends, how long it may be and which characters it keeps. It reads no file and
knows no level, task or caller. What comes out does not depend on how the bytes came in, and
`LineCutter.place` is all that another cutter needs to go on where this one stands.
"""

from __future__ import annotations

import codecs
import re
from typing import Final, NamedTuple

from engine.jobs.plaintext import render

MAX_TEXT: Final = 4096  # characters of a line that are kept
# Characters of one line, as written, that are held while it shows no more than MAX_TEXT: a line
# of escape sequences alone would otherwise be held without end.
MAX_WRITTEN: Final = 4 * MAX_TEXT

# Both would cut a line for a reader; a space keeps the words on either side apart.
_SEPARATORS: Final = dict.fromkeys([0x2028, 0x2029, ord("\t")], " ")
_REMOVED: Final = [  # first and last of each range
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F)),
    *((0x200E, 0x200F), (0x202A, 0x202E), (0xFFF9, 0xFFFB)),  # directions, annotations
    # What is not seen: Default_Ignorable_Code_Point of Unicode 15.
    *((0xAD, 0xAD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5)),
    *((0x180B, 0x180F), (0x200B, 0x200D), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3)),
    *((0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
]
_removed: Final = [code for first, last in _REMOVED for code in range(first, last + 1)]
_SHOWN: Final[dict[int, str | None]] = {**dict.fromkeys(_removed), **_SEPARATORS}
_ASCII_CONTROLS: Final = bytes(code for code in _removed if code < 0x80)

# By ranges: a set of so many characters one by one takes microseconds a character.
_hidden = re.compile(
    "[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in _REMOVED) + "\u2028\u2029]"
)


class Lines(NamedTuple):
    """Lines in the order of the output; `cut` holds the places in `texts` of those cut short."""

    texts: list[str]
    cut: list[int]


class Place(NamedTuple):
    """Where a cutter stands, small enough to be stored with every batch of lines.

    `offset`, in bytes of the output: where the unfinished line starts. With `skipping`: anywhere
    in the rest of a line that was cut and given already.
    """

    offset: int = 0
    skipping: bool = False


BEGINNING: Final = Place()


class LineCutter:
    """Cuts one output. Feed it the bytes from `place.offset` on; memory stays bounded."""

    def __init__(self, place: Place = BEGINNING) -> None:
        self._position = place.offset  # of the next byte
        self._start = place.offset  # of the unfinished line
        self._skipping = place.skipping
        self._held = bytearray()  # an unfinished line of at most MAX_TEXT bytes
        self._long: _LongLine | None = None  # one that has grown beyond
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def place(self) -> Place:
        """Where to go on after all lines given so far: each comes once, whatever died between."""
        return Place(self._position if self._skipping else self._start, self._skipping)

    @property
    def position(self) -> int:
        """Bytes of the output examined, the unfinished line included."""
        return self._position

    def feed(self, data: bytes) -> Lines:
        """The lines that `data`, the next bytes of the output, completes or makes too long."""
        lines = Lines([], [])
        base = self._position
        self._position += len(data)
        data = data.replace(b"\t", b" ")
        start = 0
        if self._skipping or self._long:
            start = self._pass_line_end(data, lines)
            self._start = base + start if start else self._start
        end = data.rfind(b"\n", start) + 1
        if end > start:
            self._cut_block(bytes(self._held) + data[start:end], lines)
            self._held.clear()
            self._start, start = base + end, end
        if not (self._skipping or self._long):
            self._held += data[start:]
            if len(self._held) > MAX_TEXT:
                self._outgrow(lines)
        return lines

    def whole_lines(self, data: bytes) -> bytes | None:
        """The lines that `data`, the next bytes, completes, as they are written and as they show.

        None where `feed` must look: one is long, or shows otherwise, or none is completed.
        """
        end = data.rfind(b"\n") + 1
        if self._skipping or self._long or not end or len(data) - end > MAX_TEXT:
            return None
        block = bytes(self._held) + data[:end]
        return block if len(block.translate(None, _ASCII_CONTROLS)) == len(block) else None

    @property
    def is_skipping(self) -> bool:
        """Whether what comes up to the next newline is the rest of a line that was given."""
        return self._skipping

    def skip(self, length: int) -> None:
        """As `feed`, of so many bytes that hold no newline, where it `is_skipping`."""
        self._position += length

    def pass_over(self, data: bytes) -> None:
        """As `feed`, where there are `whole_lines` that need not be given."""
        end = data.rfind(b"\n") + 1
        self._start = self._position + end
        self._position += len(data)
        self._held[:] = data[end:].replace(b"\t", b" ")

    def finish(self) -> Lines:
        """The last line, if the output ended without a newline. What comes later starts anew."""
        lines = Lines([], [])
        if self._long:
            self._end_long(b"", lines)
        elif self._held:
            self._cut_block(bytes(self._held) + b"\n", lines)
            self._held.clear()
        self._start = self._position
        return lines

    def _pass_line_end(self, data: bytes, lines: Lines) -> int:
        """Where in `data` the line after the present long one starts; 0 if it does not end."""
        end = data.find(b"\n")
        piece = data if end < 0 else data[:end]
        if self._long and end >= 0:
            self._end_long(piece, lines)
        elif self._long and self._long.add(self._decoder.decode(piece)):
            self._give_cut(lines)
        if end >= 0:
            self._skipping = False
        return end + 1

    def _outgrow(self, lines: Lines) -> None:
        self._long = _LongLine()
        self._decoder.reset()
        if self._long.add(self._decoder.decode(self._held)):
            self._give_cut(lines)
        self._held.clear()

    def _give_cut(self, lines: Lines) -> None:
        """The long line's one record, before its end is known."""
        assert self._long is not None
        _append(lines, *self._long.result())
        self._long = None
        self._skipping = True

    def _end_long(self, piece: bytes, lines: Lines) -> None:
        assert self._long is not None
        self._long.add(self._decoder.decode(piece, final=True))
        _append(lines, *self._long.result())
        self._long = None
        self._decoder.reset()

    def _cut_block(self, block: bytes, lines: Lines) -> None:
        """Append the lines of `block`, which ends with a newline."""
        text = block.decode("utf-8", "replace")
        written = text[:-1].split("\n")
        shown = written if _is_plain(block, text) else _show(text)[:-1].split("\n")
        first = len(lines.texts)
        lines.texts.extend(shown)
        if len(max(written, key=len)) > MAX_TEXT or len(max(shown, key=len)) > MAX_TEXT:
            for index, line in enumerate(written):
                if max(len(line), len(shown[index])) > MAX_TEXT:
                    long = _LongLine()
                    long.add(line)
                    lines.texts[first + index], is_cut = long.result()
                    lines.cut.extend([first + index] if is_cut else [])


class _LongLine:
    """A line of more than MAX_TEXT characters as written, which may show less.

    It is looked at when it reaches MAX_TEXT + 1 characters and each time after MAX_TEXT more,
    whatever the pieces: too long as it would show then, it is cut. What a carriage return has
    rewritten is forgotten then, so a progress bar is held as it looks, however often it moved.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._to_look = MAX_TEXT + 1  # characters until the next look
        self._cut: str | None = None

    def add(self, text: str) -> bool:
        """Whether the line is too long by now; what follows is of no account then."""
        while self._cut is None and len(text) >= self._to_look:
            self._pieces.append(text[: self._to_look])
            text = text[self._to_look :]
            self._to_look = MAX_TEXT
            self._look()
        if text and self._cut is None:
            self._pieces.append(text)
            self._to_look -= len(text)
        return self._cut is not None

    def result(self) -> tuple[str, bool]:
        """The text, and whether it was cut."""
        if self._cut is not None:
            return self._cut, True
        shown = _show_line("".join(self._pieces))
        return shown[:MAX_TEXT], len(shown) > MAX_TEXT

    def _look(self) -> None:
        written = "".join(self._pieces)
        shown = _show_line(written)
        head, moved, tail = written.rpartition("\r")
        if moved:
            written = render(head + "\n")[:-1] + moved + tail
        if len(shown) > MAX_TEXT or len(written) > MAX_WRITTEN:
            self._cut = shown[:MAX_TEXT]
            written = ""
        self._pieces = [written]


def _append(lines: Lines, text: str, is_cut: bool) -> None:
    if is_cut:
        lines.cut.append(len(lines.texts))
    lines.texts.append(text)


def _is_plain(block: bytes, text: str) -> bool:
    """Whether `text`, decoded from `block`, shows as it is written."""
    if len(block.translate(None, _ASCII_CONTROLS)) != len(block):
        return False
    return text.isascii() or not _hidden.search(text)


def _show(text: str) -> str:
    """Lines drawn as a terminal would, then without what could deceive or break a reader."""
    drawn = render(text.replace("\r\n", "\n"))
    if drawn.isascii():
        return drawn.encode().translate(None, _ASCII_CONTROLS).decode()
    return drawn.translate(_SHOWN) if _hidden.search(drawn) else drawn


def _show_line(line: str) -> str:
    # An unfinished control string hides nothing before a line end, and all at the end of a text.
    return _show(line + "\n")[:-1]
