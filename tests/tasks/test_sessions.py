from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

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


def test_a_state_that_a_killed_engine_had_not_written_whole_is_gone_with_the_first_look(
    tmp_path: Path,
) -> None:
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "shell.new").write_bytes(b"half")
    assert ShellSessions(tmp_path).state("ci") is None
    assert list((tmp_path / "ci").iterdir()) == []
