"""Mirrors `engine/jobs/shellstate.py` and `engine/jobs/shelldump.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keeper.shell_session import Session

from engine.jobs.shelldump import read_dump, unquote
from engine.jobs.shellstate import (
    CallPlan,
    ShellState,
    commit,
    decode_state,
    encode_state,
    plan_call,
)

BASE = {"PATH": os.environ["PATH"], "HOME": "/tmp"}

DUMP = (
    b"\0begin\0:braceexpand:errexit:hashall:/:extglob:progcomp:/\0/a\nb\n\0"
    b"0027\n\0alias ll='ls'\n\0"
    b'declare -x A="1"\n'
    b"declare -- IFS=$' \\t\\n'\n"
    b"declare -a l=([0]=\"x)\" [1]=$'y\\n')\n"
    b'declare -A m=(["a b"]="1" )\n'
    b'declare -ir PPID="77"\n'
    b'declare -x UNSET\ndeclare -- text="two\ndeclare -x NOT=\\"one\\"\n"\n'
    b"\0declare -f f\ndeclare -fx g\n\0f () \n{ \n    :\n}\ng () \n{ \n    f\n}\n\0end\0"
)


def planned(state: ShellState | None = None, **env: str) -> CallPlan:
    return plan_call(
        state, b"true", session=True, base=BASE, env=env, defaults={}, identity={}
    )  # fmt: skip


def test_a_dump_is_taken_apart() -> None:
    state = commit(planned(), DUMP)
    assert state is not None
    assert (state.directory, state.cwd, state.umask) == (b"/a\nb", "/a\nb", b"0027")
    assert state.options == (b"braceexpand", b"hashall")
    assert state.shell_options == (b"extglob", b"progcomp")
    assert state.variables == {
        b"A": b'declare -x A="1"',
        b"IFS": b"declare -- IFS=$' \\t\\n'",
        b"l": b"declare -a l=([0]=\"x)\" [1]=$'y\\n')",
        b"m": b'declare -A m=(["a b"]="1" )',
        b"UNSET": b"declare -x UNSET",
        b"text": b'declare -- text="two\ndeclare -x NOT=\\"one\\"\n"',
    }
    assert [(f.name, f.flags, f.definition) for f in state.functions] == [
        (b"f", b"", b"f () \n{ \n    :\n}"),
        (b"g", b"x", b"g () \n{ \n    f\n}"),
    ]


def test_a_dump_cut_anywhere_is_no_dump() -> None:
    assert [cut for cut in range(len(DUMP)) if read_dump(DUMP[:cut]) is not None] == []


def test_a_listing_that_makes_no_sense_is_no_dump() -> None:
    assert read_dump(DUMP.replace(b"declare -x A", b"export A")) is None
    assert read_dump(DUMP.replace(b"\0/a\nb\n", b"\0a\n")) is None


PIECES = (
    b"\0",
    b"\0begin\0",
    b"\0end\0",
    b"/",
    b"\n",
    b'"',
    b"'",
    b"$'",
    b"\\",
    b"(",
    b")",
    b"declare -",
)


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(DUMP)),
            st.integers(0, 60),
            st.sampled_from(PIECES) | st.binary(max_size=12),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_a_shell_has_written_is_a_state_or_none(
    changes: list[tuple[int, int, bytes]],
) -> None:
    raw = DUMP
    for start, length, piece in changes:
        raw = raw[:start] + piece + raw[start + length :]
    state = commit(planned(), raw)
    if state is not None:
        assert decode_state(encode_state(state)) == state
        planned(state)


def test_a_dump_with_a_variable_of_our_name_is_none() -> None:
    assert (
        commit(planned(), DUMP.replace(b":braceexpand:errexit:hashall:/:extglob:progcomp:/", b"3"))
        is None
    )


def test_a_state_survives_its_file() -> None:
    base = {**BASE, "not-a-name": "\udcff", "SHLVL": "3"}
    plan = plan_call(None, b"true", session=True, base=base, env={}, defaults={}, identity={})
    state = commit(plan, DUMP)
    assert state is not None
    assert state.foreign == ((b"not-a-name", b"\xff"), (b"SHLVL", b"3"))
    assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"engine shell state 0\n", b"engine shell state 1\n\x81"),
        pytest.param(b"engine shell state 1\n" + b"\x91" * 100_000, id="nested"),
    ],
)
def test_a_file_that_is_broken_or_of_another_version_holds_no_state(data: bytes) -> None:
    assert decode_state(data) is None


def test_the_same_dump_from_another_keeper_is_the_same_state() -> None:
    first = commit(planned(), DUMP)
    again = commit(planned(first), DUMP.replace(b'"77"', b'"78"'))
    assert first is not None
    assert again is first


def test_a_command_with_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        plan_call(None, b"a\0b", session=True, base={}, env={}, defaults={}, identity={})


@pytest.mark.parametrize(
    ("quoted", "plain"),
    [
        (b'""', b""),
        (b'"a \\"b\\" \\$c \\`d\\` \\\\ \\e"', b'a "b" $c `d` \\ \\e'),
        (b"$'\\n\\t\\E\\'\\\\\\001\\351'", b"\n\t\x1b'\\\x01\xe9"),
        (b"$'\\8\\9\\19'", b"89\x019"),
    ],
)
def test_a_value_is_unquoted(quoted: bytes, plain: bytes) -> None:
    assert unquote(quoted) == plain


VALUES = st.binary(max_size=40).map(lambda value: value.replace(b"\0", b""))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES, min_size=1, max_size=12))
def test_values_of_any_bytes_come_through_a_session(tmp_path: Path, values: list[bytes]) -> None:
    def assign(name: str, value: bytes) -> bytes:
        return b"%s='%s'" % (name.encode(), value.replace(b"'", b"'\\''"))

    session = Session(tmp_path, BASE)
    lines = [assign(f"v{i}", value) for i, value in enumerate(values)]
    lines += [assign(f"list[{i}]", value) for i, value in enumerate(values)]
    lines += [b"declare -A map"]
    lines += [assign("k", value + b".") + b'\nmap[$k]="$k"' for value in values]
    session.call(b"\n".join(lines))
    session.call("true")
    shown = session.call(
        "".join(f'printf \'%s\\0\' "$v{i}" "${{list[{i}]}}";' for i in range(len(values)))
        + 'printf \'%s\\0\' "${!map[@]}" "${map[@]}"'
    )
    parts = shown.stdout.split(b"\0")[:-1]
    count = 2 * len(values)
    assert parts[:count] == [each for value in values for each in (value, value)]
    keys = {value + b"." for value in values}
    assert set(parts[count:]) == keys
    assert len(parts[count:]) == 2 * len(keys)
