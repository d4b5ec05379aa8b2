r"""A job's bytes made fit for a terminal: colours pass, what moves the cursor does not.

SGR sequences (`ESC [ … m`) go through; every other escape sequence is dropped, and so are the C1
controls; other control characters are shown as `\x07`. Tab, newline and carriage return stay, for
progress bars. State is kept from one chunk to the next. ECMA-48; the danger is CVE-2021-25743.
"""

from __future__ import annotations

import codecs
from typing import Final

MAX_SEQUENCE: Final = 64  # characters of a control sequence; a longer one is dropped
_PLAIN, _ESCAPE, _CSI, _STRING, _STRING_ESCAPE, _CHARSET = range(6)
_KEPT: Final = frozenset("\t\n\r")
_STRING_STARTS: Final = frozenset("]PX^_")  # OSC, DCS, SOS, PM, APC
_C1_STRINGS: Final = frozenset("\x90\x98\x9d\x9e\x9f")


class TerminalFilter:
    """Feed it bytes in any cut, write what it returns."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _PLAIN
        self._sequence = ""

    def feed(self, data: bytes, final: bool = False) -> bytes:
        """What of `data` may be shown; an unfinished character or sequence waits for its rest."""
        text = self._decoder.decode(data, final)
        if self._state == _PLAIN and text.isprintable():
            return text.encode()
        return "".join(map(self._step, text)).encode()

    def _step(self, char: str) -> str:
        if self._state == _PLAIN:
            return self._plain(char)
        if self._state == _ESCAPE:
            self._after_escape(char)
        elif self._state == _CSI:
            return self._in_csi(char)
        elif self._state == _STRING:
            return self._in_string(char)
        elif self._state == _STRING_ESCAPE:
            self._state = _PLAIN if char == "\\" else _STRING
        elif not " " <= char <= "/":  # _CHARSET: intermediates, then one final character
            self._state = _PLAIN
        return ""

    def _plain(self, char: str) -> str:
        if char == "\x1b":
            self._state = _ESCAPE
        elif char == "\x9b":
            self._state, self._sequence = _CSI, ""
        elif char in _C1_STRINGS:
            self._state = _STRING
        elif (char < " " and char not in _KEPT) or char == "\x7f":
            return f"\\x{ord(char):02x}"
        elif not "\x80" <= char <= "\x9f":
            return char
        return ""

    def _after_escape(self, char: str) -> None:
        if char == "[":
            self._state, self._sequence = _CSI, ""
        elif char in _STRING_STARTS:
            self._state = _STRING
        elif " " <= char <= "/":
            self._state = _CHARSET
        elif char != "\x1b":
            self._state = _PLAIN

    def _in_csi(self, char: str) -> str:
        if "@" <= char <= "~":
            self._state = _PLAIN
            is_colour = char == "m" and all(c in "0123456789;:" for c in self._sequence)
            return f"\x1b[{self._sequence}m" if is_colour else ""
        if char == "\x1b":
            self._state = _ESCAPE
        elif " " <= char <= "?" and len(self._sequence) < MAX_SEQUENCE:
            self._sequence += char
        else:  # no control sequence after all, or an endless one: what is left is text again
            self._state = _PLAIN
            return self._plain(char)
        return ""

    def _in_string(self, char: str) -> str:
        if char in ("\x07", "\x9c", "\x18", "\x1a"):
            self._state = _PLAIN
        elif char == "\x1b":
            self._state = _STRING_ESCAPE
        elif char == "\n":  # an unended title must not swallow the rest of the output
            self._state = _PLAIN
            return char
        return ""
