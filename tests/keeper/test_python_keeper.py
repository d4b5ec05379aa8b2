"""Mirrors `engine/keeper/python_keeper.py`: sessions below a real mother, no engine, no trio."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keeper.harness import LIMIT, Nursery, is_running, nursery, read_exit
from keeper.python_session import PATH, Answer, Bell, Session, wait_for_output

# Says so once it can be interrupted and live on.
STUBBORN = (
    "import time\ntry:\n    print('on', flush=True)\n    time.sleep(600)\n"
    "except KeyboardInterrupt:\n    time.sleep(600)\n"
)
# Prints its pid once it has a command line: in the middle of exec(2) it has a name alone.
CHILD = """
import subprocess
child = subprocess.Popen({argv!r})
while not open("/proc/%d/cmdline" % child.pid).read():
    pass
print(child.pid)
"""


@pytest.fixture
def mother(tmp_path: Path) -> Iterator[Nursery]:
    with nursery(tmp_path) as mother:
        yield mother
        assert mother.log() == ""


@pytest.fixture
def session(mother: Nursery) -> Iterator[Session]:
    session = Session(mother)
    yield session
    if session.link_path.is_symlink():
        session.close(0)


def keeper_of(session: Session) -> int:
    return int(os.readlink(session.link_path).split()[0])


def wait_dead(pid: int) -> None:
    fd = os.pidfd_open(pid)
    try:
        assert select.select([fd], [], [], LIMIT)[0], f"{pid} lives"
    finally:
        os.close(fd)


def left_behind(session: Session, *argv: str) -> tuple[Answer, int]:
    """A call that has ended and left a process, and that one's pid."""
    answer = session.run(CHILD.format(argv=argv))
    return answer, int(answer.output)


# -- opening, finding, closing ---------------------------------------------------------------------


def test_an_interpreter_tells_its_version_and_is_the_callers(mother: Nursery) -> None:
    session = Session(mother)
    opened = session.opened
    assert opened["version"] == ".".join(map(str, sys.version_info[:3]))
    assert os.path.samefile(f"/proc/{opened['pid']}/exe", opened["executable"])
    assert (opened["isOpen"], opened["busy"]) == (True, None)
    session.close()


