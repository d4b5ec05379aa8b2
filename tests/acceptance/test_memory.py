"""`memory_bytes`, in a cgroup (v2) that the engine may divide; without one, it is refused."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.running import Engine, Gate, wait_gone

MIB = 1 << 20
ROOM = 192 * MIB  # for jobs that are to do well
# Memory that is written to, from a program that says how far it has come.
EAT = "import sys\nheld = []\nwhile True:\n    held.append(bytearray(1 << 20)); print(len(held))"


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup with the memory controller, which is ours; it must be empty again at the end."""
    root = Path("/sys/fs/cgroup")
    try:
        has_memory = "memory" in (root / "cgroup.controllers").read_text().split()
        if not has_memory or os.getuid():
            pytest.skip("needs root and the memory controller in cgroup v2")
        (root / "cgroup.subtree_control").write_text("+memory")
        path = root / f"engine-test-{os.getpid()}"
        path.mkdir()
    except OSError as exc:
        pytest.skip(f"no cgroup v2 to be had: {exc}")
    yield path
    for folder, _, _ in os.walk(path, topdown=False):
        os.rmdir(folder)


@pytest.fixture
def engine(tmp_path: Path, cgroup: Path) -> Iterator[Engine]:
    # As systemd puts it there: in the leaf, once there is one (DelegateSubgroup=).
    leaf = f"{cgroup}/engine.leaf"
    enter = f"[ -d {leaf} ] && into={leaf} || into={cgroup}; echo $$ > $into/cgroup.procs; "
    prefix = ("sh", "-c", enter + 'exec "$0" "$@"')
    with Engine(tmp_path / "home", "--set", "min_free_bytes=0", prefix=prefix) as engine:
        yield engine


def jobs(cgroup: Path) -> list[Path]:
    return [path for path in cgroup.iterdir() if path.name.startswith("job-")]


def wait_empty(cgroup: Path) -> None:
    """Wait until no job has a cgroup. What a keeper takes away, nobody is told of."""
    limit = time.monotonic() + 10
    while jobs(cgroup) and time.monotonic() < limit:
        time.sleep(0.01)
    assert jobs(cgroup) == []


def wait_handed_back(cgroup: Path) -> None:
    """Wait until the controller is not handed down: then a new engine can be started in it."""
    limit = time.monotonic() + 10
    while (cgroup / "cgroup.subtree_control").read_text().strip() and time.monotonic() < limit:
        time.sleep(0.01)
    assert (cgroup / "cgroup.subtree_control").read_text().strip() == ""


@pytest.mark.parametrize("session", [True, False])
def test_a_job_over_its_limit_is_killed_whole_and_says_why(
    engine: Engine, cgroup: Path, session: bool
) -> None:
    text = f"sleep 600 & python3 -c '{EAT}'; echo after"
    with engine.connect() as client:
        caller = client.caller()
        reply = caller.bash(text, memory_bytes=48 * MIB, session=session)
        while reply["status"] == "running":  # a slow machine
            reply = caller.wait(reply["taskId"])
        lines = caller.call("read_logs", taskId=reply["taskId"], logs="error", timeout_secs=20)
        line = lines["lines"][-1]
        again = caller.bash("echo hi", session=session)
    assert (reply["status"], reply["reason"]) == ("failed", "out_of_memory")
    assert (reply["exitCode"], reply["signal"]) == (None, "SIGKILL")
    assert "after" not in reply["output"]
    assert reply["survivors"] == []
    assert 40 * MIB < reply["maxRssBytes"] <= 48 * MIB
    assert line["text"] == f"task {reply['taskId']} failed (out of memory)"
    assert (again["output"], again["maxRssBytes"]) == ("hi\n", None)
    wait_empty(cgroup)


def test_a_job_within_its_limit_is_measured_and_leaves_nothing(
    engine: Engine, cgroup: Path
) -> None:
    with engine.connect() as client:
        reply = client.caller().execute(
            "python3", "-c", "held = bytearray(64 << 20)", memory_bytes=ROOM
        )
    assert (reply["status"], reply["exitCode"]) == ("succeeded", 0)
    assert 64 * MIB < reply["maxRssBytes"] < ROOM
    wait_empty(cgroup)
    wait_handed_back(cgroup)
    assert (cgroup / "cgroup.procs").read_text() == ""


def test_every_process_of_the_job_is_in_its_cgroup_and_the_engine_is_not(
    engine: Engine, cgroup: Path
) -> None:
    show = "cat /proc/self/cgroup; (cat /proc/self/cgroup); setsid cat /proc/self/cgroup"
    with engine.connect() as client:
        caller = client.caller()
        name = "0::/" + cgroup.name
        inside = caller.bash(show, memory_bytes=ROOM)
        piped = caller.bash(show, memory_bytes=ROOM, pty=True, session=False)
        outside = caller.bash(show)
    mine = [line for line in inside["output"].splitlines() if line.startswith("0::")]
    assert len(set(mine)) == 1
    assert len(mine) == 3
    assert mine[0].startswith(f"{name}/job-")
    assert mine[0].endswith("-" + inside["taskId"][1:])
    assert f"{name}/job-" in piped["output"]
    assert set(outside["output"].split()) >= {f"{name}/engine.leaf"}
    assert f"{name}/engine.leaf\n" in Path(f"/proc/{engine.pid}/cgroup").read_text()


