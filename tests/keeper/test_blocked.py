"""Mirrors `engine/keeper/blocked.py`: its times by a clock of the test's, its news by keepers."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Hashable, Iterator
from pathlib import Path

import pytest
from keeper.harness import KeeperClient, Nursery, bash, nursery

from engine.keeper.blocked import Blocked


class Watched:
    """A job that the test says all about: the time, whether it hangs, what it has computed."""

    def __init__(self, *, has_input: bool = True) -> None:
        self.now = 1000.0
        self.is_hanging = False
        self.computed: Hashable = 0
        self.looks: list[float] = []  # at the input
        self.measures: list[float] = []
        self.blocked = Blocked(self._clock, self._hangs if has_input else None, self._measure)

    def _clock(self) -> float:
        return self.now

    def _hangs(self) -> bool:
        self.looks.append(round(self.now - 1000, 3))
        return self.is_hanging

    def _measure(self) -> Hashable:
        self.measures.append(round(self.now - 1000, 3))
        return self.computed

    def run_until(self, end: float) -> None:
        """Let time pass as a keeper's loop does; seconds from the start."""
        while (at := self.blocked.next_timer()) <= 1000 + end:
            self.now = max(self.now, at)
            self.blocked.on_timer()
        self.now = 1000 + end


def test_a_job_that_hangs_on_its_input_is_told_at_the_second_look() -> None:
    job = Watched()
    job.is_hanging = True
    job.run_until(0.29)
    assert (job.blocked.category, job.looks) == (None, [0.2])
    job.run_until(0.31)
    assert job.blocked.category == "input"


def test_what_hangs_at_one_look_alone_is_not_told() -> None:
    job = Watched()
    job.is_hanging = True
    job.run_until(0.25)
    job.is_hanging = False
    job.run_until(50)
    assert job.blocked.category is None


def test_a_job_that_does_not_hang_is_looked_at_ever_more_seldom() -> None:
    job = Watched()
    job.run_until(40)
    pauses = [round(b - a, 3) for a, b in zip(job.looks, job.looks[1:], strict=False)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_look_that_takes_long_is_repeated_the_later() -> None:
    job = Watched()

    def slow() -> bool:
        job.looks.append(job.now - 1000)
        job.now += 0.1
        return False

    job.blocked._hangs = slow
    job.run_until(50)
    assert [round(at, 3) for at in job.looks] == [0.2, 20.3, 40.4]


def test_a_job_that_writes_is_not_looked_at() -> None:
    job = Watched()
    for tenth in range(600):
        job.run_until(tenth / 10)
        job.blocked.stir()
    assert job.looks == []


def test_a_word_either_way_ends_what_was_told_and_begins_anew() -> None:
    job = Watched()
    job.is_hanging = True
    job.run_until(30)
    assert job.blocked.category == "input"
    count = len(job.looks)
    job.blocked.stir()
    assert job.blocked.category is None
    job.run_until(30.31)
    assert job.blocked.category == "input"
    assert [round(at, 3) for at in job.looks[count:]] == [30.2, 30.3]


def test_a_job_that_hangs_is_looked_at_once_a_minute_until_it_goes_on() -> None:
    job = Watched()
    job.is_hanging = True
    job.run_until(300)
    assert job.blocked.category == "input"
    assert len(job.looks) == 2 + 5
    job.is_hanging, job.computed = False, 1
    job.run_until(310)
    assert job.blocked.category is None


def test_a_job_without_input_is_measured_at_most_once_a_minute_and_idle_after_one() -> None:
    job = Watched(has_input=False)
    job.run_until(64.9)
    assert job.blocked.category is None
    job.run_until(65.1)
    assert job.blocked.category == "idle"
    job.run_until(300)
    assert job.measures == [5, 65, 125, 185, 245]
    assert job.blocked.category == "idle"


def test_a_job_that_computes_is_not_idle_and_one_that_begins_to_is_not_any_more() -> None:
    job = Watched(has_input=False)
    for minute in range(5):
        job.computed = minute
        job.run_until(60 * minute + 10)
    assert job.blocked.category is None
    job.run_until(400)
    assert job.blocked.category == "idle"
    job.computed = 99
    job.run_until(430)
    assert job.blocked.category is None


def test_output_within_the_minute_is_no_idleness() -> None:
    job = Watched(has_input=False)
    for half_minute in range(10):
        job.run_until(30 * half_minute + 20)
        job.blocked.stir()
        assert job.blocked.category is None
    assert all(b - a >= 60 for a, b in zip(job.measures, job.measures[1:], strict=False))


# -- by keepers ----------------------------------------------------------------------------------


@pytest.fixture
def mother(tmp_path: Path) -> Iterator[Nursery]:
    with nursery(tmp_path) as mother:
        yield mother
        assert mother.log() == ""


def expect_blocked(keeper: KeeperClient) -> object:
    message = keeper.expect("blocked", "ended")
    assert message["ev"] == "blocked"
    return message["category"]


def test_a_keeper_tells_that_its_job_hangs_and_that_it_goes_on(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "printf 'who? '; read x; printf 'you? '; read y", stdin="open"))
    told = keeper.expect("blocked")
    assert (told["category"], told["sizes"]) == ("input", [5])
    keeper.send({"op": "write", "data": "Ym9iCg==", "eof": False})
    keeper.expect("unblocked")
    told = keeper.expect("blocked")
    assert (told["category"], told["sizes"]) == ("input", [10])
    keeper.send({"op": "write", "data": "", "eof": True})
    assert keeper.expect("ended")["record"]["exitCode"] == 1


