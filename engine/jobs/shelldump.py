"""Reads what `session_exit.bash` wrote: sections between NUL bytes, each in bash's own words.

Values may span lines, so the listing of `declare -p` is scanned token by token. Pure.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

_BEGIN: Final = b"\0begin\0"
_END: Final = b"\0end\0"
_SECTIONS: Final = 7  # options, directory, umask, aliases, variables, function names, functions

_DOUBLE: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ANSI: Final = rb"\$'[^'\\]*+(?:\\.[^'\\]*+)*+'"
_LIST: Final = rb"\((?:[^\"'$\\)]++|" + _DOUBLE + rb"|" + _ANSI + rb"|'[^']*+'|\\.|\$)*+\)"
_VALUE: Final = rb"(?:" + _DOUBLE + rb"|" + _ANSI + rb"|" + _LIST + rb")"
_ENTRY: Final = re.compile(
    rb"declare -(\S+) ([A-Za-z_][A-Za-z0-9_]*)(?:=(" + _VALUE + rb"))?\n", re.DOTALL
)
_FUNCTION_NAME: Final = re.compile(rb"declare -f([a-z]*) ([^\n]+)\n")

# What differs between two shells in the same state. The quote that opens each value stands bare
# only in a listing itself: inside another value it would be escaped.
_NOISE: Final = re.compile(
    rb'^declare -(?:ir PPID="|a(?:[a-z]*) BASH_[A-Z]+=\(\[0\]="|-[a-z]* _=["$])[^\n]*\n',
    re.MULTILINE,
)

_ESCAPE: Final = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPED: Final = {
    b"a": b"\a", b"b": b"\b", b"E": b"\x1b", b"e": b"\x1b", b"f": b"\f",
    b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
}  # fmt: skip


class Declaration(msgspec.Struct, frozen=True):
    """One variable as bash lists it: attribute letters, and the value quoted (None: not set)."""

    flags: bytes
    value: bytes | None


class Function(msgspec.Struct, frozen=True):
    """A function: its attribute letters (`r`, `t`, `x`) and its definition as bash prints it."""

    name: bytes
    flags: bytes
    definition: bytes


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """A complete dump, taken apart."""

    options: frozenset[bytes]  # of `set -o`
    shell_options: tuple[bytes, ...]  # of `shopt`, in bash's order
    posixly_correct: bytes | None  # the value of POSIXLY_CORRECT
    directory: bytes
    umask: bytes
    aliases: bytes  # commands that define them
    variables: dict[bytes, Declaration]
    functions: tuple[Function, ...]


def comparable(raw: bytes) -> bytes:
    """`raw` without what differs from shell to shell: the same bytes mean the same state."""
    before, begin, rest = raw.rpartition(_BEGIN)
    return _builtin(before) + begin + _NOISE.sub(b"", rest)


def read_dump(raw: bytes) -> Dump | None:
    """The dump in `raw`; None where it did not come to its end or makes no sense."""
    before, begin, rest = raw.rpartition(_BEGIN)
    body, end, _ = rest.partition(_END)  # behind it, user functions may have printed
    sections = body.split(b"\0")
    if not begin or not end or len(sections) != _SECTIONS:
        return None
    was, directory, mask, aliases, variables, names, functions = sections
    if was.count(b"/") < 2:  # a variable of the user's, by our name
        return None
    options, shell_options, posix = was.split(b"/", 2)
    declared, shadow = _read_variables(variables), _builtin(before)
    defined = _read_functions(names, functions)
    if declared is None or defined is None or not directory.startswith(b"/"):
        return None
    return Dump(
        options=frozenset(options.strip(b":").split(b":")) - {b""},
        shell_options=tuple(shell_options.strip(b":").split(b":")),
        posixly_correct=posix[1:] if posix else None,
        directory=directory.removesuffix(b"\n"),
        umask=mask.strip(),
        aliases=aliases,
        variables=declared,
        functions=defined + ((Function(b"builtin", b"", shadow),) if shadow else ()),
    )


def _builtin(before: bytes) -> bytes:
    """The definition of a function `builtin`, from what stands before the dump proper.

    Other things may: a listing of the EXIT trap, what a DEBUG trap printed.
    """
    found = list(re.finditer(rb"^builtin \(\) *\n", before, re.MULTILINE))
    return before[found[-1].start() :].rstrip(b"\n") if found else b""


def _read_variables(listing: bytes) -> dict[bytes, Declaration] | None:
    found, at = {}, 0
    while at < len(listing):
        entry = _ENTRY.match(listing, at)
        if entry is None:
            return None
        flags, name, value = entry.groups()
        found[name] = Declaration(flags.replace(b"-", b""), value)
        at = entry.end()
    return found


def _read_functions(names: bytes, listing: bytes) -> tuple[Function, ...] | None:
    """The functions, cut at their heads: `names` comes in the order of `listing`."""
    heads: list[tuple[int, bytes, bytes]] = []
    at = 0
    for flags, name in _FUNCTION_NAME.findall(names):
        head = re.compile(rb"^(?:function )?" + re.escape(name) + rb" \(\) *\n", re.MULTILINE)
        found = head.search(listing, at)
        if found is None:
            return None
        heads.append((found.start(), name, flags))
        at = found.end()
    ends = [*[start for start, _, _ in heads], len(listing)][1:]
    return tuple(
        Function(name, flags, listing[start:end].rstrip(b"\n"))
        for (start, name, flags), end in zip(heads, ends, strict=True)
    )


def unquote(value: bytes) -> bytes:
    """The bytes that a scalar `value` of a listing stands for."""
    if value.startswith(b'"'):
        return re.sub(rb'\\([\\"$`])', rb"\1", value[1:-1])
    return _ESCAPE.sub(_unescape, value[2:-1])


def _unescape(match: re.Match[bytes]) -> bytes:
    what = match[1]
    return bytes([int(what, 8) & 255]) if what[:1] in b"01234567" else _ESCAPED.get(what, what)