def test_the_interpreter_is_found_by_the_path_of_the_caller(
    mother: Nursery, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    wrapper = folder / "python3"
    wrapper.write_text(f'#!/bin/sh\nexport WRAPPED=1\n"{sys.executable}" "$@"\nexit $?\n')
    wrapper.chmod(0o755)
    session = Session(mother, env={"PATH": f"{folder}:{PATH}"})
    assert session.run("import os\nos.environ['WRAPPED']")["value"] == "'1'"
    _directory, link = session.begin("import time\ntime.sleep(600)")
    link.send({"op": "cancel", "dir": str(_directory), "grace": 9})
    record = link.expect("ended")["record"]
    assert (record["cause"], record["sessionReset"]) == ("cancelled", False)
    assert record["survivors"] == []
    session.close()


@pytest.mark.parametrize(
    ("changes", "errno", "exit_code", "words"),
    [
        ({"python": "no-such-python"}, 2, 127, "no-such-python: No such file or directory"),
        ({"python": "/etc/passwd"}, 13, 126, "/etc/passwd: Permission denied"),
        ({"cwd": "/no/such/dir"}, 2, 127, "cwd /no/such/dir: No such file or directory"),
        ({"python": "/bin/false"}, 8, 126, "it ended before it was ready"),
        ({"env": {"PATH": PATH, "PYTHONHOME": "/nowhere"}}, 8, 126, "Fatal Python error"),
    ],
)
def test_an_interpreter_that_does_not_start_is_told_and_leaves_no_link(
    mother: Nursery, changes: dict[str, object], errno: int, exit_code: int, words: str
) -> None:
    session = Session(mother, **changes)
    failed = session.opened
    assert (failed["ev"], failed["errno"], failed["exitCode"]) == ("failed", errno, exit_code)
    assert words in failed["message"]
    with pytest.raises((EOFError, ConnectionResetError)):
        session.control.expect("nothing more")
    assert not session.link_path.is_symlink()


def test_a_session_is_found_again_with_its_names_after_the_engine_is_gone(
    session: Session,
) -> None:
    session.run("kept = 1")
    session.control.close()
    link = session.connect()
    link.send({"op": "session"})
    told = link.expect("session")
    assert (told["isOpen"], told["busy"], told["pid"]) == (True, None, session.opened["pid"])
    assert session.run("kept")["value"] == "1"


def test_a_closed_session_leaves_nothing(mother: Nursery) -> None:
    session = Session(mother)
    pid, link = session.opened["pid"], session.connect()
    link.send({"op": "close", "grace": 5})
    assert link.next()["ev"] == "closing"
    assert link.next()["ev"] == "closed"
    assert session.control.expect("closed") == {"ev": "closed"}
    assert not is_running(pid)
    assert not session.link_path.is_symlink()
    with pytest.raises((EOFError, ConnectionResetError)):
        link.next()
    assert list(mother.sockets.iterdir()) == []


def test_an_interpreter_that_does_not_leave_is_killed_after_the_grace(mother: Nursery) -> None:
    session = Session(mother)
    session.run("import threading\nthreading.Thread(target=threading.Event().wait).start()")
    begun = time.monotonic()
    session.close(0.3)
    assert 0.3 <= time.monotonic() - begun < 5


def test_closing_a_session_cancels_the_call_that_runs_and_that_is_told_of_the_end(
    session: Session,
) -> None:
    directory, link = session.begin("import time\ntime.sleep(600)")
    session.close()
    record = link.expect("ended")["record"]
    assert (record["cause"], record["exitCode"]) == ("cancelled", 1)
    assert record["sessionReset"] is True
    assert read_exit(directory) == record
    assert not session.link_path.is_symlink()


def test_a_session_in_use_is_not_closed_for_being_idle(session: Session) -> None:
    directory, link = session.begin("import time\ntime.sleep(600)")
    assert session.close(onlyIdle=True) == "busy"
    link.send({"op": "cancel", "dir": str(directory), "grace": 5})
    assert link.expect("ended")["record"]["sessionReset"] is False
    assert session.run("1")["value"] == "1"
    assert session.close(onlyIdle=True, isLost=True) == "closed"
    assert os.readlink(session.link_path) == "lost"
    session.link_path.unlink()


def test_a_session_for_one_call_ends_with_it(mother: Nursery) -> None:
    session = Session(mother, link=None, once=True)
    session.link_path = Path("unused")
    answer = session.run("40 + 2", link=session.control)
    assert answer["value"] == "42"
    assert not is_running(session.opened["pid"])
    session.control.expect("gone")


def once(mother: Nursery, **changes: Any) -> Session:
    """A session for one call, which is to be sent on `session.control`."""
    return Session(mother, link=None, once=True, **changes)


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import atexit; atexit.register(lambda: print('bye')); print('main')", "main\nbye\n"),
        ("import atexit; atexit.register(lambda: print('by', end='')); print('m', end='')", "mby"),
        ("class C:\n  def __del__(self): print('gone')\nc = C()", "gone\n"),
        (
            "import sys; below = sys.stdout.detach(); sys.stdout = None; n = below.write(b'said')",
            "said",
        ),
        (
            "import threading, time\ndef work():\n  time.sleep(0.3)\n  print('done')\n"
            "threading.Thread(target=work).start()\nprint('main')",
            "main\ndone\n",
        ),
    ],
)
def test_a_call_with_an_interpreter_of_its_own_ends_when_that_does(
    mother: Nursery, code: str, output: str
) -> None:
    session = once(mother)
    answer = session.run(code + "\n'value'", link=session.control)
    assert answer.output == output
    assert (answer["cause"], answer["exitCode"], answer["value"]) == ("exit", 0, "'value'")
    assert (answer["sessionReset"], answer["survivors"]) == (False, [])
    session.control.expect("gone")


@pytest.mark.parametrize(
    ("code", "exit_code", "error"),
    [
        ("1 / 0", 1, {"type": "ZeroDivisionError", "message": "division by zero"}),
        ("import sys; sys.exit(3)", 3, None),
        ("import os; os._exit(4)", 4, None),
        ("import atexit, os; atexit.register(os._exit, 5)", 5, None),
    ],
)
def test_the_status_of_an_interpreter_of_one_call_is_the_calls(
    mother: Nursery, code: str, exit_code: int, error: dict[str, str] | None
) -> None:
    session = once(mother)
    answer = session.run(code, link=session.control)
    assert (answer["cause"], answer["exitCode"], answer["error"]) == ("exit", exit_code, error)
    session.control.expect("gone")


