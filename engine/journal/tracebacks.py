"""Lines that belong together: a Python traceback, the frames of other runtimes. Pure.

What is remembered from line to line is one short text, so that it can be stored: empty, or a
letter for what the last line was, and what is needed to know the next one of its kind.
"""

from __future__ import annotations

import re
from typing import Final

from engine.journal.words import Level

NOTHING: Final = ""
MAX_BETWEEN: Final = 3  # lines between an error and its frames: the rest of its message
MAX_MARGIN: Final = 64  # characters; a traceback that stands further right is not followed

# In a traceback: `T` and the margin at which it stands; in an exception group: `G`; behind a
# panic whose message is on the next line: `P`; behind a line of warning or worse, whose frames
# may follow: `F`, its level, and how many other lines may come before them.
_HEADER: Final = "Traceback (most recent call last):"
_stack = re.compile(r'(?P<margin>\s*?)(?:  )?File "[^"]+", line \d+(?:,? in .+)?$')
_group_line = re.compile(r"\s+(?:[|]|\+[-+])")
_exception = re.compile(
    r"(?!(?:DEBUG|INFO|NOTICE|WARNING|ERROR|CRITICAL):)"
    r"[A-Za-z_][\w.<>]*(?::(?:\s|$)|$)"
)
_chained = re.compile(
    r"[\s|]*(?:During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:)$"
)
_frame = re.compile(r"\s+(?:at \S|\.\.\. \d+ (?:more|lines matching))|\s+\[cause\]: ")
_panic = re.compile(r"thread '.*' (?:\(\d+\) )?panicked at \S+:\d+:\d+:$")


def span_level(body: str, memory: str) -> tuple[Level | None, str]:
    """The level of `body` as a part of something longer, None if it is none; what to remember."""
    kind, rest = memory[:1], memory[1:]
    if kind == "G" and _group_line.match(body):
        return Level.ERROR, memory
    if kind == "T" and body.startswith(rest):
        inner = body[len(rest) :]
        if inner[:1] == " ":
            return Level.ERROR, memory
        if _exception.match(inner):
            return Level.ERROR, remember(Level.ERROR, NOTHING)
    if kind == "P":
        return Level.ERROR, NOTHING
    if kind == "F" and _frame.match(body):
        return Level(int(rest[0])), memory
    return _begin(body)


def _begin(body: str) -> tuple[Level | None, str]:
    if body.endswith(_HEADER) and body[-len(_HEADER) - 1 :][:1] in (" ", "T"):
        before = body[: -len(_HEADER)]
        if before.endswith("+ Exception Group "):
            return Level.ERROR, "G"
        # `E   ` is pytest's; other words before it are a logger's, who does not repeat them.
        margin = before if not before.strip(" |E") else ""
        return Level.ERROR, "T" + margin if len(margin) <= MAX_MARGIN else NOTHING
    if "File " in body and (found := _stack.match(body)):
        return Level.ERROR, "T" + found["margin"][:MAX_MARGIN]
    if "exception" in body and _chained.match(body):
        return Level.ERROR, NOTHING
    if "panicked" in body and _panic.match(body):
        return Level.ERROR, "P"
    return None, NOTHING


def remember(level: Level, memory: str) -> str:
    """What to remember behind a line of `level` that stood by itself, after `memory`."""
    if level >= Level.WARNING:
        return f"F{int(level)}{MAX_BETWEEN}"
    if memory[:1] == "F" and memory[2] > "0":
        return f"{memory[:2]}{int(memory[2]) - 1}"
    return NOTHING
