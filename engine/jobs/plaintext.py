"""Output as a reader sees it: escape sequences removed, rewritten lines as they end up.

Owns the rules by which the text of a job's output turns into the text of a reply. It knows
nothing of files, offsets or limits: `excerpt` cuts, this draws. Rendering keeps every `\n` and
adds none, and nothing reaches across one, so a text may be cut at any line end and rendered
in pieces.

What a terminal acts on is acted on or removed; every other control character (NUL, BEL, …) is
data and stays. A character is one column wide. Source of the grammar: ECMA-48, 5.4 and 8.3.
"""

from __future__ import annotations

import re
from typing import Final

MAX_PAD: Final = 200  # columns; a cursor sent further right than this past a line's end stops here
MAX_SEQUENCE: Final = 4096  # bytes looked back over for the start of an escape sequence

_CSI = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*"
# A control string (OSC, DCS, SOS, PM, APC) ends at its terminator, or at the next introducer, as
# terminals have it. It never crosses a line end: an unfinished one must not hide what follows.
_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90-\x9f\n]*"
_ESCAPE = (
    rf"{_CSI}[@-~]?"
    rf"|{_STRING}(?:\x07|\x1b\\|\x9c|(?=[\x1b\x90-\x9f])|\Z)"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x80-\x84\x86-\x9f]"  # C1; U+0085 is white space in Unicode and stays
)
_MOVE = r"(?:\x1b\[|\x9b)(?P<count>[0-9]{0,5})(?P<verb>[CDGK])"

_escape = re.compile(_ESCAPE)
_unfinished = re.compile(rf"(?:\x1b[ -/]*|{_CSI}|{_STRING})\Z")
_special = re.compile(r"[\r\b\x1b\x80-\x84\x86-\x9f]")
_moving = re.compile(rf"\x08|{_MOVE}")
_token = re.compile(rf"{_MOVE}|{_ESCAPE}|(?P<run>[^\r\b\n\x1b\x80-\x84\x86-\x9f]+)|[\r\b\n]")

# What JSON writes as two bytes, and what as six (RFC 8259, 7).
_JSON_SHORT = b'"\\\b\t\n\f\r'
_JSON_LONG = bytes(set(range(0x20)) - set(_JSON_SHORT))


def render(text: str) -> str:
    """`text` as it stands on a screen in the end, line by line."""
    if not _special.search(text):
        return text
    text = text.replace("\r\n", "\n")
    if "\r" not in text and not _moving.search(text):
        return _escape.sub("", text)
    lines = text.split("\n")
    last = lines.pop()
    return "".join([_render_line(line + "\n") for line in lines]) + _render_line(last)


def unfinished(text: str) -> str:
    """The beginning of an escape sequence with which `text` ends; empty where it ends outside."""
    found = _unfinished.search(text)
    return found.group() if found else ""


def json_bytes(text: str) -> int:
    """How many bytes `text` takes inside a JSON string that leaves non-ASCII as UTF-8."""
    data = text.encode()
    short = len(data) - len(data.translate(None, _JSON_SHORT))
    long = len(data) - len(data.translate(None, _JSON_LONG))
    return len(data) + short + 5 * long


def _render_line(line: str) -> str:
    if not _special.search(line):
        return line
    if _moving.search(line):
        return _draw(line)
    return _overlay(_escape.sub("", line))


def _overlay(line: str) -> str:
    """`line` with each part after a carriage return written over those before it."""
    body = line.removesuffix("\n")
    parts = body.split("\r")
    shown = parts.pop()
    while parts:
        older = parts.pop()
        if len(older) > len(shown):
            shown += older[len(shown) :]
    return shown + line[len(body) :]


def _draw(line: str) -> str:
    """`line` as its cursor movements, backspaces and erasures leave it."""
    cells: list[str] = []
    column = 0
    for token in _token.finditer(line):
        text = token.group()
        if token["verb"]:
            column = _move(cells, column, token["verb"], int(token["count"] or 0))
        elif token["run"]:
            cells.extend(" " * (column - len(cells)))
            cells[column : column + len(text)] = text
            column += len(text)
        elif text == "\r":
            column = 0
        elif text == "\b":
            column = max(column - 1, 0)
    return "".join(cells) + ("\n" if line.endswith("\n") else "")


def _move(cells: list[str], column: int, verb: str, count: int) -> int:
    """The column after one movement; an erasure changes `cells` (ECMA-48 8.3.20, 8.3.9, 8.3.41).

    Erasing what stands before the cursor (`1K`) is left out: it would cost a line's length each.
    """
    match verb:
        case "C":
            column += max(count, 1)
        case "D":
            column = max(column - max(count, 1), 0)
        case "G":
            column = max(count, 1) - 1
        case _ if count in (0, 2):
            del cells[column if count == 0 else 0 :]
    return min(column, len(cells) + MAX_PAD)
