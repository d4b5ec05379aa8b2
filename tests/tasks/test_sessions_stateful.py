"""What a shell session carries from call to call, after any sequence of them.

The oracle is one plain bash that evaluates the calls which leave something, one after the other,
and then shows what it has; the session shows the same in a call of its own.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from acceptance.running import Caller, Client, Engine, Gate
from hypothesis import given
from hypothesis import strategies as st
from keeper.shell_session import Session
from stateful import examples

BASE: Final = {"PATH": os.environ["PATH"], "HOME": "/tmp", "LANG": "C.UTF-8"}
NAMES: Final = ("x", "y", "IFS", "OLDPWD", "i", "low", "list", "map", "R1", "R2", "ref")
# What stays as the last call left it; what one call set for itself is not among it.
OPTIONS: Final = ("noglob", "noclobber", "braceexpand", "allexport", "keyword")
SHOPTS: Final = ("nullglob", "extglob", "dotglob", "nocasematch", "autocd", "globstar", "xpg_echo")
LOOK: Final = "\n".join(
    [
        *(f"builtin declare -p {name} 2>/dev/null || builtin echo no {name}" for name in NAMES),
        "builtin declare -f f g; builtin declare -F f g; builtin alias; builtin umask; builtin pwd",
        "builtin printf '%s\\n' \"$PWD\"; builtin echo *; builtin shopt",
        "builtin set +o | while builtin read -r _ sign name; do case $name in errexit|nounset"
        '|pipefail|xtrace|noexec|verbose|posix) ;; *) builtin echo "$sign$name"; esac; done',
        "command -v f g",
        "command env | command grep -a -E '^(x|y|i|low|BASH_FUNC_f)' | command sort",
        "builtin builtin true; f one two; case $- in *f*) ;; *) builtin echo [a-z]*; esac",
    ]
)


@dataclass(frozen=True)
class Step:
    """A call. `plain`: what of it stays; None: nothing."""

    text: str
    plain: str | None
    env: dict[str, str] = field(default_factory=dict)


def quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


values = st.text(
    st.sampled_from("a'\"\\ $`!*?[]{}()<>|&;#~=%-\t\n\r\x01\x1b\x7f0é\u2028\U0001f600"), max_size=8
) | st.sampled_from(
    ["", "-n", "\\9", "$(echo no)", "a\nb\n", "!!", "'\\''", "\x01$'", "\x07", "declare -x NO=1\n"]
)
words = values.map(quote)
names = st.sampled_from(["x", "y"])
keys = words.filter(lambda word: word != "''")
lists = st.lists(words, max_size=3).map(" ".join)
folders = st.sampled_from(["a", "b c", "d\nd", "-e", "f'é"])
lasting = st.one_of(
    st.builds("{}={}".format, names, words),
    st.builds("export {}={}".format, names, words),
    st.builds("export -n {}".format, names),
    st.builds("unset {}".format, st.sampled_from(["x", "y", "i", "low", "list", "map", "f"])),
    st.builds("unset -v i; declare -i i={}".format, st.integers(-9, 9)),
    st.builds("i+={}".format, st.integers(0, 9)),
    st.builds("unset -v low; declare -{} low={}".format, st.sampled_from("lucx"), words),
    st.builds("low={}".format, words),
    st.builds("unset -v list; declare -a list=({})".format, lists),
    st.builds("unset -v list; declare -ax list=({})".format, lists),
    st.builds("list[{}]={}".format, st.integers(0, 12), words),
    st.builds("unset 'list[{}]'".format, st.integers(0, 3)),
    st.builds("unset -v map; declare -A map=([{}]={} ['a b']=1)".format, keys, words),
    st.builds("unset -v ref; declare -n ref={}".format, names),
    st.builds("f() {{ echo \"f $1\" {}; }}".format, words),
    st.just("f() { local x=1; cat <<E\n$x 'quoted\" $1\nE\n}"),
    st.builds("g() (\n  case $1 in {}) echo yes;; esac; echo {}\n)".format, keys, words),
    st.sampled_from(["export -f f 2>/dev/null", "unset -f g", "declare -t -f f 2>/dev/null"]),
    st.builds("alias {}={}".format, st.sampled_from(["ll", "f1", "..."]), words),
    st.sampled_from(["unalias ll 2>/dev/null", "unalias -a"]),
    st.builds("shopt -{} {}".format, st.sampled_from("su"), st.sampled_from(SHOPTS)),
    st.builds("set {}o {}".format, st.sampled_from("-+"), st.sampled_from(OPTIONS)),
    st.builds("umask {:03o}".format, st.integers(0, 0o377)),
    st.builds("mkdir -p -- {0}; cd -- {0}".format, folders.map(quote)),
    st.sampled_from(["cd ..", "cd - >/dev/null", 'cd "$TOP"']),
    st.sampled_from(["IFS=:", "unset IFS", "IFS=$' \\t\\n'", "IFS="]),
    st.builds("declare -r R1={} 2>/dev/null".format, words),
    st.builds("x={}; readonly R2=fixed 2>/dev/null".format, words),
)  # fmt: skip
ends = st.sampled_from(
    [
        "",
        "; false",
        "\nexit 3",
        "\n(exit 7)",
        "; exit",
        "\nset -e",
        "; set -u -o pipefail",
        "\ntrap 'echo bye' EXIT",
    ]
)
vain = st.one_of(
    st.builds("{}; exec true".format, lasting),
    st.builds("{}; kill -9 $$".format, lasting),
    st.builds("{}\nexec >/dev/null; kill $$".format, lasting),
    st.just("x='open"),
    st.just("if true; then"),
)


def as_step(text: str, end: str) -> Step:
    """`text` with an end that leaves nothing more; `exit` ends this call alone."""
    return Step(text + end, text)


steps = (
    st.builds(as_step, lasting, ends)
    | st.builds(lambda text, value: Step(text, text, {"E1": value, "E2": "2"}), lasting, values)
    | st.builds(lambda text: Step(text, None), vain)
)


def plain_bash(top: Path, calls: list[str], base: dict[str, str]) -> bytes:
    """What one plain bash shows that has evaluated all of `calls`."""
    script = ["shopt -s expand_aliases"]
    script += [f"eval {quote(text)} >/dev/null 2>&1" for text in calls]
    script += [f"eval {quote(LOOK)}"]
    shell = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        env={**base, "PWD": str(top)},
        cwd=top,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )
    return shell.stdout


def fresh(folder: Path) -> Path:
    top = folder / "top"
    top.mkdir(parents=True)
    return top


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
def test_a_session_has_what_one_plain_bash_would_have(is_warm: bool, tmp_path: Path) -> None:
    numbers = itertools.count()

    @examples(20, shrinks=False)
    @given(st.lists(steps, min_size=1, max_size=12))
    def run(calls: list[Step]) -> None:
        top = fresh(tmp_path / str(next(numbers)))
        base = {**BASE, "TOP": str(top)}
        session, kept = Session(top, base), list[str]()
        session.is_warm = is_warm
        for call in calls:
            session.call(call.text, call.env)
            if call.plain is not None and session.committed is not None:
                kept.append(call.plain)
            # An unfinished text and a signal leave nothing, whatever came before.
            assert call.plain is None or session.committed is not None, call
        shown = session.call(LOOK)
        expected = plain_bash(top, kept, base)
        assert shown.stdout.splitlines() == expected.splitlines(), shown.stderr

    run()


# -- with an engine ------------------------------------------------------------------------------

ACTS: Final = (
    *("call", "call", "call", "call", "own shell", "promoted", "cancelled", "killed", "overtaken"),
    *("side by side", "reset", "restart"),
)


@dataclass
class Life:
    """A caller's session in an engine, and the calls that a plain bash must evaluate to have it."""

    engine: Engine
    client: Client
    caller: Caller
    top: Path
    gate: Gate
    bell: Gate
    base: dict[str, str]
    kept: list[str]
    restarts: int = 0

    def call(self, text: str, plain: str | None) -> None:
        reply = self.caller.bash(text, timeout_secs=20)
        assert reply["status"] in ("succeeded", "failed"), reply
        if plain is not None:
            self.kept.append(plain)

    def act(self, what: str, step: Step, text: str) -> None:
        """`text` is what a call leaves that is to leave nothing, or a second one beside it."""
        match what:
            case "call":
                self.call(step.text, step.plain)
            case "own shell":
                self.caller.bash(step.text, session=False)
            case "promoted":
                self._end_promoted(self.caller.start(f"{self.bell.tell}; {text}; {self.gate.wait}"))
            case "cancelled" | "killed":
                self._cut_short(text, by_cancel=what == "cancelled")
            case "overtaken":
                self._overtaken(text, step)
            case "side by side":
                self._side_by_side(text)
            case "reset":
                self.caller.call("reset_session")
                self.kept = []
            case "restart" if self.restarts < 1:
                self._restart()

    def _end_promoted(self, reply: dict[str, object]) -> None:
        self.bell.hear()
        self.gate.open()
        assert self.caller.wait(str(reply["taskId"]))["status"] in ("succeeded", "failed")

    def _cut_short(self, text: str, *, by_cancel: bool) -> None:
        """A call that was within its budget when it was ended."""
        end = self.gate.wait if by_cancel else "kill -9 $$"
        pending = self.caller.send("bash", command=f"{text}\n{self.bell.tell}; {end}")
        self.bell.hear()
        if by_cancel:
            self.caller.call("cancel", caller=self.caller.name, grace_secs=0)
        assert pending.result()["status"] == ("cancelled" if by_cancel else "failed")

    def _overtaken(self, text: str, step: Step) -> None:
        """One that began earlier and ends last wins: of the other nothing stays."""
        before = list(self.kept)
        slow = self.caller.send("bash", command=f"{self.bell.tell}; {self.gate.wait}\n{text}")
        self.bell.hear()
        self.call(step.text, step.plain)
        self.gate.open()
        assert slow.result()["status"] in ("succeeded", "failed")
        self.kept = [*before, text]

    def _side_by_side(self, text: str) -> None:
        """Calls of one moment: each begins from what was there, and one of them is what stays."""
        pending = [
            self.caller.send("bash", command=f"{text}\nwhich={number}") for number in range(4)
        ]
        for each in pending:
            assert each.result()["status"] in ("succeeded", "failed")
        which = self.caller.bash("builtin echo $which")["output"].strip()
        assert which in ("0", "1", "2", "3")
        self.kept.append(f"{text}\nwhich={which}")

    def _restart(self) -> None:
        self.restarts += 1
        self.client.drop()
        self.engine.kill()
        self.engine.start()
        self.client = self.engine.connect()
        self.caller = self.caller.on(self.client)
        self.greet()

    def greet(self) -> None:
        """Have new sessions begin as the plain bash does."""
        self.client.call("hello", cwd=str(self.top), env=self.base)

    def look(self) -> list[bytes]:
        """What the session shows, byte for byte."""
        reply = self.caller.bash(LOOK, streams="split")
        return Path(reply["outputPath"][0]).read_bytes().splitlines()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Engine, Gate, Gate]]:
    engine = Engine(tmp_path / "home", "--slots", "20", "--set", "min_free_bytes=0")
    with engine, Gate(tmp_path / "gate") as gate, Gate(tmp_path / "bell") as bell:
        yield engine, gate, bell


def test_a_session_in_an_engine_has_it_too_whatever_becomes_of_its_calls_and_of_the_engine(
    shop: tuple[Engine, Gate, Gate], tmp_path: Path
) -> None:
    engine, gate, bell = shop
    numbers = itertools.count()

    @examples(8, shrinks=False)
    @given(st.lists(st.tuples(st.sampled_from(ACTS), steps, lasting), min_size=2, max_size=9))
    def run(acts: list[tuple[str, Step, str]]) -> None:
        top = fresh(tmp_path / str(next(numbers)))
        client, base = engine.connect(), {**BASE, "TOP": str(top)}
        life = Life(engine, client, client.caller(), top, gate, bell, base, [])
        try:
            life.greet()
            for act in acts:
                life.act(*act)
            assert life.look() == plain_bash(top, life.kept, base).splitlines()
        finally:
            life.client.close()

    run()
