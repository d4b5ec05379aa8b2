"""A database that another process has locked, and files of a home that are damaged."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from acceptance.faulty import degraded, locked, wait_well
from acceptance.running import LIMIT, NO_FLOOR, PROGRAM, Caller, Client, Engine

pytestmark = pytest.mark.fault

LOCK_SECS = 10.0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home", *NO_FLOOR) as engine:
        yield engine


# -- locked ------------------------------------------------------------------------------------


def test_an_index_that_is_locked_holds_up_no_call(engine: Engine) -> None:
    with engine.connect() as client:
        caller = Caller(client, "ci")
        with locked(engine.home / "index.db"):
            began = time.monotonic()
            loud = caller.bash("echo error: bad; exit 3")
            assert (loud["exitCode"], loud["output"]) == (3, "error: bad\n")
            assert loud["logsBehind"] is True
            keyed = caller.bash("echo once", key="K")
            assert caller.bash("echo once", key="K")["taskId"] == keyed["taskId"]
            assert caller.wait(loud["taskId"])["exitCode"] == 3
            running = caller.start("sleep 600")["taskId"]
            assert caller.wait(running, timeout_secs=0)["status"] == "running"
            assert degraded(client) == ["index.db does not take writes: database is locked"]
            asked = time.monotonic()
            assert caller.bash("echo hi")["output"] == "hi\n"
            assert time.monotonic() - asked < 1
            time.sleep(max(0.0, began + LOCK_SECS - time.monotonic()))
        wait_well(client)
        rows = {row["taskId"]: row["status"] for row in caller.call("list_tasks")["tasks"]}
        assert len(rows) == 4
        assert (rows[loud["taskId"]], rows[running]) == ("failed", "running")
        page = caller.call("read_logs", taskId=loud["taskId"], after_seq=0, peek=True)
        assert [line["text"] for line in page["lines"]] == [
            "error: bad",
            f"task {loud['taskId']} failed (exit 3)",
        ]


def test_a_record_that_is_locked_refuses_what_only_it_can_hold(engine: Engine) -> None:
    with engine.connect() as client:
        caller = Caller(client, "ci")
        known = caller.bash("echo known", key="KNOWN")
        with locked(engine.home / "record.db"):
            began = time.monotonic()
            assert caller.bash("echo hi; exit 3")["exitCode"] == 3
            new = {"command": "echo new", "key": "NEW"}
            for error in (
                caller.refuse("bash", **new),
                caller.refuse("forget", taskId=known["taskId"]),
            ):
                assert (error["code"], error["data"]["limit"]) == (-32007, "store")
            again = caller.bash("echo known", key="KNOWN")  # that one is on disk
            assert again["taskId"] == known["taskId"]
            assert degraded(client) == ["record.db does not take writes: database is locked"]
            time.sleep(max(0.0, began + LOCK_SECS - time.monotonic()))
        wait_well(client)
        assert caller.bash(new["command"], key="NEW")["output"] == "new\n"
        assert caller.wait(known["taskId"])["output"] == "known\n"
        assert len(caller.call("list_tasks")["tasks"]) == 3  # none of the call that was refused


def test_an_engine_killed_while_its_databases_are_locked_starts_once_they_are_not(
    engine: Engine,
) -> None:
    with engine.connect() as client, locked(engine.home / "index.db"):
        task = Caller(client, "ci").bash("echo said; exit 4")["taskId"]
        engine.kill()
        said = serve(engine.home)
        assert said == (1, f"engine: cannot use {engine.home} as home: database is locked\n")
    engine.start()
    with engine.connect() as client:
        end = Caller(client, "ci").wait(task)
        assert (end["exitCode"], end["output"]) == (4, "said\n")


def serve(home: Path) -> tuple[int, str]:
    """Exit code and standard error of an engine that does not start."""
    done = subprocess.run(
        [PROGRAM, "serve", "--home", home, *NO_FLOOR], capture_output=True, text=True, timeout=LIMIT
    )
    return done.returncode, done.stderr


# -- damaged -----------------------------------------------------------------------------------


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage " * 1000)


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flipped(path: Path) -> None:
    """Change the head of a page in the middle: some of its kind no reader can make sense of."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 4096 // 2 * 4096
    for at in (*range(middle, middle + 64), *range(4096, 4096 + 64)):
        data[at] ^= 0xFF
    path.write_bytes(data)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_text("x")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    """To a database of somebody else, which is not to be written."""
    path.unlink()
    other = path.parent.parent / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE theirs (a)")
    path.symlink_to(other)


