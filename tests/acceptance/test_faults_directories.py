"""Task directories that are half written, foreign, or that a job has laid hands on."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.running import NO_FLOOR, Caller, Engine, Gate

pytestmark = pytest.mark.fault

PRECIOUS = b"precious\n" * 1000
PLACES = ("output", "exit", "spec.json", "claim", "")  # of a task's directory; itself
PUT = {
    "a link": "ln -s {precious} {place}",
    "a second name": "ln {precious} {place}",
    "a folder": "mkdir {place}; echo mine > {place}/mine",
    "a pipe": "mkfifo {place}",
    "nothing": ":",
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine:
        yield engine


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A file and a folder outside the home, which must be afterwards as they are now."""
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_bytes(PRECIOUS)
    folder.mkdir()
    for name in ("output", "exit", "spec.json"):
        (folder / name).write_bytes(PRECIOUS)
    yield {"file": file, "folder": folder}
    assert file.read_bytes() == PRECIOUS
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == dict.fromkeys(
        ("output", "exit", "spec.json"), PRECIOUS
    )


def told(caller: Caller, method: str, **params: Any) -> dict[str, Any]:
    """A reply, or an error, whichever comes."""
    message = caller.send(method, **params).message()
    found: dict[str, Any] = message.get("result") or message["error"]
    return found


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("what", PUT)
def test_nothing_outside_the_home_is_touched_whatever_a_job_puts_into_its_directory(
    engine: Engine, tmp_path: Path, precious: dict[str, Path], what: str, is_restarted: bool
) -> None:
    places = [name for name in PLACES if name or what != "a second name"]
    with Gate(tmp_path / "go") as go, Gate(tmp_path / "bell") as bell:
        with engine.connect() as client:
            caller = Caller(client, "ci")
            tasks = {}
            for name in places:
                place = f"$ENGINE_HOME/tasks/${{ENGINE_TASK_ID:1}}/{name}".rstrip("/")
                put = PUT[what].format(precious=precious["file" if name else "folder"], place=place)
                text = f"echo one; rm -rf {place}; {put}; {bell.tell}; {go.wait}; echo two; exit 7"
                tasks[name] = caller.start(text, session=False)["taskId"]
                bell.hear()
            assert len(caller.call("list_tasks")["tasks"]) == len(places)  # the index has them
        if is_restarted:
            engine.kill()
            engine.start()
        go.open(len(places))
        with engine.connect() as client:
            caller = Caller(client, "ci")
            ends = {name: caller.wait(task) for name, task in tasks.items()}
            for name, end in ends.items():
                check_end(end, name, what, is_restarted=is_restarted)
                told(caller, "read_output", taskId=tasks[name])
                done = caller.cancel(tasks[name], grace_secs=0)
                assert done["outcome"] == "already_finished"
        engine.kill()
        engine.start()
        with engine.connect() as client:
            caller = Caller(client, "ci")
            for name, task in tasks.items():
                again, end = caller.wait(task), ends[name]
                assert (again["status"], again["exitCode"]) == (end["status"], end["exitCode"])
                assert caller.call("forget", taskId=task)["status"] == "forgotten"
            assert caller.bash("echo well")["output"] == "well\n"
        engine.stop()
        engine.start()
        with engine.connect() as client:
            assert len(client.call("list_tasks", caller="*")["tasks"]) == 1


def check_end(end: dict[str, Any], name: str, what: str, *, is_restarted: bool) -> None:
    """The job's own end; `lost` where it has taken from us what would have told of it."""
    seen = {"", PRECIOUS.decode()} if name in ("output", "") else {"one\n", "one\ntwo\n"}
    facts = (end["status"], end["exitCode"])
    if is_restarted and name == "":
        assert facts == ("lost", None)
    elif is_restarted and name in ("claim", "exit"):  # as its end was there before it was looked at
        assert facts in (("lost", None), ("failed", 7)), name
    else:
        assert facts == ("failed", 7), name
    assert what == "a second name" or end["output"] in seen, name


