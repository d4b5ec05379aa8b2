"""`execute` with `code`: the callers' Python sessions, over the wire."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import NO_FLOOR, Caller, Client, Engine, Gate, is_running, wait_gone


def py(caller: Caller, code: str, **named: Any) -> dict[str, Any]:
    return caller.call("execute", code=code, **named)


def value(caller: Caller, code: str, **named: Any) -> str | None:
    reply = py(caller, code, **named)
    assert reply["status"] == "succeeded", reply
    found: str | None = reply["value"]
    return found


def waits(gate: Gate) -> str:
    """Code that waits until the gate is opened; an interrupt ends it."""
    return f"open({str(gate.path)!r}).readline()"


def tells(bell: Gate) -> str:
    """Code that makes `hear` return."""
    return f"print('told', file=open({str(bell.path)!r}, 'w'))"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Engine]:
    """An engine of the test's own, which it may kill."""
    with Engine(tmp_path / "home", *NO_FLOOR, "--slots", "2") as engine:
        yield engine


# -- what comes back ---------------------------------------------------------------------------


def test_the_value_of_a_last_expression_comes_back_beside_the_output(caller: Caller) -> None:
    reply = py(caller, "import json\nprint('hi')\njson.loads('[1, \"é\"]')")
    assert (reply["status"], reply["exitCode"], reply["reason"]) == ("succeeded", 0, "exit")
    assert (reply["output"], reply["value"]) == ("hi\n", "[1, 'é']")
    assert (reply["error"], reply["sessionReset"]) == (None, False)


@pytest.mark.parametrize("code", ["x = 5", "None", "print(end='')", "# nothing"])
def test_where_there_is_no_value_it_is_null(caller: Caller, code: str) -> None:
    reply = py(caller, code)
    assert (reply["status"], reply["value"], reply["output"]) == ("succeeded", None, "")


def test_a_value_is_cut_at_8_kib(caller: Caller) -> None:
    assert value(caller, "'x' * 100_000") == "'" + "x" * 8191


def test_an_uncaught_exception_fails_with_a_traceback_that_has_no_frame_of_ours(
    caller: Caller,
) -> None:
    reply = py(caller, "def f():\n    return {}['k']\n\nf()")
    assert (reply["status"], reply["exitCode"], reply["value"]) == ("failed", 1, None)
    assert reply["error"] == {"type": "KeyError", "message": "'k'"}
    name = f'"<call {reply["taskId"]}>"'
    lines = [line for line in reply["output"].splitlines() if "^" not in line]
    assert lines == [
        "Traceback (most recent call last):",
        f"  File {name}, line 4, in <module>",
        "    f()",
        f"  File {name}, line 2, in f",
        "    return {}['k']",
        "KeyError: 'k'",
    ]
    again = caller.wait(reply["taskId"])
    assert (again["error"], again["value"]) == (reply["error"], None)


def test_what_does_not_compile_fails_as_an_exception(caller: Caller) -> None:
    reply = py(caller, "x = (")
    assert (reply["status"], reply["exitCode"]) == ("failed", 1)
    assert reply["error"] == {
        "type": "SyntaxError",
        "message": f"'(' was never closed (<call {reply['taskId']}>, line 1)",
    }


@pytest.mark.parametrize(
    ("argument", "code", "output"), [("3", 3, ""), ("", 0, ""), ("'why'", 1, "why\n")]
)
def test_sys_exit_ends_the_call_and_not_the_session(
    caller: Caller, argument: str, code: int, output: str
) -> None:
    py(caller, "kept = 1")
    reply = py(caller, f"import sys; sys.exit({argument})")
    assert (reply["exitCode"], reply["output"], reply["error"]) == (code, output, None)
    assert (reply["reason"], reply["sessionReset"]) == ("exit", False)
    assert value(caller, "kept") == "1"


def test_only_calls_of_code_have_value_and_session_reset(caller: Caller) -> None:
    assert not {"value", "sessionReset", "error"} & caller.execute("true").keys()
    assert not {"value", "sessionReset", "error"} & caller.bash("true").keys()


def test_rows_say_code_and_read_task_shows_it(caller: Caller) -> None:
    reply = py(caller, "\n# first\n1 + 1")
    (row,) = caller.call("list_tasks")["tasks"]
    assert (row["kind"], row["title"], row["status"]) == ("code", "# first", "succeeded")
    task = caller.call("read_task", taskId=reply["taskId"])
    assert (task["command"], task["session"]) == ("\n# first\n1 + 1", True)


