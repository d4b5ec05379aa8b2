"""How a screen looks at one moment: width, colours, glyphs, the clock. Pure.

Every renderer takes a `View`, so that a test can fix all of it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Final
from zlib import crc32

DEFAULT_WIDTH: Final = 80
LEAST_WIDTH: Final = 20

SGR: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
CALLER_COLOURS: Final = (
    ("cyan",),
    ("magenta",),
    ("blue",),
    ("bold", "cyan"),
    ("bold", "magenta"),
    ("bold", "blue"),
)
# Status: glyph, what stands for it without UTF-8, colour.
LOOKS: Final[Mapping[str, tuple[str, str, str]]] = {
    "running": ("▶", ">", "cyan"),
    "succeeded": ("✓", "+", "green"),
    "failed": ("✗", "x", "red"),
    "timed_out": ("✗", "x", "red"),
    "lost": ("✗", "x", "red"),
    "cancelled": ("⊘", "-", "dim"),
    "skipped": ("⊘", "-", "dim"),
    "queued": ("…", ".", "dim"),
    "held": ("!", "!", "yellow"),
    "denied": ("!", "!", "yellow"),
}
_HIDDEN: Final = frozenset("\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\ufeff") | frozenset(
    map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))
)
# What is drawn here is one cell wide, and so is a Latin letter, whose blocks end before `_WIDER`.
_GLYPHS: Final = dict.fromkeys(map(ord, "\u2013·…▶✓✗⊘"))
_WIDER: Final = "\u0300"
_SOFT_HYPHEN: Final = "\xad"


@dataclass(frozen=True, kw_only=True)
class View:
    """`width` None: no terminal, so nothing is cut, no glyphs, times in UTC."""

    now: datetime
    zone: tzinfo | None = None  # None: the machine's
    width: int | None = None
    colour: bool = False
    unicode: bool = True

    @property
    def is_terminal(self) -> bool:
        return self.width is not None

    def paint(self, text: str, *colours: str) -> str:
        """`text` in `colours`, where there are any."""
        if not (self.colour and text and colours):
            return text
        return f"\x1b[{';'.join(SGR[c] for c in colours)}m{text}\x1b[0m"

    def paint_status(self, text: str, status: str) -> str:
        return self.paint(text, LOOKS.get(status, ("", "", "bold"))[2])

    def paint_caller(self, text: str, caller: str) -> str:
        """Each caller has a colour of its own, as far as six go."""
        return self.paint(text, *CALLER_COLOURS[crc32(caller.encode()) % len(CALLER_COLOURS)])

    def glyph(self, status: str) -> str:
        """The sign of `status`, painted; `?` for one that this release does not know."""
        look = LOOKS.get(status, ("?", "?", "bold"))
        return self.paint(look[0] if self.unicode else look[1], look[2])

    @property
    def dot(self) -> str:
        return "·" if self.unicode else "-"

    @property
    def dash(self) -> str:
        return "\u2013" if self.unicode else "-"

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "~"

    def number(self, count: int) -> str:
        """`1,240` on a terminal, `1240` to a pipe."""
        return f"{count:,}" if self.is_terminal else str(count)

    def cut(self, text: str, width: int) -> str:
        """`text` in at most `width` cells, an ellipsis in place of what is left out."""
        if cells(text) <= width:
            return text
        if width < 1:
            return ""
        kept, used = [], 0
        for char in text:
            used += cells(char)
            if used > width - 1:
                break
            kept.append(char)
        return "".join(kept) + self.ellipsis

    def pack(self, parts: list[str], gap: str, room: int | None = None) -> list[str]:
        """`parts` with `gap` between them, on as many lines of `room` (the width) as they take."""
        room = self.width if room is None else room
        lines, line = [], ""
        for part in parts:
            if line and room is not None and cells(line) + cells(gap) + cells(part) > room:
                lines.append(line)
                line = ""
            line = line + gap + part if line else part
        return [text if room is None else self.cut(text, room) for text in [*lines, line]]

    def fold(self, text: str, width: int | None = None) -> list[str]:
        """`text` on as many lines as `width` (the view's) takes, broken between words.

        A word that is longer is cut; without a width it is one line, as it is.
        """
        width = self.width if width is None else max(1, width)
        if width is None or cells(text) <= width:
            return [text]
        return self.pack(text.split(), " ", width)


def cells(text: str) -> int:
    """How many columns of a terminal `text` takes; it holds no control characters."""
    if text.isascii() or _is_narrow(text):
        return len(text)
    import wcwidth  # only here: most rows are narrow, and the import costs 28 ms

    width = wcwidth.wcswidth(text)
    return width if width >= 0 else len(text)


def _is_narrow(text: str) -> bool:
    """Whether each character of `text` surely takes one column."""
    rest = text.translate(_GLYPHS)
    return not rest or (max(rest) < _WIDER and _SOFT_HYPHEN not in rest)


def pad(text: str, width: int, right: bool = False) -> str:
    """`text` filled up with blanks to `width` cells, at its left where `right`."""
    blanks = " " * max(0, width - cells(text))
    return blanks + text if right else text + blanks


def safe(text: str) -> str:
    r"""`text` on one line, with control, bidi and invisible characters as `\x1b` or `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) for c in text)


def _escape(char: str) -> str:
    if char not in _HIDDEN and unicodedata.category(char) not in ("Cc", "Cs"):
        return char
    point = ord(char)
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}"


def wants_colour(choice: str | None, environ: Mapping[str, str], is_terminal: bool) -> bool:
    """Whether one stream is coloured: `--color`, NO_COLOR, FORCE_COLOR, terminal, in that order."""
    if choice in ("always", "never"):
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        if environ.get(name, "0") not in ("", "0"):
            return True
    return is_terminal and environ.get("TERM", "") != "dumb"


def terminal_width(environ: Mapping[str, str], reported: int | None) -> int:
    """Columns: COLUMNS over what the terminal says; 80 where that is unknown or below 20."""
    given = environ.get("COLUMNS", "")
    width = int(given) if given.isascii() and given.isdigit() else (reported or 0)
    return width if width >= LEAST_WIDTH else DEFAULT_WIDTH
