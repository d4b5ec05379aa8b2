"""The level word where a logger puts it: at the start of a line, or behind its date and name. Pure.

A word in the middle of a sentence is none, nor one with other letters, `_`, `.` or `=` beside it.
"""

from __future__ import annotations

import re
from typing import Final

from engine.journal.words import BY_WORD, Level

_TIME = r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"
_ZONE = r"(?:\ ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"

# One part of what stands before the message: a date, a host, the name of a container.
_head = re.compile(
    rf"""(?:
    (?P<stamp>
      \[?\d{{4}}[-/.]\d\d[-/.]\d\d(?:[T\ _:]{_TIME}{_ZONE})?(?:\]|[:,](?=\ )|(?=\s|$))
    | \[?{_TIME}(?:\ ?[AP]M)?(?:\]|(?=\s|$))
    | \d\d-{_MONTH}-\d{{4}}\ {_TIME}                                     # Tomcat
    | \d\d-\d\d\ \d\d:\d\d:\d\d\.\d+\ +\d+\ +\d+                          # logcat
    | (?:[A-Z][a-z]{{2}}\ )?{_MONTH}\ [\ \d]\d\ {_TIME}
        (?:\ [\w.-]+\ [\w./@-]+(?:\[\d+\])?:)?                            # syslog
    | \[[A-Z][a-z]{{2}}\ {_MONTH}\ \d\d\ {_TIME}\ \d{{4}}\]               # Apache
    | \[\ *\d+\.\d{{6}}\]                                                # kernel
    | \d+:[A-Z]\ \d\d\ {_MONTH}\ \d{{4}}\ {_TIME}\ [-*.#]                 # Redis
    )
    | (?=[\w.-]*[A-Za-z])[\w.-]{{1,60}}\ +\|                              # docker compose
    | \#\d+\ (?:\d+\.\d+\ )?                                             # BuildKit
    | remote:(?=\ )
    | INTERNALERROR>
    )\ ?""",
    re.VERBOSE,
)

_ANY = "|".join(sorted(BY_WORD, key=len, reverse=True))
# `NOTICE` by itself, or before what `grep` and `git diff --stat` write, is the name of a file, and
# `ERROR: Final = 4` is source code.
_UPPER = (
    rf"(?!NOTICE(?::\d+:|\ +\|\ +(?:\d+\ |Bin\ )|\s*$))(?P<upper>{_ANY.upper()})"
    r"(?=[\s:|\]/()\[]|$)(?!\ *=|:\ (?:Final|ClassVar|int|str|bool|float)(?:\[.{0,60}\])?\ =)"
)
_BRACKET = rf"\[(?:\w+:)?\ *(?P<bracket>(?i:{_ANY}))\ *\]"
# `error: null` is data, not a complaint.
_DATA = r"(?:null|none|nil|undefined|true|false|\d[\d.]*\ ?%?|\"\"|''|\[\]|\{\}|[|>]-?),?$"
_LOWER = rf"(?P<lower>[A-Za-z][a-z]{{2,12}}):(?=\s|$)(?!\ *{_DATA})"

_word = re.compile(
    rf"""
    (?:\ *{_BRACKET} | <(?P<angle>[a-z]{{4,9}})>(?=\ ) | \ ?{_UPPER} | (?:\ \ )?{_LOWER})""",
    re.VERBOSE,
)
# zap with small letters: the word, then where in the source.
_placed = re.compile(r"(?P<word>[a-z]{4,6}) +[\w./-]+:\d+ ")
_MARK = (
    r"(?:\[[^\]]{0,60}\]|\([^)]{0,60}\)|[\w.-]{1,40}\[[^\]]{1,20}\]:?"
    r"|\d+(?:\#\d+)?:?|[-|*\#:.]+)\ +"
)
_later = re.compile(
    rf"\ *(?:{_MARK}){{0,4}}?(?:[\w.$/@:-]{{1,80}}\ +)?(?:{_MARK}){{0,3}}?(?:{_BRACKET}|{_UPPER})",
    re.VERBOSE,
)
_named = re.compile(
    rf"(?:(?:\[[^\]]{{1,40}}\]\ *){{1,3}}|[\w.$-]+\ -\ |[\w.-]+:\ (?=\[))(?:{_BRACKET}|{_UPPER})",
    re.VERBOSE,
)

_LETTERS: Final = {
    "V": Level.DEBUG,
    "D": Level.DEBUG,
    "I": Level.INFO,
    "N": Level.NOTICE,
    "W": Level.WARNING,
    "E": Level.ERROR,
    "F": Level.CRITICAL,
}
_letter = re.compile(
    r"""(?:
      (?P<glog>[IWEF])\d{4}\ \d\d:\d\d:\d\d\.\d+\ +\d+\ [^\ ]+:\d+\]    # glog, klog
    | (?P<ruby>[DIWEF]),\ \[\d{4}-                                       # Ruby's Logger
    | (?P<apt>[NWE]):\ (?=[A-Z])                                         # apt
    | (?P<kotlin>[we]):\ (?=file:)
    | (?P<logcat>[VDIWEF])/[\w.$-]+\ *\(\ *\d+\):
    )""",
    re.VERBOSE,
)
_monolog = re.compile(rf"[\w-]{{1,40}}\.{_UPPER}")
_logcat = re.compile(r"([IWEF]) [\w.$-]+ *:")


def split_head(text: str) -> tuple[int, bool]:
    """Where the message starts behind dates and names, and whether a date stands before it."""
    at, is_stamped = 0, False
    for _ in range(4):
        if BY_WORD.get(text[at : text.find(" ", at)].strip("[]:").lower()) is not None:
            break
        found = _head.match(text, at)
        if not found:
            break
        at, is_stamped = found.end(), is_stamped or found["stamp"] is not None
    return at, is_stamped


def logger_level(text: str, at: int, is_stamped: bool) -> Level | None:
    """The level that a logger wrote into `text`, whose message starts at `at`."""
    letter = _letter.match(text, at)
    if letter and letter.lastgroup:
        return _LETTERS[letter[letter.lastgroup].upper()]
    found = _word.match(text, at)
    if found:
        level = _of_word(found)
        if level is not None:
            return level
    if not is_stamped:
        return _of_word(_named.match(text, at))
    monolog = _monolog.match(text, at)
    if monolog:
        return _of_word(monolog)
    logcat = _logcat.match(text, at)
    if logcat:
        return _LETTERS[logcat[1]]
    placed = _placed.match(text, at)
    if placed and placed["word"] in BY_WORD:
        return BY_WORD[placed["word"]]
    return _of_word(_later.match(text, at))


def _of_word(found: re.Match[str] | None) -> Level | None:
    if not found or not found.lastgroup:
        return None
    word = found[found.lastgroup].lower()
    if word == "trace" and found.lastgroup == "lower":  # Node's console.trace
        return None
    # `fatal:` and `panic:` in small letters are what tools and runtimes say before they give up.
    if found.lastgroup == "lower" and word in ("fatal", "panic"):
        return Level.ERROR
    return BY_WORD.get(word)
