"""The state of a shell session, and what a call's shell reads to start from it.

`plan_call` says how the next shell is started, `commit` reads what it dumped when it ended. Pure:
nothing is run and no file is touched here.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from engine.jobs.shelldump import Declaration, Dump, comparable, read_dump, unquote
from engine.jobs.shellprologue import OUR_WORDS, ShellState, set_posix, write_call, write_prologue
from engine.keeper import shell

__all__ = [
    "CallPlan",
    "ShellState",
    "commit",
    "decode_state",
    "encode_state",
    "plan_call",
    "size_of",
]

LARGE_BYTES: Final = 1 << 20  # a state that has more is nothing to hold at hand twice
_VERSION: Final = b"engine shell state 1\n"
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_EXPORTED_FUNCTION: Final = re.compile(r"BASH_FUNC_(.+)%%", re.DOTALL)
_PLAIN_INTEGER: Final = re.compile(rb'"-?[0-9]+"')

# Set by bash itself, or of one call only. `BASH_ENV` and a user's own `BASH_…` are not here.
_NOT_CARRIED: Final = frozenset(
    b"_ _engine_was BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS"
    b" BASH_COMMAND BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_MONOSECONDS"
    b" BASH_REMATCH BASH_SOURCE BASH_SUBSHELL BASH_TRAPSIG BASH_VERSINFO BASH_VERSION"
    b" BASH_XTRACEFD DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO"
    b" PIPESTATUS POSIXLY_CORRECT PPID PWD RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID".split()
)
_OPTIONS_NOT_CARRIED: Final = frozenset(
    b"errexit nounset pipefail xtrace noexec verbose onecmd privileged posix".split()
)
# Bash sets them after each program that ran at its terminal, which is of this call only.
_TERMINAL_SIZE: Final = frozenset((b"COLUMNS", b"LINES"))
# Never in the shell's own environment: bash would act on them before the command is reached.
_KEPT_OUT: Final = frozenset(("_", "BASHOPTS", "BASH_ENV", "POSIXLY_CORRECT", "PWD", "SHELLOPTS"))


class CallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How the shell of one call is started, and what `commit` must know of it."""

    argv: list[str]
    environ: dict[str, str]  # the keeper adds PWD
    prologue: bytes  # at descriptor shell.FD_PROLOGUE
    call: bytes  # at descriptor shell.FD_CALL
    prior: ShellState | None
    put_in: dict[bytes, bytes]  # variables of this call alone
    foreign: tuple[tuple[bytes, bytes], ...]  # see ShellState
    has_terminal: bool = False


class _Plans:
    """The newest plans, without the call's own text and names: a call's is mostly that of the call
    before it. A large one is made each time: it would hold its state in memory, too.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # What a plan was made from keeps its id as long as it is here.
        self._known: dict[object, tuple[object, CallPlan]] = {}

    def get(
        self,
        state: ShellState | None,
        base: Mapping[str, str],
        env: Mapping[str, str],
        defaults: Mapping[str, str],
        *,
        session: bool,
        has_terminal: bool,
    ) -> CallPlan:
        ids = (id(state), id(base) if state is None else 0, id(defaults))
        key = (*ids, session, has_terminal, *env.items())
        if key in self._known:
            return self._known[key][1]
        plan = _plan(state, base, env, defaults, session=session, has_terminal=has_terminal)
        if len(plan.prologue) <= LARGE_BYTES:
            if len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
            self._known[key] = ((state, base, defaults), plan)
        return plan


_PLANS: Final = _Plans(16)


def plan_call(
    state: ShellState | None,
    command: bytes,
    *,
    session: bool,
    base: Mapping[str, str],
    env: Mapping[str, str],
    defaults: Mapping[str, str],
    identity: Mapping[str, str],
    has_terminal: bool = False,
) -> CallPlan:
    """How to start the shell that runs `command` from `state` (None: from `base` alone).

    base: the environment of a new session; nobody changes it or `defaults` once it was given here.
    env: for this call alone. defaults: for this call, where neither state nor base has the name.
    identity: the call's `ENGINE_…`. Raises ValueError for a NUL in `command`.
    """
    if b"\0" in command:
        raise ValueError("a command cannot hold a NUL byte")
    plan = _PLANS.get(state, base, env, defaults, session=session, has_terminal=has_terminal)
    restarts_clock = state is not None and "SECONDS" not in plan.environ
    return msgspec.structs.replace(
        plan,
        environ={**plan.environ, **identity},
        call=write_call(command, restarts_clock=restarts_clock),
    )


def _plan(
    state: ShellState | None,
    base: Mapping[str, str],
    env: Mapping[str, str],
    defaults: Mapping[str, str],
    *,
    session: bool,
    has_terminal: bool,
) -> CallPlan:
    """What a plan has beside the text of its call and the names of that."""
    start = {n: v for n, v in base.items() if not n.startswith("ENGINE_")} if state is None else {}
    known = _encode(start) if state is None else state.variables
    put_in = {n: v for n, v in defaults.items() if os.fsencode(n) not in known} | dict(env)
    if state is None:
        given, declared = start | put_in, {}
        foreign = tuple(_encode({n: v for n, v in start.items() if _is_foreign(n)}).items())
    else:
        foreign = state.foreign
        given = {os.fsdecode(n): os.fsdecode(v) for n, v in foreign}
        given |= {n: v for n, v in put_in.items() if not _is_variable(n)}
        declared = {n: v for n, v in put_in.items() if _is_variable(n)}
    late = {n: v for n, v in (start | put_in).items() if n in ("BASH_ENV", "POSIXLY_CORRECT")}
    return CallPlan(
        argv=shell.argv(session=session),
        environ={n: v for n, v in given.items() if _may_pass(n)},
        prologue=write_prologue(state, _encode(declared | late), session=session),
        call=b"",
        prior=state,
        put_in=_encode({n: v for n, v in put_in.items() if _is_variable(n)}),
        foreign=foreign,
        has_terminal=has_terminal,
    )


def commit(plan: CallPlan, raw: bytes) -> ShellState | None:
    """The session's state after a call whose shell dumped `raw`; `plan.prior` itself if unchanged.

    None: no state came of it (the shell was killed or replaced on its way).
    """
    digest = hashlib.blake2b(comparable(raw) + repr(plan.put_in).encode(), digest_size=16).digest()
    if plan.prior is not None and plan.prior.digest == digest:
        return plan.prior
    dump = read_dump(raw)
    if dump is None:
        return None
    state = ShellState(
        directory=dump.directory,
        umask=dump.umask,
        options=tuple(sorted(dump.options - _OPTIONS_NOT_CARRIED)),
        shell_options=dump.shell_options,
        posix=_posix(plan, dump),
        aliases=dump.aliases,
        variables=_variables(plan, dump),
        functions=dump.functions,
        foreign=plan.foreign,
        digest=digest,
    )
    if plan.prior is not None and state == msgspec.structs.replace(plan.prior, digest=digest):
        return plan.prior
    return state


def encode_state(state: ShellState) -> bytes:
    """`state` as the bytes of a file."""
    return _VERSION + msgspec.msgpack.encode(state)


def size_of(state: ShellState | None) -> int:
    """Bytes that `state` takes, but for some that are the same for all."""
    if state is None:
        return 0
    texts = (*state.variables.items(), *state.foreign, (state.aliases, state.directory))
    functions = sum(len(each.name) + len(each.definition) for each in state.functions)
    return functions + sum(len(name) + len(value) for name, value in texts)


def decode_state(data: bytes) -> ShellState | None:
    """The state in a file's bytes; None where they are not whole or of another version."""
    if not data.startswith(_VERSION):
        return None
    try:
        return msgspec.msgpack.decode(data[len(_VERSION) :], type=ShellState)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# -- reading -----------------------------------------------------------------------------------


