"""Whether a line of an output holds a text, as a reader sees the line; found while it grows.

Bytes in, in any pieces; no file, no waiting. Nearly all of an output is passed over as bytes: a
line is drawn only where it may hold the text.
"""

from __future__ import annotations

import re
from typing import Final

from engine.jobs.plaintext import render

MAX_HELD: Final = 16 << 10  # bytes of an unfinished line that are kept
MAX_LINE: Final = 1000  # characters of the line that is found

# As `plaintext` has them, in UTF-8. What is more here costs a look, what is less a miss.
_ESCAPE: Final = (
    rb"(?:(?:\x1b\[|\xc2\x9b)[0-?]*+[ -/]*+[@-~]?"
    rb"|(?:\x1b[\]PX^_]|\xc2[\x90\x98\x9d-\x9f])(?:[^\x07\x1b\n\xc2]|\xc2[\x80-\x8f\xa0-\xbf])*+"
    rb"(?:\x07|\x1b\\|\xc2\x9c|(?=\x1b|\xc2[\x90-\x9f])|\Z)"
    rb"|\x1b[ -/]*+[0-~]?"
    rb"|\xc2[\x80-\x84\x86-\x9f])*+"
)
# Each begins with a byte by which it is found at the speed of memory.
_control: Final = re.compile(rb"\xc2[\x80-\x9f]")
_move: Final = re.compile(rb"\x1b\[[0-9]{0,5}[CDG]")
_short_move: Final = re.compile(rb"\xc2\x9b[0-9]{0,5}[CDG]")


class LineSearch:
    """Looks for `text`, which is of one line, from the beginning of an output."""

    def __init__(self, text: str) -> None:
        self.position = 0  # bytes looked at, or passed over
        self.line = ""  # in which it was found, as a reader sees it; MAX_LINE characters of it
        self._text, self._bytes = text, text.encode()
        letters = [letter.encode() for letter in text]
        self._maybe = re.compile(_ESCAPE.join(map(re.escape, letters)))
        # Of which each must be written in a line that shows it; a space can come of a movement.
        self._letters = sorted(set(letters) - {b" "})
        # It stands for bytes that are no character: only drawing tells.
        self._is_odd = "\N{REPLACEMENT CHARACTER}" in text
        self._held = b""  # the unfinished line

    def feed(self, data: bytes) -> bool:
        """Whether the text stands in a line with `data`, the next bytes; once is enough."""
        self.position += len(data)
        block = self._held + data
        is_found = self._is_in(block)
        self._hold(block[block.rfind(b"\n") + 1 :])
        return is_found

    def skip(self, position: int) -> None:
        """Go on at `position`: what is before is not to be had."""
        self.position, self._held = position, b""

    def _is_in(self, block: bytes) -> bool:
        if self._is_odd:
            return any(map(self._is_drawn, _lines(block)))
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if not _is_special(block):
            return self._is_among_plain(block)
        if not _is_moving(block):
            return self._is_among(block)
        return any(
            self._is_shown(line) if _is_moving(line) else self._is_among(line)
            for line in _lines(block)
        )

    def _is_among_plain(self, block: bytes) -> bool:
        """Likewise, where every line is shown as it is written."""
        at = block.find(self._bytes)
        if at < 0:
            return False
        end = block.find(b"\n", at)
        return self._is_drawn(block[block.rfind(b"\n", 0, at) + 1 : end if end >= 0 else None])

    def _is_among(self, block: bytes) -> bool:
        """Whether it is in a line of `block`, of which no part is written over another."""
        at = 0
        while found := self._maybe.search(block, at):
            start = block.rfind(b"\n", 0, found.start()) + 1
            at = block.find(b"\n", found.end()) + 1 or len(block)
            if self._is_shown(block[start:at]):
                return True
        return False

    def _is_shown(self, line: bytes) -> bool:
        return all(letter in line for letter in self._letters) and self._is_drawn(line)

    def _is_drawn(self, line: bytes) -> bool:
        shown = render(line.decode("utf-8", "replace"))
        at = shown.find(self._text)
        if at >= 0:
            start = at if at + len(self._text) > MAX_LINE else 0
            self.line = shown[start : start + MAX_LINE].rstrip("\n")
        return at >= 0

    def _hold(self, line: bytes) -> None:
        if len(line) > MAX_HELD:
            head, moved, tail = line.rpartition(b"\r")
            if moved:  # what is rewritten need not be kept
                shown = render(head.decode("utf-8", "replace") + "\n")[:-1]
                line = shown.encode() + moved + tail
        self._held = line[-MAX_HELD:]


def _lines(block: bytes) -> list[bytes]:
    """Each with its end, by which a line may show otherwise; the last has none."""
    *lines, last = block.split(b"\n")
    return [*(line + b"\n" for line in lines), last]


def _is_special(block: bytes) -> bool:
    """Whether there may be a line in it that is not shown as it is written."""
    if b"\x1b" in block or b"\r" in block or b"\b" in block:
        return True
    return _control.search(block) is not None


def _is_moving(block: bytes) -> bool:
    """Whether a part of a line may be written over another."""
    if b"\r" in block or b"\b" in block:
        return True
    return _move.search(block) is not None or _short_move.search(block) is not None
