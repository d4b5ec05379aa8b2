"""Mirrors `engine/cli/status.py`."""

from __future__ import annotations

import json

import pytest
from cli.program import engine
from client.fake_engine import FakeEngine


def test_status_is_exit_0_while_the_engine_is_well(fake: FakeEngine) -> None:
    done = engine(fake.home, "status")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(b"engine 0.1.0   ws://127.0.0.1:8420/rpc   pid ")
    assert engine(fake.home, "status", "-q") == (0, b"", "")


def test_status_is_exit_1_where_it_is_degraded(fake: FakeEngine) -> None:
    fake.degraded = ["the disk is full"]
    done = engine(fake.home, "status")
    assert (done.code, done.out.splitlines()[0]) == (1, b"the disk is full")


def test_status_as_json_is_the_wires(fake: FakeEngine) -> None:
    assert json.loads(engine(fake.home, "status", "--json").out)["slots"] == 32


@pytest.mark.parametrize(
    ("options", "line"),
    [([], b"stopped; 1 job runs on\n"), (["--cancel"], b"stopped; 1 job cancelled\n")],
)
def test_stop_waits_until_the_engine_is_gone(
    fake: FakeEngine, options: list[str], line: bytes
) -> None:
    engine(fake.home, "run", "-d", "sleep 60")
    assert engine(fake.home, "stop", *options) == (0, line, "")
    assert fake.calls[-1][0] == "shutdown"
    assert fake.calls[-1][1]["mode"] == ("cancel" if options else "leave")
    fake.wait_for(lambda: fake.process is None)


def test_stop_takes_the_humans_token(fake: FakeEngine) -> None:
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
