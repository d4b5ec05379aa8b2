"""What compilers, test runners, shells and runtimes say when something went wrong. Pure, a table.

One row a form, in the order in which they are asked; the first that fits decides. All forms are
matched where the message starts, behind dates and names. A form that needs to look further says
so with a bounded `.*`: lines are at most 4096 characters.
"""

from __future__ import annotations

import re
from typing import Final

from engine.journal.words import BY_WORD, Level

# error(3) texts, at the end of what programs say of themselves.
_ERRNO: Final = (
    *("ommand not found", "not found", "No such file or directory", "No such file"),
    *("Permission denied", "Text file busy"),
    *("s a directory", "ot a directory", "File exists", "Operation not permitted"),
    *("Connection refused", "Connection timed out", "Connection reset by peer", "Broken pipe"),
    *("No space left on device", "Read-only file system", "Device or resource busy"),
    *("Input/output error", "Too many open files", "Exec format error"),
    *("Name or service not known", "Argument list too long", "Cannot allocate memory"),
    *("Directory not empty", "Address already in use", "Invalid argument"),
)
_COMPLAINT = (
    r"(?:[Cc]annot|[Cc]an't|[Cc]ould(?: not|n't)|[Uu]nable to|[Ff]ailed to|[Ii]nvalid|[Mm]issing"
    r"|[Uu]nrecognized|[Uu]nknown|[Ii]llegal|Error is) "
)
_FAULT = (
    r"(?:Segmentation fault|Bus error|Aborted|Killed|Floating point exception"
    r"|Illegal instruction|Trace/breakpoint trap)"
)
_EXCEPTION = r"(?:[A-Za-z_$][\w$]*\.)*[A-Z]?[\w$]*(?:Error|Exception|Interrupt|Exit|ExceptionGroup)"
_FEW = r"[1-9]\d*"

# The word of a diagnostic, after `file:line:column: ` or the name of a tool.
_said = re.compile(
    r"(?:[^\s:]+(?::\d+){0,3}|/bin/\S+|(?:-?\w*sh|[^\s:]+): (?:-c: )?line \d+):\s{1,2}"
    r"(?:[Ff]atal |internal compiler )?(?P<word>[A-Za-z]{4,7})(?: \w+)?:\s"
)

