"""Texts and entries cut to the room that a reply has for them. Pure.

What is cut says so in its own place: how much is left out, and which method has it. Sizes are bytes
of JSON.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from engine.jobs.plaintext import json_bytes

FRAME_BYTES: Final = 3_584  # of a page, for what stands round its entries: most of it notices
FRAME_SHARE: Final = 8  # of a page of a batch, of which it may be no more
PATH_BYTES: Final = 24_576  # for any path that the system takes, quoted however badly
SHORTEST: Final = 128  # a text as long as this is never cut: no handle, no time, no word of ours
_SEE: Final = dict.fromkeys(("output", "stdout", "stderr"), "read_output")


def frame(limit_bytes: int) -> int:
    """Of a page of this size, what is kept for what stands round its entries."""
    return min(FRAME_BYTES, limit_bytes // FRAME_SHARE)


def clip(text: str, room: int, see: str | None = "wait") -> str:
    """`text`, of `room` bytes at most or as short as what says how much of it is left out.

    `see`: the method that has the whole; None: nobody has.
    """
    kept = len(text)
    shown, size = text, json_bytes(text)
    while size > room and kept:
        kept = min(kept * room // size, kept - 1)
        has_it = "" if see is None else f"; {see} has them"
        shown = f"{text[:kept]}…<{len(text) - kept} characters left out{has_it}>"
        size = json_bytes(shown)
    return shown


def fit(entry: dict[str, Any], room: int, see: str | None = "wait") -> dict[str, Any]:
    """`entry`, or where that is more than `room` bytes one like it with its longest texts cut.

    Lists and maps keep all that they have: each may be an end that is told by this.
    """
    shown, longest = entry, room
    while len(msgspec.json.encode(shown)) > room and longest > SHORTEST:
        longest = max(longest // 2, SHORTEST)
        shown = {name: _cut(value, longest, _SEE.get(name, see)) for name, value in entry.items()}
    return shown


def _cut(value: Any, longest: int, see: str | None) -> Any:
    match value:
        case str():
            return clip(value, longest, see)
        case dict():
            return {name: _cut(each, longest, _SEE.get(name, see)) for name, each in value.items()}
        case list():
            return [_cut(each, longest, see) for each in value]
    return value
