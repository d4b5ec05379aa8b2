"""Prints which of the cases in tests/cases.toml are covered by tests, and how those tests went.

Runs the tests that carry the marker `case`, in this process. Exit code 1 where one of them
failed, or where a marker names a case that the list does not have. Arguments go to pytest.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
WORST: Final = ("failed", "skipped", "passed")  # of a test's phases, and of a case's tests


class Collector:
    """A pytest plugin: keeps the tests with the marker, and notes their results by case."""

    def __init__(self) -> None:
        self.cases: dict[str, list[str]] = {}  # test -> its cases
        self.results: dict[str, str] = {}  # test -> its worst phase

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        others = []
        for item in list(items):
            ids = [str(case) for mark in item.iter_markers("case") for case in mark.args]
            if ids:
                self.cases[item.nodeid] = ids
            else:
                others.append(item)
                items.remove(item)
        config.hook.pytest_deselected(items=others)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self.results.get(report.nodeid, "passed")
        self.results[report.nodeid] = worst([before, report.outcome])


def worst(outcomes: list[str]) -> str:
    return min(outcomes, key=WORST.index)


def by_case(collector: Collector) -> dict[str, dict[str, str]]:
    """Case -> test -> result; the parameters of one test count as one."""
    found: dict[str, dict[str, str]] = {}
    for nodeid, ids in collector.cases.items():
        test = nodeid.partition("[")[0]
        result = collector.results.get(nodeid, "skipped")
        for case in ids:
            tests = found.setdefault(case, {})
            tests[test] = worst([tests.get(test, "passed"), result])
    return found


def table(known: Mapping[str, Mapping[str, Any]], found: dict[str, dict[str, str]]) -> list[str]:
    """The lines to print: id, result and test, then what is not covered, then the sums."""
    lines = []
    for case, tests in sorted(found.items()):
        note = " (differs)" if "differs" in known.get(case, {}) else ""
        lines += [f"{case}  {result:7}  {test}{note}" for test, result in sorted(tests.items())]
    missing = [case for case in known if case not in found]
    if missing:
        lines += ["", "Not covered yet:"]
        lines += [
            f"{case}  severity {known[case]['severity']}  {known[case]['area']}: "
            f"{known[case]['title']}"
            for case in missing
        ]
    lines += [f"Not in the list: {case}" for case in sorted(found.keys() - known.keys())]
    passed = sum(worst(list(tests.values())) == "passed" for tests in found.values())
    lines += ["", f"{len(known)} cases: {len(known) - len(missing)} covered, {passed} of them pass"]
    return lines


def main(arguments: list[str]) -> int:
    known = tomllib.loads((ROOT / "tests" / "cases.toml").read_text(encoding="utf-8"))
    collector = Collector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["-q", "--rootdir", str(ROOT), *arguments], plugins=[collector])
    found = by_case(collector)
    print("\n".join(table(known, found)))
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(said.getvalue())
    failed = any("failed" in tests.values() for tests in found.values())
    broken = code not in (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    )
    return int(failed or broken or not found.keys() <= known.keys())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