def foreign(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE task (a); CREATE TABLE key (b); CREATE TABLE urls (c)")


def bad_log(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(b"garbage " * 1000)


class Past:
    """What a home has seen: calls with keys, one that runs, and the highest number given out."""

    def __init__(self, client: Client, mark: Path) -> None:
        caller = Caller(client, "ci")
        self.calls = [(f"echo x >> {mark}; echo {code}; exit {code}", code) for code in (0, 3, 4)]
        self.mark = mark
        self.tasks = [caller.bash(text, key=f"K{code}")["taskId"] for text, code in self.calls]
        for _ in range(10):
            caller.bash(f"echo {'x' * 300}")
        self.running = caller.start("echo on; sleep 600")["taskId"]
        caller.call("read_output", taskId=self.running, timeout_secs=20)
        self.latest_seq = caller.call("list_tasks")["latestSeq"]

    def check(self, client: Client) -> None:
        """All of it is there, under its handles and its keys, and numbers go on."""
        caller = Caller(client, "ci")
        for (text, code), task in zip(self.calls, self.tasks, strict=True):
            again = caller.bash(text, key=f"K{code}")
            assert (again["taskId"], again["exitCode"]) == (task, code)
            assert caller.wait(task)["output"] == f"{code}\n"
        assert self.mark.read_text() == "x\n" * 3
        assert caller.wait(self.running, timeout_secs=0)["status"] == "running"
        page = caller.call("list_tasks", limit=500)
        assert len(page["tasks"]) == 14
        assert page["latestSeq"] > self.latest_seq
        looks = {"after_seq": 0, "limit": 1000, "peek": True}
        # What one that runs has written is read anew, while calls are answered.
        caller.call("read_logs", taskId=self.running, timeout_secs=LIMIT, **looks)
        lines = caller.call("read_logs", **looks)["lines"]
        texts = [line["text"] for line in lines if line["source"] == "output"]
        assert sorted(texts) == sorted(["0", "3", "4", "on", *["x" * 300] * 10])
        caller.cancel(self.running, grace_secs=0)


@pytest.mark.parametrize("name", ["index.db", "record.db"])
@pytest.mark.parametrize(
    "damage", [garbage, truncated, flipped, folder, pipe, link, foreign, bad_log]
)
def test_a_damaged_database_is_set_aside_and_what_can_be_is_made_anew(
    engine: Engine, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    path = engine.home / name
    with engine.connect() as client:
        past = Past(client, tmp_path / "mark")
    if damage is bad_log:
        engine.kill()  # a clean end leaves none
    else:
        engine.stop()
    damage(path)
    found = path.with_name(path.name + "-wal") if damage is bad_log else path
    before = None if found.is_dir() or damage is pipe else found.read_bytes()
    engine.start()
    with engine.connect() as client:
        (aside,) = engine.home.glob(f"{found.name}.damaged-*")
        said = f"{name} was damaged: what could be is made anew, {aside.name} is what was found"
        assert degraded(client) == [said]
        assert before is None or aside.read_bytes() == before
        past.check(client)
        aside.rename(tmp_path / "taken")
        assert degraded(client) == []
    assert "store_set_aside" in engine.log_text()


RECORD_GONE = (
    "record.db was gone at the start: what was forgotten is not known any more, and its keys are"
    " free again"
)


@pytest.mark.parametrize("name", ["index.db", "record.db"])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_database_that_is_empty_or_gone_is_made_anew(
    engine: Engine, tmp_path: Path, name: str, is_there: bool
) -> None:
    with engine.connect() as client:
        past = Past(client, tmp_path / "mark")
    engine.stop()
    (engine.home / name).unlink()
    if is_there:
        (engine.home / name).touch()
    engine.start()
    with engine.connect() as client:
        past.check(client)
        assert degraded(client) == ([] if name == "index.db" else [RECORD_GONE])
    assert f"{name.removesuffix('.db')}_made_anew" in engine.log_text()


# -- damaged while it is used ------------------------------------------------------------------


def emptied(path: Path) -> None:
    alter(path, "DELETE FROM fact", "DELETE FROM line")


def dropped(path: Path) -> None:
    tables = ("task", "line", "tally", "tomb", "key", "position", "receipt", "round")
    alter(path, *(f"DROP TABLE IF EXISTS {table}" for table in tables))


def alter(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


def no_log(path: Path) -> None:
    os.truncate(path.with_name(path.name + "-wal"), 0)


def test_an_index_whose_numbers_were_deleted_goes_on_with_them(engine: Engine) -> None:
    with engine.connect() as client:
        caller = client.caller()
        caller.bash("echo warning: one")
        before = caller.call("list_tasks")["latestSeq"]
        emptied(engine.home / "index.db")
        assert caller.bash("echo warning: two")["status"] == "succeeded"
        page = caller.call("list_tasks")
        assert (len(page["tasks"]), page["latestSeq"] > before) == (2, True)
        assert degraded(client) == []


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("index.db", dropped),
        ("index.db", no_log),
        ("record.db", dropped),
        ("record.db", no_log),
    ],
)
def test_a_database_damaged_in_use_takes_no_handle_from_anybody(
    engine: Engine, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    mark = tmp_path / "mark"
    with engine.connect() as client:
        caller = client.caller()
        old = caller.bash("echo old; exit 3")["taskId"]
        live = caller.start("read x; exit 4", session=False, stdin="open")["taskId"]
        damage(engine.home / name)
        assert caller.wait(old)["exitCode"] == 3
        new = caller.bash(f"echo x >> {mark}; exit 5")
        assert (new["exitCode"], caller.wait(new["taskId"])["exitCode"]) == (5, 5)
        caller.call("write_stdin", taskId=live, text="\n")
        assert caller.wait(live)["exitCode"] == 4
        for method, params in (
            ("bash", {"command": f"echo x >> {mark}", "key": "K"}),
            ("list_tasks", {}),
        ):
            message = caller.send(method, **params).message()
            if "error" in message:
                error = message["error"]
                assert (error["code"], error["data"]["limit"]) == (-32007, "store")
                assert "taskId" not in error["data"]  # not accepted
        said = " ".join(degraded(client))
        assert f"{name} cannot be read, start the engine anew: " in said
        lines = mark.read_text()
    engine.kill()
    engine.start()
    with engine.connect() as client:
        caller = Caller(client, caller.name)
        found = [caller.wait(task)["exitCode"] for task in (old, live, new["taskId"])]
        assert found == [3, 4, 5]
        assert mark.read_text() == lines


@pytest.mark.parametrize("damage", ["removed", "replaced", "cut short"])
def test_a_record_that_is_taken_away_refuses_what_only_it_can_hold(
    tmp_path: Path, damage: str
) -> None:
    mark = tmp_path / "mark"
    with Engine(tmp_path / "home", *NO_FLOOR, "--set", "ended_tasks=1") as engine:
        path = engine.home / "record.db"
        with engine.connect() as client:
            caller = client.caller()
            known = caller.bash(f"echo x >> {mark}", key="KNOWN")["taskId"]
            if damage == "cut short":
                os.truncate(path, 0)
            else:
                path.unlink()
            if damage == "replaced":
                path.touch()
            said = f"record.db was {damage} while it was used: what is written there now is lost"
            assert degraded(client) == [f"{said}; start the engine anew"]
            error = caller.refuse("bash", command=f"echo x >> {mark}", key="NEW")
            assert (error["code"], error["data"]["limit"]) == (-32007, "store")
            for _ in range(5):  # more than are kept, but there is no tomb for one that goes
                caller.bash("true")
            assert caller.bash(f"echo x >> {mark}", key="KNOWN")["taskId"] == known
        engine.kill()
        engine.start()
        with engine.connect() as client:
            caller = Caller(client, caller.name)
            again = caller.send("bash", command=f"echo x >> {mark}", key="KNOWN").message()
            if "result" in again:
                assert again["result"]["taskId"] == known
            else:  # retention has gone on
                assert again["error"]["data"]["kind"] == "expired_handle"
        assert mark.read_text() == "x\n"


@pytest.mark.parametrize("name", ["index.db", "record.db"])
def test_a_database_of_a_newer_engine_stops_the_start_and_is_left_as_it_is(
    engine: Engine, name: str
) -> None:
    engine.stop()
    path = engine.home / name
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    said = (
        f"engine: {path} is of a newer engine (version 99, this one knows 1):"
        " start that one, or move the file away\n"
    )
    assert serve(engine.home) == (1, said)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["garbage", "truncated", "removed"])
def test_what_was_told_is_told_again_at_worst_where_its_file_is_damaged(
    engine: Engine, damage: str
) -> None:
    with engine.connect() as client:
        caller = Caller(client, "ci")
        task = caller.bash("echo warning: one")["taskId"]
    engine.kill()
    path = engine.home / "record.told"
    if damage == "garbage":
        path.write_bytes(b"\xff\x00{]" * 1000)
    elif damage == "truncated":
        os.truncate(path, path.stat().st_size - 7)
    else:
        path.unlink()
    engine.start()
    with engine.connect() as client:
        caller = Caller(client, "ci")
        assert caller.wait(task)["output"] == "warning: one\n"
        assert caller.bash("echo hi")["output"] == "hi\n"
        assert degraded(client) == []


@pytest.mark.parametrize("text", ["", "{", '{"url": 1}', '{"tokens": {"agent": "short"}}'])
def test_a_damaged_engine_json_stops_the_start_and_says_what_to_do(
    engine: Engine, text: str
) -> None:
    engine.stop()
    (engine.home / "engine.json").write_text(text)
    code, said = serve(engine.home)
    assert code == 1
    assert said.startswith(f"engine: {engine.home}/engine.json: holds ")
    assert said.endswith("; remove it to have new ones made\n")
    (engine.home / "engine.json").unlink()
    engine.start()
    with engine.connect() as client:
        assert client.caller().bash("echo hi")["output"] == "hi\n"


def test_a_damaged_token_or_settings_file_stops_the_start_and_is_named(engine: Engine) -> None:
    engine.stop()
    token, settings = engine.home / "human.token", engine.home / "engine.toml"
    kept = token.read_text()
    token.write_text("half")
    said = f"engine: {token}: holds no token; remove it to have a new one made\n"
    assert serve(engine.home) == (1, said)
    token.write_text(kept)
    settings.write_bytes(b"slots = \xff\n")
    code, error = serve(engine.home)
    assert (code, error.startswith(f"engine: {settings}: ")) == (2, True)
    settings.unlink()
    engine.start()
    with engine.connect("human") as client:
        assert client.call("engine_info")["degraded"] == []