LINGERING = (
    "import atexit, threading\natexit.register(print, 'bye')\n"
    "never = threading.Event()\nthreading.Thread(target=never.wait, daemon={}).start()\n"
    "print('on', flush=True)"
)


@pytest.mark.parametrize("cause", ["cancelled", "deadline"])
def test_an_interpreter_that_waits_for_its_threads_is_interrupted_and_then_killed(
    mother: Nursery, cause: str
) -> None:
    session = once(mother)
    deadline = 0.5 if cause == "deadline" else None
    code = LINGERING.format(False) + "\nimport signal; n = signal.signal(2, lambda *_: print('2'))"
    directory, link = session.begin(code, link=session.control, deadline=deadline)
    wait_for_output(directory, link, 3)
    if cause == "cancelled":
        link.send({"op": "cancel", "dir": str(directory), "grace": 0.3})
    record = link.expect("ended")["record"]
    assert (record["cause"], record["signal"], record["survivors"]) == (cause, 9, [])
    link.expect("gone")


def test_an_interrupt_ends_an_interpreter_that_waits_for_its_threads(mother: Nursery) -> None:
    session = once(mother)
    # The pause: CPython may miss an interrupt that comes just when its main thread begins to wait.
    code = (
        "import atexit, threading, time\natexit.register(print, 'bye')\n"
        "def work():\n    threading.main_thread().join()\n    time.sleep(0.2)\n    print('on')\n"
        "    threading.Event().wait()\nthreading.Thread(target=work).start()"
    )
    directory, link = session.begin(code, link=session.control)
    wait_for_output(directory, link, 3)
    link.send({"op": "cancel", "dir": str(directory), "grace": 9})
    record = link.expect("ended")["record"]
    assert (record["cause"], record["signal"]) == ("cancelled", None)
    assert (directory / "output").read_text().endswith("bye\n")
    link.expect("gone")


def test_threads_that_do_not_keep_an_interpreter_do_not_keep_its_call(mother: Nursery) -> None:
    session = once(mother)
    answer = session.run(LINGERING.format(True), link=session.control)
    assert (answer.output, answer["exitCode"]) == ("on\nbye\n", 0)
    session.control.expect("gone")


def test_threads_that_print_without_end_do_not_keep_an_interpreter_from_its_own(
    mother: Nursery,
) -> None:
    session = once(mother)
    code = (
        "import threading\nprinting = threading.Event()\n"
        "def work():\n    while True:\n        print('x')\n        printing.set()\n"
        "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
        "n = printing.wait()\n"
        "class C:\n    def __del__(self): print('gone')\nc = C()"
    )
    answer = session.run(code, link=session.control, deadline=5)
    assert (answer["cause"], answer["exitCode"]) == ("exit", 0)
    assert answer.output.count("gone\n") == 1
    session.control.expect("gone")


def test_a_fork_of_a_call_with_an_interpreter_of_its_own_ends_as_a_script_does(
    mother: Nursery,
) -> None:
    session = once(mother)
    code = (
        "import atexit, os\natexit.register(print, 'bye')\npid = os.fork()\n"
        "if pid: n = os.waitpid(pid, 0)\nprint('child' if pid == 0 else 'parent')"
    )
    answer = session.run(code, link=session.control)
    assert answer.output == "child\nbye\nparent\nbye\n"
    session.control.expect("gone")


def test_a_session_for_one_call_that_nobody_asks_for_ends(mother: Nursery) -> None:
    session = Session(mother, link=None, once=True)
    fd = os.pidfd_open(session.opened["pid"])
    session.control.close()
    os.close(fd)
    # Whatever lives on after the test fails it.


def test_a_session_lives_while_an_engine_listens_and_once_none_does_it_ends_with_a_mark(
    mother: Nursery,
) -> None:
    place = mother.home / "engine.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
        engine.bind(str(place))
        engine.listen()
        engine.settimeout(LIMIT)
        session = Session(mother, engine=str(place), alone=0.24)
        session.control.close()
        for _ in range(15):  # looks: more than would do, had nobody listened
            engine.accept()[0].close()
        answer = session.run("x = 1; x")
        assert answer["value"] == "1"
        keeper = int(os.readlink(session.link_path).split()[0])
    fd = os.pidfd_open(keeper)
    try:
        # In use it is for whoever holds a link, the call's for one.
        assert not select.select([fd], [], [], 0.5)[0]
        answer.link.close()
        assert select.select([fd], [], [], LIMIT)[0] == [fd]
    finally:
        os.close(fd)
    assert os.readlink(session.link_path) == "lost"