# -- how it is asked for -----------------------------------------------------------------------


def test_input_variables_directory_and_streams_are_as_for_any_job(
    caller: Caller, tmp_path: Path
) -> None:
    py(caller, "import os, sys; here = os.getcwd()")
    reply = py(
        caller,
        "print(input(), os.environ['FRUIT'], os.getcwd()); print('e', file=sys.stderr)",
        stdin={"text": "in\n"},
        env={"FRUIT": "fig"},
        cwd=str(tmp_path),
        streams="split",
    )
    assert (reply["stdout"], reply["stderr"]) == (f"in fig {tmp_path}\n", "e\n")
    assert reply["cwd"] == str(tmp_path)
    assert "cwdMissing" not in reply
    assert value(caller, "os.getcwd() == here, os.environ.get('FRUIT')") == "(True, None)"


def test_the_code_knows_its_task_and_caller(caller: Caller) -> None:
    reply = py(
        caller,
        "import os; [os.environ[n] for n in ('ENGINE_TASK_ID', 'ENGINE_CALLER', 'TERM')]",
    )
    assert reply["value"] == repr([reply["taskId"], caller.name, "dumb"])


def test_a_directory_that_is_not_there_is_no_start(caller: Caller, tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    reply = py(caller, "1", cwd=missing)
    assert (reply["status"], reply["reason"], reply["exitCode"]) == ("failed", "spawn_error", 127)
    assert reply["error"]["errno"] == 2
    assert (missing in reply["error"]["message"], reply["cwd"]) == (True, missing)
    assert value(caller, "1") == "1"


def test_a_new_session_whose_directory_is_gone_starts_in_its_nearest_parent_and_says_so(
    engine: Engine, tmp_path: Path
) -> None:
    missing = str(tmp_path / "none" / "deeper")
    with engine.connect() as client:
        client.call("hello", cwd=missing)
        reply = py(client.caller(), "import os; os.getcwd()")
    assert (reply["value"], reply["cwdMissing"]) == (repr(str(tmp_path)), missing)


def test_a_session_whose_directory_has_gone_goes_on_in_the_nearest_parent_and_says_so(
    caller: Caller, tmp_path: Path
) -> None:
    gone = tmp_path / "a" / "b"
    gone.mkdir(parents=True)
    py(caller, f"import os; os.chdir({str(gone)!r})")
    gone.rmdir()
    reply = py(caller, "os.getcwd()")
    assert (reply["value"], reply["cwdMissing"]) == (repr(str(tmp_path / "a")), str(gone))
    assert "cwdMissing" not in py(caller, "os.getcwd()")


def test_a_mebibyte_of_code_is_run(caller: Caller) -> None:
    code = "x = 1\n" + "#" * (1_048_576 - 8) + "\nx"
    assert len(code) == 1_048_576
    assert value(caller, code) == "1"


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"code": ""}, "$.code"),
        ({"code": "x" * 1_048_577}, "$.code"),
        ({"code": "\0"}, "$.code"),
        ({"code": 1}, "$.code"),
        ({"code": "1", "argv": ["true"]}, "$"),
        ({"code": "1", "pty": True}, "$.pty"),
        ({"code": "1", "stdin": "open"}, "$.stdin"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_call_of_code_is_refused(
    caller: Caller, members: dict[str, Any], path: str
) -> None:
    error = caller.refuse("execute", **members)
    assert (error["code"], error["data"]["path"]) == (-32602, path)


def test_one_key_is_one_run(caller: Caller) -> None:
    py(caller, "runs = 0")
    first = py(caller, "runs += 1; runs", key="K")
    again = py(caller, "runs += 1; runs", key="K", timeout_secs=3)
    assert (first["taskId"], first["value"]) == (again["taskId"], again["value"])
    assert value(caller, "runs") == "1"
    error = caller.refuse("execute", code="runs", key="K")
    assert (error["code"], error["data"]["kind"]) == (-32013, "key_conflict")


def test_a_deadline_interrupts_and_the_session_lives_on(caller: Caller) -> None:
    py(caller, "kept = 1")
    reply = py(caller, "import time; time.sleep(600)", deadline_secs=0.2)
    assert (reply["status"], reply["reason"], reply["sessionReset"]) == (
        "timed_out",
        "deadline",
        False,
    )
    assert reply["durationMs"] < 5_000
    assert value(caller, "kept") == "1"


def test_output_of_its_own_children_is_kept_also_of_one_left_behind(
    caller: Caller, gate: Gate
) -> None:
    code = (
        "import subprocess\n"
        "subprocess.run(['echo', 'child'])\n"
        "print('code')\n"
        f"left = subprocess.Popen(['bash', '-c', {gate.wait + '; echo late'!r}])"
    )
    reply = py(caller, code)
    assert reply["output"] == "child\ncode\n"
    assert [survivor["command"][:4] for survivor in reply["survivors"]] == ["bash"]
    gate.open()
    assert value(caller, "left.wait()") == "0"
    page = caller.call("read_output", taskId=reply["taskId"], offset=11)
    while not page["text"]:  # the task has ended, so nothing is waited for
        page = caller.call("read_output", taskId=reply["taskId"], offset=11)
    assert page["text"] == "late\n"


def test_cancel_of_a_finished_call_ends_what_it_left_behind(caller: Caller) -> None:
    reply = py(caller, "import subprocess; left = subprocess.Popen(['sleep', '600'])")
    (survivor,) = reply["survivors"]
    done = caller.cancel(reply["taskId"])
    assert (done["outcome"], done["signalled"]) == ("already_finished", [survivor["pid"]])
    wait_gone(survivor["pid"])
    assert value(caller, "left.wait()") == "-15"


# -- sessions ----------------------------------------------------------------------------------


def test_names_imports_and_the_directory_live_on_from_call_to_call(caller: Caller) -> None:
    py(caller, "import os, math\ndef twice(x): return 2 * x\nos.chdir('/usr')")
    assert value(caller, "twice(math.floor(2.5)), os.getcwd()") == "(4, '/usr')"


def test_each_caller_has_an_interpreter_of_its_own(client: Client) -> None:
    one, other = client.caller(), client.caller()
    mine, theirs = (value(c, "x = 1; import os; os.getpid()") for c in (one, other))
    assert mine != theirs
    py(one, "x = 2")
    assert (value(one, "x"), value(other, "x")) == ("2", "1")


def test_the_same_caller_on_another_connection_has_the_same_session(
    engine: Engine, caller: Caller
) -> None:
    py(caller, "x = 7")
    with engine.connect() as client:
        assert value(caller.on(client), "x") == "7"


def test_callers_run_side_by_side(client: Client, gate: Gate) -> None:
    one, other = client.caller(), client.caller()
    waiting = one.send("execute", code=waits(gate))
    py(other, f"open({str(gate.path)!r}, 'w').write('\\n')")
    assert waiting.result()["value"] == "'\\n'"


def test_a_long_call_is_promoted_and_keeps_its_session(
    caller: Caller, gate: Gate, bell: Gate
) -> None:
    reply = py(caller, f"kept = 1; {tells(bell)}; {waits(gate)}; kept = 2", timeout_secs=0)
    assert (reply["status"], reply["taskId"][0]) == ("running", "t")
    bell.hear()
    gate.open()
    assert caller.wait(reply["taskId"])["status"] == "succeeded"
    assert value(caller, "kept") == "2"


def test_a_call_to_a_busy_session_is_a_kickoff_that_says_whom_it_waits_for(
    caller: Caller, gate: Gate
) -> None:
    first = py(caller, f"order = []; {waits(gate)}", timeout_secs=0)
    calls = [py(caller, f"order.append({n}); order", timeout_secs=0) for n in (1, 2, 3)]
    reason = f"python session busy with {first['taskId']}"
    assert [call["queueReason"] for call in calls] == [reason] * 3
    assert [call["queuePosition"] for call in calls] == [1, 2, 3]
    assert all("taskId" not in call for call in calls)
    (row,) = (
        row
        for row in caller.call("list_tasks")["tasks"]
        if row["kickoffId"] == calls[1]["kickoffId"]
    )
    assert (row["status"], row["queuePosition"], row["queueReason"]) == ("queued", 2, reason)
    assert caller.cancel(calls[1]["kickoffId"])["outcome"] == "cancelled"
    gate.open()
    last = caller.wait(calls[2]["kickoffId"])
    assert (last["value"], last["taskId"]) == ("[1, 3]", "t" + calls[2]["kickoffId"][1:])
    ended = caller.wait(calls[0]["kickoffId"])
    assert (ended["status"], ended["value"]) == ("succeeded", "[1]")
    assert caller.wait(calls[1]["kickoffId"])["status"] == "cancelled"


def test_an_inline_call_to_a_busy_session_goes_on_within_its_budget(
    caller: Caller, gate: Gate
) -> None:
    py(caller, waits(gate), timeout_secs=0)
    second = caller.send("execute", code="42")
    assert not second.is_answered(0.2)
    gate.open()
    assert second.result()["value"] == "42"


def test_a_call_that_waits_for_its_turn_takes_no_slot(own: Engine, gate: Gate) -> None:
    with own.connect() as client:  # two slots
        caller = client.caller()
        first = py(caller, waits(gate), timeout_secs=0)
        waiting = [py(caller, f"{n}", timeout_secs=0) for n in range(3)]
        assert caller.bash("echo free")["output"] == "free\n"
        info = client.call("engine_info")
        assert (info["running"], info["queued"]) == (1, 3)
        gate.open()
        assert [caller.wait(call["kickoffId"])["value"] for call in waiting] == ["0", "1", "2"]
        assert caller.wait(first["taskId"])["status"] == "succeeded"


def test_turns_and_slots_are_told_apart_and_the_order_of_acceptance_stands(
    own: Engine, gate: Gate, tmp_path: Path
) -> None:
    with own.connect() as client, Gate(tmp_path / "other") as other:  # two slots
        caller, busy = client.caller(), client.caller()
        first = py(caller, waits(gate), timeout_secs=0)
        filler = busy.start(other.wait)
        second = py(caller, "2", timeout_secs=0)
        third = caller.start("echo 3")
        assert second["queueReason"] == f"python session busy with {first['taskId']}"
        assert third["queueReason"] == "all 2 slots are busy"
        gate.open()
        caller.wait(first["taskId"])
        done = [caller.wait(call["kickoffId"]) for call in (second, third)]
        other.open()
        busy.wait(filler["taskId"])
    assert done[0]["startedAt"] <= done[1]["startedAt"]


def test_behind_one_that_waits_for_a_slot_the_reason_is_the_slots(own: Engine, gate: Gate) -> None:
    with own.connect() as client:  # two slots
        busy, caller = client.caller(), client.caller()
        tasks = [busy.start(gate.wait) for _ in range(2)]
        calls = [py(caller, f"{n}", timeout_secs=0) for n in range(2)]
        assert [call["queueReason"] for call in calls] == ["all 2 slots are busy"] * 2
        assert [call["queuePosition"] for call in calls] == [1, 2]
        gate.open(2)
        for task in tasks:
            busy.wait(task["taskId"])
        assert [caller.wait(call["kickoffId"])["value"] for call in calls] == ["0", "1"]


def test_cancel_interrupts_and_the_session_lives_on(caller: Caller, bell: Gate) -> None:
    py(caller, "kept = 1")
    running = py(caller, f"{tells(bell)}\nimport time; time.sleep(600)", timeout_secs=0)
    bell.hear()
    done = caller.cancel(running["taskId"])
    assert (done["status"], done["outcome"], done["survivors"]) == ("cancelled", "cancelled", [])
    reply = caller.wait(running["taskId"])
    assert reply["error"] == {"type": "KeyboardInterrupt", "message": ""}
    assert (reply["status"], reply["sessionReset"]) == ("cancelled", False)
    assert reply["output"].splitlines()[-1] == "KeyboardInterrupt"
    assert value(caller, "kept") == "1"


def test_code_that_does_not_end_within_the_grace_is_killed_and_the_next_call_has_a_new_session(
    caller: Caller, bell: Gate
) -> None:
    py(caller, "kept = 1")
    code = (
        f"import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{tells(bell)}\n"
        "time.sleep(600)"
    )
    running = py(caller, code, timeout_secs=0)
    bell.hear()
    assert caller.cancel(running["taskId"], grace_secs=0.2)["outcome"] == "cancelled"
    reply = caller.wait(running["taskId"])
    assert (reply["status"], reply["exitCode"], reply["signal"]) == ("cancelled", None, "SIGKILL")
    assert reply["sessionReset"]
    assert py(caller, "kept")["error"]["type"] == "NameError"


@pytest.mark.parametrize(
    ("end", "code", "signal"),
    [
        ("os._exit(3)", 3, None),
        ("os._exit(0)", 0, None),
        ("os.kill(os.getpid(), 9)", None, "SIGKILL"),
    ],
)
def test_a_session_that_died_has_failed_says_so_and_is_followed_by_a_new_one(
    caller: Caller, end: str, code: int | None, signal: str | None
) -> None:
    pid = value(caller, "kept = 1; import os; os.getpid()")
    reply = py(caller, f"print('last words'); {end}")
    assert (reply["status"], reply["exitCode"], reply["signal"]) == ("failed", code, signal)
    assert (reply["sessionReset"], reply["value"], reply["output"]) == (True, None, "last words\n")
    assert py(caller, "kept")["error"]["type"] == "NameError"
    assert value(caller, "import os; os.getpid()") != pid


def test_the_call_after_an_interpreter_was_killed_between_calls_is_told(caller: Caller) -> None:
    pid = int(value(caller, "kept = 1; import os; os.getpid()") or 0)
    os.kill(pid, 9)
    wait_gone(pid)
    reply = py(caller, "'kept' in globals()")
    assert (reply["status"], reply["value"], reply["sessionReset"]) == ("succeeded", "False", True)
    assert caller.wait(reply["taskId"])["sessionReset"]
    assert not py(caller, "1")["sessionReset"]


def test_the_call_after_a_call_that_killed_its_interpreter_is_not_told_again(
    caller: Caller,
) -> None:
    assert py(caller, "import os; os._exit(0)")["sessionReset"]
    assert not py(caller, "1")["sessionReset"]


def test_without_the_session_code_runs_in_a_fresh_interpreter_and_leaves_no_trace(
    caller: Caller, gate: Gate
) -> None:
    pid = value(caller, "x = 1; import os; os.getpid()")
    busy = py(caller, waits(gate), timeout_secs=0)
    assert py(caller, "x", session=False)["error"]["type"] == "NameError"  # nor does it wait
    fresh = py(caller, "x = 2; import os; os.getpid()", session=False)
    assert (fresh["value"] != pid, fresh["sessionReset"]) == (True, False)
    wait_gone(int(fresh["value"]))
    gate.open()
    caller.wait(busy["taskId"])
    assert value(caller, "x") == "1"
    exited = py(caller, "import os; os._exit(0)", session=False)
    assert (exited["status"], exited["sessionReset"]) == ("succeeded", False)


def test_reset_ends_the_session_and_leaves_the_shell_alone(caller: Caller) -> None:
    caller.bash("X=shell")
    pid = int(value(caller, "x = 1; import os; os.getpid()") or 0)
    assert caller.call("reset_session", kind="python") == {"as": caller.name, "kind": "python"}
    assert not is_running(pid)
    assert py(caller, "x")["error"]["type"] == "NameError"
    assert caller.bash("echo $X")["output"] == "shell\n"
    pid = int(value(caller, "import os; os.getpid()") or 0)
    caller.call("reset_session", kind="bash")
    assert value(caller, "os.getpid()") == str(pid)


def test_reset_cancels_what_runs_and_what_waits_goes_on_in_a_new_session(
    caller: Caller, bell: Gate
) -> None:
    code = f"x = 1\n{tells(bell)}\nimport time; time.sleep(600)"
    running = py(caller, code, timeout_secs=0)
    waiting = py(caller, "'x' in globals()", timeout_secs=0)
    bell.hear()
    caller.call("reset_session", kind="python")
    reset = caller.wait(running["taskId"])
    assert (reset["status"], reset["sessionReset"]) == ("cancelled", True)
    following = caller.wait(waiting["kickoffId"])
    assert (following["value"], following["sessionReset"]) == ("False", False)


def test_a_caller_without_a_name_takes_its_session_along_once_its_calls_have_ended(
    engine: Engine, client: Client, gate: Gate, bell: Gate
) -> None:
    stranger = engine.connect()
    pid = int(stranger.call("execute", code="import os; os.getpid()")["value"])
    task = stranger.call("execute", code=f"{tells(bell)}; {waits(gate)}", timeout_secs=0)
    bell.hear()
    stranger.close()
    assert is_running(pid)
    gate.open()
    assert client.caller().wait(task["taskId"])["status"] == "succeeded"
    wait_gone(pid)


# -- an interpreter for one call ----------------------------------------------------------------


def test_a_call_in_a_fresh_interpreter_ends_when_that_does(
    caller: Caller, gate: Gate, bell: Gate
) -> None:
    code = (
        "import atexit, threading\natexit.register(print, 'bye')\n"
        f"def work():\n    {tells(bell)}\n    {waits(gate)}\n    print('done')\n"
        "threading.Thread(target=work).start()\nprint('main'); 7"
    )
    reply = py(caller, code, session=False, timeout_secs=0)
    bell.hear()
    assert caller.wait(reply["taskId"], timeout_secs=0)["status"] == "running"
    gate.open()
    reply = caller.wait(reply["taskId"])
    assert (reply["status"], reply["exitCode"], reply["value"]) == ("succeeded", 0, "7")
    assert (reply["output"], reply["survivors"]) == ("main\ndone\nbye\n", [])


def test_a_fresh_interpreter_that_waits_for_its_threads_can_be_cancelled(
    caller: Caller, bell: Gate
) -> None:
    code = (
        "import threading\nnever = threading.Event()\n"
        f"def work():\n    {tells(bell)}\n    never.wait()\n"
        "threading.Thread(target=work).start()"
    )
    reply = py(caller, code, session=False, timeout_secs=0)
    bell.hear()
    done = caller.cancel(reply["taskId"], grace_secs=0.2)
    assert (done["outcome"], done["survivors"]) == ("cancelled", [])
    assert caller.wait(reply["taskId"])["status"] == "cancelled"


# -- threads -----------------------------------------------------------------------------------


def test_a_thread_left_behind_prints_for_its_own_call_while_none_runs(
    caller: Caller, gate: Gate
) -> None:
    code = (
        f"import threading\ndef talk():\n    {waits(gate)}\n    print('late')\n"
        "thread = threading.Thread(target=talk)\nthread.start()"
    )
    first = py(caller, code)
    assert py(caller, "print('mine')")["output"] == "mine\n"
    gate.open()
    page = caller.call("read_output", taskId=first["taskId"])
    while not page["text"]:  # the task has ended, so nothing is waited for
        page = caller.call("read_output", taskId=first["taskId"])
    assert page["text"] == "late\n"


def test_cancel_of_an_ended_call_with_a_thread_alone_is_answered_at_once(
    caller: Caller, gate: Gate
) -> None:
    code = "import threading\nthread = threading.Thread(target=lambda: {})\nthread.start()"
    reply = py(caller, code.format(waits(gate)))
    begun = time.monotonic()
    done = caller.cancel(reply["taskId"], grace_secs=8)
    assert time.monotonic() - begun < 5
    assert (done["outcome"], done["signalled"], done["survivors"]) == ("already_finished", [], [])
    gate.open()
    assert value(caller, "thread.join()") is None


# -- which interpreter -------------------------------------------------------------------------


def test_the_interpreter_is_that_of_an_activated_environment(
    engine: Engine, tmp_path: Path
) -> None:
    venv = make_venv(tmp_path / "venv")
    with engine.connect() as client:
        client.call("hello", env={"PATH": f"{venv}/bin:/usr/bin:/bin"})
        caller = client.caller()
        assert value(caller, "import sys; sys.prefix") == repr(str(venv))
        assert value(caller, "import sys; sys.prefix", session=False) == repr(str(venv))
    with engine.connect() as client:  # the session is there, whatever PATH says now
        client.call("hello", env={"PATH": "/nowhere"})
        assert value(caller.on(client), "sys.prefix") == repr(str(venv))


def make_venv(path: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    return path


def test_an_environment_that_the_callers_shell_has_activated_counts(
    caller: Caller, tmp_path: Path
) -> None:
    venv = make_venv(tmp_path / "venv")
    other = py(caller, "import sys; sys.prefix")["value"]
    caller.bash(f". {venv}/bin/activate")
    assert value(caller, "sys.prefix") == other  # the session is there
    assert value(caller, "import sys; sys.prefix", session=False) == repr(str(venv))
    caller.call("reset_session", kind="python")
    assert value(caller, "import sys; sys.prefix") == repr(str(venv))
    program = "import subprocess as s; s.check_output(['which', 'python3'], text=True)"
    assert value(caller, program) == repr(f"{venv}/bin/python3\n")


def test_the_path_in_a_calls_own_variables_finds_a_new_interpreter_and_is_not_the_sessions(
    engine: Engine, tmp_path: Path
) -> None:
    venv = make_venv(tmp_path / "venv")
    env = {"PATH": f"{venv}/bin:/usr/bin:/bin"}
    with engine.connect() as client:
        client.call("hello", env={"PATH": "/usr/bin:/bin"})
        caller = client.caller()
        assert value(caller, "import sys; sys.prefix", session=False, env=env) == repr(str(venv))
        assert value(caller, "import os, sys; sys.prefix", env=env) == repr(str(venv))
        assert value(caller, "sys.prefix, os.environ['PATH']") == repr((str(venv), "/usr/bin:/bin"))


def test_a_folder_of_the_path_is_looked_for_from_the_directory_of_the_start(
    engine: Engine, tmp_path: Path
) -> None:
    venv = make_venv(tmp_path / "venv")
    with engine.connect() as client:
        client.call("hello", cwd=str(tmp_path), env={"PATH": "venv/bin:/usr/bin:/bin"})
        assert value(client.caller(), "import sys; sys.prefix") == repr(str(venv))


def test_an_interpreter_that_is_not_there_is_no_start(engine: Engine) -> None:
    with engine.connect() as client:
        client.call("hello", env={"PATH": "/nowhere"})
        reply = py(client.caller(), "1")
    assert (reply["status"], reply["reason"], reply["exitCode"]) == ("failed", "spawn_error", 127)
    assert reply["error"]["errno"] == 2
    assert re.search("python3: No such file", reply["error"]["message"])
    assert (reply["value"], reply["sessionReset"]) == (None, False)


def slow_python(folder: Path, bell: Gate, gate: Gate) -> dict[str, str]:
    """An environment whose python3 tells that it is there and waits before it is one."""
    script = folder / "python3"
    script.write_text(f'#!/bin/bash\n{bell.tell}\n{gate.wait}\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize("session", [True, False])
def test_a_call_is_cancelled_while_its_interpreter_starts(
    engine: Engine, tmp_path: Path, bell: Gate, gate: Gate, session: bool
) -> None:
    with engine.connect() as client:
        client.call("hello", env=slow_python(tmp_path, bell, gate))
        caller = client.caller()
        call = caller.send("execute", code="1", session=session)
        bell.hear()
        (done,) = caller.call("cancel", caller=caller.name)["tasks"]
        assert (done["status"], done["outcome"]) == ("cancelled", "cancelled")
        reply = call.result()
        assert (reply["status"], reply["startedAt"]) == ("cancelled", None)
        gate.open(2)  # the session's own interpreter goes on starting
        assert value(caller, "2", session=session) == "2"


# -- the engine goes and comes -----------------------------------------------------------------


def is_interpreter(pid: int) -> bool:
    try:
        return b"<session>" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def restart(engine: Engine) -> None:
    engine.kill()
    engine.start()


def test_a_session_is_found_again_after_a_restart_between_calls(own: Engine) -> None:
    with own.connect() as client:
        pid = value(Caller(client, "ci"), "x = 5; import os; os.getpid()")
    restart(own)
    with own.connect() as client:
        assert value(Caller(client, "ci"), "x, os.getpid()") == f"(5, {pid})"


def test_a_call_outlives_the_engine_and_those_that_wait_for_it_go_on_in_order(
    own: Engine, gate: Gate, bell: Gate
) -> None:
    with own.connect() as client:
        ci = Caller(client, "ci")
        code = f"order = []; {tells(bell)}; print('before'); {waits(gate)}; print('after'); 'end'"
        running = py(ci, code, timeout_secs=0)
        waiting = [py(ci, f"order.append({n}); order", timeout_secs=0) for n in range(4)]
        bell.hear()
    restart(own)
    with own.connect() as client:
        ci = Caller(client, "ci")
        reply = ci.wait(waiting[0]["kickoffId"], timeout_secs=0)
        assert reply["queueReason"] == f"python session busy with {running['taskId']}"
        late = py(ci, "order", timeout_secs=0)
        assert late["queuePosition"] == 5
        gate.open()
        reply = ci.wait(running["taskId"])
        assert (reply["status"], reply["value"]) == ("succeeded", "'end'")
        assert reply["output"] == "before\nafter\n"
        assert ci.wait(late["kickoffId"])["value"] == "[0, 1, 2, 3]"


def test_a_call_that_ends_while_the_engine_is_down_is_known_with_its_value(
    own: Engine, gate: Gate, bell: Gate, tmp_path: Path
) -> None:
    with own.connect() as client:
        code = f"{tells(bell)}; {waits(gate)}; {{}}['k']"
        task = py(Caller(client, "ci"), code, timeout_secs=0)["taskId"]
        bell.hear()
    own.kill()
    gate.open()
    exit_file = own.home / "tasks" / task[1:] / "exit"
    subprocess.run(["bash", "-c", f"until grep -q KeyError {exit_file}; do :; done"], check=True)
    own.start()
    with own.connect() as client:
        ci = Caller(client, "ci")
        reply = ci.wait(task)
        assert (reply["status"], reply["sessionReset"]) == ("failed", False)
        assert reply["error"] == {"type": "KeyError", "message": "'k'"}
        assert value(ci, "1") == "1"


def test_a_call_is_cancelled_by_the_next_engine_and_the_session_lives_on(
    own: Engine, bell: Gate
) -> None:
    with own.connect() as client:
        code = f"kept = 1; {tells(bell)}\nimport time; time.sleep(600)"
        task = py(Caller(client, "ci"), code, timeout_secs=0)["taskId"]
        bell.hear()
    restart(own)
    with own.connect() as client:
        ci = Caller(client, "ci")
        assert ci.cancel(task)["outcome"] == "cancelled"
        assert value(ci, "kept") == "1"


def test_a_session_whose_call_folder_was_removed_is_waited_for_all_the_same(
    own: Engine, gate: Gate, bell: Gate
) -> None:
    with own.connect() as client:
        code = f"x = 1; {tells(bell)}; {waits(gate)}; x = 2"
        task = py(Caller(client, "ci"), code, timeout_secs=0)["taskId"]
        bell.hear()
    own.kill()
    subprocess.run(["rm", "-r", own.home / "tasks" / task[1:]], check=True)
    own.start()
    with own.connect() as client:
        ci = Caller(client, "ci")
        assert ci.wait(task)["status"] == "lost"
        call = ci.send("execute", code="x")
        assert not call.is_answered(0.3)
        gate.open()
        assert call.result()["value"] == "2"


def test_an_interpreter_that_was_starting_when_the_engine_was_killed_is_not_left_over(
    own: Engine, tmp_path: Path, bell: Gate, gate: Gate
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    with own.connect() as client:
        client.call("hello", env=slow_python(folder, bell, gate))
        call = Caller(client, "ci").send("execute", code="import os; os.getpid()", key="K")
        bell.hear()
        own.kill()
        assert call.id
    own.start()
    bell.hear()  # the queued call has an interpreter of its own started
    gate.open(2)
    with own.connect() as client:
        ci = Caller(client, "ci")
        (row,) = ci.call("list_tasks")["tasks"]
        pid = ci.wait(row["kickoffId"])["value"]
        assert value(ci, "os.getpid()") == pid
        left = [p for p in own.processes() if str(p) != pid and is_interpreter(p)]
        for interpreter in left:
            wait_gone(interpreter)


def test_a_session_that_died_while_the_engine_was_down_is_told_of(own: Engine) -> None:
    with own.connect() as client:
        pid = int(value(Caller(client, "ci"), "kept = 1; import os; os.getpid()") or 0)
    own.kill()
    os.kill(pid, 9)
    wait_gone(pid)
    own.start()
    with own.connect() as client:
        ci = Caller(client, "ci")
        reply = py(ci, "'kept' in globals()")
        assert (reply["value"], reply["sessionReset"]) == ("False", True)
        assert not py(ci, "1")["sessionReset"]


def test_of_too_many_sessions_the_one_that_is_idle_longest_is_closed_and_its_caller_told(
    own: Engine,
) -> None:
    own.kill()
    own.start("--set", "python_sessions=2")
    with own.connect() as client:
        one, two, three = (Caller(client, name) for name in ("one", "two", "three"))
        pids = [int(value(c, "import os; os.getpid()") or 0) for c in (one, two)]
        assert value(one, "os.getpid()") == str(pids[0])
        value(three, "1")
        wait_gone(pids[1])
        assert value(one, "os.getpid()") == str(pids[0])
        asked = {"logs": "info", "after_seq": 0, "contains": "session closed", "timeout_secs": 20}
        closed = [line["text"] for line in client.call("read_logs", as_="two", **asked)["lines"]]
        assert closed == [f"python session closed caller=two pid={pids[1]} most=2"]
        assert py(two, "1")["sessionReset"]


def test_strangers_sessions_of_a_killed_engine_are_closed_by_the_next(own: Engine) -> None:
    with own.connect() as client:
        pid = int(client.call("execute", code="import os; os.getpid()")["value"])
        own.kill()
    own.start()
    wait_gone(pid)
    with own.connect() as client:
        while list((own.home / "sessions").iterdir()):  # nobody is told when it has gone
            client.call("engine_info")


def test_shutdown_leaves_sessions_and_with_cancel_ends_them(own: Engine) -> None:
    with own.connect() as client:
        pid = int(value(Caller(client, "ci"), "x = 1; import os; os.getpid()") or 0)
    own.stop()
    own.start()
    assert is_running(pid)
    with own.connect("human") as client:
        client.call("shutdown", mode="cancel")
        assert own.wait_exit() == 0
    wait_gone(pid)
    own.start()
    with own.connect() as client:
        assert py(Caller(client, "ci"), "1")["sessionReset"]
