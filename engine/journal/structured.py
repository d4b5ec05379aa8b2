"""The level that a JSON or logfmt line states of itself. Pure.

A line that is of such a form and states none has no level here; what its text says is data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from engine.journal.words import BY_WORD, Level, bunyan_level, python_level, syslog_level

_SYSLOG_KEYS: Final = ("priority", "PRIORITY", "syslog_severity")
_WORD_KEYS: Final = (
    "level",
    "lvl",
    "severity",
    "levelname",
    "log.level",
    "loglevel",
    "@level",
    "@l",
    "severity_text",
    "severityText",
    *("Level", "LogLevel", "Severity"),  # .NET
)
_NUMBERS: Final[dict[str, Callable[[int], Level | None]]] = {
    **dict.fromkeys(_SYSLOG_KEYS, syslog_level),
    "severity": syslog_level,
    "levelno": python_level,
    "level": bunyan_level,
}

_decode = msgspec.json.Decoder().decode
# The line was cut short: it is no JSON any more, but its level may stand in what is left.
_truncated = re.compile(
    r'(?=\{").{0,2000}?[{,] ?"(?:[Ll]evel|LogLevel|[Ss]everity|levelname)" ?: ?'
    r'"([A-Za-z]{3,13})"[,}]'
)
# Cargo's diagnostics, whose own level stands behind those of its parts.
_cargo = re.compile(
    r'\{"reason":"compiler-message".{0,3000}?"rendered":"(?:\\u001b\[[\d;]*m)*(?P<word>error|warning)'
)
_KEY = r"(?>[A-Za-z_@][\w.@/-]*+)"
_PAIR = rf'{_KEY}=(?>"(?:[^"\\]|\\.)*+"|[^\s"]*+)'
_logfmt = re.compile(
    rf"(?P<before>(?:{_PAIR}\s++)*?)(?:level|lvl|severity|loglevel|log\.level|at)="
    rf"\"?(?P<word>[A-Za-z]{{3,13}})\"?(?P<after>\s+{_KEY}=)?(?:\s|$|(?<==))"
)


def json_level(text: str) -> Level | None:
    """The level stated by `text`, one JSON object; None if it states none or is none."""
    try:
        found = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        cut = _cargo.match(text) or _truncated.match(text)
        return BY_WORD.get(cut[1].lower()) if cut else None
    return _stated(found) if isinstance(found, dict) else None


def logfmt_level(text: str) -> Level | None:
    """The level stated by `text`, at least two `key=value` pairs from its first character on."""
    found = _logfmt.match(text)
    if not found or not (found["before"] or found["after"]):
        return None
    return BY_WORD.get(found["word"].lower())


def _stated(record: dict[str, Any]) -> Level | None:
    for key in _WORD_KEYS:
        value = record.get(key)
        if isinstance(value, str) and value.lower() in BY_WORD:
            return BY_WORD[value.lower()]
    for key, of_number in _NUMBERS.items():
        number = _as_number(record.get(key))
        if number is not None:
            # GELF counts as syslog does, under the key where others count upwards.
            found = syslog_level(number) if "short_message" in record else of_number(number)
            if found is not None:
                return found
    inner = record.get("message")
    if isinstance(inner, dict) and record.get("reason") == "compiler-message":
        return BY_WORD.get(str(inner.get("level")).partition(":")[0])
    inner = record.get("log")
    return _stated(inner) if isinstance(inner, dict) and "log" not in inner else None


def _as_number(value: object) -> int | None:
    if isinstance(value, str) and len(value) == 1 and value in "01234567":
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
