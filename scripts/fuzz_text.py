"""What jobs write, on its way to a reader: the cutter, the terminal's text, levels, excerpts."""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from collections.abc import Hashable
from itertools import pairwise
from typing import Final

from engine.jobs.excerpt import Source, excerpt, recent, settled_end
from engine.jobs.plaintext import json_bytes, render, unfinished
from engine.journal.cutter import BEGINNING, LineCutter, Lines
from engine.journal.levels import Level, LevelFinder, is_plain
from scripts.fuzzing import Fault, Target

_LINES: Final = (
    *(b"hello\nworld\n", b"a\r\nb\rc\n", b"50%\r60%\r\x1b[2K100%\ndone", b"\x1b[31mred\x1b[0m\n"),
    *(
        b"\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y\n",
        b"\xff\xfe\xe2\x82\n\xf0\x9f\x98\x80",
        b"ab\b\bc\n",
    ),
    *(b"\x1b[3Cx\x1b[2Dy\x1b[1Gz\x1b[0K\n", b"\xc2\x9b1mq\xc2\x85\xe2\x80\xa8w\xe2\x80\xae\n"),
    b"x" * 4095 + b"\n" + b"y" * 4097 + b"\nz",
    b"<3>disk\n<7>x\n<9>y\n",
    b'{"level":"error","msg":"x"}\n{"severity":3,"short_message":"a"}\n{"level":50}\n',
    b'time=12 level=warn msg="a \\" b"\nts=1 lvl=error\nlevel=info\n',
    b"2026-11-30 12:00:00,123 ERROR [main] a.b.C - boom\n\tat a.b.C(C.java:1)\n",
    b"Nov 30 12:00:00 host app[12]: warning: x\n[ 12.345678] oops\nE1130 12:00:00.1 7 a.go:1] b\n",
    b'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    x\nKeyError: 1\n',
    b'  + Exception Group Traceback (most recent call last):\n  |   File "a", line 2\n  +----\n',
    b"src/a.c:3:4: error: x\nmake: *** [all] Error 2\nnpm ERR! code\nerror[E0308]: m\npanic: y\n",
    b"thread 'main' panicked at a.rs:1:2:\nmsg\nFAILED t.py::test_x - assert\n1 failed in 0.1s\n",
    b"bash: line 1: x: command not found\n/bin/sh: 1: y: not found\ncat: z: No such file\n",
    b"==12== ERROR SUMMARY: 3\nSegmentation fault (core dumped)\nfatal: not a git repository\n",
    b'{"reason":"compiler-message","message":{"level":"warning"},"x":{"rendered":"warning: y"}}\n',
)
WORDS: Final = (
    *(
        b"\n",
        b"\r",
        b"\r\n",
        b"\b",
        b"\t",
        b"\x1b",
        b"\x1b[",
        b"\x1b[2K",
        b"\x1b[99999G",
        b"\x1b]0;",
    ),
    *(
        b"\x1b\\",
        b"\x07",
        b"\x1bP",
        b"\xc2\x9b",
        b"\xc2\x9d",
        b"\xc2\x9c",
        b"\xe2\x80\x8b",
        b"\xed\xa0\x80",
    ),
    *(
        b"\x1b[1C",
        b"\x1b[5D",
        b"\x1b[0K",
        b"\x1b[31;1m",
        b"\xe2\x80\xae",
        b"\xef\xbb\xbf",
        b"\xf3\xa0\x81\x81",
    ),
    *(
        b"ERROR",
        b" WARN ",
        b"[error]",
        b"error: ",
        b"level=",
        b'"level":"',
        b"Traceback (most recent call last):\n",
    ),
    *(
        b'  File "a", line 1\n',
        b": line 1: ",
        b"make: *** ",
        b"npm ",
        b"a.py:1:2: ",
        b" - ",
        b"[",
        b"]",
        b"(",
        b")",
    ),
    *(
        b"<0>",
        b"<7>",
        b'{"',
        b'"',
        b"\\",
        b"=",
        b'a="',
        b"x=y ",
        b" | ",
        b"12:34:56 ",
        b"2026-11-30T12:00:00.1Z ",
    ),
    *(
        b"a.b.c.",
        b"::",
        b"....",
        b"    ",
        b"\t\tat ",
        b"Caused by: ",
        b"...Error: ",
        b"\xc4\xb0",
        b"\xe2\x9c\x96 ",
    ),
    *(
        b"-e expression ",
        b"error(",
        b"x[1]: ",
        b"#1 0.1 ",
        b"remote: ",
        b"_" * 30,
        b"!" * 30,
        b"=" * 70,
        b"1 failed, ",
    ),
)
_DECEIVING: Final = frozenset(
    "\u00ad\u034f\u061c\u115f\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2066\u2067\u2068\u2069\u206f\u3164\ufe0f\ufeff\uffa0\ufff9\U000e0001\U000e0041"
)
_MARKER: Final = re.compile(r"^<(\d+) bytes, (\d+) lines left out; read_output has them>\n", re.M)
_BY_BYTE: Final = 400  # bytes of an output that is fed byte by byte too
_FLAGGED = tuple[str, bool]


