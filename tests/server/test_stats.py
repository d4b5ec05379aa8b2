"""Mirrors `engine/server/stats.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from engine.model import Status
from engine.server import stats as module
from engine.server.stats import Stats, Times, gauges, percentile
from engine.store.past import End

T = 1_700_000_000_000  # 2023-11-14T22:13:20Z, where a step begins
BIG = 1 << 20  # bytes, enough for all samples
HOUR = 3_600_000


def end(
    at: int,
    *,
    caller: str = "ci",
    status: Status = Status.SUCCEEDED,
    ms: int | None = 10,
    created: int = T,
    started: int | None = T,
) -> End:
    return End(
        caller=caller,
        status=status,
        created_at=created,
        started_at=started,
        ended_at=at,
        duration_ms=ms,
    )


def shown(stats: Stats, since: int = 0) -> list[dict[str, Any]]:
    samples, has_more = stats.samples(since, BIG)
    assert not has_more
    return [json.loads(bytes(sample)) for sample in samples]


EMPTY: dict[str, Any] = {
    "ended": {},
    "lines": {},
    "p50Ms": None,
    "p95Ms": None,
    "launchP95Ms": None,
}


def test_there_are_720_samples_from_the_first_moment_on() -> None:
    samples = shown(Stats(T))
    assert len(samples) == 720
    assert samples[0] == {"time": "2023-11-14T21:13:25.000Z", "running": 0, "queued": 0, **EMPTY}
    assert samples[-1] == {"time": "2023-11-14T22:13:20.000Z", "running": 0, "queued": 0, **EMPTY}


def test_a_step_has_what_came_in_it_and_what_ran_at_its_end() -> None:
    stats = Stats(T)
    for at, status, ms in (
        (T, Status.SUCCEEDED, 100),
        (T + 4_999, Status.SUCCEEDED, 300),
        (T + 1, Status.FAILED, 200),
        (T + 2, Status.CANCELLED, None),
    ):
        stats.ended(end(at, status=status, ms=ms))
    stats.committed(T + 10, {1: 5, 4: 1})
    stats.committed(T + 20, {1: 2})
    for ms in (4, 2, 3):
        stats.launched(T + 30, ms)
    assert len(shown(stats, T)) == 0  # it is not over
    stats.tick(T + 5_000, 3, 1)
    assert shown(stats, T) == [
        {
            "time": "2023-11-14T22:13:25.000Z",
            "running": 3,
            "queued": 1,
            "ended": {"succeeded": 2, "failed": 1, "cancelled": 1},
            "lines": {"info": 7, "error": 1},
            "p50Ms": 200,
            "p95Ms": 300,
            "launchP95Ms": 4,
        }
    ]
    stats.ended(end(T + 5_000, status=Status.LOST))
    stats.tick(T + 10_000, 0, 0)
    assert [sample["ended"] for sample in shown(stats, T + 5_000)] == [{"lost": 1}]
    assert len(shown(stats)) == 720


def test_an_end_that_is_told_late_counts_where_it_was() -> None:
    stats = Stats(T)
    stats.tick(T + 5_000, 0, 0)
    assert shown(stats, T)[0]["ended"] == {}
    stats.ended(end(T + 4_000))
    assert shown(stats, T)[0]["ended"] == {"succeeded": 1}
    stats.ended(end(T + 60_000))  # a clock that runs ahead of ours: now
    stats.tick(T + 10_000, 0, 0)
    assert shown(stats, T + 5_000)[0]["ended"] == {"succeeded": 1}


def test_what_is_over_an_hour_old_is_gone_from_samples_and_callers() -> None:
    stats = Stats(T)
    stats.ended(end(T - HOUR - 1))
    stats.ended(end(T + 1, caller="a", status=Status.FAILED))
    stats.ended(end(T + 1, caller="b", status=Status.CANCELLED))
    stats.tick(T + 5_000, 0, 0)
    stats.ended(end(T + 6_000, caller="a", status=Status.TIMED_OUT))
    stats.ended(end(T + 6_000, caller="a"))
    assert {name: (t.ended, t.failed) for name, t in stats.by_caller.items()} == {
        "a": (3, 2),
        "b": (1, 0),
    }
    stats.tick(T + HOUR, 0, 0)
    assert len(stats.by_caller) == 2
    stats.tick(T + HOUR + 5_000, 0, 0)
    assert {name: (t.ended, t.failed) for name, t in stats.by_caller.items()} == {"a": (2, 1)}
    assert shown(stats)[0]["ended"] == {"timed_out": 1, "succeeded": 1}
    stats.tick(T + HOUR + 10_000, 0, 0)
    assert stats.by_caller == {}


def test_a_machine_that_slept_has_the_steps_in_between() -> None:
    stats = Stats(T)
    stats.tick(T + 20_000, 2, 0)
    assert [sample["running"] for sample in shown(stats, T)] == [2, 2, 2, 2]
    stats.ended(end(T + 21_000))
    stats.tick(T + 30 * 24 * HOUR, 1, 0)
    samples = shown(stats)
    assert len(samples) == 720
    assert {sample["running"] for sample in samples} == {1}
    assert stats.by_caller == {}


def test_a_clock_set_back_a_little_waits_and_one_set_back_far_begins_anew() -> None:
    stats = Stats(T)
    stats.ended(end(T + 1))
    stats.tick(T + 5_000, 1, 0)
    stats.tick(T - 50_000, 9, 9)
    assert shown(stats)[-1]["ended"] == {"succeeded": 1}
    stats.tick(T - 100_000, 4, 0)
    assert len(shown(stats)) == 720
    assert shown(stats)[-1]["time"] == "2023-11-14T22:11:40.000Z"
    assert stats.by_caller == {}


def test_a_page_ends_early_and_goes_on_from_the_last_time() -> None:
    stats = Stats(T)
    (one, *_rest), _ = stats.samples(0, BIG)
    size = len(bytes(one)) + 1
    page, has_more = stats.samples(0, 3 * size)
    assert (len(page), has_more) == (3, True)
    assert page == stats.samples(0, BIG)[0][:3]
    last, has_more = stats.samples(T - 10_000, 3 * size)
    assert (len(last), has_more) == (2, False)
    assert len(stats.samples(0, 1)[0]) == 1  # there is always some progress
    assert stats.samples(T, BIG) == ([], False)


def test_since_a_time_within_a_step_that_step_is_shown() -> None:
    stats = Stats(T)
    assert len(shown(stats, T - 5_000)) == 1
    assert len(shown(stats, T - 5_001)) == 2


@pytest.mark.parametrize(
    ("ordered", "percent", "expected"),
    [
        ([], 50, None),
        ([7], 50, 7),
        ([7], 95, 7),
        ([1, 2, 3, 4], 50, 2),
        ([1, 2, 3, 4, 5], 50, 3),
        (list(range(1, 101)), 95, 95),
        (list(range(1, 21)), 95, 19),
    ],
)
def test_a_percentile_is_one_of_the_values(
    ordered: list[int], percent: int, expected: int | None
) -> None:
    assert percentile(ordered, percent) == expected


def test_of_very_many_times_a_fair_choice_is_kept() -> None:
    times = Times()
    for ms in range(100_000):
        times.add(ms)
    assert len(times.kept) == 1_000
    # The standard deviation of the median of a thousand is 1,600 here.
    assert 40_000 < (percentile(sorted(times.kept), 50) or 0) < 60_000


@pytest.mark.parametrize("most_inline", [10_000, 0])
async def test_the_hour_is_all_steps_in_one(
    monkeypatch: pytest.MonkeyPatch, most_inline: int
) -> None:
    monkeypatch.setattr(module, "INLINE_TIMES", most_inline)
    stats = Stats(T)
    for step in range(3):
        stats.ended(end(T + step * 5_000, ms=(step + 1) * 100))
        stats.committed(T + step * 5_000, {3: 1})
        stats.launched(T + step * 5_000, step)
        stats.tick(T + (step + 1) * 5_000, 0, 0)
    stats.ended(end(T + 15_000, status=Status.FAILED, ms=1_000))  # in the step that goes on
    with trio.fail_after(5):
        hour = await stats.hour()
    assert hour == {
        "ended": {"succeeded": 3, "failed": 1},
        "lines": {"warning": 3},
        "p50Ms": 200,
        "p95Ms": 1_000,
        "launchP95Ms": 2,
    }


async def test_the_hour_has_what_is_told_late_and_not_what_is_over_an_hour_old() -> None:
    stats = Stats(T)
    stats.ended(end(T + 1, status=Status.FAILED, ms=500))
    stats.committed(T + 1, {4: 2})
    stats.tick(T + 5_000, 0, 0)
    with trio.fail_after(5):
        assert (await stats.hour())["p95Ms"] == 500
        stats.ended(end(T + 2, ms=900))
        assert (await stats.hour())["p95Ms"] == 900
        stats.ended(end(T + 5_000, ms=70))
        stats.tick(T + HOUR + 5_000, 0, 0)
        assert await stats.hour() == {
            **EMPTY,
            "ended": {"succeeded": 1},
            "p50Ms": 70,
            "p95Ms": 70,
        }


def test_gauges_are_what_ran_and_waited_at_the_end_of_each_step() -> None:
    begin = T
    tasks = [
        # Waited from the third last end on, ran over the second last, ended before the last.
        end(T - 4_000, created=T - 11_000, started=T - 9_000),
        end(T - 5_000, created=T - 12_000, started=T - 10_000),  # both on an end: of the next
        End(caller="x", status=Status.RUNNING, created_at=T - 2 * HOUR, started_at=T - HOUR + 1),
        End(caller="x", status=Status.QUEUED, created_at=T - 4_000),
        end(T - 6_000, created=T - 7_000, started=None),  # never ran
    ]
    running, queued = gauges(tasks, begin)
    assert len(running) == len(queued) == 720
    assert running[-4:] == [1, 2, 2, 1]
    assert queued[-4:] == [0, 1, 0, 1]
    assert (running[0], queued[0]) == (1, 0)


async def test_the_hour_before_the_start_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_ENDS", 1)
    stats = Stats(T + 3_000)
    assert stats.begin == T
    early = end(T + 100, created=T - 9_000, started=T - 8_000)
    stats.ended(early)
    stats.ended(end(T + 200, created=T + 150))
    assert stats.early == [early]
    before = [end(T - 7_000, ms=40, created=T - 12_000, started=T - 11_000)]
    await stats.remember(before, [(T // 5_000 - 1, 4, 2)], gauges([*before, early], stats.begin))
    assert stats.early == []
    samples = shown(stats)
    assert [sample["running"] for sample in samples[-3:]] == [1, 1, 1]
    assert [sample["ended"] for sample in samples[-3:]] == [{}, {"succeeded": 1}, {}]
    assert samples[-1]["lines"] == {"error": 2}
    assert samples[-2]["p50Ms"] == 40
    assert stats.by_caller["ci"].ended == 3
    stats.ended(end(T + 300, created=T - 9_000))
    assert stats.early == []  # nobody asks for them any more
