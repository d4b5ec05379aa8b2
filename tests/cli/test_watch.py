"""Mirrors `engine/cli/watch.py`."""

from __future__ import annotations

import json
import os
import select
import signal
from datetime import UTC, datetime

import pytest
from cli.fuller_engine import FullerEngine
from cli.looks import row
from cli.program import LIMIT, Terminal, engine, start
from client.fake_engine import OBSERVER

from engine.cli.watch import Rows


class Watching:
    """`tasks --watch` to a pipe, interrupted at the end; `err` is all that it said until then."""

    def __init__(self, fake: FullerEngine, *options: str) -> None:
        fake.calls.clear()
        self.err, self._read = "", b""
        self._process = start(fake.home, "tasks", "--watch", "--as", "ci", *options)
        fake.wait_for(lambda: any("changed_after" in params for _, params in fake.calls))

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._process:
            self._process.send_signal(signal.SIGINT if kind is None else signal.SIGKILL)
            self.err = self._process.communicate(timeout=LIMIT)[1].decode()
        assert kind is not None or self._process.returncode == 130

    def line(self) -> str:
        """The next line; fails where none comes."""
        out = self._process.stdout
        assert out is not None
        while b"\n" not in self._read:
            assert select.select([out], [], [], LIMIT)[0], "no line came"
            data = os.read(out.fileno(), 65536)
            assert data, "it has ended"
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    def told(self) -> list[str]:
        """The first two words of the next line."""
        return self.line().split()[:2]


def test_to_a_pipe_each_change_is_a_line_and_nothing_is_repeated(fake: FullerEngine) -> None:
    engine(fake.home, "run", "--as", "ci", "exit 3")
    gate = fake.home / "gate"
    with Watching(fake) as watch:
        assert watch.told() == ["STATUS", "TASK"]
        assert watch.told() == ["failed", "t8f3000"]
        job = f"until [ -e {gate} ]; do sleep 0.05; done; echo hi"
        engine(fake.home, "run", "-d", "--as", "ci", job)
        assert watch.told() in (["queued", "k8f3001"], ["running", "t8f3001"])
        fake._touch(fake.jobs["8f3000"])  # a change of nothing that is shown
        gate.touch()
        while (line := watch.told()) != ["succeeded", "t8f3001"]:
            assert line == ["running", "t8f3001"]
        engine(fake.home, "run", "--as", "anna", "true")  # none of ours
        engine(fake.home, "run", "--as", "ci", "true")
        while (line := watch.told()) != ["succeeded", "t8f3003"]:
            assert line[1][1:] == "8f3003"  # what it was before, where that was seen


def test_json_is_the_wires_row_a_change(fake: FullerEngine) -> None:
    with Watching(fake, "--json") as watch:
        engine(fake.home, "run", "--as", "ci", "exit 3")
        rows: list[dict[str, object]] = []
        while not rows or rows[-1]["status"] != "failed":
            rows.append(json.loads(watch.line()))
    assert rows[-1] == fake.jobs["8f3000"].row


def test_an_engine_that_comes_back_is_watched_on(fake: FullerEngine) -> None:
    with Watching(fake, "--no-header") as watch:
        fake.stop()
        fake.start()
        engine(fake.home, "run", "--as", "ci", "true")
        while watch.told() != ["succeeded", "t8f3000"]:
            pass
    lost, back = watch.err.splitlines()
    assert lost == "engine: connection lost; trying again for up to 60 s"
    assert back.startswith("engine: connected again after ")


def test_an_engine_that_begins_anew_is_listed_anew(fake: FullerEngine) -> None:
    fake.longest_hold = 0.2
    engine(fake.home, "run", "--as", "ci", "exit 3")
    fake.seq = 1_000
    with Watching(fake) as watch:
        assert [watch.told(), watch.told()][1] == ["failed", "t8f3000"]
        fake.stop()
        fake.seq = 0
        fake.jobs.clear()
        fake.start()
        engine(fake.home, "run", "--as", "ci", "true")
        while watch.told() != ["succeeded", "t8f3000"]:
            pass


