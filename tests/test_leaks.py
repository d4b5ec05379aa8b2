"""Mirrors `tests/leaks.py` and the fixture that uses it: what a test leaves behind is found."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import leaks
import pytest

HERE = Path(__file__).parent


def run_pytest(tmp_path: Path, body: str) -> str:
    """What pytest says of a test file that has `body` and this project's conftest."""
    conftest = (HERE / "conftest.py").read_text(encoding="utf-8")
    (tmp_path / "conftest.py").write_text(conftest + "\nleaks.GRACE_SECS = 0.5\n", encoding="utf-8")
    (tmp_path / "test_it.py").write_text(
        "import os, subprocess, sys, time\n" + textwrap.dedent(body), encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        [*command, "--import-mode=importlib", "-c", os.devnull, "--rootdir", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(HERE), "PYTHONUNBUFFERED": "1", "ENGINE_X": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.Popen(['sleep', '300'])",
        "subprocess.run(['setsid', '-f', 'env', '-i', 'sleep', '300'])",
        "subprocess.run(['bash', '-c', '(setsid nohup sleep 300 >/dev/null 2>&1 &) ; exit'])",
    ],
    ids=["child", "fled", "orphan"],
)
def test_a_process_left_running_fails_its_test_and_is_ended(tmp_path: Path, start: str) -> None:
    said = run_pytest(tmp_path, f"def test_it():\n    globals()['held'] = {start}\n")
    assert "left running" in said
    assert "sleep 300" in said
    pid = int(said.split("left running: ['")[1].split()[0])
    assert leaks.living(pid) is None


def test_what_ends_within_the_grace_and_zombies_are_not_left_behind(tmp_path: Path) -> None:
    said = run_pytest(
        tmp_path,
        """
        held = []
        def test_it():
            held.append(subprocess.Popen(["sleep", "0.2"]))
        """,
    )
    assert "1 passed" in said


def test_a_descriptor_left_open_fails_its_test(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, "def test_it():\n    os.pipe()\n")
    assert "left open: {" in said
    assert "pipe:[" in said


def test_what_a_wider_fixture_holds_is_not_the_tests(tmp_path: Path) -> None:
    said = run_pytest(
        tmp_path,
        """
        import pytest
        @pytest.fixture(scope="module")
        def engine():
            process = subprocess.Popen(["sleep", "300"], stdin=subprocess.PIPE)
            yield process
            process.kill()
            process.communicate()
        def test_one(engine):
            pass
        def test_two(engine):
            assert "PYTHONUNBUFFERED" not in os.environ
            assert "ENGINE_X" not in os.environ
        """,
    )
    assert "2 passed" in said


def test_a_look_costs_next_to_nothing() -> None:
    started = time.process_time()
    for _ in range(20):
        leaks.children()
        leaks.descriptors()
    assert (time.process_time() - started) / 20 < 0.005  # seconds