def _cut(pieces: list[bytes]) -> list[_FLAGGED]:
    cutter = LineCutter()
    found = [_flagged(cutter.feed(piece)) for piece in pieces]
    found.append(_flagged(cutter.finish()))
    return [line for lines in found for line in lines]


def _flagged(lines: Lines) -> list[_FLAGGED]:
    cut = set(lines.cut)
    return [(text, index in cut) for index, text in enumerate(lines.texts)]


def _marks(data: bytes, most: int) -> list[int]:
    """Where to cut `data`: following from it, so that it can be fed again."""
    value, found = zlib.crc32(data), set[int]()
    for _ in range(value % (most + 1)):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
        found.add(value % (len(data) + 1))
    return sorted(found)


def check_cutter(data: bytes) -> Hashable:
    """The same lines in whatever pieces, also by cutters that follow killed ones; harmless text."""
    whole = _cut([data])
    marks = [0, *_marks(data, 6), len(data)]
    ways = [
        ("in pieces", _cut([data[a:b] for a, b in pairwise(marks)])),
        ("resumed", _resumed(data, marks)),
    ]
    if len(data) <= _BY_BYTE:
        ways.append(("byte by byte", _cut([data[i : i + 1] for i in range(len(data))])))
    for way, lines in ways:
        if lines != whole:
            raise Fault(f"{way}: {_first_difference(lines, whole)}")
    if len(whole) != data.count(b"\n") + (not data.endswith(b"\n") and bool(data)):
        raise Fault(f"{len(whole)} lines")
    kinds = set()
    for text, is_cut in whole:
        if len(text) > 4096 or set(text) & _DECEIVING:
            raise Fault(f"a line shows {text[:80]!r}")
        for char in set(text):
            kind = unicodedata.category(char)
            if kind in ("Cc", "Cs", "Zl", "Zp"):
                raise Fault(f"a line shows {char!r}")
            kinds.add(kind[0])
        kinds.add(str(is_cut))
    return frozenset(kinds), min(len(whole), 8)


def _first_difference(lines: list[_FLAGGED], whole: list[_FLAGGED]) -> str:
    pairs = [(a, b) for a, b in zip(lines, whole, strict=False) if a != b]
    return repr(pairs[0])[:200] if pairs else f"{len(lines)} lines, not {len(whole)}"


def _resumed(data: bytes, marks: list[int]) -> list[_FLAGGED]:
    place, lines = BEGINNING, list[_FLAGGED]()
    for mark in marks[1:]:
        cutter = LineCutter(place)
        lines += _flagged(cutter.feed(data[place.offset : max(mark, place.offset)]))
        place = cutter.place
    cutter = LineCutter(place)
    lines += _flagged(cutter.feed(data[place.offset :]))
    return lines + _flagged(cutter.finish())