_ROWS: Final[list[tuple[Level, list[str]]]] = [
    (
        Level.INFO,
        [
            r"not ok \d+.*# (?:TODO|SKIP)",
            r"==\d+== ERROR SUMMARY: 0 errors",
            r"[✖✗\xd7] 0 problems",
            r"npm (?:http|info|timing)\b",
            r"(?:Tests|Failures|Errors): +0\b(?!.{0,200}[1-9]\d{0,6} (?:failed|error))",
        ],
    ),
    (Level.DEBUG, [r"npm (?:verb|sill|silly)\b", r"(?:::|##\[)debug[\]: ]"]),
    (
        Level.WARNING,
        [
            r"[✖✗\xd7] \d+ problems? \(0 errors",
            r"npm (?:WARN|warn)\b",
            r"(?:::|##\[)warning[\]: ]",
            r"warning\[\w+\]: ",
            r"(?:g?make)(?:\[\d+\])?: \[.*\] Error \d+ \(ignored\)$",
            # Python's warnings, Node's, PHP's, LaTeX's, the Java machine's.
            r"\s*(?:[^\s:]+:\d+: )?(?:\(\w+:\d+\) (?:\[\w+\] )?)?(?:\w+\.)*\w*Warning: ",
            r"(?:PHP|LaTeX|Package \w+) (?:Warning|Deprecated): ",
            r"CMake (?:Deprecation )?Warning\b",
            rf"webpack \S+ compiled with {_FEW} warnings?\b",
            r"\[?DEPRECATION(?: WARNING\])?: ",
            r"│ Warning: ",
            r"[^\s()]+\(\d+(?:,\d+)?\) ?: warning ",
            r"\s+\d+:\d+ +warning +\S",
            rf" ?{_FEW} warnings?(?: generated\.?| found\b.*)?$",
            # Findings of linters, by code; those that stand for errors come in the next row.
            r"\S+\.\w+:\d+:\d+: (?!E9\d\d|[EF]\d{4})[A-Z]{1,5}\d{3,4}:? ",
            r"[A-Z]{1,4}\d{3} (?:\[\*\] |[`A-Z][^A-Z])",
        ],
    ),
    (Level.NOTICE, [r"npm notice\b", r"(?:::|##\[)notice[\]: ]", r"PHP Notice: "]),
    (
        Level.ERROR,
        [
            # compilers and linkers
            r"(?:error\[\w+\]|fatal error|internal compiler error): ",
            r"[^\s()]+\(\d+(?:,\d+)?\) ?: (?:fatal )?error ",
            r"[^\s:]+:\d+:\d+ - error ",
            r"(?:LINK|MSBUILD|CSC) : (?:fatal )?error ",
            r"\s+\d+:\d+ +error +\S",
            r"\S+\.\w+:\d+:\d+: (?:E9\d\d|[EF]\d{4}):? ",
            r"(?:vet: )?[\w./-]+\.go:\d+:\d+: \S",
            rf"(?:Found )?{_FEW} errors?(?: generated)?\.?(?: in .*)?$",
            rf"{_FEW} warnings? and {_FEW} errors? generated\.$",
            r"Module not found: ",
            # builders
            r"\w*make(?:\[\d+\])?: (?:\*\*\* |Target .* not remade because of errors\.$)",
            r"[^\s:]+:\d+: \*\*\* ",
            r"(?:\S*ld|ld\.\w+): (?:cannot find |symbol)",
            rf"webpack \S+ compiled with {_FEW} errors?\b",
            r"ninja: (?:error|build stopped|fatal)",
            r"CMake (?:Internal )?Error\b",
            r"-- Configuring incomplete, errors occurred!",
            r"> Task :\S+ FAILED$",
            r"(?:BUILD|Build) FAILED\b",
            r"npm (?:ERR!|error)(?:\s|$)",
            r" ?(?:ERR_[A-Z_]{4,}|ELIFECYCLE) ",
            r"error Command failed",
            r"(?:::|##\[)error[\]: ]",
            r"│ Error: ",
            r"failed: \[",
            r"\S+ +: ok=\d+ .*(?:unreachable|failed)=[1-9]",
            r"! (?:LaTeX Error:|Undefined control sequence)",
            r"\s*[\xd7✖✕✗] ",
            # test runners
            r"E   ",
            r"[\w./-]+:\d+: [A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failed)$",
            r"[^\s:]{1,300}::.{1,300} (?:FAILED|ERROR) +\[ *\d+%\]$",
            r"=* ?(?:\d+ \w+, )*" + _FEW + r" (?:failed|errors?)\b.* in \d[\d.]*s",
            r"_{3,} ERROR (?:at|collecting) .* _{3,}$",
            r"!{3,} .* !{3,}$",
            r"ImportError while ",
            rf"collect.* items? / {_FEW} errors?",
            r"\s*--- FAIL: ",
            r"test result: FAILED",
            r"thread '.*' (?:\(\d+\) )?panicked at ",
            rf"\d+% tests passed, {_FEW} tests failed",
            r"The following tests FAILED:$",
            r"\s+\d+ - \S+ \((?:Failed|Timeout|SEGFAULT|Not Run)\)$",
            r"Errors (?:while running|were encountered)",
            r"not ok \d+",
            r"# Failed test",
            r"\s*● ",
            rf"Tests: +{_FEW} failed",
            # runtimes
            rf"(?:Uncaught |Unhandled |\*\* \()?{_EXCEPTION}(?: \[\w+\])?(?:[:)]\s|\)?$)",
            r"(?:Exception in thread|Caused by:|Exception ignored in|Unhandled exception)",
            r"Fatal (?:Python )?error: ",
            r"(?:Current thread|Thread) 0x\w+ \(most recent call first\)",
            r"PHP (?:Fatal|Parse|Recoverable fatal) error: ",
            rf"\S+:\d+:in .*\({_EXCEPTION}\)$",
            r"BEGIN failed--",
            rf"{_FAULT}(?: \(core dumped\))?$",
            r"terminate called |\s+what\(\):  ",
            r"(?:\S+: )+Assertion .* failed\.?$|Assertion failed: ",
            r"\*\*\* .* \*\*\*: |free\(\): |malloc\(\): |double free or corruption",
            r"==\d+==\s?ERROR: |SUMMARY: \w+Sanitizer: ",
            rf"==\d+== (?:Invalid |Conditional jump|Use of uninit|ERROR SUMMARY: {_FEW})",
            r"\S+:\d+:\d+: runtime error: ",
            rf"exit status {_FEW}$",
            # shells and small tools
            r"(?:-?\w*sh|[\w./+-]+): (?:-c: )?line \d+: ",
            r"(?:/bin/)?(?:sh|dash|ash): \d+: ",
            r"zsh: command not found|fish: Unknown command",
            rf"[\w./+-]+: +{_COMPLAINT}",
            r"[\w./+-]+: option requires|\w+: -e expression ",
            r"(?:Cannot|Can't|Could not|Couldn't|Unable to|Failed to) [a-z]",
            r"curl: \(\d+\) |rsync error: |go: \S+@\S+: ",
            r"git: '.*' is not a git command|merge: \S+ - not something we can merge",
            r"CONFLICT \(|Automatic merge failed",
            r" ?! \[(?:remote )?rejected\]|Host key verification failed",
            # services
            r"Error (?:response )?from |docker: Error |Err:\d+ ",
            r"The command '.*' returned a non-zero code",
            rf"\S+ exited with code {_FEW}$",
            r"Job for \S+ failed |\S+: Failed with result |\S+: Main process exited, code=.*[1-9]",
            r"Out of memory: |\S+\[\d+\]: segfault at ",
        ],
    ),
]

