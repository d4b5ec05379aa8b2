"""The state of a shell session as bash text, and the prologue: what a call's shell reads first.

Written in an order in which nothing restored can change how the rest is read. Pure.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

import msgspec

from engine.jobs.shelldump import Function
from engine.keeper import shell

# A new shell has these whether or not it finds them in its environment.
_SET_AT_START: Final = (
    b"HOME HOSTNAME HOSTTYPE IFS MACHTYPE OLDPWD OPTERR OPTIND OSTYPE PATH PS4 SHELL TERM".split()
)
_OPTIONS_AT_START: Final = frozenset({b"braceexpand", b"hashall", b"interactive-comments"})
_PLAIN: Final = (b"declare -x ", b"declare -- ")
_QUOTES: Final = (b'"', b"'")
# Functions of these names are defined last: what comes before needs the builtins.
OUR_WORDS: Final = frozenset(b"alias builtin command declare eval set shopt umask unset".split())


class ShellState(msgspec.Struct, frozen=True, kw_only=True):
    """A session as its last call left it: each part as the bash text that restores it."""

    directory: bytes  # as `pwd` says it, symbolic links and all
    umask: bytes  # octal
    options: tuple[bytes, ...]  # of `set -o`, those that carry over
    shell_options: tuple[bytes, ...]  # of `shopt`
    posix: bytes | None  # the command that sets POSIXLY_CORRECT
    aliases: bytes
    variables: dict[bytes, bytes]
    functions: tuple[Function, ...]
    foreign: tuple[tuple[bytes, bytes], ...]  # environment: names that no variable has; SHLVL
    digest: bytes  # of the dump that this was read from

    @property
    def cwd(self) -> str:
        return os.fsdecode(self.directory)


def write_prologue(
    state: ShellState | None, declared: dict[bytes, bytes], *, session: bool
) -> bytes:
    """What the shell evaluates before the command. It begins in posix mode, without functions."""
    lines = [b"trap %s EXIT" % _quote(shell.EXIT_TRAP.encode())] if session else []
    # Leaving posix mode leaves this one on.
    lines += [b"set +o posix;shopt -u inherit_errexit"]
    functions: list[Function] = []
    posix = b""
    if state is not None:
        lines += _restoring(state, declared)
        functions = [each for each in state.functions if each.name in OUR_WORDS]
        posix = state.posix or b""
    if (value := declared.pop(b"POSIXLY_CORRECT", None)) is not None:
        posix = set_posix(value, is_exported=True)
    lines += [b"declare -x %s=%s" % (name, _quote(value)) for name, value in declared.items()]
    lines += _last_steps(state, functions, posix, session=session)
    return b"\n".join(lines)


def write_call(command: bytes, *, restarts_clock: bool) -> bytes:
    """What `shell.AWAIT_CALL` evaluates; `restarts_clock`: of a shell that may have waited long."""
    text = b"BASH_EXECUTION_STRING=" + _quote(command)
    return text + b"\nSECONDS=0" if restarts_clock else text


def _restoring(state: ShellState, declared: dict[bytes, bytes]) -> Iterable[bytes]:
    """The state but for what would change how the rest of it is read."""
    shown = [name for name in state.shell_options if name != b"expand_aliases"]
    yield b"[[ $BASHOPTS == %s ]]||{ shopt -u ${BASHOPTS//:/ };shopt -s %s; }" % (
        b":".join(shown),
        b" ".join(shown),
    )
    if absent := [name for name in _SET_AT_START if name not in state.variables]:
        yield b"unset -v " + b" ".join(absent)
    yield from _variables({n: t for n, t in state.variables.items() if n not in declared})
    yield b"umask " + state.umask
    yield state.aliases
    for function in state.functions:
        if function.name not in OUR_WORDS:
            # Each by itself: one that bash printed wrongly does not take the others with it.
            yield b"eval " + _quote(function.definition)
            if function.flags:
                yield b"declare -f%s %s" % (function.flags, function.name)


def _variables(variables: dict[bytes, bytes]) -> Iterable[bytes]:
    """The commands that make them, plain ones in one: each command costs as much as a variable.

    What says how bytes are read comes first.
    """
    plain: dict[bytes, list[bytes]] = {word: [] for word in _PLAIN}
    for name, text in variables.items():
        word = text[: len(_PLAIN[0])]
        is_alone = text[-1:] in _QUOTES  # else a second command gives it an attribute
        is_plain = word in plain and text.startswith(name + b"=", len(word)) and is_alone
        if is_plain and not _is_locale(name):
            plain[word].append(text[len(word) :])
        else:
            yield text
    yield from (word + b" ".join(entries) for word, entries in plain.items() if entries)


def _is_locale(name: bytes) -> bool:
    return name == b"LANG" or name.startswith(b"LC_")


def _last_steps(
    state: ShellState | None, functions: list[Function], posix: bytes, *, session: bool
) -> Iterable[bytes]:
    """One group, parsed before its first command runs: then aliases and functions may come."""
    yield b"{"
    yield shell.AWAIT_CALL.encode()
    if session if state is None else b"expand_aliases" in state.shell_options:
        yield b"shopt -s expand_aliases"
    if state is not None:
        options = frozenset(state.options)
        steps = [b"-o " + name for name in sorted(options - _OPTIONS_AT_START)]
        steps += [b"+o " + name for name in sorted(_OPTIONS_AT_START - options)]
        if steps:
            yield b"set " + b" ".join(steps)
    names = {function.name for function in functions}
    for function in functions:
        yield function.definition
    for function in functions:
        if function.flags and (word := _builtin(b"declare", names)):
            yield b"%s -f%s %s" % (word, function.flags, function.name)
    if posix:
        yield posix
    elif b"eval" in names:
        # In posix mode the builtin wins; the text then begins by leaving it. See shell.py.
        yield b"POSIXLY_CORRECT=' set +o posix;'"
    yield b"[[ 1 ]]\n}"


def _builtin(name: bytes, functions: set[bytes]) -> bytes | None:
    """How to say `name` so that none of `functions` takes it; None: there is no way."""
    ways = ((name, name), (b"builtin", b"builtin " + name), (b"command", b"command " + name))
    return next((way for word, way in ways if word not in functions), None)


def set_posix(value: bytes, *, is_exported: bool) -> bytes:
    """The commands for it; `export` comes when no function can take its place any more."""
    text = b"POSIXLY_CORRECT=" + _quote(value)
    return text + b"\nexport POSIXLY_CORRECT" if is_exported else text


def _quote(text: bytes) -> bytes:
    return b"'" + text.replace(b"'", b"'\\''") + b"'"
