"""What holds for every test: the environment of a user's machine, and nothing left behind."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator

import hypothesis
import leaks
import pytest

# A developer's settings that a user's machine does not have, and that change what is tested; the
# last one has every process that a test starts compile all it loads.
UNSET = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
for name in [name for name in os.environ if name in UNSET or name[:7] == "ENGINE_"]:
    del os.environ[name]
sys.dont_write_bytecode = False

# A shell that runs the tests in the background has them ignore these, and so all that they start.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )

leaks.adopt_orphans()

# A slow machine is no fault of the code.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips", action="store_true", help="a fault that cannot be made here is a failure"
    )


def pytest_collection_finish() -> None:
    """Keep what is collected out of every later look for garbage: it stays to the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where nothing may be missing, a fault test that was skipped has failed."""
    report = yield
    is_fault = item.get_closest_marker("fault") is not None
    if report.skipped and is_fault and item.config.getoption("no_skips"):
        report.outcome = "failed"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"this fault was not made: {reason}"
    return report


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a process running or a descriptor open; end what it left.

    What fixtures of a wider scope hold is there before the test, and is none of it.
    """
    processes, opened = leaks.children(), leaks.descriptors()
    yield
    if left := leaks.children() - processes:
        left = leaks.wait_gone(left, leaks.GRACE_SECS)
        left |= leaks.children() - processes
    names = [str(process) for process in left]
    leaks.kill_all(processes)
    leaks.reap(processes)
    # No collection before the look: what it would close was left open, by this test. But an
    # event loop that has ended holds its selector in a cycle, which is nobody's mistake.
    new = leaks.descriptors().items() - opened.items()
    if new and {target for _, target in new} == {"anon_inode:[eventpoll]"}:
        gc.collect()
        new = leaks.descriptors().items() - opened.items()
    assert not names, f"left running: {names}"
    assert not new, f"left open: {dict(new)}"
