"""Mirrors `engine/keeper/worker.py`: what code sees, with each Python that is here, from 3.8 on."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from keeper.harness import Nursery, nursery
from keeper.python_session import PATH, Bell, Session


def found_pythons() -> list[str]:
    """The oldest and the newest supported interpreter of this machine, beside our own."""
    places = {sys.executable: sys.version_info[:2]}
    for minor in range(8, 15):
        program = shutil.which(f"python3.{minor}") or ""
        versions = Path.home() / ".pyenv" / "versions"
        kept = sorted(versions.glob(f"3.{minor}.*/bin/python3")) if versions.is_dir() else []
        for candidate in [*map(str, kept), program][:1]:
            if candidate and is_runnable(candidate):
                places[candidate] = (3, minor)
    by_version = {version: place for place, version in places.items()}
    chosen = {min(by_version), sys.version_info[:2], max(by_version)}
    return [by_version[version] for version in sorted(chosen)]


def is_runnable(python: str) -> bool:
    """Whether it starts: a version manager may have put something of that name in its place."""
    return subprocess.run([python, "-c", "pass"], capture_output=True, check=False).returncode == 0


@functools.cache  # asked for the name of each test
def version_of(python: str) -> str:
    command = [python, "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module", params=found_pythons(), ids=version_of)
def kept_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    with nursery(tmp_path_factory.mktemp("home")) as mother:
        session = Session(mother, python=request.param)
        assert session.opened["ev"] == "opened", session.opened
        assert session.opened["version"] == version_of(request.param)
        yield session
        session.close()
        assert mother.log() == ""


@pytest.fixture
def session(kept_session: Session) -> Iterator[Session]:
    clients = kept_session.mother.clients
    before = len(clients)
    yield kept_session
    while len(clients) > before:
        clients.pop().close()


@pytest.fixture
def mother(tmp_path: Path) -> Iterator[Nursery]:
    with nursery(tmp_path) as mother:
        yield mother
        assert mother.log() == ""


# -- values and names ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", "2"),
        ("x = 5\nx * 2  # comment", "10"),
        ("None", None),
        ("x = 5", None),
        ("", None),
        ("'a' 'b'", "'ab'"),
        ("for i in range(3): i", None),
        ("[i for i in range(3)]", "[0, 1, 2]"),
        ("def f(): pass", None),
        ("'\\ud800'", "'\\ud800'"),
        ("class R:\n  def __repr__(self): return 'r\\ud800'\nR()", "r?"),
    ],
)
def test_the_value_is_the_repr_of_a_last_expression(
    session: Session, code: str, value: str | None
) -> None:
    answer = session.run(code)
    assert answer["value"] == value
    assert (answer["cause"], answer["exitCode"], answer["error"]) == ("exit", 0, None)
    assert (answer["signal"], answer["sessionReset"]) == (None, False)
    assert answer.output == ""


def test_a_value_is_cut_at_8192_bytes_between_characters(session: Session) -> None:
    value = session.run("'x' + 'é' * 9000")["value"]
    assert value == "'x" + "é" * 4095
    assert len(value.encode()) == 8192


def test_names_imports_and_the_directory_live_on(session: Session, tmp_path: Path) -> None:
    session.run(f"import os, json\nkept = 41\nos.chdir({str(tmp_path)!r})")
    answer = session.run("kept += 1\nprint(json.dumps(kept), os.getcwd())")
    assert answer.output == f"42 {tmp_path}\n"
    assert answer["cwd"] == str(tmp_path)
    session.run("os.chdir('/')")


def test_code_is_main_and_sees_nothing_of_ours(session: Session) -> None:
    answer = session.run(
        "if __name__ == '__main__':\n"
        "  import sys, __main__\n"
        "  names = [n for n in globals() if not n.startswith('__')]\n"
        "  modules = [m for m in sys.modules if 'engine' in m or 'worker' in m]\n"
        "  print(__main__.__dict__ is globals(), sys.argv, repr(sys.path[0]), modules)\n"
        "  print([p for p in sys.path if 'engine' in p])\n"
    )
    assert answer.output == "True [''] '' []\n[]\n"


def test_future_imports_hold_for_later_calls_and_ours_for_none(session: Session) -> None:
    assert session.run("def f(x: 1): pass\nf.__annotations__['x']")["value"] == "1"
    session.run("from __future__ import annotations")
    assert session.run("def f(x: 1): pass\nf.__annotations__['x']")["value"] == "'1'"


def test_variables_and_directory_of_a_call_are_its_own(session: Session, tmp_path: Path) -> None:
    session.run("import os\nos.environ['MINE'] = 'old'")
    show = "os.environ.get('MINE'), os.environ.get('NEW'), os.getcwd()"
    answer = session.run(show, env={"MINE": "new", "NEW": "1"}, cwd=str(tmp_path))
    assert answer["value"] == f"('new', '1', '{tmp_path}')"
    assert session.run(show)["value"] == "('old', None, '/')"


def test_a_directory_that_cannot_be_entered_is_a_failure_to_start(session: Session) -> None:
    answer = session.run_unstarted("print('never')", cwd="/no/such/dir")
    assert (answer["cause"], answer["exitCode"], answer["sessionReset"]) == (
        "spawn_error",
        127,
        False,
    )
    assert answer["error"] == {
        "errno": 2,
        "message": "cwd /no/such/dir: No such file or directory",
    }
    assert answer.output == ""


def test_a_working_directory_that_is_gone_gives_way_to_its_parent(
    session: Session, tmp_path: Path
) -> None:
    gone = tmp_path / "a" / "b"
    gone.mkdir(parents=True)
    session.run(f"import os\nos.chdir({str(gone)!r})")
    gone.rmdir()
    _directory, link = session.send("os.getcwd()")
    assert link.expect("started")["cwdMissing"] == str(gone)
    answer = link.expect("ended")["record"]
    assert (answer["value"], answer["cwd"]) == (repr(str(tmp_path / "a")), str(tmp_path / "a"))
    _directory, link = session.send("os.chdir('/')")
    assert link.expect("started")["cwdMissing"] is None
    link.expect("ended")


def test_a_call_with_a_directory_of_its_own_does_not_miss_the_sessions(
    session: Session, tmp_path: Path
) -> None:
    gone = tmp_path / "a"
    gone.mkdir()
    session.run(f"import os\nos.chdir({str(gone)!r})")
    gone.rmdir()
    _directory, link = session.send("os.chdir('/')", cwd="/")
    assert link.expect("started")["cwdMissing"] is None
    link.expect("ended")
    session.run("os.chdir('/')")


# -- errors ----------------------------------------------------------------------------------------


def test_a_traceback_shows_the_lines_of_all_calls_and_no_frame_of_ours(session: Session) -> None:
    first = session.run("def broken():\n    return {}['nothing']")
    answer = session.run("\nbroken()")
    assert (answer["cause"], answer["exitCode"]) == ("exit", 1)
    assert answer["error"] == {"type": "KeyError", "message": "'nothing'"}
    names = [f"<call t{a.directory.name}>" for a in (first, answer)]
    lines = [line for line in answer.output.splitlines() if not set(line) <= set(" ^~")]
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "{names[1]}", line 2, in <module>',
        "    broken()",
        f'  File "{names[0]}", line 2, in broken',
        "    return {}['nothing']",
        "KeyError: 'nothing'",
    ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("1 +", "SyntaxError"),
        ("print('before')\nreturn 5", "SyntaxError"),
        ("import json\njson.loads('{')", "json.decoder.JSONDecodeError"),
        ("class Own(Exception): pass\nraise Own('x')", "Own"),
        ("class R:\n  def __repr__(self): return 1 / 0\nR()", "ZeroDivisionError"),
        ("class E(Exception):\n  def __str__(self): return 1 / 0\nraise E", "E"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
    ],
)
def test_an_uncaught_exception_fails_with_1_and_names_its_type(
    session: Session, code: str, kind: str
) -> None:
    answer = session.run(code)
    assert (answer["cause"], answer["exitCode"], answer["value"]) == ("exit", 1, None)
    assert answer["error"]["type"] == kind
    assert kind in answer.output
    assert "before" not in answer.output.splitlines()
    assert "<session>" not in answer.output
    assert session.run("1")["value"] == "1"


@pytest.mark.parametrize(
    ("code", "status", "output"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit", 0, ""),
        ("exit(0)", 0, ""),
        ("raise SystemExit(-1)", 255, ""),
        ("raise SystemExit(256)", 0, ""),
        ("raise SystemExit('why')", 1, "why\n"),
    ],
)
def test_an_exit_ends_the_call_as_it_would_a_script_and_the_session_lives_on(
    session: Session, code: str, status: int, output: str
) -> None:
    answer = session.run(code)
    assert (answer["cause"], answer["exitCode"], answer["error"]) == ("exit", status, None)
    assert answer.output == output
    assert session.run("input()", stdin=b"again\n")["value"] == "'again'"


def test_a_hook_for_exceptions_is_called_and_may_fail(session: Session) -> None:
    session.run("import sys\nsys.excepthook = lambda kind, exc, trace: print('mine', exc)")
    assert session.run("int('x')").output.startswith("mine invalid literal")
    session.run("sys.excepthook = lambda *a: 1 / 0")
    output = session.run("int('x')").output
    assert "ZeroDivisionError" in output
    assert "invalid literal" in output
    session.run("sys.excepthook = sys.__excepthook__")


# -- streams ---------------------------------------------------------------------------------------


def test_output_of_code_and_of_its_children_stands_in_order(session: Session) -> None:
    answer = session.run(
        "import os, sys, subprocess\nprint('1')\nos.system('echo 2')\nprint('3', file=sys.stderr)\n"
        "subprocess.run(['sh', '-c', 'echo 4; echo 5 >&2'])\nsys.stdout.write('6')"
    )
    assert answer.output == "1\n2\n3\n4\n5\n6"


def test_split_streams_go_to_a_file_each(session: Session) -> None:
    answer = session.run("import sys\nprint('o')\nprint('e', file=sys.stderr)", streams="split")
    assert answer["sizes"] == [2, 2]
    assert (answer.directory / "stdout").read_text() == "o\n"
    assert (answer.directory / "stderr").read_text() == "e\n"


def test_input_is_the_calls_own(session: Session) -> None:
    assert session.run("input(), input()", stdin=b"a\nb\nleft\n")["value"] == "('a', 'b')"
    assert session.run("import sys\nsys.stdin.read()", stdin=b"c\n")["value"] == "'c\\n'"
    answer = session.run("input('name? ')")
    assert answer["error"]["type"] == "EOFError"
    assert answer.output.startswith("name? ")


@pytest.mark.parametrize(
    "harm",
    [
        "sys.stdout.close(); sys.stderr.close()",
        "sys.stdout.detach()",
        "del sys.stdout, sys.stderr, sys.stdin",
        "os.close(0); os.close(1); os.close(2)",
        "sys.stdout = sys.stderr = None",
        "sys.stdin.close()",
        "import io; sys.stdout = io.TextIOWrapper(sys.stdout.buffer); sys.stdout.close()",
        "fd = os.open('/dev/null', os.O_WRONLY); os.dup2(fd, 1); os.close(fd)",
    ],
)
def test_streams_that_code_has_broken_are_whole_for_the_next_call(
    session: Session, harm: str
) -> None:
    session.run("import os, sys\n" + harm)
    answer = session.run("print(input())\nprint('e', file=sys.stderr)", stdin=b"i\n")
    assert answer.output == "i\ne\n"
    assert session.run("1 / 0").output.endswith("ZeroDivisionError: division by zero\n")


def test_what_is_written_below_a_stream_that_was_taken_apart_is_kept(session: Session) -> None:
    answer = session.run("import sys\nbelow = sys.stdout.detach()\nn = below.write(b'said')")
    assert answer.output == "said"
    assert session.run("n = below.write(b'again')").output == "again"


def test_a_traceback_is_shown_where_code_has_taken_standard_error_apart(session: Session) -> None:
    answer = session.run("import sys\nn = sys.stderr.detach()\n1 / 0")
    assert answer.output.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "open"),
        ("os", "getcwd"),
        ("os", "chdir"),
        ("os", "dup2"),
        ("os", "write"),
        ("os", "open"),
        ("json", "dumps"),
        ("json", "loads"),
        ("signal", "signal"),
        ("threading", "get_ident"),
    ],
)
def test_what_code_puts_in_place_of_a_function_is_not_in_our_way(
    session: Session, module: str, name: str
) -> None:
    harm = f"import {module}\nkept, {module}.{name} = {module}.{name}, lambda *a, **k: 1 / 0"
    pid = session.opened["pid"]
    assert (session.run(harm)["cause"], session.run("1")["value"]) == ("exit", "1")
    answer = session.run(f"{module}.{name} = kept\nimport os\nprint('well'); os.getpid()")
    assert (answer.output, answer["value"]) == ("well\n", str(pid))


def test_code_that_clears_its_names_has_the_builtins_of_all(session: Session) -> None:
    session.run("globals().clear()")
    assert session.run("import builtins\n__builtins__ is builtins")["value"] == "True"


def test_a_redirection_that_code_leaves_in_place_lives_on(session: Session) -> None:
    session.run("import io, sys\nsys.stdout = io.StringIO()")
    assert session.run("print('kept')").output == ""
    answer = session.run("text = sys.stdout.getvalue()\nsys.stdout = sys.__stdout__\nprint(text)")
    assert answer.output == "kept\n\n"


def test_what_a_library_of_c_buffers_is_the_calls_that_printed_it(session: Session) -> None:
    pytest.importorskip("ctypes")
    answer = session.run("import ctypes\nn = ctypes.CDLL(None).printf(b'from c\\n')")
    assert answer.output == "from c\n"


def test_no_byte_is_lost_of_a_flood_of_lines(session: Session) -> None:
    answer = session.run(
        "for i in range(20000): print(i)\nsys.stdout.buffer.write(b'\\0' * 3000000)"
    )
    wanted = "".join(f"{i}\n" for i in range(20000)) + "\0" * 3000000
    assert answer.output == wanted
    assert answer["value"] == "3000000"


# -- threads and forks -----------------------------------------------------------------------------


@pytest.fixture
def bells(tmp_path: Path) -> Iterator[tuple[Bell, Bell]]:
    made = Bell(tmp_path / "first"), Bell(tmp_path / "second")
    yield made
    for bell in made:
        bell.close()


def test_what_threads_print_while_a_call_runs_is_that_calls(session: Session) -> None:
    first = session.run(
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\n"
        "n = list(pool.map(print, ['warm-up']))"
    )
    second = session.run("n = list(pool.map(print, ['of call 2']))")
    third = session.run("print('main')\nn = list(pool.map(print, ['of call 3']))")
    last = session.run("pool.shutdown()")
    outputs = [answer.output for answer in (first, second, third, last)]
    assert outputs == ["warm-up\n", "of call 2\n", "main\nof call 3\n", ""]
    assert first.link.expect("gone")["sizes"] == [8]


def test_a_loop_in_a_thread_of_an_earlier_call_prints_for_whoever_waits_for_it(
    session: Session,
) -> None:
    first = session.run(
        "import asyncio, threading\nloop = asyncio.new_event_loop()\n"
        "thread = threading.Thread(target=loop.run_forever, daemon=True)\nthread.start()\n"
        "async def say(word): print(word)\n"
        "def run(co): return asyncio.run_coroutine_threadsafe(co, loop).result()\n"
        "run(say('call 1'))"
    )
    second = session.run("run(say('call 2'))")
    session.run("n = loop.call_soon_threadsafe(loop.stop); thread.join(); loop.close()")
    assert (first.output, second.output) == ("call 1\n", "call 2\n")


def test_a_program_that_a_thread_starts_while_a_call_runs_writes_for_that_call(
    session: Session,
) -> None:
    first = session.run(
        "import subprocess, threading\ngo = threading.Event()\n"
        "def work():\n    go.wait()\n    subprocess.run(['echo', 'program'])\n"
        "thread = threading.Thread(target=work)\nthread.start()"
    )
    second = session.run("go.set()\nthread.join()")
    assert second.output == "program\n"
    assert first.link.expect("gone")["sizes"] == [0]


def test_between_calls_a_thread_prints_for_the_call_that_began_it(
    session: Session, bells: tuple[Bell, Bell]
) -> None:
    code = (
        "import os, subprocess, threading\n"
        "def talk(bell, word):\n    bell()\n    print(word)\n    os.write(1, b'past ' + "
        "word.encode() + b'\\n')\n    subprocess.run(['echo', 'child', word])\n"
        "threading.Thread(target=talk, args=(lambda: {}, {!r})).start()"
    )
    first = session.run(code.format(bells[0].wait, "one"))
    second = session.run(code.format(bells[1].wait, "two"))
    bells[0].ring()
    assert first.link.expect("gone")["sizes"] == [4]
    bells[1].ring()
    second.link.expect("gone")
    assert first.output == "one\n"
    assert second.output == "past one\nchild one\ntwo\npast two\nchild two\n"


@pytest.mark.parametrize(
    "begin",
    [
        "threading.Thread(target=talk, args=(n + 1,)).start()",
        "threading.Timer(0, talk, (n + 1,)).start()",
        "_thread.start_new_thread(talk, (n + 1,))",
    ],
)
def test_a_thread_begun_by_a_thread_prints_for_the_same_call(
    session: Session, bells: tuple[Bell, Bell], begin: str
) -> None:
    first = session.run(
        "import _thread, threading\n"
        f"def talk(n):\n    if n == 1: {bells[0].wait}\n    print('tick', n)\n"
        f"    if n < 4: {begin}\n"
        f"talk(0)"
    )
    second = session.run("print('second')")
    bells[0].ring()
    first.link.expect("gone")
    assert first.output == "".join(f"tick {n}\n" for n in range(5))
    assert second.output == "second\n"


def test_a_line_that_a_thread_has_not_ended_is_written_with_the_end_of_call_or_thread(
    session: Session, bells: tuple[Bell, Bell]
) -> None:
    first = session.run(
        "import threading\nsaid, go = threading.Event(), threading.Event()\n"
        "def talk():\n    print('a', end='')\n    said.set()\n"
        f"    {bells[0].wait}\n    print('b', end='')\n"
        "threading.Thread(target=talk).start()\nn = said.wait()"
    )
    assert first.output == "a"
    bells[0].ring()
    first.link.expect("gone")
    assert first.output == "ab"


def test_lines_of_threads_side_by_side_are_whole(session: Session) -> None:
    answer = session.run(
        "import threading\n"
        "def talk(word):\n    for n in range(500): print(word, n, word)\n"
        "threads = [threading.Thread(target=talk, args=(word,)) for word in 'abc']\n"
        "for thread in threads: thread.start()\nfor thread in threads: thread.join()"
    )
    wanted = [f"{word} {n} {word}" for word in "abc" for n in range(500)]
    assert sorted(answer.output.splitlines()) == sorted(wanted)


def test_a_thread_that_cannot_be_started_is_no_thread_of_the_call(session: Session) -> None:
    answer = session.run("import _thread\n_thread.start_new_thread(print, 5)")
    assert answer["error"]["type"] == "TypeError"
    assert answer.link.expect("gone")["ev"] == "gone"


def test_a_fork_that_runs_on_to_the_end_of_the_code_is_no_second_session(session: Session) -> None:
    answer = session.run(
        "import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')\n"
        "if pid: os.waitpid(pid, 0)\nos.getpid()"
    )
    assert sorted(answer.output.split()) == ["child", "parent"]
    assert answer["value"] == str(session.opened["pid"])
    assert session.run("print('again')").output == "again\n"


def test_a_fork_has_no_way_to_the_keeper(session: Session) -> None:
    answer = session.run(
        "import os, stat\npid = os.fork()\n"
        "if pid == 0:\n"
        "    try: os._exit(stat.S_ISSOCK(os.fstat(200).st_mode))\n"
        "    except OSError: os._exit(0)\n"
        "os.waitpid(pid, 0)[1], stat.S_ISSOCK(os.fstat(200).st_mode)"
    )
    assert answer["value"] == "(0, True)"


def test_children_inherit_no_descriptor_of_ours(session: Session) -> None:
    answer = session.run("import subprocess\nsubprocess.call('ls /proc/self/fd', shell=True)")
    assert answer.output.split()[:4] == ["0", "1", "2", "3"]  # 3 is the folder that ls reads
    assert len(answer.output.split()) == 4
    answer = session.run("import os\nfd = os.open('/dev/null', 0)\nos.close(fd)\nfd")
    assert answer["value"] == "3"


def test_a_pool_of_processes_works(session: Session) -> None:
    answer = session.run(
        "import multiprocessing\ndef double(x): return 2 * x\n"
        "context = multiprocessing.get_context('fork')\n"
        "with context.Pool(2) as pool: print(pool.map(double, [1, 2, 3]))"
    )
    assert answer.output == "[2, 4, 6]\n"


def test_asyncio_runs_in_a_call(session: Session) -> None:
    code = (
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7\nasyncio.run(f())"
    )
    assert session.run("import asyncio\n" + code)["value"] == "7"


# -- the environment -------------------------------------------------------------------------------


def test_modules_of_the_callers_path_can_be_imported(mother: Nursery, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("word = 'found'\n")
    env = {"PATH": PATH, "PYTHONPATH": str(tmp_path)}
    session = Session(mother, env=env)
    assert session.run("import mine\nmine.word")["value"] == "'found'"
    session.close()


def test_a_module_in_the_working_directory_can_be_imported(mother: Nursery, tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("word = 'near'\n")
    session = Session(mother, cwd=str(tmp_path))
    assert session.run("import here\nhere.word")["value"] == "'near'"
    session.close()


def test_the_end_of_a_session_runs_what_the_code_registered(
    mother: Nursery, tmp_path: Path
) -> None:
    session = Session(mother)
    mark = tmp_path / "left"
    session.run(f"import atexit, pathlib\natexit.register(pathlib.Path({str(mark)!r}).touch)")
    session.close()
    assert os.path.exists(mark)
