"""Parts of a home that are removed, locked or held while it is used."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from acceptance.faulty import degraded
from acceptance.running import LIMIT, NO_FLOOR, PROGRAM, Caller, Engine

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine whose home each test leaves whole."""
    with Engine(tmp_path_factory.mktemp("faults") / "home", *NO_FLOOR) as engine:
        yield engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine:
        yield engine


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def serve(home: Path) -> tuple[int, str]:
    """Exit code and standard error of an engine that does not start."""
    done = subprocess.run(
        [PROGRAM, "serve", "--home", home, *NO_FLOOR], capture_output=True, text=True, timeout=LIMIT
    )
    return done.returncode, done.stderr


# -- removed -----------------------------------------------------------------------------------


def test_the_folder_of_tasks_to_come_may_be_removed_at_any_time(
    shared: Engine, tmp_path: Path
) -> None:
    with shared.connect() as client:
        caller = client.caller()
        caller.bash("export KEPT=5")
        for number in range(3):
            # In one step: the engine makes new ones while a tree is removed.
            (shared.home / "tasks" / ".ahead").rename(tmp_path / f"gone-{number}")
            assert caller.bash("echo $KEPT")["output"] == "5\n"
            assert caller.bash("echo cold", session=False)["output"] == "cold\n"
        assert degraded(client) == []


def test_the_folder_of_keepers_is_made_again(shared: Engine) -> None:
    shutil.rmtree(shared.home / "keepers")
    wait_until((shared.home / "keepers").exists)
    with shared.connect() as client:
        caller = client.caller()
        jobs = [caller.send("bash", command="sleep 0.3", session=False) for _ in range(6)]
        assert [job.result()["status"] for job in jobs] == ["succeeded"] * 6


def test_the_folder_of_sessions_is_made_again_with_what_is_known(engine: Engine) -> None:
    with engine.connect() as client:
        caller = client.caller()
        caller.bash("export KEPT=5; cd /tmp")
        file = engine.home / "sessions" / caller.name / "shell"
        shutil.rmtree(engine.home / "sessions")
        wait_until(file.exists)
        assert caller.call("execute", code="1 + 1")["value"] == "2"
        engine.kill()
    engine.start()
    with engine.connect() as client:
        assert Caller(client, caller.name).bash("echo $KEPT $PWD")["output"] == "5 /tmp\n"


def test_code_and_state_find_their_folder_removed_a_moment_ago(shared: Engine) -> None:
    with shared.connect() as client:
        caller = client.caller()
        shutil.rmtree(shared.home / "sessions")
        assert caller.call("execute", code="1 + 1")["value"] == "2"
        shutil.rmtree(shared.home / "sessions")
        assert caller.bash("export A=1")["status"] == "succeeded"
        assert degraded(client) == []


@pytest.mark.parametrize("name", ["engine.sock", "engine.json", "listen.port"])
def test_the_files_by_which_it_is_found_are_made_again(shared: Engine, name: str) -> None:
    path = shared.home / name
    before = None if path.is_socket() else path.read_bytes()
    path.unlink()
    wait_until(path.exists)
    assert before is None or path.read_bytes() == before
    with shared.connect() as client:
        assert client.caller().bash("echo hi")["output"] == "hi\n"
        assert degraded(client) == []


def test_a_socket_without_any_name_is_told(engine: Engine) -> None:
    for name in (".engine.sock", "engine.sock"):
        (engine.home / name).unlink()
    with engine.connect(tcp=True) as client:
        wait_until(lambda: len(degraded(client)) == 2)
        said = "was removed from the home and cannot be made again: No such file or directory"
        assert degraded(client) == [f"engine.sock {said}", f".engine.sock {said}"]


# -- locked ------------------------------------------------------------------------------------


def test_a_lock_that_is_removed_lets_no_second_engine_in(engine: Engine) -> None:
    (engine.home / "engine.lock").unlink()
    (engine.home / "listen.port").unlink()
    said = f"engine: another engine (pid {engine.pid}) has the home {engine.home}\n"
    assert serve(engine.home) == (3, said)


@pytest.mark.parametrize("name", ["engine.lock", "."])
def test_a_job_that_holds_the_lock_is_named_and_called_no_engine(engine: Engine, name: str) -> None:
    path = engine.home / name
    engine.kill()
    with subprocess.Popen(
        ["flock", path, "sh", "-c", "echo; read x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        text = f"flock {path} sh -c echo; read x"
        said = (
            f"engine: pid {holder.pid} ({text}), no engine, has locked the home"
            f" {engine.home}: end it\n"
        )
        assert serve(engine.home) == (1, said)
        holder.stdin.close()
        holder.wait(LIMIT)
    engine.start()


# -- held --------------------------------------------------------------------------------------


def test_a_log_of_changes_that_a_reader_has_let_grow_is_cut_once_he_is_gone(
    engine: Engine,
) -> None:
    log = engine.home / "index.db-wal"
    with engine.connect() as client:
        caller = client.caller()
        with contextlib.closing(
            sqlite3.connect(engine.home / "index.db", isolation_level=None)
        ) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM task").fetchone()
            with contextlib.closing(
                sqlite3.connect(engine.home / "index.db", isolation_level=None)
            ) as writer:  # in place of many lines
                writer.execute("CREATE TABLE ballast (data BLOB)")
                while log.stat().st_size <= 65 << 20:
                    writer.execute("INSERT INTO ballast VALUES (zeroblob(?))", (16 << 20,))
                writer.execute("DROP TABLE ballast")
            size = log.stat().st_size >> 20
            said = f"index.db-wal has grown to {size} MiB: another process reads the database"
            said += " without an end, which keeps it from being cut"
            wait_until(lambda: degraded(client) == [said])  # locked it was, by so large a write
        wait_until(lambda: log.stat().st_size <= 16 << 20)
        assert caller.bash("echo hi")["output"] == "hi\n"
        assert degraded(client) == []