@pytest.mark.parametrize("cut", ["spec.json", "output", "exit", "claim"])
@pytest.mark.parametrize("how", ["gone", "empty", "half"])
def test_a_directory_that_is_half_written_costs_no_other_task(
    engine: Engine, cut: str, how: str
) -> None:
    """Of a task that has ended, and of one that no reply has told of."""
    with engine.connect() as client:
        caller = Caller(client, "ci")
        known = caller.bash("echo known; exit 3")["taskId"]
        other = caller.bash("echo other; exit 4")["taskId"]
    engine.kill()
    tasks = engine.home / "tasks"
    shutil.copytree(tasks / known[1:], tasks / "copied", symlinks=True)
    spec = (tasks / "copied/spec.json").read_bytes()
    (tasks / "copied/spec.json").write_bytes(spec.replace(known[1:].encode(), b"copied"))
    for name in (known[1:], "copied"):
        path = tasks / name / cut
        data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        path.unlink()
        if how != "gone":
            path.write_bytes(b"" if how == "empty" else data[: len(data) // 2])
    engine.start()
    with engine.connect() as client:
        caller = Caller(client, "ci")
        end = caller.wait(known)
        assert (end["status"], end["exitCode"]) == ("failed", 3)  # the index has it
        assert end["output"] == ("known\n" if cut != "output" else "kno"[: 3 * (how == "half")])
        assert caller.wait(other)["output"] == "other\n"
        rows = {row["taskId"]: row for row in caller.call("list_tasks")["tasks"]}
        if cut == "spec.json":
            assert set(rows) == {known, other}  # nobody was told of that one
            (aside,) = (engine.home / "aside").iterdir()
            assert aside.name.startswith("copied-")
        else:
            assert set(rows) == {known, other, "tcopied"}
            again = caller.wait("tcopied")
            assert (again["status"], again["exitCode"]) in (("failed", 3), ("lost", None))
        assert caller.bash("echo well")["output"] == "well\n"


@pytest.mark.parametrize("is_known", [True, False])
def test_a_directory_that_cannot_be_read_costs_no_other_task(
    tmp_path: Path, is_known: bool
) -> None:
    # Root may read everything, but for one without these.
    caps = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    prefix = caps if os.getuid() == 0 else ()
    with Engine(tmp_path / "home", *NO_FLOOR, prefix=prefix) as engine:
        with engine.connect() as client:
            caller = Caller(client, "ci")
            closed = caller.bash("echo closed")["taskId"]
            other = caller.bash("echo other")["taskId"]
            caller.call("list_tasks")  # the index has both
        engine.kill()
        if not is_known:
            for path in engine.home.glob("index.db*"):
                path.unlink()
        path = engine.home / "tasks" / closed[1:]
        path.chmod(0)
        try:
            engine.start()
            with engine.connect() as client:
                caller = Caller(client, "ci")
                assert caller.wait(other)["output"] == "other\n"
                assert caller.bash("echo well")["output"] == "well\n"
                if is_known:
                    assert caller.wait(closed)["output"] == ""
        finally:
            path.chmod(0o700)
        if not is_known:  # left where it is; the next start reads it
            engine.kill()
            engine.start()
        with engine.connect() as client:
            assert Caller(client, "ci").wait(closed)["output"] == "closed\n"


@pytest.mark.parametrize("last", ["exit 3", "kill -9 $PPID; exit"])
def test_an_output_that_its_job_has_made_longer_than_a_disk_delays_nobody(
    engine: Engine, tmp_path: Path, last: str
) -> None:
    began = time.monotonic()
    with Gate(tmp_path / "go") as go, Gate(tmp_path / "bell") as bell, engine.connect() as client:
        caller = Caller(client, "ci")
        place = "$ENGINE_HOME/tasks/${ENGINE_TASK_ID:1}/output"
        text = f"seq 200000; truncate -s 3T {place}; {bell.tell}; {go.wait}; {last}"
        task = caller.start(text, session=False)["taskId"]
        bell.hear()
        size = 1_288_895
        assert caller.wait(task, timeout_secs=0)["outputBytes"] <= size + 4096
        go.open()
        end = caller.wait(task)
        if last == "exit 3":
            assert (end["status"], end["outputBytes"]) == ("failed", size)
            assert end["output"].endswith("\n200000\n")
        else:  # the file has to tell, a page at a time
            assert (end["status"], end["droppedBytes"]) == ("lost", 0)
            assert size <= end["outputBytes"] < size + 4096
        assert caller.bash("echo well")["output"] == "well\n"
    assert engine.stop() == 0
    assert time.monotonic() - began < 5