def _variables(plan: CallPlan, dump: Dump) -> dict[bytes, bytes]:
    before = plan.prior.variables if plan.prior is not None else {}
    kept: dict[bytes, bytes] = {}
    for name, declaration in dump.variables.items():
        if name in _NOT_CARRIED or name.startswith(b"ENGINE_"):
            continue
        if declaration.value is None and name == b"COMP_WORDBREAKS":
            continue
        is_of_terminal = plan.has_terminal and name in _TERMINAL_SIZE
        if not is_of_terminal and not _is_untouched(declaration, plan.put_in.get(name)):
            kept[name] = _restore(name, declaration)
        elif name in before:
            kept[name] = before[name]
    return kept


def _is_untouched(now: Declaration, given: bytes | None) -> bool:
    """Whether a variable still is what this call was given for its own use."""
    if given is None or now.flags != b"x" or now.value is None:
        return False
    return unquote(now.value) == given


def _restore(name: bytes, declaration: Declaration) -> bytes:
    """The command that makes the variable again.

    Attributes that act on what is assigned come after the value: it was stored as it is.
    """
    flags, value = declaration.flags, declaration.value
    word = b"declare -%s %s" % (flags or b"-", name)
    if value is None:
        return word
    acting = set(flags) & set(b"iluc")
    if not acting or (acting == set(b"i") and _PLAIN_INTEGER.fullmatch(value)):
        return word + b"=" + value
    kind = bytes(flag for flag in flags if flag in b"aA")
    return b"declare -%s %s=%s;%s" % (kind or b"-", name, value, word)


def _posix(plan: CallPlan, dump: Dump) -> bytes | None:
    """The command that brings posix mode back, with the variable that stands for it."""
    value, name = dump.posixly_correct, b"POSIXLY_CORRECT"
    if value is None:
        return None
    if value == plan.put_in.get(name):
        return plan.prior.posix if plan.prior is not None else None
    declaration = dump.variables.get(name)
    is_exported = declaration is not None and b"x" in declaration.flags
    return set_posix(value, is_exported=is_exported)


# -- starting ----------------------------------------------------------------------------------


def _is_variable(name: str) -> bool:
    if _IDENTIFIER.fullmatch(name) is None:
        return False
    return name == "POSIXLY_CORRECT" or name.encode() not in _NOT_CARRIED


def _is_foreign(name: str) -> bool:
    is_identifier = _IDENTIFIER.fullmatch(name) is not None
    return name == "SHLVL" or not (is_identifier or _EXPORTED_FUNCTION.fullmatch(name))


def _may_pass(name: str) -> bool:
    """Whether bash may find it in its environment; functions that hide our words may not."""
    function = _EXPORTED_FUNCTION.fullmatch(name)
    if function is not None:
        return os.fsencode(function[1]) not in OUR_WORDS
    return name not in _KEPT_OUT


def _encode(env: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
