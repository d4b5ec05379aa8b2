"""Mirrors `scripts/reference.py`: the tables of the reference are what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "engine" / "docs"


def reference(*arguments: str | Path) -> tuple[int, str]:
    """Exit code of the script, and what it complains of."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "reference.py", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_the_reference_is_up_to_date() -> None:
    assert reference("--check") == (0, "")


def test_a_table_that_is_not_what_the_code_says_is_told_and_mended(tmp_path: Path) -> None:
    page, right = tmp_path / "settings.md", (DOCS / "settings.md").read_text(encoding="utf-8")
    page.write_text(right.replace("| `20` | the longest", "| `30` | the longest"), encoding="utf-8")
    assert page.read_text(encoding="utf-8") != right
    assert reference("--check", page) == (1, "settings.md is not up to date: make reference\n")
    assert reference(page) == (0, "")
    assert page.read_text(encoding="utf-8") == right


def test_what_is_written_by_hand_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- made: errors -->\nold\n<!-- end -->\nbelow\n", encoding="utf-8")
    assert reference(page) == (0, "")
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[:4] == [
        "above",
        "<!-- made: errors -->",
        "",
        "| code | kind | when | in `data` |",
    ]
    assert "old" not in lines
    assert lines[-2:] == ["<!-- end -->", "below"]


def test_a_table_that_there_is_not_is_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- made: method none -->\n<!-- end -->\n", encoding="utf-8")
    assert reference(page) == (1, "page.md has tables that there are not: ['method none']\n")