# -- calls -----------------------------------------------------------------------------------------


def test_the_record_of_a_call_is_written_down_exactly(session: Session) -> None:
    answer = session.run("print('out')\n[1]")
    assert read_exit(answer.directory) == answer.record
    assert answer.record == {
        "pid": session.opened["pid"],
        "cause": "exit",
        "exitCode": 0,
        "signal": None,
        "error": None,
        "value": "[1]",
        "sessionReset": False,
        "startedAt": answer["startedAt"],
        "endedAt": answer["startedAt"] + answer["durationMs"],
        "durationMs": answer["durationMs"],
        "cpuMs": answer["cpuMs"],
        "cwd": "/",
        "survivors": [],
        "sizes": [4],
        "dropped": [[]],
    }
    assert answer.link.expect("gone") == {"ev": "gone", "sizes": [4], "dropped": [[]]}
    assert os.readlink(answer.directory / "claim") == os.readlink(session.link_path)


def test_the_longest_value_survives_in_the_record(session: Session) -> None:
    answer = session.run("'é' * 9000")
    assert read_exit(answer.directory)["value"] == "'" + "é" * 4095
    assert (answer.directory / "exit").stat().st_size == 32768


def test_processor_time_is_the_calls_own(session: Session) -> None:
    busy = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    assert 250 <= session.run(busy)["cpuMs"] <= 600
    assert session.run("1")["cpuMs"] <= 100


def test_a_second_call_is_told_that_the_session_is_busy_and_stays_unclaimed(
    session: Session,
) -> None:
    first, link = session.begin("import time\ntime.sleep(600)")
    second, other = session.send("1")
    assert other.next() == {"ev": "busy", "dir": str(first)}
    assert list(second.iterdir()) == []
    link.send({"op": "cancel", "dir": str(first), "grace": 5})
    link.expect("ended")


def test_a_call_that_is_claimed_is_left_alone(session: Session) -> None:
    directory = session.mother.directory("a00001x")
    (directory / "claim").symlink_to("engine")
    _directory, link = session.send("print('never')", dir=str(directory))
    assert link.next() == {"ev": "taken"}
    assert session.run("1")["value"] == "1"


def test_a_call_whose_directory_is_gone_is_refused(session: Session) -> None:
    _directory, link = session.send("1", dir="/no/such/dir")
    assert link.next()["ev"] == "refused"
    assert session.run("1")["value"] == "1"


def test_growth_is_told_while_a_call_runs_and_one_who_attaches_hears_of_it(
    session: Session,
) -> None:
    directory, link = session.begin("import time\nprint('one', flush=True)\ntime.sleep(600)")
    wait_for_output(directory, link, 4)
    again = session.connect()
    again.send({"op": "attach", "dir": str(directory)})
    state = again.expect("state")
    assert (state["record"], state["sizes"], state["cwd"]) == (None, [4], "/")
    assert state["pid"] == session.opened["pid"]
    link.close()
    again.send({"op": "cancel", "dir": str(directory), "grace": 5})
    assert again.expect("signalled")["pids"] == [session.opened["pid"]]
    assert again.expect("ended")["record"]["cause"] == "cancelled"
    again.expect("gone")
    again.send({"op": "attach", "dir": str(directory)})
    assert again.expect("absent") == {"ev": "absent"}


# -- ending a call ---------------------------------------------------------------------------------


def test_cancel_interrupts_the_code_and_the_session_lives_on(session: Session) -> None:
    session.run("kept = 1")
    directory, link = session.begin("import time\nprint('on', flush=True)\ntime.sleep(600)")
    wait_for_output(directory, link, 3)
    link.send({"op": "cancel", "dir": str(directory), "grace": 9})
    record = link.expect("ended")["record"]
    assert (record["cause"], record["exitCode"]) == ("cancelled", 1)
    assert record["sessionReset"] is False
    assert record["error"]["type"] == "KeyboardInterrupt"
    assert (directory / "output").read_text().endswith("KeyboardInterrupt\n")
    assert session.run("kept")["value"] == "1"


