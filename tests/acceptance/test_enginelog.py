"""The log of an engine that was started in the background: it turns, and nothing is lost."""

from __future__ import annotations

import re
import time
from pathlib import Path

from acceptance.running import LIMIT, Engine

CALLS = 1_000


def test_the_log_turns_over_while_the_engine_works(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    settings = 'min_free_bytes = 0\nlog_file_bytes = 65536\nlog_files = 9\nlog_format = "json"\n'
    (home / "engine.toml").write_text(settings)
    engine = Engine(home)
    engine.log = home / "engine.log"  # as the command line starts one in the background
    with engine, engine.connect() as client:
        caller = client.caller()
        task = caller.bash("true")["taskId"]
        for pending in [caller.send("cancel", taskId=task, grace_secs=0) for _ in range(CALLS)]:
            pending.result()
        kept = caller.call("read_logs", after_seq=0, contains="cancel", limit=1)
        assert kept["lines"][0]["source"] == "engine"
    logs = sorted(path.name for path in home.glob("engine.log*"))
    assert logs == ["engine.log", *(f"engine.log.{n}" for n in range(1, len(logs)))]
    assert len(logs) >= 3
    text = "".join((home / name).read_text() for name in reversed(logs))
    assert len(re.findall(r'"event": "cancel"', text)) == CALLS
    events = re.findall(r'"event": "(engine_[a-z]+)"', text)
    assert events == ["engine_started", "engine_stopping", "engine_stopped"]
    for name in logs[1:]:
        assert 65_536 <= (home / name).stat().st_size < 66_536


def test_a_large_log_of_the_keepers_is_moved_aside(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "keepers.log").write_text("a keeper says why\n" * 8_000)
    deadline = time.monotonic() + LIMIT
    with Engine(home, "--set", "min_free_bytes=0", "--set", "log_file_bytes=65536") as engine:
        assert engine.pid
        while (home / "keepers.log").stat().st_blocks * 512 > 65_536:  # nobody tells of it
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert (home / "keepers.log.1").read_text() == "a keeper says why\n" * 8_000
