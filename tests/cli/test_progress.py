"""Mirrors `engine/cli/progress.py`: a clock that the test moves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from engine.cli.app import App
from engine.cli.console import Console
from engine.cli.progress import Blockage, Progress
from engine.client.blocking import Ticket


class Stage:
    """A terminal, or a pipe, and the clock of what is told on it."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.now = 100.0
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        console = Console(
            {"LANG": "C.UTF-8", "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80"},
            out_fd=self._write,
            err_fd=self._write,
            clock=lambda: self.now,
        )
        console.err_is_terminal = is_terminal
        self.progress = Progress(App(options={}, environ={}, console=console))

    def at(self, now: float, task: str | None, last_output: float, blocked: str = "") -> str:
        """What is told at `now`."""
        self.now = now
        self.progress.tick(task, last_output, blocked)
        try:
            return os.read(self._read, 9999).decode()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    made = Stage(is_terminal=request.param)
    yield made
    made.close()


def test_a_queue_is_told_once_and_only_where_it_takes_long(stage: Stage) -> None:
    stage.progress.waits("queued #2: all slots are taken")
    assert stage.progress.next_moment(None) == 101.0
    assert stage.at(100.9, None, 100.0) == ""
    assert stage.at(101.0, None, 100.0) == "engine: queued #2: all slots are taken\n"
    stage.progress.waits("queued #1: all slots are taken")
    assert stage.at(103.0, None, 100.0) == ""


def test_a_job_that_starts_at_once_has_not_been_in_a_queue(stage: Stage) -> None:
    stage.progress.waits("queued #1")
    stage.progress.runs()
    assert stage.at(102.0, "t8f3kr9", 102.0) == ""


def test_the_status_line_comes_after_five_silent_seconds_on_a_terminal_alone() -> None:
    for is_terminal in (True, False):
        stage = Stage(is_terminal=is_terminal)
        stage.progress.runs()
        assert stage.progress.next_moment("t8f3kr9") == (101.0 if is_terminal else None)
        assert stage.at(104.9, "t8f3kr9", 100.0) == ""
        told = stage.at(105.0, "t8f3kr9", 100.0)
        line = "▶ t8f3kr9  running 5s · no output yet · Ctrl-C cancels"
        assert told == (f"\r\x1b[2K{line}" if is_terminal else "")
        told = stage.at(164.0, "t8f3kr9", 152.0)
        way_out = "engine: t8f3kr9 takes longer than 20 s; Ctrl-\\ leaves it running\n"
        line = "▶ t8f3kr9  running 1m04s · last output 12s ago · Ctrl-C cancels"
        right = f"\r\x1b[2K{way_out}\r\x1b[2K{line}"
        assert told == (right if is_terminal else "")
        stage.close()


def test_the_status_line_says_what_the_job_is_blocked_on() -> None:
    stage = Stage(is_terminal=True)
    stage.progress.runs()
    told = stage.at(106.0, "t8f3kr9", 100.0, "waits for input: Name?\x1b")
    line = "▶ t8f3kr9  running 6s · waits for input: Name?\\x1b · Ctrl-C cancels"
    assert told == f"\r\x1b[2K{line}"
    stage.close()


class Asked:
    """A client that only notes what it is asked."""

    def __init__(self) -> None:
        self.made: list[tuple[str, dict[str, Any]]] = []

    def submit(self, method: str, params: dict[str, Any], *, budget: float = 0.0) -> Ticket:
        self.made.append((method, params))
        return Ticket(len(self.made), method, "", budget, True)


def blockage(**params: Any) -> tuple[Asked, Blockage]:
    asked = Asked()
    app = App(options={"as_": "ci"}, environ={}, console=Console({}))
    return asked, Blockage(app, asked, params)  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [{"stdin": "null"}, {"stdin": {"text": "x"}}, {}])
def test_a_job_that_cannot_ask_for_input_is_not_looked_at(params: dict[str, Any]) -> None:
    asked, watched = blockage(**params)
    watched.watch("t1")
    assert (asked.made, watched.text) == ([], "")


@pytest.mark.parametrize("params", [{"stdin": "open"}, {"pty": True}])
def test_what_a_job_is_blocked_on_comes_with_each_change_of_its_row(
    params: dict[str, Any],
) -> None:
    asked, watched = blockage(**params)
    watched.watch("t1")
    watched.watch("t1")
    assert asked.made == [("read_task", {"as": "ci", "taskId": "t1"})]
    row = {"taskId": "t1", "changedSeq": 7, "blockedOn": {"category": "input", "prompt": "Name?"}}
    assert watched.answered(Ticket(1, "", "", 0.0, True), row, None)
    assert watched.text == "waits for input: Name?"
    changes = {"as": "ci", "changed_after": 7, "limit": 500, "timeout_secs": 55.0}
    assert asked.made[1:] == [("list_tasks", changes)]
    other = {"taskId": "t2", "blockedOn": {"category": "idle"}}
    page = {"tasks": [other, {**row, "blockedOn": None}], "nextChangedAfter": 9}
    assert not watched.answered(Ticket(1, "", "", 0.0, True), page, None)
    assert watched.answered(Ticket(2, "", "", 0.0, True), page, None)
    assert watched.text == ""
    assert asked.made[-1][1]["changed_after"] == 9