def test_cancel_ends_the_processes_of_the_call_too(session: Session) -> None:
    code = "import subprocess, time\nsubprocess.Popen(['sh', '-c', {!r}])\ntime.sleep(600)"
    directory, link = session.begin(
        code.format("trap '' TERM; sleep 600 & echo on; wait; sleep 601")
    )
    wait_for_output(directory, link, 3)
    link.send({"op": "cancel", "dir": str(directory), "grace": 0.5})
    record = link.expect("ended")["record"]
    assert (record["cause"], record["sessionReset"]) == ("cancelled", False)
    assert len(record["survivors"]) == 2
    link.expect("gone")
    assert session.run("1")["value"] == "1"


def test_code_that_does_not_end_within_the_grace_dies_with_its_interpreter(
    session: Session,
) -> None:
    directory, link = session.begin(STUBBORN)
    wait_for_output(directory, link, 3)
    link.send({"op": "cancel", "dir": str(directory), "grace": 0.3})
    record = link.expect("ended")["record"]
    assert (record["cause"], record["exitCode"], record["signal"]) == ("cancelled", None, 9)
    assert record["sessionReset"] is True
    assert read_exit(directory) == record
    assert session.control.expect("closed") == {"ev": "closed"}
    assert not session.link_path.is_symlink()


def test_an_interrupt_that_comes_too_late_does_not_reach_the_next_call(session: Session) -> None:
    for _ in range(40):
        directory, link = session.begin("1")
        link.send({"op": "cancel", "dir": str(directory), "grace": 5})
        link.expect("ended")
        answer = session.run("sum(range(1000))")
        assert (answer["value"], answer["exitCode"]) == ("499500", 0)


def test_an_interrupt_between_calls_is_nobodys(session: Session) -> None:
    session.run("kept = 1")
    os.kill(session.opened["pid"], signal.SIGINT)
    assert session.run("kept")["value"] == "1"


def test_a_handler_that_code_sets_for_interrupts_lives_on(session: Session) -> None:
    session.run("import signal, time\nsignal.signal(2, lambda *_: print('mine', flush=True))")
    directory, link = session.begin("print(1, flush=True)\ntime.sleep(0.7)\n'slept'")
    wait_for_output(directory, link, 2)
    link.send({"op": "cancel", "dir": str(directory), "grace": 9})
    record = link.expect("ended")["record"]
    assert (record["cause"], record["value"], record["exitCode"]) == ("cancelled", "'slept'", 0)
    assert (directory / "output").read_text() == "1\nmine\n"


def test_an_interrupt_before_the_code_has_begun_is_not_lost(session: Session) -> None:
    directory, link = session.send("import time\ntime.sleep(600)")
    link.send({"op": "cancel", "dir": str(directory), "grace": 9})
    record = link.expect("ended")["record"]
    assert (record["cause"], record["sessionReset"]) == ("cancelled", False)


def test_a_deadline_ends_a_call_as_a_cancel_does(session: Session) -> None:
    answer = session.run("import time\ntime.sleep(600)", deadline=0.3)
    assert (answer["cause"], answer["sessionReset"]) == ("deadline", False)
    assert 300 <= answer["durationMs"] < 5000
    assert session.run("1")["value"] == "1"


@pytest.mark.parametrize(
    ("code", "cause", "exit_code", "number"),
    [
        ("import os; print('last', flush=True); os._exit(4)", "exit", 4, None),
        ("import os; print('last'); os.kill(os.getpid(), 9)", "signal", None, 9),
        ("import os; print('last'); os.abort()", "signal", None, 6),
        ("import ctypes; print('last'); ctypes.string_at(0)", "signal", None, 11),
        ("import os; print('last'); os.kill(0, 15)", "signal", None, 15),
        ("import os; print('last'); os.closerange(3, 1024)", "exit", 1, None),
        ("import os; os.execvp('sh', ['sh', '-c', 'echo last; exit 7'])", "exit", 7, None),
    ],
)
def test_a_call_that_its_interpreter_does_not_survive_resets_the_session(
    session: Session, code: str, cause: str, exit_code: int | None, number: int | None
) -> None:
    answer = session.run(code)
    assert (answer["cause"], answer["exitCode"], answer["signal"]) == (cause, exit_code, number)
    assert (answer["sessionReset"], answer["value"], answer["error"]) == (True, None, None)
    assert answer.output == "last\n"
    answer.link.expect("gone")
    session.control.expect("closed")
    assert not session.link_path.is_symlink()


