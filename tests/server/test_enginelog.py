"""Mirrors `engine/server/enginelog.py`, in a process of its own: it is about standard error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

LIMIT = 60  # seconds

WRITER = """
import os, sys, threading
from pathlib import Path
import structlog
from engine.config import Home, Settings
from engine.server.enginelog import configure_logging

home, size, kept, count = Path(sys.argv[1]), *map(int, sys.argv[2:5])
settings = Settings(log_file_bytes=size, log_files=kept, log_format="json")
configure_logging(Home(home), settings)
log = structlog.get_logger()

def write():
    for number in range(count):
        os.write(2, b"raw %d\\n" % number)

thread = threading.Thread(target=write)
thread.start()
for number in range(count):
    log.info("event", number=number)
thread.join()
"""


def run(home: Path, log: Path, *, size: int, kept: int, count: int, text: str = WRITER) -> None:
    """Run the writer with `log` as its standard error, as a background start has it."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with open(os.open(log, flags, 0o600), "ab") as errors:
        subprocess.run(
            [sys.executable, "-c", text, str(home), str(size), str(kept), str(count)],
            stderr=errors,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT,
            check=True,
        )


def files(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir())


def test_no_line_is_lost_cut_or_out_of_order_when_the_file_turns(tmp_path: Path) -> None:
    run(tmp_path, tmp_path / "engine.log", size=65_536, kept=1_000, count=5_000)
    names = files(tmp_path)
    assert len(names) > 5
    older = [int(name.removeprefix("engine.log.")) for name in names if name != "engine.log"]
    in_order = [*(f"engine.log.{number}" for number in sorted(older, reverse=True)), "engine.log"]
    text = "".join((tmp_path / name).read_text() for name in in_order)
    assert re.findall(r"^raw (\d+)$", text, re.M) == [str(number) for number in range(5_000)]
    events = re.findall(r'^\{"number": (\d+), "event": "event".*\}$', text, re.M)
    assert events == [str(number) for number in range(5_000)]
    assert text.count("\n") == 10_000


def test_only_so_many_older_files_are_kept_each_about_as_large_as_it_may_be(
    tmp_path: Path,
) -> None:
    (tmp_path / "engine.log.3").write_text("of a time when more were kept")
    (tmp_path / "engine.log.4").write_text("likewise")
    run(tmp_path, tmp_path / "engine.log", size=65_536, kept=2, count=5_000)
    assert files(tmp_path) == ["engine.log", "engine.log.1", "engine.log.2"]
    sizes = [(tmp_path / name).stat().st_size for name in files(tmp_path)[1:]]
    # Another thread may write meanwhile, and what is there at the turn is not known before.
    assert all(65_536 <= size < 131_072 for size in sizes)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in files(tmp_path)} == {0o600}


def test_with_no_older_files_the_full_one_goes(tmp_path: Path) -> None:
    run(tmp_path, tmp_path / "engine.log", size=65_536, kept=0, count=3_000)
    assert files(tmp_path) == ["engine.log"]
    assert (tmp_path / "engine.log").stat().st_size < 131_072


def test_a_standard_error_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "engine.log").write_text("of another time\n")
    run(home, tmp_path / "mine", size=65_536, kept=3, count=2_000)
    assert files(home) == ["engine.log"]
    assert (home / "engine.log").read_text() == "of another time\n"
    assert (tmp_path / "mine").read_text().count("\n") == 4_000


def test_a_file_that_cannot_turn_goes_on_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "engine.log.new").mkdir()
    run(tmp_path, tmp_path / "engine.log", size=65_536, kept=3, count=2_000)
    assert files(tmp_path) == ["engine.log", "engine.log.new"]
    lines = (tmp_path / "engine.log").read_text().splitlines()
    assert len(lines) == 4_000
    assert '"logNotTurned": "[Errno 21] Is a directory' in lines[-1] + lines[-2001]
