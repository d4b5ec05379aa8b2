"""The level of each line of a job's output, by the first rule that fits. Pure.

The rules, in their order: the sd-daemon prefix; what the line says of itself as JSON or logfmt; a
level word where loggers put it; what compilers and runtimes say; else `info`. A traceback is one
thing from its first line to its last, whatever its lines look like. `structured`, `loggers`,
`runtimes` and `tracebacks` hold one rule each, this module their order, and the means to pass
over plain lines at little cost.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import Final, NamedTuple

from engine.journal.loggers import logger_level, split_head
from engine.journal.runtimes import runtime_level
from engine.journal.structured import json_level, logfmt_level
from engine.journal.tracebacks import NOTHING, remember, span_level
from engine.journal.words import Level

__all__ = ["Level", "LevelFinder", "Levelled", "is_plain"]

# A line that is not `info` holds one of these (in small letters) or starts with one of `_OPENINGS`.
# Each costs every line a little, so what another one implies is left out.
_HINTS: Final = (
    *("err", "eror", "warn", "wrn", "fat", "ftl", "fail", "faul", "crit", "alert", "emerg"),
    *("panic", "severe", "debu", "dbg", "dbug", "trace", "verb", "not", "xcept", "interrupt"),
    *("exit", "killed"),
    *("abort", "assert", "no such", "denied", "connection", "can't", "could", "unable", "unknown"),
    *("invalid", "missing", "illegal", "unrec", "***", "undefined", "conflict", "reject"),
    *("deprecat", ": line ", "direct", 'file "', "memory", ".go:", "sanitizer", "caused"),
    *("pipe", "no space", "read-only", "busy", "too ", "in use", '{"', "[*]", " e ", " w ", " f "),
    *("unreachable", "non-zero", "option", "what()", "elifecycle", "multiple def", "sh: "),
)
_OPENINGS: Final = (
    *("<", "E", "W", "F", "D", "N", "V", "e:", "w:", "npm ", "==", "!!!"),
    *("free()", "malloc()", "double free", "Thread", "Current", "sed: -e"),
    *("{", "-sh"),
)
_FIRST: Final = frozenset(opening[0] for opening in _OPENINGS)
# Looked for in blocks that are not ASCII alone.
_UNUSUAL: Final = ("●", "\xd7", "✖", "✕", "✗", "│")

_HINT_BYTES: Final = tuple(hint.encode() for hint in _HINTS)
_OPENING_BYTES: Final = tuple(b"\n" + opening.encode() for opening in _OPENINGS)

# A linter's finding, by its code alone.
_FINDING = r"\.\w{1,5}:\d+:\d+: [a-z]{1,5}\d{3}"
_finding = re.compile(_FINDING)
_finding_bytes = re.compile(_FINDING.encode())

_DIGITS: Final = dict.fromkeys(map(ord, "123456789"), "0")
_DIGIT_BYTES: Final = bytes.maketrans(b"123456789", b"0" * 9)
MOST_KNOWN: Final = 2 << 20  # bytes of shapes that are remembered, about; and one block's more
_ENTRY: Final = 150  # bytes of one, beside its characters

# The digits of sd-daemon(3): those of syslog, which counts down.
_PRIORITIES: Final = {str(7 - level): level for level in Level}


class Levelled(NamedTuple):
    """Lines with their levels. A text has lost its sd-daemon prefix, as journald does it."""

    levels: list[Level]
    texts: list[str]


class LevelFinder:
    """Finds the levels of one output's lines, in order. `memory` is all that it knows.

    A finder made with the memory of another goes on where that one stood.
    """

    def __init__(self, memory: str = NOTHING) -> None:
        self.memory = memory

    def find(self, texts: list[str]) -> Levelled:
        """The levels of `texts`, the next lines of the output, none of which holds a newline."""
        levels, found = [Level.INFO] * len(texts), texts
        begun = 0  # what is before has its level
        for place in [*_suspects(texts), len(texts)]:
            for at in range(begun, place):
                if not self.memory:
                    break
                levels[at] = self._follow(texts[at])
            if place == len(texts):
                break
            levels[place], text = self.find_one(texts[place])
            if text is not texts[place]:
                found = list(texts) if found is texts else found
                found[place] = text
            begun = place + 1
        return Levelled(levels, found)

    def find_one(self, text: str) -> tuple[Level, str]:
        """The level of the next line, and its text without a sd-daemon prefix."""
        if text[:1] == "<" and text[2:3] == ">" and text[1] in _PRIORITIES:
            # sd-daemon(3); a line whose level is given still starts or continues a traceback.
            self.memory = span_level(text[3:], self.memory)[1]
            return _PRIORITIES[text[1]], text[3:]
        if text[:1] == "{":
            level = json_level(text)
            level = Level.INFO if level is None else level
            self.memory = remember(level, self.memory)
            return level, text
        at, is_stamped = split_head(text)
        body = text[at:] if at else text
        before = self.memory
        level, self.memory = span_level(body, before)
        if level is None:
            level = _level_alone(text, body, at, is_stamped)
            self.memory = self.memory or remember(level, before)
        return level, text

    def _follow(self, text: str) -> Level:
        """As `find_one`, of a line that is no suspect: what it belongs to decides alone."""
        at, before = split_head(text)[0], self.memory
        level, self.memory = span_level(text[at:], before)
        if level is None:
            level = Level.INFO
            self.memory = self.memory or remember(level, before)
        return level


def _level_alone(text: str, body: str, at: int, is_stamped: bool) -> Level:
    if body[:1] == "{":
        level = json_level(body)
        return Level.INFO if level is None else level
    level = logfmt_level(body) if "=" in body else None
    if level is None:
        level = logger_level(text, at, is_stamped)
    if level is None:
        level = runtime_level(text, at)
    return Level.INFO if level is None else level


def is_plain(block: bytes) -> bool:
    """Whether all lines of `block`, none of which goes on with an earlier one, are surely info.

    False where they may be as well. Costs a tenth of a look at each where few have a shape of
    their own; see `_Known`.
    """
    if not block.isascii():
        return False
    shapes = set(block.translate(_DIGIT_BYTES).split(b"\n"))
    starts = b"\n" + b"\n".join(shapes)
    small = starts.lower()
    if any(hint in small for hint in _HINT_BYTES) or _finding_bytes.search(small):
        return False
    return not any(opening in starts for opening in _OPENING_BYTES)


class _Known:
    """Which shapes of lines were found suspect: a line's text with each digit as a 0.

    Hints and openings hold no digit, and a finding's code is as long whatever its digits, so that
    lines of one shape are all suspect or none is. What comes in floods has few shapes: a program's
    loop writes the same with other numbers.
    """

    def __init__(self) -> None:
        self._verdicts: dict[str, bool] = {}
        self.size = 0  # bytes, about

    def verdicts(self, shapes: list[str]) -> dict[str, bool]:
        """Whether each of `shapes` is suspect; others may be in the answer too."""
        known = self._verdicts
        new = [shape for shape in dict.fromkeys(shapes) if shape not in known]
        if new:
            self.size += sum(map(_size, new))
            if self.size > MOST_KNOWN:
                known = self._verdicts = {}
                new = list(dict.fromkeys(shapes))
                self.size = sum(map(_size, new))
            known.update(dict.fromkeys(new, False))
            known.update((new[place], True) for place in _search(new))
        return known


def _size(shape: str) -> int:
    return len(shape) + _ENTRY


_known = _Known()


def _suspects(texts: list[str]) -> list[int]:
    """Places of the lines that may be other than info, in order."""
    joined = "\n".join(texts)
    # What is not ASCII is translated at a tenth of the speed.
    shapes = joined.translate(_DIGITS).split("\n") if joined.isascii() else texts
    verdicts = _known.verdicts(shapes)
    return [place for place, shape in enumerate(shapes) if verdicts[shape]]


def _search(texts: list[str]) -> set[int]:
    """Places of suspect lines: a few searches for all of them together."""
    small = "\n".join(texts).lower()
    ends = list(accumulate(len(text) + 1 for text in texts))
    if texts and ends[-1] != len(small) + 1:  # some letters grow when made small
        ends = list(accumulate(len(text.lower()) + 1 for text in texts))
    found = {
        place
        for place, text in enumerate(texts)
        if text[:1] in _FIRST and text.startswith(_OPENINGS)
    }
    for hint in _HINTS if small.isascii() else _HINTS + _UNUSUAL:
        at = small.find(hint)
        while at >= 0:
            place = bisect_right(ends, at)
            found.add(place)
            at = small.find(hint, ends[place])
    found.update(bisect_right(ends, finding.start()) for finding in _finding.finditer(small))
    return found
