"""What a session's shell has dumped at its end, and the file of its state."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from engine.jobs.shelldump import comparable, read_dump
from engine.jobs.shellstate import commit, decode_state, encode_state, plan_call
from scripts.fuzzing import Fault, Target

_DUMP: Final = (
    b"\0begin\0:braceexpand:hashall:/:cmdhist:expand_aliases:/\0/tmp\n\x000022\n\0"
    b"alias ll='ls -l'\n\0"
    b'declare -- A="b \\" c"\ndeclare -x E=$\'a\\nb\\x27\\e\'\n'
    b"declare -a L=([0]=\"x\" [1]=$'\\n')\n"
    b'declare -Ai M=([k]="1" ["a b"]="2" )\ndeclare -r R="1"\ndeclare -i N="5"\ndeclare -x U\n'
    b"\0declare -f f\ndeclare -fx g h\n\0f () \n{ \n    echo 1\n}\ng h () \n{ \n    :\n}\n"
    b"\0end\0rest"
)
_DUMPS: Final = (
    _DUMP,
    b"builtin () \n{ \n    echo b\n}\n" + _DUMP.replace(b"expand_aliases:/", b"x:/1"),
    b"x/\0begin\0" + _DUMP,
)
_SHELL_WORDS: Final = (
    *(b"\0", b"\0begin\0", b"\0end\0", b"declare -", b"declare -f ", b'="', b'"\n', b"=(", b"=$'"),
    *(
        b"\\",
        b"[0]=",
        b"$",
        b"'",
        b"(",
        b")",
        b" () \n",
        b"{ \n",
        b"}\n",
        b"/",
        b":",
        b"builtin () \n",
    ),
)


def check_dump(data: bytes) -> Hashable:
    """A dump is none, or a state that is kept and from which the next shell can be started."""
    comparable(data)
    plan = plan_call(None, b"x", session=True, base={}, env={"A": "1"}, defaults={}, identity={})
    state = commit(plan, data)
    if (state is None) != (read_dump(data) is None):
        raise Fault("read, and not committed")
    return None if state is None else _go_on(encode_state(state))


def check_state(data: bytes) -> Hashable:
    """A session's file is none, or a state from which the next shell can be started."""
    return _go_on(data)


def _go_on(data: bytes) -> Hashable:
    state = decode_state(data)
    if state is None:
        return None
    if decode_state(encode_state(state)) != state:
        raise Fault("it does not come back")
    plan = plan_call(
        state,
        b"echo",
        session=True,
        base={},
        env={"A": "1"},
        defaults={"T": "d"},
        identity={"I": "1"},
    )
    return len(plan.prologue) // 64, len(state.variables), len(state.functions), state.posix is None


def _states() -> Target:
    plan = plan_call(None, b"x", session=True, base={}, env={}, defaults={}, identity={})
    states = [encode_state(state) for raw in _DUMPS if (state := commit(plan, raw))]
    words = (*_SHELL_WORDS, b"\x91" * 3000, b"\x81\xa1a" * 3000, b"\xc1", b"\xdf\xff\xff\xff\xff")
    return Target(name="states", seeds=states, check=check_state, words=words)


MAKERS: Final[dict[str, Callable[[], Target]]] = {
    "dumps": lambda: Target(name="dumps", seeds=_DUMPS, check=check_dump, words=_SHELL_WORDS),
    "states": _states,
}