def test_the_session_carries_over_a_call_with_a_limit(engine: Engine) -> None:
    with engine.connect() as client:
        caller = client.caller()
        caller.bash("cd /usr; export A=1; f() { echo from f; }")
        caller.bash("cd bin; A=2", memory_bytes=ROOM)
        assert caller.bash('pwd; echo "$A"; f')["output"] == "/usr/bin\n2\nfrom f\n"


def test_what_cannot_be_started_in_a_cgroup_says_what_it_says_elsewhere(engine: Engine) -> None:
    with engine.connect() as client:
        caller = client.caller()
        missing = caller.execute("/no/such/program", memory_bytes=ROOM)
        closed = caller.execute("/etc/passwd", memory_bytes=ROOM)
        fed = caller.execute("cat", stdin={"text": "typed"}, memory_bytes=ROOM, streams="split")
    assert (missing["status"], missing["reason"], missing["exitCode"]) == (
        *("failed", "spawn_error"),
        127,
    )
    assert (closed["reason"], closed["exitCode"]) == ("spawn_error", 126)
    assert (fed["status"], fed["stdout"]) == ("succeeded", "typed")


def test_a_limit_under_which_no_program_starts_is_out_of_memory(
    engine: Engine, cgroup: Path
) -> None:
    with engine.connect() as client:
        reply = client.caller().execute("true", memory_bytes=1)
    assert (reply["status"], reply["reason"]) == ("failed", "out_of_memory")
    wait_empty(cgroup)


def test_a_cancel_or_a_deadline_is_what_it_was_also_under_a_limit(engine: Engine) -> None:
    with engine.connect() as client:
        caller = client.caller()
        late = caller.execute("sleep", "600", memory_bytes=ROOM, deadline_secs=0.3)
        task = caller.start("sleep 600", memory_bytes=ROOM)["taskId"]
        done = caller.cancel(task)
    assert (late["status"], late["reason"]) == ("timed_out", "deadline")
    assert done["status"] == "cancelled"


def test_an_end_for_want_of_memory_is_known_though_no_engine_ran_then(
    engine: Engine, cgroup: Path, tmp_path: Path
) -> None:
    with Gate(tmp_path / "go") as go:
        with engine.connect() as client:
            caller = client.caller()
            text = f"echo $$; {go.wait}; python3 -c '{EAT}' >/dev/null"
            task = caller.start(text, memory_bytes=48 * MIB)["taskId"]
            page = caller.call("read_output", taskId=task, timeout_secs=20)
        engine.kill()
        go.open()
        wait_gone(int(page["text"]))
    wait_empty(cgroup)
    engine.start()
    with engine.connect() as client:
        reply = caller.on(client).wait(task)
    assert (reply["status"], reply["reason"]) == ("failed", "out_of_memory")
    assert 40 * MIB < reply["maxRssBytes"] <= 48 * MIB


def test_the_next_engine_finds_a_job_and_its_limit_as_they_were(
    engine: Engine, cgroup: Path
) -> None:
    with engine.connect() as client:
        caller = client.caller()
        task = caller.start("read -r _", stdin="open", memory_bytes=ROOM)["taskId"]
    engine.kill()
    engine.start()
    (job,) = jobs(cgroup)
    with engine.connect() as client:
        caller = caller.on(client)
        caller.bash("true", memory_bytes=ROOM)
        assert (job / "memory.max").read_text() == f"{ROOM}\n"
        assert (job / "memory.swap.max").read_text() == "0\n"
        caller.call("write_stdin", taskId=task, text="go\n")
        assert caller.wait(task)["status"] == "succeeded"
    wait_empty(cgroup)


def test_what_a_killed_keeper_left_is_removed_once_nobody_is_in_it(
    engine: Engine, cgroup: Path
) -> None:
    with engine.connect() as client:
        caller = client.caller()
        task = caller.start("echo $PPID; sleep 600", memory_bytes=ROOM)["taskId"]
        page = caller.call("read_output", taskId=task, timeout_secs=20)
        os.kill(int(page["text"]), signal.SIGKILL)
        assert caller.wait(task)["status"] == "lost"
        (job,) = jobs(cgroup)
        assert job.name.endswith(task[1:])
        caller.cancel(task)
        assert caller.bash("true", memory_bytes=ROOM)["status"] == "succeeded"
        wait_empty(cgroup)
        # and by the next engine
        task = caller.start("echo $PPID; sleep 600", memory_bytes=ROOM)["taskId"]
        page = caller.call("read_output", taskId=task, timeout_secs=20)
        engine.kill()
        os.kill(int(page["text"]), signal.SIGKILL)
        (job,) = jobs(cgroup)
        for pid in (job / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
            wait_gone(int(pid))
    engine.start()
    assert jobs(cgroup) == []


def test_an_engine_without_a_cgroup_of_its_own_refuses_and_says_what_to_do(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    with Engine(home, "--set", "min_free_bytes=0") as engine, engine.connect() as client:
        error = client.caller().refuse("bash", command="true", memory_bytes=MIB)
    assert error["code"] == -32602
    assert error["message"].startswith(
        "$.memory_bytes: expected nothing: this engine has no cgroup of its own to divide ("
    )
    assert error["message"].endswith("Delegate=yes has one: engine install-service")


def test_code_has_no_limit_of_its_own(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Engine(home, "--set", "min_free_bytes=0") as engine, engine.connect() as client:
        error = client.caller().refuse("execute", code="1", memory_bytes=MIB)
    assert error["message"].startswith("$.memory_bytes: expected nothing beside code")
