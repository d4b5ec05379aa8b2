"""Mirrors `engine/cli/status.py`."""

from __future__ import annotations

import json

import pytest
from cli.fuller_engine import FullerEngine, caller
from cli.program import engine


def test_status_is_exit_0_while_the_engine_is_well(fake: FullerEngine) -> None:
    done = engine(fake.home, "status")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(b"engine 0.1.0   ws://127.0.0.1:8420/rpc   pid ")
    assert engine(fake.home, "status", "-q") == (0, b"", "")


def test_status_is_exit_1_where_it_is_degraded(fake: FullerEngine) -> None:
    fake.degraded = ["the disk is full"]
    done = engine(fake.home, "status")
    assert (done.code, done.out.splitlines()[0]) == (1, b"the disk is full")


def test_status_names_the_callers_and_sums_up_the_hour(fake: FullerEngine) -> None:
    fake.roster_pages = [[caller("ci", 2), caller("anna")]]
    fake.hour = {"ended": {"failed": 3}, "p50Ms": 1_200, "p95Ms": 4_000, "launchP95Ms": 2}
    lines = engine(fake.home, "status").out.decode().splitlines()
    assert "callers    ci 2 - 1 idle".replace("-", "·") in lines
    assert "last hour  0 succeeded · 3 failed" in lines
    assert "time       p50 1.2s · p95 4s           launch p95 2ms" in lines
    [asked] = [params for method, params in fake.calls if method == "read_stats"]
    assert asked["since"].endswith("Z")  # no sample comes, and none is needed


def test_an_engine_without_roster_and_stats_has_a_status_all_the_same(fake: FullerEngine) -> None:
    fake.roster_pages = fake.hour = None
    done = engine(fake.home, "status")
    assert (done.code, done.err) == (0, "")
    assert b"callers    1\n" in done.out
    assert b"last hour" not in done.out
    assert json.loads(engine(fake.home, "status", "--json").out)["stats"] is None


def test_status_as_json_is_the_wires_with_stats_added(fake: FullerEngine) -> None:
    status = json.loads(engine(fake.home, "status", "--json").out)
    assert status["slots"] == 32
    assert status["stats"] == {"samples": [], "hasMore": False, "lastHour": fake.hour}


@pytest.mark.parametrize(
    ("options", "line"),
    [([], b"stopped; 1 job runs on\n"), (["--cancel"], b"stopped; 1 job cancelled\n")],
)
def test_stop_waits_until_the_engine_is_gone(
    fake: FullerEngine, options: list[str], line: bytes
) -> None:
    engine(fake.home, "run", "-d", "sleep 60")
    assert engine(fake.home, "stop", *options) == (0, line, "")
    assert fake.calls[-1][0] == "shutdown"
    assert fake.calls[-1][1]["mode"] == ("cancel" if options else "leave")
    fake.wait_for(lambda: fake.process is None)


def test_stop_takes_the_humans_token(fake: FullerEngine) -> None:
    token = fake.home / "human.token"
    token.unlink()
    done = engine(fake.home, "stop")
    assert done == (
        77,
        b"",
        f"engine: needs the human token, {token}: no such file or directory;"
        " ENGINE_TOKEN_FILE may name another place\n",
    )
    other = fake.home / "other"
    other.write_text("h" * 43)
    assert engine(fake.home, "stop", ENGINE_TOKEN_FILE=str(other)).code == 0
