"""Bytes and JSON made up from good ones, by chance. Pure: a generator and its input decide all."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final

MAX_BYTES: Final = 8192  # of an input, but for the pumped ones

_NUMBERS: Final = (
    *(b"0", b"-1", b"1", b"255", b"256", b"65536", b"2147483648", b"9007199254740993", b"1e999"),
    *(
        b"-0.0",
        b"1e-400",
        b"9" * 400,
        b"0x10",
        b"01",
        b"1_0",
        b"NaN",
        b"Infinity",
        b"18446744073709551616",
    ),
)
_BYTES: Final = b"\x00\x01\x07\x08\t\n\r\x1b\x7f\x80\x9b\xc0\xe2\xed\xef\xf4\xff \"'\\{}[],:<>=-0"
_TEXTS: Final = (
    *("\ud800", "\u2028", "\u202e", "\ufeff", "\ufffd", "\U0010ffff", "\u0130", "é", "\u0085"),
)


_member: Final = re.compile(rb'"(\w+)": ?("[^"]*"|\[[^]{]*\]+|[^,}]*)')
# Values of JSON, for whatever was in their place.
_ODD: Final = (
    *("null", "true", "0", "-1", "1.5", "1e999", "-1e999", "9" * 5000, "1e308", "NaN", '""', "[]"),
    *("{}", '"\\ud800"', '"a\\u0000b"', '"t8f3kr9"', '"*"', '"all"', '["a"]', '{"text":"x"}'),
    *('{"A":"b"}', '{"A=":"b"}', '{"ENGINE_X":"1"}', '{"":""}', '{"A":1}', '"/tmp"', "[null]"),
    *('[["x"]]', '{"text":1}', '{"text":"x","y":1}', '"aGk="', '"a"', "9007199254740993", "-0"),
    *('"2026-02-30T12:00:00Z"', '"2026-11-30T12:04:31.208Z"', '"9999-12-31T23:59:59+23:59"'),
    *('"0001-01-01T00:00:00+23:59"', "[1]", '[""]', '["t1","t1"]', "1e-400", '"none"', '"\\n"'),
    *(f'"{"x" * 300}"', '["' + "y" * 140_000 + '"]', "[" * 500 + "]" * 500, '{"\\ud800":"x"}'),
)


def mutate(rng: random.Random, data: bytes, words: Sequence[bytes], most: int = MAX_BYTES) -> bytes:
    """`data` with one to eight changes."""
    out = bytearray(data)
    for _ in range(1 << int(rng.random() * 4)):
        _CHANGES[int(rng.random() * len(_CHANGES))](rng, out, words)
    return bytes(out[:most])


def pump(rng: random.Random, data: bytes, words: Sequence[bytes], size: int) -> bytes:
    """A beginning, a piece of it or a word again and again, and an end: `size` bytes in all."""
    start, end = _range(rng, data)
    piece = data[start:end][:40] or b"("
    if words and rng.random() < 0.5:
        piece = rng.choice(words)
    if rng.random() < 0.3:
        piece = mutate(rng, piece, words, 40) or b"["
    if rng.random() < 0.3:  # lines of the greatest length that is kept
        piece = (piece * (4096 // len(piece) + 1))[: rng.randrange(1, 4200)] + b"\n"
    return data[:start] + piece * (size // len(piece)) + data[end:]


def vary_members(
    rng: random.Random, body: bytes, words: Sequence[bytes], names: Sequence[bytes] = ()
) -> bytes:
    """JSON with other values of some members, members more (of `names`), or bytes changed."""
    for _ in range(1 + int(rng.random() * 3)):
        if rng.random() < 0.25:
            body = mutate(rng, body, words)
            continue
        members = list(_member.finditer(body))
        value = rng.choice(_ODD).encode() if rng.random() < 0.8 else rng.choice(words)
        if members and rng.random() < 0.2:
            value = rng.choice(members)[2]
        if members and (not names or rng.random() < 0.7):
            member = rng.choice(members)
            body = body[: member.start(2)] + value + body[member.end(2) :]
        elif names:
            body = body.rstrip(b"} ") + b', "' + rng.choice(names) + b'": ' + value + b"}"
    return body


def vary_json(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """As `vary_members`, with no members more."""
    return vary_members(rng, data, words)


def _range(rng: random.Random, data: bytes | bytearray) -> tuple[int, int]:
    start = int(rng.random() * (len(data) + 1))
    return start, min(len(data), start + 1 + int(rng.expovariate(1 / 8)))


def _flip(rng: random.Random, out: bytearray, _words: Sequence[bytes]) -> None:
    if out:
        out[int(rng.random() * len(out))] ^= 1 << int(rng.random() * 8)


def _set(rng: random.Random, out: bytearray, _words: Sequence[bytes]) -> None:
    if out:
        out[int(rng.random() * len(out))] = rng.choice(_BYTES)


def _insert(rng: random.Random, out: bytearray, _words: Sequence[bytes]) -> None:
    at = int(rng.random() * (len(out) + 1))
    out[at:at] = rng.randbytes(1 + int(rng.random() * 4))


def _remove(rng: random.Random, out: bytearray, _words: Sequence[bytes]) -> None:
    start, end = _range(rng, out)
    del out[start:end]


def _double(rng: random.Random, out: bytearray, _words: Sequence[bytes]) -> None:
    start, end = _range(rng, out)
    out[start:start] = out[start:end] * (1 << int(rng.random() * 6))


def _move(rng: random.Random, out: bytearray, _words: Sequence[bytes]) -> None:
    start, end = _range(rng, out)
    piece = out[start:end]
    del out[start:end]
    at = int(rng.random() * (len(out) + 1))
    out[at:at] = piece


def _word(rng: random.Random, out: bytearray, words: Sequence[bytes]) -> None:
    word = rng.choice(words) if words else rng.choice(_BYTES).to_bytes(1, "big")
    start, end = _range(rng, out)
    out[start : end if rng.random() < 0.5 else start] = word


def _number(rng: random.Random, out: bytearray, _words: Sequence[bytes]) -> None:
    digits = [i for i in range(len(out)) if 48 <= out[i] <= 57][:200]
    if digits:
        start = end = rng.choice(digits)
        while end < len(out) and 48 <= out[end] <= 57:
            end += 1
        out[start:end] = rng.choice(_NUMBERS)


def _text(rng: random.Random, out: bytearray, _words: Sequence[bytes]) -> None:
    at = int(rng.random() * (len(out) + 1))
    out[at:at] = rng.choice(_TEXTS).encode("utf-8", "surrogatepass")


def _shorten(rng: random.Random, out: bytearray, _words: Sequence[bytes]) -> None:
    del out[int(rng.random() * (len(out) + 1)) :]


_CHANGES: Final = (
    *(_flip, _set, _set, _insert, _insert, _remove, _remove, _double, _double),
    *(_move, _word, _word, _word, _word, _number, _number, _text, _shorten),
)


def spliced(rng: random.Random, first: bytes, second: bytes) -> bytes:
    return first[: int(rng.random() * (len(first) + 1))] + second[_range(rng, second)[0] :]
