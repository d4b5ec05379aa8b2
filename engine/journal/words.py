"""Severities, and the words and numbers that stand for them in other people's logs. Pure data."""

from __future__ import annotations

import enum
from typing import Final


class Level(enum.IntEnum):
    """How severe a line is, least first (RFC 5424 counts the other way: 7 minus ours)."""

    DEBUG = 0
    INFO = 1
    NOTICE = 2
    WARNING = 3
    ERROR = 4
    CRITICAL = 5
    ALERT = 6
    EMERGENCY = 7

    @property
    def word(self) -> str:
        return self.name.lower()


_WORDS: Final = {
    Level.DEBUG: "trace debug dbug debu dbg verbose verb",
    Level.INFO: "info information informational inf log system default",
    Level.NOTICE: "notice note",
    Level.WARNING: "warning warn wrn",
    Level.ERROR: "error err erro eror severe fail failed failure",
    Level.CRITICAL: "critical crit fatal fata ftl panic dpanic",
    Level.ALERT: "alert",
    Level.EMERGENCY: "emergency emerg",
}

# Each word in small letters -> its level.
BY_WORD: Final[dict[str, Level]] = {
    word: level for level, words in _WORDS.items() for word in words.split()
}


def syslog_level(number: int) -> Level | None:
    """RFC 5424, 6.2.1: 0 is an emergency, 7 a debug line."""
    return Level(7 - number) if 0 <= number <= 7 else None


# bunyan and pino write 10 (trace) to 60 (fatal); steps of one between are custom levels.
_BUNYAN: Final = (
    Level.DEBUG,
    Level.DEBUG,
    Level.INFO,
    Level.WARNING,
    Level.ERROR,
    Level.CRITICAL,
)


def bunyan_level(number: int) -> Level | None:
    return _BUNYAN[number // 10 - 1] if 10 <= number < 70 else None


# Python's logging: 10 debug, 20 info, 30 warning, 40 error, 50 critical.
_PYTHON: Final = (Level.DEBUG, Level.INFO, Level.WARNING, Level.ERROR, Level.CRITICAL)


def python_level(number: int) -> Level | None:
    return _PYTHON[number // 10 - 1] if 10 <= number < 60 else None