_table: Final = [
    (level, re.compile("|".join(f"(?:{form})" for form in forms))) for level, forms in _ROWS
]


# What may stand anywhere in a line.
_ANYWHERE: Final = (
    (" VM warning: ", Level.WARNING),
    (": undefined reference to ", Level.ERROR),
    (": multiple definition of ", Level.ERROR),
    ("symbol(s) not found for ", Level.ERROR),
    ("***Failed ", Level.ERROR),
    ("***Exception: ", Level.ERROR),
    ("***Timeout ", Level.ERROR),
    ("***Not Run ", Level.ERROR),
)
_QUOTE: Final = '"'
_VERDICTS: Final = (" ... FAIL", " ... FAILED", " ... ERROR")
_of_itself = re.compile(r"[^\s:]{1,80}: ")


def runtime_level(text: str, at: int) -> Level | None:
    """The level of what a tool says in `text`, whose message starts at `at`."""
    said = _said.match(text, at)
    if said:
        level = BY_WORD.get(said["word"].lower())
        if level is not None:
            # `git: fatal:` is not what a logger means by the word.
            return min(level, Level.ERROR)
    for level, forms in _table:
        if forms.match(text, at):
            return level
    for part, level in _ANYWHERE:
        if part in text and text[text.find(part) - 1] != _QUOTE:  # in source code
            return level
    return Level.ERROR if text.endswith(_VERDICTS) or _ends_as_errno(text, at) else None


def _ends_as_errno(text: str, at: int) -> bool:
    if text.endswith((")", ").")):  # `(13)`, `(os error 13)`, `(publickey)`
        text = text[: max(text.rfind(" ("), 0)]
    return text.endswith(_ERRNO) and _of_itself.match(text, at) is not None
