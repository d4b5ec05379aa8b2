from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from engine.jobs.shellstate import ShellState
from engine.tasks import sessions as module
from engine.tasks.sessions import ShellSessions


@pytest.mark.parametrize("data", [b"", b"garbage", b"\0" * 100])
def test_a_state_that_does_not_read_is_a_new_session_and_told(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "shell").write_bytes(data)
    with capture_logs() as logs:
        assert ShellSessions(tmp_path).state("ci") is None
    assert [(line["event"], line["caller"]) for line in logs] == [("session_not_read", "ci")]


def test_a_caller_without_a_file_is_new_and_a_reset_forgets_the_file(tmp_path: Path) -> None:
    sessions = ShellSessions(tmp_path)
    assert sessions.state("ci") is None
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "shell").write_bytes(b"x")
    (tmp_path / "ci" / "python").symlink_to("1 2 3")
    sessions.reset("ci")
    assert [path.name for path in (tmp_path / "ci").iterdir()] == ["python"]
    sessions.reset("ci")  # there is none: nothing to say


def test_a_first_state_that_a_killed_engine_had_not_written_whole_is_none(tmp_path: Path) -> None:
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "shell.2").write_bytes(b"engine slot 1\nhalf")
    with capture_logs() as logs:
        assert ShellSessions(tmp_path).state("ci") is None
    assert logs == []


async def test_over_their_number_the_sessions_that_changed_longest_ago_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SESSIONS", 10)
    names = [f"c{number}" for number in range(12)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "shell").write_bytes(b"x")
    (tmp_path / "c0" / "python").symlink_to("1 2 3")  # of a process that is dead
    (tmp_path / "c3" / "strange").touch()
    for age, name in enumerate(reversed(names)):
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    with trio.fail_after(5), capture_logs():
        async with trio.open_nursery() as nursery:
            sessions = ShellSessions(tmp_path)
            sessions.state("c1")
            nursery.start_soon(sessions.serve, lambda name: name == "c2")
            while (tmp_path / "c0").exists():
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert set(os.listdir(tmp_path)) == set(names) - {"c0"}

            sessions.make_folder("new")
            sessions.make_folder("new")
            while (tmp_path / "c3" / "shell").exists():
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert set(os.listdir(tmp_path)) == {*names, "new"} - {"c0"}
            assert os.listdir(tmp_path / "c3") == ["strange"]
            assert os.listdir(tmp_path / "c4") == ["shell"]
            nursery.cancel_scope.cancel()


def test_states_used_longest_ago_are_read_again_when_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_AT_HAND", 2)
    read: list[str] = []
    sessions = ShellSessions(tmp_path)
    monkeypatch.setattr(sessions, "_read", read.append)
    for name in ("a", "b", "a", "c", "a", "b"):
        sessions.state(name)
    assert read == ["a", "b", "c", "b"]
    sessions.unwritten.add("a")
    for name in ("b", "c", "d", "a"):
        sessions.state(name)
    assert read == ["a", "b", "c", "b", "c", "d"]


async def test_over_their_bytes_those_unused_for_longest_go_and_their_callers_are_told(
    tmp_path: Path,
) -> None:
    for age, name in enumerate(("new", "busy", "hand", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shell").write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    with trio.fail_after(5), capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            sessions = ShellSessions(tmp_path, most_total_bytes=350)
            sessions.state("hand")
            nursery.start_soon(sessions.serve, lambda name: name == "busy")
            while (tmp_path / "old").exists():
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert set(os.listdir(tmp_path)) == {"new", "busy", "hand"}
            sessions._note("new", 200)  # it has grown, as its caller's next call left more
            (tmp_path / "new" / "shell").write_bytes(b"x" * 200)
            sessions.state("last")
            while (tmp_path / "new").exists():
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert set(os.listdir(tmp_path)) == {"busy", "hand"}
            sessions._note("busy", 300)
            (tmp_path / "busy" / "shell").write_bytes(b"x" * 300)
            while (tmp_path / "hand").exists():
                await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
    told = [(line["caller"], line["bytes"]) for line in logs if line["event"] == "session_dropped"]
    assert told == [("old", 100), ("new", 200), ("hand", 100)]


def test_of_large_states_few_are_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_HAND_BYTES", 1_000)
    sizes = {"a": 400, "b": 400, "c": 900, "d": 5_000}
    read: list[str] = []

    def look(caller: str) -> ShellState:
        read.append(caller)
        return _state_of(sizes[caller])

    sessions = ShellSessions(tmp_path)
    monkeypatch.setattr(sessions, "_read", look)
    for name in ("a", "b", "a", "b", "c", "c", "a", "d", "d", "c"):
        sessions.state(name)
    assert read == ["a", "b", "c", "a", "d", "c"]


def _state_of(size: int) -> ShellState:
    return ShellState(
        directory=b"",
        umask=b"022",
        options=(),
        shell_options=(),
        posix=None,
        aliases=b"",
        variables={b"": b"x" * size},
        functions=(),
        foreign=(),
        digest=b"",
    )


def _write(folder: Path, size: int) -> ShellState:
    """A state of this size, written as a call's end does it, by an engine that knew the session."""
    sessions, state = ShellSessions(folder), _state_of(size)
    sessions.state("ci")
    sessions._keep("ci", state)
    sessions.unwritten.add("ci")
    sessions.write()
    return state


def test_each_state_is_written_over_the_one_before_the_last(tmp_path: Path) -> None:
    states = [_write(tmp_path, size) for size in (500, 3, 70)]
    assert sorted(os.listdir(tmp_path / "ci")) == ["shell", "shell.2"]
    assert ShellSessions(tmp_path).state("ci") == states[2]
    (tmp_path / "ci" / "shell.2").write_bytes(b"")  # the third, cut short
    assert ShellSessions(tmp_path).state("ci") == states[1]


def test_a_state_that_was_put_away_meanwhile_is_written_as_the_next_one(tmp_path: Path) -> None:
    for size in (1, 2, 3):
        _write(tmp_path, size)
    sessions = ShellSessions(tmp_path)
    sessions._keep("ci", _state_of(4))
    sessions.unwritten.add("ci")
    sessions.write()
    assert ShellSessions(tmp_path).state("ci") == _state_of(4)
