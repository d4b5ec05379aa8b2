"""The constant scripts and `session_exit.bash`, run by a real bash.

The oracle of the first part is plain `bash -c TEXT` in the same environment and directory.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from keeper.shell_session import Result, Session, descriptors, run

from engine.jobs.shellstate import plan_call

BASE = {
    "PATH": os.environ["PATH"],
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "B": "of base",
}

# One text a line. They run in an empty directory of their own.
LINES = r"""
true
false
exit 7
exit 256
exit -1
exit abc
(exit 101)
kill -9 $$
kill $$
kill -USR1 $$
sh -c 'kill -15 $$'; echo $?
/no/such/file
no_such_command
mkdir d; ./d
exec true
exec sh -c 'exit 9'
exec /no/such/file
exec 2>&-; echo out; echo err >&2
exec >/dev/null; echo unseen
exec >file; echo x; cat file >&2
exec 9>lock; echo $(ls -l /proc/$$/fd | grep -c ' 9 ->')
ls /proc/$$/fd >list; tr '\n' ' ' <list
for fd in /proc/$$/fd/*; do [ -e $fd ] && echo ${fd##*/}; done
exec > >(cat >&2); echo through
return 3
return
f() { return 4; }; f
break
continue 2
for i in 1 2; do break; done; echo $i
set -e; false; echo unreached
set -e; false && true
set -e; (exit 3) || echo caught; false
set -e; f() { false; echo in; }; f; echo unreached
set -e; x=$(false; echo sub); echo "[$x]"
set -u; echo $nope; echo unreached
set -x; echo traced; X=1
set -x; f() { :; }; f; exit 3
exec 3>&2; BASH_XTRACEFD=3; set -x; true
exec 3>&2; BASH_XTRACEFD=3; set -x; exit 2
set -n; echo unreached
set -f; echo *
set -C; echo a >f; echo b >f
set -o pipefail; false | true
set -o posix; echo $POSIXLY_CORRECT; set -o | grep posix
set -m; sleep 0 & wait; echo $?
set -- a b; echo $# "$@"; exit 2
set -o | sort
shopt -s extdebug; f() { echo "${BASH_ARGV[@]}"; }; f 1 2
shopt -s extglob nullglob; echo *.none; echo end
shopt | grep -v expand_aliases
trap 'echo D' DEBUG; true; X=1
trap 'echo E' ERR; false
trap 'echo E' ERR; false; true
trap 'echo R' RETURN; f() { :; }; f
set -T; trap 'echo D' DEBUG; f() { :; }; f
set -E; trap 'echo E' ERR; f() { false; }; f
trap 'echo bye $?' EXIT; (exit 4)
trap 'echo bye $?' EXIT; exit 5
trap 'echo bye; exit 6' EXIT; true
trap 'echo $- $POSIXLY_CORRECT; shopt inherit_errexit shift_verbose; declare -p X' EXIT; X=1
trap 'x=$(false; echo sub); echo "[$x]"' EXIT; set -e; true
trap 'echo term' TERM; kill $$; echo after
trap '' TERM; kill $$; echo alive
trap 'echo one' EXIT; trap - EXIT; echo two
echo $? $# $0 $- $_ $LINENO
echo "$BASH_EXECUTION_STRING" ${#FUNCNAME[@]} ${#BASH_SOURCE[@]} $BASH_SUBSHELL
f() { echo $FUNCNAME $LINENO ${BASH_SOURCE[0]}; }; f
echo $((BASHPID == $$)) $((PPID > 1)) $SHLVL
env | sort | grep -v -e ^_= -e ^ENGINE_
declare -p PATH HOME B IFS OPTIND PS4 TERM
unset PATH; ls
PATH=; ls; echo $?
PATH=/none; type -t ls; echo $?
IFS=0; (exit 101); echo "$?"; x=a0b; echo $x
readonly rc=1; rc=2; echo unreached
readonly _engine_x; false
declare() { echo shadow; }; printf() { :; }; builtin() { echo b; }; declare x
unset() { echo u; }; trap() { echo t; }; eval() { echo e; }; set() { echo s; }; trap a; exit 3
echo() { :; }; cd() { :; }; echo x; cd /; pwd
command() { builtin echo c; }; export() { builtin echo x; }; command a
exit() { echo not; }; exit 3
.() { echo dot; }; . x
enable -n echo; type -t echo
alias
alias ll='echo alias'; ll
rm -r ../gone 2>/dev/null; mkdir ../gone; cd ../gone; rmdir ../gone; echo $PWD; ls; echo $?
cd /; pwd; cd -; pwd
mkdir 'a b'; cd 'a b'; ls $OLDPWD
umask 077; umask; touch f; stat -c %a f
ulimit -f 0; true
ulimit -f 0; echo x >file
ulimit -n 20; echo ok
echo 'unterminated
echo "unterminated
echo `unterminated
echo $(unterminated; trap 'echo bye' EXIT
trap 'echo bye "$?"' EXIT; eval 'echo $(unterminated'
eval 'echo ('; exit 5
echo $(unterminated
if true; then echo open
echo ok; fi
echo ok )
echo (
cat <<EOF
cat <<'EOF'; echo after
echo hi # note
echo hi &
sleep 0.01 & wait
true &
echo hi \
echo 'hello != world' "a!b!!"
cat
read x; echo r=$?
[ -t 0 ]; echo $?; readlink /proc/self/fd/0
echo <(true) | sed s/[0-9]*//g
BASH_ENV=/none bash -c 'echo inner'
LC_ALL=C; echo ${#B}; x=é; echo ${#x}
LC_ALL=C.UTF-8; x=é; echo ${#x}
POSIXLY_CORRECT=1; set -o | grep posix
declare -i n=5; n+=3; echo $n; declare -n r=n; echo $r
f() { cat <<X; }; f
x=$(trap 'echo sub' EXIT; exit 3); echo $? $x
( trap 'echo sub' EXIT; exit 3 ); echo $?
echo $(exit 3) $?
! true
true | false | true; echo ${PIPESTATUS[@]}
time -p true 2>&1
select x in a b; do :; done; echo $?
coproc cat; echo $?
hash -r; hash
shift; echo $?
kill -0 $$ && echo there
wait; echo $?
jobs
: ${x?message}
echo ${bad substitution}
((1/0)); echo $?
let 0; echo $?
[[ a =~ (a) ]]; echo ${BASH_REMATCH[1]}
printf '%s' no-newline
echo -e '\x00' | od -c | head -1
""".strip("\n").split("\n")

LONG = [
    "cat <<EOF\nhi\n EOF",
    "cat <<EOF\nhi\n\n\n",
    "echo a\n\n\n",
    "\n\n# only a comment\n",
    "f() {\n  nope\n}\nf",
    "echo $LINENO\necho $LINENO",
    "echo one\necho 'two",
    "alias now='echo alias'\ntrue",
    "x='a\nb'; echo \"$x\"",
    "echo \\",
    "echo \\\n",
    "trap 'echo bye' EXIT\ncd /\nfalse",
    "set -v\ntrue\necho seen",
    "echo 'it'\\''s' \"\\$x\" `echo tick`",
    "if false\nthen :\nelse exit 3\nfi",
    "printf '\\001\\177\\351' | od -An -tx1",
    "x=$'\\001\\177\\351'; printf '%s' \"$x\" | od -An -tx1",
    "echo '\x01\x7f' | od -An -tx1",
    "while read -r l; do echo \"<$l>\"; done <<'E'\na\\b\nE",
    "case x in\n(x) echo paren;;\nesac",
]


def normalised(result: Result) -> Result:
    """Without the named deviations: depth of `+`, and the place named in syntax errors."""
    errors = re.sub(rb"^\++ ", b"+ ", result.stderr, flags=re.MULTILINE)
    errors = re.sub(rb"^bash: (?:-c|eval): line \d+:", b"bash: line N:", errors, flags=re.MULTILINE)
    return Result(result.status, result.stdout, errors)


@pytest.fixture(autouse=True, params=["cold", "warm"])
def _how_shells_start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "is_warm", request.param == "warm")


def here(folder: Path, name: str) -> Path:
    (folder / name / "cwd").mkdir(parents=True)
    return folder / name / "cwd"


def oracle(text: str, cwd: Path, env: dict[str, str]) -> Result:
    argv = ["bash", "--norc", "--noprofile", "-c", text]
    return without(b"/plain/", run(argv, {**env, "ENGINE_TASK_ID": "t1"}, os.fsencode(cwd)))


def through_session(text: str, cwd: Path) -> Result:
    return without(b"/ours/", Session(cwd, BASE).call(text))


def without(folder: bytes, result: Result) -> Result:
    """`result` as if the two directories of a test had one name."""
    status, stdout, stderr = result
    return Result(status, stdout.replace(folder, b"/"), stderr.replace(folder, b"/"))


@pytest.mark.parametrize("text", LINES + LONG)
def test_a_call_ends_as_bash_c_does(text: str, tmp_path: Path) -> None:
    expected = oracle(text, here(tmp_path, "plain"), BASE)
    found = through_session(text, here(tmp_path, "ours"))
    assert normalised(found) == normalised(expected)


@pytest.mark.parametrize("text", LINES[::4] + LONG[::3])
def test_a_call_without_a_session_ends_as_bash_c_does(text: str, tmp_path: Path) -> None:
    env = {**BASE, "ENGINE_TASK_ID": "t1"}
    expected = oracle(text, here(tmp_path, "plain"), BASE)
    plan = plan_call(
        None, text.encode(), session=False, base=BASE, env={}, defaults={},
        identity={"ENGINE_TASK_ID": "t1"},
    )  # fmt: skip
    with descriptors(plan):
        found = run(plan.argv, plan.environ, os.fsencode(here(tmp_path, "ours")))
    assert plan.environ == env
    assert normalised(without(b"/ours/", found)) == normalised(expected)


def test_a_call_without_a_session_sets_no_trap_and_expands_no_alias(tmp_path: Path) -> None:
    text = b"trap -p; alias ll='echo alias'\nll"
    plan = plan_call(None, text, session=False, base=BASE, env={}, defaults={}, identity={})
    with descriptors(plan):
        found = run(plan.argv, plan.environ, os.fsencode(tmp_path))
    assert found == Result(127, b"", b"bash: line 2: ll: command not found\n")


# Calls in order, each with (status, stdout) of the call. Standard error is not compared.
CARRIED: dict[str, list[tuple[str, int, bytes]]] = {
    "directory": [("cd /usr; cd /", 0, b""), ("pwd; echo $OLDPWD", 0, b"/\n/usr\n")],
    "logical directory": [
        ("mkdir real; ln -s real link; cd link", 0, b""),
        ("echo ${PWD##*/} $(basename $(pwd -P))", 0, b"link real\n"),
    ],
    "variables": [
        ("a=plain; export b=exported; c=(1 'two three'); declare -A d=([k 1]=v)", 0, b""),
        ("echo $a ${c[1]} ${d[k 1]} ${#c[@]}; sh -c 'echo $a$b'", 0,
         b"plain two three v 2\nexported\n"),
    ],
    "attributes": [
        ("declare -i n=4; declare -u u=abc; declare -n r=n; readonly ro=1", 0, b""),
        ("n+=3; u=def; echo $n $u $r; ro=2; echo unreached", 1, b"7 DEF 7\n"),
        ("declare -p ro", 0, b'declare -r ro="1"\n'),
    ],
    "a value older than its attribute": [
        ("x='a[$(echo ran >&2)]'; declare -i x; y=ABC; declare -l y", 0, b""),
        ('echo "$x $y"', 0, b"a[$(echo ran >&2)] ABC\n"),
    ],
    "unset of the base": [
        ("unset B HOME", 0, b""), ("echo ${B-gone} ${HOME-gone}", 0, b"gone gone\n"),
    ],
    "unset PATH": [("unset PATH", 0, b""), ("ls; echo $?", 0, b"127\n"), ("echo ok", 0, b"ok\n")],
    "functions": [
        ("f() { echo f$1; }; my-f() { f 2; }; export -f f", 0, b""),
        ("f 1; my-f; bash -c 'f 3'", 0, b"f1\nf2\nf3\n"),
    ],
    "function with a document": [
        ("f() { cat <<E; }\n}\nf () \n{ \nE\ng() { echo g; }", 0, b""),
        ("f; g", 0, b"}\nf () \n{ \ng\n"),
    ],
    "function with patterns": [
        ("shopt -s extglob", 0, b""),
        ("f() { [[ $1 == @(a|b) ]] && echo yes; }", 0, b""),
        ("f a; f c; echo $?", 0, b"yes\n1\n"),
    ],
    "aliases": [
        ("alias say='echo said' q=\"echo 'it is'\"", 0, b""),
        ("say it; q\nalias", 0,
         b"said it\nit is\nalias q='echo '\\''it is'\\'''\nalias say='echo said'\n"),
    ],
    "an alias within a function is expanded once": [
        ("alias ls='ls -d'", 0, b""),
        ("f() { ls .; }", 0, b""),
        ("true", 0, b""),
        ("declare -f f", 0, b"f () \n{ \n    ls -d .\n}\n"),
    ],
    "options": [
        ("set -f -o noclobber; shopt -s nullglob nocasematch; shopt -u sourcepath", 0, b""),
        ("echo $-; shopt nullglob nocasematch sourcepath", 1,
         b"fhBCc\nnullglob       \ton\nnocasematch    \ton\nsourcepath     \toff\n"),
        ("set +f +C; shopt -u nullglob; set +B", 0, b""),
        ("echo $- {a,b}; shopt nullglob", 1, b"hc {a,b}\nnullglob       \toff\n"),
    ],
    "posix mode": [
        ("set -o posix", 0, b""),
        ("echo $POSIXLY_CORRECT; [[ -o posix ]]; echo $?; unset POSIXLY_CORRECT", 0, b"y\n0\n"),
        ("[[ -o posix ]]; echo $? ${POSIXLY_CORRECT-gone}", 0, b"1 gone\n"),
    ],
    "umask and IFS": [
        ("umask 027; IFS=:", 0, b""),
        ("umask; x=a:b; echo $x", 0, b"0027\na b\n"),
        ("unset IFS", 0, b""),
        ("x='a:b c'; echo ${IFS-gone} $x", 0, b"gone a:b c\n"),
    ],
    "redefined builtins": [
        ("echo() { :; }; printf() { :; }; cd() { builtin cd /usr; }; declare() { builtin echo d; };"
         "builtin_is=; trap() { :; }; unset() { :; }; set() { builtin echo set; };"
         "eval() { builtin echo ev; }; shopt() { :; }; export() { :; }; alias() { :; }", 0, b""),
        ("echo x; cd /; pwd; eval x; set; declare", 0, b"/usr\nev\nset\nd\n"),
        ("pwd; eval; echo $LINENO", 0, b"/usr\nev\n"),
    ],
    "redefined builtin": [
        ("builtin() { echo b; }; command() { echo c; }", 0, b""),
        ("builtin x; command x", 0, b"b\nc\n"),
        ("builtin x", 0, b"b\n"),
    ],
    "redefined by aliases": [
        ("alias builtin='echo b' declare='echo d' unset='echo u' trap='echo t' .='echo .'", 0, b""),
        ("X=1", 0, b""),
        ("echo $X; declare", 0, b"1\nd\n"),
    ],
    "exit commits": [("x=1; cd /; exit 3", 3, b""), ("echo $x; pwd", 0, b"1\n/\n")],
    "errexit commits and does not carry": [
        ("x=1; set -e; false; x=2", 1, b""), ("false; echo $x", 0, b"1\n"),
    ],
    "nounset, pipefail, xtrace, verbose": [
        ("set -u -o pipefail; set -xv", 0, b""),
        ("echo $nope$-; false | true; echo $?", 0, b"hBc\n0\n"),
    ],
    "traps do not carry": [
        ("trap 'echo LEAKED' EXIT DEBUG ERR RETURN TERM; x=1", 0, b"LEAKED\n" * 3),
        ("trap | grep -v fd/101; echo $x; false", 1, b"1\n"),
    ],
    "an EXIT trap of its own": [
        ("trap 'echo bye $x' EXIT; x=1; cd /", 0, b"bye 1\n"), ("echo $x; pwd", 0, b"1\n/\n"),
    ],
    "a DEBUG trap does not reach the dump": [
        ("set -T; trap 'echo D; printf \"\\0begin\\0\"' DEBUG; x=1", 0, b"D\n\0begin\0"),
        ("echo $x", 0, b"1\n"),
    ],
    "closed and redirected output": [
        ("exec >&- 2>&-; x=1", 0, b""), ("exec >/dev/null; y=2; echo no", 0, b""),
        ("echo $x $y", 0, b"1 2\n"),
    ],
    "syntax errors": [
        ("x=1\necho (", 2, b""), ("echo 'open", 2, b""), ("echo $(open", 2, b""),
        ("echo $x", 0, b"1\n"),
    ],
    "exec leaves the session as it was": [
        ("x=1", 0, b""), ("x=2; exec true", 0, b""), ("echo $x", 0, b"1\n"),
    ],
    "a signal leaves the session as it was": [
        ("x=1", 0, b""), ("x=2; kill $$", -15, b""), ("x=3; kill -9 $$", -9, b""),
        ("x=4; kill -9 0", -9, b""), ("echo $x", 0, b"1\n"),
    ],
    "a directory that is gone": [
        ("mkdir -p d/e; cd d/e", 0, b""), ("rm -r ../../d; echo ok", 0, b"ok\n"),
        ("echo ${PWD##*/}; cd /", 0, b"cwd\n"), ("pwd", 0, b"/\n"),
    ],
    "odd directories": [
        ("mkdir $'a\\nb\\xff \\n'; cd $'a\\nb\\xff \\n'", 0, b""),
        ('printf %s "${PWD##*/}" | od -An -tx1', 0, b" 61 0a 62 ff 20 0a\n"),
    ],
    "what is of one call only": [
        ("RANDOM=5; SECONDS=1000; set -- a b; false", 1, b""),
        ("echo $? $# $SHLVL $((SECONDS < 100)); exit", 0, b"0 0 1 1\n"),
        ("echo $SHLVL ${ENGINE_TASK_ID}", 0, b"1 t1\n"),
    ],
    "locale": [
        ("x=é; export LC_ALL=C", 0, b""), ("y=é; echo ${#x} ${#y}", 0, b"2 2\n"),
        ("export LC_ALL=C.UTF-8", 0, b""), ("echo $x$y ${#x} ${#y}", 0, b"\xc3\xa9\xc3\xa9 1 1\n"),
    ],
    "allexport": [("set -a", 0, b""), ("x=1", 0, b""), ("sh -c 'echo $x'; f() { :; }", 0, b"1\n")],
    "extdebug": [
        ("shopt -s extdebug; x=1", 0, b""),
        ("f() { echo ${#BASH_ARGV[@]}; }; f a b; echo $x", 0, b"2\n1\n"),
    ],
    "readonly names": [
        ("readonly rc=1 status=2; IFS=0", 0, b""), ('(exit 101); echo "$?"', 0, b"101\n"),
        ("(exit 101)", 101, b""),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CARRIED)
def test_a_session_carries(name: str, tmp_path: Path) -> None:
    session = Session(here(tmp_path, "s"), BASE)
    found = [session.call(text)[:2] for text, _, _ in CARRIED[name]]
    assert found == [(status, output) for _, status, output in CARRIED[name]]


# Case -> calls in order, with status, standard output and what standard error must hold.
CASES: dict[str, list[tuple[str, int, bytes, bytes]]] = {
    "C029": [("exit 42 || true", 42, b"", b""), ("echo hi", 0, b"hi\n", b"")],
    "C030": [("set -e", 0, b"", b""), ("false", 1, b"", b""), ("echo alive", 0, b"alive\n", b"")],
    "C031": [
        ("set -u", 0, b"", b""), ("set -u; echo $nope", 127, b"", b"nope: unbound variable"),
        ("echo ok", 0, b"ok\n", b""),
    ],
    "C032": [("exec sleep 0.1", 0, b"", b""), ("echo hi", 0, b"hi\n", b"")],
    "C036": [("cat <<EOF\nhi\n EOF", 0, b"hi\n EOF\n", b"delimited by end-of-file")],
    "C037": [
        ("echo 'abc", 2, b"", b"unexpected EOF while looking for matching"),
        ("echo ok", 0, b"ok\n", b""),
    ],
    "C040": [("sleep 0.1 &", 0, b"", b"")],
    "C042": [("echo hi # note", 0, b"hi\n", b"")],
    "C044": [
        ("echo 'hello != world'", 0, b"hello != world\n", b""),
        ('echo "a!b!!"', 0, b"a!b!!\n", b""),
    ],
    "C046": [("cat", 0, b"", b""), ("echo second", 0, b"second\n", b"")],
    "C050": [
        ("trap 'echo LEAKED' EXIT DEBUG", 0, b"LEAKED\nLEAKED\n", b""),
        ("echo clean", 0, b"clean\n", b""),
    ],
    "C053": [
        ("cd /; echo(){ :; }; printf(){ :; }; alias echo=true", 0, b"", b""),
        ("pwd", 0, b"/\n", b""),
    ],
    "C054": [
        ("unset PATH", 0, b"", b""), ("ls", 127, b"", b"No such file or directory"),
        ("echo ok", 0, b"ok\n", b""),
    ],
    "C055": [
        ("IFS=0", 0, b"", b""), ("(exit 101)", 101, b"", b""), ("readonly rc=1", 0, b"", b""),
        ("(exit 101)", 101, b"", b""),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.case(name)) for name in CASES]
)
def test_a_fault_of_other_shell_tools_is_not_here(name: str, tmp_path: Path) -> None:
    session = Session(here(tmp_path, "s"), BASE)
    for text, status, output, error in CASES[name]:
        found = session.call(text)
        assert found[:2] == (status, output), text
        assert error in found.stderr if error else found.stderr == b"", text


@pytest.mark.parametrize("text", ["true", "exit 4", "(exit 2)", "ls / >/dev/null", "trap : EXIT"])
def test_a_call_that_changes_nothing_gives_the_same_state_object(text: str, tmp_path: Path) -> None:
    session = Session(tmp_path, BASE, NO_COLOR="1")
    session.call("cd /; x=1; f() { :; }; alias a=b; declare -i n=1; arr=(1 2)")
    before = session.state
    session.call(text)
    assert before is not None
    assert session.committed is before


@pytest.mark.parametrize("text", ["set -n", "exec true", "kill $$", "ulimit -f 0; x=1"])
def test_a_call_that_leaves_no_whole_dump_commits_nothing(text: str, tmp_path: Path) -> None:
    session = Session(tmp_path, BASE)
    session.call(text)
    assert session.committed is None


def test_variables_of_one_call_are_gone_after_it_unless_it_changed_them(tmp_path: Path) -> None:
    session = Session(tmp_path, BASE, PAGER="cat", B="never")
    show = "echo ${V-none} ${W-none} $B $PAGER"
    session.call("W=own")
    assert session.call(show, {"V": "1", "W": "2", "B": "3"}).stdout == b"1 2 3 cat\n"
    assert session.call(show).stdout == b"none own of base cat\n"
    session.call("V=changed; PAGER=less", {"V": "1"})
    assert session.call(show).stdout == b"changed own of base less\n"


@pytest.mark.case("C063")
def test_the_environment_runs_no_code_before_the_command(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("echo INJECTED\n")
    base = {
        **BASE,
        "BASH_ENV": f"{tmp_path}/env.sh",
        "ENV": f"{tmp_path}/env.sh",
        "SHELLOPTS": "xtrace",
        "BASH_FUNC_greet%%": "() { echo hello; }",
        "BASH_FUNC_eval%%": "() { echo INJECTED; }",
        "not-a-name": "1",
    }
    session = Session(tmp_path, base)
    assert session.call("echo hi; greet; env | grep not-a") == (
        0,
        b"hi\nhello\nnot-a-name=1\n",
        b"",
    )
    assert session.call("greet; env | grep not-a").stdout == b"hello\nnot-a-name=1\n"
    assert session.call("bash -c 'echo inner'").stdout == b"INJECTED\ninner\n"


def test_a_large_state_and_a_large_text_come_through(tmp_path: Path) -> None:
    session = Session(tmp_path, BASE)
    session.call("for i in {1..2000}; do printf -v v$i '%0150d' $i; done; f() { :; }")
    text = b": '" + b"x" * 1_048_000 + b"'\necho ${#v2000} $v7"
    assert session.call(text).stdout == b"150 " + b"7".rjust(150, b"0") + b"\n"


def test_the_name_of_a_shadowed_builtin_in_a_function_of_the_environment_is_left_out() -> None:
    base = {**BASE, "BASH_FUNC_declare%%": "() { :; }", "BASH_FUNC_mine%%": "() { :; }"}
    plan = plan_call(None, b"true", session=True, base=base, env={}, defaults={}, identity={})
    assert plan.environ == {**BASE, "BASH_FUNC_mine%%": "() { :; }"}