def test_a_call_that_comes_when_the_interpreter_has_just_died_is_not_taken(
    mother: Nursery,
) -> None:
    session = Session(mother)
    first, _pid = left_behind(session, "sleep", "600")
    keeper = keeper_of(session)
    os.kill(keeper, signal.SIGSTOP)
    os.kill(session.opened["pid"], signal.SIGKILL)
    wait_dead(session.opened["pid"])
    directory, link = session.send("1")
    os.kill(keeper, signal.SIGCONT)
    assert link.next() == {"ev": "closed"}
    assert list(directory.iterdir()) == []
    assert session.control.expect("closed") == {"ev": "closed"}
    first.link.send({"op": "cancel", "dir": str(first.directory), "grace": 5})
    first.link.expect("gone")


def test_an_interpreter_that_dies_between_calls_closes_the_session_and_leaves_a_mark(
    mother: Nursery,
) -> None:
    session = Session(mother)
    session.run("1")
    os.kill(session.opened["pid"], signal.SIGKILL)
    assert session.control.expect("closed") == {"ev": "closed"}
    assert os.readlink(session.link_path) == "lost"


def test_a_result_that_code_forges_for_another_call_is_not_believed(session: Session) -> None:
    code = (
        "import json, os, time\n"
        "word = dict(ev='done', call='tb00001', exitCode=0, value='f', error=None, cpu=0, held=0)\n"
        "os.write(200, json.dumps(word).encode() + b'\\n')\ntime.sleep(600)\n"
    )
    answer = session.run(code)
    assert (answer["cause"], answer["signal"], answer["sessionReset"]) == ("signal", 9, True)
    assert answer["value"] is None


# -- what a call leaves behind ---------------------------------------------------------------------


def test_a_process_left_behind_is_the_survivor_of_its_call_alone(session: Session) -> None:
    first, pid = left_behind(session, "sleep", "600")
    assert first["survivors"] == [{"pid": pid, "command": "sleep 600"}]
    second, other = left_behind(session, "sleep", "601")
    assert second["survivors"] == [{"pid": other, "command": "sleep 601"}]
    first.link.send({"op": "cancel", "dir": str(first.directory), "grace": 5})
    assert first.link.expect("signalled")["pids"] == [pid]
    first.link.expect("gone")
    assert is_running(other)
    assert session.run("1")["value"] == "1"
    second.link.send({"op": "survey", "dir": str(second.directory)})
    survivors = second.link.expect("survivors")["survivors"]
    assert survivors == [{"pid": other, "command": "sleep 601"}]
    second.link.send({"op": "cancel", "dir": str(second.directory), "grace": 5})
    second.link.expect("gone")
    assert read_exit(first.directory)["cause"] == "exit"


def test_output_of_a_process_left_behind_is_kept_for_its_call(session: Session) -> None:
    first = session.run(
        "import subprocess\n"
        "child = subprocess.Popen(['sh', '-c', 'read word; echo $word'], stdin=subprocess.PIPE)"
    )
    second = session.run("child.communicate(b'late\\n')\nchild.wait()")
    assert (second.output, second["value"]) == ("", "0")
    assert first.link.expect("gone")["sizes"] == [5]
    assert first.output == "late\n"
    assert read_exit(first.directory)["sizes"] == [5]


@pytest.mark.parametrize(
    "escape",
    [
        "setsid sleep 600 >/dev/null 2>&1 & ",
        "(setsid sh -c 'sleep 600 & sleep 601' &)",
        "(setsid env -i sleep 600 &)",
    ],
)
def test_cancel_of_a_call_finds_whoever_fled_and_spares_an_earlier_calls(
    session: Session, escape: str
) -> None:
    earlier, pid = left_behind(session, "sleep", "599")
    directory, link = session.begin(
        f"import subprocess, time\nsubprocess.run({escape!r}, shell=True)\n"
        "print('on', flush=True)\ntime.sleep(600)"
    )
    wait_for_output(directory, link, 3)
    link.send({"op": "cancel", "dir": str(directory), "grace": 5})
    assert pid not in link.expect("signalled")["pids"]
    record = link.expect("ended")["record"]
    assert (record["cause"], record["sessionReset"]) == ("cancelled", False)
    link.expect("gone")
    assert is_running(pid)
    earlier.link.send({"op": "cancel", "dir": str(earlier.directory), "grace": 5})
    earlier.link.expect("gone")