def test_output_of_anybody_of_the_job_ends_what_was_told(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = "(trap 'echo tick; kill $!; exit' USR1; sleep 600 & wait) & echo $!; read x"
    keeper.send(bash(directory, text, stdin="open"))
    assert expect_blocked(keeper) == "input"
    os.kill(int((directory / "output").read_text()), signal.SIGUSR1)
    assert keeper.expect("unblocked", "ended")["ev"] == "unblocked"
    assert expect_blocked(keeper) == "input"
    keeper.send({"op": "write", "data": "", "eof": True})
    keeper.expect("gone")


def test_whoever_attaches_is_told_on_what_the_job_is_blocked(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "read x", stdin="open"))
    keeper.expect("blocked")
    keeper.close()
    again = mother.find(directory)
    again.send({"op": "attach", "dir": str(directory)})
    assert again.expect("state")["blocked"] == "input"
    again.send({"op": "write", "data": "Cg==", "eof": False})
    assert again.expect("unblocked", "ended")["ev"] == "unblocked"
    again.expect("ended")


def test_a_silent_job_is_idle_until_it_computes(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = "sleep 2; for ((i = 0; i < 400000; i++)); do :; done; sleep 60"
    keeper.send(bash(directory, text, idle=0.5))
    assert expect_blocked(keeper) == "idle"
    assert keeper.expect("unblocked", "ended")["ev"] == "unblocked"
    assert expect_blocked(keeper) == "idle"
    keeper.send({"op": "cancel", "grace": 5})
    keeper.expect("ended")


def test_a_job_that_runs_one_program_after_the_other_is_not_idle(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    text = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; done"
    keeper.send(bash(directory, text, idle=0.3))
    assert keeper.expect("blocked", "ended")["ev"] == "ended"


def test_a_keeper_that_is_stopped_tells_nothing(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "read x", stdin="open"))
    keeper.expect("started")
    claim = int(os.readlink(directory / "claim").split()[0])
    os.kill(claim, signal.SIGSTOP)
    assert select.select([keeper.sock], [], [], 0.8)[0] == []
    os.kill(claim, signal.SIGCONT)
    assert expect_blocked(keeper) == "input"
    keeper.send({"op": "write", "data": "Cg==", "eof": False})
    keeper.expect("gone")


def test_the_end_of_a_blocked_job_is_told_as_any(mother: Nursery) -> None:
    directory, keeper = mother.directory(), mother.keeper()
    keeper.send(bash(directory, "read x", stdin="open", deadline=1.0))
    keeper.expect("blocked")
    ended = keeper.expect("ended", "unblocked")
    assert (ended["ev"], ended["record"]["cause"]) == ("ended", "deadline")
    assert keeper.expect("gone", "unblocked")["ev"] == "gone"