def check_terminal(data: bytes) -> Hashable:
    """What a terminal acts on is gone, line ends stay, and pieces at line ends make the whole."""
    text = data.decode("utf-8", "replace")
    shown = render(text)
    if bad := re.search("[\x1b\r\b\x80-\x84\x86-\x9f\ud800-\udfff]", shown):
        raise Fault(f"{bad.group()!r} is shown")
    if shown.count("\n") != text.count("\n"):
        raise Fault("another number of lines")
    if render(shown) != shown:
        raise Fault("rendered again it is another text")
    for mark in _marks(data, 2):
        at = text.find("\n", mark) + 1
        if at and render(text[:at]) + render(text[at:]) != shown:
            raise Fault(f"cut at {at} it is another text")
    if json_bytes(shown) != len(json.dumps(shown, ensure_ascii=False).encode()) - 2:
        raise Fault("another size in JSON")
    return bool(unfinished(text)), shown == text, min(len(text) - len(shown), 8)


def check_levels(data: bytes) -> Hashable:
    """A level for each line, the same one by one; plain is what is info all through."""
    texts = [text for text, _cut in _cut([data])]
    whole = LevelFinder().find(texts)
    single = LevelFinder()
    each = [single.find_one(text) for text in texts]
    if list(zip(whole.levels, whole.texts, strict=True)) != each:
        raise Fault("one by one they have other levels")
    for mark in _marks(data, 2):
        at = mark % (len(texts) + 1)
        first = LevelFinder()
        levels = first.find(texts[:at]).levels
        if levels + LevelFinder(first.memory).find(texts[at:]).levels != whole.levels:
            raise Fault(f"cut at {at} they have other levels")
    for text, (level, shown) in zip(texts, each, strict=True):
        if shown != text and shown != text[3:]:
            raise Fault(f"{text[:80]!r} has become {shown[:80]!r}")
        if not isinstance(level, Level):
            raise Fault(f"no level: {level!r}")
    block = "".join(text + "\n" for text in texts).encode()
    if is_plain(block) and set(whole.levels) - {Level.INFO}:
        raise Fault("plain, and not")
    return tuple(sorted(set(whole.levels))), single.memory[:2], min(len(texts), 4)


def check_excerpt(data: bytes) -> Hashable:
    """Never over its limit; what is shown and what is left out make the whole."""
    head, body = data[:4].ljust(4, b"\0"), data[4:]
    limit, ended = int.from_bytes(head[:2], "big") % 2048, bool(head[2] & 1)
    start, end = sorted((head[2] * 16, head[3] * 32))
    hole = (start, end) if head[2] & 2 and start < end < len(body) else None
    characters = bool(head[2] & 4)
    source = Source(
        read_at=lambda offset, size: body[offset : offset + size],
        size=len(body),
        dropped=hole,
        ended=ended,
    )
    shown = excerpt(source, limit, characters=characters)
    text = shown.text if limit >= 256 else _MARKER.sub("", shown.text)
    size = len(text) if characters else len(text.encode())
    if size > limit + (limit < 256) or re.search("[\x1b\r\b\ud800-\udfff]", shown.text):
        raise Fault(f"{size} of {limit}: {shown.text[:80]!r}")
    if not settled_end(source) == shown.end <= len(body) or (ended and shown.end != len(body)):
        raise Fault(f"it ends at {shown.end} of {len(body)}")
    if not 0 <= shown.omitted_bytes <= shown.end or shown.omitted_lines > shown.omitted_bytes:
        raise Fault(f"{shown.omitted_bytes} bytes, {shown.omitted_lines} lines left out")
    news = recent(source, min(start, shown.end), characters=1 + limit)
    if len(news.text) > 1 + limit or news.end > len(body):
        raise Fault(f"{len(news.text)} of {1 + limit} characters of news")
    return hole is None, ended, characters, bool(shown.omitted_bytes), limit // 256, bool(news.text)


def _excerpts() -> Target:
    heads = (b"\x01\x2c\x00\x00", b"\x00\x20\x03\x09", b"\x03\x00\x07\x20", b"\x01\x00\x04\x00")
    outputs = [head + line * 40 for head in heads for line in _LINES]
    return Target(name="excerpts", seeds=outputs, check=check_excerpt, words=WORDS)


MAKERS: Final = {
    "cutter": lambda: Target(name="cutter", seeds=_LINES, check=check_cutter, words=WORDS),
    "terminal": lambda: Target(name="terminal", seeds=_LINES, check=check_terminal, words=WORDS),
    "levels": lambda: Target(name="levels", seeds=_LINES, check=check_levels, words=WORDS),
    "excerpts": _excerpts,
}