def test_survivors_of_earlier_calls_live_on_when_the_interpreter_dies(session: Session) -> None:
    first, pid = left_behind(session, "sleep", "600")
    session.run("import os; os._exit(1)")
    session.control.expect("closed")
    assert is_running(pid)
    first.link.send({"op": "cancel", "dir": str(first.directory), "grace": 5})
    assert first.link.expect("signalled")["pids"] == [pid]
    first.link.expect("gone")


def test_a_call_to_a_session_that_is_over_is_told_so(session: Session) -> None:
    first, _pid = left_behind(session, "sleep", "600")
    session.run("import os; os._exit(1)")
    session.control.expect("closed")
    directory, link = session.send("1", link=first.link)
    assert link.expect("closed") == {"ev": "closed"}
    assert list(directory.iterdir()) == []
    first.link.send({"op": "cancel", "dir": str(first.directory), "grace": 5})
    first.link.expect("gone")


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[Bell]:
    bell = Bell(tmp_path / "bell")
    yield bell
    bell.close()


def test_calls_whose_threads_have_ended_are_forgotten_without_another_call(
    session: Session, bell: Bell
) -> None:
    begin = "threading.Thread(target={}, daemon=True).start()"
    first = session.run(
        "import threading\nend = threading.Event()\n"
        f"def work():\n    {bell.wait}\n    end.set()\n" + begin.format("work")
    )
    links = [first.link] + [session.run(begin.format("end.wait")).link for _ in range(63)]
    refused = session.send("1")[1].expect("refused")
    assert refused["message"] == (
        "64 calls of this session have left threads or processes that live:"
        " cancel ends the processes, reset_session the threads too"
    )
    bell.ring()
    for link in links:
        link.expect("gone")
    assert session.run("1")["value"] == "1"


def test_cancel_of_an_ended_call_with_threads_alone_signals_nobody_and_kills_nobody_later(
    session: Session, bell: Bell
) -> None:
    first = session.run(
        "import subprocess, threading\n"
        f"def work():\n    {bell.wait}\n"
        "    print(subprocess.Popen(['sleep', '600']).pid)\n"
        "threading.Thread(target=work).start()"
    )
    first.link.send({"op": "cancel", "dir": str(first.directory), "grace": 0})
    assert first.link.expect("signalled")["pids"] == []
    bell.ring()
    wait_for_output(first.directory, first.link, 2)
    pid = int(first.output)
    fd = os.pidfd_open(pid)
    assert not select.select([fd], [], [], 0.6)[0]
    os.close(fd)
    first.link.send({"op": "cancel", "dir": str(first.directory), "grace": 5})
    assert first.link.expect("signalled")["pids"] == [pid]
    first.link.expect("gone")


def test_hundreds_of_calls_leak_no_descriptor(session: Session) -> None:
    keeper, worker = keeper_of(session), session.opened["pid"]
    session.run("1").link.close()
    session.run("1")
    before = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (keeper, worker)]
    link = session.connect()
    for i in range(200):
        answer = session.run(str(i), link=link, streams=("merged", "split")[i % 2])
        assert answer["value"] == str(i)
        link.expect("gone")
    after = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (keeper, worker)]
    assert after[0] <= before[0] + 1
    assert after[1] == before[1]


# -- blocked ---------------------------------------------------------------------------------------


def test_code_that_stands_still_is_idle_until_it_computes(session: Session) -> None:
    code = "import time\ntime.sleep(1.5)\nfor i in range(3_000_000): pass\ntime.sleep(60)"
    directory, link = session.begin(code, idle=0.4)
    assert link.expect("blocked", "ended")["category"] == "idle"
    assert link.expect("unblocked", "ended")["ev"] == "unblocked"
    again = session.connect()
    link.expect("blocked")
    again.send({"op": "attach", "dir": str(directory)})
    assert again.expect("state")["blocked"] == "idle"
    link.send({"op": "cancel", "dir": str(directory), "grace": 5})
    link.expect("ended")