def test_on_a_terminal_the_list_is_drawn_in_place_until_it_is_interrupted(
    fake: FullerEngine,
) -> None:
    engine(fake.home, "run", "--as", "ci", "exit 3")
    look = ["tasks", "--watch", "--as", "ci"]
    with Terminal(fake.home, *look, environ={"NO_COLOR": "1"}, fresh=True) as terminal:
        terminal.read_until("Ctrl-C stops looking")
        engine(fake.home, "run", "--as", "ci", "exit 4")
        terminal.read_until("failed 4")
        terminal.read_until("32 slots")
        terminal.type(b"\x03")
        assert terminal.wait() == 130
    assert "\x1b[2J" not in terminal.seen
    assert "\x1b[?1049h" not in terminal.seen
    first = terminal.seen.partition("Ctrl-C")[0].replace("\x1b[2K", "").split("\r\n")
    assert first[0].split() == ["STATUS", "TASK", "CALLER", "AGE", "TIME", "COMMAND"]
    assert first[1].startswith("✗ failed 3       t8f3000  ci  ")
    assert first[2].startswith("32 slots  ")
    assert "\x1b[3A" in terminal.seen  # up over its own three lines


def test_a_task_that_leaves_the_states_that_are_listed_leaves_the_screen(
    fake: FullerEngine,
) -> None:
    gate = fake.home / "gate"
    engine(fake.home, "run", "-d", "--as", "ci", f"until [ -e {gate} ]; do sleep 0.05; done")
    look = ["tasks", "--watch", "-s", "running", "--as", "ci"]
    with Terminal(fake.home, *look, environ={"NO_COLOR": "1"}) as terminal:
        terminal.read_until("▶ running")
        gate.touch()
        terminal.read_until("COMMAND\r\n\x1b[2K32 slots")


def test_looking_asks_nothing_that_receives(fake: FullerEngine) -> None:
    with Watching(fake) as watch:
        pass
    assert watch.err == ""
    assert {token for _, token in fake.tokens} == {OBSERVER}
    assert set(fake.methods()) == {"list_tasks"}


def seen(rows: Rows) -> list[str]:
    return [row["kickoffId"] for row in rows.newest]


def test_a_row_that_leaves_the_listed_states_leaves_the_list() -> None:
    rows = Rows(["running"], None, 20)
    rows.begin([row("1", "running", "a"), row("2", "running", "b")])
    assert seen(rows) == ["k2", "k1"]
    assert rows.take(row("2", "succeeded", "b")) is None
    assert seen(rows) == ["k1"]


def test_a_row_that_is_forgotten_is_told_as_such_once() -> None:
    rows = Rows(None, None, 20)
    rows.begin([row("1", "succeeded", "a")])
    gone = rows.take({"taskId": "t1", "status": "forgotten"})
    assert gone is not None
    assert (gone["status"], gone["title"]) == ("forgotten", "a")
    assert rows.take({"taskId": "t1", "status": "forgotten"}) is None
    assert rows.newest == []


def test_no_more_than_the_newest_are_shown_and_none_from_before() -> None:
    after = datetime(2026, 11, 30, 11, 0, tzinfo=UTC)
    rows = Rows(None, after, 2)
    for second in range(5):
        time = f"2026-11-30T12:00:0{second}.000Z"
        assert rows.take(row(str(second), "running", "x", createdAt=time)) is not None
    assert rows.take(row("9", "running", "x", createdAt="2026-11-30T10:59:59.999Z")) is None
    assert seen(rows) == ["k4", "k3"]


@pytest.mark.parametrize("limit", [2, 600])
def test_what_is_known_of_a_busy_engine_is_bounded(limit: int) -> None:
    rows = Rows(None, None, limit)
    for number in range(700):
        time = f"2026-11-30T12:00:00.{number:03d}Z"
        rows.take(row(f"{number:03d}", "running", "x", createdAt=time))
    assert len(rows._rows) == max(500, limit)
    assert seen(rows)[0] == "k699"
