"""Mirrors `scripts/cases.py` and `tests/cases.toml`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

TESTS = Path(__file__).parent
SCRIPT = TESTS.parent / "scripts" / "cases.py"


def run_cases(tmp_path: Path, body: str) -> tuple[int, list[str]]:
    """Exit code and lines of the script over one test file."""
    (tmp_path / "test_it.py").write_text("import pytest\n" + body, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, SCRIPT, str(tmp_path), "-c", os.devnull, "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    return done.returncode, done.stdout.splitlines()


def test_the_list_has_every_case_with_area_severity_and_title() -> None:
    known = tomllib.loads((TESTS / "cases.toml").read_text(encoding="utf-8"))
    assert len(known) == 102
    assert all(re.fullmatch("C[0-9]{3}", case) for case in known)
    for facts in known.values():
        assert facts.keys() - {"differs"} == {"area", "severity", "title"}
        assert facts["severity"] in (1, 2, 3)
    differing = [case for case, facts in known.items() if "differs" in facts]
    assert differing == ["C010", "C060", "C085", "C094", "C154"]


def test_no_test_names_a_case_that_the_list_does_not_have() -> None:
    known = tomllib.loads((TESTS / "cases.toml").read_text(encoding="utf-8"))
    named = set()
    for path in TESTS.rglob("test_*.py"):
        for arguments in re.findall(r"^ *@pytest\.mark\.case\((.*)\)", path.read_text(), re.M):
            named |= set(re.findall(r'"(.*?)"', arguments))
    assert named
    assert named <= known.keys()


def test_covered_cases_are_shown_with_test_and_result_and_the_others_are_listed(
    tmp_path: Path,
) -> None:
    code, lines = run_cases(
        tmp_path,
        '@pytest.mark.case("C001", "C010")\ndef test_one(): pass\n'
        "def test_without_a_case(): raise SystemError\n",
    )
    assert code == 0
    assert re.fullmatch(r"C001  passed   .*test_it\.py::test_one", lines[0])
    assert re.fullmatch(r"C010  passed   .*test_it\.py::test_one \(differs\)", lines[1])
    assert lines[2:4] == ["", "Not covered yet:"]
    assert lines[4].startswith("C002  severity 3  completion-and-pipes: ")
    assert lines[-1] == "102 cases: 2 covered, 2 of them pass"


def test_a_covered_case_that_fails_fails_the_run_and_shows_why(tmp_path: Path) -> None:
    code, lines = run_cases(
        tmp_path,
        '@pytest.mark.case("C001")\n@pytest.mark.parametrize("n", [1, 2, 3])\n'
        "def test_one(n): assert n != 2, 'two is bad'\n",
    )
    assert code == 1
    assert re.fullmatch(r"C001  failed   .*test_it\.py::test_one", lines[0])
    assert "102 cases: 1 covered, 0 of them pass" in lines
    assert any("two is bad" in line for line in lines)


def test_an_unknown_case_or_a_file_that_cannot_be_read_fails_the_run(tmp_path: Path) -> None:
    code, lines = run_cases(tmp_path, '@pytest.mark.case("C999")\ndef test_one(): pass\n')
    assert code == 1
    assert "Not in the list: C999" in lines
    code, lines = run_cases(tmp_path, "import no_such_module\n")
    assert code == 1
    assert any("no_such_module" in line for line in lines)
